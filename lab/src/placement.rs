//! Measures how many packets per second one thread receives, by the position of its CPU relative to
//! the CPU that processes the packets.

#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use linerate_engine::RunningServer;
use linerate_host::setting::QueueDirection;
use linerate_host::stage::machine::MachineState;
use linerate_host::{CpuSet, Host, Known, Setting, SettingValue, stats};
use linerate_load::generator::GeneratorOptions;
use linerate_load::{Generator, GeneratorDescription, LoadSlot, LoadWorkload, PacingMode};
use linerate_services::sink::SinkService;
use linerate_services::start::StartService;
use serde::{Deserialize, Serialize};

use crate::Lab;
use crate::ladder::config::{LadderConfig, RunTiming};
use crate::ladder::configuration::ServerConfiguration;
use crate::ladder::error::TestbedError;
use crate::ladder::lab_testbed::{CpuPlacement, setup};
use crate::ladder::read_count::ReadCountGenerator;
use crate::ladder::report::{RateEstimate, VersusPrevious};
use crate::ladder::{sampler, server, summary};
use crate::paths::cost::{self, TRACED_LOAD};
use crate::paths::report::{CostContext, PathCost};

const PORT: u16 = 7777;
/// Flood before each sample, after the receiver has moved.
const LEAD: Duration = Duration::from_millis(100);
const SAMPLE: Duration = Duration::from_millis(400);
/// Longest wait for packets in the receive buffer after a flood.
const DRAIN: Duration = Duration::from_millis(50);

/// Where the receiver's thread runs, seen from the CPU that processes its packets.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, strum::IntoStaticStr,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum ReceiverPlacement {
    SameCpu,
    /// Another hardware thread of its core.
    SmtSibling,
    /// Another core of its NUMA node.
    OtherCore,
    OtherNode,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct PlacementConfig {
    /// UDP payload of a packet.
    pub payload_bytes: u32,
    /// Samples of each placement, each next to one of the first; an even number, at least 4.
    pub samples: u32,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PlacementComparison {
    pub elapsed_seconds: f64,
    pub config: PlacementConfig,
    /// The CPU whose softirqs process the packets.
    pub packets_cpu: u32,
    /// The CPU that sends; the same one if no other is left.
    pub sender_cpu: u32,
    pub generator: GeneratorDescription,
    /// The others are compared with the first.
    pub placements: Vec<PlacementResult>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PlacementResult {
    pub placement: ReceiverPlacement,
    /// The receiver's CPU; `None` if it was skipped.
    pub receiver_cpu: Option<u32>,
    /// Why it was not measured; `None` if it was.
    pub skipped_because: Option<String>,
    /// Packets that the receiver read while more were sent than it could read.
    pub packets_per_second: Option<RateEstimate>,
    /// Share of the packets sent that the receiver did not read. Without losses the sender was the limit.
    pub lost_ratio: Option<f64>,
    /// The rate as a multiple of that of the first, alternated.
    pub versus_first: Option<VersusPrevious>,
    pub cost: Known<PlacementCost>,
}

/// CPU time per packet that was read.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct PlacementCost {
    pub receiver_ns_per_packet: f64,
    /// Interrupts and softirqs, with the packets that were lost.
    pub softirq_ns_per_packet: f64,
}

impl ReceiverPlacement {
    pub const ALL: [Self; 4] = [Self::SameCpu, Self::SmtSibling, Self::OtherCore, Self::OtherNode];

    /// The name in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// The CPUs of packets, sender and receivers.
#[derive(Debug, PartialEq, Eq)]
struct PlacementCpus {
    packets: u32,
    sender: u32,
    /// The CPU of each placement, or why there is none.
    receivers: [(ReceiverPlacement, Result<u32, String>); 4],
}

impl PlacementCpus {
    /// `cpus` are the CPUs that may be used, at least one CPU.
    fn choose(machine: &MachineState, cpus: &[u32]) -> Self {
        let packet_cpu = cpus[0];
        let shares_core = |first_cpu: u32, second_cpu: u32| {
            machine.siblings_of(first_cpu).is_some_and(|core| core.contains(second_cpu))
        };
        let shares_node = |first_cpu, second_cpu| machine.node_of(first_cpu) == machine.node_of(second_cpu);
        let find_cpu = |accepts: &dyn Fn(u32) -> bool, why: String| {
            cpus.iter().copied().find(|cpu| *cpu != packet_cpu && accepts(*cpu)).ok_or(why)
        };
        let receivers = ReceiverPlacement::ALL.map(|placement| {
            let receiver_cpu = match placement {
                ReceiverPlacement::SameCpu => Ok(packet_cpu),
                ReceiverPlacement::SmtSibling | ReceiverPlacement::OtherCore
                    if let Some(why) = machine.cores.why() =>
                {
                    Err(format!("which CPUs share a core is unknown: {why}"))
                }
                ReceiverPlacement::OtherNode if let Some(why) = machine.nodes.why() => {
                    Err(format!("which CPUs share a NUMA node is unknown: {why}"))
                }
                ReceiverPlacement::SmtSibling => find_cpu(
                    &|cpu| shares_core(packet_cpu, cpu),
                    format!("the core of CPU {packet_cpu} has no other hardware thread that may be used"),
                ),
                ReceiverPlacement::OtherCore => find_cpu(
                    &|cpu| !shares_core(packet_cpu, cpu) && shares_node(packet_cpu, cpu),
                    format!("the NUMA node of CPU {packet_cpu} has no other core that may be used"),
                ),
                ReceiverPlacement::OtherNode => find_cpu(
                    &|cpu| !shares_node(packet_cpu, cpu),
                    "no CPU of another NUMA node may be used".to_owned(),
                ),
            };
            (placement, receiver_cpu)
        });
        let used_cpus: Vec<u32> =
            receivers.iter().filter_map(|(_, cpu)| cpu.as_ref().ok()).copied().collect();
        // A hardware thread next to a measured thread uses part of its core.
        let disturbs = |cpu: u32| used_cpus.iter().any(|used_cpu| shares_core(*used_cpu, cpu));
        let free_cpus = cpus.iter().copied().filter(|cpu| !used_cpus.contains(cpu));
        let sender = free_cpus.min_by_key(|cpu| (disturbs(*cpu), !shares_node(packet_cpu, *cpu)));
        Self { packets: packet_cpu, sender: sender.unwrap_or(packet_cpu), receivers }
    }
}

/// One sample of a placement.
#[derive(Debug, Clone, Copy)]
struct PlacementSample {
    packets_per_second: f64,
    lost_ratio: f64,
}

struct PlacementLab {
    // In the order of dropping: server and generator live in the hosts of the lab.
    server: Option<RunningServer>,
    generator: Box<dyn Generator>,
    lab: Lab,
    address: SocketAddr,
    payload_bytes: usize,
}

/// Measures each placement that this machine has, in a lab. Requires root. `on_sample` is called with the packets per
/// second of each sample.
///
/// # Errors
/// If the lab cannot be made, or the run is cancelled before the first sample. Later, the rest is
/// reported as interrupted.
pub fn run(
    config: &PlacementConfig,
    cancel: &Arc<AtomicBool>,
    on_sample: &mut dyn FnMut(ReceiverPlacement, f64),
) -> Result<PlacementComparison, TestbedError> {
    let started = Instant::now();
    let mut ladder = LadderConfig::new(Vec::new(), RunTiming::LAB);
    ladder.resolve_cpus()?;
    let cpus = PlacementCpus::choose(&MachineState::observe(&Host::live()), &ladder.cpus);
    let mut lab = PlacementLab::start(config, &cpus, cancel)?;
    let [(placement, receiver), other_receivers @ ..] = &cpus.receivers;
    let mut first = PlacementResult::new(*placement, receiver);
    let mut first_samples = Vec::new();
    let mut results: Vec<PlacementResult> = Vec::new();
    for (placement, receiver) in other_receivers {
        let mut result = PlacementResult::new(*placement, receiver);
        if let Ok(cpu) = receiver {
            let (mut own_samples, mut baseline_samples) = (Vec::new(), Vec::new());
            let mut alternate = || -> Result<(), TestbedError> {
                for _ in 0..config.samples.div_ceil(2) {
                    for is_first in [true, false, false, true] {
                        let (sampled_placement, cpu, samples) = match is_first {
                            true => (ReceiverPlacement::SameCpu, cpus.packets, &mut baseline_samples),
                            false => (*placement, *cpu, &mut own_samples),
                        };
                        let sample = lab.sample(cpu)?;
                        samples.push(sample);
                        on_sample(sampled_placement, sample.packets_per_second);
                    }
                }
                Ok(())
            };
            match alternate() {
                Err(TestbedError::Cancelled) if own_samples.is_empty() => {
                    result.skipped_because = Some(TestbedError::Cancelled.to_string());
                }
                Ok(()) | Err(TestbedError::Cancelled) => {}
                Err(error) => return Err(error),
            }
            result.fill(&own_samples);
            let comparison = stats::compare(&rates(&baseline_samples), &rates(&own_samples)).ok();
            result.versus_first =
                comparison.map(|ratio| summary::versus(ReceiverPlacement::SameCpu.name(), &ratio));
            first_samples.extend(baseline_samples);
        }
        results.push(result);
    }
    while first_samples.len() < config.samples as usize {
        match lab.sample(cpus.packets) {
            Ok(sample) => first_samples.push(sample),
            Err(TestbedError::Cancelled) if !first_samples.is_empty() => break,
            Err(error) => return Err(error),
        }
    }
    first.fill(&first_samples);
    results.insert(0, first);
    for result in &mut results {
        if let Some(cpu) = result.receiver_cpu {
            result.cost = match lab.cost(cpu) {
                Err(error @ TestbedError::Cancelled) => Known::unknown(error.to_string()),
                cost => cost?,
            };
        }
    }
    Ok(PlacementComparison {
        elapsed_seconds: started.elapsed().as_secs_f64(),
        config: *config,
        packets_cpu: cpus.packets,
        sender_cpu: cpus.sender,
        generator: lab.generator.describe(),
        placements: results,
    })
}

impl PlacementLab {
    fn start(
        config: &PlacementConfig,
        cpus: &PlacementCpus,
        cancel: &Arc<AtomicBool>,
    ) -> Result<Self, TestbedError> {
        let lab = Lab::builder().queues(1).start()?;
        let link = lab.links()[0].clone();
        let (receiver, sender) = (lab.receiver(), &lab.senders()[0]);
        let sender_placement =
            CpuPlacement { server: vec![cpus.packets], generator: vec![cpus.sender], shared: false };
        // With one queue XPS has nothing to choose between.
        setup::set_sender(&lab, &link, &sender_placement, true, false)?;
        if cpus.sender != cpus.packets {
            // A packet of a veth pair is processed on the CPU that sent it unless RPS moves it.
            let host = Host::live_with_sys(receiver.sys_path()?);
            let direction = QueueDirection::Receive;
            let rps = Setting::QueueCpus { interface: link.receiver.interface.clone(), direction, queue: 0 };
            let packets: CpuSet = [cpus.packets].into_iter().collect();
            receiver.run(|| rps.write(&host, &SettingValue::new(packets.to_mask())))??;
        }
        let address = SocketAddr::from((link.receiver.ipv4[0], PORT));
        let payload_bytes = config.payload_bytes as usize;
        let options = GeneratorOptions {
            cpus: Some(vec![cpus.sender]),
            flows: 1,
            workload: LoadWorkload::Echo { payload_bytes },
            cancel: Arc::clone(cancel),
            ..GeneratorOptions::new(vec![address])
        };
        let generator = sender.run(|| options.start())??;
        let counters = format!("/proc/self/task/{}/net/snmp", receiver.thread_id());
        let generator = Box::new(ReadCountGenerator::new(generator, counters));
        Ok(Self { server: None, generator, lab, address, payload_bytes })
    }

    /// Moves the receiver to a CPU.
    fn place(&mut self, cpu: u32) -> Result<(), TestbedError> {
        server::stop(&mut self.server)?;
        let configuration =
            ServerConfiguration { pinned: true, batched_calls: true, ..ServerConfiguration::baseline() };
        let builder = server::builder(&configuration, self.address, &[cpu], self.payload_bytes);
        let start_result = self
            .lab
            .receiver()
            .run(|| SinkService::start_server(builder.prepare()?, Box::new(|_| SinkService::default())))?;
        self.server = Some(start_result?);
        sampler::run_whole_slot(&mut *self.generator, &flood(LEAD)).map(drop)
    }

    fn sample(&mut self, cpu: u32) -> Result<PlacementSample, TestbedError> {
        self.place(cpu)?;
        let outcome = sampler::run_whole_slot(&mut *self.generator, &flood(SAMPLE))?;
        Ok(PlacementSample {
            packets_per_second: outcome.answered_per_second,
            lost_ratio: outcome.loss_ratio(),
        })
    }

    fn cost(&mut self, cpu: u32) -> Result<Known<PlacementCost>, TestbedError> {
        self.place(cpu)?;
        let host = Host::live();
        let (outcome, cost_report) =
            sampler::under_load(&mut *self.generator, &flood(TRACED_LOAD), |is_over| {
                cost::trace(&host, is_over)
            })?;
        let cost_report = match cost_report {
            Ok((cost_report, _)) => cost_report,
            Err(why) => return Ok(Known::unknown(why)),
        };
        let receiver = self.lab.receiver();
        let host_of = |namespace| {
            let is_receiver = receiver.namespace_id().inode == u64::from(namespace);
            is_receiver.then(|| receiver.name().to_owned())
        };
        let cost = PathCost::from_trace(&cost_report, outcome.answered_per_second, &cost::owner, &host_of);
        if outcome.answered == 0 || cost.of(CostContext::Service) == 0.0 {
            return Ok(Known::unknown("the receiver had no CPU time while the CPUs were traced"));
        }
        Ok(Known::Value(PlacementCost {
            receiver_ns_per_packet: cost.of(CostContext::Service),
            softirq_ns_per_packet: cost.of(CostContext::Softirq) + cost.of(CostContext::HardIrq),
        }))
    }
}

impl PlacementResult {
    fn new(placement: ReceiverPlacement, receiver: &Result<u32, String>) -> Self {
        Self {
            placement,
            receiver_cpu: receiver.as_ref().ok().copied(),
            skipped_because: receiver.as_ref().err().cloned(),
            packets_per_second: None,
            lost_ratio: None,
            versus_first: None,
            cost: Known::unknown("not measured"),
        }
    }

    fn fill(&mut self, samples: &[PlacementSample]) {
        self.packets_per_second = summary::estimate(&rates(samples));
        self.lost_ratio = stats::median(&samples.iter().map(|sample| sample.lost_ratio).collect::<Vec<_>>());
    }
}

fn flood(duration: Duration) -> LoadSlot {
    LoadSlot { drain: DRAIN, ..LoadSlot::new(PacingMode::Flood, duration) }
}

fn rates(samples: &[PlacementSample]) -> Vec<f64> {
    samples.iter().map(|sample| sample.packets_per_second).collect()
}
