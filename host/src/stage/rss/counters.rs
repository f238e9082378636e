//! Counters of receive queues.

use crate::counter::{CountedUnit, Counter};
use crate::stage::PacketPath;
use crate::stage::name::StageName;

pub(in crate::stage) fn counters(path: &PacketPath) -> Vec<Counter> {
    let mut counters = Vec::new();
    for rss in &path.rss {
        for queue in rss.counts().unwrap_or_default() {
            let mut add = |name: &str, counts, value| {
                counters.push(Counter {
                    stage: StageName::Rss,
                    place: format!("{} rx-{}", rss.interface, queue.queue),
                    name: name.to_owned(),
                    counts,
                    value,
                    read_from: queue.read_from.clone(),
                });
            };
            add("packets", CountedUnit::PacketsIn, queue.packets);
            if let Some(bytes) = queue.bytes {
                add("bytes", CountedUnit::BytesIn, bytes);
            }
            if let Some(drops) = queue.drops {
                add("drops", CountedUnit::PacketsLost, drops);
            }
        }
    }
    counters
}
