//! Compares the number of receive queues with the CPUs.

use super::{ChannelCounts, DeviceKind, LinkState};
use crate::finding::{Rule, RuleMatch};
use crate::setting::pairs_value;
use crate::stage::softirq::rules::rps_missing;
use crate::stage::softirq::traffic;
use crate::stage::{HostView, spread};
use crate::sys::ethtool::CHANNELS;
use crate::{Known, Setting, Severity};

pub(in crate::stage) const SINGLE: Rule = Rule {
    id: "link.single-queue",
    title: "All packets come in by one receive queue",
    why: "A receive queue has one interrupt, and one CPU at a time polls it. With a single queue that CPU does all the work \
          of the network stack up to the socket, and the others wait for it.",
    effect: "One queue carried 450,000 packets/s into a virtual machine, several queues 800,000. The rate \
             grows with the number of queues if there are enough CPUs and flows.",
    published_ratio: Some(1.78),
    source: "a study of packet rates, multi-queue and SR-IOV for virtual machines: 450,000 to 800,000 packets/s",
    kernels: "all",
    remedy: "Give the interface more channels with ethtool -L. A virtual machine gets them from its \
             hypervisor: queues=\"N\" on the interface in libvirt, hw_vif_multiqueue_enabled in OpenStack. \
             If neither is possible, RPS spreads the work after the first CPU has received the packet.",
    caveats: "The load is far below the capacity of one CPU, or all of it is one flow, which never leaves its queue.",
    check: check_single,
};

pub(in crate::stage) const BELOW_CPUS: Rule = Rule {
    id: "link.queues-below-cpus",
    title: "There are fewer receive queues than CPUs",
    why: "CPUs without a queue receive no packets. Unless RPS gives them some, they only run threads, whose \
          packets come from other CPUs.",
    effect: "RPS on every queue gave work to hyper-threads without queues, which raised 6,010,000 \
             transactions/s to 7,010,000.",
    published_ratio: Some(1.17),
    source: "T. Makita, Boost UDP Transaction Performance (2016): hyper-threading, RPS on every queue",
    kernels: "all",
    remedy: "Set as many channels as cores with ethtool -L. If the device has no more, use RPS for the CPUs \
             without a queue.",
    caveats: "CPUs are kept for other work on purpose, or the interface must not pause now, since most drivers reset it to \
             change its channels.",
    check: check_below_cpus,
};

fn check_single(view: &HostView<'_>) -> Vec<RuleMatch> {
    let cpus = count_cpus(view);
    interfaces(view).filter_map(|(link, queues)| match_single(view, link, queues, cpus?)).collect()
}

fn check_below_cpus(view: &HostView<'_>) -> Vec<RuleMatch> {
    let cpus = count_cpus(view);
    interfaces(view).filter_map(|(link, queues)| match_below_cpus(view, link, queues, cpus?)).collect()
}

/// Cores and CPUs that may process packets. One queue per core is useful, also if the core has two
/// hardware threads.
#[derive(Clone, Copy)]
struct QueueCpus {
    cores: u32,
    usable: u32,
}

fn count_cpus(view: &HostView<'_>) -> Option<QueueCpus> {
    let usable = spread::usable_cpus(view.now)?;
    let cores = view.now.machine.cores.value()?.iter();
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    let usable_cores = cores.filter(|core| core.iter().any(|cpu| usable.contains(cpu))).count();
    Some(QueueCpus { cores: count(usable_cores.min(usable.len())), usable: count(usable.len()) })
}

/// Interfaces that are up and receive by a device of their own.
fn interfaces<'a>(view: &HostView<'a>) -> impl Iterator<Item = (&'a LinkState, u32)> {
    let has_device =
        |link: &LinkState| matches!(link.device.value(), Some(DeviceKind::Hardware | DeviceKind::Virtio));
    let links = view.links_up().filter(move |link| has_device(link) && !link.receives_by_vf());
    links.filter_map(|link| Some((link, *link.receive_queues.value()?)))
}

fn match_single(view: &HostView<'_>, link: &LinkState, queues: u32, cpus: QueueCpus) -> Option<RuleMatch> {
    if queues != 1 || cpus.usable < 2 {
        return None;
    }
    let is_important = matters(view, link, "rx_packets");
    let severity = |can_grow: bool| match (can_grow, is_important) {
        (true, true) => Severity::High,
        (true, false) if cpus.usable >= 4 => Severity::Medium,
        (true, false) => Severity::Low,
        (false, true) => Severity::Medium,
        (false, false) => Severity::Note,
    };
    match_queues(view, link, "one receive queue", &room(link, queues, cpus.cores.max(2))?, cpus, severity)
}

fn match_below_cpus(
    view: &HostView<'_>,
    link: &LinkState,
    queues: u32,
    cpus: QueueCpus,
) -> Option<RuleMatch> {
    if queues < 2 || queues >= cpus.cores {
        return None;
    }
    let is_important = matters(view, link, "rx_packets");
    let severity = |can_grow: bool| match (can_grow, is_important) {
        (true, true) => Severity::Medium,
        (true, false) => Severity::Low,
        (false, _) => Severity::Note,
    };
    let room = room(link, queues, cpus.cores)?;
    // The queues of several interfaces may reach all CPUs.
    if !matches!(room, QueueRoom::More(..)) && rps_missing::is_every_cpu_reached(view.now) {
        return None;
    }
    match_queues(view, link, &format!("{queues} receive queues"), &room, cpus, severity)
}

fn match_queues(
    view: &HostView<'_>,
    link: &LinkState,
    queues: &str,
    room: &QueueRoom,
    cpus: QueueCpus,
    severity: impl FnOnce(bool) -> Severity,
) -> Option<RuleMatch> {
    let interface = &link.interface;
    let summary = format!("{interface} has {queues} for {} CPUs", cpus.usable);
    let limit = match *room {
        QueueRoom::More(from, to) => {
            let title = format!("{summary}, and its device offers {}", max_receive_channels(from));
            let rule_match = RuleMatch::new(severity(true), title).costs_packets_of(interface);
            return Some(with_channels(add_evidence(rule_match, link, cpus), interface, &from, &to));
        }
        QueueRoom::Full => "its device offers no more",
        QueueRoom::Fixed => "its driver does not let that be changed",
    };
    // RPS is the remedy, and it is already set.
    if has_rps(view, link)? {
        return None;
    }
    let title = format!("{summary}, and {limit}: RPS can give the others work");
    let rule_match = RuleMatch::new(severity(false), title).costs_packets_of(interface);
    Some(add_evidence(rule_match, link, cpus))
}

pub(in crate::stage) fn with_channels(
    rule_match: RuleMatch,
    interface: &str,
    from: &ChannelCounts,
    to: &ChannelCounts,
) -> RuleMatch {
    let setting = Setting::Channels { interface: interface.to_owned() };
    rule_match.change(setting, Some(pairs_value(&CHANNELS, from)), pairs_value(&CHANNELS, to))
}

fn max_receive_channels(channels: ChannelCounts) -> u32 {
    if channels.combined_max > 0 { channels.combined_max } else { channels.rx_max }
}

#[derive(Clone, Copy)]
enum QueueRoom {
    /// The current and the better channels.
    More(ChannelCounts, ChannelCounts),
    Full,
    /// The driver cannot report or set channels.
    Fixed,
}

/// Whether more queues are possible, up to `limit`; `None` if unknown.
fn room(link: &LinkState, queues: u32, limit: u32) -> Option<QueueRoom> {
    let Some(channels) = *link.channels.value()? else { return Some(QueueRoom::Fixed) };
    let target = limit.min(max_receive_channels(channels));
    if channels.combined_max > 0 && target > channels.combined.saturating_add(channels.rx) {
        return Some(QueueRoom::More(channels, ChannelCounts { combined: target, ..channels }));
    }
    if channels.combined_max == 0 && target > channels.rx {
        return Some(QueueRoom::More(
            channels,
            ChannelCounts { rx: target, tx: channels.tx.max(target.min(channels.tx_max)), ..channels },
        ));
    }
    (max_receive_channels(channels) <= queues).then_some(QueueRoom::Full)
}

/// The current channels of an interface with one transmit queue, and those with more transmit
/// queues: the channels that [`SINGLE`] proposes, or more channels that only transmit.
pub(in crate::stage) fn transmit_room(
    view: &HostView<'_>,
    link: &LinkState,
) -> Option<(ChannelCounts, ChannelCounts)> {
    let cpus = count_cpus(view)?;
    let cores = cpus.cores.max(cpus.usable.min(2));
    match room(link, 1, cores) {
        Some(QueueRoom::More(from, to)) if to.combined > from.combined || to.tx > from.tx => Some((from, to)),
        _ => {
            let channels = (*link.channels.value()?)?;
            let tx = cores.min(channels.tx_max);
            (channels.combined == 0 && tx > channels.tx)
                .then_some((channels, ChannelCounts { tx, ..channels }))
        }
    }
}

/// Whether RPS is set on any queue; `None` unless the CPUs of all queues are known.
fn has_rps(view: &HostView<'_>, link: &LinkState) -> Option<bool> {
    let rps = view.now.softirq.rps.iter().find(|rps| rps.interface == link.interface)?;
    let queues = rps.queues.value()?;
    let states = queues.iter().map(|queue| queue.cpus.value().map(|cpus| !cpus.is_empty()));
    let states: Option<Vec<bool>> = states.collect();
    states.map(|states| states.into_iter().any(|set| set))
}

/// Whether the interface receives or sends a large part of a queue's capacity, according to this
/// counter, or the user named a service that was not idle.
pub(in crate::stage) fn matters(view: &HostView<'_>, link: &LinkState, counter: &str) -> bool {
    let is_idle = traffic::is_quiet_now(view, &link.interface);
    is_busy(view, link, counter) || is_named(view) && !is_idle
}

fn is_named(view: &HostView<'_>) -> bool {
    view.now.socket.services().iter().any(|service| service.named)
}

/// Whether packets use a large part of the queue's CPU. The best measured queue received 450,000
/// packets per second.
fn is_busy(view: &HostView<'_>, link: &LinkState, counter: &str) -> bool {
    /// Packets per second, between two readings; and on average since boot, which includes nights.
    const BUSY: f64 = 50_000.0;
    const BUSY_ON_AVERAGE: f64 = 10_000.0;
    if let Some(rate) = view.rate(|path| path.link_of(&link.interface)?.total(counter)) {
        return rate >= BUSY;
    }
    let Known::Value(uptime_seconds) = view.now.uptime_seconds else { return false };
    link.total(counter).is_some_and(|packets| packets as f64 >= BUSY_ON_AVERAGE * uptime_seconds)
}

fn add_evidence(rule_match: RuleMatch, link: &LinkState, cpus: QueueCpus) -> RuleMatch {
    let queues = link.receive_queues.value().copied();
    let mut rule_match = rule_match
        .evidence("receive queues", queues, format!("/sys/class/net/{}/queues", link.interface))
        .evidence("CPUs that may take packets", cpus.usable, "/sys/devices/system/cpu/online, isolated");
    if cpus.cores < cpus.usable {
        rule_match =
            rule_match.evidence("cores of these CPUs", cpus.cores, "/sys/devices/system/cpu/cpu*/topology");
    }
    let read_from = format!("ethtool -l {}", link.interface);
    match link.channels.value() {
        Some(Some(channels)) => {
            let max_channels = max_receive_channels(*channels);
            rule_match.evidence("receiving channels the device offers", max_channels, read_from)
        }
        Some(None) => rule_match.evidence("channels", "the driver neither reports nor sets them", read_from),
        None => rule_match,
    }
}
