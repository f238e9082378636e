//! Generic netlink: families by name, commands with attributes.

use std::io;

use netlink_packet_core::NLM_F_DUMP;
use netlink_sys::protocols::NETLINK_GENERIC;

use super::connection::NetlinkConnection;

// `GENL_ID_CTRL`, `CTRL_CMD_GETFAMILY`, `CTRL_ATTR_FAMILY_ID` and `CTRL_ATTR_FAMILY_NAME` of linux/genetlink.h.
const CONTROL: u16 = 0x10;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;

const HEADER_BYTES: usize = 4;

// `NLA_F_NESTED` of linux/netlink.h, and `NLA_TYPE_MASK`: the two highest bits of a type are flags.
const NESTED: u16 = 0x8000;
const TYPE_MASK: u16 = 0x3fff;

// Attempts for a dump that the kernel interrupts because the listed objects change.
const DUMP_ATTEMPTS: u32 = 3;

pub(crate) struct GenericFamily {
    connection: NetlinkConnection,
    id: u16,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct RequestAttributes(Vec<u8>);

impl GenericFamily {
    // `ENOENT` if the kernel has no family of that name.
    pub(crate) fn open(name: &str) -> io::Result<Self> {
        let mut connection = NetlinkConnection::open(NETLINK_GENERIC)?;
        let request = command(GET_FAMILY, &RequestAttributes::default().text(FAMILY_NAME, name));
        let answers = connection.request(CONTROL, 0, &request)?;
        let body = answers.first().map(|answer| after_header(&answer.body)).unwrap_or_default();
        let id = attribute(body, FAMILY_ID).and_then(|value| value.first_chunk().copied());
        Ok(GenericFamily { connection, id: id.map(u16::from_ne_bytes).ok_or(io::ErrorKind::UnexpectedEof)? })
    }

    /// The attributes of the only answer.
    pub(crate) fn ask(&mut self, id: u8, attributes: &RequestAttributes) -> io::Result<Vec<u8>> {
        let answers = self.connection.request(self.id, 0, &command(id, attributes))?;
        let answer = answers.into_iter().next().ok_or(io::ErrorKind::UnexpectedEof)?;
        Ok(after_header(&answer.body).to_vec())
    }

    /// Sends a command without answer, and requests error texts.
    pub(crate) fn act(&mut self, id: u8, attributes: &RequestAttributes) -> io::Result<()> {
        self.connection.explain();
        self.connection.request(self.id, 0, &command(id, attributes)).map(|_| ())
    }

    /// The attributes of each answer.
    pub(crate) fn dump(&mut self, id: u8, attributes: &RequestAttributes) -> io::Result<Vec<Vec<u8>>> {
        let body = command(id, attributes);
        let mut attempts = 1;
        loop {
            match self.connection.request(self.id, NLM_F_DUMP, &body) {
                Ok(answers) => {
                    return Ok(answers.iter().map(|answer| after_header(&answer.body).to_vec()).collect());
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted && attempts < DUMP_ATTEMPTS => {
                    attempts += 1;
                }
                Err(error) => return Err(error),
            }
        }
    }
}

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

fn command(id: u8, attributes: &RequestAttributes) -> Vec<u8> {
    let mut bytes = vec![id, 1, 0, 0];
    bytes.extend(&attributes.0);
    bytes
}

fn after_header(body: &[u8]) -> &[u8] {
    body.get(HEADER_BYTES..).unwrap_or_default()
}

/// Kind and value of each attribute, also of nested ones. Incomplete ones are left out.
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
    attributes(body).find(|(found, _)| *found == kind).map(|(_, value)| value)
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
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn attributes_are_found_and_truncated_ones_are_not() {
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
    fn what_is_nested_is_read_again() {
        let inner = RequestAttributes::default().text(2, "eth0").u32(3, 1);
        let outer = RequestAttributes::default().nested(1, &inner).u32(9, 5).0;
        let header = attribute(&outer, 1).expect("the nest");
        assert_eq!(attribute(header, 2).map(text).as_deref(), Some("eth0"));
        assert_eq!((u32_of(header, 3), u32_of(&outer, 9), u32_of(&outer, 8)), (Some(1), Some(5), None));
        assert_eq!(attributes(header).map(|(kind, _)| kind).collect::<Vec<_>>(), [2, 3]);
    }

    #[test]
    fn the_kernel_tells_of_its_families() {
        let control = GenericFamily::open("nlctrl").expect("every kernel has it");
        assert_eq!(control.id, CONTROL);
        let mut control = control;
        let families = control.dump(GET_FAMILY, &RequestAttributes::default()).expect("a list");
        let names: Vec<String> =
            families.iter().filter_map(|family| attribute(family, FAMILY_NAME).map(text)).collect();
        assert!(names.iter().any(|name| name == "nlctrl"), "{names:?}");
        let missing = GenericFamily::open("no-such-family").err().and_then(|error| error.raw_os_error());
        assert_eq!(missing, Some(libc::ENOENT));
    }

    proptest! {
        #[test]
        fn any_bytes_end(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            for (_, value) in attributes(&bytes) {
                let _ = (number(value), text(value), attributes(value).count());
            }
        }
    }
}
