//! Findings of doctor, and items that could not be read.

use std::collections::BTreeMap;

use linerate_host::Diagnosis;
use linerate_host::diagnosis::UnknownItem;
use rustix::io::Errno;

use super::GatheredSamples;
use crate::metrics::families::{FINDINGS, UNKNOWN};

pub(super) fn gather(diagnosis: &Diagnosis, samples: &mut GatheredSamples) {
    for finding in &diagnosis.findings {
        samples.add_gauge(&FINDINGS, &[finding.id, finding.severity.name()], 1.0);
    }
    let mut unknown_counts: BTreeMap<(String, &str), u64> = BTreeMap::new();
    for item in &diagnosis.unknown {
        *unknown_counts.entry((part_name(item), reason_class(item))).or_default() += 1;
    }
    for ((part_name, reason), count) in unknown_counts {
        samples.add_integer_gauge(&UNKNOWN, &[&part_name, reason], count);
    }
}

// The item without the text between its first and last bracket: `link.rings` of `link[eth0].rings`.
// Brackets contain names with any characters; the other parts are names of fields.
fn part_name(item: &UnknownItem) -> String {
    match (item.what.split_once('['), item.what.rsplit_once(']')) {
        (Some((begin, _)), Some((_, end))) => format!("{begin}{end}"),
        _ => item.what.clone(),
    }
}

// A category of the reason by its error number, because the reason itself is free text and must not become a label. Reasons
// without an error number name the capability that is missing.
fn reason_class(item: &UnknownItem) -> &'static str {
    let number = item.why.split_once("(os error ").and_then(|(_, suffix)| suffix.split_once(')'));
    match number.and_then(|(number, _)| number.parse().ok()).map(Errno::from_raw_os_error) {
        Some(Errno::PERM | Errno::ACCESS | Errno::ROFS) => "denied",
        Some(Errno::NOENT | Errno::NODEV | Errno::NXIO | Errno::SRCH) => "missing",
        Some(Errno::OPNOTSUPP | Errno::NOSYS | Errno::PROTONOSUPPORT | Errno::AFNOSUPPORT) => "unsupported",
        None if item.why.contains("CAP_") => "denied",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_of_unknown_values_drop_names_and_classify_reasons() {
        let unknown = |what: &str, why: &str| UnknownItem { what: what.to_owned(), why: why.to_owned() };
        let denied = unknown("link[a].b[x]y[].rings", "reading x: Permission denied (os error 13)");
        assert_eq!((part_name(&denied).as_str(), reason_class(&denied)), ("link.rings", "denied"));
        assert_eq!(part_name(&unknown("machine.kernel", "")), "machine.kernel");
        assert_eq!(reason_class(&unknown("", "/proc/x: No such file or directory (os error 2)")), "missing");
        assert_eq!(reason_class(&unknown("", "x: Operation not supported (os error 95)")), "unsupported");
        assert_eq!(reason_class(&unknown("", "this requires CAP_SYSLOG")), "denied");
        assert_eq!(reason_class(&unknown("", "whatever")), "other");
    }
}
