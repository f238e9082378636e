//! Counters of interrupts per vector.

use crate::counter::{CountedUnit, Counter};
use crate::stage::PacketPath;
use crate::stage::name::StageName;

pub(in crate::stage) fn counters(path: &PacketPath) -> Vec<Counter> {
    let interfaces = path.irq.interfaces.iter();
    let vectors = interfaces.flat_map(|item| {
        item.vectors.value().into_iter().flatten().map(move |vector| (item.interface.as_str(), vector))
    });
    vectors
        .map(|(interface, vector)| {
            let place = format!("{interface} irq {}", vector.irq);
            let handled = vector.handled.iter().map(|(_, count)| count).sum();
            let (name, events) = (&vector.name, CountedUnit::Events);
            Counter::new(StageName::Irq, place, name, events, handled, "/proc/interrupts")
        })
        .collect()
}
