//! `linerate lab placement`.

use linerate_lab::placement::{PlacementComparison, PlacementResult, ReceiverPlacement};

use crate::document::{Audience, Cell, Document, Fact, Note, RangeChart, RangeRow, Section, Table};
use crate::envelope::{CommandResult, Envelope};
use crate::render::format::{self, comma_list, known_text, percent, plus_minus, rate, ratio};
use crate::view::ladder::{comparison_cells, rates_chart};
use crate::view::paths::{ns_as_microseconds, rate_row};

/// If a smaller share of packets was lost, the sender may have been the limit.
const OVERLOADED: f64 = 0.01;

impl CommandResult for PlacementComparison {
    const SCHEMA: &'static str = "linerate.placement/1";

    fn document(envelope: &Envelope<Self>) -> Document {
        let report = &envelope.result;
        let mut document = envelope.new_document("Where receiver and packets are", verdict(report));
        document.about =
            format!("in temporary hosts on this machine, took {}", format::elapsed(report.elapsed_seconds));
        document.notes.extend(notes(report).into_iter().map(Note::new));
        let skipped =
            report.placements.iter().filter_map(|result| Some((result, result.skipped_because.as_ref()?)));
        let skipped = skipped.map(|(result, reason)| Fact::new(result.placement.name(), reason.clone()));
        document.sections = vec![
            Section::new("Packets per second that one thread reads")
                .with_for(Audience::Page, chart(report))
                .with(table(report)),
            Section::new("Skipped placements").with(skipped.collect::<Vec<_>>()),
        ];
        document
    }
}

fn measured_placements(report: &PlacementComparison) -> impl Iterator<Item = (&PlacementResult, f64)> {
    report.placements.iter().filter_map(|result| Some((result, result.packets_per_second?.median)))
}

fn verdict(report: &PlacementComparison) -> String {
    let rates = measured_placements(report).map(|(result, packets)| {
        let versus = result.versus_first.as_ref();
        let versus = versus.map_or_else(String::new, |versus| format!(" ({})", ratio(versus.ratio.median)));
        format!("{} {}{versus}", place(result.placement), rate(packets))
    });
    format!("Packets per second that one thread reads: {}.", comma_list(rates))
}

fn place(placement: ReceiverPlacement) -> &'static str {
    match placement {
        ReceiverPlacement::SameCpu => "on the CPU of the packets",
        ReceiverPlacement::SmtSibling => "on the other hardware thread of its core",
        ReceiverPlacement::OtherCore => "on another core",
        ReceiverPlacement::OtherNode => "on another NUMA node",
    }
}

fn notes(report: &PlacementComparison) -> Vec<String> {
    let mut notes = Vec::new();
    if report.sender_cpu == report.packets_cpu {
        notes.push(format!(
            "No CPU was left for the sender, so that it ran on CPU {}, too: the receiver there shared its CPU with the \
             packets and with the sender.",
            report.packets_cpu
        ));
    }
    for (result, _) in measured_placements(report) {
        let name = result.placement.name();
        if result.lost_ratio.is_some_and(|lost_ratio| lost_ratio < OVERLOADED) {
            notes.push(format!("{name}: it read all that was sent, so that its rate is a lower bound."));
        }
        if let Some(reason) = result.cost.why() {
            notes.push(format!("{name}: CPU time is unknown: {reason}"));
        }
    }
    notes
}

fn table(report: &PlacementComparison) -> Table {
    let mut table = Table::new(
        "receiver | >CPU | >packets/s | >± | >of same-cpu | >interval | verdict | >lost | >receiver us | \
            >softirq us",
    );
    for (result, packets) in measured_placements(report) {
        let estimate = result.packets_per_second;
        let [first_ratio, interval, verdict] = comparison_cells(result.versus_first.as_ref());
        let cost = |ns_of: fn(&linerate_lab::placement::PlacementCost) -> f64| {
            known_text(result.cost.value(), |cost| ns_as_microseconds(ns_of(cost)))
        };
        table.row([
            Cell::from(result.placement.name()),
            result.receiver_cpu.map_or_else(String::new, |cpu| cpu.to_string()).into(),
            rate(packets).into(),
            estimate.map_or_else(String::new, |rate| plus_minus(rate.median, rate.low, rate.high)).into(),
            first_ratio,
            interval,
            verdict,
            result.lost_ratio.map_or_else(String::new, percent).into(),
            cost(|cost| cost.receiver_ns_per_packet).into(),
            cost(|cost| cost.softirq_ns_per_packet).into(),
        ]);
    }
    table.with_caption(
        "CPU time per packet that was read; softirq: of all packets, also of those lost at the receive buffer.",
    )
}

fn chart(report: &PlacementComparison) -> RangeChart {
    let rows = report.placements.iter().map(|result| RangeRow {
        skipped: result.skipped_because.clone(),
        ..rate_row(
            result.placement.name(),
            result.packets_per_second,
            result.versus_first.as_ref(),
            "packets",
        )
    });
    RangeChart { axis: "packets per second", ..rates_chart(rows.collect()) }
}
