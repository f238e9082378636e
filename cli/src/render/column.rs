//! Texts in a column, behind labels.

use super::style::{TextStyle, TextTone, wrap};

/// Lines longer than this are hard to read.
const WIDEST: usize = 110;

/// A column of text: the indent of its labels, and their width.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TextColumn {
    pub(crate) style: TextStyle,
    /// Blanks before the labels.
    pub(crate) before: usize,
    /// Room for a label.
    pub(crate) label: usize,
}

impl TextColumn {
    /// Room for the text.
    pub(crate) fn width(self) -> usize {
        self.style.width.min(WIDEST).saturating_sub(self.before + self.label).max(20)
    }

    /// The text behind its label, wrapped. No lines for an empty text.
    pub(crate) fn labelled(self, label: &str, text: &str) -> Vec<String> {
        if text.is_empty() {
            return Vec::new();
        }
        let (before, label_width) = (self.before, self.label);
        // An empty label has nothing to paint, and the end of its colour would end the colour of
        // the whole line.
        let tone = if label.is_empty() { TextTone::Plain } else { TextTone::Faint };
        let label = self.style.paint(tone, &format!("{label:<label_width$}"));
        let mut labels = vec![format!("{}{label}", " ".repeat(before))];
        wrap(text, self.width())
            .into_iter()
            .map(|line| format!("{}{line}", labels.pop().unwrap_or_else(|| " ".repeat(before + label_width))))
            .collect()
    }

    // As many sentences as fit into `max_lines` lines; if the first does not, its beginning.
    pub(crate) fn shortened(self, text: &str, max_lines: usize) -> String {
        self.limit_lines(&self.sentences(text, max_lines), max_lines)
    }

    // A command is never broken, because the reader copies it.
    pub(crate) fn whole_command(self, command: &str) -> String {
        format!("{}$ {command}", " ".repeat(self.before + self.label))
    }

    // As many sentences as fit, but at least one.
    fn sentences(self, text: &str, max_lines: usize) -> String {
        let max_chars = self.width() * max_lines;
        let mut end = 0;
        for (index, _) in text.match_indices(". ") {
            if end > 0 && index + 1 > max_chars {
                return text.get(..end).unwrap_or(text).to_owned();
            }
            end = index + 1;
        }
        let fits = text.chars().count() <= max_chars || end == 0;
        text.get(..if fits { text.len() } else { end }).unwrap_or(text).to_owned()
    }

    // Cuts to at most `max_lines` lines.
    pub(crate) fn limit_lines(self, text: &str, max_lines: usize) -> String {
        let lines = wrap(text, self.width());
        if lines.len() <= max_lines {
            return text.to_owned();
        }
        let kept_lines: Vec<String> = lines.into_iter().take(max_lines).collect();
        cut(&format!("{} …", kept_lines.join(" ")), self.width() * max_lines - 4)
    }
}

// Cuts to at most `max_chars` characters, and marks the cut.
pub(crate) fn cut(text: &str, max_chars: usize) -> String {
    if text.chars().count() <= max_chars {
        return text.to_owned();
    }
    let prefix: String = text.chars().take(max_chars.saturating_sub(1)).collect();
    format!("{}…", prefix.trim_end_matches([' ', ',', '…']))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NARROW: TextColumn =
        TextColumn { style: TextStyle { width: 48, colour: false }, before: 0, label: 8 };

    #[test]
    fn sentences_returns_the_whole_sentences_that_fit() {
        let text =
            "One sentence of some length, as they are. Another one that is longer than the first. A third.";
        assert_eq!(NARROW.sentences(text, 2), "One sentence of some length, as they are.");
        assert_eq!(NARROW.sentences("Short. And 4.6.3 too.", 2), "Short. And 4.6.3 too.");
        assert_eq!(NARROW.sentences("no end", 2), "no end");
    }

    #[test]
    fn shortened_text_ends_with_an_ellipsis() {
        assert_eq!(cut("abcdef", 6), "abcdef");
        assert_eq!(cut("abc, def", 5), "abc…");
        let long = "word ".repeat(60);
        let lines = wrap(&NARROW.limit_lines(&long, 2), NARROW.width());
        assert!(lines.len() <= 2 && lines.last().is_some_and(|last| last.ends_with('…')), "{lines:?}");
    }
}
