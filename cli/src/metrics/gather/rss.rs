//! Receive queues.

use linerate_host::PacketPath;

use super::GatheredSamples;
use super::link::interface_identity;
use crate::metrics::families::{RSS_DROPPED_PACKETS, RSS_RECEIVE_BYTES, RSS_RECEIVE_PACKETS};

pub(super) fn gather(path: &PacketPath, all: &mut GatheredSamples) {
    for rss in &path.rss {
        let source = interface_identity(path, &rss.interface);
        for counts in rss.counts().unwrap_or_default() {
            let queue = counts.queue.to_string();
            let labels = [rss.interface.as_str(), &queue];
            all.add_source_counter(&RSS_RECEIVE_PACKETS, &labels, source, counts.packets);
            if let Some(bytes) = counts.bytes {
                all.add_source_counter(&RSS_RECEIVE_BYTES, &labels, source, bytes);
            }
            if let Some(drops) = counts.drops {
                all.add_source_counter(&RSS_DROPPED_PACKETS, &labels, source, drops);
            }
        }
    }
}
