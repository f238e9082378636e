//! Finds the series that dashboards and rules name in a PromQL query.

use std::collections::BTreeSet;

/// Names of linerate's series in a query, without functions, labels, strings and recording rules
/// (`linerate:...`).
///
/// This is not a PromQL parser: it finds words that begin with `linerate_`.
#[must_use]
pub(crate) fn series(query: &str) -> BTreeSet<&str> {
    let in_word = |letter: char| letter.is_ascii_alphanumeric() || letter == '_' || letter == ':';
    let mut quoted = false;
    let mut found = BTreeSet::new();
    // Text between quotes is not a name.
    for part in query.split('"') {
        if !quoted {
            found.extend(part.split(|letter| !in_word(letter)).filter(|word| word.starts_with("linerate_")));
        }
        quoted = !quoted;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_finds_names_but_not_labels_or_strings() {
        let query = r#"sum by (linerate) (rate(linerate_a_total{x="linerate_b"}[5m])) / on() linerate_c > linerate:d:e"#;
        assert_eq!(series(query).into_iter().collect::<Vec<_>>(), ["linerate_a_total", "linerate_c"]);
    }
}
