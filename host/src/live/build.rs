//! Pure functions that build a snapshot from two readings and the configuration of the path.

mod cpus;
mod interfaces;
mod interrupts;
mod places;
mod services;
mod threads;

use crate::counter_sample::CounterSample;
use crate::diagnosis::UnknownItem;
use crate::{Finding, Known, PacketPath};

use crate::live::growth::sum;
use crate::live::snapshot::{
    HostLine, InterfaceSnapshot, LiveFinding, NodeSnapshot, PathTotals, ServiceSnapshot, Snapshot,
};
use interrupts::InterruptRates;

/// The input of a snapshot.
pub(crate) struct SnapshotInput<'a> {
    pub(crate) path: &'a PacketPath,
    // `None` for the first snapshot.
    pub(crate) before: Option<&'a CounterSample>,
    pub(crate) now: &'a CounterSample,
    pub(crate) seconds: Option<f64>,
    pub(crate) findings: &'a [LiveFinding],
}

impl SnapshotInput<'_> {
    /// The snapshot without the host name, the time and its own cost.
    pub(crate) fn snapshot(&self, host: HostLine) -> Snapshot {
        let interrupts = InterruptRates::between(self);
        let interfaces = interfaces::all(self, &interrupts);
        let cpus = cpus::all(self, &interrupts).into();
        let services = services::all(self);
        let threads = threads::all(self, &cpus).into();
        let mut unknown = Vec::new();
        let mut add_unknown = |subject: &str, why: Option<&str>| {
            if let Some(why) = why {
                unknown.push(UnknownItem { what: subject.to_owned(), why: why.to_owned() });
            }
        };
        add_unknown("interrupts", self.now.interrupts.why());
        add_unknown("NET_RX softirqs", self.now.net_rx.why());
        add_unknown("packets of each CPU", self.now.softnet.why());
        add_unknown("sockets", self.now.sockets.why());
        for interface in &interfaces {
            add_unknown(&format!("receive queues of {}", interface.interface), interface.receive.why());
            add_unknown(&format!("transmit queues of {}", interface.interface), interface.transmit.why());
        }
        let mut snapshot = Snapshot {
            unix_seconds: None,
            interval_seconds: self.seconds,
            host,
            interfaces,
            cpus,
            services,
            threads,
            findings: self.findings.to_vec(),
            totals: PathTotals::default(),
            unknown,
            cost: crate::live::snapshot::SnapshotCost::default(),
        };
        snapshot.totals = totals(&snapshot);
        snapshot
    }
}

pub(crate) fn host_line(path: &PacketPath, name: Known<String>) -> HostLine {
    let nodes = path.machine.nodes.value().into_iter().flatten();
    let nodes = nodes.map(|node| NodeSnapshot { node: node.node, cpus: node.cpus.to_string() }).collect();
    HostLine { name, kernel: path.machine.kernel.clone(), nodes }
}

pub(crate) fn live_findings(path: &PacketPath, findings: &[Finding]) -> Vec<LiveFinding> {
    findings.iter().map(|finding| places::live_finding(path, finding)).collect()
}

fn totals(snapshot: &Snapshot) -> PathTotals {
    let present_interfaces =
        || snapshot.interfaces.iter().filter(|interface| interface.gone_seconds.is_none());
    let sum_of = |figure: fn(&InterfaceSnapshot) -> Option<f64>| sum(present_interfaces().map(figure));
    let cpus = || snapshot.cpus.value().into_iter().flatten();
    let sockets = || {
        let services = snapshot.services.value().into_iter().flatten();
        services.flat_map(|service: &ServiceSnapshot| &service.sockets)
    };
    PathTotals {
        rx_packets_per_second: sum_of(|interface| interface.rx_packets_per_second),
        rx_drops_per_second: sum_of(|interface| interface.rx_drops_per_second),
        interrupts_per_second: sum(cpus().map(|cpu| cpu.interrupts_per_second)),
        softirq_cpus: sum(cpus().map(|cpu| cpu.softirq_share)),
        backlog_drops_per_second: sum(cpus().map(|cpu| cpu.drops_per_second)),
        queued_bytes: sockets().filter_map(|socket| socket.queued_bytes).reduce(u64::saturating_add),
        socket_drops_per_second: sum(sockets().map(|socket| socket.drops_per_second)),
        thread_cpus: sum(snapshot.threads.value().into_iter().flatten().map(|thread| thread.cpu_share)),
        tx_packets_per_second: sum_of(|interface| interface.tx_packets_per_second),
        tx_drops_per_second: sum_of(|interface| interface.tx_drops_per_second),
    }
}
