//! Virtual machines whose packets wait for one thread or one queue.

use super::{PortKind, VirtualNetwork, VirtualPort};
use crate::finding::{Rule, RuleMatch, Severity};
use crate::stage::HostView;
use crate::stage::thread::TICKS_PER_SECOND;

pub(in crate::stage) const VHOST_SATURATED: Rule = Rule {
    id: "link.vhost-saturated",
    title: "A vhost thread uses a whole CPU",
    why: "vhost-net has one kernel thread per queue of a virtual machine's interface. It copies every packet \
          between the tap and the machine. At a whole CPU it copies no more packets, and the tap drops the \
          rest. Inside the machine all CPUs may be idle.",
    effect: "450,000 to 650,000 packets/s with one queue, 800,000 to 1,200,000 with several.",
    published_ratio: None,
    source: "a study of packet rates, multi-queue and SR-IOV for virtual machines",
    kernels: "2.6.34 and later",
    remedy: "Give the interface several queues, each with a vhost thread: queues=\"N\" in libvirt. If it has \
             several, let the thread run on a CPU without interrupts of the NIC, on the node of the machine's \
             memory.",
    caveats: "The machine's interface is limited to a rate on purpose.",
    check: vhost_saturated,
};

pub(in crate::stage) const TAP_DROPS: Rule = Rule {
    id: "link.tap-drops",
    title: "A tap drops packets to its virtual machine",
    why: "The host puts packets for a virtual machine into the queue of its tap. vhost or the machine's process \
          takes them out. If the queue is full, the host drops the packet, and the machine sees no counter grow.",
    effect: "Each drop is a request that the machine never gets.",
    published_ratio: None,
    source: "tun_net_xmit of drivers/net/tun.c and macvtap_handle_frame of drivers/net/tap.c",
    kernels: "all",
    remedy: "See whether the vhost thread is saturated; give the interface several queues. For bursts, lengthen \
             the queue: txqueuelen of the tap, rx_queue_size of the machine's interface in libvirt.",
    caveats: "The virtual machine was stopped or booted during the reading.",
    check: |view| view.now.virtual_network.ports.iter().filter_map(|port| match_drops(view, port)).collect(),
};

pub(in crate::stage) const TAP_SINGLE_QUEUE: Rule = Rule {
    id: "link.tap-single-queue",
    title: "A virtual machine with several CPUs has one network queue",
    why: "With one queue, one vhost thread copies the packets of a machine and one of its CPUs receives them, \
          however many CPUs it has.",
    effect: "450,000 to 650,000 packets/s with one queue, 800,000 to 1,200,000 with several.",
    published_ratio: Some(1.8),
    source: "a study of packet rates, multi-queue and SR-IOV for virtual machines",
    kernels: "3.8 and later (IFF_MULTI_QUEUE)",
    remedy: "Set queues=\"N\" on the interface in libvirt (hw_vif_multiqueue_enabled in OpenStack), restart the \
             machine, and in the machine: ethtool -L eth0 combined N.",
    caveats: "The machine's services handle few packets: each queue has a thread and buffers.",
    check: single_queue,
};

/// Share of a CPU above which a thread has no time left.
const SATURATED: f64 = 0.9;
/// Share of packets above which drops are more than peaks.
const PART: f64 = 0.001;
/// With fewer drops since boot, there is no current problem.
const LEAST_SINCE_BOOT: u64 = 1_000;
/// Packets per second that one queue handles easily.
const BUSY: f64 = 20_000.0;

fn vhost_saturated(view: &HostView<'_>) -> Vec<RuleMatch> {
    let network = &view.now.virtual_network;
    let matches = network.vhost.iter().filter_map(|thread| {
        let ticks = |network: &VirtualNetwork| {
            let found = network.vhost.iter().find(|other| other.tid == thread.tid && other.pid == thread.pid);
            Some(found?.system_ticks)
        };
        let share = view.rate(|path| ticks(&path.virtual_network))? / TICKS_PER_SECOND;
        if share < SATURATED {
            return None;
        }
        let ports = network
            .ports
            .iter()
            .filter(|port| port.owner.as_ref().is_some_and(|owner| owner.pid == thread.pid));
        let ports: Vec<&VirtualPort> = ports.collect();
        let machine =
            ports.first().and_then(|port| port.owner.as_ref()).map_or("", |owner| owner.name.as_str());
        let title =
            format!("A vhost thread of virtual machine {machine} uses {:.0} % of a CPU", share * 100.0);
        let has_drops =
            ports.iter().any(|port| drop_rate_and_share(view, port).is_some_and(|(drops, _)| drops > 0.0));
        let severity = if has_drops { Severity::High } else { Severity::Medium };
        let directory = format!("/proc/{}/task/{}", thread.pid, thread.tid);
        let percent = (share * 100.0).round();
        let allowed = thread.allowed.value().map(ToString::to_string);
        let names: Vec<&str> = ports.iter().map(|port| port.interface.as_str()).collect();
        Some(
            RuleMatch::new(severity, title)
                .evidence("CPU time of the thread in percent", percent, format!("{directory}/stat"))
                .evidence_if("CPUs it may run on", allowed, format!("{directory}/status"))
                .evidence_if("CPU it ran on last", thread.last_cpu, format!("{directory}/stat"))
                .evidence("interfaces of the machine", names, format!("/proc/{}/fdinfo", thread.pid)),
        )
    });
    matches.collect()
}

/// The counter of packets that a machine did not accept, and the counter of packets for it.
fn counter_names(port: &VirtualPort) -> Option<(&'static str, &'static str)> {
    match port.kind {
        PortKind::Tap => Some(("tx_dropped", "tx_packets")),
        PortKind::Macvtap => Some(("rx_dropped", "rx_packets")),
        PortKind::Bridge | PortKind::Veth => None,
    }
}

/// Drops per second, and their share of the packets for the machine.
fn drop_rate_and_share(view: &HostView<'_>, port: &VirtualPort) -> Option<(f64, f64)> {
    let (drop_counter, packet_counter) = counter_names(port)?;
    let rate = |name| view.rate(|path| path.virtual_network.port(&port.interface)?.total(name));
    let (drops, packets) = (rate(drop_counter)?, rate(packet_counter)?);
    Some((drops, drops / (drops + packets).max(1.0)))
}

fn match_drops(view: &HostView<'_>, port: &VirtualPort) -> Option<RuleMatch> {
    let (drop_counter, packet_counter) = counter_names(port)?;
    let (interface, total) = (&port.interface, port.total(drop_counter)?);
    let machine_note =
        port.owner.as_ref().map(|owner| format!(" to virtual machine {}", owner.name)).unwrap_or_default();
    let (severity, title) = if view.before.is_some() {
        let (drops, share) = drop_rate_and_share(view, port).filter(|(drops, _)| *drops > 0.0)?;
        let severity = match share {
            _ if view.is_small_loss(drops) => Severity::Note,
            PART.. => Severity::High,
            _ => Severity::Medium,
        };
        let title = format!(
            "{interface} drops {} packets per second{machine_note}, {:.2} % of those for it",
            drops.ceil(),
            share * 100.0
        );
        (severity, title)
    } else {
        let share = total as f64 / port.total(packet_counter)?.saturating_add(total).max(1) as f64;
        if total < LEAST_SINCE_BOOT || share < PART {
            return None;
        }
        let title = format!(
            "{interface} dropped {total} packets{machine_note}, {:.2} % of those for it",
            share * 100.0
        );
        (Severity::Low, title)
    };
    let read_from = |name: &str| format!("/sys/class/net/{interface}/statistics/{name}");
    Some(
        RuleMatch::new(severity, title).evidence("packets dropped", total, read_from(drop_counter)).evidence(
            "packets passed",
            port.total(packet_counter)?,
            read_from(packet_counter),
        ),
    )
}

fn single_queue(view: &HostView<'_>) -> Vec<RuleMatch> {
    let ports = view.now.virtual_network.ports.iter();
    let matches = ports.filter_map(|port| {
        counter_names(port)?;
        let owner = port.owner.as_ref()?;
        let cpus = owner.virtual_cpus.filter(|cpus| *cpus > 1)?;
        if port.receive_queues != 1 {
            return None;
        }
        let interface = &port.interface;
        let rate = |name| view.rate(|path| path.virtual_network.port(interface)?.total(name)).unwrap_or(0.0);
        let is_busy = rate("rx_packets") + rate("tx_packets") >= BUSY;
        let severity = if is_busy { Severity::Medium } else { Severity::Note };
        let title = format!("{interface} has one queue, and virtual machine {} has {cpus} CPUs", owner.name);
        Some(
            RuleMatch::new(severity, title)
                .evidence("queues of the tap", 1, format!("/sys/class/net/{interface}/queues"))
                .evidence("virtual CPUs", cpus, format!("/proc/{}/task/*/comm", owner.pid)),
        )
    });
    matches.collect()
}
