//! The lab as a place to climb: a server on the receiver, a generator on the sender.

mod placement;
mod setup;
mod stock;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use crate::Lab;
use linerate_engine::{Echo, RunningServer};
use linerate_host::stage::machine::CpuTime;
use linerate_host::{Host, Known, Setting, SettingError, SettingValue};
use linerate_load::Generator;
use linerate_load::generator::GeneratorBackend;

use crate::ladder::bench::measuring::SampleMethod;
use crate::ladder::bench::{
    BenchError, OverloadGoodput, PlaceFacts, ReportedTestbed, SampleRequest, StepSample, Testbed, server,
};
use crate::ladder::configuration::ServerConfiguration;
use crate::ladder::report::{LadderWarning, WarningKind};
use crate::ladder::step::{LadderStep, StepRequirement};
use stock::{ReceiverInterface, SettableParts};

pub use placement::CpuPlacement;
pub(crate) use placement::senders;

/// Longest wait for stragglers after a slot.
pub(crate) const DRAIN: Duration = Duration::from_millis(60);
/// Where a search without a hint starts, transactions a second.
pub(crate) const START: f64 = 8_000.0;

/// What to set up.
#[derive(Debug, Clone)]
pub struct LabBenchOptions {
    /// CPUs to use; none are an error.
    pub cpus: Vec<u32>,
    /// Queues of the receiver, if not as many as CPUs.
    pub queues: Option<u32>,
    /// Source ports of the generator.
    pub flows: u32,
    /// UDP payload of a request, bytes.
    pub payload: u32,
    /// The generator's way into the kernel.
    pub backend: GeneratorBackend,
    /// Whether to refuse what would be fragmented.
    pub no_fragment: bool,
    /// How rates are offered and judged.
    pub measuring: SampleMethod,
    /// Whether host-wide settings may be changed.
    pub host_wide: bool,
}

/// A lab that is ready to be climbed in.
pub struct LabBench {
    // In the order of dropping: what lives in the hosts goes before them.
    server: Option<RunningServer>,
    generator: Box<dyn Generator>,
    host: Host,
    options: LabBenchOptions,
    placement: CpuPlacement,
    receiver: ReceiverInterface,
    address: SocketAddr,
    settable: SettableParts,
    refusals: StepRefusals,
    /// Niceness of the server's workers, where they share CPUs with the generator.
    server_nice: Option<i32>,
    applied: BTreeMap<Setting, SettingValue>,
    lab: Lab,
}

/// Why what a step acts on cannot be acted on here.
#[derive(Debug, Clone, Default)]
struct StepRefusals {
    queue_cpus: Option<String>,
    offload: Option<String>,
    netfilter: Option<String>,
    audit: Option<String>,
    busy_poll: Option<String>,
}

impl LabBench {
    /// Writes what differs from what was written last.
    fn apply(&mut self, configuration: &ServerConfiguration) -> Result<(), BenchError> {
        let wanted = stock::settings(&self.receiver, &self.placement, &self.settable, configuration);
        let changed: Vec<(Setting, SettingValue)> =
            wanted.into_iter().filter(|(setting, value)| self.applied.get(setting) != Some(value)).collect();
        if changed.is_empty() {
            return Ok(());
        }
        let host = &self.host;
        let written = self
            .lab
            .receiver()
            .run(|| -> Result<(), SettingError> {
                changed.iter().try_for_each(|(setting, value)| setting.write(host, value))
            })
            .map_err(|error| BenchError::Lab(error.to_string()))?;
        // Where it broke off is not known; the next switch writes these again.
        for (setting, value) in changed {
            match written {
                Ok(()) => self.applied.insert(setting, value),
                Err(_) => self.applied.remove(&setting),
            };
        }
        Ok(written?)
    }

    fn serve(&mut self, configuration: &ServerConfiguration) -> Result<(), BenchError> {
        let mut builder = server::builder(
            configuration,
            self.address,
            &self.placement.server,
            self.options.payload as usize,
        );
        if let Some(nice) = self.server_nice {
            builder = builder.nice(nice);
        }
        let running = self
            .lab
            .receiver()
            .run(|| builder.start(|_| Echo))
            .map_err(|error| BenchError::Lab(error.to_string()))?
            .map_err(|error| BenchError::Server(error.to_string()))?;
        self.server = Some(running);
        Ok(())
    }
}

impl Testbed for LabBench {
    fn refusal(&self, step: &LadderStep) -> Option<String> {
        match step.touches {
            StepRequirement::Server | StepRequirement::Sysctl => None,
            StepRequirement::QueueCpus => self.refusals.queue_cpus.clone(),
            StepRequirement::Offload => self.refusals.offload.clone(),
            StepRequirement::Netfilter => self.refusals.netfilter.clone(),
            StepRequirement::Audit => self.refusals.audit.clone(),
            StepRequirement::BusyPoll => self.refusals.busy_poll.clone(),
        }
    }

    fn describe(&self, configuration: &ServerConfiguration) -> Vec<(String, String)> {
        let settings = stock::settings(&self.receiver, &self.placement, &self.settable, configuration);
        let on_receiver = settings.into_iter().map(|(setting, value)| {
            let value = match (&setting, value.as_str()) {
                (Setting::NftTable { .. }, "") => "absent".to_owned(),
                (Setting::NftTable { .. }, _) => "input chain with connection tracking".to_owned(),
                (_, value) => value.to_owned(),
            };
            (setting.to_string(), value)
        });
        configuration.server_options().into_iter().chain(on_receiver).collect()
    }

    fn switch(&mut self, configuration: &ServerConfiguration) -> Result<(), BenchError> {
        self.options.measuring.go_on()?;
        server::stop(&mut self.server)?;
        self.apply(configuration)?;
        self.serve(configuration)
    }

    fn sample(&mut self, request: &mut SampleRequest<'_>) -> Result<StepSample, BenchError> {
        let fallbacks = server::fallbacks(self.server.as_ref());
        self.options.measuring.sample(&mut *self.generator, request, fallbacks)
    }

    fn overload(&mut self, capacity: f64, factors: &[f64]) -> Result<Vec<OverloadGoodput>, BenchError> {
        self.options.measuring.overload(&mut *self.generator, capacity, factors)
    }

    fn cpu_time(&self) -> Known<CpuTime> {
        CpuTime::observe(&self.host)
    }

    fn warnings(&self, step: &LadderStep, configuration: &ServerConfiguration) -> Vec<LadderWarning> {
        let mut warnings = Vec::new();
        if step.touches == StepRequirement::BusyPoll && !configuration.gro {
            warnings.push(LadderWarning {
                kind: WarningKind::NoEffectExpected,
                detail: "with GRO off a veth interface has no NAPI instance that could be polled".to_owned(),
            });
        }
        warnings
    }
}

impl ReportedTestbed for LabBench {
    fn facts(&self) -> PlaceFacts {
        let generator = self.generator.describe();
        let mut warnings = Vec::new();
        if self.placement.shared {
            warnings.push(LadderWarning {
                kind: WarningKind::SharedCpus,
                detail:
                    "generator and server ran on the same CPUs: rates are what the machine does for both, \
                         not what the server could do alone"
                        .to_owned(),
            });
        }
        warnings.extend(generator.fallbacks.iter().map(|fallback| LadderWarning {
            kind: WarningKind::Fallback,
            detail: format!("generator: {fallback}"),
        }));
        PlaceFacts {
            bench: "lab",
            cpus: self.options.cpus.clone(),
            server_cpus: self.placement.server.clone(),
            queues: self.receiver.queues,
            address: self.address,
            generator: Some(generator),
            generator_hosts: Vec::new(),
            shares_cpus: self.placement.shared,
            warnings,
        }
    }
}
