//! The effect of a change on the service that runs on this host: figures of equal windows before
//! and after it.
//!
//! Nothing is sent from here: the windows show the service under its usual load, or under one that
//! other hosts generate. While a window is open, the programs of `bpf/delivery.bpf.c` run for each
//! datagram of the service's ports and for each softirq, those of `bpf/flows.bpf.c` for each packet.

mod judge;
mod meter;

use linerate_host::stats::{ComparisonVerdict, RunFigure};
use serde::{Deserialize, Serialize};

pub use meter::{MeasuredService, MeterError, ServiceMeter};

/// How windows alternate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WindowOrder {
    /// One window before the changes, one after.
    Once,
    /// Before, with them, with them again, and with the original values: slow changes of the host
    /// affect both alike.
    Alternate,
}

/// A part of a window.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ServiceSample {
    pub seconds: f64,
    /// Datagrams that were put into a socket.
    pub arrived: u64,
    pub read: u64,
    /// Datagrams that the sockets sent.
    pub sent: u64,
    /// Datagrams that full receive buffers dropped.
    pub buffer_drops: u64,
    /// Packets that interfaces and backlogs dropped, of this service or another.
    pub stage_drops: u64,
    /// Wait of a datagram from its arrival in the socket until it is read; `None` with fewer than 100.
    pub wait_p50_ns: Option<f64>,
    pub wait_p99_ns: Option<f64>,
    /// Time of a reply, at the clients if load is generated. Otherwise at the network interface, from the
    /// oldest request of a client's port without a reply to the next reply to that port. `None` with
    /// fewer than 100.
    #[serde(default)]
    pub reply_p50_ns: Option<f64>,
    #[serde(default)]
    pub reply_p99_ns: Option<f64>,
    /// CPU time of all threads of the service's processes; `None` if one of them ended.
    pub service_cpu_ns: Option<u64>,
    /// CPU time of NET_RX and NET_TX on all CPUs, those of other services included.
    pub softirq_cpu_ns: u64,
    /// The same on the CPU where it was most.
    pub highest_softirq_cpu_ns: u64,
}

/// A stretch of time in one configuration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ServiceWindow {
    /// Whether the changes were in effect.
    pub changed: bool,
    pub samples: Vec<ServiceSample>,
}

/// A service before and after a change.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ChangeMeasurement {
    pub service: MeasuredService,
    pub order: WindowOrder,
    /// Requests per second that other hosts generated for the measurement; `None` under the usual load.
    #[serde(default)]
    pub generated_per_second: Option<f64>,
    /// In the order of time.
    pub windows: Vec<ServiceWindow>,
    /// Datagrams that came to the service, lost ones included, before and after.
    pub offered_per_second: [f64; 2],
    /// Replies; datagrams that were read if the service does not reply.
    pub answered_per_second: [f64; 2],
    pub figures: Vec<RunFigure>,
    pub verdict: ComparisonVerdict,
    /// Other possible reasons of a difference, and figures that could not be compared.
    pub caveats: Vec<String>,
}
