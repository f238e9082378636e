//! What several hosts measured in one slot, as one account.

use std::collections::BTreeMap;

use linerate_load::load_document::{self, LoadDocument};
use linerate_load::{QueueMedians, SlotInterval, SlotOutcome};

/// One account of all parts, each with its host's name, and what a reader has to know of the merging.
pub(super) fn outcome(mut parts: Vec<(String, LoadDocument)>) -> Result<(SlotOutcome, Vec<String>), String> {
    if parts.len() == 1 {
        return parts
            .pop()
            .map(|(_, document)| (document.outcome, Vec::new()))
            .ok_or_else(|| "no part".to_owned());
    }
    // Two that did the very same are two all the same.
    for (name, document) in &mut parts {
        document.argv.insert(0, name.clone());
    }
    let mut merged = load_document::merge(&parts).map_err(|error| error.to_string())?;
    merged.outcome.queue = worst_queue(parts.iter().map(|(_, document)| document.outcome.queue));
    Ok((merged.outcome, merged.warnings))
}

/// Medians of several do not add up; the queue is the service's, and shows where it shows most.
fn worst_queue(queues: impl Iterator<Item = QueueMedians>) -> QueueMedians {
    let growth = |queue: &QueueMedians| {
        queue.first_half_ns.zip(queue.last_quarter_ns).map(|(early, late)| late.saturating_sub(early))
    };
    queues.max_by_key(growth).unwrap_or_default()
}

/// Intervals that some hosts have told of, until all have.
#[derive(Debug, Default)]
pub(super) struct MergedIntervals {
    partly: BTreeMap<u32, (usize, SlotInterval)>,
}

impl MergedIntervals {
    /// Adds a host's interval; it is the whole once so many hosts have told of theirs.
    pub(super) fn add(&mut self, interval: SlotInterval, hosts: usize) -> Option<SlotInterval> {
        let number = interval.number;
        let told = match self.partly.remove(&number) {
            None => (1, interval),
            Some((told, mut all)) => {
                all.join(&interval);
                (told + 1, all)
            }
        };
        if told.0 >= hosts {
            return Some(told.1);
        }
        self.partly.insert(number, told);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_queue_that_grew_most_is_shown() {
        let queue = |early, late| QueueMedians { first_half_ns: early, last_quarter_ns: late };
        let all =
            [queue(Some(5), Some(4)), queue(Some(1), Some(9)), queue(None, Some(100)), queue(None, None)];
        assert_eq!(worst_queue(all.into_iter()), all[1]);
        assert_eq!(worst_queue([queue(None, None)].into_iter()), QueueMedians::default());
    }

    #[test]
    fn an_interval_is_told_when_all_have_it() {
        let interval = |number, sent| SlotInterval {
            number,
            begins_seconds: 0.0,
            seconds: 1.0,
            sent,
            received: sent,
            answered: None,
            latency_ns: linerate_load::LatencyQuantiles::default(),
        };
        let mut intervals = MergedIntervals::default();
        assert_eq!(intervals.add(interval(0, 5), 2), None);
        assert_eq!(intervals.add(interval(1, 7), 2), None);
        assert_eq!(intervals.add(interval(0, 6), 2).map(|all| all.sent), Some(11));
        assert_eq!(intervals.add(interval(1, 1), 1).map(|all| all.sent), Some(8));
    }
}
