//! A run as one self-contained page: no script, nothing fetched, light and dark.

use anyhow::Result;
use askama::Template;
use linerate_lab::ladder::report::{
    LadderReport, PublishedComparison, PublishedLadder, StepReport, TestbedKind,
};

use super::chart::{self, RangeChart, VerdictBadge};
use super::page::{self, FactList, FigureTile, PageHead, PageNote, PageResult, ResultPosition};
use super::style::{TextTone, non_breaking};
use super::{format, summary};

/// The page, as one HTML document.
///
/// # Errors
/// As [`part`].
pub(crate) fn ladder(report: &LadderReport) -> Result<String> {
    page::single_result_page(|place| part(report, place))
}

/// A run in a page.
///
/// # Errors
/// Only if formatting fails, which no report is known to cause.
pub(crate) fn part(report: &LadderReport, place: &ResultPosition) -> Result<PageResult> {
    let body = LadderPageBody {
        place,
        notes: notes(report),
        tiles: tiles(report),
        ladder: chart::ladder(report),
        published: published(report),
        latency: chart::latency(report),
        goodput: chart::goodput(report),
        link: format::link(report.testbed.link_bits_per_second),
        sources: summary::published_sources(report).join(", "),
        lines: report.steps.iter().map(|step| StepLine::new(report, step)).collect(),
        doubts: summary::step_caveats(report)
            .into_iter()
            .map(|doubt| (summary::kind_name(doubt.kind), non_breaking(&doubt.detail), doubt.scope()))
            .collect(),
        facts: facts(report),
    };
    page::part(head(report), &body)
}

fn head(report: &LadderReport) -> PageHead {
    PageHead {
        schema: report.schema.clone(),
        version: report.version.clone(),
        title: "The ladder",
        verdict: non_breaking(&summary::best(report)),
        mark: if summary::was_interrupted(report) {
            PageHead::mark(TextTone::Warn, "interrupted")
        } else {
            None
        },
        host: non_breaking(&summary::machine(report)),
        time: page::time(Some(report.started_unix_seconds)),
        unix_seconds: Some(report.started_unix_seconds),
        about: non_breaking(&format!(
            "{}, took {}",
            testbed_name(report),
            format::elapsed(report.elapsed_seconds)
        )),
        command: format::command_line(&report.argv),
    }
}

fn notes(report: &LadderReport) -> Vec<PageNote> {
    const STOPPED: &str = "The run was stopped before its end. It has results up to there.";
    let interrupted = summary::was_interrupted(report).then(|| PageNote::alarm("Interrupted.", STOPPED));
    interrupted.into_iter().chain(summary::lab_caveat(report).map(PageNote::new)).collect()
}

#[derive(Template)]
#[template(path = "ladder.html")]
struct LadderPageBody<'a> {
    place: &'a ResultPosition,
    notes: Vec<PageNote>,
    tiles: Vec<FigureTile>,
    ladder: RangeChart,
    published: Vec<PublishedChart<'a>>,
    latency: Option<RangeChart>,
    goodput: Option<RangeChart>,
    link: String,
    sources: String,
    lines: Vec<StepLine<'a>>,
    doubts: Vec<(&'static str, String, String)>,
    facts: Vec<(&'static str, FactList)>,
}

struct PublishedChart<'a> {
    ladder: &'a PublishedLadder,
    chart: RangeChart,
    asides: Vec<ExtraComparison<'a>>,
}

struct ExtraComparison<'a> {
    id: &'a str,
    ratio: String,
    from: String,
    to: String,
}

/// One step in the table and in the list of changes.
struct StepLine<'a> {
    step: &'a StepReport,
    skipped: Option<&'a str>,
    figures: Vec<String>,
    badge: Option<VerdictBadge>,
    published: String,
    kinds: Vec<(&'static str, &'a str)>,
}

impl<'a> StepLine<'a> {
    fn new(report: &LadderReport, step: &'a StepReport) -> Self {
        let read = |value: Option<f64>, show: fn(f64) -> String| {
            value.map_or_else(|| format::UNKNOWN.to_owned(), show)
        };
        let latency = |pick: fn(&linerate_lab::ladder::report::LatencyNs) -> u64| {
            step.latency_ns
                .as_ref()
                .map_or_else(|| format::UNKNOWN.to_owned(), |latency| format::microseconds(pick(latency)))
        };
        let goodput = |factor| read(step.goodput_at_overload.get(factor).copied().flatten(), format::percent);
        let rate = step.transactions_per_second;
        let bound = if summary::is_lower_bound(step) { "≥" } else { "" };
        let figures = vec![
            format!("{bound}{}", read(rate.map(|rate| rate.median), format::rate)),
            rate.map_or_else(
                || format::UNKNOWN.to_owned(),
                |rate| match rate.samples {
                    0 | 1 => "n=1".to_owned(),
                    _ => format::rate_range(rate.low, rate.high),
                },
            ),
            read(step.wire_bits_per_second, format::megabits),
            read(step.line_rate_ratio, format::percent),
            read(step.loss_ratio, format::percent),
            latency(|latency| latency.p50),
            latency(|latency| latency.p99),
            latency(|latency| latency.p999),
            read(step.cycles_per_transaction, format::rate),
            read(step.instructions_per_transaction, format::rate),
            goodput("2"),
            goodput("5"),
        ];
        let skipped =
            (!step.applied).then(|| step.skipped_because.as_deref().unwrap_or("no reason recorded"));
        Self {
            step,
            skipped,
            figures,
            badge: chart::badge(report, step),
            published: step.published_ratio.map_or_else(String::new, format::ratio),
            kinds: step
                .warnings
                .iter()
                .map(|warning| (summary::kind_name(warning.kind), warning.detail.as_str()))
                .collect(),
        }
    }
}

fn tiles(report: &LadderReport) -> Vec<FigureTile> {
    let Some((best, rate)) = summary::fastest(report) else {
        return Vec::new();
    };
    let bound = if summary::is_lower_bound(best) { "≥" } else { "" };
    let highest = format!("highest rate held: {}", best.id);
    let mut tiles = vec![FigureTile::new(format!("{bound}{}", format::rate(rate.median)), "tps", highest)];
    if let Some((first, ratio)) = summary::gain(report) {
        tiles.push(FigureTile::new(format::ratio(ratio), "", format!("the rate of {}", first.id)));
    }
    if let Some((wire, share)) = best.wire_bits_per_second.zip(best.line_rate_ratio) {
        let link = format::link(report.testbed.link_bits_per_second);
        let label = format!("on the wire, {} of {link}", format::percent(share));
        tiles.push(FigureTile::new(format::megabits(wire), "Mbit/s", label));
    }
    if let Some(latency) = best.latency_ns {
        let label = format!("99 % answered within, half within {}", format::microseconds(latency.p50));
        tiles.push(FigureTile::new(format::microseconds(latency.p99), "us", label));
    }
    tiles
}

fn published(report: &LadderReport) -> Vec<PublishedChart<'_>> {
    chart::published(&report.published)
        .into_iter()
        .map(|(ladder, chart)| PublishedChart {
            ladder,
            chart,
            asides: ladder.asides.iter().map(aside).collect(),
        })
        .collect()
}

fn aside(aside: &PublishedComparison) -> ExtraComparison<'_> {
    ExtraComparison {
        id: &aside.id,
        ratio: format::ratio(aside.to_per_second / aside.from_per_second),
        from: format::rate(aside.from_per_second),
        to: format::rate(aside.to_per_second),
    }
}

fn facts(report: &LadderReport) -> Vec<(&'static str, FactList)> {
    let LadderReport { host, config, testbed, .. } = report;
    let generator = testbed.generator.as_ref();
    let unknown = || "unknown".to_owned();
    vec![
        (
            "Machine",
            vec![
                ("kernel", host.kernel.clone()),
                ("architecture", host.architecture.clone()),
                ("CPU", host.cpu_model.clone().unwrap_or_else(unknown)),
                ("CPUs", format::cpu_list(&config.cpus)),
                ("NUMA nodes", host.numa_nodes.map_or_else(unknown, |nodes| nodes.to_string())),
                ("virtual", host.hypervisor.map_or_else(unknown, |yes| yes_no(yes).to_owned())),
                ("privilege", host.privilege.clone()),
            ],
        ),
        (
            "Generator",
            vec![
                ("backend", generator.map_or_else(unknown, |generator| generator.backend.clone())),
                ("threads", generator.map_or_else(unknown, |generator| generator.threads.to_string())),
                ("CPUs", generator.map_or_else(unknown, |generator| format::cpu_list(&generator.cpus))),
                ("shared with the server", yes_no(testbed.shares_cpus).to_owned()),
                (
                    "flows",
                    generator.map_or_else(unknown, |generator| format::grouped(generator.flows as u64)),
                ),
                ("payload", format!("{} B", format::grouped(config.payload_bytes.into()))),
            ],
        ),
        (
            "Method",
            vec![
                ("testbed", testbed_name(report).to_owned()),
                ("server", testbed.server_address.clone()),
                ("server CPUs", format::cpu_list(&testbed.server_cpus)),
                ("workers, queues", format!("{}, {}", testbed.server_cpus.len(), testbed.queues)),
                ("rate holds with loss up to", format::percent(config.max_loss_ratio)),
                ("one probe", format!("{} s", config.timing.slot.as_secs_f64())),
                ("samples per comparison", config.timing.samples.to_string()),
                (
                    "one transaction on the wire",
                    format!("{} bits", format::grouped(testbed.wire_bits_per_transaction)),
                ),
                ("policy", config.policy.name().to_owned()),
            ],
        ),
    ]
}

fn testbed_name(report: &LadderReport) -> &'static str {
    match report.testbed.kind {
        TestbedKind::Lab => "lab",
        TestbedKind::Host => "host",
    }
}

fn yes_no(yes: bool) -> &'static str {
    if yes { "yes" } else { "no" }
}

#[cfg(test)]
mod tests;
