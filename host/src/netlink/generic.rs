//! Generic netlink: families by name, commands with attributes.

use std::io;

use netlink_sys::protocols::NETLINK_GENERIC;

use super::attribute::{RequestAttributes, attribute};
use super::connection::NetlinkConnection;

// `GENL_ID_CTRL`, `CTRL_CMD_GETFAMILY`, `CTRL_ATTR_FAMILY_ID` and `CTRL_ATTR_FAMILY_NAME` of linux/genetlink.h.
const CONTROL: u16 = 0x10;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;

const HEADER_BYTES: usize = 4;

pub(crate) struct GenericFamily {
    connection: NetlinkConnection,
    id: u16,
}

impl GenericFamily {
    // `ENOENT` if the kernel has no family with that name.
    pub(crate) fn open(name: &str) -> io::Result<Self> {
        let mut connection = NetlinkConnection::open(NETLINK_GENERIC)?;
        let request = command(GET_FAMILY, &RequestAttributes::default().text(FAMILY_NAME, name));
        let answers = connection.request(CONTROL, 0, &request)?;
        let body = answers.first().map(|answer| after_header(&answer.body)).unwrap_or_default();
        let id = attribute(body, FAMILY_ID).and_then(|value| value.first_chunk().copied());
        Ok(GenericFamily { connection, id: id.map(u16::from_ne_bytes).ok_or(io::ErrorKind::UnexpectedEof)? })
    }

    /// Sends a command with one answer, and returns the attributes of the answer.
    pub(crate) fn request(&mut self, id: u8, attributes: &RequestAttributes) -> io::Result<Vec<u8>> {
        let answers = self.connection.request(self.id, 0, &command(id, attributes))?;
        let answer = answers.into_iter().next().ok_or(io::ErrorKind::UnexpectedEof)?;
        Ok(after_header(&answer.body).to_vec())
    }

    /// Sends a command without an answer, and requests error texts.
    pub(crate) fn send(&mut self, id: u8, attributes: &RequestAttributes) -> io::Result<()> {
        self.connection.request_error_texts();
        self.connection.request(self.id, 0, &command(id, attributes)).map(|_| ())
    }

    /// Sends a dump command, and returns the attributes of each answer.
    pub(crate) fn dump(&mut self, id: u8, attributes: &RequestAttributes) -> io::Result<Vec<Vec<u8>>> {
        let answers = self.connection.dump(self.id, &command(id, attributes))?;
        Ok(answers.iter().map(|answer| after_header(&answer.body).to_vec()).collect())
    }
}

fn command(id: u8, attributes: &RequestAttributes) -> Vec<u8> {
    let mut bytes = vec![id, 1, 0, 0];
    bytes.extend(attributes.as_bytes());
    bytes
}

fn after_header(body: &[u8]) -> &[u8] {
    body.get(HEADER_BYTES..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::attribute::text;

    #[test]
    fn nlctrl_lists_families_and_a_missing_family_is_enoent() {
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
}
