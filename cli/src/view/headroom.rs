//! `linerate headroom`.

use linerate_host::Known;
use linerate_trace::headroom::{
    BatchCost, CapacityLimit, CpuDemand, HeadroomReport, LimitingResource, Remedy, RemedyGain,
};

use crate::document::{Block, Document, Mark, Note, Section, Table, Tile, Tone};
use crate::envelope::{CommandResult, Envelope};
use crate::render::format::{UNKNOWN, percent, rate, rate_range, ratio, significant};

/// Shares of the capacity at which the verdict becomes a warning, and an alarm.
const NEAR: f64 = 0.7;
const FULL: f64 = 0.9;

/// A note reports this number of datagrams per read, or more.
const NOTED_DATAGRAMS_PER_READ: f64 = 1.05;

/// The heading of `--watch`.
pub(crate) const LIVE_HEADER: &str = "    rate/s  capacity/s         90 % interval    used  limit\n";

impl CommandResult for HeadroomReport {
    const SCHEMA: &'static str = "linerate.headroom/1";

    fn document(envelope: &Envelope<Self>) -> Document {
        let report = &envelope.result;
        let mut document = envelope.new_document("Headroom of a service", verdict(report));
        document.about = format!("UDP port {}, measured for {:.1} s", report.port, report.seconds);
        document.mark = report.capacity.value().map(mark);
        document.tiles =
            report.capacity.value().map(|first_limit| tiles(report, first_limit)).unwrap_or_default();
        document.notes.extend(notes(report).into_iter().map(Note::new));
        if report.capacity.value().is_some() {
            document.sections.push(Section::new("Limits").with(limits(&report.limits)));
            document.sections.push(Section::new("Changes, by predicted gain").with(remedies(report)));
        }
        document.sections.extend(report.what_if.iter().map(|scenario| {
            let section =
                Section::new(format!("Limits with the change: {}", change(scenario.remedy, report.port)));
            match &scenario.limits {
                Known::Value(limits_after) => section.with(limits(limits_after)),
                Known::Unknown { why } => section.with(Block::faint(format!("Not possible: {why}."))),
            }
        }));
        let own_cost = match (&report.own_share, &report.run_ns) {
            (Known::Value(share), Known::Value(ns)) => format!(
                "The measurement took {} of the busiest CPU, {} ns per run of a program, and is subtracted.",
                percent(*share),
                significant(*ns)
            ),
            (Known::Unknown { why }, _) | (_, Known::Unknown { why }) => {
                format!("They contain the time of the measurement, which is unknown: {why}.")
            }
        };
        document.sections.push(Section::new("CPUs").with(cpus(&report.demand.cpus)).with(Block::faint(
            format!("The ns are per datagram, in the present batches and in full ones. {own_cost}"),
        )));
        document
    }
}

fn verdict(report: &HeadroomReport) -> String {
    let read_rate = rate(report.demand.read_per_second);
    match &report.capacity {
        Known::Value(first_limit) => {
            let second_text = report.limits.get(1).map_or_else(String::new, |second_limit| {
                format!(
                    " Next would be {} at {}/s.",
                    resource(&second_limit.resource),
                    rate(second_limit.per_second)
                )
            });
            format!(
                "The service reads {read_rate} datagrams/s, {} of the {}/s (90 % interval {}/s) that {} permits.{second_text}",
                percent(first_limit.used_share),
                rate(first_limit.per_second),
                rate_range(first_limit.low_per_second, first_limit.high_per_second),
                resource(&first_limit.resource)
            )
        }
        Known::Unknown { why } => format!("The service reads {read_rate} datagrams/s. No estimate: {why}."),
    }
}

fn mark(first_limit: &CapacityLimit) -> Mark {
    match first_limit.used_share {
        share if share >= FULL => Mark::new(Tone::Bad, "at its limit"),
        share if share >= NEAR => Mark::new(Tone::Warn, "near its limit"),
        _ => Mark::new(Tone::Good, "room to grow"),
    }
}

fn tiles(report: &HeadroomReport, first_limit: &CapacityLimit) -> Vec<Tile> {
    vec![
        Tile::new(rate(first_limit.per_second), "/s", "estimated capacity"),
        Tile::new(percent(first_limit.used_share), "", "of it is used"),
        Tile::new(rate(report.demand.read_per_second), "/s", "datagrams read now"),
    ]
}

fn notes(report: &HeadroomReport) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(drop_count) = report.dropped.value().filter(|drop_count| **drop_count > 0) {
        notes.push(format!(
            "{drop_count} datagrams were dropped by full receive buffers meanwhile: linerate drops --port {} has the place",
            report.port
        ));
    }
    if let (Some(reason), Some(_)) = (report.demand.buffer.why(), report.capacity.value()) {
        notes.push(format!("The receive buffer is not among the limits: {reason}"));
    }
    if report.demand.datagrams_per_read > NOTED_DATAGRAMS_PER_READ {
        notes.push(format!(
            "Rates are of reads: with UDP_GRO each returns {:.1} datagrams on average",
            report.demand.datagrams_per_read
        ));
    }
    let shares_sockets = report.limits.iter().any(|limit| limit.resource == LimitingResource::AllCpus);
    if report.demand.threads.len() > 1 && shares_sockets {
        notes.push(
            "Several threads read with the CPUs of their choice: waits for each other are in the costs only as \
             far as they happen now, so the estimate is an upper bound"
                .to_owned(),
        );
    }
    notes
}

fn limits(limits: &[CapacityLimit]) -> Table {
    let rows = limits.iter().map(|limit| {
        let parts = if limit.parts.is_empty() { String::new() } else { format!(" ({})", limit.parts) };
        [
            format!("{}{parts}", resource(&limit.resource)),
            rate(limit.per_second),
            rate_range(limit.low_per_second, limit.high_per_second),
            percent(limit.used_share),
        ]
    });
    Table::new("resource | >datagrams/s | >90 % interval | >used").with_rows(rows)
}

fn remedies(report: &HeadroomReport) -> Block {
    if report.remedies.is_empty() {
        return Block::faint("No change in the model gains 5 % or more.");
    }
    let rows = report.remedies.iter().map(|gain: &RemedyGain| {
        [
            change(gain.remedy, report.port),
            rate(gain.per_second),
            ratio(gain.gain_ratio),
            resource(&gain.next_limit),
        ]
    });
    let table = Table::new("change | >datagrams/s | >gain | then limited by").with_rows(rows);
    Block::Table(table)
}

fn change(remedy: Remedy, port: u16) -> String {
    match remedy {
        Remedy::Boost => format!("linerate boost --port {port}: a worker and its packets on each CPU"),
        Remedy::SpreadSoftirqs => "spread softirqs over all CPUs (RSS or RPS)".to_owned(),
        Remedy::SeparateThreads => "threads on other CPUs than softirqs".to_owned(),
        Remedy::LargerBuffer => "a larger receive buffer (SO_RCVBUF)".to_owned(),
    }
}

fn cpus(cpus: &[CpuDemand]) -> Table {
    let busy_cpus = cpus.iter().filter(|cpu| cpu.arrival_share > 0.0 || cpu.read_share > 0.0);
    let rows = busy_cpus.map(|cpu| {
        let cost = |cost: &Option<BatchCost>, value_of: fn(&BatchCost) -> f64| {
            cost.as_ref().map_or_else(|| "-".to_owned(), |cost| significant(value_of(cost)))
        };
        [
            cpu.cpu.to_string(),
            percent(cpu.softirq_use),
            percent(cpu.service_use),
            percent(cpu.other_use + cpu.steal),
            cost(&cpu.softirq, |cost| cost.now_ns),
            cost(&cpu.softirq, |cost| cost.packet_ns),
            cost(&cpu.service, |cost| cost.now_ns),
            cost(&cpu.service, |cost| cost.packet_ns),
        ]
    });
    let headings = ">CPU | >softirqs | >service | >others | >softirq ns | >in full batches | >service ns | \
        >in full batches";
    Table::new(headings).with_rows(rows)
}

pub(crate) fn resource(resource: &LimitingResource) -> String {
    match resource {
        LimitingResource::Thread { tid, comm } => format!("thread {comm} ({tid})"),
        LimitingResource::Cpu { cpu } => format!("CPU {cpu}"),
        LimitingResource::Softirq { cpu } => format!("softirqs of CPU {cpu}"),
        LimitingResource::AllCpus => "all CPUs together".to_owned(),
        LimitingResource::ReceiveBuffer { bytes } => format!("receive buffer of {bytes} bytes"),
        LimitingResource::Link { interface } => format!("link {interface}"),
        LimitingResource::CpuQuota { cgroup } => format!("CPU quota of {cgroup}"),
    }
}

/// A line of `--watch`.
pub(crate) fn live_line(report: &HeadroomReport) -> String {
    let read_rate = rate(report.demand.read_per_second);
    match &report.capacity {
        Known::Value(first_limit) => format!(
            "{read_rate:>10}  {:>10}  {:>20}  {:>6}  {}\n",
            rate(first_limit.per_second),
            rate_range(first_limit.low_per_second, first_limit.high_per_second),
            percent(first_limit.used_share),
            resource(&first_limit.resource)
        ),
        Known::Unknown { why } => format!("{read_rate:>10}  {UNKNOWN:>10}  {why}\n"),
    }
}

#[cfg(test)]
mod tests {
    use linerate_host::CpuSet;
    use linerate_trace::headroom::{ServiceDemand, ThreadDemand};

    use super::*;
    use crate::origin::HostSummary;
    use crate::render::style::TextStyle;
    use crate::render::text;

    #[test]
    fn report_text_has_utilisation_limits_remedies_and_drops() {
        let cost =
            |now_ns, packet_ns| BatchCost { now_ns, packet_ns, error_ns: 50.0, ..BatchCost::default() };
        let cpu = CpuDemand {
            cpu: 1,
            arrival_share: 1.0,
            read_share: 1.0,
            softirq: Some(cost(2_100.0, 1_750.0)),
            service: Some(cost(5_500.0, 3_200.0)),
            softirq_use: 0.055,
            service_use: 0.144,
            other_use: 0.01,
            yielding_use: 0.0,
            steal: 0.0,
        };
        let thread = ThreadDemand {
            tid: 812,
            comm: "nsd".to_owned(),
            allowed_cpus: Known::Value(CpuSet::from_list("1").expect("a list")),
            read_share: 1.0,
            ..ThreadDemand::default()
        };
        let cpus = vec![CpuDemand::default(), cpu];
        let demand = ServiceDemand {
            read_per_second: 26_200.0,
            cpus,
            threads: vec![thread],
            ..ServiceDemand::default()
        };
        let limits = demand.limits();
        let report = HeadroomReport {
            port: 53,
            seconds: 6.0,
            capacity: Known::Value(limits[0].clone()),
            limits,
            remedies: demand.remedies(),
            what_if: demand.what_if(&[Remedy::SpreadSoftirqs]),
            demand,
            dropped: Known::Value(3),
            run_ns: Known::Value(62.0),
            own_share: Known::Value(0.011),
        };
        let line = live_line(&report);
        assert!(line.trim_start().starts_with("26.2 k ") && line.ends_with("12 %  CPU 1\n"), "{line}");
        let document = Envelope::new(HostSummary::default(), None, report).document();
        let text = text::text(&document, TextStyle { width: 150, colour: false });
        for words in [
            "The service reads 26.2 k datagrams/s, 12 % of the",
            "CPU 1 (65 % thread nsd, 35 % softirqs)",
            "linerate boost --port 53",
            "threads on other CPUs than softirqs",
            "Limits with the change: spread softirqs over all CPUs",
            "3 datagrams were dropped",
        ] {
            assert!(text.contains(words), "no {words} in {text}");
        }
    }
}
