//! Counters of receive queues.

use crate::counter::{CountedUnit, Counter};
use crate::stage::PacketPath;
use crate::stage::name::StageName;

pub(in crate::stage) fn counters(path: &PacketPath) -> Vec<Counter> {
    let mut counters = Vec::new();
    for rss in &path.rss {
        for queue in rss.counts().unwrap_or_default() {
            let counts = [
                ("packets", CountedUnit::PacketsIn, Some(queue.packets)),
                ("bytes", CountedUnit::BytesIn, queue.bytes),
                ("drops", CountedUnit::PacketsLost, queue.drops),
            ];
            counters.extend(counts.into_iter().filter_map(|(name, counts, value)| {
                let place = format!("{} rx-{}", rss.interface, queue.queue);
                Some(Counter::new(StageName::Rss, place, name, counts, value?, &queue.read_from))
            }));
        }
    }
    counters
}
