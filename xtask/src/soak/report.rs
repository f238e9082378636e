//! The result of a soak.

use std::fmt;

use linerate_load::stats;
use serde::Serialize;

use super::accounting::RoundRequests;
use super::event::SoakEvent;
use super::{FLOWS, LOAD, PAYLOAD, SoakCommand, SoakObservation};
use crate::machine;

/// The largest growth of memory from the first quarter to the last: allocators keep some memory per
/// thread.
const ALLOWED_GROWTH: f64 = 1.05;

/// Growth that is always allowed, bytes.
const ALLOWED_BYTES: f64 = 512e3;

/// Exists only if every flow was answered again after each event: otherwise the soak ends early.
#[derive(Debug, Serialize)]
pub(super) struct SoakReport {
    elapsed_seconds: f64,
    load_average: Option<f64>,
    backend: &'static str,
    fallbacks: Vec<String>,
    workers: u32,
    server_cpu: u32,
    generator_cpu: u32,
    flows: usize,
    payload_bytes: usize,
    period_seconds: f64,
    capacity_per_second: f64,
    offered_per_second: f64,
    events: Vec<EventReport>,
    requests: Vec<RoundRequests>,
    unbalanced: Vec<String>,
    panics: PanicReport,
    memory: MemoryReport,
    kept: bool,
    #[serde(skip)]
    accounting: String,
}

#[derive(Debug, Serialize)]
struct EventReport {
    event: &'static str,
    what: String,
    times: u32,
}

#[derive(Debug, Serialize)]
struct PanicReport {
    asked: u64,
    restarts: u64,
    requests_lost: u64,
    kept: bool,
}

/// Resident memory after each event happened once: the first panic and the first port allocate
/// memory that is kept.
#[derive(Debug, Serialize)]
struct MemoryReport {
    /// After each round.
    resident_bytes: Vec<f64>,
    /// Medians; null with too few rounds.
    first_quarter_bytes: Option<f64>,
    last_quarter_bytes: Option<f64>,
    kept: bool,
}

impl SoakReport {
    pub(super) fn new(settings: &SoakCommand, observation: &SoakObservation) -> anyhow::Result<Self> {
        let total = &observation.total;
        let panics = PanicReport {
            asked: observation.poison,
            restarts: total.restarts,
            requests_lost: total.panicked,
            kept: total.restarts == observation.poison && total.panicked >= observation.poison,
        };
        let memory = MemoryReport::from_samples(&observation.memory);
        let event_report = |(event, times): (SoakEvent, u32)| EventReport {
            event: event.name(),
            what: event.to_string(),
            times,
        };
        Ok(Self {
            elapsed_seconds: observation.elapsed.as_secs_f64(),
            load_average: observation.load_average,
            backend: settings.backend.name(),
            fallbacks: observation.fallbacks.clone(),
            workers: settings.workers,
            server_cpu: settings.server_cpu,
            generator_cpu: settings.cpu,
            flows: FLOWS,
            payload_bytes: PAYLOAD,
            period_seconds: settings.period,
            capacity_per_second: observation.capacity,
            offered_per_second: observation.capacity * LOAD,
            events: SoakEvent::ALL.into_iter().zip(observation.events).map(event_report).collect(),
            requests: observation.accounting.requests(),
            unbalanced: observation.accounting.unbalanced_rounds().to_vec(),
            kept: panics.kept && observation.accounting.is_balanced() && memory.kept,
            panics,
            memory,
            accounting: observation.accounting.to_string(),
        })
    }

    pub(super) fn document(&self, started_unix_seconds: Option<u64>) -> serde_json::Value {
        machine::document("linerate.soak/2", started_unix_seconds, self)
    }

    pub(super) fn passes(&self) -> bool {
        self.kept
    }
}

impl MemoryReport {
    fn from_samples(resident: &[f64]) -> Self {
        let settled_bytes = resident.get(SoakEvent::ALL.len()..).unwrap_or_default();
        let quarter_length = (settled_bytes.len() / 4).max(1).min(settled_bytes.len());
        let (first, last) = (
            stats::median(&settled_bytes[..quarter_length]),
            stats::median(&settled_bytes[settled_bytes.len() - quarter_length..]),
        );
        Self {
            resident_bytes: resident.to_vec(),
            first_quarter_bytes: first,
            last_quarter_bytes: last,
            kept: first
                .zip(last)
                .is_some_and(|(first, last)| last <= (first * ALLOWED_GROWTH).max(first + ALLOWED_BYTES)),
        }
    }
}

impl fmt::Display for SoakReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for EventReport { what, times, .. } in &self.events {
            writeln!(f, "{times:4} times: {what}")?;
        }
        write!(f, "{}", self.accounting)?;
        let PanicReport { asked, restarts, requests_lost, kept } = &self.panics;
        writeln!(
            f,
            "{}: {asked} panics, {restarts} restarts, {requests_lost} requests lost with them",
            verdict_word(*kept)
        )?;
        let has_requests = self.requests.iter().any(|requests| requests.sent > 0);
        writeln!(
            f,
            "{}: every request has a fate",
            verdict_word(has_requests && self.unbalanced.is_empty())
        )?;
        writeln!(f, "{}: resident memory {}", verdict_word(self.memory.kept), self.memory)?;
        writeln!(f, "ok: all flows were answered after each event")
    }
}

impl fmt::Display for MemoryReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.first_quarter_bytes.zip(self.last_quarter_bytes) {
            Some((first, last)) => write!(
                f,
                "{:.2} MB in the first quarter, {:.2} MB in the last, of {} rounds",
                first / 1e6,
                last / 1e6,
                self.resident_bytes.len().saturating_sub(SoakEvent::ALL.len())
            ),
            None => write!(f, "not known: too short a time to see, give more --minutes"),
        }
    }
}

fn verdict_word(is_kept: bool) -> &'static str {
    if is_kept { "ok" } else { "FAILED" }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::{Args as _, FromArgMatches as _};
    use linerate_engine::Counts;

    use super::super::accounting::SoakAccounting;
    use super::*;
    use crate::schema::conforms;

    #[test]
    fn soak_document_conforms_to_its_schema() {
        let matches = SoakCommand::augment_args(clap::Command::new("soak")).get_matches_from(["soak"]);
        let mut total = Counts::default();
        (total.restarts, total.panicked) = (1, 3);
        let observation = SoakObservation {
            load_average: Some(0.5),
            fallbacks: Vec::new(),
            capacity: 100e3,
            memory: vec![9e6; 6],
            events: [2, 1, 1, 1, 1],
            accounting: SoakAccounting::new(2),
            poison: 1,
            total,
            elapsed: Duration::from_secs(12),
        };
        let settings = SoakCommand::from_arg_matches(&matches).expect("settings");
        let report = SoakReport::new(&settings, &observation).expect("a report");
        assert!(report.panics.kept && report.memory.kept);
        assert!(!report.passes(), "nothing was sent");
        assert!(report.to_string().contains("FAILED: every request has a fate"), "{report}");
        conforms(&report.document(Some(1_700_000_000)), "linerate.soak/2");
    }

    #[test]
    fn growing_memory_and_short_runs_fail_the_memory_check() {
        let rounds =
            |growth: f64| -> Vec<f64> { (0..45).map(|round| 9e6 + f64::from(round) * growth).collect() };
        assert!(MemoryReport::from_samples(&rounds(0.0)).kept);
        assert!(MemoryReport::from_samples(&rounds(1e3)).kept);
        assert!(!MemoryReport::from_samples(&rounds(50e3)).kept);
        let short = MemoryReport::from_samples(&rounds(0.0)[..5]);
        assert!(!short.kept && short.first_quarter_bytes.is_none());
        assert!(short.to_string().contains("too short a time"), "{short}");
    }
}
