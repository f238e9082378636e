//! The result of `linerate cost` as one document.

use linerate_host::Host;
use linerate_host::stage::machine::Machine;
use linerate_trace::cost::Cost;
use linerate_trace::cost::calibrate::Calibration;
use serde::{Deserialize, Serialize};

use super::By;
use crate::origin;
use crate::output;

/// The schema of `--json`.
pub(crate) const SCHEMA: &str = "linerate.cost/1";

/// All that was seen.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Document {
    pub(crate) schema: String,
    pub(crate) version: String,
    pub(crate) argv: Vec<String>,
    /// When the look began; null where the clock does not say.
    pub(crate) started_unix_seconds: Option<u64>,
    pub(crate) host: HostSummary,
    /// Whom the text and the page show as victims; the document has every thread.
    pub(crate) by: By,
    /// How many of them.
    pub(crate) top: u16,
    #[serde(flatten)]
    pub(crate) cost: Cost,
    /// What the inference method found, with `--calibrate`.
    pub(crate) calibrations: Vec<Calibration>,
}

/// Which host it is about. Null is unknown.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct HostSummary {
    /// What it calls itself.
    #[serde(default)]
    pub(crate) name: Option<String>,
    pub(crate) kernel: Option<String>,
    pub(crate) cpu_model: Option<String>,
    pub(crate) cpus: Option<usize>,
    pub(crate) hypervisor: Option<bool>,
}

impl Document {
    pub(super) fn new(
        host: HostSummary,
        started: Option<u64>,
        (by, top): (By, u16),
        cost: Cost,
        calibrations: Vec<Calibration>,
    ) -> Self {
        Self {
            schema: SCHEMA.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            argv: output::argv(),
            started_unix_seconds: started,
            host,
            by,
            top,
            cost,
            calibrations,
        }
    }
}

impl HostSummary {
    pub(super) fn of(host: &Host) -> Self {
        let machine = Machine::observe(host);
        Self {
            name: origin::host_name(),
            kernel: machine.kernel.into_value(),
            cpu_model: machine.cpu_model.into_value(),
            cpus: machine.online.value().map(linerate_host::CpuSet::len),
            hypervisor: machine.hypervisor.into_value(),
        }
    }
}
