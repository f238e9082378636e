//! The rate at which each resource would be used up: the utilization law with the cost of full batches.

use linerate_host::{CpuSet, Known};
use serde::{Deserialize, Serialize};

use super::batch::BatchCost;

/// Standard error of an estimate in addition to that of the fit, as a share: the root mean square
/// of the errors of 53 estimates of three runs of `cargo xtask bench headroom`.
const MODEL_ERROR: f64 = 0.1;

/// A CPU that is never idle is faster than full batches predict, because it defers softirqs to ksoftirqd, whose batches are
/// larger: without this factor the first 23 estimates of `cargo xtask bench headroom` were 6 % too low on average.
pub(super) const FULL_LOAD_GAIN: f64 = 1.06;

/// Half of a 90 % interval in standard errors.
const NINETY_PERCENT: f64 = 1.645;

/// From this share of a demand on, one part alone gives the limit its name.
const NEARLY_ALL: f64 = 0.85;

/// The part of a host that the service uses, and the part that other work uses.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ServiceDemand {
    /// Datagrams that the server read.
    pub read_per_second: f64,
    /// With UDP_GRO a read returns several; 0 if unknown.
    #[serde(default)]
    pub datagrams_per_read: f64,
    /// Online CPUs.
    pub cpus: Vec<CpuDemand>,
    /// Threads that read the port's datagrams, busiest first.
    pub threads: Vec<ThreadDemand>,
    pub buffer: Known<BufferDemand>,
    /// Interfaces with a known speed of whose packets the service has at least a quarter.
    pub links: Vec<LinkDemand>,
    /// Of the processes of `threads`.
    #[serde(default)]
    pub quotas: Vec<QuotaDemand>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct CpuDemand {
    pub cpu: u32,
    /// The part of all datagrams that came in softirqs of this CPU, and that was read here.
    pub arrival_share: f64,
    pub read_share: f64,
    /// NET_RX and NET_TX per datagram that came; `None` without any.
    pub softirq: Option<BatchCost>,
    /// Everything else while the CPU was not idle, less other processes, per datagram that was read.
    pub service: Option<BatchCost>,
    /// Shares of the CPU's time.
    pub softirq_use: f64,
    pub service_use: f64,
    /// Other processes, and softirqs of other traffic.
    pub other_use: f64,
    /// Of `other_use`: programs of a priority so much lower that they give way to the service.
    pub yielding_use: f64,
    /// Taken by the hypervisor.
    pub steal: f64,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ThreadDemand {
    pub pid: u32,
    pub tid: u32,
    pub comm: String,
    /// The CPUs it may run on.
    pub allowed_cpus: Known<CpuSet>,
    pub read_share: f64,
    /// It never sleeps, and most of its reads find no datagram.
    #[serde(default)]
    pub polls: bool,
    pub cost: BatchCost,
}

/// The receive buffer of the busiest socket.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct BufferDemand {
    /// The part of all datagrams that it gets.
    pub share: f64,
    pub bytes: u64,
    /// Datagrams that fit, by the memory that the kernel charged for those that came.
    pub packets: f64,
    /// The wait that one datagram in a thousand exceeded, and two bounds: 2 in 1,000, and 1 in 2,000.
    pub wait_ns: [f64; 3],
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct LinkDemand {
    pub interface: String,
    pub bits_per_second: f64,
    /// The busier direction, with 24 bytes per packet for preamble, checksum and gap.
    pub used_bits_per_second: f64,
    /// The service's part of `used_bits_per_second`, by its part of the packets.
    #[serde(default)]
    pub own_bits_per_second: f64,
}

/// The CPU quota of a control group (`cpu.max`).
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct QuotaDemand {
    pub cgroup: String,
    /// CPUs' worth of time for all its processes.
    pub cpus: f64,
    /// The part of all datagrams that its processes read.
    pub read_share: f64,
}

/// The resource that ends a service's growth.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum LimitingResource {
    /// One thread, alone on its CPU or free to choose one.
    Thread {
        tid: u32,
        comm: String,
    },
    /// A CPU that both receives packets and runs threads of the service.
    Cpu {
        cpu: u32,
    },
    /// The softirq of a CPU.
    Softirq {
        cpu: u32,
    },
    /// All CPUs that the service may use.
    AllCpus,
    /// The receive buffer of one socket: too small for the pauses of its reader.
    ReceiveBuffer {
        bytes: u64,
    },
    Link {
        interface: String,
    },
    /// The quota of a control group.
    CpuQuota {
        cgroup: String,
    },
}

/// The rate at which a resource would be used up.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CapacityLimit {
    pub resource: LimitingResource,
    pub per_second: f64,
    /// 90 % interval.
    pub low_per_second: f64,
    pub high_per_second: f64,
    /// The present rate as a share of it.
    pub used_share: f64,
    /// The parts of the time; empty if there is only one.
    pub parts: String,
}

/// A change of the host or server, and the limit that the same model gives with it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RemedyGain {
    pub remedy: Remedy,
    pub per_second: f64,
    /// In multiples of the limit now.
    pub gain_ratio: f64,
    pub next_limit: LimitingResource,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Remedy {
    /// A worker on each CPU, and each datagram read on the CPU where it came.
    Boost,
    /// Softirqs over all CPUs (RSS or RPS), threads as they are.
    SpreadSoftirqs,
    /// The reading threads on other CPUs than the softirqs.
    SeparateThreads,
    /// A receive buffer that holds the datagrams of the longest pause.
    LargerBuffer,
}

impl Remedy {
    const ALL: [Self; 4] = [Self::Boost, Self::SpreadSoftirqs, Self::SeparateThreads, Self::LargerBuffer];

    fn obstacle(self) -> &'static str {
        match self {
            Self::SeparateThreads => {
                "packets of the service arrive on every CPU, so no CPU is left for its threads"
            }
            _ => "no CPU time of the service was seen",
        }
    }
}

/// The limits after a change, the lowest rate first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ChangedLimits {
    pub remedy: Remedy,
    /// Unknown if the change is not possible.
    pub limits: Known<Vec<CapacityLimit>>,
}

/// A rate that one resource can serve, and its relative standard error.
struct ResourceRate {
    resource: LimitingResource,
    per_second: f64,
    /// The part of `per_second` that is left if programs of a lower priority do not give way.
    sure_part: f64,
    error: f64,
    parts: String,
}

/// Time per datagram of the service, ns, and its variance.
#[derive(Debug, Clone, Copy, Default)]
struct Demand {
    ns: f64,
    variance: f64,
}

impl Demand {
    fn from_cost(cost: Option<&BatchCost>, share: f64) -> Self {
        cost.map_or_else(Self::default, |cost| Self {
            ns: cost.packet_ns * share,
            variance: (cost.error_ns * share).powi(2),
        })
    }

    fn part(self, share: f64) -> Self {
        Self { ns: self.ns * share, variance: self.variance * share.powi(2) }
    }

    fn plus(self, other: Self) -> Self {
        Self { ns: self.ns + other.ns, variance: self.variance + other.variance }
    }

    // `cpus`: the number of available CPUs, and the number that is surely available.
    fn rate(self, resource: LimitingResource, cpus: [f64; 2], parts: String) -> Option<ResourceRate> {
        let error = (self.variance / self.ns.powi(2) + MODEL_ERROR.powi(2)).sqrt();
        let [cpus, sure_cpus] = cpus;
        (self.ns > 0.0 && cpus > 0.0).then(|| ResourceRate {
            resource,
            per_second: cpus * 1e9 / self.ns * FULL_LOAD_GAIN,
            sure_part: sure_cpus / cpus,
            error,
            parts,
        })
    }
}

impl LinkDemand {
    /// How many times its traffic the service can have while other traffic stays as it is.
    pub(super) fn growth(&self) -> f64 {
        let own = self.own_bits_per_second.max(1.0);
        ((self.bits_per_second - self.used_bits_per_second) / own).max(0.0) + 1.0
    }

    fn rate(&self, read_per_second: f64) -> ResourceRate {
        let own_share = self.own_bits_per_second / self.used_bits_per_second.max(1.0);
        let parts = format!(
            "{:.0} % of the packets are the service's; other traffic stays as it is",
            own_share * 100.0
        );
        let is_own = own_share > NEARLY_ALL;
        ResourceRate {
            resource: LimitingResource::Link { interface: self.interface.clone() },
            per_second: read_per_second * self.growth(),
            sure_part: 1.0,
            error: if is_own { 0.01 } else { MODEL_ERROR },
            parts: if is_own { String::new() } else { parts },
        }
    }
}

impl CpuDemand {
    /// The larger part of the datagrams that came here or were read here.
    pub(super) fn datagram_share(&self) -> f64 {
        self.arrival_share.max(self.read_share)
    }

    /// The share of the CPU that is left for the service.
    fn available(&self) -> f64 {
        (1.0 - (self.other_use - self.yielding_use).max(0.0) - self.steal).max(0.0)
    }

    /// Like `available`, if no program gives way.
    fn surely_available(&self) -> f64 {
        (self.available() - self.yielding_use).max(0.0)
    }

    fn softirq_demand(&self) -> Demand {
        Demand::from_cost(self.softirq.as_ref(), self.arrival_share)
    }

    fn service_demand(&self) -> Demand {
        Demand::from_cost(self.service.as_ref(), self.read_share)
    }
}

impl ThreadDemand {
    /// The CPU of a thread that may run on one CPU only.
    fn only_cpu(&self) -> Option<u32> {
        let cpus = self.allowed_cpus.value()?;
        cpus.iter().next().filter(|_| cpus.len() == 1)
    }
}

impl ServiceDemand {
    /// The limits, the lowest rate first.
    #[must_use]
    pub fn limits(&self) -> Vec<CapacityLimit> {
        let links = self.links.iter().map(|link| link.rate(self.read_per_second));
        let rates = self.cpu_rates().into_iter().chain(self.thread_rates()).chain(self.pool_rate());
        let rates = rates.chain(self.quota_rates()).chain(links);
        let mut limits: Vec<CapacityLimit> = rates.map(|rate| self.limit(rate)).collect();
        limits.extend(self.buffer_limit());
        limits.sort_by(|left, right| left.per_second.total_cmp(&right.per_second));
        limits
    }

    fn limit(&self, rate: ResourceRate) -> CapacityLimit {
        let ResourceRate { resource, per_second, sure_part, error, parts } = rate;
        let factor = (NINETY_PERCENT * error).exp();
        CapacityLimit {
            resource,
            per_second,
            low_per_second: per_second / factor * sure_part,
            high_per_second: per_second * factor,
            used_share: self.read_per_second / per_second,
            parts,
        }
    }

    /// CPUs with more than this share of the datagrams, or with many CPUs more than this part of the mean.
    pub(super) fn serving_cpus(&self, share: f64, part_of_mean: f64) -> impl Iterator<Item = &CpuDemand> {
        let count = self.cpus.iter().filter(|cpu| cpu.datagram_share() > 0.0).count();
        let least = share.min(part_of_mean / count.max(1) as f64);
        self.cpus.iter().filter(move |cpu| cpu.datagram_share() > least)
    }

    /// CPUs whose share of the datagrams is large enough for a limit.
    fn limiting_cpus(&self) -> impl Iterator<Item = &CpuDemand> {
        self.serving_cpus(0.01, 0.1)
    }

    fn threads_only_on(&self, cpu: u32) -> Vec<&ThreadDemand> {
        self.threads.iter().filter(|thread| thread.only_cpu() == Some(cpu)).collect()
    }

    /// A CPU whose time other programs take from threads that may run only there.
    pub(super) fn exhausted_cpu(&self) -> Option<&CpuDemand> {
        let is_exhausted =
            |cpu: &&CpuDemand| cpu.available() == 0.0 && !self.threads_only_on(cpu.cpu).is_empty();
        self.limiting_cpus().find(is_exhausted)
    }

    fn cpu_rates(&self) -> Vec<ResourceRate> {
        let cpu_rate = |cpu: &CpuDemand| {
            let pinned = self.threads_only_on(cpu.cpu);
            let softirq = cpu.softirq_demand();
            let service = if pinned.is_empty() { Demand::default() } else { cpu.service_demand() };
            let total = softirq.plus(service);
            let softirq_share = softirq.ns / total.ns;
            let threads = match pinned.as_slice() {
                [thread] => format!("thread {}", thread.comm),
                threads => format!("{} threads", threads.len()),
            };
            let parts = format!(
                "{:.0} % {threads}, {:.0} % softirqs",
                (1.0 - softirq_share) * 100.0,
                softirq_share * 100.0
            );
            let (resource, parts) = match pinned.as_slice() {
                _ if softirq_share > NEARLY_ALL => {
                    (LimitingResource::Softirq { cpu: cpu.cpu }, String::new())
                }
                [thread] if softirq_share < 1.0 - NEARLY_ALL => (thread.resource(), String::new()),
                _ => (LimitingResource::Cpu { cpu: cpu.cpu }, parts),
            };
            // Softirqs preempt the threads of other programs.
            let available = match pinned.as_slice() {
                [] => [(1.0 - cpu.steal).max(0.0); 2],
                _ => [cpu.available(), cpu.surely_available()],
            };
            total.rate(resource, available, parts)
        };
        self.limiting_cpus().filter_map(cpu_rate).collect()
    }

    // Threads that may run on several CPUs: each can use one CPU at most.
    fn thread_rates(&self) -> impl Iterator<Item = ResourceRate> {
        let floating = self.threads.iter().filter(|thread| thread.only_cpu().is_none());
        floating.filter_map(|thread| {
            Demand::from_cost(Some(&thread.cost), thread.read_share).rate(
                thread.resource(),
                [1.0; 2],
                String::new(),
            )
        })
    }

    // All CPUs together, if a thread may run on several CPUs.
    fn pool_rate(&self) -> Option<ResourceRate> {
        let has_floating = self.threads.iter().any(|thread| thread.only_cpu().is_none());
        let may_run = |cpu: &&CpuDemand| {
            let allows = |thread: &ThreadDemand| {
                thread.allowed_cpus.value().is_none_or(|allowed| allowed.contains(cpu.cpu))
            };
            cpu.arrival_share > 0.0 || self.threads.iter().any(allows)
        };
        let sum = |figure: fn(&CpuDemand) -> f64| self.cpus.iter().filter(may_run).map(figure).sum();
        let available = [sum(CpuDemand::available), sum(CpuDemand::surely_available)];
        has_floating
            .then(|| self.total_demand().rate(LimitingResource::AllCpus, available, String::new()))
            .flatten()
    }

    fn quota_rates(&self) -> impl Iterator<Item = ResourceRate> {
        let service = self.cpus.iter().map(CpuDemand::service_demand).fold(Demand::default(), Demand::plus);
        self.quotas.iter().filter_map(move |quota| {
            let resource = LimitingResource::CpuQuota { cgroup: quota.cgroup.clone() };
            let parts = format!("{} CPUs", quota.cpus);
            service.part(quota.read_share).rate(resource, [quota.cpus; 2], parts)
        })
    }

    /// Softirqs and threads of all CPUs.
    fn total_demand(&self) -> Demand {
        let demands = self.cpus.iter().map(|cpu| cpu.softirq_demand().plus(cpu.service_demand()));
        demands.fold(Demand::default(), Demand::plus)
    }

    // If more datagrams arrive in a pause of the reader than the buffer holds, the buffer
    // overflows. A datagram that now waits longer than the buffer takes to fill up at a higher rate
    // would be lost at that rate.
    fn buffer_limit(&self) -> Option<CapacityLimit> {
        let buffer = self.buffer.value()?;
        let rate = |wait_ns: f64| buffer.packets / buffer.share / wait_ns.max(1.0) * 1e9;
        let [usual, short, long] = buffer.wait_ns.map(rate);
        let factor = (NINETY_PERCENT * MODEL_ERROR).exp();
        Some(CapacityLimit {
            resource: LimitingResource::ReceiveBuffer { bytes: buffer.bytes },
            per_second: usual,
            low_per_second: short.min(long) / factor,
            high_per_second: short.max(long) * factor,
            used_share: self.read_per_second / usual,
            parts: format!("holds {:.0} datagrams", buffer.packets),
        })
    }

    /// Whether the limit by the buffer is below the present rate.
    pub(super) fn is_beyond_buffer(&self) -> bool {
        self.buffer_limit().is_some_and(|limit| limit.per_second < self.read_per_second)
    }

    /// Gains of possible changes, the largest first; without gains below 5 %.
    #[must_use]
    pub fn remedies(&self) -> Vec<RemedyGain> {
        let Some(current_rate) = self.limits().first().map(|limit| limit.per_second) else {
            return Vec::new();
        };
        let gains = Remedy::ALL.into_iter().filter_map(|remedy| {
            let lowest = self.with_remedy(remedy)?.limits().into_iter().next()?;
            let gain_ratio = lowest.per_second / current_rate;
            (gain_ratio > 1.05).then_some(RemedyGain {
                remedy,
                per_second: lowest.per_second,
                gain_ratio,
                next_limit: lowest.resource,
            })
        });
        let mut gains: Vec<RemedyGain> = gains.collect();
        gains.sort_by(|left, right| right.gain_ratio.total_cmp(&left.gain_ratio));
        gains
    }

    /// The demand after a change; `None` if the change is not possible.
    fn with_remedy(&self, remedy: Remedy) -> Option<Self> {
        match remedy {
            Remedy::Boost => self.boosted(),
            Remedy::SpreadSoftirqs => self.with_spread_softirqs(),
            Remedy::SeparateThreads => self.with_threads_apart(),
            Remedy::LargerBuffer => Some(Self { buffer: Known::default(), ..self.clone() }),
        }
    }

    /// The limits after each of these changes alone.
    #[must_use]
    pub fn what_if(&self, remedies: &[Remedy]) -> Vec<ChangedLimits> {
        let changes = remedies.iter().map(|&remedy| {
            let limits = self.with_remedy(remedy).map(|changed| changed.limits());
            let limits = limits.map_or_else(|| Known::unknown(remedy.obstacle()), Known::Value);
            ChangedLimits { remedy, limits }
        });
        changes.collect()
    }

    fn average(&self, cost: impl Fn(&CpuDemand) -> (Option<BatchCost>, f64)) -> Option<BatchCost> {
        let costs: Vec<(BatchCost, f64)> = self
            .cpus
            .iter()
            .filter_map(|cpu| {
                let (cost, share) = cost(cpu);
                Some((cost?, share))
            })
            .collect();
        let total_share: f64 = costs.iter().map(|(_, share)| share).sum();
        let mean = |figure: fn(&BatchCost) -> f64| {
            costs.iter().map(|(cost, share)| figure(cost) * share).sum::<f64>() / total_share
        };
        (total_share > 0.0).then(|| BatchCost {
            packet_ns: mean(|cost| cost.packet_ns),
            error_ns: mean(|cost| cost.error_ns),
            ..BatchCost::default()
        })
    }

    fn boosted(&self) -> Option<Self> {
        let share = 1.0 / self.cpus.len() as f64;
        let softirq = self.average(|cpu| (cpu.softirq, cpu.arrival_share))?;
        let service = self.average(|cpu| (cpu.service, cpu.read_share))?;
        let thread = self.threads.first()?;
        let boosted_cpu = |cpu: &CpuDemand| {
            let cpu = CpuDemand {
                arrival_share: share,
                read_share: share,
                softirq: Some(softirq),
                service: Some(service),
                ..cpu.clone()
            };
            let allowed_cpus = Known::Value(std::iter::once(cpu.cpu).collect());
            let thread = ThreadDemand { allowed_cpus, read_share: share, ..thread.clone() };
            (cpu, thread)
        };
        let (cpus, threads) = self.cpus.iter().map(boosted_cpu).unzip();
        let buffer =
            self.buffer.clone().map(|buffer| BufferDemand { share: share.min(buffer.share), ..buffer });
        Some(Self { cpus, threads, buffer, ..self.clone() })
    }

    fn with_spread_softirqs(&self) -> Option<Self> {
        let softirq = self.average(|cpu| (cpu.softirq, cpu.arrival_share))?;
        let arrival_share = 1.0 / self.cpus.len() as f64;
        let cpus = self.cpus.iter();
        let cpus =
            cpus.map(|cpu| CpuDemand { arrival_share, softirq: Some(softirq), ..cpu.clone() }).collect();
        Some(Self { cpus, ..self.clone() })
    }

    // The demand with all threads on CPUs that no datagram comes to; `None` without such CPUs.
    fn with_threads_apart(&self) -> Option<Self> {
        let service = self.average(|cpu| (cpu.service, cpu.read_share))?;
        let is_free = |cpu: &CpuDemand| cpu.arrival_share == 0.0;
        let free_cpus: Vec<u32> = self.cpus.iter().filter(|cpu| is_free(cpu)).map(|cpu| cpu.cpu).collect();
        // One thread cannot be divided.
        let used_cpus = &free_cpus[..free_cpus.len().min(self.threads.len())];
        let share = 1.0 / used_cpus.len().max(1) as f64;
        let cpus = self.cpus.iter().map(|cpu| {
            let read_share = if used_cpus.contains(&cpu.cpu) { share } else { 0.0 };
            CpuDemand { read_share, service: Some(service), ..cpu.clone() }
        });
        let threads = self.threads.iter().zip(used_cpus.iter().cycle()).map(|(thread, cpu)| {
            let allowed_cpus = Known::Value(std::iter::once(*cpu).collect());
            ThreadDemand { allowed_cpus, ..thread.clone() }
        });
        (!used_cpus.is_empty()).then(|| Self {
            cpus: cpus.collect(),
            threads: threads.collect(),
            ..self.clone()
        })
    }
}

impl ThreadDemand {
    fn resource(&self) -> LimitingResource {
        LimitingResource::Thread { tid: self.tid, comm: self.comm.clone() }
    }
}
