//! Losses known only from device counters, because there was no socket buffer yet, or no longer.

use super::evidence::{CounterUse, GrownCounter, PacketEvidence};
use super::{LossExactness, StageLoss};
use crate::drops::causes;

/// Device counters of these kinds minus losses seen by tracepoints: if a driver drops a socket
/// buffer, the counter and the tracepoint count it.
pub(super) fn losses(
    evidence: &PacketEvidence,
    kinds: &[(CounterUse, &str)],
    seen: &[StageLoss],
) -> Vec<StageLoss> {
    let mut found = Vec::new();
    for (kind, name) in kinds {
        let Some(cause) = causes::named(name) else { continue };
        let mut seen: u64 = seen
            .iter()
            .filter(|loss| loss.name == *name)
            .map(|loss| loss.packets)
            .fold(0, u64::saturating_add);
        for grown in evidence.of_kind(*kind) {
            let both = seen.min(grown.packets);
            seen -= both;
            if grown.packets > both {
                let mut loss =
                    StageLoss::of(cause, grown.packets - both, LossExactness::OfDevice, source(grown));
                loss.place = Some(grown.place.clone());
                found.push(loss);
            }
        }
    }
    found
}

/// Counter and file, without repeating the name.
pub(super) fn source(grown: &GrownCounter) -> String {
    if grown.read_from.ends_with(&grown.name) {
        grown.read_from.clone()
    } else {
        format!("{} {}", grown.read_from, grown.name)
    }
}
