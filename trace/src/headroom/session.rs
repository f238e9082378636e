//! A measurement of a service, which ends when it is dropped.

use std::collections::BTreeMap;
use std::time::Duration;

use linerate_host::delivery::DeliveryWatch;
use linerate_host::process::allowed_cpus;
use linerate_host::stage::machine::CpuTimes;
use linerate_host::stage::socket::udp_socket_drops;
use linerate_host::stage::thread::CpuQuota;
use linerate_host::{Host, Known};

use super::batch::BatchCost;
use super::links::LinkCounters;
use super::program::{CpuCounters, HeadroomCounters, HeadroomProgram, ThreadCounters};
use super::{BufferDemand, CpuDemand, HeadroomReport, QuotaDemand, ServiceDemand, ThreadDemand};
use crate::TraceError;
use crate::host_facts::{online_cpus, sees_all_processes};

/// The kernel times the programs for this long, because timing takes time itself.
const TIMED: Duration = Duration::from_millis(200);
/// The part of a measurement for the waits in sockets, whose programs would spoil the costs.
const WAITS_PART: f64 = 0.25;
/// Programs that are loaded and attached stop CPUs for some milliseconds. Waits of this time do not count.
const SETTLE: Duration = Duration::from_millis(100);
/// Loss that a search for the capacity permits.
const PERMITTED_LOSS: f64 = 0.001;
/// Fewer waits are not enough for the quantiles below.
const LEAST_WAITS: u64 = 20_000;
/// Of the waits: one in a thousand is longer, and two bounds.
const QUANTILES: [f64; 3] = [0.999, 0.998, 0.9995];

/// BPF programs that count one port's datagrams.
#[derive(Debug)]
pub struct HeadroomSession<'h> {
    host: &'h Host,
    port: u16,
    program: HeadroomProgram,
    /// `None` before the first measurement.
    run_ns: Option<Known<f64>>,
}

struct HostCounters {
    counted: HeadroomCounters,
    links: LinkCounters,
    times: Known<Vec<CpuTimes>>,
}

impl HostCounters {
    fn read(host: &Host, program: &HeadroomProgram) -> Result<Self, TraceError> {
        Ok(Self {
            counted: program.read()?,
            links: LinkCounters::observe(host),
            times: CpuTimes::observe(host),
        })
    }
}

impl<'h> HeadroomSession<'h> {
    /// Starts to count the datagrams of a port in the calling thread's network namespace.
    ///
    /// # Errors
    /// [`TraceError::NotPermitted`] without CAP_BPF and CAP_PERFMON, [`TraceError::NotHere`] before
    /// Linux 6.3. [`TraceError::Kernel`] in a PID namespace of its own.
    pub fn start(host: &'h Host, port: u16) -> Result<Self, TraceError> {
        // BPF programs use the ids of the initial PID namespace.
        if !sees_all_processes(host) {
            let why = "this PID namespace does not show the CPUs and quotas of threads: use that of the host";
            return Err(TraceError::Kernel { what: super::WHAT, source: std::io::Error::other(why) });
        }
        Ok(Self { host, port, program: HeadroomProgram::start(port)?, run_ns: None })
    }

    /// Measures for this time with `wait`: first the costs, then the waits in the sockets.
    ///
    /// # Errors
    /// If counters cannot be read.
    pub fn measure(
        &mut self,
        duration: Duration,
        wait: &dyn Fn(Duration),
    ) -> Result<HeadroomReport, TraceError> {
        let read_drops = || udp_socket_drops(self.host, self.port);
        let before = read_drops();
        let last = HostCounters::read(self.host, &self.program)?;
        let timed = if self.run_ns.is_none() { TIMED } else { Duration::ZERO };
        wait(duration.mul_f64(1.0 - WAITS_PART).saturating_sub(timed));
        let counters = HostCounters::read(self.host, &self.program)?;
        let run_ns = match self.run_ns.take() {
            Some(run_ns) => run_ns,
            None => self.program.run_ns(&|| wait(TIMED))?,
        };
        self.run_ns = Some(run_ns.clone());
        let pairs = counters.counted.cpus.iter().zip(&last.counted.cpus);
        let cpus: Vec<CpuCounters> = pairs.map(|(now, before)| now.since(before)).collect();
        let run_time = run_ns.value().copied().unwrap_or(0.0);
        let (seconds, mut demand) = self.demand(&last, &counters, &cpus, run_time);
        demand.buffer = self.buffer(buffers(&cpus), duration.mul_f64(WAITS_PART), wait);
        let dropped = Known::from(before.and_then(|before| Ok(read_drops()?.saturating_sub(before))));
        let permitted = demand.read_per_second * seconds * PERMITTED_LOSS;
        if demand.is_beyond_buffer() && dropped.value().is_some_and(|dropped| *dropped as f64 <= permitted) {
            demand.buffer = Known::unknown(
                "datagrams wait longer than the buffer takes to fill up at the present rate, and hardly any was dropped: the \
                 clients pause as well",
            );
        }
        let mut report = HeadroomReport::new(self.port, seconds, demand);
        let most_runs = cpus.iter().map(CpuCounters::runs).max().unwrap_or(0);
        report.own_share = run_ns.clone().map(|ns| most_runs as f64 * ns / 1e9 / seconds);
        report.run_ns = run_ns;
        report.dropped = dropped;
        Ok(report)
    }

    // `cpus`: the growth of the counters.
    fn demand(
        &self,
        last: &HostCounters,
        now: &HostCounters,
        cpus: &[CpuCounters],
        run_ns: f64,
    ) -> (f64, ServiceDemand) {
        let (before, after) = (&last.counted, &now.counted);
        let seconds = after.at.duration_since(before.at).as_secs_f64();
        let total = |figure: fn(&CpuCounters) -> u64| cpus.iter().map(figure).sum::<u64>();
        let (arrivals, reads) = (total(|cpu| cpu.arrivals), total(|cpu| cpu.reads));
        let share = |part: u64, whole: u64| part as f64 / whole.max(1) as f64;
        let online = online_cpus(self.host).ok();
        let online_cpus =
            (0..).zip(cpus).filter(|(cpu, _)| online.as_ref().is_none_or(|set| set.contains(*cpu)));
        let demands = online_cpus.map(|(cpu, counters)| {
            let cpu_use = |ns: u64| ns as f64 / 1e9 / seconds;
            let arrival_share = share(counters.arrivals, arrivals);
            // The softirqs of other traffic are not the service's.
            let other_softirq_ns = if counters.arrivals == 0 { counters.softirq_ns } else { 0 };
            CpuDemand {
                cpu,
                arrival_share,
                read_share: share(counters.reads, reads),
                softirq: BatchCost::fit(&counters.softirq.0, run_ns),
                service: BatchCost::fit(&counters.service.0, run_ns),
                softirq_use: cpu_use(counters.softirq_ns - other_softirq_ns),
                service_use: cpu_use(counters.service_ns),
                // With a turn that began before.
                other_use: cpu_use(counters.other_ns + other_softirq_ns).min(1.0),
                yielding_use: cpu_use(counters.yielding_ns),
                steal: steal(&last.times, &now.times, cpu),
            }
        });
        let demands = demands.collect();
        let threads = after.threads.iter().map(|(tid, now)| (*tid, now.since(before.threads.get(tid))));
        let mut threads: Vec<ThreadDemand> =
            threads.filter_map(|(tid, counters)| self.thread(tid, &counters, reads, run_ns)).collect();
        threads.sort_by(|left, right| right.read_share.total_cmp(&left.read_share));
        let datagrams_per_read = share(total(|cpu| cpu.segments), total(|cpu| cpu.sized));
        let datagrams = (reads as f64 * datagrams_per_read.max(1.0)) as u64;
        let links = now.links.since(&last.links, seconds, datagrams);
        let quotas = self.quotas(&threads);
        let demand = ServiceDemand {
            read_per_second: reads as f64 / seconds,
            datagrams_per_read,
            cpus: demands,
            threads,
            buffer: Known::default(),
            links,
            quotas,
        };
        (seconds, demand)
    }

    fn quotas(&self, threads: &[ThreadDemand]) -> Vec<QuotaDemand> {
        let mut shares = BTreeMap::<u32, f64>::new();
        threads.iter().for_each(|thread| *shares.entry(thread.pid).or_default() += thread.read_share);
        let mut quotas = BTreeMap::<String, QuotaDemand>::new();
        for (pid, share) in shares {
            for CpuQuota { cgroup, cpus, .. } in
                CpuQuota::all_of_process(self.host, pid).value().into_iter().flatten()
            {
                let quota = quotas.entry(cgroup.clone()).or_default();
                let read_share = quota.read_share + share;
                *quota = QuotaDemand { cgroup: cgroup.clone(), cpus: *cpus, read_share };
            }
        }
        quotas.into_values().collect()
    }

    // `None` for threads that read no datagram.
    fn thread(&self, tid: u32, counters: &ThreadCounters, reads: u64, run_ns: f64) -> Option<ThreadDemand> {
        let cost = BatchCost::fit(&counters.batches.0, run_ns)?;
        Some(ThreadDemand {
            pid: counters.pid,
            tid,
            comm: counters.comm.to_string(),
            allowed_cpus: allowed_cpus(self.host, tid),
            read_share: counters.reads as f64 / reads.max(1) as f64,
            polls: counters.empty_reads > counters.reads && counters.batches.are_endless(),
            cost,
        })
    }

    fn buffer(
        &self,
        sizes: Option<(u64, f64)>,
        duration: Duration,
        wait: &dyn Fn(Duration),
    ) -> Known<BufferDemand> {
        let Some((bytes, packets)) = sizes else { return Known::unknown("no datagram's memory was seen") };
        let measurement = DeliveryWatch::start_with_waits(self.host, &[self.port]).and_then(|watch| {
            wait(SETTLE);
            let before = watch.waits()?;
            wait(duration.saturating_sub(SETTLE));
            Ok((watch.waits()?.since(&before), watch.read()?))
        });
        let (waits, delivered) = match measurement {
            Ok(measurement) => measurement,
            Err(error) => return Known::unknown(error.to_string()),
        };
        if waits.count() < LEAST_WAITS {
            let count = waits.count();
            return Known::unknown(format!("{count} waits were seen, and {LEAST_WAITS} are required"));
        }
        let mut by_socket = BTreeMap::<u64, u64>::new();
        delivered.read.iter().for_each(|item| *by_socket.entry(item.cookie).or_default() += item.packets);
        let (largest, total) =
            (by_socket.values().max().copied().unwrap_or(0), by_socket.values().sum::<u64>());
        Known::Value(BufferDemand {
            share: largest as f64 / total.max(1) as f64,
            bytes,
            packets,
            wait_ns: QUANTILES.map(|share| waits.quantile_ns(share).unwrap_or(0.0)),
        })
    }
}

impl CpuCounters {
    fn since(&self, before: &Self) -> Self {
        Self {
            softirq_ns: self.softirq_ns - before.softirq_ns,
            service_ns: self.service_ns - before.service_ns,
            other_ns: self.other_ns - before.other_ns,
            yielding_ns: self.yielding_ns - before.yielding_ns,
            arrivals: self.arrivals - before.arrivals,
            reads: self.reads - before.reads,
            sized: self.sized - before.sized,
            truesize: self.truesize - before.truesize,
            segments: self.segments - before.segments,
            softirq: self.softirq.since(&before.softirq),
            service: self.service.since(&before.service),
            ..*self
        }
    }

    fn runs(&self) -> u64 {
        self.softirq.0.iter().chain(&self.service.0).map(|class| class.runs).sum()
    }
}

impl ThreadCounters {
    // A thread that was not known before counts from zero.
    fn since(&self, before: Option<&Self>) -> Self {
        let Some(before) = before else { return *self };
        Self {
            reads: self.reads - before.reads,
            empty_reads: self.empty_reads - before.empty_reads,
            batches: self.batches.since(&before.batches),
            ..*self
        }
    }
}

/// The smallest receive buffer of the port, and the datagrams that it holds, from the growth of the
/// counters.
fn buffers(cpus: &[CpuCounters]) -> Option<(u64, f64)> {
    // A CPU without datagrams since may have the size of an earlier buffer.
    let bytes = cpus.iter().filter(|cpu| cpu.sized > 0).map(|cpu| cpu.buffer).min()?;
    let sum = |figure: fn(&CpuCounters) -> u64| cpus.iter().map(figure).sum::<u64>() as f64;
    let (sized, truesize) = (sum(|cpu| cpu.sized), sum(|cpu| cpu.truesize));
    Some((bytes, bytes as f64 / (truesize / sized)))
}

/// The hypervisor's share of a CPU; zero if it is unknown, as on hardware.
fn steal(before: &Known<Vec<CpuTimes>>, after: &Known<Vec<CpuTimes>>, cpu: u32) -> f64 {
    let steal_and_total = |times: &Known<Vec<CpuTimes>>| {
        let times = times.value()?.iter().find(|times| times.cpu == cpu)?;
        Some((times.steal, times.total()))
    };
    let (Some((before, total_before)), Some((after, total_after))) =
        (steal_and_total(before), steal_and_total(after))
    else {
        return 0.0;
    };
    after.saturating_sub(before) as f64 / total_after.saturating_sub(total_before).max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pid_namespace_of_its_own_is_refused() {
        let host = Host::scripted([("/proc/self/ns/pid", "pid:[4026532000]")]);
        let error = HeadroomSession::start(&host, 53).map(drop).expect_err("a refusal");
        assert!(error.to_string().contains("this PID namespace"), "{error}");
    }

    #[test]
    fn receive_buffer_is_the_smallest_of_cpus_with_datagrams() {
        let counters =
            |(sized, buffer)| CpuCounters { sized, truesize: sized * 1000, buffer, ..CpuCounters::default() };
        let before = [(5, 212_992), (5, 212_992), (0, 0)].map(counters);
        let after = [(9, 4_000_000), (5, 212_992), (1, 8_000_000)].map(counters);
        let cpus: Vec<CpuCounters> =
            after.iter().zip(&before).map(|(now, before)| now.since(before)).collect();
        assert_eq!(buffers(&cpus), Some((4_000_000, 4_000.0)));
        assert_eq!(buffers(&cpus[1..2]), None);
    }
}
