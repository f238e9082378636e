//! Reading a journal's text.

use serde::{Deserialize, Serialize};

use super::line::{BadLine, JournalLine};

/// Why a journal may be incomplete.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JournalCorruption {
    /// Its last line is incomplete: the power failed during the write, so the announced change was
    /// not made.
    Torn {
        /// The line, from 1.
        line: u64,
    },
    /// A line differs from the line that was written. All other lines are read.
    Damaged {
        /// The first such line, from 1.
        line: u64,
        why: String,
        /// The other such lines.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        others: Vec<u64>,
    },
    /// A line is of a later version of linerate. The lines before it are read.
    Newer {
        /// The line, from 1.
        line: u64,
        /// The unknown part.
        why: String,
    },
}

/// A line that differs from the line that was written, or before which lines are missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DamagedLine {
    /// The line, from 1.
    pub line: u64,
    /// The fault.
    pub why: String,
    /// Number of entries before it.
    pub after: usize,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ParsedJournal {
    pub(super) entries: Vec<JournalLine>,
    pub(super) damage: Vec<DamagedLine>,
    /// Length of the text up to the end of the last whole line.
    pub(super) length: u64,
    /// A torn line, or one of a later version, at which the reading ended.
    end: Option<JournalCorruption>,
}

// Reads all lines that are records. A damaged line does not affect the other lines. A line of a
// later version ends the reading, because this version must not append after a record that it does
// not understand.
pub(super) fn parse(text: &[u8]) -> ParsedJournal {
    let mut parsed = ParsedJournal::default();
    let mut remaining = text;
    for number in 1.. {
        if remaining.is_empty() {
            break;
        }
        // Each line is written with its newline, and synced before the next: only the last can be
        // torn.
        let Some(end) = remaining.iter().position(|byte| *byte == b'\n') else {
            parsed.end = Some(JournalCorruption::Torn { line: number });
            break;
        };
        match JournalLine::parse(&remaining[..end]) {
            Ok(entry) if entry.sequence > parsed.last_sequence() => parsed.add_entry(number, entry),
            Ok(entry) => {
                parsed.add_damage(number, format!("record {} where a later one belongs", entry.sequence));
            }
            Err(BadLine::Damaged(reason)) => parsed.add_damage(number, reason),
            Err(BadLine::Newer(why)) => {
                parsed.end = Some(JournalCorruption::Newer { line: number, why });
                break;
            }
        }
        parsed.length += end as u64 + 1;
        remaining = &remaining[end + 1..];
    }
    parsed
}

impl ParsedJournal {
    pub(super) fn last_sequence(&self) -> u64 {
        self.entries.last().map_or(0, |entry| entry.sequence)
    }

    /// Number for the next entry: after the numbers of damaged lines.
    pub(super) fn next_sequence(&self) -> u64 {
        let lost_lines = self.damage.iter().filter(|line| line.after == self.entries.len()).count();
        self.last_sequence().saturating_add(lost_lines as u64).saturating_add(1)
    }

    fn add_entry(&mut self, line: u64, entry: JournalLine) {
        let expected = self.next_sequence();
        let is_explained = self.damage.iter().any(|line| line.after == self.entries.len());
        if entry.sequence > expected && !is_explained {
            self.add_damage(line, format!("record {expected} is missing before it"));
        }
        self.entries.push(entry);
    }

    fn add_damage(&mut self, line: u64, why: String) {
        self.damage.push(DamagedLine { line, why, after: self.entries.len() });
    }

    /// The most severe fault of the journal.
    pub(super) fn trouble(&self) -> Option<JournalCorruption> {
        match (&self.end, self.damage.split_first()) {
            (Some(JournalCorruption::Newer { .. }), _) | (_, None) => self.end.clone(),
            (_, Some((DamagedLine { line, why, .. }, others))) => Some(JournalCorruption::Damaged {
                line: *line,
                why: why.clone(),
                others: others.iter().map(|other| other.line).collect(),
            }),
        }
    }
}
