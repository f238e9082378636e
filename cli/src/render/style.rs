//! The style of text output: its width, and whether it has colour.

use std::io::IsTerminal;

pub(crate) use crate::document::Tone as TextTone;

const WIDTH_WITHOUT_TERMINAL: usize = 100;

/// The style of text output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TextStyle {
    /// Width in columns.
    pub(crate) width: usize,
    /// Whether escape sequences for colour may be written.
    pub(crate) colour: bool,
}

impl TextStyle {
    // The style for standard output: colour on a terminal, unless `NO_COLOR` is set and not empty
    // (no-color.org) or the terminal is `dumb`.
    pub(crate) fn stdout() -> Self {
        Self::for_terminal(std::io::stdout().is_terminal())
    }

    /// The style for standard error.
    pub(crate) fn stderr() -> Self {
        Self::for_terminal(std::io::stderr().is_terminal())
    }

    fn for_terminal(is_terminal: bool) -> Self {
        let has_no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let is_dumb = std::env::var_os("TERM").is_some_and(|value| value == "dumb");
        let width = rustix::termios::tcgetwinsize(std::io::stdout()).map(|size| usize::from(size.ws_col));
        Self {
            width: width.ok().filter(|&width| width > 0).unwrap_or(WIDTH_WITHOUT_TERMINAL),
            colour: is_terminal && !has_no_color && !is_dumb,
        }
    }

    pub(crate) fn paint(self, tone: TextTone, text: &str) -> String {
        let code = match tone {
            _ if !self.colour => return text.to_owned(),
            TextTone::Plain => return text.to_owned(),
            TextTone::Strong => "1",
            TextTone::Good => "32",
            TextTone::Bad => "31",
            TextTone::Warn => "33",
            TextTone::Faint => "2",
        };
        format!("\u{1b}[{code}m{text}\u{1b}[0m")
    }
}

/// A text without line breaks and tabs, which names of processes may contain.
pub(crate) fn on_one_line(text: &str) -> String {
    text.replace(['\n', '\t'], " ")
}

// Text broken at blanks into lines of at most `width` columns.
//
// A number stays with its unit, and a word longer than a line is cut.
pub(crate) fn wrap(text: &str, width: usize) -> Vec<String> {
    let width = width.max(1);
    let mut lines: Vec<String> = Vec::new();
    let mut line = String::new();
    for word in words(text) {
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > width {
            lines.push(std::mem::take(&mut line));
        }
        if !line.is_empty() {
            line.push(' ');
        }
        for character in word.chars() {
            if line.chars().count() == width {
                lines.push(std::mem::take(&mut line));
            }
            line.push(character);
        }
    }
    lines.push(line);
    lines
}

/// Text in which no line break can part a number from its unit, nor the ends of an interval.
pub(crate) fn non_breaking(text: &str) -> String {
    let words: Vec<String> = words(text)
        .iter()
        .map(|word| word.replace(' ', "\u{a0}").replace('–', "\u{2060}–\u{2060}"))
        .collect();
    words.join(" ")
}

// Splits text into the parts that must stay on one line: a word, or a number with its unit.
fn words(text: &str) -> Vec<String> {
    const UNITS: &[&str] = &["%", "k", "M", "ns", "us", "ms", "s", "min", "B", "tps", "Mbit/s"];
    let mut words: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let unit = word.trim_end_matches([',', ';', '.', ':', ')']);
        match words.last_mut() {
            Some(last) if UNITS.contains(&unit) && last.ends_with(|c: char| c.is_ascii_digit()) => {
                last.push(' ');
                last.push_str(word);
            }
            _ => words.push(word.to_owned()),
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paint_writes_escapes_only_in_colour() {
        let plain = TextStyle { width: 80, colour: false };
        let colour = TextStyle { colour: true, ..plain };
        assert_eq!(plain.paint(TextTone::Good, "better"), "better");
        assert_eq!(colour.paint(TextTone::Good, "better"), "\u{1b}[32mbetter\u{1b}[0m");
        assert_eq!(colour.paint(TextTone::Plain, "as is"), "as is");
    }

    #[test]
    fn non_breaking_joins_numbers_and_units() {
        assert_eq!(non_breaking("with 405 k tps, 2 % lost."), "with 405\u{a0}k tps, 2\u{a0}% lost.");
        assert_eq!(non_breaking("(1.49–1.71)"), "(1.49\u{2060}–\u{2060}1.71)");
    }

    #[test]
    fn wrap_breaks_between_words_and_inside_overlong_words() {
        assert_eq!(wrap("one two  three", 7), ["one two", "three"]);
        assert_eq!(wrap("unbreakable on", 4), ["unbr", "eaka", "ble", "on"]);
        assert_eq!(wrap("a loss of 12 % there", 12), ["a loss of", "12 % there"]);
        assert_eq!(wrap("", 4), [""]);
    }
}
