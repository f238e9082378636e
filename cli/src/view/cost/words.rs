//! Sentences and figures of a cost measurement.

use std::time::Duration;

use linerate_host::Known;
use linerate_trace::cost::calibrate::CostCalibration;
use linerate_trace::cost::{
    CostReport, CostResult, CpuCost, DeviceCost, UntracedEstimate, VictimGroup, VictimGrouping,
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
pub(super) fn accounted_share(group: &VictimGroup, wall: f64) -> String {
    let Some(accounted) = group.accounted() else { return UNKNOWN.to_owned() };
    let more = if group.unaccounted_threads > 0 { "≥" } else { "" };
    format!("{more}{}", percent(share(accounted, wall)))
}

/// Share of a CPU that packets took, 0 to 1.
pub(super) fn packets_share(cpu: &CpuCost) -> f64 {
    share(cpu.packets_ns(), cpu.elapsed_ns as f64)
}

fn most_affected_cpu(cost: &CostReport) -> Option<&CpuCost> {
    cost.cpus.iter().max_by(|one, other| packets_share(one).total_cmp(&packets_share(other)))
}

pub(super) fn verdict(cost: &CostReport, by: VictimGrouping) -> String {
    let Some(cpu) = most_affected_cpu(cost) else { return "No CPU was measured.".to_owned() };
    let (taken, number) = (packets_share(cpu), cpu.cpu);
    if taken == 0.0 {
        return "Packets took no time: none arrived on these CPUs.".to_owned();
    }
    if taken < NOTHING {
        return format!("Packets took almost no time: at most {}, on CPU {number}.", percent(taken));
    }
    format!("Packets took {} of CPU {number}, {}.", percent(taken), victim_clause(cost, by))
}

fn victim_clause(cost: &CostReport, by: VictimGrouping) -> String {
    let all = cost.all_cpus();
    let whole = all.packets_ns() as f64;
    let victims = cost.top_victims(by);
    let most = victims.first().map_or(0, |victim| victim.group.lost_ns());
    // ksoftirqd's time while a thread waited is counted as that thread's loss.
    let displaced: u64 = victims.iter().map(|victim| victim.group.displaced_ns).sum();
    let kernel = (all.in_ksoftirqd_ns + all.in_threads_ns).saturating_sub(displaced);
    let words = |part: u64| if share(part, whole) > 0.5 { "most" } else { "the largest part" };
    if all.from_idle_ns >= most && all.from_idle_ns >= kernel {
        return format!("{} of it in idle time", words(all.from_idle_ns));
    }
    if kernel >= most {
        let who = if all.in_threads_ns > all.in_ksoftirqd_ns { "NAPI threads" } else { "ksoftirqd" };
        return format!("{} of it in {who}", words(kernel));
    }
    let Some(victim) = victims.first() else { return "from no process".to_owned() };
    let wall = wall_ns(cost);
    let had = percent(share(victim.group.had_ns(), wall));
    match victim.group.accounted() {
        Some(_) => {
            let says = accounted_share(&victim.group, wall);
            format!("{} from {}: top shows {says}, it had {had}", words(most), victim.name)
        }
        None => format!("{} from {}: it had {had}", words(most), victim.name),
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
    let all = cost.all_cpus();
    match (&cost.counting_point, all.ns_a_packet()) {
        (Known::Unknown { why }, _) => format!("The CPU time per packet is unknown: {why}."),
        (_, None) => "No packet entered the host on these CPUs.".to_owned(),
        (Known::Value(point), Some(ns)) => format!(
            "A packet took {} ns of these CPUs. {} packets per second entered the host, each counted once (counting \
             point \"{point}\").",
            significant(ns),
            arrival_rate(cost, &all)
        ),
    }
}

/// A device's name, and its polling method if it is not NET_RX.
pub(super) fn device_name(device: &DeviceCost) -> String {
    let how = [(device.threaded_polls, "threaded"), (device.busy_polls, "busy polls")];
    let how: Vec<&str> = how.iter().filter(|(polls, _)| *polls > 0).map(|(_, how)| *how).collect();
    if how.is_empty() { device.name.clone() } else { format!("{} ({})", device.name, how.join(", ")) }
}

pub(super) fn net_rx_runs(cost: &CostReport) -> String {
    let all = cost.all_cpus();
    let polls = all.polls_a_run().map_or_else(|| "no".to_owned(), significant);
    let squeezed = match &all.time_squeezes {
        Known::Value(0) => "none stopped because its budget or time was used up".to_owned(),
        Known::Value(count) => {
            format!("{} stopped because their budget or time was used up", grouped(*count))
        }
        Known::Unknown { why } => format!("how many used up their budget is unknown: {why}"),
    };
    format!(
        "{} runs of NET_RX per second, {polls} polls per run; {squeezed}.",
        rate(all.rx_runs as f64 / cost.seconds)
    )
}

/// CPU time of interrupts outside their tracepoints; `None` if it was not measured.
pub(super) fn untraced(cost: &CostReport) -> Option<String> {
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
        "Outside its tracepoints an interrupt of the timer takes {}, and one from another CPU or a device {}, measured \
         on CPU {}. The figures include this estimate: {:.1} ± {:.1} points of CPU {}.",
        each(&irq.by_timer),
        each(&irq.by_cpu),
        irq.cpu,
        points(most.untraced_irq_ns),
        points(most.untraced_irq_doubt_ns),
        most.cpu,
    ))
}

/// The cost of the measurement itself.
pub(super) fn own(cost: &CostReport) -> String {
    let own = &cost.own;
    match (&own.ns_a_run, &own.share) {
        (Known::Value(ns), Known::Value(part)) => {
            let highest = own
                .highest_share
                .value()
                .map_or_else(String::new, |share| format!(", and {} of the CPU with most", percent(*share)));
            format!(
                "This measurement took at least {} of these CPUs{highest}: {} program runs of {}. Cache misses that it \
                 causes are not included.",
                percent(*part),
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
    let of = |part: u64| percent(share(part, calibration.elapsed_ns as f64));
    let stolen = match calibration.steal_ns.value() {
        Some(0) | None => String::new(),
        Some(ns) => format!(" The hypervisor took {}.", of(*ns)),
    };
    format!(
        "Checked on CPU {}: a loop in user space lost {} by its speed and {} by tracing, of which packets took {}. The \
         difference is {:+.1} points.{stolen}",
        calibration.cpu,
        of(calibration.lost_by_inference_ns),
        of(calibration.lost_by_tracing_ns),
        of(calibration.taken_ns),
        calibration.difference() * 100.0,
    )
}

/// Columns of [`live_line`].
pub(crate) const LIVE_HEADER: &str =
    " seconds  packets/s  all CPUs  highest on CPU  ksoftirqd  took most from, and how much of one CPU\n";

/// An interval in one line, for logs.
pub(crate) fn live_line(at: Duration, result: &CostResult) -> String {
    let cost = &result.cost;
    let all = cost.all_cpus();
    let whole = all.elapsed_ns as f64;
    let highest = most_affected_cpu(cost)
        .map_or_else(String::new, |cpu| format!("{} on {}", percent(packets_share(cpu)), cpu.cpu));
    let victim = cost.top_victims(result.by).into_iter().next().filter(|victim| victim.group.lost_ns() > 0);
    let victim = victim.map_or_else(
        || "-".to_owned(),
        |victim| format!("{} {}", victim.name, percent(share(victim.group.lost_ns(), wall_ns(cost)))),
    );
    format!(
        "{:>8.1}  {:>9}  {:>8}  {highest:>14}  {:>9}  {victim}",
        at.as_secs_f64(),
        rate(all.entered_packets as f64 / cost.seconds),
        percent(share(all.packets_ns(), whole)),
        percent(share(all.in_ksoftirqd_ns + all.in_threads_ns, whole)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::made_up_cost::{cost, envelope};

    #[test]
    fn the_verdict_names_the_victim_with_the_highest_loss_and_its_share_in_top() {
        let told = "Packets took 40 % of CPU 2, most from openssl (812): top shows 99 %, it had 59 %.";
        assert_eq!(verdict(&cost(), VictimGrouping::Process), told);
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
        let told = "Packets took almost no time: at most 0.10 %, on CPU 2.";
        assert_eq!(verdict(&idle, VictimGrouping::Process), told);
    }

    #[test]
    fn threads_of_a_process_are_one_victim() {
        let names = |by| cost().top_victims(by).into_iter().map(|victim| victim.name).collect::<Vec<_>>();
        assert_eq!(names(VictimGrouping::Process), ["openssl (812)", "nsd (900)"]);
        assert_eq!(names(VictimGrouping::Thread), ["openssl (812)", "nsd (900)", "nsd (901)"]);
        assert_eq!(
            names(VictimGrouping::Cgroup),
            ["/system.slice/openssl.service", "/system.slice/nsd.service"]
        );
        let threads = cost().top_victims(VictimGrouping::Thread);
        assert_eq!(threads[1].group.accounted(), Some(1_990_000_000));
        assert_eq!(threads[2].group.accounted(), None);
    }

    #[test]
    fn an_unknown_cost_of_the_measurement_has_a_reason() {
        let mut cost = cost();
        cost.own.ns_a_run = Known::unknown("statistics are refused");
        assert!(own(&cost).ends_with("unknown: statistics are refused."));
    }

    #[test]
    fn columns_line_up() {
        let shown = live_line(Duration::from_secs(3), &envelope().result);
        let column = |text: &str, word: &str| text.find(word).map(|at| at + word.len());
        assert_eq!(column(LIVE_HEADER, "packets/s"), column(&shown, "195 k"), "{shown}");
        assert_eq!(column(LIVE_HEADER, "ksoftirqd"), column(&shown, "1.9 %"), "{shown}");
        assert_eq!(column(LIVE_HEADER, "highest on CPU"), column(&shown, "40 % on 2"), "{shown}");
        assert!(shown.ends_with("openssl (812) 41 %"), "{shown}");
    }
}
