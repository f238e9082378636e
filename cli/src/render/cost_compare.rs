//! Two looks at the cost of packets, side by side.

use super::column::cut;
use super::format::{UNKNOWN, percent, rate, ratio, significant};
use super::style::{TextStyle, TextTone, wrap};
use super::table::TextTable;
use crate::command::cost::CostComparison;

/// A figure's key, words for it, and how it is shown.
type CostFigureFormat = (&'static str, &'static str, fn(f64) -> String);

/// Figures in their order.
const SHOWN: [CostFigureFormat; 18] = [
    ("seconds", "looked for, s", significant),
    ("cpus", "CPUs looked at", |cpus| format!("{cpus:.0}")),
    ("packets_per_second", "packets a second", rate),
    ("packets_cpu_ratio", "taken by packets, of all CPUs", percent),
    ("highest_cpu_packets_ratio", "the same, of the CPU with most", percent),
    ("packets_ns_a_packet", "ns a packet", significant),
    ("net_rx_ns_a_packet", "  of it in NET_RX", significant),
    ("net_tx_ns_a_packet", "  of it in NET_TX", significant),
    ("nic_irq_ns_a_packet", "  of it in interrupts", significant),
    ("packets_a_poll", "packets a poll", significant),
    ("polls_a_run", "polls a run of NET_RX", significant),
    ("budget_exhausted_ratio", "polls that used up their budget", percent),
    ("ksoftirqd_ratio", "share that ksoftirqd ran", percent),
    ("threads_of_napi_ratio", "share that threads of NAPI ran", percent),
    ("taken_from_tasks_cpu_ratio", "taken from processes, of all CPUs", percent),
    ("tasks_cpu_ratio", "left to processes, of all CPUs", percent),
    ("idle_cpu_ratio", "idle, of all CPUs", percent),
    ("own_cpu_ratio", "looking itself, of all CPUs", percent),
];

/// The names are cut so that both columns fit.
const LONGEST_NAME: usize = 90;

pub(crate) fn comparison_text(comparison: &CostComparison, style: TextStyle) -> String {
    let mut text = String::new();
    for line in wrap(&sentence(comparison), style.width.min(100)) {
        text.push_str(&format!("{}\n", style.paint(TextTone::Strong, &line)));
    }
    for (letter, (name, kernel)) in ["A", "B"].iter().zip(comparison.names.iter().zip(&comparison.kernels)) {
        let kernel = kernel.as_ref().map_or_else(String::new, |kernel| format!(", Linux {kernel}"));
        text.push_str(&format!("  {letter}  {}\n", cut(&format!("{name}{kernel}"), LONGEST_NAME)));
    }
    text.push('\n');
    let mut table = TextTable::new(&["", ">A", ">B", ">B by A"]);
    for (key, words, show) in SHOWN {
        let Some(figure) = comparison.figures.iter().find(|figure| figure.key == key) else { continue };
        let [one, other] = figure.values.map(|value| value.map_or_else(|| UNKNOWN.to_owned(), show));
        table.row(vec![words.to_owned(), one, other, figure.ratio.map_or_else(|| "-".to_owned(), ratio)]);
    }
    for line in table.lines(2, SHOWN.len(), style) {
        text.push_str(&format!("{line}\n"));
    }
    text
}

/// What a packet costs in both: the figure that two solutions are compared by, whatever came.
fn sentence(comparison: &CostComparison) -> String {
    let each = comparison.figures.iter().find(|figure| figure.key == "packets_ns_a_packet");
    match each.map(|figure| (figure.values, figure.ratio)) {
        Some(([Some(one), Some(other)], Some(by))) => {
            format!(
                "A packet took {} ns in A and {} ns in B: {}, each packet counted once, where it enters the host \
                 (counting point \"{}\").",
                significant(one),
                significant(other),
                ratio(by),
                comparison.counting_point.value().map_or(UNKNOWN, String::as_str),
            )
        }
        _ => "One of the two saw no packets, so that what each took cannot be compared.".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::made_up_cost::document;
    use super::*;

    #[test]
    fn two_looks_side_by_side() {
        let (one, mut other) = (document(), document());
        for cpu in &mut other.cost.cpus {
            cpu.net_rx_ns /= 2;
        }
        let both = [(Path::new("kernel.json"), &one), (Path::new("xdp.json"), &other)];
        let text = comparison_text(&CostComparison::of(both), TextStyle { width: 100, colour: false });
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
        insta::assert_snapshot!(text);
    }

    #[test]
    fn every_figure_has_words() {
        let document = document();
        let both = [(Path::new("a"), &document), (Path::new("b"), &document)];
        let keys: Vec<&str> = CostComparison::of(both).figures.iter().map(|figure| figure.key).collect();
        assert_eq!(keys, SHOWN.map(|(key, ..)| key));
    }
}
