//! The tag of a request: its position, and its notation for users.

use std::fmt;
use std::str::FromStr;

use super::EchoedTag;
use crate::header::MAX_PAYLOAD_BYTES;

/// Why a text is not a [`EchoedTag`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "\"{text}\" is no tag: {problem}; write REQUEST_OFFSET[:REPLY_OFFSET]:BYTES, such as 0:2 for two bytes at the beginning of requests and replies"
)]
pub struct TagError {
    text: String,
    problem: &'static str,
}

impl EchoedTag {
    /// Number of distinct tags minus one: the bits of a sequence that a tag carries.
    pub fn mask(&self) -> u64 {
        if self.bytes >= 8 { u64::MAX } else { (1 << (8 * self.bytes)) - 1 }
    }

    /// The tag of a reply; `None` if the reply is too short.
    #[inline]
    pub fn read(&self, reply: &[u8]) -> Option<u64> {
        let bytes = reply.get(self.reply_offset..)?.get(..self.bytes)?;
        Some(bytes.iter().fold(0, |tag, byte| tag << 8 | u64::from(*byte)))
    }

    /// Writes the low bytes of `value` into a request; a request that is too short stays unchanged.
    #[inline]
    pub fn write(&self, value: u64, request: &mut [u8]) {
        let Some(tag_bytes) =
            request.get_mut(self.request_offset..).and_then(|tail| tail.get_mut(..self.bytes))
        else {
            return;
        };
        tag_bytes.copy_from_slice(&value.to_be_bytes()[8 - self.bytes.min(8)..]);
    }
}

impl fmt::Display for EchoedTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let EchoedTag { bytes, request_offset, reply_offset } = self;
        write!(f, "{bytes} byte{} at offset {request_offset}", if *bytes == 1 { "" } else { "s" })?;
        if request_offset != reply_offset {
            write!(f, " (in replies {reply_offset})")?;
        }
        Ok(())
    }
}

/// `REQUEST_OFFSET[:REPLY_OFFSET]:BYTES`, offsets into the UDP payload, 1, 2, 4 or 8 bytes.
impl FromStr for EchoedTag {
    type Err = TagError;

    fn from_str(text: &str) -> Result<Self, TagError> {
        let tag_error = |problem| TagError { text: text.to_owned(), problem };
        let number = |part: &str| {
            let number = part.trim().parse().map_err(|_| tag_error("a part is no number"))?;
            if number > MAX_PAYLOAD_BYTES {
                Err(tag_error("no UDP datagram is that long"))
            } else {
                Ok(number)
            }
        };
        let parts: Vec<&str> = text.split(':').collect();
        let (request, reply, bytes) = match parts[..] {
            [request, bytes] => (request, request, bytes),
            [request, reply, bytes] => (request, reply, bytes),
            _ => return Err(tag_error("it has two or three numbers")),
        };
        let tag = EchoedTag {
            bytes: number(bytes)?,
            request_offset: number(request)?,
            reply_offset: number(reply)?,
        };
        if matches!(tag.bytes, 1 | 2 | 4 | 8) { Ok(tag) } else { Err(tag_error("it has 1, 2, 4 or 8 bytes")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn tags_parse_from_offsets_and_length() {
        let tag = |bytes, request_offset, reply_offset| Ok(EchoedTag { bytes, request_offset, reply_offset });
        assert_eq!("0:2".parse::<EchoedTag>(), tag(2, 0, 0));
        assert_eq!("40:24:8".parse::<EchoedTag>(), tag(8, 40, 24));
        assert_eq!(" 1 : 3 : 1 ".parse::<EchoedTag>(), tag(1, 1, 3));
        for wrong in
            ["", "2", "0:3", "0:0", "a:2", "0:-1:2", "1:2:3:4", "65508:1", "0:99999999999999999999:1"]
        {
            let error = wrong.parse::<EchoedTag>().unwrap_err().to_string();
            assert!(error.starts_with(&format!("\"{wrong}\" is no tag: ")), "{error}");
        }
        assert_eq!(
            EchoedTag { bytes: 8, request_offset: 40, reply_offset: 24 }.to_string(),
            "8 bytes at offset 40 (in replies 24)"
        );
    }

    proptest! {
        #[test]
        fn written_tags_read_back_and_leave_other_bytes_unchanged(
            value: u64, bytes in prop::sample::select(vec![1usize, 2, 4, 8]), at in 0..20usize,
        ) {
            let tag = EchoedTag { bytes, request_offset: at, reply_offset: at };
            let mut request = [0xa5; 32];
            tag.write(value, &mut request);
            prop_assert_eq!(tag.read(&request), Some(value & tag.mask()));
            prop_assert!(request[..at].iter().chain(&request[at + bytes..]).all(|byte| *byte == 0xa5));
            prop_assert_eq!(tag.read(&request[..at + bytes - 1]), None);
        }
    }
}
