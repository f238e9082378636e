//! Findings of doctor, and items that could not be read.

use std::collections::BTreeMap;

use linerate_host::Diagnosis;
use linerate_host::diagnosis::UnknownItem;
use rustix::io::Errno;

use super::GatheredSamples;
use crate::metrics::families::{FINDINGS, UNKNOWN};

pub(super) fn gather(diagnosis: &Diagnosis, all: &mut GatheredSamples) {
    for finding in &diagnosis.findings {
        all.add_gauge(&FINDINGS, &[finding.id, finding.severity.name()], 1.0);
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
// Brackets contain names with any characters; the other parts are names of fields.
fn what(unknown: &UnknownItem) -> String {
    match (unknown.what.split_once('['), unknown.what.rsplit_once(']')) {
        (Some((begin, _)), Some((_, end))) => format!("{begin}{end}"),
        _ => unknown.what.clone(),
    }
}

// A category of the reason by its error number, because the reason itself is free text and must not become a label. Reasons
// without an error number name the capability that is missing.
fn why(unknown: &UnknownItem) -> &'static str {
    let number = unknown.why.split_once("(os error ").and_then(|(_, rest)| rest.split_once(')'));
    match number.and_then(|(number, _)| number.parse().ok()).map(Errno::from_raw_os_error) {
        Some(Errno::PERM | Errno::ACCESS | Errno::ROFS) => "denied",
        Some(Errno::NOENT | Errno::NODEV | Errno::NXIO | Errno::SRCH) => "missing",
        Some(Errno::OPNOTSUPP | Errno::NOSYS | Errno::PROTONOSUPPORT | Errno::AFNOSUPPORT) => "unsupported",
        None if unknown.why.contains("CAP_") => "denied",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_has_no_names_and_its_reason_a_category() {
        let unknown = |what: &str, why: &str| UnknownItem { what: what.to_owned(), why: why.to_owned() };
        let denied = unknown("link[a].b[x]y[].rings", "reading x: Permission denied (os error 13)");
        assert_eq!((what(&denied).as_str(), why(&denied)), ("link.rings", "denied"));
        assert_eq!(what(&unknown("machine.kernel", "")), "machine.kernel");
        assert_eq!(why(&unknown("", "/proc/x: No such file or directory (os error 2)")), "missing");
        assert_eq!(why(&unknown("", "x: Operation not supported (os error 95)")), "unsupported");
        assert_eq!(why(&unknown("", "this requires CAP_SYSLOG")), "denied");
        assert_eq!(why(&unknown("", "whatever")), "other");
    }
}
