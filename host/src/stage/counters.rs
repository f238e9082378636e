//! The counters of all stages except link, filter and route, which have their own.

use super::PacketPath;
use super::name::StageName;
use super::socket::{HostSockets, ServiceSockets};
use super::transmit::TransmitState;
use crate::counter::CountedUnit::{self, BytesIn, Events, PacketsIn, PacketsLost, PacketsOut, Ticks};
use crate::counter::Counter;

/// The known counters of a place that have one source.
fn at(
    (stage, place, read_from): (StageName, &str, &str),
    counts: &[(&str, CountedUnit, Option<u64>)],
) -> Vec<Counter> {
    let counter = |(name, unit, value): &(&str, CountedUnit, Option<u64>)| {
        Some(Counter::new(stage, place, *name, *unit, (*value)?, read_from))
    };
    counts.iter().filter_map(counter).collect()
}

pub(super) fn of_machine(path: &PacketPath) -> Vec<Counter> {
    let times = path.machine.cpu_times.value().into_iter().flatten();
    let counters = times.flat_map(|time| {
        let parts = [
            ("user", Ticks, Some(time.user)),
            ("system", Ticks, Some(time.system)),
            ("idle", Ticks, Some(time.idle)),
            ("irq", Ticks, Some(time.irq)),
            ("softirq", Ticks, Some(time.softirq)),
            ("steal", Ticks, Some(time.steal)),
        ];
        at((StageName::Machine, &format!("cpu {}", time.cpu), "/proc/stat"), &parts)
    });
    counters.collect()
}

pub(super) fn of_rss(path: &PacketPath) -> Vec<Counter> {
    let queues = path
        .rss
        .iter()
        .flat_map(|rss| rss.counts().unwrap_or_default().iter().map(move |queue| (rss, queue)));
    let counters = queues.flat_map(|(rss, queue)| {
        let place = format!("{} rx-{}", rss.interface, queue.queue);
        let counts = [
            ("packets", PacketsIn, Some(queue.packets)),
            ("bytes", BytesIn, queue.bytes),
            ("drops", PacketsLost, queue.drops),
        ];
        at((StageName::Rss, &place, &queue.read_from), &counts)
    });
    counters.collect()
}

pub(super) fn of_irq(path: &PacketPath) -> Vec<Counter> {
    let counters = path.irq.interfaces.iter().flat_map(|item| {
        item.vectors.value().into_iter().flatten().flat_map(|vector| {
            let place = format!("{} irq {}", item.interface, vector.irq);
            let handled = vector.handled.iter().map(|(_, count)| count).sum();
            at((StageName::Irq, &place, "/proc/interrupts"), &[(&vector.name, Events, Some(handled))])
        })
    });
    counters.collect()
}

pub(super) fn of_softirq(path: &PacketPath) -> Vec<Counter> {
    let softnet = path.softirq.softnet.value().into_iter().flatten();
    let of_cpu = softnet.flat_map(|line| {
        let counts = [
            ("processed", PacketsIn, Some(line.processed)),
            ("dropped", PacketsLost, Some(line.dropped)),
            ("time_squeeze", Events, Some(line.time_squeeze)),
            ("received_rps", Events, line.received_rps),
            // Included in `dropped` (net/core/dev.c, `enqueue_to_backlog`), so not an additional loss.
            ("flow_limit", Events, line.flow_limit),
        ];
        at((StageName::Softirq, &format!("cpu {}", line.cpu), "/proc/net/softnet_stat"), &counts)
    });
    let net_rx = path.softirq.net_rx.value().into_iter().flatten().flat_map(|(cpu, runs)| {
        at((StageName::Softirq, &format!("cpu {cpu}"), "/proc/softirqs"), &[("NET_RX", Events, Some(*runs))])
    });
    of_cpu.chain(net_rx).collect()
}

impl HostSockets {
    /// The kernel counts no received packets per socket.
    pub fn counters(&self) -> Vec<Counter> {
        let of_service = |service: &ServiceSockets| {
            let of_socket = |socket: &super::socket::SocketState| {
                let place = format!("{} ino {}", service.name(), socket.inode);
                at((StageName::Socket, &place, &service.read_from), &[("drops", PacketsLost, socket.drops)])
            };
            service.sockets.iter().flat_map(of_socket).collect::<Vec<Counter>>()
        };
        self.services().iter().flat_map(of_service).collect()
    }
}

/// CPU time of each serving thread, in user mode and in the kernel.
pub(super) fn of_threads(path: &PacketPath) -> Vec<Counter> {
    let serving = path.thread.serving.value().into_iter().flatten();
    let counters = serving.flat_map(|thread| {
        let place = format!("thread {} {}", thread.name, thread.tid);
        let read_from = format!("/proc/{}/task/{}/stat", thread.pid, thread.tid);
        let (user, system) = (thread.user_ticks.value().copied(), thread.system_ticks.value().copied());
        at((StageName::Thread, &place, &read_from), &[("utime", Ticks, user), ("stime", Ticks, system)])
    });
    counters.collect()
}

pub(super) fn of_transmit(path: &PacketPath) -> Vec<Counter> {
    path.transmit
        .iter()
        .flat_map(|transmit| [of_discipline(transmit), of_queues(transmit)].concat())
        .collect()
}

/// The root's counters include the counters of its children.
fn of_discipline(transmit: &TransmitState) -> Vec<Counter> {
    let Some(root) = transmit.root() else { return Vec::new() };
    let interface = &transmit.interface;
    let counts = [
        ("packets", PacketsIn, Some(root.packets)),
        ("drops", PacketsLost, Some(root.drops)),
        ("requeues", Events, Some(root.requeues)),
    ];
    let (place, read_from) = (format!("{interface} {}", root.kind), format!("RTM_GETQDISC of {interface}"));
    at((StageName::Transmit, &place, &read_from), &counts)
}

fn of_queues(transmit: &TransmitState) -> Vec<Counter> {
    let interface = &transmit.interface;
    let counters = transmit.queues().iter().flat_map(|queue| {
        let place = format!("{interface} tx-{}", queue.queue);
        let packets = [("packets", PacketsOut, queue.packets.value().copied().flatten())];
        let read_from = queue.packets_read_from.as_deref().unwrap_or_default();
        let file = format!("/sys/class/net/{interface}/queues/tx-{}/tx_timeout", queue.queue);
        let timeouts = [("tx_timeout", Events, queue.timeouts.value().copied())];
        let mut counters = at((StageName::Transmit, &place, read_from), &packets);
        counters.extend(at((StageName::Transmit, &place, &file), &timeouts));
        counters
    });
    counters.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Known;
    use crate::stage::socket::sample::{host, service, thread};

    #[test]
    fn thread_counters_have_known_cpu_time_and_socket_counters_have_drops() {
        let mut path = host(&[]).with(service(1), vec![thread(51, 700, "0")]);
        path.thread_mut(0).user_ticks = Known::Value(7);
        path.thread_mut(0).system_ticks = Known::unknown("gone");
        path.service().sockets[0].drops = Some(3);
        let counters: Vec<(String, String, u64)> = path
            .counters()
            .into_iter()
            .filter(|counter| matches!(counter.stage, StageName::Socket | StageName::Thread))
            .map(|counter| (counter.place, counter.name, counter.value))
            .collect();
        let socket = ("udp 10.0.0.1:53 (echo) ino 700".to_owned(), "drops".to_owned(), 3);
        assert_eq!(counters, [socket, ("thread worker 51".to_owned(), "utime".to_owned(), 7)]);
    }
}
