//! `linerate report --fleet`: the documents of many hosts as one result.

mod peers;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use linerate_host::{HostSummary, Severity, StageName};
use linerate_lab::ladder::report::LadderReport;
use linerate_load::report::SearchReport;
use linerate_trace::cost::CostResult;
use linerate_trace::drops::DropsResult;
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::Value;

use super::fleet_report::{FleetFigures, FleetFinding, FleetHost, FleetReport};
use super::reading::{self, DocumentOrigin};
use crate::envelope::{CommandResult as _, Envelope};
use crate::view::doctor::DoctorResult;
use peers::PeerValues;

/// File next to a host's documents with the reason why a document is missing.
const ERROR_FILE: &str = "error.txt";

#[derive(Deserialize)]
struct DoctorPart {
    findings: Vec<FindingPart>,
    unknown: Vec<IgnoredAny>,
    counters: Vec<CounterPart>,
    stages: Value,
}

#[derive(Deserialize)]
struct FindingPart {
    id: String,
    severity: Severity,
}

#[derive(Deserialize)]
struct CounterPart {
    stage: StageName,
    counts: String,
    per_second: Option<f64>,
}

/// A file with a document.
struct DocumentFile<'a> {
    name: &'a str,
    /// The name of its directory; `None` for a file next to the directories of hosts.
    host: Option<&'a str>,
}

/// The hosts read so far.
#[derive(Default)]
struct FleetReader {
    hosts: BTreeMap<String, FleetHost>,
    /// When the newest document of each host and schema was started.
    started: BTreeMap<(String, String), Option<u64>>,
    peers: PeerValues,
}

/// Reads `DIR/HOST/*.json`, and `DIR/*.json` by the node name in each, or by the name of the file
/// without one.
///
/// # Errors
/// If the directory cannot be read or has no host.
pub(crate) fn read(directory: &Path) -> Result<FleetReport> {
    let mut reader = FleetReader::default();
    for path in reading::entries(directory)? {
        if path.is_dir() {
            let name = file_name(&path);
            reader.host(&name);
            for file in reading::entries(&path)? {
                reader.file(&file, Some(&name));
            }
        } else {
            reader.file(&path, None);
        }
    }
    ensure!(
        !reader.hosts.is_empty(),
        "no result of a host in {}: write some, such as linerate doctor --json {0}/HOST/doctor.json",
        directory.display()
    );
    Ok(reader.report())
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

impl FleetReader {
    fn host(&mut self, name: &str) -> &mut FleetHost {
        self.hosts.entry(name.to_owned()).or_insert_with_key(|name| FleetHost::new(name))
    }

    /// Adds a file of the host `name`; ignores files that are neither documents nor the error file.
    fn file(&mut self, path: &Path, name: Option<&str>) {
        let file = file_name(path);
        if !file.ends_with(".json") && file != ERROR_FILE {
            return;
        }
        let content = fs::read_to_string(path).map_err(anyhow::Error::from);
        let outcome = match (content, name) {
            (Ok(text), Some(name)) if file == ERROR_FILE => {
                self.host(name).problems.push(text.trim().to_owned());
                return;
            }
            (Ok(_), None) if file == ERROR_FILE => return,
            (Ok(text), name) => self.document(&text, &DocumentFile { name: &file, host: name }),
            (Err(error), _) => Err(error),
        };
        if let Err(error) = outcome {
            let problem = format!("{file}: {}", crate::output::one_line(&error));
            self.host(name.unwrap_or(&file)).problems.push(problem);
        }
    }

    fn document(&mut self, text: &str, file: &DocumentFile<'_>) -> Result<()> {
        let origin: DocumentOrigin = serde_json::from_str(text).context("no result of linerate")?;
        match origin.schema.as_str() {
            DoctorResult::SCHEMA => self.add::<DoctorPart>(&origin, text, file, |row, peers, result| {
                peers.add_state(&row.name, &result.stages);
                let mut findings = BTreeMap::new();
                for FindingPart { id, severity } in result.findings {
                    let worst = findings.entry(id).or_insert(severity);
                    *worst = severity.max(*worst);
                }
                row.findings = Some(findings);
                row.unknown = result.unknown.len();
                // Drivers add the drops of queues (stage rss) to the losses of the link, too.
                let is_loss =
                    |counter: &&CounterPart| counter.counts == LOST && counter.stage != StageName::Rss;
                let loss_rates =
                    result.counters.iter().filter(is_loss).filter_map(|counter| counter.per_second);
                // `None` with one reading.
                row.figures.lost_packets_per_second = loss_rates.reduce(|sum, rate| sum + rate);
            })?,
            SearchReport::SCHEMA => self.add::<SearchReport>(&origin, text, file, |row, _, report| {
                row.figures.transactions_per_second = Some(report.capacity.transactions_per_second.median);
            })?,
            LadderReport::SCHEMA => self.add::<LadderReport>(&origin, text, file, |row, _, report| {
                let kept_steps =
                    report.steps.iter().filter(|step| step.kept || step.versus_previous.is_none());
                let mut rates = kept_steps.filter_map(|step| Some(step.transactions_per_second?.median));
                row.figures.first_step_per_second = rates.next();
                row.figures.last_step_per_second = rates.next_back().or(row.figures.first_step_per_second);
            })?,
            CostResult::SCHEMA => self.add::<CostResult>(&origin, text, file, |row, _, result| {
                row.figures.packet_cpu_ns = result.cost.all_cpus().ns_a_packet();
            })?,
            DropsResult::SCHEMA => self.add::<DropsResult>(&origin, text, file, |row, _, result| {
                let accounting = &result.accounting;
                row.figures.counted_losses_per_second = Some(accounting.lost() as f64 / accounting.seconds);
            })?,
            reading::OWN_SCHEMA | FleetReport::SCHEMA => {}
            // Other results are about one host only.
            _ if reading::is_valid(&origin.schema) => {}
            _ => anyhow::bail!(reading::unsupported_reason(&origin)),
        }
        Ok(())
    }

    /// Adds a document, unless a later one of the same kind and host was added.
    fn add<T: DeserializeOwned>(
        &mut self,
        origin: &DocumentOrigin,
        text: &str,
        file: &DocumentFile<'_>,
        set_result: impl FnOnce(&mut FleetHost, &mut PeerValues, T),
    ) -> Result<()> {
        let Envelope { version, started_unix_seconds, host, result, .. } = serde_json::from_str(text)?;
        let node_name = host.name.as_deref().unwrap_or(file.name.trim_end_matches(".json"));
        let name = file.host.unwrap_or(node_name).to_owned();
        let previous = self.started.get(&(name.clone(), origin.schema.clone())).copied();
        let row = self.hosts.entry(name.clone()).or_insert_with_key(|name| FleetHost::new(name));
        if previous.is_some() && file.host.is_none() {
            row.problems.push(format!(
                "{}: a second {} of {name}, and only the later counts; if it is another host, put it into a directory \
                 of its own",
                file.name, origin.schema
            ));
        }
        if previous.is_some_and(|previous| started_unix_seconds < previous) {
            return Ok(());
        }
        let mut started_of_host =
            self.started.range((name.clone(), String::new())..).take_while(|((host, _), _)| *host == name);
        if started_of_host.all(|(_, started)| *started <= started_unix_seconds) {
            row.describe(version, host);
        }
        self.started.insert((name, origin.schema.clone()), started_unix_seconds);
        set_result(row, &mut self.peers, result);
        Ok(())
    }

    fn report(mut self) -> FleetReport {
        for host in self.hosts.values_mut() {
            if host.findings.is_none() && host.problems.is_empty() {
                host.problems.push("no document of doctor".to_owned());
            }
            self.peers.add_host(host);
        }
        let (counts, outliers) = self.peers.outliers();
        let mut findings: BTreeMap<String, FleetFinding> = BTreeMap::new();
        for host in self.hosts.values_mut() {
            host.outliers = counts.get(&host.name).copied().unwrap_or(0);
            for (id, severity) in host.findings.iter().flatten() {
                let fleet_finding = findings.entry(id.clone()).or_insert_with(|| FleetFinding {
                    id: id.clone(),
                    severity: *severity,
                    hosts: Vec::new(),
                });
                fleet_finding.severity = fleet_finding.severity.max(*severity);
                fleet_finding.hosts.push(host.name.clone());
            }
        }
        let mut findings: Vec<FleetFinding> = findings.into_values().collect();
        findings.sort_by_key(|finding| std::cmp::Reverse((finding.severity, finding.hosts.len())));
        let mut hosts: Vec<FleetHost> = self.hosts.into_values().collect();
        hosts.sort_by_key(|host| {
            std::cmp::Reverse((!host.problems.is_empty(), host.severities(), host.outliers))
        });
        FleetReport { hosts, findings, outliers }
    }
}

/// Name of the counters of lost packets in documents.
const LOST: &str = "packets_lost";

impl FleetHost {
    fn new(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    fn describe(&mut self, version: String, host: HostSummary) {
        self.version = Some(version);
        self.kernel = host.kernel.or(self.kernel.take());
        self.cpus = host.cpus.or(self.cpus);
    }

    /// Number of findings per severity, the highest first.
    pub(crate) fn severities(&self) -> [usize; 4] {
        let count_of =
            |level| self.findings.iter().flatten().filter(|(_, severity)| **severity == level).count();
        Severity::ALL.map(count_of)
    }
}

impl FleetFigures {
    /// The figures by name.
    pub(crate) fn named_figures(&self) -> [(&'static str, Option<f64>); 6] {
        [
            ("lost packets per second", self.lost_packets_per_second),
            ("counted losses per second", self.counted_losses_per_second),
            ("CPU ns per packet", self.packet_cpu_ns),
            ("capacity per second", self.transactions_per_second),
            ("first step per second", self.first_step_per_second),
            ("last step per second", self.last_step_per_second),
        ]
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn doctor_document(started: u64, host: &Value, counters: &Value) -> String {
        let result = json!({ "findings": [], "unknown": [], "counters": counters, "stages": {} });
        let document = json!({
            "schema": DoctorResult::SCHEMA, "version": "1", "argv": [], "started_unix_seconds": started,
            "host": host, "warnings": [], "result": result,
        });
        document.to_string()
    }

    fn lost_per_second(documents: &[(u64, &str, f64)]) -> Option<f64> {
        let mut reader = FleetReader::default();
        for (started, stage, lost) in documents {
            let counters = json!([
                { "stage": stage, "counts": "packets_lost", "per_second": lost },
                { "stage": "link", "counts": "packets_lost", "per_second": lost },
            ]);
            let document = doctor_document(*started, &json!({}), &counters);
            let file = DocumentFile { name: "doctor.json", host: Some("a") };
            reader.document(&document, &file).expect("a document");
        }
        assert!(reader.hosts["a"].problems.is_empty());
        reader.hosts["a"].figures.lost_packets_per_second
    }

    #[test]
    fn documents_without_a_name_are_hosts_of_their_own_and_equal_names_are_reported() {
        let mut reader = FleetReader::default();
        for (name, host) in [
            ("a.json", json!({})),
            ("b.json", json!({})),
            ("c.json", json!({ "name": "localhost" })),
            ("d.json", json!({ "name": "localhost" })),
        ] {
            let document = doctor_document(1, &host, &json!([]));
            reader.document(&document, &DocumentFile { name, host: None }).expect("a document");
        }
        let problems: Vec<(&str, usize)> =
            reader.hosts.values().map(|host| (host.name.as_str(), host.problems.len())).collect();
        assert_eq!(problems, [("a", 0), ("b", 0), ("localhost", 1)]);
    }

    #[test]
    fn losses_of_receive_queues_are_counted_once() {
        assert_eq!(lost_per_second(&[(1, "rss", 1000.0)]), Some(1000.0));
        assert_eq!(lost_per_second(&[(1, "socket", 1000.0)]), Some(2000.0));
    }

    #[test]
    fn the_later_of_two_documents_counts_in_any_order() {
        let (before, after) = ((1, "rss", 9.0), (2, "rss", 0.0));
        assert_eq!(lost_per_second(&[before, after]), Some(0.0));
        assert_eq!(lost_per_second(&[after, before]), Some(0.0));
    }

    #[test]
    fn the_latest_document_of_any_kind_describes_the_host() {
        let mut reader = FleetReader::default();
        for (started, schema) in [(2, DoctorResult::SCHEMA), (1, DropsResult::SCHEMA)] {
            let document = doctor_document(started, &json!({ "kernel": started.to_string() }), &json!([]));
            let file = DocumentFile { name: "x.json", host: Some("a") };
            let origin = DocumentOrigin { schema: schema.to_owned(), version: None };
            reader.add(&origin, &document, &file, |_, _, _: IgnoredAny| {}).expect("a document");
        }
        assert_eq!(reader.hosts["a"].kernel.as_deref(), Some("2"));
    }
}
