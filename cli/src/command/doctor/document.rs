//! The result of `linerate doctor` as one document.

use std::collections::BTreeMap;

use linerate_host::diagnosis::UnknownItem;
use linerate_host::{Counter, CpuSet, Diagnosis, Finding, HostView, Known, PacketPath};
use serde::Serialize;

use super::reading::HostReadings;
use crate::origin;
use crate::output;
use crate::render::doctor_picture::PathPicture;

/// The schema of `--json`.
pub(crate) const SCHEMA: &str = "linerate.doctor/1";

/// All that was found.
#[derive(Serialize)]
pub(crate) struct DoctorDocument<'a> {
    pub(crate) schema: &'static str,
    pub(crate) version: &'static str,
    pub(crate) argv: Vec<String>,
    /// When the later reading was made; null where a tree does not say.
    pub(crate) read_unix_seconds: Option<u64>,
    /// Null with one reading.
    pub(crate) seconds_between_readings: Option<f64>,
    pub(crate) host: DoctorHostSummary<'a>,
    pub(crate) findings: &'a [Finding],
    pub(crate) unknown: &'a [UnknownItem],
    /// The ways of packets, as they are drawn.
    pub(crate) picture: PathPicture,
    pub(crate) counters: Vec<CounterGrowth>,
    pub(crate) stages: &'a PacketPath,
}

/// A counter and by how much it grew between the readings.
#[derive(Serialize)]
pub(crate) struct CounterGrowth {
    #[serde(flatten)]
    counter: Counter,
    /// Null with one reading, or where it began anew between the two.
    per_second: Option<f64>,
}

/// Which host it is about.
#[derive(Serialize)]
pub(crate) struct DoctorHostSummary<'a> {
    /// What it calls itself; null for a capture, which need not tell.
    pub(crate) name: Option<String>,
    /// Whether it is the one this program ran on.
    pub(crate) live: bool,
    pub(crate) kernel: &'a Known<String>,
    pub(crate) cpu_model: &'a Known<String>,
    pub(crate) cpus: &'a Known<CpuSet>,
    pub(crate) numa_nodes: &'a Known<u32>,
    pub(crate) hypervisor: &'a Known<bool>,
}

impl<'a> DoctorDocument<'a> {
    pub(crate) fn new(readings: &'a HostReadings, diagnosis: &'a Diagnosis) -> Self {
        Self::about(&readings.view(), diagnosis, readings.unix_seconds, readings.live)
    }

    /// What was found in a view of a host.
    pub(crate) fn about(
        view: &HostView<'a>,
        diagnosis: &'a Diagnosis,
        read_unix_seconds: Option<u64>,
        live: bool,
    ) -> Self {
        let machine = &view.now.machine;
        Self {
            schema: SCHEMA,
            version: env!("CARGO_PKG_VERSION"),
            argv: output::argv(),
            read_unix_seconds,
            seconds_between_readings: view.seconds(),
            host: DoctorHostSummary {
                name: if live { origin::host_name() } else { None },
                live,
                kernel: &machine.kernel,
                cpu_model: &machine.cpu_model,
                cpus: &machine.online,
                numa_nodes: &machine.numa_nodes,
                hypervisor: &machine.hypervisor,
            },
            findings: &diagnosis.findings,
            unknown: &diagnosis.unknown,
            picture: PathPicture::from_view(view),
            counters: counted(view),
            stages: view.now,
        }
    }
}

fn counted(view: &HostView<'_>) -> Vec<CounterGrowth> {
    let key = |counter: &Counter| (counter.stage, counter.place.clone(), counter.name.clone());
    let before = view.before.map(PacketPath::counters).unwrap_or_default();
    let before: BTreeMap<_, u64> = before.iter().map(|counter| (key(counter), counter.value)).collect();
    let seconds = view.seconds();
    let per_second = |counter: &Counter| {
        let grown = counter.value.checked_sub(*before.get(&key(counter))?)?;
        seconds.map(|seconds| grown as f64 / seconds)
    };
    let counters = view.now.counters();
    counters.into_iter().map(|counter| CounterGrowth { per_second: per_second(&counter), counter }).collect()
}
