//! The way out.

use linerate_host::PacketPath;

use super::GatheredSamples;
use super::link::interface_identity;
use crate::metrics::families::{
    LOST_PACKETS, QDISC_BACKLOG, QDISC_PACKETS, QDISC_REQUEUES, TRANSMIT_PACKETS, TRANSMIT_TIMEOUTS,
};

pub(super) fn gather(path: &PacketPath, all: &mut GatheredSamples) {
    for transmit in &path.transmit {
        let interface = transmit.interface.as_str();
        let source = interface_identity(path, interface);
        if let Some(root) = transmit.root() {
            all.add_source_counter(&QDISC_PACKETS, &[interface], source, root.packets);
            all.add_source_counter(&QDISC_REQUEUES, &[interface], source, root.requeues);
            all.add_integer_gauge(&QDISC_BACKLOG, &[interface], root.backlog);
            all.add_source_counter(&LOST_PACKETS, &["transmit", "qdisc", interface, ""], source, root.drops);
        }
        for queue in transmit.queues() {
            let number = queue.queue.to_string();
            if let Some(Some(packets)) = queue.packets.value() {
                all.add_source_counter(&TRANSMIT_PACKETS, &[interface, &number], source, *packets);
            }
            if let Some(timeouts) = queue.timeouts.value() {
                all.add_source_counter(&TRANSMIT_TIMEOUTS, &[interface, &number], source, *timeouts);
            }
        }
    }
}
