//! Packets sent, and lost on transmit.

use crate::counter::{CountedUnit, Counter};
use crate::stage::PacketPath;
use crate::stage::name::StageName;

use super::{QdiscState, TransmitQueueState};

pub(in crate::stage) fn counters(path: &PacketPath) -> Vec<Counter> {
    let mut counters = Vec::new();
    for transmit in &path.transmit {
        let interface = &transmit.interface;
        counters.extend(transmit.root().into_iter().flat_map(|root| of_discipline(interface, root)));
        counters.extend(transmit.queues().iter().flat_map(|queue| of_queue(interface, queue)));
    }
    counters
}

/// The root's counters include the counters of its children.
fn of_discipline(interface: &str, root: &QdiscState) -> [Counter; 3] {
    let (place, read_from) = (format!("{interface} {}", root.kind), format!("RTM_GETQDISC of {interface}"));
    let counter =
        |name, counts, value| Counter::new(StageName::Transmit, &place, name, counts, value, &read_from);
    [
        counter("packets", CountedUnit::PacketsIn, root.packets),
        counter("drops", CountedUnit::PacketsLost, root.drops),
        counter("requeues", CountedUnit::Events, root.requeues),
    ]
}

fn of_queue(interface: &str, queue: &TransmitQueueState) -> impl Iterator<Item = Counter> {
    let place = format!("{interface} tx-{}", queue.queue);
    let counter = |name: &str, counts, value, read_from: String| {
        Counter::new(StageName::Transmit, &place, name, counts, value, read_from)
    };
    let file = format!("/sys/class/net/{interface}/queues/tx-{}/tx_timeout", queue.queue);
    let timeouts =
        queue.timeouts.value().map(|count| counter("tx_timeout", CountedUnit::Events, *count, file));
    let packets = queue.packets.value().copied().flatten().map(|count| {
        let read_from = queue.packets_read_from.clone().unwrap_or_default();
        counter("packets", CountedUnit::PacketsOut, count, read_from)
    });
    packets.into_iter().chain(timeouts)
}
