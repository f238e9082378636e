//! Reading a journal's text.

use serde::Serialize;

use super::JournalError;
use super::line::{BadLine, Entry};

/// Where a journal ends before its text does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Trouble {
    /// Its last line is not whole: the power went while it was written, so what it would have announced was not done.
    Torn {
        /// The line, from 1.
        line: u64,
    },
    /// A line in the middle is not what was written.
    Damaged {
        /// The line, from 1.
        line: u64,
        /// What is wrong with it.
        why: String,
    },
    /// A line is of a later version of linerate.
    Newer {
        /// The line, from 1.
        line: u64,
        /// What is not known.
        why: String,
    },
}

/// What a journal's text has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Parsed {
    pub(super) entries: Vec<Entry>,
    /// Length of the text up to the end of the last entry.
    pub(super) length: u64,
    pub(super) trouble: Option<Trouble>,
}

/// Reads all lines up to the first that is no entry.
pub(super) fn parse(text: &[u8]) -> Parsed {
    let mut parsed = Parsed { entries: Vec::new(), length: 0, trouble: None };
    let mut rest = text;
    while !rest.is_empty() {
        let number = parsed.entries.len() as u64 + 1;
        let end = rest.iter().position(|byte| *byte == b'\n');
        let (line, after) = match end {
            Some(end) => (&rest[..end], &rest[end + 1..]),
            None => (rest, &rest[rest.len()..]),
        };
        parsed.trouble = match Entry::parse(line) {
            // A whole entry whose newline is missing was torn too, and may not be written on.
            Ok(_) if end.is_none() => Some(Trouble::Torn { line: number }),
            Ok(entry) if entry.sequence == number => {
                parsed.entries.push(entry);
                parsed.length += line.len() as u64 + 1;
                rest = after;
                continue;
            }
            Ok(entry) => Some(Trouble::Damaged {
                line: number,
                why: format!("entry {} where {number} belongs", entry.sequence),
            }),
            Err(BadLine::Newer(why)) => Some(Trouble::Newer { line: number, why }),
            // Each line is synced before the next is written: only the last can be torn.
            Err(BadLine::Damaged(_)) if after.is_empty() => Some(Trouble::Torn { line: number }),
            Err(BadLine::Damaged(why)) => Some(Trouble::Damaged { line: number, why }),
        };
        break;
    }
    parsed
}

impl Trouble {
    /// As an error of whoever would write on; none for a torn line, which is cut off.
    pub(super) fn to_error(&self, path: &str) -> Option<JournalError> {
        let path = path.to_owned();
        match self {
            Trouble::Torn { .. } => None,
            Trouble::Damaged { line, why } => {
                Some(JournalError::Damaged { path, line: *line, why: why.clone() })
            }
            Trouble::Newer { line, why } => Some(JournalError::Newer { path, line: *line, why: why.clone() }),
        }
    }
}
