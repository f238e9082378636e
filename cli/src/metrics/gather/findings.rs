//! Findings of doctor, and items that could not be read.

use std::collections::BTreeMap;

use linerate_host::diagnosis::UnknownItem;
use linerate_host::{Diagnosis, Severity};

use super::GatheredSamples;
use crate::metrics::families::{FINDINGS, UNKNOWN};

pub(super) fn gather(diagnosis: &Diagnosis, all: &mut GatheredSamples) {
    for finding in &diagnosis.findings {
        let severity = match finding.severity {
            Severity::Note => "note",
            Severity::Low => "low",
            Severity::Medium => "medium",
            Severity::High => "high",
        };
        all.add_gauge(&FINDINGS, &[finding.id, severity], 1.0);
    }
    let mut unknown: BTreeMap<(String, &str), u64> = BTreeMap::new();
    for item in &diagnosis.unknown {
        *unknown.entry((what(item), why(item))).or_default() += 1;
    }
    for ((what, why), places) in unknown {
        all.add_integer_gauge(&UNKNOWN, &[&what, why], places);
    }
}

// The item without the text between its first and last bracket: `link.rings` of `link[eth0].rings`.
// Brackets hold names, of any content; the rest are names of fields.
fn what(unknown: &UnknownItem) -> String {
    match (unknown.what.split_once('['), unknown.what.rsplit_once(']')) {
        (Some((begin, _)), Some((_, end))) => format!("{begin}{end}"),
        _ => unknown.what.clone(),
    }
}

// A category of the reason, because the reason itself is free text and must not become a label.
fn why(unknown: &UnknownItem) -> &'static str {
    let says = |words: &[&str]| words.iter().any(|word| unknown.why.contains(word));
    if says(&["ermission denied", "not permitted", "privilege", "may not be read", "takes root", "CAP_"]) {
        "denied"
    } else if says(&["No such", "not found", "gone", "no file", "there is no", "not there"]) {
        "missing"
    } else if says(&[
        "not supported",
        "unsupported",
        "kernel has no",
        "kernel cannot",
        "does not tell",
        "came with Linux",
    ]) {
        "unsupported"
    } else if says(&["is no number", "line ", "garbled", "cut short"]) {
        "garbled"
    } else {
        "other"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_told_without_names_and_its_reason_by_kind() {
        let unknown = |what: &str, why: &str| UnknownItem { what: what.to_owned(), why: why.to_owned() };
        let denied = unknown("link[a].b[x]y[].rings", "reading x: Permission denied (os error 13)");
        assert_eq!((what(&denied).as_str(), why(&denied)), ("link.rings", "denied"));
        assert_eq!(what(&unknown("machine.kernel", "")), "machine.kernel");
        assert_eq!(why(&unknown("", "/proc/x: No such file or directory (os error 2)")), "missing");
        assert_eq!(why(&unknown("", "whatever")), "other");
    }
}
