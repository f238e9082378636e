//! Generic netlink: families by name, commands with attributes.

use std::io;

use netlink_sys::protocols::NETLINK_GENERIC;

use super::connection::Connection;

/// `GENL_ID_CTRL`, `CTRL_CMD_GETFAMILY`, `CTRL_ATTR_FAMILY_ID` and `CTRL_ATTR_FAMILY_NAME` of linux/genetlink.h.
const CONTROL: u16 = 0x10;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;

/// Bytes of struct genlmsghdr.
const HEADER_BYTES: usize = 4;

/// `NLA_TYPE_MASK` of linux/netlink.h: the two highest bits are flags.
const TYPE_MASK: u16 = 0x3fff;

/// A connection to a family.
pub(super) struct Family {
    connection: Connection,
    id: u16,
}

impl Family {
    /// Looks a family up by its name.
    pub(super) fn open(name: &str) -> io::Result<Self> {
        let mut connection = Connection::open(NETLINK_GENERIC)?;
        let mut value = name.as_bytes().to_vec();
        value.push(0);
        let answers = connection.request(CONTROL, 0, &command(GET_FAMILY, FAMILY_NAME, &value))?;
        let attributes = answers.first().map(|answer| answer.body.as_slice()).unwrap_or_default();
        let id = attribute(attributes, FAMILY_ID).and_then(|value| value.first_chunk().copied());
        Ok(Family { connection, id: id.map(u16::from_ne_bytes).ok_or(io::ErrorKind::UnexpectedEof)? })
    }

    /// Sends a command with one attribute; the answer's attributes.
    pub(super) fn ask(&mut self, id: u8, kind: u16, value: &[u8]) -> io::Result<Vec<u8>> {
        let answers = self.connection.request(self.id, 0, &command(id, kind, value))?;
        answers
            .into_iter()
            .next()
            .map(|answer| answer.body)
            .ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }
}

fn command(id: u8, kind: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = vec![id, 1, 0, 0];
    let length = u16::try_from(4 + value.len()).unwrap_or(u16::MAX);
    bytes.extend(length.to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// The value of an attribute in the body of an answer.
pub(super) fn attribute(body: &[u8], kind: u16) -> Option<&[u8]> {
    let mut rest = body.get(HEADER_BYTES..)?;
    while let Some(&[l0, l1, k0, k1]) = rest.first_chunk::<4>() {
        let length = usize::from(u16::from_ne_bytes([l0, l1]));
        let value = rest.get(4..length)?;
        if u16::from_ne_bytes([k0, k1]) & TYPE_MASK == kind {
            return Some(value);
        }
        rest = rest.get(length.next_multiple_of(4)..)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_found_and_truncated_ones_are_not() {
        let mut body = command(1, 2, b"netdev\0");
        body.extend(&command(0, 3, &7_u64.to_ne_bytes())[HEADER_BYTES..]);
        assert_eq!(attribute(&body, 2), Some(&b"netdev\0"[..]));
        assert_eq!(attribute(&body, 3), Some(&7_u64.to_ne_bytes()[..]));
        assert_eq!(attribute(&body, 4), None);
        for length in 0..body.len() {
            assert_eq!(attribute(&body[..length], 3), None);
        }
        // A length of less than its own header must not loop.
        assert_eq!(attribute(&[0, 0, 0, 0, 0, 0, 9, 0], 3), None);
    }
}
