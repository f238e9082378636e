//! Why packets end: a name, words and a remedy for each way that the kernel has to lose one.

mod list;
mod reasons;
mod symbols;

use super::ledger::PathStep;

use list::CAUSES;

/// One way to lose a packet.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LossCause {
    pub(super) name: &'static str,
    /// What happened, one line.
    pub(super) what: &'static str,
    /// What to do about it; empty where nothing need be.
    pub(super) remedy: &'static str,
    /// The rule of doctor that looks for its cause.
    pub(super) finding: Option<&'static str>,
}

/// A cause and the stage where it was met.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StagedCause {
    pub(super) step: PathStep,
    pub(super) cause: &'static LossCause,
}

/// The cause of packets that a device did not take.
pub(super) const TRANSMIT_RING: &str = "transmit-ring";

/// The reason that says nothing.
pub(super) const NO_REASON: &str = "NOT_SPECIFIED";

/// What a `kfree_skb` was. Where the reason says little, or the kernel gives none (before Linux 5.17), the function tells in
/// which the packet fell. None where neither is known.
/// `route_error` is that of the packet's route, a number of errno of either sign.
pub(super) fn of_skb(reason: Option<&str>, function: Option<&str>, route_error: i32) -> Option<StagedCause> {
    let function = function.map(base);
    if let Some(met) = reasons::by_function(reason, function, route_error) {
        return Some(met);
    }
    let by_reason = reason.and_then(reasons::met);
    let by_function = function.and_then(symbols::met);
    match by_reason {
        // A reason that more than one stage gives is met where the function is.
        Some(met) => {
            let moved = function.and_then(|function| symbols::moved(met.cause.name, function));
            Some(moved.unwrap_or(met))
        }
        None => by_function,
    }
}

/// The cause with this name.
pub(super) fn named(name: &str) -> Option<&'static LossCause> {
    CAUSES.iter().find(|cause| cause.name == name)
}

/// What is in no table.
pub(super) fn unknown() -> &'static LossCause {
    const UNKNOWN: LossCause = LossCause {
        name: "unknown",
        what: "the kernel dropped it and gave no reason",
        remedy: "The function where it fell is named: its source says why",
        finding: None,
    };
    &UNKNOWN
}

/// A function's name without what the compiler made of it: `.isra.0`, `.constprop.0`, `.part.0`, `.cold`.
fn base(function: &str) -> &str {
    function.split_once('.').map_or(function, |(base, _)| base)
}

#[cfg(test)]
mod tests;
