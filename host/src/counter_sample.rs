//! The counters of a packet path that change each second, cheap enough to read each second.
//!
//! The configuration is a [`PacketPath`]; a [`SampleReader`] is created from it.

use std::collections::BTreeMap;

use crate::counter::CountedUnit;
use crate::interrupts;
use crate::known::number;
use crate::netlink::DiagSocket;
use crate::netlink::qdisc::{self, QdiscState};
use crate::netlink::qstats::QueueStatistics;
use crate::process::task::TaskStat;
use crate::setting::QueueDirection;
use crate::stage::link::LinkState;
use crate::stage::machine::CpuTimes;
use crate::stage::rss::{QueueCounts, queue_counts};
use crate::stage::socket::udp_sockets;
use crate::stage::softirq::{SoftnetCpu, softirqs};
use crate::stage::uptime;
use crate::{Host, Known, PacketPath};

/// Counters of all stages at one moment, each since its source started.
#[derive(Debug, Clone)]
pub struct CounterSample {
    /// Since boot (`/proc/uptime`, in hundredths).
    pub uptime_seconds: Known<f64>,
    pub cpu_times: Known<Vec<CpuTimes>>,
    /// `/proc/net/softnet_stat`, one line per CPU.
    pub softnet: Known<Vec<SoftnetCpu>>,
    /// NET_RX softirqs by CPU, 32 bits wide.
    pub net_rx: Known<BTreeMap<u32, u64>>,
    /// By interrupt number: counts by CPU. CPUs without interrupts are left out.
    pub interrupts: Known<BTreeMap<u32, Vec<(u32, u64)>>>,
    pub interfaces: Vec<InterfaceSample>,
    /// UDP sockets that are bound and not connected.
    pub sockets: Known<Vec<DiagSocket>>,
    /// By process and thread id; threads that ended are left out.
    pub threads: BTreeMap<(u32, u32), TaskStat>,
}

#[derive(Debug, Clone)]
pub struct InterfaceSample {
    pub interface: String,
    /// Changes when the interface is recreated; `None` if the interface does not exist.
    pub index: Option<u32>,
    /// The values of `/sys/class/net/IF/statistics` that are listed in [`TOTALS`], by name.
    pub totals: BTreeMap<&'static str, u64>,
    /// Packets lost before the network stack, by the driver's counters or `rx_missed_errors`;
    /// `None` if unknown. The kernel's `rx_dropped` also contains packets that a full backlog
    /// dropped (enqueue_to_backlog) and frames without a protocol handler, such as LLDP
    /// (__netif_receive_skb_core, net/core/dev.c, Linux 6.18).
    pub lost_packets: Option<u64>,
    // Whether the driver's counters could be read: the kernel's are no continuation of them.
    has_statistics: bool,
    /// `None` if no source reports them.
    pub receive: Known<Option<Vec<QueueCounts>>>,
    /// `None` if no source reports them.
    pub transmit: Known<Option<Vec<QueueCounts>>>,
    pub disciplines: Known<Vec<QdiscState>>,
}

pub const TOTALS: [&str; 8] = [
    "rx_packets",
    "rx_bytes",
    "rx_missed_errors",
    "rx_crc_errors",
    "tx_packets",
    "tx_bytes",
    "tx_dropped",
    "tx_errors",
];

impl InterfaceSample {
    /// Packets lost before the network stack since an earlier sample; `None` if unknown. Drivers
    /// add the drops of queues to those of the interface, so the greater of both counts.
    pub fn lost_since(&self, before: &Self) -> Option<u64> {
        let queue_drops = |sample: &Self| {
            let queues = sample.receive.value()?.iter().flatten();
            queues.filter_map(|queue| queue.drops).reduce(u64::saturating_add)
        };
        let growth = |count: &dyn Fn(&Self) -> Option<u64>| count(self)?.checked_sub(count(before)?);
        let is_continued = self.has_statistics == before.has_statistics;
        growth(&|sample| sample.lost_packets.filter(|_| is_continued)).max(growth(&queue_drops))
    }
}

#[derive(Debug)]
pub struct SampleReader {
    /// Their statistics and totals are read each time.
    links: Vec<LinkState>,
    threads: Vec<(u32, u32)>,
}

impl SampleReader {
    pub fn new(path: &PacketPath) -> Self {
        let serving = path.thread.serving.value().into_iter().flatten();
        Self { links: path.link.clone(), threads: serving.map(|thread| (thread.pid, thread.tid)).collect() }
    }

    /// Values that cannot be read are unknown.
    pub fn read(&mut self, host: &Host) -> CounterSample {
        CounterSample {
            uptime_seconds: uptime(host),
            cpu_times: CpuTimes::observe(host),
            softnet: SoftnetCpu::observe(host),
            net_rx: host.read_known("/proc/softirqs", |text| softirqs::parse(text, "NET_RX")),
            interrupts: host.read_known("/proc/interrupts", |text| {
                interrupts::parse(text)
                    .map(|lines| lines.into_iter().map(|(irq, line)| (irq, line.handled)).collect())
            }),
            interfaces: {
                let names: Vec<_> =
                    self.links.iter().map(|link| (link.interface.as_str(), &link.index)).collect();
                let disciplines = qdisc::disciplines_of_links(host, &names);
                let links = self.links.iter_mut().zip(disciplines);
                links.map(|(link, disciplines)| read_interface(host, link, disciplines)).collect()
            },
            sockets: udp_sockets(host).into(),
            threads: self.read_threads(host),
        }
    }

    fn read_threads(&self, host: &Host) -> BTreeMap<(u32, u32), TaskStat> {
        let read_task = |(pid, tid): &(u32, u32)| {
            TaskStat::of_thread(host, *pid, *tid).ok().map(|task| ((*pid, *tid), task))
        };
        self.threads.iter().filter_map(read_task).collect()
    }
}

fn read_interface(host: &Host, link: &mut LinkState, disciplines: Known<Vec<QdiscState>>) -> InterfaceSample {
    let name = link.interface.clone();
    let base = format!("/sys/class/net/{name}");
    let index = host.read_parsed(&format!("{base}/ifindex"), number).ok();
    let totals: BTreeMap<&'static str, u64> = TOTALS
        .iter()
        .filter_map(|total| {
            Some((*total, host.read_parsed(&format!("{base}/statistics/{total}"), number).ok()?))
        })
        .collect();
    link.totals = Known::Value(totals.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect());
    let queue_statistics = QueueStatistics::observe(host, &link.interface, &link.index);
    let is_complete = |statistics: &QueueStatistics| {
        let has_drops = statistics.rx.iter().all(|queue| queue.drops.is_some());
        has_drops && !statistics.rx.is_empty() && !statistics.tx.is_empty()
    };
    // A driver has hundreds of statistics, needed only if the kernel does not report the queues and
    // their losses.
    link.statistics = if queue_statistics.value().and_then(Option::as_ref).is_some_and(is_complete) {
        Known::Value(None)
    } else {
        Known::if_supported(host.statistics(&name))
    };
    let counters = link.counters().into_iter();
    let losses = counters.filter(|counter| counter.counts == CountedUnit::PacketsLost);
    InterfaceSample {
        lost_packets: losses.map(|counter| counter.value).reduce(u64::saturating_add),
        has_statistics: link.statistics.value().is_some(),
        receive: queue_counts(link, &queue_statistics, QueueDirection::Receive),
        transmit: queue_counts(link, &queue_statistics, QueueDirection::Transmit),
        disciplines,
        interface: name,
        index,
        totals,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Scope;

    #[test]
    fn losses_of_an_interface_are_those_of_its_driver_or_of_its_queues() {
        let sample = |files: &[(&str, u64)], queue_drops: Option<u64>| {
            let mut script = vec![("/sys/class/net/eth0/ifindex".to_owned(), "2\n".to_owned())];
            script.extend(files.iter().map(|(name, count)| {
                (format!("/sys/class/net/eth0/statistics/{name}"), format!("{count}\n"))
            }));
            let host = Host::scripted(script);
            let scope = Scope { interfaces: vec!["eth0".into()], ..Scope::default() };
            let mut sample = SampleReader::new(&PacketPath::observe(&host, &scope)).read(&host);
            let mut interface = sample.interfaces.remove(0);
            let read_from = String::new();
            interface.receive = Known::Value(queue_drops.map(|drops| {
                vec![QueueCounts { queue: 0, packets: 9, bytes: None, drops: Some(drops), read_from }]
            }));
            interface
        };
        let missed = |missed| [("rx_missed_errors", missed), ("rx_dropped", 100 * missed)];
        let cases = [
            (sample(&missed(1), None), sample(&missed(4), None), Some(3)),
            (sample(&missed(1), Some(1)), sample(&missed(4), Some(4)), Some(3)),
            (sample(&missed(1), Some(1)), sample(&missed(1), Some(8)), Some(7)),
            (sample(&[], Some(1)), sample(&[], Some(8)), Some(7)),
            (sample(&[], None), sample(&[], None), None),
            (sample(&missed(4), None), sample(&missed(1), None), None),
        ];
        let once_read = InterfaceSample { has_statistics: true, ..sample(&missed(1), None) };
        assert_eq!(sample(&missed(4), None).lost_since(&once_read), None, "a failed read");
        for (before, now, lost) in cases {
            assert_eq!(now.lost_since(&before), lost, "{before:?} {now:?}");
        }
    }
}
