//! What packets cost as text.

use linerate_host::Known;
use linerate_trace::cost::calibrate::CostCalibration;
use linerate_trace::cost::{CostReport, CpuCost, DeviceCost, UntracedEstimate};

use super::column::cut;
use super::cost_summary::{accounted_share, share, top_victims, verdict, wall_ns};
use super::format::{UNKNOWN, grouped, percent, rate, significant, time_span};
use super::style::{TextStyle, TextTone, wrap};
use super::table::TextTable;
use crate::command::cost::{CostDocument, VictimGrouping};

/// CPUs that are shown, those that packets took most of.
const MOST_CPUS: usize = 16;
/// Devices that are shown.
const MOST_DEVICES: usize = 12;
/// A name is cut behind this.
const LONGEST_NAME: usize = 30;

/// A look that is over.
pub(crate) fn cost(document: &CostDocument, style: TextStyle) -> String {
    let mut text = measurements_text(&document.cost, document.by, usize::from(document.top), style);
    for calibration in &document.calibrations {
        paragraph(&mut text, &calibration_text(calibration), TextTone::Plain, style);
    }
    text
}

/// What was seen, in a look that is over or goes on.
pub(crate) fn measurements_text(
    cost: &CostReport,
    by: VictimGrouping,
    top: usize,
    style: TextStyle,
) -> String {
    let mut text = String::new();
    paragraph(&mut text, &verdict(cost, by), TextTone::Strong, style);
    section(&mut text, "CPUs, shares of the time that passed", cpus(cost, style), style);
    section(&mut text, heading(by), victims(cost, by, top, style), style);
    section(&mut text, "Devices", devices(cost, style), style);
    text.push('\n');
    if let Some(words) = untraced(cost) {
        paragraph(&mut text, &words, TextTone::Faint, style);
    }
    paragraph(&mut text, &own(cost), TextTone::Faint, style);
    for note in &cost.notes {
        paragraph(&mut text, &format!("note: {note}"), TextTone::Faint, style);
    }
    text
}

fn heading(by: VictimGrouping) -> &'static str {
    match by {
        VictimGrouping::Process => "Processes, shares of one CPU",
        VictimGrouping::Thread => "Threads, shares of one CPU",
        VictimGrouping::Cgroup => "Control groups, shares of one CPU",
    }
}

fn paragraph(text: &mut String, words: &str, tone: TextTone, style: TextStyle) {
    for line in wrap(words, style.width.min(100)) {
        text.push_str(&style.paint(tone, &line));
        text.push('\n');
    }
}

fn section(text: &mut String, heading: &str, lines: Vec<String>, style: TextStyle) {
    if lines.len() <= 1 {
        return;
    }
    text.push_str(&format!("\n{}\n", style.paint(TextTone::Strong, heading)));
    for line in lines {
        text.push_str(&line);
        text.push('\n');
    }
}

fn cpus(cost: &CostReport, style: TextStyle) -> Vec<String> {
    let mut table = TextTable::new(&[
        ">CPU",
        ">packets",
        ">NET_RX",
        ">NET_TX",
        ">NIC irq",
        ">ksoftirqd",
        ">other irq",
        ">tasks",
        ">idle",
        ">packets/s",
    ]);
    let mut shown: Vec<&CpuCost> = cost.cpus.iter().collect();
    shown.sort_by_key(|cpu| (std::cmp::Reverse(cpu.packets_ns()), cpu.cpu));
    shown.truncate(MOST_CPUS);
    shown.sort_by_key(|cpu| cpu.cpu);
    for cpu in &shown {
        let of = |part: u64| percent(share(part, cpu.elapsed_ns as f64));
        table.row(vec![
            cpu.cpu.to_string(),
            of(cpu.packets_ns()),
            of(cpu.net_rx_ns),
            of(cpu.net_tx_ns),
            of(cpu.nic_irq_ns),
            of(cpu.in_ksoftirqd_ns + cpu.in_threads_ns),
            of(cpu.other_softirq_ns + cpu.other_irq_ns),
            of(cpu.tasks_ns),
            of(cpu.idle_ns),
            arrival_rate(cost, cpu),
        ]);
    }
    let mut lines = table.lines(2, MOST_CPUS, style);
    lines.extend(more(cost.cpus.len(), shown.len(), "CPUs that packets took less of", style));
    if lines.len() > 1 {
        lines.extend(
            wrap(&per_packet_cost(cost), style.width.min(100) - 2).iter().map(|line| format!("  {line}")),
        );
    }
    lines
}

/// Packets per second that entered the host on a CPU.
pub(crate) fn arrival_rate(cost: &CostReport, cpu: &CpuCost) -> String {
    if cost.counting_point.value().is_none() {
        return UNKNOWN.to_owned();
    }
    rate(cpu.entered_packets as f64 / cost.seconds)
}

/// What a packet took, and where it was counted.
pub(crate) fn per_packet_cost(cost: &CostReport) -> String {
    let all = cost.all_cpus();
    match (&cost.counting_point, all.ns_a_packet()) {
        (Known::Unknown { .. }, _) => "What a packet took is not known: version 0.1 of linerate counted \
            packets with each poll that they pass."
            .to_owned(),
        (_, None) => "No packet entered the host on these CPUs.".to_owned(),
        (Known::Value(point), Some(ns)) => format!(
            "A packet took {} ns of these CPUs: {} packets per second, each counted once, where it enters \
             the host (counting point \"{point}\").",
            significant(ns),
            arrival_rate(cost, &all)
        ),
    }
}

fn more(all: usize, shown: usize, what: &str, style: TextStyle) -> Option<String> {
    let left = all.saturating_sub(shown);
    (left > 0).then(|| style.paint(TextTone::Faint, &format!("  and {left} {what}")))
}

fn victims(cost: &CostReport, by: VictimGrouping, top: usize, style: TextStyle) -> Vec<String> {
    let mut table =
        TextTable::new(&["name", ">top says", ">on CPU", ">taken", ">displaced", ">had", ">in own calls"]);
    let wall = wall_ns(cost);
    let losers = top_victims(cost, by);
    for loser in losers.iter().take(top) {
        let group = &loser.group;
        let of = |part: u64| percent(share(part, wall));
        table.row(vec![
            cut(&loser.name, LONGEST_NAME),
            accounted_share(group, wall),
            of(group.on_cpu_ns),
            of(group.taken_ns),
            of(group.displaced_ns),
            of(group.had_ns()),
            of(group.taken_in_own_calls_ns),
        ]);
    }
    let mut lines = table.lines(2, top, style);
    lines.extend(more(losers.len(), top, "that lost less", style));
    lines
}

fn devices(cost: &CostReport, style: TextStyle) -> Vec<String> {
    let mut table = TextTable::new(&[
        "name",
        ">packets/s",
        ">polls/s",
        ">packets a poll",
        ">ns each",
        ">budget used up",
        ">of a CPU",
    ]);
    for device in cost.devices.iter().take(MOST_DEVICES) {
        let each = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), significant);
        table.row(vec![
            cut(&name(device), LONGEST_NAME),
            rate(device.packets as f64 / cost.seconds),
            rate(device.polls as f64 / cost.seconds),
            each(device.packets_a_poll()),
            each(device.ns_a_packet()),
            grouped(device.budget_exhausted),
            percent(share(device.taken_ns, wall_ns(cost))),
        ]);
    }
    let mut lines = table.lines(2, MOST_DEVICES, style);
    lines.extend(more(cost.devices.len(), MOST_DEVICES, "whose packets took less", style));
    if lines.len() > 1 {
        lines.push(style.paint(TextTone::Faint, &format!("  {}", net_rx_runs(cost))));
    }
    lines
}

/// A device's name, with how its polls came about where that is not NET_RX.
pub(crate) fn name(device: &DeviceCost) -> String {
    let mut how = Vec::new();
    if device.threaded_polls > 0 {
        how.push("threaded");
    }
    if device.busy_polls > 0 {
        how.push("busy polls");
    }
    if how.is_empty() { device.name.clone() } else { format!("{} ({})", device.name, how.join(", ")) }
}

/// How NET_RX went about it.
pub(crate) fn net_rx_runs(cost: &CostReport) -> String {
    let all = cost.all_cpus();
    let polls = all.polls_a_run().map_or_else(|| "no".to_owned(), significant);
    let squeezed = match &all.time_squeezes {
        Known::Value(0) => "none stopped for want of budget or time".to_owned(),
        Known::Value(count) => format!("{} stopped for want of budget or time", grouped(*count)),
        Known::Unknown { why } => format!("how many stopped for want of budget is unknown: {why}"),
    };
    format!(
        "{} runs of NET_RX a second, {polls} polls a run, {squeezed}",
        rate(all.rx_runs as f64 / cost.seconds)
    )
}

/// CPU time of interrupts outside their tracepoints; `None` if it was not measured.
pub(crate) fn untraced(cost: &CostReport) -> Option<String> {
    let irq = cost.untraced_irq.value()?;
    let each = |estimate: &Known<UntracedEstimate>| match estimate {
        Known::Value(estimate) => format!(
            "{} ({} to {})",
            time_span(estimate.ns),
            time_span(estimate.low_ns),
            time_span(estimate.high_ns)
        ),
        Known::Unknown { why } => format!("an unknown time ({why})"),
    };
    let most = cost.cpus.iter().max_by_key(|cpu| cpu.untraced_irq_ns)?;
    let points = |ns: u64| share(ns, most.elapsed_ns as f64) * 100.0;
    Some(format!(
        "Beside what is traced, an interrupt of the timer takes {}, one from another CPU or a device {}, as measured on \
         CPU {}. This estimate is part of the figures: {:.1} points of CPU {}, right within {:.1}.",
        each(&irq.by_timer),
        each(&irq.by_cpu),
        irq.cpu,
        points(most.untraced_irq_ns),
        most.cpu,
        points(most.untraced_irq_doubt_ns),
    ))
}

pub(crate) fn own(cost: &CostReport) -> String {
    let own = &cost.own;
    match (&own.ns_a_run, &own.share) {
        (Known::Value(ns), Known::Value(part)) => {
            let highest = own.highest_share.value().map_or_else(String::new, |share| {
                format!(", {} of the CPU where it was most", percent(*share))
            });
            format!(
                "This look itself took at least {} of these CPUs{highest}: {} runs of {}; what it displaced from caches is \
                 not in it.",
                percent(*part),
                rate(own.runs as f64),
                time_span(*ns)
            )
        }
        (Known::Unknown { why }, _) | (_, Known::Unknown { why }) => {
            format!("This look ran {} programs; what that took is unknown: {why}.", grouped(own.runs))
        }
    }
}

/// Both methods in a sentence.
pub(crate) fn calibration_text(calibration: &CostCalibration) -> String {
    let of = |part: u64| percent(share(part, calibration.elapsed_ns as f64));
    let stolen = match calibration.steal_ns.value() {
        Some(0) | None => String::new(),
        Some(ns) => format!("; the hypervisor took {} of it", of(*ns)),
    };
    format!(
        "Checked on CPU {}: a loop in user space lost {} by its speed, {} by tracing, {} of it to packets; {:+.1} points \
         apart{stolen}.",
        calibration.cpu,
        of(calibration.lost_by_inference_ns),
        of(calibration.lost_by_tracing_ns),
        of(calibration.taken_ns),
        calibration.difference() * 100.0,
    )
}

#[cfg(test)]
mod tests {
    use super::super::made_up_cost::document;
    use super::*;

    #[test]
    fn a_look_as_text() {
        let text = cost(&document(), TextStyle { width: 100, colour: false });
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
        insta::assert_snapshot!(text);
    }

    #[test]
    fn colour_only_where_it_may_be() {
        let plain = cost(&document(), TextStyle { width: 100, colour: false });
        let coloured = cost(&document(), TextStyle { width: 100, colour: true });
        assert!(!plain.contains('\u{1b}') && coloured.contains('\u{1b}'));
    }

    #[test]
    fn what_is_not_known_of_itself_is_told() {
        let mut document = document();
        document.cost.own.ns_a_run = Known::unknown("statistics are refused");
        assert!(own(&document.cost).ends_with("unknown: statistics are refused."));
    }
}
