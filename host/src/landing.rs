//! Datagram delivery: the CPU of arrival, the socket, and the thread and CPU that reads it.
//!
//! `bpf/landing.bpf.c` counts the datagrams of the given ports for a limited time: three
//! tracepoints per answered datagram (Linux 6.3 with BTF). It reads no payload and leaves nothing
//! behind.

mod flows;
mod program;
mod report;
#[cfg(test)]
mod tests;
mod waits;

use std::io;
use std::time::{Duration, Instant};

use crate::{Host, HostError};
use program::DeliveryProgram;

pub use flows::{AddressCounts, FlowCounts, FlowWatch};
pub use report::{ArrivalCount, DeliveryCount, DeliveryReport, SendCount};
pub use waits::WaitCounts;

/// Interval at which `stop` is checked.
const PATIENCE: Duration = Duration::from_millis(50);

/// The operation in an error message.
const WHAT: &str = "observing where datagrams are delivered (BPF; requires CAP_BPF and CAP_PERFMON)";

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
            let program = DeliveryProgram::start(ports, false, false)?;
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
        Self::start_with(host, ports, false, false)
    }

    /// The same, and counts how long each datagram waits in its socket: two readings of the clock per datagram.
    pub fn start_with_waits(host: &Host, ports: &[u16]) -> Result<Self, HostError> {
        Self::start_with(host, ports, true, false)
    }

    /// The same, and adds up the time of softirqs: two readings of the clock per softirq.
    pub fn start_with_waits_and_softirqs(host: &Host, ports: &[u16]) -> Result<Self, HostError> {
        Self::start_with(host, ports, true, true)
    }

    fn start_with(host: &Host, ports: &[u16], waits: bool, softirqs: bool) -> Result<Self, HostError> {
        if !host.is_live() {
            return Err(HostError::NotLive { what: WHAT.to_owned() });
        }
        DeliveryProgram::start(ports, waits, softirqs).map(|program| Self { program }).map_err(refused)
    }

    /// Waits since the start. Those of datagrams that arrived before it are left out.
    pub fn waits(&self) -> Result<WaitCounts, HostError> {
        self.program.waits().map_err(refused)
    }

    /// Time in NET_RX and NET_TX since the start, ns by CPU, interrupts within them included.
    pub fn softirq_times(&self) -> Result<Vec<u64>, HostError> {
        self.program.softirq_times().map_err(refused)
    }

    /// Counts since the start.
    pub fn read(&self) -> Result<DeliveryReport, HostError> {
        self.program.read().map_err(refused)
    }
}

fn refused(source: io::Error) -> HostError {
    HostError::Call { what: WHAT.to_owned(), source }
}

/// The key of the answer in captures.
fn key(ports: &[u16]) -> String {
    let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
    format!("landing/{}", ports.join(","))
}
