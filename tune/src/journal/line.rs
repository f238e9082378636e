//! A line of the journal: a JSON object whose last member is a checksum of the text before it.

use serde::{Deserialize, Serialize};

use super::JournalRecord;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JournalLine {
    /// Its number, from 1.
    pub sequence: u64,
    /// When it was written, seconds since 1970.
    pub unix_seconds: u64,
    pub record: JournalRecord,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum BadLine {
    /// Its text differs from the text that was written.
    Damaged(String),
    /// It is whole, but this version does not know its content.
    Newer(String),
}

const MEMBER: &str = ",\"crc32\":\"";
// The member, eight digits, and the end of the member and the object.
const SUFFIX: usize = MEMBER.len() + 8 + 2;

impl JournalLine {
    /// The line as text, with the newline.
    pub(super) fn to_line(&self) -> Result<String, serde_json::Error> {
        let mut line = serde_json::to_string(self)?;
        line.pop();
        let sum = checksum(&line);
        line.push_str(&format!("{MEMBER}{sum:08x}\"}}\n"));
        Ok(line)
    }

    /// Reads a line, without its newline.
    pub(super) fn parse(line: &[u8]) -> Result<Self, BadLine> {
        let damaged = |reason: &str| BadLine::Damaged(reason.to_owned());
        let text = std::str::from_utf8(line).map_err(|_| damaged("no text"))?;
        let body_length = text.len().checked_sub(SUFFIX).ok_or_else(|| damaged("too short"))?;
        let (body, suffix) = text.split_at_checked(body_length).ok_or_else(|| damaged("no checksum"))?;
        let sum = suffix
            .strip_prefix(MEMBER)
            .and_then(|member| member.strip_suffix("\"}"))
            .and_then(|digits| u32::from_str_radix(digits, 16).ok())
            .ok_or_else(|| damaged("no checksum"))?;
        if sum != checksum(body) {
            return Err(damaged("its checksum differs"));
        }
        // The checksum shows that a linerate wrote this text, so unknown content comes from a newer
        // version.
        serde_json::from_str(&format!("{body}}}")).map_err(|error| BadLine::Newer(error.to_string()))
    }
}

fn checksum(text: &str) -> u32 {
    crc32fast::hash(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> JournalLine {
        JournalLine { sequence: 7, unix_seconds: 1_700_000_000, record: JournalRecord::Confirmed { tune: 3 } }
    }

    #[test]
    fn written_lines_end_with_a_checksum_and_parse_to_the_same_record() {
        let line = entry().to_line().expect("written");
        assert_eq!(
            line,
            "{\"sequence\":7,\"unix_seconds\":1700000000,\"record\":{\"confirmed\":{\"tune\":3}},\"crc32\":\"b416994a\"}\n"
        );
        assert_eq!(JournalLine::parse(line.trim_end().as_bytes()), Ok(entry()));
    }
}
