//! What is wrong along the packet path as one self-contained page: no script, nothing fetched, light and dark.

use anyhow::{Context, Result};
use askama::Template;
use linerate_host::{Finding, Severity, View};

use super::doctor_picture::{Drawing, Picture};
use super::doctor_text;
use super::doctor_value::value;
use super::format;
use super::style::unbroken;
use crate::command::doctor::Document;

#[derive(Template)]
#[template(path = "doctor.html")]
struct Page<'a> {
    schema: &'a str,
    version: &'a str,
    heading: String,
    read: String,
    tiles: Vec<(usize, &'static str)>,
    drawings: Vec<Drawing>,
    service: Option<String>,
    others: Vec<String>,
    rates: bool,
    findings: Vec<Item<'a>>,
    unknown: Vec<(&'a str, Vec<&'a str>)>,
    facts: Vec<(&'static str, String)>,
    command: String,
}

/// A finding with its evidence as text.
struct Item<'a> {
    finding: &'a Finding,
    evidence: Vec<(&'a str, String, &'a str)>,
    ratio: Option<String>,
}

/// The page.
///
/// # Errors
/// Only if formatting fails, which no document is known to cause.
pub(crate) fn doctor(document: &Document<'_>, view: &View<'_>) -> Result<String> {
    let picture = Picture::of(view);
    let service = picture.service.as_ref();
    let online = picture.interfaces.first().map(|ways| ways.online.clone()).unwrap_or_default();
    let page = Page {
        schema: document.schema,
        version: document.version,
        heading: doctor_text::summary(document),
        read: read(document),
        tiles: tiles(document.findings),
        drawings: picture.interfaces.iter().map(|ways| Drawing::of(ways, service)).collect(),
        service: service.map(|service| service.line(&online)),
        others: picture.others.iter().map(|service| service.line(&online)).collect(),
        rates: view.seconds().is_some(),
        findings: document.findings.iter().map(Item::new).collect(),
        unknown: doctor_text::unseen_groups(document.unknown),
        facts: facts(document),
        command: format::command_line(&document.argv),
    };
    page.render().context("the page cannot be formatted")
}

impl<'a> Item<'a> {
    fn new(finding: &'a Finding) -> Self {
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

fn read(document: &Document<'_>) -> String {
    let when = document.read_unix_seconds.map_or_else(|| "at a time unknown".to_owned(), format::utc);
    let between = document.seconds_between_readings.map_or_else(
        || "one reading, so that counters are since boot".to_owned(),
        |seconds| format!("two readings {seconds:.1} s apart"),
    );
    let what = if document.host.live { "this host" } else { "a captured host" };
    unbroken(&format!("{what}, {when}, {between}"))
}

fn tiles(findings: &[Finding]) -> Vec<(usize, &'static str)> {
    let count = |severity| findings.iter().filter(|finding| finding.severity == severity).count();
    Severity::ALL.into_iter().map(|severity| (count(severity), severity.name())).collect()
}

fn facts(document: &Document<'_>) -> Vec<(&'static str, String)> {
    let host = &document.host;
    let unknown = |why: Option<&str>| format!("unknown: {}", why.unwrap_or("no reason recorded"));
    vec![
        ("kernel", host.kernel.value().cloned().unwrap_or_else(|| unknown(host.kernel.why()))),
        ("CPU", host.cpu_model.value().cloned().unwrap_or_else(|| unknown(host.cpu_model.why()))),
        ("CPUs online", host.cpus.value().map_or_else(|| unknown(host.cpus.why()), ToString::to_string)),
        (
            "NUMA nodes",
            host.numa_nodes.value().map_or_else(|| unknown(host.numa_nodes.why()), ToString::to_string),
        ),
    ]
}

#[cfg(test)]
mod tests;
