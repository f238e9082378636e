//! Connection tracking: table size, entries and losses.

use std::collections::BTreeMap;

use super::{ConntrackState, FilterState};
use crate::counter::{CountedUnit, Counter};
use crate::known::number;
use crate::stage::name::StageName;
use crate::{Host, Known};

pub(super) const COUNT: &str = "/proc/sys/net/netfilter/nf_conntrack_count";
pub(super) const MAX: &str = "/proc/sys/net/netfilter/nf_conntrack_max";
pub(super) const STATISTICS: &str = "/proc/net/stat/nf_conntrack";

pub(super) fn conntrack(host: &Host) -> Known<Option<ConntrackState>> {
    Known::Value(host.read_optional(COUNT, number).transpose().map(|count| ConntrackState {
        count,
        max: host.read_known(MAX, number),
        statistics: host.read_known(STATISTICS, statistics),
    }))
}

/// Counters by name, summed over CPUs: a line of names, then one line of hexadecimal numbers per
/// CPU. The names differ between kernels. `entries` is left out, because each line repeats the
/// total.
pub(crate) fn statistics(text: &str) -> Result<BTreeMap<String, u64>, String> {
    let mut lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let (_, names) = lines.next().ok_or("empty")?;
    let names: Vec<&str> = names.split_ascii_whitespace().collect();
    let mut sums = BTreeMap::new();
    for (index, line) in lines {
        let numbers: Vec<&str> = line.split_ascii_whitespace().collect();
        if numbers.len() != names.len() {
            return Err(format!("line {}: {} numbers for {} names", index + 1, numbers.len(), names.len()));
        }
        for (name, number) in names.iter().zip(numbers).filter(|(name, _)| **name != "entries") {
            let number = u64::from_str_radix(number, 16)
                .map_err(|_| format!("line {}: {name} is '{number}'", index + 1))?;
            let sum: &mut u64 = sums.entry((*name).to_owned()).or_default();
            *sum = sum.saturating_add(number);
        }
    }
    if sums.is_empty() { Err("no line of a CPU".to_owned()) } else { Ok(sums) }
}

/// Counters of packets; `early_drop` counts entries that were removed to make room for new ones,
/// and `insert_failed` packets that are in `drop` or `chainlength`, too, or were accepted.
const COUNTED: [(&str, CountedUnit); 5] = [
    ("drop", CountedUnit::PacketsLost),
    ("chainlength", CountedUnit::PacketsLost),
    ("insert_failed", CountedUnit::Events),
    ("early_drop", CountedUnit::Events),
    ("invalid", CountedUnit::Events),
];

pub(in crate::stage) fn counters(filter: &FilterState) -> Vec<Counter> {
    let conntrack = filter.conntrack.value().and_then(Option::as_ref);
    let Some(statistics) = conntrack.and_then(|conntrack| conntrack.statistics.value()) else {
        return Vec::new();
    };
    let counter = |(name, counts): &(&str, CountedUnit)| {
        let value = *statistics.get(*name)?;
        Some(Counter::new(StageName::Filter, "conntrack", *name, *counts, value, STATISTICS))
    };
    COUNTED.iter().filter_map(counter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Scope;
    use crate::stage::PacketPath;

    /// Captured on Linux 6.18, with nonzero numbers put in.
    const CAPTURED: &str = "entries  clashres found new invalid ignore delete chainlength insert insert_failed drop \
        early_drop icmp_error  expect_new expect_create expect_delete search_restart\n\
        0000001f  00000000 00000000 00000000 00000002 00000000 00000000 00000000 00000000 0000000a 00000010 00000001 \
        00000000  00000000 00000000 00000000 00000000\n\
        0000001f  00000000 00000000 00000000 00000001 00000000 00000000 00000003 00000000 00000001 00000001 00000000 \
        00000000  00000000 00000000 00000000 00000000\n";

    fn host(count: &str, statistics: &str) -> Host {
        Host::scripted([(COUNT, count), (MAX, "262144\n"), (STATISTICS, statistics)])
    }

    #[test]
    fn conntrack_statistics_are_summed_over_cpus() {
        let conntrack = conntrack(&host("31\n", CAPTURED)).into_value().flatten().expect("loaded");
        assert_eq!((&conntrack.count, &conntrack.max), (&Known::Value(31), &Known::Value(262_144)));
        // Of the 17 drops, 11 are in `insert_failed`, too; 3 packets had too long a chain.
        assert_eq!(conntrack.drops(), Some(20));
        let statistics = conntrack.statistics.into_value().expect("statistics");
        assert_eq!((statistics.get("invalid"), statistics.get("entries")), (Some(&3), None));
    }

    #[test]
    fn conntrack_is_none_without_the_module() {
        assert_eq!(conntrack(&Host::scripted::<String, String>([])), Known::Value(None));
    }

    #[test]
    fn malformed_conntrack_files_are_unknown_with_path_and_line() {
        let state =
            |count, statistics| conntrack(&host(count, statistics)).into_value().flatten().expect("loaded");
        assert_eq!(state("x\n", CAPTURED).count.why(), Some(&*format!("{COUNT}: 'x' is not a valid number")));
        assert_eq!(
            state("1", "a b\n1\n").statistics.why(),
            Some(&*format!("{STATISTICS}: line 2: 1 numbers for 2 names"))
        );
        assert_eq!(
            state("1", "drop\nzz\n").statistics.why(),
            Some(&*format!("{STATISTICS}: line 2: drop is 'zz'"))
        );
        assert_eq!(state("1", "").statistics.why(), Some(&*format!("{STATISTICS}: empty")));
        assert_eq!(state("1", "drop\n").statistics.why(), Some(&*format!("{STATISTICS}: no line of a CPU")));
    }

    #[test]
    fn filter_stage_counters_include_conntrack_drops() {
        let counters = counters(&PacketPath::observe(&host("31\n", CAPTURED), &Scope::default()).filter);
        let values: Vec<(&str, u64)> =
            counters.iter().map(|counter| (&*counter.name, counter.value)).collect();
        assert_eq!(
            values,
            [("drop", 17), ("chainlength", 3), ("insert_failed", 11), ("early_drop", 1), ("invalid", 3)]
        );
    }
}
