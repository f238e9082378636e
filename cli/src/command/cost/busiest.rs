//! The busiest CPU.

use linerate_host::CpuSet;

/// The CPU with most runs of NET_RX between two readings of `/proc/softirqs`.
pub(super) fn busiest(before: &str, after: &str, candidates: &CpuSet) -> Option<u32> {
    let (before, after) = (net_rx(before), net_rx(after));
    let new_runs = |cpu: &u32| {
        let count_on =
            |counts: &[(u32, u64)]| counts.iter().find(|(number, _)| number == cpu).map(|(_, count)| *count);
        count_on(&after).unwrap_or(0).saturating_sub(count_on(&before).unwrap_or(0))
    };
    // `max_by_key` returns the last of equal CPUs, not CPU 0, which has most other work.
    candidates.iter().max_by_key(new_runs)
}

/// Runs of NET_RX per CPU from `/proc/softirqs`: a line with the CPUs, then one line per softirq.
fn net_rx(text: &str) -> Vec<(u32, u64)> {
    let cpus = text.lines().next().unwrap_or_default().split_whitespace();
    let cpus = cpus.map(|column| column.strip_prefix("CPU").and_then(|number| number.parse().ok()));
    let counts = text.lines().find_map(|line| line.trim_start().strip_prefix("NET_RX:")).unwrap_or_default();
    let counts = counts.split_whitespace().map(|count| count.parse().ok());
    cpus.zip(counts).filter_map(|(cpu, count)| Some((cpu?, count?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = "                    CPU0       CPU2       \n          HI:          0          1\n      NET_RX:        100         50\n";
    const AFTER: &str = "                    CPU0       CPU2       \n          HI:          0          1\n      NET_RX:        110        500\n";

    #[test]
    fn the_busiest_cpu_has_the_most_net_rx_runs_between_readings() {
        let online = CpuSet::from_list("0,2").expect("a list");
        assert_eq!(busiest(BEFORE, AFTER, &online), Some(2));
        assert_eq!(busiest(AFTER, AFTER, &online), Some(2), "of equal CPUs not CPU 0, which has other work");
        assert_eq!(busiest(BEFORE, AFTER, &CpuSet::from_list("0").expect("a list")), Some(0));
        assert_eq!(busiest("", "nonsense", &CpuSet::new()), None);
    }
}
