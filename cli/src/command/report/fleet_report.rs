//! The joint result of many hosts, as JSON has it.

use std::collections::BTreeMap;

use linerate_host::Severity;
use serde::{Deserialize, Serialize};

/// The hosts of a fleet, worst first.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct FleetReport {
    pub(crate) hosts: Vec<FleetHost>,
    /// The findings of all hosts, most severe first, then by the number of hosts.
    pub(crate) findings: Vec<FleetFinding>,
    /// Values of single hosts on which nearly all other hosts agree.
    pub(crate) outliers: Vec<FleetOutlier>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct FleetHost {
    /// Name of its directory, or the node name in its document, or the name of the file without
    /// one.
    pub(crate) name: String,
    /// Files that could not be used, and the reason why a result is missing.
    pub(crate) problems: Vec<String>,
    /// Version of linerate that wrote its documents.
    pub(crate) version: Option<String>,
    pub(crate) kernel: Option<String>,
    pub(crate) cpus: Option<usize>,
    /// The highest severity of each finding; null without a document of doctor.
    pub(crate) findings: Option<BTreeMap<String, Severity>>,
    /// Values that doctor could not read.
    pub(crate) unknown: usize,
    pub(crate) figures: FleetFigures,
    /// Values that differ from those of nearly all other hosts. `outliers` lists the first 20.
    pub(crate) outliers: usize,
}

/// Figures of one host; null without a document that has it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct FleetFigures {
    /// Packets lost at all stages between two readings of doctor.
    pub(crate) lost_packets_per_second: Option<f64>,
    /// Lost packets per second of `drops`.
    pub(crate) counted_losses_per_second: Option<f64>,
    /// CPU time of packet processing per packet.
    pub(crate) packet_cpu_ns: Option<f64>,
    /// Capacity by `load --search`.
    pub(crate) transactions_per_second: Option<f64>,
    /// Capacity at the first step of the ladder.
    pub(crate) first_step_per_second: Option<f64>,
    /// Capacity at the last step of the ladder that was kept.
    pub(crate) last_step_per_second: Option<f64>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct FleetFinding {
    pub(crate) id: String,
    /// The highest of all hosts.
    pub(crate) severity: Severity,
    pub(crate) hosts: Vec<String>,
}

/// A value of one host, and the value of its peers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct FleetOutlier {
    pub(crate) host: String,
    /// Place in the state of the stages, or the name of a figure.
    pub(crate) what: String,
    pub(crate) value: String,
    /// The common value; of figures, the median.
    pub(crate) peers: String,
    /// Hosts that have the common value; of figures, hosts that have the figure.
    pub(crate) agreeing: usize,
}
