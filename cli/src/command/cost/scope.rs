//! The CPUs to measure.

use anyhow::{Context, Result, bail, ensure};
use linerate_host::{CpuSet, Host, PacketPath, Scope};

use crate::command::packet_cpus::packet_cpus;

pub(super) fn online(host: &Host) -> Result<CpuSet> {
    CpuSet::from_list(&host.read("/sys/devices/system/cpu/online")?).context("/sys/devices/system/cpu/online")
}

/// The CPUs of a list. All of them must be online.
pub(super) fn parse_online_cpus(list: &str, online: &CpuSet) -> Result<CpuSet> {
    let cpus = CpuSet::from_list(list).context("--cpus")?;
    ensure!(!cpus.is_empty(), "--cpus: no CPU in '{list}'; give a list such as 0-3,8");
    for cpu in cpus.iter() {
        check_online(cpu, online).context("--cpus")?;
    }
    Ok(cpus)
}

pub(super) fn check_online(cpu: u32, online: &CpuSet) -> Result<u32> {
    ensure!(online.contains(cpu), "no CPU {cpu} is online; CPUs {online} are");
    Ok(cpu)
}

/// The CPUs that process packets of an interface's queues: by interrupt, or because RPS steers
/// packets to them. All CPUs if neither is known, for example for a veth, whose packets are
/// processed on the sending CPU.
pub(super) fn interface_cpus(host: &Host, name: &str, online: &CpuSet) -> Result<(CpuSet, Option<String>)> {
    let interfaces = host.list("/sys/class/net")?;
    if !interfaces.iter().any(|interface| interface == name) {
        bail!("no interface {name} here; there are {}", interfaces.join(", "));
    }
    let path = PacketPath::observe(host, &Scope { interfaces: vec![name.to_owned()], ..Scope::default() });
    let cpus = packet_cpus(&path, name);
    if cpus.is_empty() {
        let note = format!(
            "{name} has neither queue interrupts nor RPS, as is usual for virtual interfaces: all CPUs are observed"
        );
        return Ok((online.clone(), Some(note)));
    }
    Ok((cpus, None))
}

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

    #[test]
    fn cpu_lists_accept_only_online_cpus() {
        let online = CpuSet::from_list("0-3").expect("a list");
        assert_eq!(parse_online_cpus("1,3", &online).expect("online").to_string(), "1,3");
        assert!(parse_online_cpus("3,7", &online).is_err());
    }
}
