//! What dashboards and rules name: the series in a query of PromQL.

use std::collections::BTreeSet;

/// Names of series of linerate in a query, without functions, labels, strings and recorded rules (`linerate:...`).
///
/// Not a parser of PromQL, which Prometheus has: it finds the words that begin with `linerate_`.
#[must_use]
pub(crate) fn series(query: &str) -> BTreeSet<&str> {
    let in_word = |letter: char| letter.is_ascii_alphanumeric() || letter == '_' || letter == ':';
    let mut quoted = false;
    let mut found = BTreeSet::new();
    // What is between quotes is no name.
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
    fn names_are_found_and_labels_are_not() {
        let query = r#"sum by (linerate) (rate(linerate_a_total{x="linerate_b"}[5m])) / on() linerate_c > linerate:d:e"#;
        assert_eq!(series(query).into_iter().collect::<Vec<_>>(), ["linerate_a_total", "linerate_c"]);
    }
}
