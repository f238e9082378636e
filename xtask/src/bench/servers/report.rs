//! The result of a comparison of servers.

use std::fmt;

use linerate_host::Known;
use linerate_load::stats::{self, ConfidenceInterval};
use serde::Serialize;

use super::placement::ReceivePlacement;
use super::server_turn::TurnSample;
use super::testbed::PAYLOAD;
use super::{MeasuredServerRun, ServersBench, threshold};
use crate::bench::threshold::{JudgedThreshold, interval_text, none_missed};
use crate::machine;

#[derive(Debug, Serialize)]
pub(super) struct ServersReport {
    #[serde(skip)]
    started_unix_seconds: Option<u64>,
    server_cpus: Vec<u32>,
    generator_cpu: u32,
    workers: u32,
    payload_bytes: usize,
    search_seconds: f64,
    rounds: u32,
    /// Runnable tasks over the last minute before the run: other work on the machine spoils
    /// figures.
    load_average: Option<f64>,
    parts: Vec<PlacementReport>,
    judged: bool,
}

#[derive(Debug, Serialize)]
pub(super) struct PlacementReport {
    placement: ReceivePlacement,
    servers: Vec<ServerLine>,
    thresholds: Vec<JudgedThreshold>,
}

#[derive(Debug, Serialize)]
struct ServerLine {
    name: &'static str,
    how: String,
    /// The reason why the server is missing, in all turns or in some.
    not_here: Option<String>,
    capacity_per_second: Option<ConfidenceInterval>,
    generator_bound: bool,
    overload_factor: Option<ConfidenceInterval>,
    goodput_ratio: Option<ConfidenceInterval>,
    cpu_ns_per_transaction: Known<f64>,
    cycles_per_transaction: Known<f64>,
    instructions_per_transaction: Known<f64>,
    samples: Vec<TurnSample>,
}

impl ServersReport {
    /// A report without parts.
    pub(super) fn new(settings: &ServersBench) -> Self {
        Self {
            started_unix_seconds: linerate_host::unix_seconds(),
            server_cpus: settings.server_cpus.clone(),
            generator_cpu: settings.generator_cpu,
            workers: settings.workers,
            payload_bytes: PAYLOAD,
            search_seconds: settings.seconds,
            rounds: settings.rounds,
            load_average: machine::load_average(),
            parts: Vec::new(),
            judged: !settings.no_verdict,
        }
    }

    pub(super) fn document(&self) -> serde_json::Value {
        machine::document("linerate.bench-servers/2", self.started_unix_seconds, self)
    }

    pub(super) fn add(&mut self, part: PlacementReport) {
        self.parts.push(part);
    }

    /// Whether no threshold is missed.
    pub(super) fn passes(&self) -> bool {
        none_missed(self.parts.iter().flat_map(|part| &part.thresholds))
    }
}

impl PlacementReport {
    pub(super) fn new(
        placement: ReceivePlacement,
        measured_servers: Vec<MeasuredServerRun>,
        is_judged: bool,
    ) -> Self {
        let thresholds = threshold::judge(&measured_servers, is_judged);
        Self { placement, servers: measured_servers.into_iter().map(ServerLine::new).collect(), thresholds }
    }
}

impl ServerLine {
    fn new(server_run: MeasuredServerRun) -> Self {
        let samples = server_run.samples;
        let interval = |figure: &dyn Fn(&TurnSample) -> f64| {
            stats::interval(&samples.iter().map(figure).collect::<Vec<_>>()).ok()
        };
        let median = |figure: &dyn Fn(&TurnSample) -> &Known<f64>| {
            let values: Vec<f64> =
                samples.iter().filter_map(|sample| figure(sample).value().copied()).collect();
            let unknown_reason = samples.iter().find_map(|sample| figure(sample).why());
            stats::median(&values)
                .map_or_else(|| Known::unknown(unknown_reason.unwrap_or("it was not measured")), Known::Value)
        };
        Self {
            name: server_run.candidate.name,
            how: server_run.candidate.describe(),
            not_here: server_run.out,
            capacity_per_second: interval(&|sample| sample.capacity),
            generator_bound: samples.iter().any(|sample| sample.generator_bound),
            overload_factor: interval(&|sample| sample.overload_factor),
            goodput_ratio: interval(&|sample| sample.goodput_ratio),
            cpu_ns_per_transaction: median(&|sample| &sample.cpu_ns_per_transaction),
            cycles_per_transaction: median(&|sample| &sample.cycles_per_transaction),
            instructions_per_transaction: median(&|sample| &sample.instructions_per_transaction),
            samples,
        }
    }
}

impl fmt::Display for ServersReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cpus: Vec<String> = self.server_cpus.iter().map(u32::to_string).collect();
        write!(f, "{} worker(s) on CPU {}, ", self.workers, cpus.join(","))?;
        write!(f, "generator on CPU {}; echo of {} bytes; ", self.generator_cpu, self.payload_bytes)?;
        write!(f, "{} turns of {} s", self.rounds, self.search_seconds)?;
        if let Some(load) = self.load_average {
            write!(f, "; load average before {load:.1}")?;
        }
        writeln!(
            f,
            "\nmedian and 95 % interval; goodput is what is answered of capacity when 'offered' times that is asked"
        )?;
        for part in &self.parts {
            writeln!(f, "\n{}", part.placement.describe())?;
            part.table(f)?;
            for threshold in &part.thresholds {
                writeln!(f, "{threshold}")?;
            }
        }
        writeln!(f)?;
        for line in self.parts.first().map_or(&[][..], |part| &part.servers) {
            writeln!(f, "{:12} {}", line.name, line.how)?;
        }
        Ok(())
    }
}

impl PlacementReport {
    fn table(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let headings = ["server", "capacity/s", "goodput", "offered", "CPU ns"];
        writeln!(
            f,
            "{:12} {:>28} {:>24} {:>8} {:>8}",
            headings[0], headings[1], headings[2], headings[3], headings[4]
        )?;
        for line in &self.servers {
            writeln!(f, "{line}")?;
        }
        self.counters(f)
    }

    /// Cycles and instructions of each server, or once the reason why they are missing.
    fn counters(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut reason = None;
        for line in &self.servers {
            match (&line.cycles_per_transaction, &line.instructions_per_transaction) {
                (Known::Value(cycles), Known::Value(instructions)) => writeln!(
                    f,
                    "{:12} {cycles:.0} cycles, {instructions:.0} instructions a transaction, of the whole machine",
                    line.name
                )?,
                (Known::Unknown { why }, _) | (_, Known::Unknown { why }) => {
                    if line.capacity_per_second.is_some() {
                        reason = Some(why);
                    }
                }
            }
        }
        match reason {
            Some(why) => writeln!(f, "cycles and instructions a transaction: not here: {why}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for ServerLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:12} ", self.name)?;
        let (Some(capacity), Some(goodput), Some(factor)) =
            (&self.capacity_per_second, &self.goodput_ratio, &self.overload_factor)
        else {
            return write!(f, "not here: {}", self.not_here.as_deref().unwrap_or("it was not measured"));
        };
        let bound = if self.generator_bound { ">" } else { "" };
        write!(f, "{:>28} ", format!("{bound}{}", interval_text(capacity, 1.0, 0)))?;
        write!(
            f,
            "{:>24} {:>8} ",
            interval_text(goodput, 100.0, 0) + " %",
            format!("{:.1} x", factor.median)
        )?;
        match &self.cpu_ns_per_transaction {
            Known::Value(nanoseconds) => write!(f, "{nanoseconds:>8.0}")?,
            Known::Unknown { .. } => write!(f, "{:>8}", "-")?,
        }
        match &self.not_here {
            Some(reason) => write!(f, "  ({} turns, then: {reason})", self.samples.len()),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::{Args as _, FromArgMatches as _};

    use super::*;
    use crate::schema::conforms;

    #[test]
    fn servers_document_conforms_to_its_schema() {
        let matches = ServersBench::augment_args(clap::Command::new("servers")).get_matches_from(["servers"]);
        let settings = ServersBench::from_arg_matches(&matches).expect("settings");
        let mut report = ServersReport::new(&settings);
        report.add(PlacementReport::new(
            ReceivePlacement::Rps,
            settings.select_candidates().expect("candidates"),
            true,
        ));
        conforms(&report.document(), "linerate.bench-servers/2");
    }
}
