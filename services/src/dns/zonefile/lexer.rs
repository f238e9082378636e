//! The words of a zone file, entry by entry (RFC 1035, section 5.1).

use std::io::BufRead;

#[derive(Debug, Clone, Copy)]
pub(super) struct ZoneWord<'a> {
    /// With its escapes, without quotes.
    pub(super) raw: &'a [u8],
    /// `"@"` is a text, `@` is the origin.
    pub(super) quoted: bool,
    pub(super) line: u32,
}

#[derive(Debug, Clone, Copy)]
struct WordSpan {
    start: usize,
    end: usize,
    quoted: bool,
    line: u32,
}

/// One entry: a line, or several in parentheses. Reused for the next entry.
#[derive(Debug, Default)]
pub(super) struct ZoneEntry {
    text: Vec<u8>,
    spans: Vec<WordSpan>,
    /// Whether it begins with white space: it has the owner of the record before.
    pub(super) blank: bool,
}

impl ZoneEntry {
    pub(super) fn words(&self) -> impl Iterator<Item = ZoneWord<'_>> + Clone {
        self.spans.iter().map(|span| ZoneWord {
            raw: &self.text[span.start..span.end],
            quoted: span.quoted,
            line: span.line,
        })
    }

    /// The line of the last word.
    pub(super) fn line(&self) -> u32 {
        self.spans.last().map_or(0, |span| span.line)
    }

    /// The words for error messages.
    pub(super) fn display_text(&self) -> String {
        let words: Vec<String> = self
            .words()
            .map(|word| {
                let text = String::from_utf8_lossy(word.raw);
                if word.quoted { format!("\"{text}\"") } else { text.into_owned() }
            })
            .collect();
        words.join(" ")
    }

    pub(super) fn clear(&mut self) {
        self.text.clear();
        self.spans.clear();
        self.blank = false;
    }

    pub(super) fn push(&mut self, raw: &[u8], quoted: bool, line: u32) {
        let start = self.text.len();
        self.text.extend_from_slice(raw);
        self.spans.push(WordSpan { start, end: self.text.len(), quoted, line });
    }
}

#[derive(Debug)]
pub(super) enum LexError {
    Read(std::io::Error),
    Syntax { line: u32, text: String, why: &'static str },
}

// Reads entries line by line, so that the file need not fit into memory.
#[derive(Debug)]
pub(super) struct ZoneLexer<R> {
    input: R,
    line: u32,
    buffer: Vec<u8>,
}

impl<R: BufRead> ZoneLexer<R> {
    pub(super) fn new(input: R) -> Self {
        Self { input, line: 0, buffer: Vec::new() }
    }

    /// Reads the next entry that has words; false at the end of the file.
    pub(super) fn next(&mut self, entry: &mut ZoneEntry) -> Result<bool, LexError> {
        entry.clear();
        // The line of the first open parenthesis, and the number of open ones.
        let (mut open_line, mut depth) = (0, 0u32);
        loop {
            self.buffer.clear();
            if self.input.read_until(b'\n', &mut self.buffer).map_err(LexError::Read)? == 0 {
                if depth > 0 {
                    let why = "this parenthesis is not closed before the end of the file; add \")\"";
                    return Err(LexError::Syntax { line: open_line, text: "(".into(), why });
                }
                return Ok(!entry.spans.is_empty());
            }
            self.line += 1;
            if depth == 0 {
                entry.blank = self.buffer.first().is_some_and(|byte| matches!(byte, b' ' | b'\t'));
            }
            let depth_before = depth;
            self.words(entry, &mut depth).map_err(|why| LexError::Syntax {
                line: self.line,
                text: String::from_utf8_lossy(&self.buffer).trim().to_owned(),
                why,
            })?;
            if depth_before == 0 && depth > 0 {
                open_line = self.line;
            }
            if depth == 0 && !entry.spans.is_empty() {
                return Ok(true);
            }
        }
    }

    /// Appends the words of the line in the buffer.
    fn words(&self, entry: &mut ZoneEntry, depth: &mut u32) -> Result<(), &'static str> {
        let line = &self.buffer[..];
        let mut position = 0;
        while let Some(byte) = line.get(position) {
            match byte {
                b' ' | b'\t' | b'\r' | b'\n' => position += 1,
                b';' => break,
                b'(' => (*depth, position) = (*depth + 1, position + 1),
                b')' => {
                    *depth = depth.checked_sub(1).ok_or("\")\" without \"(\" before it")?;
                    position += 1;
                }
                b'"' => {
                    let end =
                        quote_end(line, position + 1).ok_or("a quoted text ends on its line: add '\"'")?;
                    entry.push(&line[position + 1..end], true, self.line);
                    position = end + 1;
                }
                _ => position = self.plain(entry, position)?,
            }
        }
        Ok(())
    }

    /// Appends the word without quotes at `position`; returns its end. After '=', a part may be
    /// quoted (`alpn="h2,h3"`).
    fn plain(&self, entry: &mut ZoneEntry, mut position: usize) -> Result<usize, &'static str> {
        let (line, start) = (&self.buffer[..], entry.text.len());
        while let Some(byte) = line.get(position) {
            match byte {
                b' ' | b'\t' | b'\r' | b'\n' | b';' | b'(' | b')' => break,
                b'"' if position > 0 && line[position - 1] == b'=' => {
                    let end =
                        quote_end(line, position + 1).ok_or("a quoted text ends on its line: add '\"'")?;
                    entry.text.extend_from_slice(&line[position + 1..end]);
                    position = end + 1;
                }
                b'"' => break,
                b'\\' => {
                    let escaped = line.get(position + 1).filter(|byte| !matches!(byte, b'\n' | b'\r'));
                    let escaped = escaped.ok_or("\"\\\" at the end of a line escapes nothing")?;
                    entry.text.extend_from_slice(&[b'\\', *escaped]);
                    position += 2;
                }
                _ => {
                    entry.text.push(*byte);
                    position += 1;
                }
            }
        }
        entry.spans.push(WordSpan { start, end: entry.text.len(), quoted: false, line: self.line });
        Ok(position)
    }
}

fn quote_end(line: &[u8], mut position: usize) -> Option<usize> {
    loop {
        match line.get(position)? {
            b'"' => return Some(position),
            b'\\' => position += 2,
            b'\n' => return None,
            _ => position += 1,
        }
    }
}
