//! What is wrong along the packet path as one self-contained page: no script, nothing fetched, light and dark.

use anyhow::{Context, Result};
use askama::Template;
use linerate_host::diagnosis::UnknownItem;
use linerate_host::finding::Evidence;
use linerate_host::{CpuSet, Known, Severity};
use serde::Deserialize;

use super::doctor_picture::{PathDrawing, PathPicture};
use super::doctor_text;
use super::doctor_value::value;
use super::format;
use super::page::{self, FactList, FigureTile, PageHead, PageResult, ResultPosition};
use super::style::{TextTone, non_breaking};
use crate::command::doctor::DoctorDocument;

/// What a page shows of what doctor found; read from its JSON, which has more.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct DoctorPageInput {
    schema: String,
    version: String,
    argv: Vec<String>,
    read_unix_seconds: Option<u64>,
    seconds_between_readings: Option<f64>,
    host: DoctorPageHost,
    findings: Vec<PageFinding>,
    unknown: Vec<UnknownItem>,
    /// None in a document of a linerate that did not draw it yet.
    #[serde(default)]
    picture: Option<PathPicture>,
}

/// The host it is about.
#[derive(Debug, Clone, Deserialize)]
struct DoctorPageHost {
    #[serde(default)]
    name: Option<String>,
    live: bool,
    kernel: Known<String>,
    cpu_model: Known<String>,
    cpus: Known<CpuSet>,
    numa_nodes: Known<u32>,
}

/// A finding, without the settings that only a program needs.
#[derive(Debug, Clone, Deserialize)]
struct PageFinding {
    id: String,
    severity: Severity,
    title: String,
    evidence: Vec<Evidence>,
    effect: String,
    published_ratio: Option<f64>,
    source: String,
    kernels: String,
    remedy: String,
    commands: Vec<String>,
    /// The finding to fix first.
    #[serde(default)]
    first: Option<String>,
    caveats: String,
}

#[derive(Template)]
#[template(path = "doctor.html")]
struct DoctorPageBody<'a> {
    place: &'a ResultPosition,
    tiles: Vec<FigureTile>,
    no_picture: Option<&'static str>,
    drawings: Vec<PathDrawing>,
    service: Option<String>,
    others: Vec<String>,
    rates: bool,
    findings: Vec<FindingItem<'a>>,
    unknown: Vec<(&'a str, Vec<&'a str>)>,
    facts: FactList,
}

/// The picture of the path alone.
#[derive(Template)]
#[template(path = "path.html")]
struct PathFigure<'a> {
    place: &'a ResultPosition,
    drawings: Vec<PathDrawing>,
    service: Option<String>,
    rates: bool,
}

/// A finding with its evidence as text.
struct FindingItem<'a> {
    finding: &'a PageFinding,
    evidence: Vec<(&'a str, String, &'a str)>,
    ratio: Option<String>,
}

/// The page.
///
/// # Errors
/// Only if formatting fails, which no document is known to cause.
pub(crate) fn doctor(document: &DoctorDocument<'_>) -> Result<String> {
    page::single_result_page(|place| part(&DoctorPageInput::from(document), place))
}

/// The result in a page.
///
/// # Errors
/// Only if formatting fails, which no document is known to cause.
pub(crate) fn part(found: &DoctorPageInput, place: &ResultPosition) -> Result<PageResult> {
    let drawn = found.picture.as_ref().filter(|_| !place.picture_elsewhere);
    let body = DoctorPageBody {
        place,
        tiles: tiles(&found.findings),
        no_picture: found
            .picture
            .is_none()
            .then_some("The linerate that made this did not keep the picture of the path."),
        drawings: drawn.map(drawings).unwrap_or_default(),
        service: drawn.and_then(service),
        others: found.picture.as_ref().map(others).unwrap_or_default(),
        rates: found.has_rates(),
        findings: found.findings.iter().map(FindingItem::new).collect(),
        unknown: doctor_text::unseen_groups(&found.unknown),
        facts: facts(found),
    };
    page::part(head(found), &body)
}

impl From<&DoctorDocument<'_>> for DoctorPageInput {
    fn from(document: &DoctorDocument<'_>) -> Self {
        let host = &document.host;
        Self {
            schema: document.schema.to_owned(),
            version: document.version.to_owned(),
            argv: document.argv.clone(),
            read_unix_seconds: document.read_unix_seconds,
            seconds_between_readings: document.seconds_between_readings,
            host: DoctorPageHost {
                name: host.name.clone(),
                live: host.live,
                kernel: host.kernel.clone(),
                cpu_model: host.cpu_model.clone(),
                cpus: host.cpus.clone(),
                numa_nodes: host.numa_nodes.clone(),
            },
            findings: document.findings.iter().map(PageFinding::from).collect(),
            unknown: document.unknown.to_vec(),
            picture: Some(document.picture.clone()),
        }
    }
}

impl From<&linerate_host::Finding> for PageFinding {
    fn from(finding: &linerate_host::Finding) -> Self {
        Self {
            id: finding.id.to_owned(),
            severity: finding.severity,
            title: finding.title.clone(),
            evidence: finding.evidence.clone(),
            effect: finding.effect.to_owned(),
            published_ratio: finding.published_ratio,
            source: finding.source.to_owned(),
            kernels: finding.kernels.to_owned(),
            remedy: finding.remedy.to_owned(),
            commands: finding.commands.clone(),
            first: finding.first.map(ToOwned::to_owned),
            caveats: finding.caveats.to_owned(),
        }
    }
}

impl DoctorPageInput {
    /// When the last reading was made.
    pub(crate) fn unix_seconds(&self) -> Option<u64> {
        self.read_unix_seconds
    }

    /// Whether the path can be drawn.
    pub(crate) fn has_picture(&self) -> bool {
        self.picture.as_ref().is_some_and(|picture| !picture.interfaces.is_empty())
    }

    fn has_rates(&self) -> bool {
        self.seconds_between_readings.is_some()
    }

    /// The picture of the path by itself; none where there is nothing to draw.
    ///
    /// # Errors
    /// Only if formatting fails, which no document is known to cause.
    pub(crate) fn path(&self, place: &ResultPosition) -> Result<Option<String>> {
        let Some(picture) = self.picture.as_ref().filter(|picture| !picture.interfaces.is_empty()) else {
            return Ok(None);
        };
        let path = PathFigure {
            place,
            drawings: drawings(picture),
            service: service(picture),
            rates: self.has_rates(),
        };
        path.render().map(Some).context("the page cannot be formatted")
    }
}

fn drawings(picture: &PathPicture) -> Vec<PathDrawing> {
    picture.interfaces.iter().map(|ways| PathDrawing::of(ways, picture.service.as_ref())).collect()
}

fn online(picture: &PathPicture) -> CpuSet {
    picture.interfaces.first().map(|ways| ways.online.clone()).unwrap_or_default()
}

/// The service that all is drawn to, in a line.
fn service(picture: &PathPicture) -> Option<String> {
    picture.service.as_ref().map(|service| service.line(&online(picture)))
}

/// All of several, none of which is drawn to.
fn others(picture: &PathPicture) -> Vec<String> {
    if picture.service.is_some() {
        return Vec::new();
    }
    picture.others.iter().map(|service| service.line(&online(picture))).collect()
}

impl<'a> FindingItem<'a> {
    fn new(finding: &'a PageFinding) -> Self {
        let evidence = finding.evidence.iter();
        Self {
            evidence: evidence
                .map(|item| (item.what.as_str(), value(&item.value), item.read_from.as_str()))
                .collect(),
            ratio: finding.published_ratio.map(format::ratio),
            finding,
        }
    }
}

fn head(found: &DoctorPageInput) -> PageHead {
    let host = &found.host;
    let cpus = host.cpus.value().map(CpuSet::len);
    let known = |text: &'_ Known<String>| text.value().cloned();
    let between = found.seconds_between_readings.map_or_else(
        || "one reading, so that counters are since boot".to_owned(),
        |seconds| format!("two readings {seconds:.1} s apart"),
    );
    let what = if host.live { "this host" } else { "a captured host" };
    let counts = severities(&found.findings);
    PageHead {
        schema: found.schema.clone(),
        version: found.version.clone(),
        title: "What is wrong along the packet path",
        verdict: non_breaking(doctor_text::summary(&counts, found.unknown.len()).trim_end_matches('.')),
        mark: match found.findings.iter().map(|finding| finding.severity).max() {
            None => PageHead::mark(TextTone::Good, "nothing found"),
            Some(Severity::High) => PageHead::mark(TextTone::Bad, "high"),
            Some(Severity::Medium) => PageHead::mark(TextTone::Warn, "medium"),
            Some(severity) => PageHead::mark(TextTone::Plain, severity.name()),
        },
        host: page::host(
            host.name.as_deref(),
            known(&host.kernel).as_deref(),
            known(&host.cpu_model).as_deref(),
            cpus,
        ),
        time: page::time(found.read_unix_seconds),
        unix_seconds: found.read_unix_seconds,
        about: non_breaking(&format!("{what}, {between}")),
        command: format::command_line(&found.argv),
    }
}

fn severities(findings: &[PageFinding]) -> Vec<Severity> {
    findings.iter().map(|finding| finding.severity).collect()
}

fn tiles(findings: &[PageFinding]) -> Vec<FigureTile> {
    let count = |severity| findings.iter().filter(|finding| finding.severity == severity).count();
    let tile = |severity: Severity| {
        let count = count(severity);
        let class = if count == 0 { "none" } else { severity.name() };
        FigureTile::new(count.to_string(), "", severity.name()).of_class(class)
    };
    Severity::ALL.into_iter().map(tile).collect()
}

fn facts(found: &DoctorPageInput) -> FactList {
    fn told<T: ToString>(known: &Known<T>) -> String {
        match known {
            Known::Value(value) => value.to_string(),
            Known::Unknown { why } => format!("unknown: {why}"),
        }
    }
    let host = &found.host;
    vec![
        ("kernel", told(&host.kernel)),
        ("CPU", told(&host.cpu_model)),
        ("CPUs online", told(&host.cpus)),
        ("NUMA nodes", told(&host.numa_nodes)),
    ]
}

#[cfg(test)]
mod tests;
