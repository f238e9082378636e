//! `/proc/softirqs`: one line per kind, one column per possible CPU (fs/proc/softirqs.c).

use std::collections::BTreeMap;

/// Runs of a kind of softirq, such as `NET_RX`, by CPU. Counts are 32 bits wide and wrap.
pub(crate) fn parse(text: &str, kind: &str) -> Result<BTreeMap<u32, u64>, String> {
    let mut lines = text.lines().enumerate();
    let (_, header) = lines.next().ok_or("no line in it")?;
    let cpus: Vec<u32> = header
        .split_whitespace()
        .map(|item| item.strip_prefix("CPU").and_then(|cpu| cpu.parse().ok()))
        .collect::<Option<_>>()
        .ok_or_else(|| format!("line 1: '{}' are no CPUs", header.trim()))?;
    let (index, counts) = lines
        .find_map(|(index, line)| {
            line.split_once(':').filter(|(name, _)| name.trim() == kind).map(|(_, counts)| (index, counts))
        })
        .ok_or_else(|| format!("no line '{kind}'"))?;
    let mut items = counts.split_whitespace();
    cpus.iter()
        .enumerate()
        .map(|(column, cpu)| {
            let item = items.next().unwrap_or_default();
            let count = item.parse::<u64>();
            count.map(|count| (*cpu, count)).map_err(|_| {
                format!("line {}: '{item}' is not count {} of {}", index + 1, column + 1, cpus.len())
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "                    CPU0       CPU1       \n          HI:          0          0\n      NET_TX:      12072      11841\n      NET_RX: 1075594422  583110992\n";

    #[test]
    fn softirq_counts_are_read_per_cpu() {
        let net_rx = parse(TEXT, "NET_RX").expect("parsed");
        assert_eq!(net_rx, BTreeMap::from([(0, 1_075_594_422), (1, 583_110_992)]));
    }

    #[test]
    fn missing_or_malformed_softirq_lines_are_named_in_the_error() {
        assert_eq!(parse(TEXT, "RCU").expect_err("cut"), "no line 'RCU'");
        assert_eq!(parse("", "RCU").expect_err("empty"), "no line in it");
        assert_eq!(parse("a b\n", "RCU").expect_err("garbled"), "line 1: 'a b' are no CPUs");
        let short_text = TEXT.get(..TEXT.len() - 12).expect("a shorter text");
        assert_eq!(parse(short_text, "NET_RX").expect_err("cut"), "line 4: '' is not count 2 of 2");
    }
}
