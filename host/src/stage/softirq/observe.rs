//! Reads the state of packet processing.

use std::collections::BTreeMap;
use std::str::FromStr;

use super::{InterfaceRps, NapiInstance, RpsQueue, SoftirqState, SoftnetCpu, softirqs, softnet};
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
            softnet: softnet(host),
            net_rx: net_rx(host),
            rps: links.iter().map(|link| rps(host, &link.interface)).collect(),
            napi: NapiInstance::all(host),
            sysctls: SYSCTLS.iter().filter_map(|name| sysctl(host, name)).collect(),
        }
    }
}

impl SoftnetCpu {
    pub fn observe(host: &Host) -> Known<Vec<Self>> {
        softnet(host)
    }
}

fn softnet(host: &Host) -> Known<Vec<SoftnetCpu>> {
    const PATH: &str = "/proc/net/softnet_stat";
    let online =
        host.read("/sys/devices/system/cpu/online").ok().and_then(|text| CpuSet::from_list(&text).ok());
    let lines = match host.read(PATH).map(|text| softnet::parse(&text, online.as_ref())) {
        Ok(Ok(lines)) => lines,
        Ok(Err(error)) => return Known::unknown(format!("{PATH}: {error}")),
        Err(error) => return Known::unknown(error.to_string()),
    };
    let missing =
        online.and_then(|online| online.into_iter().find(|cpu| lines.iter().all(|line| line.cpu != *cpu)));
    match missing {
        Some(cpu) => Known::unknown(format!("{PATH}: no line of CPU {cpu}, which is online")),
        None => Known::Value(lines),
    }
}

/// The file also has columns for offline CPUs.
fn net_rx(host: &Host) -> Known<BTreeMap<u32, u64>> {
    const PATH: &str = "/proc/softirqs";
    match host.read(PATH) {
        Ok(text) => softirqs::parse(&text, "NET_RX").map_err(|error| format!("{PATH}: {error}")).into(),
        Err(error) => Known::unknown(error.to_string()),
    }
}

/// `None` if this kernel does not have the sysctl, such as `netdev_budget_usecs` before 4.12,
/// `skb_defer_max` before 5.19 or `flow_limit_table_len` without CONFIG_NET_FLOW_LIMIT.
fn sysctl(host: &Host, name: &str) -> Option<(String, Known<u64>)> {
    let path = format!("/proc/sys/net/core/{name}");
    match number(host, &path) {
        Known::Value(None)
            if matches!(
                name,
                "netdev_budget_usecs" | "flow_limit_table_len" | "rps_sock_flow_entries" | "skb_defer_max"
            ) =>
        {
            None
        }
        // Only the first network namespace shows these sysctls (net/core/sysctl_net_core.c).
        Known::Value(None) => {
            let reason = format!("{path}: does not exist; only the host's own network namespace shows it");
            Some((name.to_owned(), Known::unknown(reason)))
        }
        Known::Value(Some(value)) => Some((name.to_owned(), Known::Value(value))),
        Known::Unknown { why } => Some((name.to_owned(), Known::Unknown { why })),
    }
}

fn rps(host: &Host, interface: &str) -> InterfaceRps {
    let file = |name: &str| format!("/sys/class/net/{interface}/{name}");
    InterfaceRps {
        interface: interface.to_owned(),
        queues: queues(host, interface),
        gro_flush_timeout_ns: number(host, &file("gro_flush_timeout")),
        napi_defer_hard_irqs: number(host, &file("napi_defer_hard_irqs")),
        // 2 means busy polling by the thread, since Linux 6.19.
        threaded: number::<u32>(host, &file("threaded")).map(|threaded| threaded.map(|value| value != 0)),
    }
}

fn queues(host: &Host, interface: &str) -> Known<Vec<RpsQueue>> {
    let directory = format!("/sys/class/net/{interface}/queues");
    let names = match host.list(&directory) {
        Ok(names) => names,
        Err(error) => return Known::unknown(error.to_string()),
    };
    let mut queues: Vec<u32> =
        names.iter().filter_map(|name| name.strip_prefix("rx-")?.parse().ok()).collect();
    queues.sort_unstable();
    Known::Value(queues.into_iter().map(|queue| rps_queue(host, &directory, queue)).collect())
}

fn rps_queue(host: &Host, directory: &str, queue: u32) -> RpsQueue {
    let path = format!("{directory}/rx-{queue}/rps_cpus");
    let cpus = match host.read(&path) {
        Ok(text) => CpuSet::from_mask(&text).map_err(|error| format!("{path}: {error}")).into(),
        Err(error) => Known::unknown(error.to_string()),
    };
    let path = format!("{directory}/rx-{queue}/rps_flow_cnt");
    let flow_count = match number(host, &path) {
        Known::Value(Some(count)) => Known::Value(count),
        Known::Value(None) => Known::unknown(format!("{path}: not there")),
        Known::Unknown { why } => Known::Unknown { why },
    };
    RpsQueue { queue, cpus, flow_count }
}

/// `None` if the file does not exist.
fn number<T: FromStr>(host: &Host, path: &str) -> Known<Option<T>> {
    match host.read(path) {
        Ok(text) => {
            let text = text.trim();
            text.parse().map_or_else(
                |_| Known::unknown(format!("{path}: '{text}' is not a number that fits")),
                |number| Known::Value(Some(number)),
            )
        }
        Err(error) if error.is_missing() => Known::Value(None),
        Err(error) => Known::unknown(error.to_string()),
    }
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
        assert_eq!(
            queues[0].flow_count.why(),
            Some("/sys/class/net/eth0/queues/rx-9/rps_flow_cnt: not there")
        );
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
            Some("/proc/sys/net/core/dev_weight: 'many' is not a number that fits")
        );
        assert!(softirq.softnet.why().is_some_and(|why| why.contains("/proc/net/softnet_stat")));
        assert!(softirq.net_rx.why().is_some_and(|why| why.contains("/proc/softirqs")));
    }

    #[test]
    fn softnet_and_net_rx_are_read_on_the_live_host() {
        let softirq = SoftirqState::observe(&Host::live(), &[]);
        let lines = softirq.softnet.value().map_or(&[][..], Vec::as_slice);
        assert!(!lines.is_empty(), "{:?}", softirq.softnet);
        assert!(softirq.net_rx.value().is_some_and(|runs| runs.contains_key(&lines[0].cpu)));
    }
}
