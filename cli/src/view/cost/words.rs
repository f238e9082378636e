//! Sentences and figures of a cost measurement.

use std::time::Duration;

use linerate_host::Known;
use linerate_trace::cost::calibrate::CostCalibration;
use linerate_trace::cost::{
    CostReport, CostResult, CostVictim, CpuCost, DeviceCost, UntracedEstimate, VictimGroup, VictimGrouping,
};

use crate::render::format::{UNKNOWN, grouped, percent, rate, significant, time_span};

/// If packets take a smaller share of every CPU, the verdict names no victim.
const NOTHING: f64 = 0.005;

/// A part as a share of a whole; zero if the whole is zero.
pub(super) fn share(part: u64, whole: f64) -> f64 {
    if whole > 0.0 { part as f64 / whole } else { 0.0 }
}

/// Duration of the measurement, ns.
pub(super) fn wall_ns(cost: &CostReport) -> f64 {
    cost.seconds * 1e9
}

/// The group's time in top as a share of a CPU; a lower bound if some of its threads are not in it.
pub(super) fn accounted_share(group: &VictimGroup<'_>, wall_time: f64) -> String {
    let Some(accounted) = group.accounted() else { return UNKNOWN.to_owned() };
    let bound_sign = if group.has_unaccounted() { "≥" } else { "" };
    format!("{bound_sign}{}", percent(share(accounted, wall_time)))
}

/// Share of a CPU that packets took, 0 to 1.
pub(super) fn packets_share(cpu: &CpuCost) -> f64 {
    share(cpu.packets_ns(), cpu.elapsed_ns as f64)
}

fn most_affected_cpu(cost: &CostReport) -> Option<&CpuCost> {
    cost.cpus.iter().max_by(|left, right| packets_share(left).total_cmp(&packets_share(right)))
}

pub(super) fn verdict(cost: &CostReport, grouping: VictimGrouping) -> String {
    let Some(cpu) = most_affected_cpu(cost) else { return "No CPU was measured.".to_owned() };
    let (packet_share, number) = (packets_share(cpu), cpu.cpu);
    if packet_share == 0.0 {
        return "Packets took no time: none arrived on these CPUs.".to_owned();
    }
    if packet_share < NOTHING {
        return format!("Packets took almost no time: at most {}, on CPU {number}.", percent(packet_share));
    }
    format!("Packets took {} of CPU {number}, {}.", percent(packet_share), victim_clause(cost, grouping))
}

fn victim_clause(cost: &CostReport, grouping: VictimGrouping) -> String {
    let total = cost.all_cpus();
    let packets_ns = total.packets_ns() as f64;
    let victims = cost.top_victims(grouping);
    let lost_ns = victims.first().map_or(0, |group| group.sum(CostVictim::lost_ns));
    // ksoftirqd's time while a thread waited is counted as that thread's loss.
    let displaced: u64 = cost.victims.iter().map(|victim| victim.displaced_ns).sum();
    let kernel_ns = (total.in_ksoftirqd_ns + total.in_threads_ns).saturating_sub(displaced);
    let part_name = |part: u64| if share(part, packets_ns) > 0.5 { "most" } else { "the largest part" };
    if total.from_idle_ns >= lost_ns && total.from_idle_ns >= kernel_ns {
        return format!("{} of it in idle time", part_name(total.from_idle_ns));
    }
    if kernel_ns >= lost_ns {
        let thread_kind =
            if total.in_threads_ns > total.in_ksoftirqd_ns { "NAPI threads" } else { "ksoftirqd" };
        return format!("{} of it in {thread_kind}", part_name(kernel_ns));
    }
    let Some(victim) = victims.first() else { return "from no process".to_owned() };
    let wall_time = wall_ns(cost);
    let own_share = percent(share(victim.had_ns(), wall_time));
    match victim.accounted() {
        Some(_) => {
            let top_share = accounted_share(victim, wall_time);
            format!("{} from {}: top shows {top_share}, it had {own_share}", part_name(lost_ns), victim.name)
        }
        None => format!("{} from {}: it had {own_share}", part_name(lost_ns), victim.name),
    }
}

/// Packets per second that entered the host on a CPU.
pub(super) fn arrival_rate(cost: &CostReport, cpu: &CpuCost) -> String {
    if cost.counting_point.value().is_none() {
        return UNKNOWN.to_owned();
    }
    rate(cpu.entered_packets as f64 / cost.seconds)
}

/// The CPU time per packet, and where packets are counted.
pub(super) fn per_packet_cost(cost: &CostReport) -> String {
    let total = cost.all_cpus();
    match (&cost.counting_point, total.ns_a_packet()) {
        (Known::Unknown { why }, _) => format!("The CPU time per packet is unknown: {why}."),
        (_, None) => "No packet entered the host on these CPUs.".to_owned(),
        (Known::Value(point), Some(ns)) => format!(
            "A packet took {} ns of these CPUs. {} packets per second entered the host, each counted once (counting \
             point \"{point}\").",
            significant(ns),
            arrival_rate(cost, &total)
        ),
    }
}

/// A device's name, and its polling method if it is not NET_RX.
pub(super) fn device_name(device: &DeviceCost) -> String {
    let poll_counts = [(device.threaded_polls, "threaded"), (device.busy_polls, "busy polls")];
    let methods: Vec<&str> =
        poll_counts.iter().filter(|(polls, _)| *polls > 0).map(|(_, method)| *method).collect();
    if methods.is_empty() { device.name.clone() } else { format!("{} ({})", device.name, methods.join(", ")) }
}

pub(super) fn net_rx_runs(cost: &CostReport) -> String {
    let total = cost.all_cpus();
    let polls = total.polls_a_run().map_or_else(|| "no".to_owned(), significant);
    let squeeze_text = match &total.time_squeezes {
        Known::Value(0) => "none stopped because its budget or time was used up".to_owned(),
        Known::Value(count) => {
            format!("{} stopped because their budget or time was used up", grouped(*count))
        }
        Known::Unknown { why } => format!("how many used up their budget is unknown: {why}"),
    };
    format!(
        "{} runs of NET_RX per second, {polls} polls per run; {squeeze_text}.",
        rate(total.rx_runs as f64 / cost.seconds)
    )
}

/// CPU time of interrupts outside their tracepoints; `None` if it was not measured.
pub(super) fn untraced_text(cost: &CostReport) -> Option<String> {
    let irq = cost.untraced_irq.value()?;
    let estimate_text = |estimate: &Known<UntracedEstimate>| match estimate {
        Known::Value(estimate) => format!(
            "{} ({} to {})",
            time_span(estimate.ns),
            time_span(estimate.low_ns),
            time_span(estimate.high_ns)
        ),
        Known::Unknown { why } => format!("an unknown time ({why})"),
    };
    let worst_cpu = cost.cpus.iter().max_by_key(|cpu| cpu.untraced_irq_ns)?;
    let share_points = |ns: u64| share(ns, worst_cpu.elapsed_ns as f64) * 100.0;
    Some(format!(
        "Outside its tracepoints an interrupt of the timer takes {}, and one from another CPU or a device {}, measured \
         on CPU {}. The figures include this estimate: {:.1} ± {:.1} points of CPU {}.",
        estimate_text(&irq.by_timer),
        estimate_text(&irq.by_cpu),
        irq.cpu,
        share_points(worst_cpu.untraced_irq_ns),
        share_points(worst_cpu.untraced_irq_doubt_ns),
        worst_cpu.cpu,
    ))
}

/// The cost of the measurement itself.
pub(super) fn overhead_text(cost: &CostReport) -> String {
    let own = &cost.own;
    match (&own.ns_a_run, &own.share) {
        (Known::Value(ns), Known::Value(cpu_share)) => {
            let highest_text = own
                .highest_share
                .value()
                .map_or_else(String::new, |share| format!(", and {} of the CPU with most", percent(*share)));
            format!(
                "This measurement took at least {} of these CPUs{highest_text}: {} program runs of {}. Cache misses that it \
                 causes are not included.",
                percent(*cpu_share),
                rate(own.runs as f64),
                time_span(*ns)
            )
        }
        (Known::Unknown { why }, _) | (_, Known::Unknown { why }) => {
            format!("This measurement ran {} programs; their time is unknown: {why}.", grouped(own.runs))
        }
    }
}

/// The results of both methods.
pub(super) fn calibration_text(calibration: &CostCalibration) -> String {
    let share_of_time = |part: u64| percent(share(part, calibration.elapsed_ns as f64));
    let steal_text = match calibration.steal_ns.value() {
        Some(0) | None => String::new(),
        Some(ns) => format!(" The hypervisor took {}.", share_of_time(*ns)),
    };
    format!(
        "Checked on CPU {}: a loop in user space lost {} by its speed and {} by tracing, of which packets took {}. The \
         difference is {:+.1} points.{steal_text}",
        calibration.cpu,
        share_of_time(calibration.lost_by_inference_ns),
        share_of_time(calibration.lost_by_tracing_ns),
        share_of_time(calibration.taken_ns),
        calibration.difference() * 100.0,
    )
}

/// Columns of [`live_line`].
pub(crate) const LIVE_HEADER: &str =
    " seconds  packets/s  all CPUs  highest on CPU  ksoftirqd  took most from, and how much of one CPU\n";

/// An interval in one line, for logs.
pub(crate) fn live_line(elapsed: Duration, result: &CostResult) -> String {
    let cost = &result.cost;
    let total = cost.all_cpus();
    let elapsed_ns = total.elapsed_ns as f64;
    let worst_cpu = most_affected_cpu(cost)
        .map_or_else(String::new, |cpu| format!("{} on {}", percent(packets_share(cpu)), cpu.cpu));
    let victims = cost.top_victims(result.by);
    let victim_text = match victims.first().map(|group| (&group.name, group.sum(CostVictim::lost_ns))) {
        Some((name, lost_ns)) if lost_ns > 0 => format!("{name} {}", percent(share(lost_ns, wall_ns(cost)))),
        _ => "-".to_owned(),
    };
    format!(
        "{:>8.1}  {:>9}  {:>8}  {worst_cpu:>14}  {:>9}  {victim_text}",
        elapsed.as_secs_f64(),
        rate(total.entered_packets as f64 / cost.seconds),
        percent(share(total.packets_ns(), elapsed_ns)),
        percent(share(total.in_ksoftirqd_ns + total.in_threads_ns, elapsed_ns)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::cost_fixtures::{cost, envelope};

    #[test]
    fn the_verdict_has_the_largest_victim_and_its_share_in_top() {
        let expected = "Packets took 40 % of CPU 2, most from openssl (812): top shows 99 %, it had 59 %.";
        assert_eq!(verdict(&cost(), VictimGrouping::Process), expected);
        let mut idle = cost();
        idle.victims.clear();
        for cpu in &mut idle.cpus {
            (cpu.from_idle_ns, cpu.in_ksoftirqd_ns) = (cpu.packets_ns(), 0);
        }
        assert_eq!(
            verdict(&idle, VictimGrouping::Process),
            "Packets took 40 % of CPU 2, most of it in idle time."
        );
        for cpu in &mut idle.cpus {
            (cpu.net_rx_ns, cpu.net_tx_ns, cpu.nic_irq_ns) = (10_000_000, 0, 0);
        }
        let expected = "Packets took almost no time: at most 0.10 %, on CPU 2.";
        assert_eq!(verdict(&idle, VictimGrouping::Process), expected);
    }

    #[test]
    fn victims_are_grouped_by_process_thread_or_cgroup() {
        let names = |by| cost().top_victims(by).into_iter().map(|victim| victim.name).collect::<Vec<_>>();
        assert_eq!(names(VictimGrouping::Process), ["openssl (812)", "nsd (900)"]);
        assert_eq!(names(VictimGrouping::Thread), ["openssl (812)", "nsd (900)", "nsd (901)"]);
        assert_eq!(
            names(VictimGrouping::Cgroup),
            ["/system.slice/openssl.service", "/system.slice/nsd.service"]
        );
        let cost = cost();
        let threads = cost.top_victims(VictimGrouping::Thread);
        assert_eq!(threads[1].accounted(), Some(1_990_000_000));
        assert_eq!(threads[2].accounted(), None);
    }

    #[test]
    fn an_unknown_cost_of_the_measurement_has_a_reason() {
        let mut cost = cost();
        cost.own.ns_a_run = Known::unknown("statistics are refused");
        assert!(overhead_text(&cost).ends_with("unknown: statistics are refused."));
    }

    #[test]
    fn live_line_columns_align_with_the_header() {
        let line = live_line(Duration::from_secs(3), &envelope().result);
        let column = |text: &str, word: &str| text.find(word).map(|at| at + word.len());
        assert_eq!(column(LIVE_HEADER, "packets/s"), column(&line, "195 k"), "{line}");
        assert_eq!(column(LIVE_HEADER, "ksoftirqd"), column(&line, "1.9 %"), "{line}");
        assert_eq!(column(LIVE_HEADER, "highest on CPU"), column(&line, "40 % on 2"), "{line}");
        assert!(line.ends_with("openssl (812) 41 %"), "{line}");
    }
}
