//! Attributes of netlink messages.

// `NLA_F_NESTED` of linux/netlink.h, and `NLA_TYPE_MASK`: the two highest bits of a type are flags.
const NESTED: u16 = 0x8000;
const TYPE_MASK: u16 = 0x3fff;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct RequestAttributes(Vec<u8>);

impl RequestAttributes {
    #[must_use]
    pub(crate) fn bytes(mut self, kind: u16, value: &[u8]) -> Self {
        let length = u16::try_from(4 + value.len()).unwrap_or(u16::MAX);
        self.0.extend(length.to_ne_bytes());
        self.0.extend(kind.to_ne_bytes());
        self.0.extend(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    #[must_use]
    pub(crate) fn u32(self, kind: u16, value: u32) -> Self {
        self.bytes(kind, &value.to_ne_bytes())
    }

    /// Zero-terminated.
    #[must_use]
    pub(crate) fn text(self, kind: u16, value: &str) -> Self {
        let mut bytes = value.as_bytes().to_vec();
        bytes.push(0);
        self.bytes(kind, &bytes)
    }

    #[must_use]
    pub(crate) fn nested(self, kind: u16, inner: &RequestAttributes) -> Self {
        self.bytes(kind | NESTED, &inner.0)
    }
}

/// Kind and value of each attribute, including nested ones. Incomplete attributes are left out.
pub(crate) fn attributes(mut rest: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let &[l0, l1, k0, k1] = rest.first_chunk::<4>()?;
        let length = usize::from(u16::from_ne_bytes([l0, l1]));
        let value = rest.get(4..length)?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((u16::from_ne_bytes([k0, k1]) & TYPE_MASK, value))
    })
}

pub(crate) fn attribute(body: &[u8], kind: u16) -> Option<&[u8]> {
    attributes(body).find(|(attribute_kind, _)| *attribute_kind == kind).map(|(_, value)| value)
}

/// Four bytes in the host's order.
pub(crate) fn word(bytes: &[u8], offset: usize) -> Option<u32> {
    bytes.get(offset..)?.first_chunk().copied().map(u32::from_ne_bytes)
}

/// A number of 1, 2, 4 or 8 bytes.
pub(crate) fn number(value: &[u8]) -> Option<u64> {
    match *value {
        [byte] => Some(u64::from(byte)),
        [a, b] => Some(u64::from(u16::from_ne_bytes([a, b]))),
        [a, b, c, d] => Some(u64::from(u32::from_ne_bytes([a, b, c, d]))),
        _ => <[u8; 8]>::try_from(value).ok().map(u64::from_ne_bytes),
    }
}

pub(crate) fn u32_of(body: &[u8], kind: u16) -> Option<u32> {
    attribute(body, kind).and_then(number).and_then(|number| u32::try_from(number).ok())
}

/// Without the terminating zero.
pub(crate) fn text(value: &[u8]) -> String {
    let end = value.iter().position(|byte| *byte == 0).unwrap_or(value.len());
    String::from_utf8_lossy(value.get(..end).unwrap_or_default()).into_owned()
}

// Attributes of one word each, as in an answer of the kernel (`struct nlattr`).
#[cfg(test)]
pub(super) fn words(attributes: &[(u16, u32)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (kind, value) in attributes {
        bytes.extend(8_u16.to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(value.to_ne_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_found_unless_truncated() {
        let body = RequestAttributes::default().text(2, "netdev").bytes(3, &7_u64.to_ne_bytes()).0;
        assert_eq!(attribute(&body, 2), Some(&b"netdev\0"[..]));
        assert_eq!(attribute(&body, 3).and_then(number), Some(7));
        assert_eq!(attribute(&body, 4), None);
        for length in 0..body.len() {
            assert_eq!(attribute(&body[..length], 3), None);
        }
        // A length below the header's must not loop forever.
        assert_eq!(attribute(&[0, 0, 9, 0], 9), None);
    }

    #[test]
    fn nested_attributes_are_read_back() {
        let inner = RequestAttributes::default().text(2, "eth0").u32(3, 1);
        let outer = RequestAttributes::default().nested(1, &inner).u32(9, 5).0;
        let header = attribute(&outer, 1).expect("the nest");
        assert_eq!(attribute(header, 2).map(text).as_deref(), Some("eth0"));
        assert_eq!((u32_of(header, 3), u32_of(&outer, 9), u32_of(&outer, 8)), (Some(1), Some(5), None));
        assert_eq!(attributes(header).map(|(kind, _)| kind).collect::<Vec<_>>(), [2, 3]);
    }
}
