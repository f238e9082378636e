//! The distribution of received packets over queues.

use super::ScaledInterface;
use crate::stage::HostView;

/// Packets per second, or since boot, below which a balance has no meaning.
const LEAST_RATE: f64 = 5_000.0;
const LEAST_COUNT: f64 = 1_000_000.0;

pub(super) struct QueueBalance {
    /// Packets by queue: per second with two readings, otherwise since boot.
    pub(super) queues: Vec<(u32, f64)>,
    pub(super) total: f64,
    /// The queue with most packets.
    pub(super) hottest: u32,
    /// The share of the hottest queue: 0 to 1.
    pub(super) share: f64,
    /// Whether `queues` are rates.
    pub(super) rates: bool,
    /// The counter of the hottest queue.
    pub(super) read_from: String,
}

impl QueueBalance {
    /// `None` if counters are unknown or too low.
    pub(super) fn from_view(view: &HostView<'_>, nic: &ScaledInterface<'_>) -> Option<Self> {
        let counts = nic.rss.counts()?;
        let rates = view.before.is_some();
        let packets = |queue: u32| {
            let count = |path: &crate::PacketPath| {
                path.rss_of(nic.interface())?
                    .counts()?
                    .iter()
                    .find(|item| item.queue == queue)
                    .map(|item| item.packets)
            };
            if rates { view.rate(count) } else { count(view.now).map(|packets| packets as f64) }
        };
        let queues: Option<Vec<(u32, f64)>> =
            counts.iter().map(|item| Some((item.queue, packets(item.queue)?))).collect();
        let queues = queues?;
        let total: f64 = queues.iter().map(|(_, packets)| packets).sum();
        let (hottest, most_packets) =
            queues.iter().copied().max_by(|left, right| left.1.total_cmp(&right.1))?;
        let is_enough = total >= if rates { LEAST_RATE } else { LEAST_COUNT };
        let read_from = counts.iter().find(|item| item.queue == hottest)?.read_from.clone();
        (is_enough && queues.len() > 1).then(|| Self {
            share: most_packets / total,
            queues,
            total,
            hottest,
            rates,
            read_from,
        })
    }

    /// The share that the hottest queue would have with an even hash: its share of the table
    /// entries. Without any, an equal share of all queues: the NIC chooses them by flows it has seen.
    pub(super) fn fair_share(&self, nic: &ScaledInterface<'_>) -> f64 {
        let entry_share = nic.entries().and_then(|entries| {
            let total: usize = entries.values().sum();
            Some(*entries.get(&self.hottest)? as f64 / total as f64)
        });
        entry_share.unwrap_or(1.0 / self.queues.len() as f64)
    }

    /// Whether a rule directs flows to the hottest queue on purpose.
    pub(super) fn is_intended(&self, nic: &ScaledInterface<'_>) -> bool {
        nic.rss.rules().is_some_and(|rules| {
            rules.iter().any(|rule| rule.queue == Some(self.hottest) || rule.rss_context)
        })
    }

    pub(super) fn by_queue(&self) -> serde_json::Value {
        let rounded = |packets: f64| serde_json::json!(packets.round());
        self.queues.iter().map(|(queue, packets)| (format!("rx-{queue}"), rounded(*packets))).collect()
    }

    pub(super) fn label(&self) -> &'static str {
        if self.rates {
            "packets per second by receive queue"
        } else {
            "packets by receive queue, since boot"
        }
    }
}
