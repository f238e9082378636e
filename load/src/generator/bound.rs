//! Whether the generator was the limit.

use crate::outcome::{BoundReason, SelfWatch, SendErrors};

/// Why the generator was the limit; empty if it was not. `asked` and `offered` in requests a second.
pub(super) fn bound_because(
    asked: Option<f64>,
    offered: f64,
    sent: u64,
    errors: &SendErrors,
    cancelled: bool,
    watch: &SelfWatch,
) -> Vec<BoundReason> {
    let mut reasons = Vec::new();
    let share = |count: u64| count as f64 / sent.max(1) as f64;
    match asked {
        Some(asked) => {
            // What the kernel would not take is no lack of speed. A refusal speaks of an earlier request.
            let given_up = errors.total() - errors.refused;
            let ratio = offered / asked * (sent + given_up) as f64 / sent.max(1) as f64;
            if ratio < 0.99 && !cancelled {
                reasons.push(BoundReason::OfferedTooLittle { ratio });
            }
            if share(watch.late_sends) > 0.01 {
                reasons.push(BoundReason::SentLate { ratio: share(watch.late_sends) });
            }
        }
        None => {
            let busiest = watch.thread_cpu_ratio.iter().copied().fold(0.0, f64::max);
            if busiest >= 0.95 {
                reasons.push(BoundReason::ThreadBusy { cpu_ratio: busiest });
            }
        }
    }
    if share(watch.receive_drops) > 0.001 {
        reasons.push(BoundReason::RepliesDropped { ratio: share(watch.receive_drops) });
    }
    reasons
}
