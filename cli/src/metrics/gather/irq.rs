//! Interrupts of queues.

use linerate_host::PacketPath;

use super::{CounterReset, GatheredSamples, source_id};
use crate::metrics::families::{IRQ_CPU, IRQ_HANDLED};

pub(super) fn gather(path: &PacketPath, all: &mut GatheredSamples) {
    for item in &path.irq.interfaces {
        for vector in item.vectors.value().into_iter().flatten() {
            let queue = vector.receive_queue.or(vector.transmit_queue);
            let queue = queue.map_or_else(|| "none".to_owned(), |queue| queue.to_string());
            let labels = [item.interface.as_str(), &queue];
            let handled = vector.handled.iter().map(|(_, count)| count).sum();
            // A queue's transmit side may have a vector of its own.
            all.add_source_counter(
                &IRQ_HANDLED,
                &labels,
                (source_id(vector.irq), CounterReset::Anew),
                handled,
            );
            if let (Some(_), Some(cpu)) = (vector.receive_queue, vector.cpu()) {
                all.add_gauge(&IRQ_CPU, &labels, f64::from(cpu));
            }
        }
    }
}
