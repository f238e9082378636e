//! CPU time, latency and losses of one path at a rate.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use linerate_host::stage::machine::CpuTimes;
use linerate_host::{Host, Known};
use linerate_load::LoadSlot;
use linerate_trace::TraceError;
use linerate_trace::cost::calibrate::{CostCalibration, calibrate};
use linerate_trace::cost::{CostReport, CostSession, CostVictim};
use linerate_trace::drops::packet_counts::{DropsTracer, PortSubject};

use super::path_lab::PathLab;
use super::recipe::PORT;
use super::report::{CostContext, LoopLoss, PathCost, PathCostPart, PathLoss, PathOverload};
use crate::ladder::cpu_use::is_worker;
use crate::ladder::error::TestbedError;
use crate::ladder::report::LatencyNs;
use crate::ladder::sampler::{check_observed, under_load};

/// The load begins this time before the measurement and ends this time after it.
const LEAD: Duration = Duration::from_millis(200);
const MEASURED: Duration = Duration::from_millis(1500);
const LOOPED: Duration = Duration::from_millis(700);
/// Longest time for loading and reading the programs that trace.
const TRACE_OVERHEAD: Duration = Duration::from_millis(600);
/// How long the load is offered while the CPUs are traced, and next to a loop.
pub(crate) const TRACED_LOAD: Duration =
    MEASURED.saturating_add(LEAD).saturating_add(LEAD).saturating_add(TRACE_OVERHEAD);
pub(super) const LOOPED_LOAD: Duration =
    LOOPED.saturating_add(LEAD).saturating_add(LEAD).saturating_add(TRACE_OVERHEAD);
const OVERLOAD: Duration = Duration::from_millis(300);
/// Multiple of the capacity at which losses are counted.
const OVERLOAD_FACTOR: f64 = 2.0;
const MOST_LOSSES: usize = 5;
/// Port of VXLAN (RFC 7348), which carries the packets to the service on the VXLAN path.
const VXLAN_PORT: u16 = 4789;
const CLIENT: &str = "sender0";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ThreadOwner {
    Host(CostContext),
    Client,
    /// Other processes, and threads of this program that measure.
    Other,
}

impl PathCost {
    /// Measures a path at a rate that it holds.
    pub(super) fn measure(
        lab: &mut PathLab,
        per_second: f64,
        cpus: &[u32],
    ) -> Result<Known<Self>, TestbedError> {
        let host = Host::live();
        let slot = LoadSlot::rate(per_second, TRACED_LOAD);
        let (outcome, trace_report) =
            under_load(&mut *lab.generator, &slot, |is_over| trace(&host, is_over))?;
        let (trace_report, proc_stat) = match trace_report {
            Ok(trace_report) => trace_report,
            Err(why) => return Ok(Known::unknown(why)),
        };
        let answered_per_second = outcome.answered as f64 / outcome.duration.as_secs_f64();
        let owner = |victim: &CostVictim| match lab.is_relay(victim.pid) {
            true => ThreadOwner::Host(CostContext::Relay),
            false => owner(victim),
        };
        let host_of = |namespace| lab.host_of(namespace);
        let mut cost = Self::from_trace(&trace_report, answered_per_second, &owner, &host_of);
        cost.offered_per_second = per_second;
        cost.answered_ratio = outcome.answered as f64 / outcome.sent.max(1) as f64;
        cost.latency_ns = LatencyNs::from_samples(&outcome.latency_ns);
        cost.proc_stat_ns_per_transaction = proc_stat.map(|ns| ns / answered_per_second);
        let slot = LoadSlot::rate(per_second, LOOPED_LOAD);
        let (_, loop_result) = under_load(&mut *lab.generator, &slot, |is_over| {
            std::thread::sleep(LEAD);
            calibrate(&host, cpus, LOOPED, is_over)
        })?;
        let loops = loop_result.map_err(|error| error.to_string()).and_then(|(_, loops)| {
            let shortest_ns = loops.iter().map(|spin| spin.elapsed_ns).min().unwrap_or(0);
            check_observed(shortest_ns as f64 / 1e9, LOOPED)?;
            Ok(loops.iter().map(LoopLoss::from).collect())
        });
        cost.loops = loops.into();
        Ok(Known::Value(cost))
    }

    /// Divides traced CPU time. `parts` is sorted by context, then by time, largest first.
    pub(crate) fn from_trace(
        report: &CostReport,
        per_second: f64,
        owner: &dyn Fn(&CostVictim) -> ThreadOwner,
        host_of: &dyn Fn(u32) -> Option<String>,
    ) -> Self {
        let transactions = report.seconds * per_second;
        let mut parts: BTreeMap<(CostContext, String), f64> = BTreeMap::new();
        let mut add = |context, name: &str, ns: u64| {
            *parts.entry((context, name.to_owned())).or_default() += ns as f64 / transactions;
        };
        let (mut client_ns, mut polled_ns) = (0, 0);
        for device in &report.devices {
            polled_ns += device.taken_ns;
            match host_of(device.network_namespace) {
                Some(host) if host == CLIENT => client_ns += device.taken_ns,
                Some(host) => add(CostContext::Softirq, &format!("{host} {}", device.name), device.taken_ns),
                None => add(CostContext::Softirq, &device.name, device.taken_ns),
            }
        }
        let sum = |time: fn(&linerate_trace::cost::CpuCost) -> u64| report.cpus.iter().map(time).sum::<u64>();
        add(
            CostContext::Softirq,
            "NET_RX outside of polls",
            sum(|cpu| cpu.net_rx_ns).saturating_sub(polled_ns),
        );
        add(CostContext::Softirq, "NET_TX", sum(|cpu| cpu.net_tx_ns));
        add(CostContext::Softirq, "other softirqs", sum(|cpu| cpu.other_softirq_ns));
        add(CostContext::HardIrq, "interrupts", sum(|cpu| cpu.nic_irq_ns + cpu.other_irq_ns));
        for victim in &report.victims {
            match owner(victim) {
                ThreadOwner::Host(CostContext::KernelThread) => {
                    add(CostContext::KernelThread, "kernel threads", victim.had_ns());
                }
                ThreadOwner::Host(context) => add(context, &victim.comm, victim.had_ns()),
                ThreadOwner::Client => client_ns += victim.had_ns(),
                ThreadOwner::Other => {}
            }
        }
        let mut parts: Vec<PathCostPart> = parts
            .into_iter()
            .filter(|(_, ns)| *ns > 0.0)
            .map(|((context, name), ns_per_transaction)| PathCostPart { context, name, ns_per_transaction })
            .collect();
        parts.sort_by(|a, b| {
            (a.context, b.ns_per_transaction)
                .partial_cmp(&(b.context, a.ns_per_transaction))
                .unwrap_or(std::cmp::Ordering::Equal)
        });
        let busy_ns = sum(|cpu| cpu.elapsed_ns.saturating_sub(cpu.idle_ns));
        Self {
            offered_per_second: per_second,
            answered_ratio: 1.0,
            latency_ns: None,
            host_ns_per_transaction: parts.iter().map(|part| part.ns_per_transaction).sum(),
            parts,
            client_ns_per_transaction: client_ns as f64 / transactions,
            machine_ns_per_transaction: busy_ns as f64 / transactions,
            proc_stat_ns_per_transaction: Known::unknown("not read"),
            loops: Known::unknown("no loop ran"),
        }
    }
}

impl PathOverload {
    /// Offers more than the capacity, and counts where packets are dropped.
    pub(super) fn measure(lab: &mut PathLab, capacity: f64) -> Result<Known<Self>, TestbedError> {
        let host = Host::live();
        let subject = PortSubject { ports: vec![PORT, VXLAN_PORT], peer: None };
        let tracer = match DropsTracer::start_in_all_namespaces(&host, &subject) {
            Ok(tracer) => tracer,
            Err(error) => return Ok(Known::unknown(error.to_string())),
        };
        let outcome = lab.generator.run(&LoadSlot::rate(capacity * OVERLOAD_FACTOR, OVERLOAD))?;
        let counts = match tracer.read(&host) {
            Ok(counts) => counts,
            Err(error) => return Ok(Known::unknown(error.to_string())),
        };
        let mut places: BTreeMap<(String, String), u64> = BTreeMap::new();
        for (site, packets) in &counts.lost {
            // The client's program drops each reply that it has matched.
            let Some(host) = lab.host_of(site.network).filter(|host| host != CLIENT) else { continue };
            let function = site.function.clone().unwrap_or_else(|| format!("{:#x}", site.address));
            let place = match &site.reason {
                Some(reason) => format!("{function} ({reason})"),
                None => function,
            };
            *places.entry((host, place)).or_default() += packets;
        }
        let mut losses: Vec<PathLoss> =
            places.into_iter().map(|((host, place), packets)| PathLoss { host, place, packets }).collect();
        losses.sort_by_key(|loss| std::cmp::Reverse(loss.packets));
        losses.truncate(MOST_LOSSES);
        Ok(Known::Value(Self {
            offered_per_second: outcome.offered_per_second,
            answered_ratio: outcome.answered as f64 / outcome.sent.max(1) as f64,
            losses,
        }))
    }
}

impl From<&CostCalibration> for LoopLoss {
    fn from(calibration: &CostCalibration) -> Self {
        let share = |ns: u64| ns as f64 / calibration.elapsed_ns.max(1) as f64;
        Self {
            cpu: calibration.cpu,
            lost_ratio: share(calibration.lost_by_inference_ns),
            packets_ratio: share(calibration.taken_ns),
        }
    }
}

/// Traces the CPUs under load for a time, and reads their busy time from `/proc/stat`, ns per second.
pub(crate) fn trace(host: &Host, is_over: &dyn Fn() -> bool) -> Result<(CostReport, Known<f64>), String> {
    let explain = |error: TraceError| error.to_string();
    let mut session = CostSession::start(host, None, false).map_err(explain)?;
    std::thread::sleep(LEAD);
    // The start of the load is not counted.
    session.read(host).map_err(explain)?;
    let (idle_before, begin) = (idle_ns(host), Instant::now());
    session.wait(MEASURED, is_over).map_err(explain)?;
    let (idle_after, elapsed) = (idle_ns(host), begin.elapsed());
    check_observed(elapsed.as_secs_f64(), MEASURED)?;
    let proc_stat = match (idle_before, idle_after) {
        (Known::Value((before, cpus)), Known::Value((after, _))) => {
            let idle = after.saturating_sub(before) as f64 / elapsed.as_secs_f64();
            Known::Value(cpus as f64 * 1e9 - idle)
        }
        (Known::Unknown { why }, _) | (_, Known::Unknown { why }) => Known::Unknown { why },
    };
    Ok((session.finish(host).map_err(explain)?, proc_stat))
}

/// Idle time of all CPUs since boot, and their number.
fn idle_ns(host: &Host) -> Known<(u64, usize)> {
    let tick_ns = 1_000_000_000 / rustix::param::clock_ticks_per_second();
    CpuTimes::observe(host)
        .map(|cpus| (cpus.iter().map(|cpu| cpu.idle).sum::<u64>().saturating_mul(tick_ns), cpus.len()))
}

/// The owner of a thread. This process runs both the service and the client.
pub(crate) fn owner(victim: &CostVictim) -> ThreadOwner {
    if victim.pid == std::process::id() {
        return match is_worker(&victim.comm) {
            true => ThreadOwner::Host(CostContext::Service),
            false if victim.tid == rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned() => {
                ThreadOwner::Other
            }
            false => ThreadOwner::Client,
        };
    }
    // A kernel thread has no executable, and neither has a process that has ended since.
    let process = format!("/proc/{}", victim.pid);
    let has_no_executable = fs::read_link(format!("{process}/exe"))
        .is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound);
    if has_no_executable && fs::exists(process).unwrap_or(false) {
        ThreadOwner::Host(CostContext::KernelThread)
    } else {
        ThreadOwner::Other
    }
}
