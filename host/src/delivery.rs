//! Datagram delivery: the arrival CPU, the socket, and the thread and CPU that read the datagram.
//!
//! `bpf/delivery.bpf.c` counts the datagrams of the given ports for a limited time: three
//! tracepoints per answered datagram (Linux 6.3 with BTF). It does not read payloads and changes
//! nothing on the host.

mod flows;
mod program;
mod report;
#[cfg(test)]
mod tests;
mod waits;

use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

use crate::{Host, HostError};
use program::DeliveryProgram;

pub use flows::{ClientCounts, FlowCounts, FlowWatch};
pub use report::{ArrivalCount, DeliveryCount, DeliveryReport, SendCount};
pub use waits::WaitCounts;

/// Interval at which `stop` is checked.
const PATIENCE: Duration = Duration::from_millis(50);

/// The longest time between the starts of two windows.
const PERIOD: Duration = Duration::from_millis(500);
const FEWEST_WINDOWS: u32 = 4;
/// The first window, which is also the shortest: above 100,000 datagrams per second and CPU, the
/// programs take more than [`BUDGET`], up to 2 % of a CPU.
const FIRST_WINDOW: Duration = Duration::from_millis(10);

/// Limit of the programs' share of the busiest CPU. Above it they are attached in windows.
const BUDGET: f64 = 0.002;

/// Datagrams on the busiest CPU that an observation counts even if it exceeds the budget, because a
/// short observation would otherwise have too few.
const ENOUGH: f64 = 5_000.0;

// Time of the programs per datagram that arrives, is read and answered. On the measured machines it
// was 0.6 to 1.2 us.
const NS_PER_DATAGRAM: f64 = 1000.0;

/// The operation in an error message.
const WHAT: &str = "observing where datagrams are delivered (BPF; requires CAP_BPF and CAP_PERFMON)";

/// The kernel of the tracepoints, in an error message.
const SINCE: &str = "requires Linux 6.3 or later";

impl DeliveryReport {
    /// Observes the UDP sockets of the calling thread's network namespace that are bound to these
    /// ports, until `duration` is over or `stop` returns true. With many datagrams, it observes
    /// them in windows, so that the programs take about 0.2 % of a CPU, and never more than 2 %.
    ///
    /// # Errors
    /// [`HostError::Call`] with the kernel's reason (no BTF, no such tracepoints, no CAP_BPF and
    /// CAP_PERFMON).
    pub fn observe(
        host: &Host,
        ports: &[u16],
        duration: Duration,
        stop: &dyn Fn() -> bool,
    ) -> Result<Self, HostError> {
        host.call(&capture_key(ports), WHAT, || {
            let mut program = DeliveryProgram::start(ports, false, false)?;
            let begin = Instant::now();
            let wait = |duration: Duration| {
                let end = Instant::now() + duration;
                while !stop() {
                    let remaining = end.saturating_duration_since(Instant::now());
                    if remaining.is_zero() {
                        break;
                    }
                    std::thread::sleep(remaining.min(PATIENCE));
                }
            };
            let remaining = || duration.saturating_sub(begin.elapsed());
            let period = PERIOD.min(duration / FEWEST_WINDOWS);
            wait(FIRST_WINDOW.min(remaining()));
            while !stop() && !remaining().is_zero() {
                let window =
                    period.mul_f64(window_share(&program.read()?, duration)).max(FIRST_WINDOW).min(period);
                if window < period {
                    program.detach()?;
                    wait((period - window).min(remaining()));
                    if remaining().is_zero() {
                        break;
                    }
                    program.attach()?;
                }
                wait(window.min(remaining()));
            }
            program.read()
        })
    }
}

/// The share of the time to observe, computed from the packet rate in the windows so far.
fn window_share(report: &DeliveryReport, duration: Duration) -> f64 {
    let mut by_cpu = BTreeMap::<u32, (u64, u64)>::new();
    report.arrived.iter().for_each(|item| by_cpu.entry(item.cpu).or_default().0 += item.packets);
    report.read.iter().for_each(|item| by_cpu.entry(item.read_on).or_default().1 += item.packets);
    let busiest = by_cpu.values().map(|(arrived, read)| arrived.max(read)).max().copied().unwrap_or(0);
    let rate = (busiest as f64 / report.seconds.max(f64::MIN_POSITIVE)).max(1.0);
    let within_budget = BUDGET * 1e9 / (rate * NS_PER_DATAGRAM);
    within_budget.max(ENOUGH / (rate * duration.as_secs_f64())).min(1.0)
}

/// An observation that lasts until it is dropped. Live host only.
#[derive(Debug)]
pub struct DeliveryWatch {
    program: DeliveryProgram,
}

impl DeliveryWatch {
    pub fn start(host: &Host, ports: &[u16]) -> Result<Self, HostError> {
        Self::start_with(host, ports, false, false)
    }

    /// Like [`DeliveryWatch::start`], and counts how long each datagram waits in its socket: two
    /// readings of the clock per datagram.
    pub fn start_with_waits(host: &Host, ports: &[u16]) -> Result<Self, HostError> {
        Self::start_with(host, ports, true, false)
    }

    /// Like [`DeliveryWatch::start_with_waits`], and adds up the time of softirqs: two readings of
    /// the clock per softirq.
    pub fn start_with_waits_and_softirqs(host: &Host, ports: &[u16]) -> Result<Self, HostError> {
        Self::start_with(host, ports, true, true)
    }

    fn start_with(host: &Host, ports: &[u16], waits: bool, softirqs: bool) -> Result<Self, HostError> {
        host.must_be_live(WHAT)?;
        DeliveryProgram::start(ports, waits, softirqs).map(|program| Self { program }).map_err(call_error)
    }

    /// Waits since the start, without datagrams that arrived before it.
    pub fn waits(&self) -> Result<WaitCounts, HostError> {
        self.program.waits().map_err(call_error)
    }

    /// Time in NET_RX and NET_TX since the start, ns per CPU, including interrupts within them.
    pub fn softirq_times(&self) -> Result<Vec<u64>, HostError> {
        self.program.softirq_times().map_err(call_error)
    }

    /// Counts since the start.
    pub fn read(&self) -> Result<DeliveryReport, HostError> {
        self.program.read().map_err(call_error)
    }
}

fn call_error(source: io::Error) -> HostError {
    HostError::Call { what: WHAT.to_owned(), source }
}

/// The key of the answer in captures; also that of version 0.1.
fn capture_key(ports: &[u16]) -> String {
    let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
    format!("landing/{}", ports.join(","))
}
