//! Reads the state of packet processing.

use std::collections::BTreeMap;

use super::{InterfaceRps, NapiInstance, RpsQueue, SoftirqState, SoftnetCpu, softirqs, softnet};
use crate::known::number;
use crate::netlink::napi;
use crate::stage::link::LinkState;
use crate::{CpuSet, Host, Known};

/// `net.core` sysctls of the softirq: Documentation/admin-guide/sysctl/net.rst.
const SYSCTLS: [&str; 7] = [
    "netdev_budget",
    "netdev_budget_usecs",
    "netdev_max_backlog",
    "rps_sock_flow_entries",
    "dev_weight",
    "flow_limit_table_len",
    "skb_defer_max",
];

impl SoftirqState {
    pub fn observe(host: &Host, links: &[LinkState]) -> Self {
        Self {
            softnet: SoftnetCpu::observe(host),
            net_rx: net_rx(host),
            rps: links.iter().map(|link| rps(host, &link.interface)).collect(),
            napi: NapiInstance::all(host),
            sysctls: SYSCTLS.iter().filter_map(|name| sysctl(host, name)).collect(),
        }
    }
}

impl SoftnetCpu {
    pub fn observe(host: &Host) -> Known<Vec<Self>> {
        let online = host.read_parsed("/sys/devices/system/cpu/online", CpuSet::from_list).ok();
        host.read_known("/proc/net/softnet_stat", |text| {
            let lines = softnet::parse(text, online.as_ref())?;
            let has_line = |cpu: &u32| lines.iter().any(|line| line.cpu == *cpu);
            match online.iter().flat_map(CpuSet::iter).find(|cpu| !has_line(cpu)) {
                Some(cpu) => Err(format!("no line of CPU {cpu}, which is online")),
                None => Ok(lines),
            }
        })
    }
}

impl NapiInstance {
    /// All instances of the network namespace; `None` if the kernel does not report them.
    pub(in crate::stage) fn all(host: &Host) -> Known<Option<Vec<NapiInstance>>> {
        Known::if_supported(host.call("netdev/napi", "listing NAPI instances", napi::instances))
    }
}

/// The file also has columns for offline CPUs.
fn net_rx(host: &Host) -> Known<BTreeMap<u32, u64>> {
    host.read_known("/proc/softirqs", |text| softirqs::parse(text, "NET_RX"))
}

/// `None` if this kernel does not have the sysctl, such as `netdev_budget_usecs` before 4.12,
/// `skb_defer_max` before 5.19 or `flow_limit_table_len` without CONFIG_NET_FLOW_LIMIT.
fn sysctl(host: &Host, name: &str) -> Option<(String, Known<u64>)> {
    let path = format!("/proc/sys/net/core/{name}");
    let value = match host.read_optional(&path, number).transpose() {
        Some(value) => value,
        None if matches!(
            name,
            "netdev_budget_usecs" | "flow_limit_table_len" | "rps_sock_flow_entries" | "skb_defer_max"
        ) =>
        {
            return None;
        }
        // Only the first network namespace shows these sysctls (net/core/sysctl_net_core.c).
        None => {
            Known::unknown(format!("{path}: does not exist; only the host's own network namespace shows it"))
        }
    };
    Some((name.to_owned(), value))
}

fn rps(host: &Host, interface: &str) -> InterfaceRps {
    let file = |name: &str| format!("/sys/class/net/{interface}/{name}");
    InterfaceRps {
        interface: interface.to_owned(),
        queues: queues(host, interface),
        gro_flush_timeout_ns: host.read_optional(&file("gro_flush_timeout"), number),
        napi_defer_hard_irqs: host.read_optional(&file("napi_defer_hard_irqs"), number),
        // 2 means busy polling by the thread, since Linux 6.19.
        threaded: host.read_optional(&file("threaded"), |text| number::<u32>(text).map(|value| value != 0)),
    }
}

fn queues(host: &Host, interface: &str) -> Known<Vec<RpsQueue>> {
    let directory = format!("/sys/class/net/{interface}/queues");
    let queue = |queue| rps_queue(host, &format!("{directory}/rx-{queue}"), queue);
    host.list_numbers(&directory, "rx-").map(|queues| queues.into_iter().map(queue).collect()).into()
}

fn rps_queue(host: &Host, directory: &str, queue: u32) -> RpsQueue {
    let cpus = host.read_known(&format!("{directory}/rps_cpus"), CpuSet::from_mask);
    RpsQueue { queue, cpus, flow_count: host.read_known(&format!("{directory}/rps_flow_cnt"), number) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rps_is_read_per_queue_in_numeric_order() {
        let host = Host::scripted([
            ("/sys/class/net/eth0/queues/rx-10/rps_cpus", "0,00000003\n"),
            ("/sys/class/net/eth0/queues/rx-10/rps_flow_cnt", "4096\n"),
            ("/sys/class/net/eth0/queues/rx-9/rps_cpus", "0x3\n"),
            ("/sys/class/net/eth0/queues/tx-0/xps_cpus", "1\n"),
            ("/sys/class/net/eth0/gro_flush_timeout", "20000\n"),
            ("/sys/class/net/eth0/threaded", "1\n"),
        ]);
        let rps = rps(&host, "eth0");
        let queues = rps.queues.into_value().expect("queues");
        assert_eq!(queues.iter().map(|item| item.queue).collect::<Vec<_>>(), [9, 10]);
        assert!(
            queues[0]
                .cpus
                .why()
                .is_some_and(|why| why.starts_with("/sys/class/net/eth0/queues/rx-9/rps_cpus: "))
        );
        assert!(queues[0].flow_count.why_contains("/rx-9/rps_flow_cnt: "));
        assert_eq!(queues[1].cpus, CpuSet::from_list("0-1").into());
        assert_eq!(queues[1].flow_count, Known::Value(4096));
        assert_eq!(rps.gro_flush_timeout_ns, Known::Value(Some(20_000)));
        assert_eq!(rps.napi_defer_hard_irqs, Known::Value(None));
        assert_eq!(rps.threaded, Known::Value(Some(true)));
    }

    #[test]
    fn newer_sysctls_are_omitted_and_missing_required_sysctls_are_unknown() {
        let host = Host::scripted([
            ("/proc/sys/net/core/netdev_budget", "300\n"),
            ("/proc/sys/net/core/dev_weight", "many\n"),
        ]);
        let softirq = SoftirqState::observe(&host, &[]);
        assert_eq!(softirq.sysctls["netdev_budget"], Known::Value(300));
        assert!(!softirq.sysctls.contains_key("netdev_budget_usecs"));
        assert_eq!(
            softirq.sysctls["netdev_max_backlog"].why(),
            Some(
                "/proc/sys/net/core/netdev_max_backlog: does not exist; only the host's own network namespace shows it"
            )
        );
        assert_eq!(
            softirq.sysctls["dev_weight"].why(),
            Some("/proc/sys/net/core/dev_weight: 'many' is not a valid number")
        );
        assert!(softirq.softnet.why_contains("/proc/net/softnet_stat"));
        assert!(softirq.net_rx.why_contains("/proc/softirqs"));
    }
}
