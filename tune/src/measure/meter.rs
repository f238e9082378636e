//! Reads the counters of a service at the ends of samples.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use linerate_host::counter_sample::{CounterSample, SampleReader};
use linerate_host::delivery::{DeliveryWatch, FlowWatch, WaitCounts};
use linerate_host::stage::socket::SocketProtocol;
use linerate_host::{Host, HostError, PacketPath};
use serde::{Deserialize, Serialize};

use super::ServiceSample;

// The programs of bpf/delivery.bpf.c count this many ports at most.
const MOST_PORTS: usize = 16;
// Fewer times have no 99th percentile.
const ENOUGH_TIMES: u64 = 100;

/// The service that is measured: UDP sockets by port, and processes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeasuredService {
    pub ports: Vec<u16>,
    pub pids: Vec<u32>,
}

#[derive(Debug, thiserror::Error)]
pub enum MeterError {
    #[error("no UDP service listens here")]
    NoService,
    #[error("{count} UDP ports are served, and at most {MOST_PORTS} can be measured: name one with --port")]
    ManyPorts { count: usize },
    #[error(transparent)]
    Host(#[from] HostError),
}

impl MeasuredService {
    /// The UDP services of an observed packet path. Ephemeral ports that the scope does not name count
    /// only if there is no other service: `--plan` and `tune flow` name no port.
    pub fn of(path: &PacketPath) -> Self {
        let (mut ports, mut pids) = (BTreeSet::new(), BTreeSet::new());
        let all = path.socket.services.value().into_iter().flatten();
        let all = all.filter(|service| service.protocol == SocketProtocol::Udp);
        let has_others = path.socket.udp_services().next().is_some();
        for service in all.filter(|service| !has_others || !path.socket.is_ephemeral(service)) {
            ports.insert(service.local.port());
            pids.extend(service.processes.value().into_iter().flatten().map(|owner| owner.pid));
        }
        Self { ports: ports.into_iter().collect(), pids: pids.into_iter().collect() }
    }
}

/// Counts until it is dropped.
#[derive(Debug)]
pub struct ServiceMeter<'a> {
    host: &'a Host,
    service: MeasuredService,
    watch: DeliveryWatch,
    clients: FlowWatch,
    reader: SampleReader,
}

struct ServiceCounters {
    at: Instant,
    arrived: u64,
    read: u64,
    sent: u64,
    buffer_drops: u64,
    waits: WaitCounts,
    replies: WaitCounts,
    /// By CPU, ns.
    softirqs: Vec<u64>,
    /// By process and thread.
    threads: BTreeMap<(u32, u32), u64>,
    stages: CounterSample,
}

impl<'a> ServiceMeter<'a> {
    /// # Errors
    /// [`MeterError::NoService`], [`MeterError::ManyPorts`]; [`MeterError::Host`] if the kernel does not run the
    /// programs (Linux 6.3 with BTF, CAP_BPF, CAP_PERFMON).
    pub fn start(host: &'a Host, path: &PacketPath, service: MeasuredService) -> Result<Self, MeterError> {
        match service.ports.len() {
            0 => return Err(MeterError::NoService),
            count if count > MOST_PORTS => return Err(MeterError::ManyPorts { count }),
            _ => {}
        }
        let watch = DeliveryWatch::start_with_waits_and_softirqs(host, &service.ports)?;
        let clients = FlowWatch::start_with_times(host, &service.ports)?;
        Ok(Self { host, service, watch, clients, reader: SampleReader::new(path) })
    }

    pub fn service(&self) -> &MeasuredService {
        &self.service
    }

    /// Takes a sample of this length, for whose rest `wait` waits.
    pub fn sample(
        &mut self,
        length: Duration,
        wait: impl FnOnce(Duration),
    ) -> Result<ServiceSample, MeterError> {
        let before = self.counters()?;
        wait(length.saturating_sub(before.at.elapsed()));
        Ok(self.counters()?.since(&before))
    }

    fn counters(&mut self) -> Result<ServiceCounters, MeterError> {
        let delivered = self.watch.read()?;
        let at = Instant::now();
        let sum = |counts: &mut dyn Iterator<Item = u64>| counts.sum();
        Ok(ServiceCounters {
            at,
            arrived: sum(&mut delivered.arrived.iter().map(|item| item.packets)),
            read: sum(&mut delivered.read.iter().map(|item| item.packets)),
            sent: sum(&mut delivered.sent.iter().map(|item| item.packets)),
            buffer_drops: sum(&mut delivered.arrived.iter().map(|item| item.refused)),
            waits: self.watch.waits()?,
            replies: self.clients.reply_times()?,
            softirqs: self.watch.softirq_times()?,
            threads: self.service.pids.iter().flat_map(|pid| run_times(self.host, *pid)).collect(),
            stages: self.reader.read(self.host),
        })
    }
}

// Time on a CPU of each thread of a process, ns: the first number of `schedstat`.
fn run_times(host: &Host, pid: u32) -> Vec<((u32, u32), u64)> {
    let tasks = format!("/proc/{pid}/task");
    let time = |tid: u32| {
        let text = host.read(&format!("{tasks}/{tid}/schedstat")).ok()?;
        Some(((pid, tid), text.split_whitespace().next()?.parse().ok()?))
    };
    host.list_numbers(&tasks, "").unwrap_or_default().into_iter().filter_map(time).collect()
}

impl ServiceCounters {
    fn since(&self, before: &Self) -> ServiceSample {
        let (waits, replies) = (self.waits.since(&before.waits), self.replies.since(&before.replies));
        let quantile = |times: &WaitCounts, share| {
            (times.count() >= ENOUGH_TIMES).then(|| times.quantile_ns(share)).flatten()
        };
        let softirqs = self.softirqs.iter().zip(&before.softirqs).map(|(now, before)| now - before);
        ServiceSample {
            seconds: self.at.duration_since(before.at).as_secs_f64(),
            arrived: self.arrived - before.arrived,
            read: self.read - before.read,
            sent: self.sent - before.sent,
            buffer_drops: self.buffer_drops - before.buffer_drops,
            stage_drops: stage_drops(&before.stages, &self.stages),
            wait_p50_ns: quantile(&waits, 0.5),
            wait_p99_ns: quantile(&waits, 0.99),
            reply_p50_ns: quantile(&replies, 0.5),
            reply_p99_ns: quantile(&replies, 0.99),
            service_cpu_ns: self.service_time(before),
            softirq_cpu_ns: softirqs.clone().sum(),
            highest_softirq_cpu_ns: softirqs.max().unwrap_or_default(),
        }
    }

    /// A thread that began meanwhile counts from zero.
    fn service_time(&self, before: &Self) -> Option<u64> {
        if self.threads.is_empty() || before.threads.keys().any(|thread| !self.threads.contains_key(thread)) {
            return None;
        }
        let run_time = |(thread, now): (&(u32, u32), &u64)| now - before.threads.get(thread).unwrap_or(&0);
        Some(self.threads.iter().map(run_time).sum())
    }
}

/// Losses before a socket.
fn stage_drops(before: &CounterSample, now: &CounterSample) -> u64 {
    let backlog_drops = |sample: &CounterSample| -> u64 {
        sample.softnet.value().into_iter().flatten().map(|cpu| cpu.dropped).sum()
    };
    let link_drops = now.interfaces.iter().filter_map(|interface| {
        let earlier = before.interfaces.iter().find(|item| item.interface == interface.interface)?;
        interface.lost_since(earlier)
    });
    backlog_drops(now).saturating_sub(backlog_drops(before)) + link_drops.sum::<u64>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use linerate_host::Scope;

    #[test]
    fn queries_of_a_resolver_are_not_measured_as_services() {
        let sockets = r#"[{"local": "10.0.0.1:53", "inode": 700}, {"local": "0.0.0.0:40000", "inode": 701}]"#;
        let host = Host::scripted([("/calls/sock_diag/udp4.json", sockets)]);
        let ports = |scope| MeasuredService::of(&PacketPath::observe(&host, &scope)).ports;
        assert_eq!(ports(Scope::default()), [53]);
        assert_eq!(ports(Scope { port: Some(40_000), ..Scope::default() }), [40_000]);
    }

    #[test]
    fn a_packet_that_a_full_backlog_dropped_is_counted_once() {
        let sample = |backlog: u32, missed: u32| {
            // The kernel adds the drops of a backlog to the interface's rx_dropped.
            let softnet = format!("00000100 {backlog:08x} {}\n", "00000000 ".repeat(11));
            let files = [
                ("/sys/class/net/eth0/ifindex", "2\n".to_owned()),
                ("/sys/class/net/eth0/statistics/rx_dropped", format!("{backlog}\n")),
                ("/sys/class/net/eth0/statistics/rx_missed_errors", format!("{missed}\n")),
                ("/proc/net/softnet_stat", softnet),
            ];
            let host = Host::scripted(files);
            let scope = Scope { interfaces: vec!["eth0".into()], ..Scope::default() };
            SampleReader::new(&PacketPath::observe(&host, &scope)).read(&host)
        };
        assert_eq!(stage_drops(&sample(5, 2), &sample(15, 6)), 14);
    }
}
