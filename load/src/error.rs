//! Errors of generators.

use std::io;

use crate::outcome::SlotOutcome;

/// Why a generator could not start or a slot could not run. Messages are one line: the problem, the
/// place, the fix.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GeneratorError {
    /// An option or a slot is out of range, or needs more than this process may have.
    #[error("{0}")]
    Invalid(String),
    /// A thread could not be pinned.
    #[error(
        "cannot pin a generator thread to CPU {cpu}: {source} (it does not exist, is offline, or is outside this process's cpuset)"
    )]
    Cpu { cpu: u32, source: io::Error },
    /// The time to start at is over.
    #[error(
        "the time to start at is over: it would have to be at least {} ms from now, and was {} ms ago; choose a later one",
        lead.as_millis(), ago.as_millis()
    )]
    StartIsOver {
        /// Time that a start needs for its preparation.
        lead: std::time::Duration,
        /// How long ago it was; zero if it was only too near.
        ago: std::time::Duration,
    },
    /// A system call failed.
    #[error("{what}: {source}")]
    System { what: String, source: io::Error },
    /// The XDP backend does not work on the way to the targets.
    #[error("the XDP backend cannot be used: {why}")]
    Xdp {
        /// The missing requirement, and how to get it.
        why: String,
    },
    /// A thread of the generator is gone.
    #[error("a generator thread ended unexpectedly; start a new generator")]
    Worker,
    /// One of several generators that send together failed, and with it the slot.
    #[error("{who}: {why}")]
    Incomplete {
        who: String,
        /// The reason and time of its failure, and the results of the other generators, in one
        /// line.
        why: String,
        /// The results of the other generators in the same slot. `None` if they sent nothing.
        others: Option<Box<SlotOutcome>>,
    },
    /// Stopped from outside before anything was measured.
    #[error("cancelled")]
    Cancelled,
}

impl GeneratorError {
    /// An option of a search or slot that is out of range.
    #[must_use]
    pub fn option(option: &str, problem: &str) -> Self {
        GeneratorError::Invalid(format!("option {option}: {problem}"))
    }

    // More flows than source ports and addresses can distinguish. `sources`: addresses of the family; 1
    // if the kernel chooses.
    pub(crate) fn too_few_ports(flows: usize, ports: usize, sources: usize) -> Self {
        GeneratorError::Invalid(format!(
            "{flows} flows, but {ports} source ports on {sources} source address(es): give more of either, or \
             ask for at most {most} flows",
            most = ports * sources
        ))
    }

    // `needed`: open files in all, with a reserve.
    pub(crate) fn too_many_flows(flows: usize, needed: u64, limit: u64) -> Self {
        GeneratorError::Invalid(format!(
            "{needed} open files needed for {flows} flows, but RLIMIT_NOFILE is {limit}: fewer flows, or raise \
             it (ulimit -n {needed})"
        ))
    }

    pub(crate) fn xdp(why: impl Into<String>) -> Self {
        GeneratorError::Xdp { why: why.into() }
    }

    pub(crate) fn system(what: impl Into<String>, source: impl Into<io::Error>) -> Self {
        GeneratorError::System { what: what.into(), source: source.into() }
    }
}

pub(crate) fn invalid<T>(problem: impl Into<String>) -> Result<T, GeneratorError> {
    Err(GeneratorError::Invalid(problem.into()))
}
