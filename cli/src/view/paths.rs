//! `linerate lab paths`.

use linerate_lab::ladder::report::{RateEstimate, VersusPrevious};
use linerate_lab::paths::report::{CostContext, PathCost, PathReport, PathsReport};

use crate::document::{
    Audience, BarChart, BarSegment, Block, Cell, Document, Fact, MarkShape, Note, RangeChart, RangeMark,
    RangeRow, Section, SegmentFill, StackedBar, Table,
};
use crate::envelope::{CommandResult, Envelope};
use crate::render::format::{
    self, UNKNOWN, grouped, known_text, microseconds, percent, plus_minus, rate, rate_range, ratio,
    significant,
};
use crate::view::ladder::{comparison_badge, comparison_cells, rates_chart, verdict_name};

impl CommandResult for PathsReport {
    const SCHEMA: &'static str = "linerate.paths/1";

    fn document(envelope: &Envelope<Self>) -> Document {
        let report = &envelope.result;
        let mut document = envelope.new_document("Network paths compared", verdict(report));
        document.about =
            format!("in temporary hosts on this machine, took {}", format::elapsed(report.elapsed_seconds));
        document.notes.extend(notes(report).into_iter().map(Note::new));
        let skipped = report.paths.iter().filter_map(|path| Some((path, path.skipped_because.as_ref()?)));
        let skipped = skipped.map(|(path, reason)| Fact::new(path.name.clone(), reason.clone()));
        document.sections = vec![
            Section::new("Capacity of each path")
                .with_for(Audience::Page, capacity_chart(report))
                .with(capacities(report)),
            Section::new("Skipped paths").with(skipped.collect::<Vec<_>>()),
            costs(report),
            Section::new("A loop in user space next to the same load").with(loops(report)),
            Section::new("Losses at twice the capacity").with(losses(report)),
        ];
        let recipes = Section::new("The commands of each path").only_for(Audience::Page);
        document.sections.push(report.paths.iter().map(details).fold(recipes, Section::with));
        document
    }
}

fn measured_paths(report: &PathsReport) -> impl Iterator<Item = (&PathReport, f64)> {
    report.paths.iter().filter_map(|path| Some((path, path.transactions_per_second?.median)))
}

fn verdict(report: &PathsReport) -> String {
    let Some((host, host_rate)) = measured_paths(report).next() else {
        return "No path was measured.".to_owned();
    };
    let other_paths = || {
        measured_paths(report)
            .skip(1)
            .filter_map(|(path, _)| Some((path, path.versus_host.as_ref()?.ratio.median)))
    };
    let extremes = other_paths()
        .max_by(|left, right| left.1.total_cmp(&right.1))
        .zip(other_paths().min_by(|left, right| left.1.total_cmp(&right.1)));
    let host_text = format!("{} holds {} transactions per second", host.name, rate(host_rate));
    match extremes {
        Some((best, worst)) if best.0.name != worst.0.name => format!(
            "{host_text}. Of the other paths {} holds most, {} of that, and {} least, {}.",
            best.0.name,
            ratio(best.1),
            worst.0.name,
            ratio(worst.1)
        ),
        Some((only_path, _)) => {
            format!("{host_text}, and {} {} of that.", only_path.0.name, ratio(only_path.1))
        }
        None => format!("{host_text}."),
    }
}

fn notes(report: &PathsReport) -> Vec<String> {
    let mut notes = Vec::new();
    if report.shares_cpus {
        notes.push(
            "Client, network and service ran on the same CPUs: capacities are of the machine running all three. \
             The CPU time per transaction is without the client's."
                .to_owned(),
        );
    }
    for (path, _) in measured_paths(report) {
        if let Some(reason) = &path.generator_bound {
            notes.push(format!(
                "{}: the client was the limit, so its capacity is a lower bound: {reason}",
                path.name
            ));
        }
        if let Some(reason) = path.cost.why() {
            notes.push(format!("{}: CPU time is unknown: {reason}", path.name));
        }
        if let Some(reason) = path.cost.value().and_then(|cost| cost.loops.why()) {
            notes.push(format!("{}: the loss of a loop next to the load is unknown: {reason}", path.name));
        }
        if let Some(reason) = path.overload.why() {
            notes.push(format!("{}: losses at twice the capacity are unknown: {reason}", path.name));
        }
    }
    notes
}

fn capacities(report: &PathsReport) -> Table {
    let mut table = Table::new("path | >tps | >± | >of host | >interval | verdict | bridge-nf")
        .only_for(Audience::Page, &["bridge-nf"]);
    for path in &report.paths {
        let Some(estimate) = path.transactions_per_second else { continue };
        let bound_sign = if path.generator_bound.is_some() { "≥" } else { "" };
        let [host_ratio, interval, verdict] = comparison_cells(path.versus_host.as_ref());
        table.row([
            Cell::from(path.name.as_str()),
            format!("{bound_sign}{}", rate(estimate.median)).into(),
            plus_minus(estimate.median, estimate.low, estimate.high).into(),
            host_ratio,
            interval,
            verdict,
            known_text(path.bridge_netfilter.value(), |is_on| if *is_on { "1" } else { "0" }.to_owned())
                .into(),
        ]);
    }
    table
}

/// Nanoseconds as microseconds with three digits.
pub(super) fn ns_as_microseconds(ns: f64) -> String {
    significant(ns / 1e3)
}

fn with_cost(report: &PathsReport) -> impl Iterator<Item = (&PathReport, &PathCost)> {
    report.paths.iter().filter_map(|path| Some((path, path.cost.value()?)))
}

fn costs(report: &PathsReport) -> Section {
    let heading = match report.common_rate_per_second {
        Some(common_rate) => format!("CPU time and latency at {} transactions per second", rate(common_rate)),
        None => "CPU time and latency".to_owned(),
    };
    let host_cost = report.paths.first().and_then(|host| host.cost.value());
    let host_ns = host_cost.map(|cost| cost.host_ns_per_transaction);
    let mut table = Table::new(
        "us per transaction | >host | >of host | >hard irq | >softirq | >kthreads | >relay | >service | \
            >client | >p50 us | >p99 us",
    );
    for (path, cost) in with_cost(report) {
        let latency = |percentile_of: fn(&linerate_lab::ladder::report::LatencyNs) -> u64| {
            known_text(cost.latency_ns.as_ref(), |latency| microseconds(percentile_of(latency)))
        };
        let mut cells = vec![path.name.clone(), ns_as_microseconds(cost.host_ns_per_transaction)];
        cells.push(
            host_ns.map_or_else(String::new, |host_cost| ratio(cost.host_ns_per_transaction / host_cost)),
        );
        cells.extend(CostContext::ALL.map(|context| ns_as_microseconds(cost.of(context))));
        cells.extend([
            ns_as_microseconds(cost.client_ns_per_transaction),
            latency(|latency| latency.p50),
            latency(|latency| latency.p99),
        ]);
        table.row(cells);
    }
    let caption = "host: CPU time per request and reply of everything but the client, the sum of the columns to client.";
    let mut stages = Table::new("path | >us | softirq stage");
    for (path, cost) in with_cost(report) {
        let softirqs = cost.parts.iter().filter(|part| part.context == CostContext::Softirq);
        for part in softirqs.filter(|part| part.ns_per_transaction >= 0.01 * cost.host_ns_per_transaction) {
            stages.row([path.name.clone(), ns_as_microseconds(part.ns_per_transaction), part.name.clone()]);
        }
    }
    Section::new(heading)
        .with_for(Audience::Page, cost_chart(report))
        .with(table.with_caption(caption))
        .with(Block::Heading("Softirq time by stage".to_owned()))
        .with(stages)
        .with(cross_check(report))
}

/// Traced CPU time compared with that of `/proc/stat`.
fn cross_check(report: &PathsReport) -> Block {
    let ratios: Vec<f64> = with_cost(report)
        .filter_map(|(_, cost)| {
            Some(cost.machine_ns_per_transaction / cost.proc_stat_ns_per_transaction.value()?)
        })
        .collect();
    let (Some(low), Some(high)) =
        (ratios.iter().copied().min_by(f64::total_cmp), ratios.iter().copied().max_by(f64::total_cmp))
    else {
        return Block::faint("");
    };
    Block::faint(format!(
        "All CPU time of the machine by tracing is {} to {} of that by /proc/stat.",
        ratio(low),
        ratio(high)
    ))
}

const FILLS: [(CostContext, SegmentFill, &str); 5] = [
    (CostContext::HardIrq, SegmentFill::Interrupt, "hard irq"),
    (CostContext::Softirq, SegmentFill::Receive, "softirq"),
    (CostContext::KernelThread, SegmentFill::Other, "kernel threads"),
    (CostContext::Relay, SegmentFill::Transmit, "relay process"),
    (CostContext::Service, SegmentFill::Tasks, "service"),
];

fn cost_chart(report: &PathsReport) -> BarChart {
    let max_ns =
        with_cost(report).map(|(_, cost)| cost.host_ns_per_transaction).fold(f64::MIN_POSITIVE, f64::max);
    let bars = with_cost(report).map(|(path, cost)| StackedBar {
        name: path.name.clone(),
        value: format!("{} us", ns_as_microseconds(cost.host_ns_per_transaction)),
        description: format!(
            "{}: {} us of CPU time per transaction on the host",
            path.name,
            ns_as_microseconds(cost.host_ns_per_transaction)
        ),
        segments: FILLS
            .map(|(context, fill, _)| BarSegment { fill, share: cost.of(context) / max_ns })
            .to_vec(),
        ..StackedBar::default()
    });
    BarChart {
        bars: bars.collect(),
        legend: FILLS.map(|(_, fill, name)| (fill, name)).to_vec(),
        ..BarChart::default()
    }
}

/// A rate and its comparison as a row of [`rates_chart`]; `unit` is the counted unit.
pub(super) fn rate_row(
    label: &str,
    estimate: Option<RateEstimate>,
    versus: Option<&VersusPrevious>,
    unit: &str,
) -> RangeRow {
    let badge = versus.map(|versus| comparison_badge(versus, verdict_name(versus.verdict).to_owned()));
    let row = RangeRow { label: label.to_owned(), badge, ..RangeRow::default() };
    let Some(estimate) = estimate else {
        return RangeRow { description: format!("{label}: not measured"), value: UNKNOWN.to_owned(), ..row };
    };
    RangeRow {
        description: format!("{label}: {} {unit} per second", rate_range(estimate.low, estimate.high)),
        span: Some((estimate.low, estimate.high)),
        marks: vec![RangeMark { at: estimate.median, shape: MarkShape::Dot }],
        value: rate(estimate.median),
        detail: plus_minus(estimate.median, estimate.low, estimate.high),
        ..row
    }
}

fn capacity_chart(report: &PathsReport) -> RangeChart {
    let rows = report.paths.iter().map(|path| {
        let row =
            rate_row(&path.name, path.transactions_per_second, path.versus_host.as_ref(), "transactions");
        RangeRow { skipped: path.skipped_because.clone(), ..row }
    });
    rates_chart(rows.collect())
}

fn loops(report: &PathsReport) -> Table {
    let mut table = Table::new("path | >CPU | >lost by the loop | >to packets")
        .with_caption("To packets: in interrupts and softirqs. The loop lost the rest to the threads of client and service.");
    for (path, cost) in with_cost(report) {
        for loop_loss in cost.loops.value().into_iter().flatten() {
            table.row([
                path.name.clone(),
                loop_loss.cpu.to_string(),
                percent(loop_loss.lost_ratio),
                percent(loop_loss.packets_ratio),
            ]);
        }
    }
    table
}

fn losses(report: &PathsReport) -> Table {
    let mut table = Table::new("path | >answered | >lost | where").wrapping();
    for path in &report.paths {
        let Some(overload) = path.overload.value() else { continue };
        let answered_share = percent(overload.answered_ratio);
        if overload.losses.is_empty() {
            table.row([path.name.clone(), answered_share, "0".to_owned(), String::new()]);
            continue;
        }
        for loss in &overload.losses {
            table.row([
                path.name.clone(),
                answered_share.clone(),
                grouped(loss.packets),
                format!("{}: {}", loss.host, loss.place),
            ]);
        }
    }
    table
}

fn details(path: &PathReport) -> Block {
    Block::Details {
        summary: format!("{}: {}", path.name, path.about),
        anchor: None,
        blocks: vec![Block::Commands(path.recipe.clone())],
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn report(cost: &Value, overload: &Value) -> PathsReport {
        let path = json!({
            "name": "bridge",
            "about": "",
            "recipe": [],
            "transactions_per_second": { "median": 9.0, "low": 8.0, "high": 10.0, "samples": 6 },
            "bridge_netfilter": false,
            "cost": cost,
            "overload": overload,
        });
        let report = json!({
            "elapsed_seconds": 1.0,
            "config": { "paths": [], "payload_bytes": 100, "flows": 64, "samples": 6 },
            "cpus": [0],
            "shares_cpus": false,
            "paths": [path],
        });
        serde_json::from_value(report).expect("a report")
    }

    #[test]
    fn unknown_costs_losses_and_loops_have_a_reason() {
        let no_cost = report(&json!({ "unknown": "no BPF" }), &json!({ "unknown": "no tracepoint" }));
        let [cost, losses] = &notes(&no_cost)[..] else { panic!("{:?}", notes(&no_cost)) };
        assert_eq!(cost, "bridge: CPU time is unknown: no BPF");
        assert_eq!(losses, "bridge: losses at twice the capacity are unknown: no tracepoint");
        let cost = json!({
            "offered_per_second": 1.0,
            "answered_ratio": 1.0,
            "host_ns_per_transaction": 1.0,
            "parts": [],
            "client_ns_per_transaction": 1.0,
            "machine_ns_per_transaction": 1.0,
            "proc_stat_ns_per_transaction": 1.0,
            "loops": { "unknown": "no clock" },
        });
        let no_loops =
            report(&cost, &json!({ "offered_per_second": 1.0, "answered_ratio": 1.0, "losses": [] }));
        let note = "bridge: the loss of a loop next to the load is unknown: no clock";
        assert_eq!(notes(&no_loops), [note]);
    }
}
