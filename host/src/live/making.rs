//! A picture of two readings: pure functions of them and of what the path is set to.

mod cpus;
mod interfaces;
mod interrupts;
mod places;
mod services;
mod threads;

use crate::pulse::Pulse;
use crate::{CpuSet, Finding, Known, PacketPath};

use crate::live::growth::sum;
use crate::live::picture::{Found, HostLine, Interface, Node, Picture, Service, Totals, Unknown};
use interrupts::Interrupts;

/// What a picture is made of.
pub(crate) struct Readings<'a> {
    /// What the path is set to.
    pub(crate) path: &'a PacketPath,
    /// The reading before; none for the first picture.
    pub(crate) before: Option<&'a Pulse>,
    pub(crate) now: &'a Pulse,
    /// Time between the readings.
    pub(crate) seconds: Option<f64>,
    /// What the rules found on the path.
    pub(crate) findings: &'a [Found],
}

impl Readings<'_> {
    /// The picture, without what only its maker knows: the host's name, the time, and what it cost.
    pub(crate) fn picture(&self, host: HostLine) -> Picture {
        let interrupts = Interrupts::between(self);
        let interfaces = interfaces::all(self, &interrupts);
        let cpus = cpus::all(self, &interrupts);
        let services = services::all(self);
        let threads = threads::all(self, &cpus);
        let mut unknown = Vec::new();
        let mut note = |what: &str, why: Option<&str>| {
            if let Some(why) = why {
                unknown.push(Unknown { what: what.to_owned(), why: why.to_owned() });
            }
        };
        note("interrupts", self.now.interrupts.why());
        note("NET_RX softirqs", self.now.net_rx.why());
        note("packets of each CPU", self.now.softnet.why());
        note("sockets", self.now.sockets.why());
        for interface in &interfaces {
            note(&format!("receive queues of {}", interface.interface), interface.receive.why());
            note(&format!("transmit queues of {}", interface.interface), interface.transmit.why());
        }
        let mut picture = Picture {
            unix_seconds: None,
            interval_seconds: self.seconds,
            host,
            interfaces,
            cpus,
            services,
            threads,
            findings: self.findings.to_vec(),
            totals: Totals::default(),
            unknown,
            cost: crate::live::picture::Cost::default(),
        };
        picture.totals = totals(&picture);
        picture
    }
}

/// The nodes and CPUs of a host, with its name.
pub(crate) fn host_line(path: &PacketPath, name: Known<String>) -> HostLine {
    let nodes = path.machine.nodes.value().into_iter().flatten();
    let nodes = nodes.map(|node| Node { node: node.node, cpus: node.cpus.to_string() }).collect();
    HostLine { name, kernel: path.machine.kernel.clone(), nodes }
}

/// Findings with the places they sit at.
pub(crate) fn found(path: &PacketPath, findings: &[Finding]) -> Vec<Found> {
    findings.iter().map(|finding| places::found(path, finding)).collect()
}

fn totals(picture: &Picture) -> Totals {
    let there = || picture.interfaces.iter().filter(|interface| interface.gone_seconds.is_none());
    let of = |figure: fn(&Interface) -> Option<f64>| sum(there().map(figure));
    let cpus = || picture.cpus.value().into_iter().flatten();
    let sockets = || {
        let services = picture.services.value().into_iter().flatten();
        services.flat_map(|service: &Service| &service.sockets)
    };
    Totals {
        rx_packets_per_second: of(|interface| interface.rx_packets_per_second),
        rx_drops_per_second: of(|interface| interface.rx_drops_per_second),
        interrupts_per_second: sum(cpus().map(|cpu| cpu.interrupts_per_second)),
        softirq_cpus: sum(cpus().map(|cpu| cpu.softirq_share)),
        backlog_drops_per_second: sum(cpus().map(|cpu| cpu.drops_per_second)),
        queued_bytes: sockets().filter_map(|socket| socket.queued_bytes).reduce(u64::saturating_add),
        socket_drops_per_second: sum(sockets().map(|socket| socket.drops_per_second)),
        thread_cpus: sum(picture.threads.value().into_iter().flatten().map(|thread| thread.cpu_share)),
        tx_packets_per_second: of(|interface| interface.tx_packets_per_second),
        tx_drops_per_second: of(|interface| interface.tx_drops_per_second),
    }
}

/// A set of CPUs as a list; empty for none.
fn list(cpus: &CpuSet) -> String {
    if cpus.is_empty() { String::new() } else { cpus.to_string() }
}
