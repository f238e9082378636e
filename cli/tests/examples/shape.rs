//! Whether what a command printed has the shape that a document shows: the same lines with other figures.

/// Why output is not as it is shown; none where it is.
///
/// Numbers may be others, with other units before them, and so may the widths of columns. A line `…` in the document
/// stands for any lines, `…` within a line for anything.
pub(crate) fn difference(shown: &str, printed: &str) -> Option<String> {
    let shown: Vec<String> = shown.lines().map(shape).filter(|line| !line.is_empty()).collect();
    let printed: Vec<String> = printed.lines().map(shape).filter(|line| !line.is_empty()).collect();
    let mut at = 0;
    let mut skipping = false;
    for line in &shown {
        if line == "…" {
            skipping = true;
            continue;
        }
        let found = printed[at..].iter().position(|candidate| matches(line, candidate));
        match found {
            Some(0) => at += 1,
            Some(further) if skipping => at += further + 1,
            _ => {
                let instead = printed.get(at).map_or("the end", String::as_str);
                return Some(format!("shown is\n  {line}\nprinted is\n  {instead}"));
            }
        }
        skipping = false;
    }
    match printed.get(at) {
        Some(more) if !skipping => Some(format!("printed, and not shown, is\n  {more}")),
        _ => None,
    }
}

/// A line without what differs from run to run: its figures, and the space and rules between columns.
fn shape(line: &str) -> String {
    let mut shape = String::new();
    for word in line.split([' ', '\t', '─', '-', '≥', '±']).filter(|word| !word.is_empty()) {
        let figure =
            word.trim_matches(['(', ')', ',', ';', ':']).starts_with(|letter: char| letter.is_ascii_digit());
        let unit = matches!(word, "k" | "M" | "G" | "ns" | "us" | "ms" | "s" | "kpps" | "Mpps" | "pps");
        let part = if figure { "#" } else { word };
        if unit && shape.ends_with('#') || figure && shape.ends_with('#') {
            continue;
        }
        if !shape.is_empty() {
            shape.push(' ');
        }
        shape.push_str(part);
    }
    shape
}

/// Whether a line is as it is shown, where `…` is anything.
fn matches(shown: &str, printed: &str) -> bool {
    let Some((start, rest)) = shown.split_once('…') else { return shown == printed };
    let Some(mut printed) = printed.strip_prefix(start.trim_end()) else { return false };
    let mut parts = rest.split('…').map(str::trim).peekable();
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return printed.trim_end().ends_with(part);
        }
        let Some(at) = printed.find(part) else { return false };
        printed = &printed[at + part.len()..];
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_may_differ_and_words_may_not() {
        let shown = "rate    184 k ± 2 %\n────\n…\nlost  0 of 12,000 (0 %)\n";
        assert_eq!(difference(shown, "rate 1.2 M ± 11 %\nmore\nand more\nlost 7 of 9 (1.1 %)\n"), None);
        assert!(difference(shown, "rate 1.2 M ± 11 %\nmore\n").unwrap().contains("lost"));
        assert!(difference("a 1", "b 1").unwrap().contains("a #"));
        assert!(difference("a 1", "a 1\nb").unwrap().contains("not shown"));
    }

    #[test]
    fn an_ellipsis_within_a_line_is_anything() {
        assert_eq!(difference("CPUs: … and …", "CPUs: many words and others"), None);
        assert!(difference("CPUs: … and no more", "CPUs: many words and others").is_some());
    }
}
