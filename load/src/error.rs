//! Errors of generators.

use std::io;
use std::net::{IpAddr, SocketAddr};

use crate::header::MAX_PAYLOAD_BYTES;
use crate::outcome::SlotOutcome;

/// Why a generator could not start or a slot could not run. Messages are one line: the problem, the
/// place, the fix.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GeneratorError {
    #[error("no target given: name at least one ADDR:PORT")]
    NoTargets,
    #[error("target {0} has port 0: name the port the service listens on")]
    PortZero(SocketAddr),
    /// A target is neither loopback, lab nor private, and was not named as allowed.
    #[error(
        "destination {0} is neither loopback, lab nor private: nothing was sent; if that host is yours to load, add --allow-destination {0}"
    )]
    DestinationRefused(IpAddr),
    #[error("zero threads: a generator needs at least one")]
    NoThreads,
    #[error("zero flows: a generator needs at least one source port")]
    NoFlows,
    #[error(
        "{threads} threads but only {flows} flows: every thread needs a flow of its own, ask for fewer threads or more flows"
    )]
    FewerFlowsThanThreads { threads: usize, flows: usize },
    #[error(
        "{targets} targets but only {flows} flows: a target without a flow would get nothing, ask for at least {targets} flows"
    )]
    FewerFlowsThanTargets { targets: usize, flows: usize },
    /// More flows than source ports and addresses can distinguish.
    #[error(
        "{flows} flows, but {ports} source ports on {sources} source address(es): give more of either, or ask for at most {most} flows",
        most = ports * sources
    )]
    TooFewPorts {
        flows: usize,
        ports: usize,
        /// Source addresses of the family; 1 if the kernel chooses.
        sources: usize,
    },
    /// More open files than the process may have.
    #[error(
        "{wanted} open files needed for {flows} flows, but RLIMIT_NOFILE is {limit}: fewer flows, or raise it (ulimit -n {wanted})"
    )]
    TooManyFlows {
        flows: usize,
        /// Open files needed in all, with a reserve.
        wanted: u64,
        limit: u64,
    },
    /// The payload does not fit a UDP datagram.
    #[error("payload of {0} bytes is larger than a UDP datagram holds ({MAX_PAYLOAD_BYTES} bytes)")]
    PayloadTooLarge(usize),
    /// The payload would be fragmented, which was forbidden.
    #[error(
        "payload of {payload} bytes does not fit the path MTU of {mtu} bytes to {target} unfragmented: at most {most} bytes, or allow fragments"
    )]
    PayloadOverMtu {
        payload: usize,
        /// The path MTU as the kernel sees it.
        mtu: usize,
        most: usize,
        target: SocketAddr,
    },
    /// No source address has the target's family.
    #[error("no source address of the family of target {0}: give one, or none at all")]
    NoSourceFor(SocketAddr),
    #[error("empty list of CPUs to pin to: name at least one, or do not pin")]
    NoCpus,
    /// A thread could not be pinned.
    #[error(
        "cannot pin a generator thread to CPU {cpu}: {source} (it does not exist, is offline, or is outside this process's cpuset)"
    )]
    Cpu { cpu: u32, source: io::Error },
    /// The niceness could not be set.
    #[error(
        "cannot set niceness {nice} on a generator thread: {source} (a lower value than now needs CAP_SYS_NICE)"
    )]
    Nice { nice: i32, source: io::Error },
    /// A rate that is not a positive number.
    #[error("rate of {0} requests/s: it must be a positive number of at most 1e9")]
    Rate(f64),
    /// A window of zero or above [`crate::generator::MAX_WINDOW`].
    #[error("window of {0} outstanding requests a flow: it must be 1 to {most}", most = crate::limits::MAX_WINDOW)]
    Window(u32),
    /// A slot without duration.
    #[error("slot of zero duration: give it at least a millisecond")]
    Duration,
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
    /// An interval too short to be accounted for.
    #[error("interval too short: give it at least {} ms", crate::limits::LEAST_INTERVAL.as_millis())]
    Interval,
    /// A workload whose parts do not fit together.
    #[error("workload {workload}: {problem}")]
    Workload {
        workload: &'static str,
        /// The mismatch, and values that would fit.
        problem: String,
    },
    /// A burst of zero or above [`crate::generator::MAX_BURST`].
    #[error("burst of {0} requests: it must be 1 to {most}", most = crate::limits::MAX_BURST)]
    Burst(usize),
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
    /// An option of a search is out of range.
    #[error("search option {option}: {problem}")]
    Option { option: &'static str, problem: String },
}

impl GeneratorError {
    pub(crate) fn xdp(why: impl Into<String>) -> Self {
        GeneratorError::Xdp { why: why.into() }
    }

    pub(crate) fn system(what: impl Into<String>, source: impl Into<io::Error>) -> Self {
        GeneratorError::System { what: what.into(), source: source.into() }
    }
}
