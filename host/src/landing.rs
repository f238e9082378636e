//! Where datagrams land: the CPU each arrives on, the socket it is put into, and the thread and CPU that reads it.
//!
//! `bpf/landing.bpf.c` looks at each datagram of the ports asked for, for as long as it is asked to: three tracepoints for
//! one that is answered (Linux 6.3, with BTF), nothing of its content, and nothing of it stays.

mod flows;
mod program;
#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::{Host, HostError};
use program::DeliveryProgram;

pub use flows::{FlowCounts, FlowWatch};

/// How often `stop` is asked.
const PATIENCE: Duration = Duration::from_millis(50);

/// What is asked of the kernel, for its refusal.
const WHAT: &str = "looking where datagrams land (BPF; takes CAP_BPF and CAP_PERFMON)";

/// What was seen.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct DeliveryReport {
    /// For how long was looked, in seconds.
    pub seconds: f64,
    /// Datagrams that were read, an item for each socket, CPUs and thread.
    pub read: Vec<DeliveryCount>,
    /// Datagrams that were put into a socket, an item for each socket and CPU; those read are among them, but for some that
    /// had come before.
    pub arrived: Vec<ArrivalCount>,
    /// Datagrams that were sent, an item a socket.
    pub sent: Vec<SendCount>,
    /// What could not be counted, as programs were busy with another thread's datagram or the tables full; zero unless
    /// sockets and threads are many thousands or the kernel preempts.
    #[serde(default)]
    pub missed: u64,
}

/// Datagrams of one socket that arrived on one CPU and were read by one thread on one CPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeliveryCount {
    /// The socket's cookie.
    pub cookie: u64,
    /// The CPU they arrived on: that whose softirq put them into the socket. None where they had come before the look began,
    /// or where thousands waited. It is by the queue's order: of a socket whose datagrams arrive on several CPUs, one that is
    /// read just as another arrives may be taken for that.
    pub arrived_on: Option<u32>,
    /// The CPU they were read on.
    pub read_on: u32,
    /// The process of the thread that read them, as this process sees it; zero where it is in another process namespace
    /// than this one, which is told of no other.
    pub pid: u32,
    /// The thread; zero likewise.
    pub tid: u32,
    /// How many.
    pub packets: u64,
}

/// Datagrams put into a socket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArrivalCount {
    /// The socket's cookie.
    pub cookie: u64,
    /// The CPU.
    pub cpu: u32,
    /// How many were put into it.
    pub packets: u64,
    /// How many were refused, since its buffer was full.
    pub refused: u64,
}

/// Datagrams sent by a socket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SendCount {
    /// The socket's cookie.
    pub cookie: u64,
    /// How many.
    pub packets: u64,
    /// Bytes of the largest one's payload. Several that left as one (UDP_SEGMENT) are one here and in `packets`.
    pub largest_bytes: u32,
}

impl DeliveryReport {
    /// Looks at the UDP sockets of the calling thread's network namespace that are bound to these ports, for this long or
    /// until `stop` says so.
    ///
    /// # Errors
    /// [`HostError::Call`] where the kernel refuses (no BTF, no such tracepoints, no CAP_BPF and CAP_PERFMON), with its words.
    pub fn look(
        host: &Host,
        ports: &[u16],
        duration: Duration,
        stop: &dyn Fn() -> bool,
    ) -> Result<Self, HostError> {
        host.call(&key(ports), WHAT, || {
            let program = DeliveryProgram::start(ports)?;
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

/// A look that goes on until it is dropped, for who wants to see what changes meanwhile. It is of the live host only.
#[derive(Debug)]
pub struct DeliveryWatch {
    program: DeliveryProgram,
}

impl DeliveryWatch {
    /// Begins to look, as [`DeliveryReport::look`] does.
    ///
    /// # Errors
    /// [`HostError::Call`] likewise; [`HostError::NotLive`] for a capture.
    pub fn start(host: &Host, ports: &[u16]) -> Result<Self, HostError> {
        if !host.is_live() {
            return Err(HostError::NotLive { what: WHAT.to_owned() });
        }
        let refused = |source| HostError::Call { what: WHAT.to_owned(), source };
        DeliveryProgram::start(ports).map(|program| Self { program }).map_err(refused)
    }

    /// What was seen since it began.
    ///
    /// # Errors
    /// [`HostError::Call`] where the kernel's tables cannot be read.
    pub fn read(&self) -> Result<DeliveryReport, HostError> {
        self.program.read().map_err(|source| HostError::Call { what: WHAT.to_owned(), source })
    }
}

/// The name of the answer in captures.
fn key(ports: &[u16]) -> String {
    let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
    format!("landing/{}", ports.join(","))
}
