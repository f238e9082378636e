//! RADIUS packets (RFC 2865, section 3 and 5).

pub const HEADER_BYTES: usize = 20;
/// The longest packet (RFC 2865, section 3).
pub const MOST_BYTES: usize = 4096;
/// Length of an authenticator and of a Message-Authenticator.
pub const AUTHENTICATOR_BYTES: usize = 16;
/// The longest value of an attribute.
pub const VALUE_BYTES: usize = 253;

pub mod code {
    pub const ACCESS_REQUEST: u8 = 1;
    pub const ACCESS_ACCEPT: u8 = 2;
    pub const ACCESS_REJECT: u8 = 3;
    /// RFC 5997.
    pub const STATUS_SERVER: u8 = 12;
}

pub mod attribute {
    pub const USER_NAME: u8 = 1;
    pub const USER_PASSWORD: u8 = 2;
    pub const CHAP_PASSWORD: u8 = 3;
    pub const PROXY_STATE: u8 = 33;
    /// Without it, the authenticator of the request is the challenge.
    pub const CHAP_CHALLENGE: u8 = 60;
    pub const EAP_MESSAGE: u8 = 79;
    /// HMAC-MD5 of the packet (RFC 3579, section 3.2).
    pub const MESSAGE_AUTHENTICATOR: u8 = 80;
}

/// A packet with attributes of correct length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RadiusPacket<'a> {
    bytes: &'a [u8],
}

impl<'a> RadiusPacket<'a> {
    /// Bytes after the length of the packet are padding. `None` for a length below 20, above 4096 or beyond the datagram,
    /// and for an attribute of less than two bytes or beyond the packet.
    #[must_use]
    pub fn parse(datagram: &'a [u8]) -> Option<Self> {
        let header = datagram.first_chunk::<HEADER_BYTES>()?;
        let length = usize::from(u16::from_be_bytes([header[2], header[3]]));
        if !(HEADER_BYTES..=MOST_BYTES).contains(&length) {
            return None;
        }
        let bytes = datagram.get(..length)?;
        let mut remaining = &bytes[HEADER_BYTES..];
        while !remaining.is_empty() {
            (_, remaining) = first_attribute(remaining)?;
        }
        Some(Self { bytes })
    }

    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Type of packet, one of [`code`].
    #[must_use]
    pub fn code(&self) -> u8 {
        self.bytes[0]
    }

    /// A reply has the identifier of its request.
    #[must_use]
    pub fn identifier(&self) -> u8 {
        self.bytes[1]
    }

    /// Random in an Access-Request, a digest in other packets.
    #[must_use]
    pub fn authenticator(&self) -> [u8; AUTHENTICATOR_BYTES] {
        let mut authenticator = [0; AUTHENTICATOR_BYTES];
        authenticator.copy_from_slice(&self.bytes[4..HEADER_BYTES]);
        authenticator
    }

    pub fn attributes(&self) -> impl Iterator<Item = RadiusAttribute<'a>> + use<'a> {
        let bytes = self.bytes;
        let mut offset = HEADER_BYTES;
        std::iter::from_fn(move || {
            // Checked by `parse`.
            let (mut attribute, after) = first_attribute(&bytes[offset..])?;
            attribute.offset = offset + 2;
            offset = bytes.len() - after.len();
            Some(attribute)
        })
    }

    /// The value of the first attribute with the number `kind`.
    #[must_use]
    pub fn find(&self, kind: u8) -> Option<&'a [u8]> {
        self.attributes().find(|attribute| attribute.kind == kind).map(|attribute| attribute.value)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RadiusAttribute<'a> {
    pub kind: u8,
    /// Up to 253 bytes.
    pub value: &'a [u8],
    /// Offset of the value in the packet.
    pub offset: usize,
}

/// The first attribute and the bytes after it; `None` without a whole one.
fn first_attribute(bytes: &[u8]) -> Option<(RadiusAttribute<'_>, &[u8])> {
    let [kind, length, ..] = *bytes else { return None };
    let (attribute, after) = bytes.split_at_checked(length.into()).filter(|_| length >= 2)?;
    Some((RadiusAttribute { kind, value: &attribute[2..], offset: 0 }, after))
}

/// Writes a packet into a buffer.
#[derive(Debug)]
pub struct PacketWriter<'a> {
    buffer: &'a mut [u8],
    length: usize,
}

impl<'a> PacketWriter<'a> {
    /// A packet without attributes; `None` for a buffer of less than 20 bytes.
    pub fn new(
        buffer: &'a mut [u8],
        code: u8,
        identifier: u8,
        authenticator: [u8; AUTHENTICATOR_BYTES],
    ) -> Option<Self> {
        let header = buffer.first_chunk_mut::<HEADER_BYTES>()?;
        header[0] = code;
        header[1] = identifier;
        header[4..].copy_from_slice(&authenticator);
        Some(Self { buffer, length: HEADER_BYTES })
    }

    /// Returns the offset of the value; `None`, and writes nothing, for more than 253 bytes, or beyond the buffer or the
    /// longest packet.
    #[must_use]
    pub fn attribute(&mut self, kind: u8, value: &[u8]) -> Option<usize> {
        let start = self.length;
        let end = start + 2 + value.len();
        if value.len() > VALUE_BYTES || end > MOST_BYTES {
            return None;
        }
        let space = self.buffer.get_mut(start..end)?;
        space[0] = kind;
        space[1] = (value.len() + 2) as u8;
        space[2..].copy_from_slice(value);
        self.length = end;
        Some(start + 2)
    }

    /// Writes the length, and returns the packet.
    pub fn finish(self) -> &'a mut [u8] {
        let length = self.length;
        self.buffer[2..4].copy_from_slice(&(length as u16).to_be_bytes());
        &mut self.buffer[..length]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn packet(attributes: &[u8]) -> Vec<u8> {
        let length = (HEADER_BYTES + attributes.len()) as u16;
        let mut packet = vec![1, 9];
        packet.extend(length.to_be_bytes());
        packet.extend([7; 16]);
        packet.extend(attributes);
        packet
    }

    #[test]
    fn padding_is_ignored() {
        let mut bytes = packet(&[1, 3, b'a']);
        bytes.extend([0xff; 5]);
        let packet = RadiusPacket::parse(&bytes).unwrap();
        assert_eq!((packet.code(), packet.identifier(), packet.bytes().len()), (1, 9, 23));
        let expected = RadiusAttribute { kind: 1, value: b"a", offset: 22 };
        assert_eq!(packet.attributes().collect::<Vec<_>>(), [expected]);
        assert_eq!((packet.find(1), packet.find(2)), (Some(&b"a"[..]), None));
    }

    #[test]
    fn wrong_packet_and_attribute_lengths_are_refused() {
        for attributes in [&[1][..], &[1, 0], &[1, 1], &[1, 4, 0], &[1, 3, 0, 2]] {
            assert_eq!(RadiusPacket::parse(&packet(attributes)), None, "{attributes:?}");
        }
        let good = packet(&[]);
        assert!(RadiusPacket::parse(&good).is_some());
        for length in [0_u16, 19, 21, 4097] {
            let mut bad = good.clone();
            bad[2..4].copy_from_slice(&length.to_be_bytes());
            assert_eq!(RadiusPacket::parse(&bad), None, "{length}");
        }
        assert_eq!(RadiusPacket::parse(&good[..19]), None);
    }

    #[test]
    fn a_full_packet_refuses_attributes() {
        let mut buffer = [0; 30];
        let mut writer = PacketWriter::new(&mut buffer, 2, 1, [0; 16]).unwrap();
        assert_eq!(writer.attribute(1, &[0; 9]), None);
        assert_eq!(writer.attribute(1, &[0; 254]), None);
        assert_eq!(writer.attribute(1, &[0; 8]), Some(22));
        assert_eq!(writer.finish().len(), 30);
        assert!(PacketWriter::new(&mut [0; 19], 2, 1, [0; 16]).is_none());
    }

    proptest! {
        #[test]
        fn written_packets_parse_to_the_same_attributes(
            code: u8,
            identifier: u8,
            authenticator: [u8; 16],
            attributes in proptest::collection::vec((any::<u8>(), proptest::collection::vec(any::<u8>(), 0..=253)), 0..12),
        ) {
            let mut buffer = [0xee; MOST_BYTES];
            let mut writer = PacketWriter::new(&mut buffer, code, identifier, authenticator).unwrap();
            for (kind, value) in &attributes {
                writer.attribute(*kind, value).unwrap();
            }
            let bytes = writer.finish().to_vec();
            let packet = RadiusPacket::parse(&bytes).unwrap();
            prop_assert_eq!((packet.code(), packet.identifier()), (code, identifier));
            prop_assert_eq!(packet.authenticator(), authenticator);
            let parsed_attributes: Vec<_> =
                packet.attributes().map(|attribute| (attribute.kind, attribute.value.to_vec())).collect();
            prop_assert_eq!(parsed_attributes, attributes);
        }
    }
}
