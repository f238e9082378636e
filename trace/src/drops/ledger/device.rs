//! Losses known only from device counters, because there was no socket buffer yet, or no longer.

use super::evidence::{CounterUse, GrownCounter, PacketEvidence};
use super::{LossExactness, StageLoss};
use crate::drops::causes;

/// Device counters of these kinds minus losses seen by tracepoints: if a driver drops a socket
/// buffer, the counter and the tracepoint count it.
pub(super) fn losses(
    evidence: &PacketEvidence,
    kinds: &[(CounterUse, &str)],
    seen_losses: &[StageLoss],
) -> Vec<StageLoss> {
    let mut unseen_losses = Vec::new();
    for (kind, name) in kinds {
        let Some(cause) = causes::find_cause(name) else { continue };
        let mut seen_packets: u64 = seen_losses
            .iter()
            .filter(|loss| loss.name == *name)
            .map(|loss| loss.packets)
            .fold(0, u64::saturating_add);
        for counter in evidence.counters_of_kind(*kind) {
            let overlap = seen_packets.min(counter.packets);
            seen_packets -= overlap;
            if counter.packets > overlap {
                let mut loss = StageLoss::new(
                    cause,
                    counter.packets - overlap,
                    LossExactness::OfDevice,
                    source(counter),
                );
                loss.place = Some(counter.place.clone());
                unseen_losses.push(loss);
            }
        }
    }
    unseen_losses
}

/// Counter and file, without repeating the name.
pub(super) fn source(counter: &GrownCounter) -> String {
    if counter.read_from.ends_with(&counter.name) {
        counter.read_from.clone()
    } else {
        format!("{} {}", counter.read_from, counter.name)
    }
}
