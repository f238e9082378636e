//! Loss causes of the kernel: name, description and remedy.

mod list;
mod tables;

use super::ledger::PathStep;

use list::CAUSES;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct LossCause {
    pub(super) name: &'static str,
    /// One line.
    pub(super) what: &'static str,
    // Empty if nothing needs to be done.
    pub(super) remedy: &'static str,
    /// The doctor rule about its cause.
    pub(super) finding: Option<&'static str>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StagedCause {
    pub(super) step: PathStep,
    pub(super) cause: &'static LossCause,
}

/// Packets dropped because the queue of a tap or tun device was full.
pub(super) const TAP_FULL: &str = "tap-full";

/// Packets that a device did not accept.
pub(super) const TRANSMIT_RING: &str = "transmit-ring";

/// The reason without information.
pub(super) const NO_REASON: &str = "NOT_SPECIFIED";

// The cause of a `kfree_skb`. If the reason says little, or the kernel has none (before Linux
// 5.17), the function decides. `None` if neither is known. `route_error` is the errno of the
// packet's route, of either sign.
pub(super) fn of_skb(reason: Option<&str>, function: Option<&str>, route_error: i32) -> Option<StagedCause> {
    let function = function.map(crate::symbols::source_name);
    if let Some(staged_cause) = tables::by_function(reason, function, route_error) {
        return Some(staged_cause);
    }
    let by_reason = reason.and_then(|reason| tables::by_name(tables::REASONS, reason));
    let by_function = function.and_then(|function| tables::by_name(tables::FUNCTIONS, function));
    match by_reason {
        // The function decides about the stage of a reason that several stages use.
        Some(staged_cause) => {
            let moved_cause =
                function.and_then(|function| tables::moved_cause(staged_cause.cause.name, function));
            Some(moved_cause.unwrap_or(staged_cause))
        }
        None => by_function,
    }
}

pub(super) fn find_cause(name: &str) -> Option<&'static LossCause> {
    CAUSES.iter().find(|cause| cause.name == name)
}

pub(super) fn unknown() -> &'static LossCause {
    const UNKNOWN: LossCause = LossCause {
        name: "unknown",
        what: "the kernel dropped it and gave no reason",
        remedy: "Read the source of the function that dropped it: the report names it",
        finding: None,
    };
    &UNKNOWN
}

#[cfg(test)]
mod tests;
