//! Datagram delivery: the CPU of arrival, the socket, and the thread and CPU that reads it.
//!
//! `bpf/landing.bpf.c` counts the datagrams of the given ports for a limited time: three
//! tracepoints per answered datagram (Linux 6.3 with BTF). It reads no payload and leaves nothing
//! behind.

mod flows;
mod program;
#[cfg(test)]
mod tests;
mod waits;

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::{Host, HostError};
use program::DeliveryProgram;

pub use flows::{AddressCounts, FlowCounts, FlowWatch};
pub use waits::WaitCounts;

/// Interval at which `stop` is checked.
const PATIENCE: Duration = Duration::from_millis(50);

/// The operation in an error message.
const WHAT: &str = "looking where datagrams land (BPF; takes CAP_BPF and CAP_PERFMON)";

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct DeliveryReport {
    /// Length of the observation.
    pub seconds: f64,
    /// Datagrams that were read, by socket, CPUs and thread.
    pub read: Vec<DeliveryCount>,
    /// Datagrams that were put into a socket, by socket and CPU. Includes those that were read,
    /// except a few that arrived before the start.
    pub arrived: Vec<ArrivalCount>,
    /// Datagrams that were sent, by socket.
    pub sent: Vec<SendCount>,
    /// Datagrams that were not counted, because a program was busy with another thread's datagram
    /// or a table was full. Zero unless there are many thousands of sockets and threads, or the
    /// kernel is preemptible.
    #[serde(default)]
    pub missed: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeliveryCount {
    pub cookie: u64,
    /// The CPU whose softirq put them into the socket. `None` if they arrived before the start or
    /// thousands were waiting. Derived from the order of the queue: if datagrams of a socket arrive
    /// on several CPUs at the same moment, they can be exchanged.
    pub arrived_on: Option<u32>,
    pub read_on: u32,
    /// As this process sees it; zero if the process is in another PID namespace.
    pub pid: u32,
    /// Zero like `pid`.
    pub tid: u32,
    pub packets: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArrivalCount {
    pub cookie: u64,
    pub cpu: u32,
    pub packets: u64,
    /// Datagrams dropped because the buffer was full.
    pub refused: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SendCount {
    pub cookie: u64,
    pub packets: u64,
    /// Largest payload. Datagrams that leave together (UDP_SEGMENT) count as one here and in
    /// `packets`.
    pub largest_bytes: u32,
}

impl DeliveryReport {
    /// Observes the UDP sockets of the calling thread's network namespace that are bound to these
    /// ports, until the time is over or `stop` returns true.
    ///
    /// # Errors
    /// [`HostError::Call`] with the kernel's reason (no BTF, no such tracepoints, no CAP_BPF and
    /// CAP_PERFMON).
    pub fn look(
        host: &Host,
        ports: &[u16],
        duration: Duration,
        stop: &dyn Fn() -> bool,
    ) -> Result<Self, HostError> {
        host.call(&key(ports), WHAT, || {
            let program = DeliveryProgram::start(ports, false)?;
            let begin = Instant::now();
            while !stop() {
                let left = duration.saturating_sub(begin.elapsed());
                if left.is_zero() {
                    break;
                }
                std::thread::sleep(left.min(PATIENCE));
            }
            program.read()
        })
    }
}

/// An observation that goes on until it is dropped. Live host only.
#[derive(Debug)]
pub struct DeliveryWatch {
    program: DeliveryProgram,
}

impl DeliveryWatch {
    pub fn start(host: &Host, ports: &[u16]) -> Result<Self, HostError> {
        if !host.is_live() {
            return Err(HostError::NotLive { what: WHAT.to_owned() });
        }
        Self::start_with(ports, false)
    }

    /// The same, and counts how long each datagram waits in its socket: two readings of the clock per datagram.
    pub fn start_with_waits(host: &Host, ports: &[u16]) -> Result<Self, HostError> {
        if !host.is_live() {
            return Err(HostError::NotLive { what: WHAT.to_owned() });
        }
        Self::start_with(ports, true)
    }

    fn start_with(ports: &[u16], waits: bool) -> Result<Self, HostError> {
        let refused = |source| HostError::Call { what: WHAT.to_owned(), source };
        DeliveryProgram::start(ports, waits).map(|program| Self { program }).map_err(refused)
    }

    /// Waits since the start. Those of datagrams that arrived before it are left out.
    pub fn waits(&self) -> Result<WaitCounts, HostError> {
        self.program.waits().map_err(|source| HostError::Call { what: WHAT.to_owned(), source })
    }

    /// Counts since the start.
    pub fn read(&self) -> Result<DeliveryReport, HostError> {
        self.program.read().map_err(|source| HostError::Call { what: WHAT.to_owned(), source })
    }
}

/// The key of the answer in captures.
fn key(ports: &[u16]) -> String {
    let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
    format!("landing/{}", ports.join(","))
}
