//! The result of `linerate cost` as one document.

use linerate_host::Host;
use linerate_host::stage::machine::MachineState;
use linerate_trace::cost::CostReport;
use linerate_trace::cost::calibrate::CostCalibration;
use serde::{Deserialize, Serialize};

use super::VictimGrouping;
use crate::origin;
use crate::output;

/// The schema of `--json`.
pub(crate) const SCHEMA: &str = "linerate.cost/1";

/// All that was seen.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct CostDocument {
    pub(crate) schema: String,
    pub(crate) version: String,
    pub(crate) argv: Vec<String>,
    /// When the look began; null where the clock does not say.
    pub(crate) started_unix_seconds: Option<u64>,
    pub(crate) host: CostHostSummary,
    /// Whom the text and the page show as victims; the document has every thread.
    pub(crate) by: VictimGrouping,
    /// How many of them.
    pub(crate) top: u16,
    #[serde(flatten)]
    pub(crate) cost: CostReport,
    /// What the inference method found, with `--calibrate`.
    pub(crate) calibrations: Vec<CostCalibration>,
}

/// Which host it is about. Null is unknown.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct CostHostSummary {
    /// What it calls itself.
    #[serde(default)]
    pub(crate) name: Option<String>,
    pub(crate) kernel: Option<String>,
    pub(crate) cpu_model: Option<String>,
    pub(crate) cpus: Option<usize>,
    pub(crate) hypervisor: Option<bool>,
}

impl CostDocument {
    pub(super) fn new(
        host: CostHostSummary,
        started: Option<u64>,
        (by, top): (VictimGrouping, u16),
        cost: CostReport,
        calibrations: Vec<CostCalibration>,
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

impl CostHostSummary {
    pub(super) fn of(host: &Host) -> Self {
        let machine = MachineState::observe(host);
        Self {
            name: origin::host_name(),
            kernel: machine.kernel.into_value(),
            cpu_model: machine.cpu_model.into_value(),
            cpus: machine.online.value().map(linerate_host::CpuSet::len),
            hypervisor: machine.hypervisor.into_value(),
        }
    }
}
