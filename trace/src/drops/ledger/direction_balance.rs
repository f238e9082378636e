//! One direction of packets, balanced from one counting point to the next.

use linerate_host::Known;

use super::{AccountingPath, LossExactness, PathStep, StageEntry, StageLoss};

#[derive(Debug)]
pub(super) struct UnbalancedStage {
    pub(super) step: PathStep,
    pub(super) losses: Vec<StageLoss>,
    /// Packets that left by another device.
    pub(super) forwarded: u64,
    /// Upper bounds of the packets waiting at the end and at the beginning.
    pub(super) can_wait: u64,
    pub(super) could_wait: u64,
    // Packets that left; `None` without a counting point between this stage and the next.
    pub(super) out: Option<Known<u64>>,
}

impl UnbalancedStage {
    pub(super) fn new(step: PathStep, losses: Vec<StageLoss>) -> Self {
        Self { step, losses, forwarded: 0, can_wait: 0, could_wait: 0, out: None }
    }

    pub(super) fn counted(step: PathStep, losses: Vec<StageLoss>, out: Known<u64>) -> Self {
        Self { out: Some(out), ..Self::new(step, losses) }
    }

    pub(super) fn forwarding(self, forwarded: u64) -> Self {
        Self { forwarded, ..self }
    }

    pub(super) fn waiting(self, could_wait: u64, can_wait: u64) -> Self {
        Self { could_wait, can_wait, ..self }
    }
}

/// Balances stages in order. `first`: the number of packets into the first stage.
pub(super) fn balance_stages(first: Known<u64>, unbalanced: Vec<UnbalancedStage>) -> AccountingPath {
    let mut current = first;
    let mut stages = Vec::new();
    for stage in unbalanced {
        let entry = entry(current, stage);
        current = entry.packets_out.clone();
        stages.push(entry);
    }
    AccountingPath { stages }
}

fn entry(packets_in: Known<u64>, stage: UnbalancedStage) -> StageEntry {
    let mut entry = StageEntry {
        stage: stage.step,
        packets_in,
        packets_out: Known::unknown(""),
        losses: stage.losses,
        forwarded: stage.forwarded,
        waiting: 0,
        unaccounted: Known::unknown(""),
        likely: Vec::new(),
    };
    match (entry.packets_in.clone(), stage.out) {
        (Known::Value(incoming), Some(Known::Value(out))) => {
            let missing = difference(incoming, entry.lost_or_forwarded(), out);
            entry.waiting = missing.clamp(-signed(stage.could_wait), signed(stage.can_wait));
            entry.unaccounted = Known::Value(missing - entry.waiting);
            entry.packets_out = Known::Value(out);
        }
        (Known::Value(incoming), Some(Known::Unknown { why })) => {
            derive(&mut entry, incoming, 0, &why);
        }
        (Known::Value(incoming), None) => {
            let waits = stage.can_wait.saturating_sub(stage.could_wait);
            derive(&mut entry, incoming, waits, "counted at the next stage that counts packets");
        }
        (Known::Unknown { why }, out) => {
            entry.unaccounted = Known::unknown(why.clone());
            entry.packets_out = out.unwrap_or(Known::Unknown { why });
        }
    }
    entry
}

// The output of a stage is its input minus losses. Notes if there are more losses than packets,
// because the next stage cannot get fewer than zero packets.
fn derive(entry: &mut StageEntry, incoming: u64, waits: u64, why: &str) {
    let missing = difference(incoming, entry.lost_or_forwarded(), 0);
    entry.waiting = signed(waits).min(missing).max(0);
    entry.packets_out = Known::Value((missing - entry.waiting).max(0).unsigned_abs());
    entry.unaccounted = if missing < 0 { Known::Value(missing) } else { Known::unknown(why) };
}

fn difference(incoming: u64, lost: u64, out: u64) -> i64 {
    signed(incoming).saturating_sub(signed(lost)).saturating_sub(signed(out))
}

fn signed(packets: u64) -> i64 {
    i64::try_from(packets).unwrap_or(i64::MAX)
}

/// Assigns missing packets to device counters in their order, each up to the packets that are left.
/// If the number of missing packets is unknown, all packets of each counter.
pub(super) fn attribute_losses(losses: Vec<StageLoss>, missing: Option<u64>) -> Vec<StageLoss> {
    let Some(mut missing) = missing else { return losses };
    let mut attributed = Vec::new();
    for mut loss in losses {
        if loss.exactness == LossExactness::OfDevice {
            let counted = loss.packets;
            loss.packets = counted.min(missing);
            missing -= loss.packets;
            if loss.packets < counted {
                loss.source = format!("{}, {} of {counted} that it counts", loss.source, loss.packets);
            }
        }
        if loss.packets > 0 {
            attributed.push(loss);
        }
    }
    attributed
}
