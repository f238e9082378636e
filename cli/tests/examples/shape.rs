//! Compares the output of a command with the output in a document: the same text with other
//! figures.

/// Maximum length of the text that an error quotes, in words.
const MAX_QUOTED_WORDS: usize = 12;

/// How the printed output differs from the shown output, or `None`.
///
/// Both are compared word by word, since line breaks depend on the figures. Numbers, their units
/// and the widths of columns may differ. `…` in the document stands for any text.
pub(crate) fn difference(shown: &str, printed: &str) -> Option<String> {
    let (shown, printed) = (words(shown), words(printed));
    let mut at = 0;
    // The words between two `…` have to appear together.
    let parts: Vec<&[String]> = shown.split(|word| word == "…").collect();
    for (index, part) in parts.iter().enumerate() {
        let (first, last) = (index == 0, index + 1 == parts.len());
        let rest = printed.get(at..).unwrap_or_default();
        let found = match (first, last) {
            (true, true) => (rest == *part).then_some(0),
            (true, false) => rest.starts_with(part).then_some(0),
            (false, true) => rest.ends_with(part).then_some(rest.len().saturating_sub(part.len())),
            (false, false) if part.is_empty() => Some(0),
            (false, false) => rest.windows(part.len()).position(|window| window == *part),
        };
        match found {
            Some(further) => at += further + part.len(),
            None => return Some(describe(part, rest, first)),
        }
    }
    None
}

/// The error for a difference.
fn describe(part: &[String], printed: &[String], from_the_start: bool) -> String {
    let equal_words = match from_the_start {
        true => part.iter().zip(printed).take_while(|(one, other)| one == other).count(),
        false => 0,
    };
    let quote = |words: &[String]| match words.get(equal_words..).unwrap_or_default() {
        [] => "nothing more".to_owned(),
        more => more[..more.len().min(MAX_QUOTED_WORDS)].join(" "),
    };
    let context = if from_the_start { String::new() } else { format!("\nof\n  {}", printed.join(" ")) };
    format!("shown is\n  {}\nprinted is\n  {}{context}", quote(part), quote(printed))
}

/// The words of a text without the parts that differ from run to run: figures become `#`, and
/// spaces and rules between columns are dropped.
fn words(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for word in text.split([' ', '\t', '\n', '─', '-', '≥', '±', '\u{a0}']).filter(|word| !word.is_empty())
    {
        let figure =
            word.trim_matches(['(', ')', ',', ';', ':']).starts_with(|letter: char| letter.is_ascii_digit());
        let unit = matches!(word, "k" | "M" | "G" | "ns" | "us" | "ms" | "s" | "kpps" | "Mpps" | "pps");
        let after_figure = words.last().is_some_and(|last| last == "#");
        match (figure, unit) {
            (true, _) | (_, true) if after_figure => {}
            (true, _) => words.push("#".to_owned()),
            _ => words.push(without_ids(word)),
        }
    }
    words
}

/// Replaces a process ID in brackets with `[#]`.
fn without_ids(word: &str) -> String {
    match word.split_once('[').and_then(|(before, rest)| Some((before, rest.split_once(']')?))) {
        Some((before, (id, after))) if id.bytes().all(|letter| letter.is_ascii_digit()) => {
            format!("{before}[#]{after}")
        }
        _ => word.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn difference_ignores_figures_and_line_breaks_but_not_words() {
        let shown = "rate    184 k ± 2 %\n────\n…\nlost  0 of 12,000 (0 %)\n";
        assert_eq!(difference(shown, "rate 1.2 M ± 11 %\nmore\nand more\nlost 7\nof 9 (1.1 %)\n"), None);
        assert!(difference(shown, "rate 1.2 M ± 11 %\nmore\n").unwrap().contains("lost"));
        assert!(difference("a 1", "b 1").unwrap().contains("a #"));
        assert!(difference("a 1", "a 1\nb").unwrap().contains("nothing more"));
        assert!(difference("a 1 b", "a 1").is_some());
    }

    #[test]
    fn ellipsis_matches_any_words() {
        assert_eq!(difference("CPUs: … and …", "CPUs: many words and others"), None);
        assert_eq!(difference("…\nand\n…", "many words and others"), None);
        assert!(difference("CPUs: … and no more", "CPUs: many words and others").is_some());
        assert!(difference("a … b … a", "a a b").is_some());
    }

    #[test]
    fn difference_ignores_process_ids() {
        assert_eq!(difference("of echo[12].", "of echo[4711]."), None);
        assert!(difference("of echo[12].", "of other[12].").is_some());
    }
}
