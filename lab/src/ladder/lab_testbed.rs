//! The lab as a testbed: a server on the receiver, a generator on the sender.

mod placement;
pub(crate) mod setup;
mod stock;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::net::SocketAddr;

use linerate_engine::RunningServer;
use linerate_host::stage::machine::{CpuTime, MachineState};
use linerate_host::{Host, Known, Setting, SettingError, SettingValue};
use linerate_load::Generator;
use linerate_load::capacity::OverloadResult;
use linerate_load::wire::WireFormat;
use linerate_trace::flame::SampledStack;

use crate::Lab;
use crate::ladder::configuration::ServerConfiguration;
use crate::ladder::cpu_use::{self, CpuUse, SampleOwner};
use crate::ladder::error::TestbedError;
use crate::ladder::program_server::{ProgramPlace, ProgramServer};
use crate::ladder::report::{LadderWarning, TestbedFacts, TestbedKind, WarningKind};
use crate::ladder::sampler::Sampler;
use crate::ladder::server;
use crate::ladder::step::LadderStep;
use crate::ladder::testbed::{SampleRequest, StepSample, Testbed};
use crate::process;
use stock::{ReceiverInterface, SettableParts};

pub(crate) use placement::{CpuPlacement, queue_cpus};

/// A lab with a generator. The server starts with the first [`Testbed::switch`].
pub(crate) struct LabTestbed<'a> {
    // In the order of dropping: server and generator live in the hosts of the lab.
    server: Option<RunningServer>,
    program: Option<ProgramServer>,
    generator: Box<dyn Generator>,
    host: Host,
    sampler: Sampler<'a>,
    placement: CpuPlacement,
    receiver: ReceiverInterface,
    address: SocketAddr,
    wire: WireFormat,
    settable: SettableParts,
    /// Niceness of the server's workers if they share CPUs with the generator.
    server_nice: Option<i32>,
    applied: BTreeMap<Setting, SettingValue>,
    lab: Lab,
}

impl LabTestbed<'_> {
    /// Writes the settings that differ from the values written last.
    fn apply(&mut self, configuration: &ServerConfiguration) -> Result<(), TestbedError> {
        let target_settings = stock::settings(&self.receiver, &self.placement, &self.settable, configuration);
        let changed_settings: Vec<(Setting, SettingValue)> = target_settings
            .into_iter()
            .filter(|(setting, value)| self.applied.get(setting) != Some(value))
            .collect();
        if changed_settings.is_empty() {
            return Ok(());
        }
        let host = &self.host;
        let write_result = self.lab.receiver().run(|| -> Result<(), SettingError> {
            changed_settings.iter().try_for_each(|(setting, value)| setting.write(host, value))
        })?;
        // After an error it is unknown which settings were written, so the next switch writes all
        // of them.
        for (setting, value) in changed_settings {
            match write_result {
                Ok(()) => self.applied.insert(setting, value),
                Err(_) => self.applied.remove(&setting),
            };
        }
        Ok(write_result?)
    }

    fn check_program(&mut self) -> Result<(), TestbedError> {
        self.program.as_mut().map_or(Ok(()), ProgramServer::check)
    }
}

impl Testbed for LabTestbed<'_> {
    fn refusal(&self, step: &LadderStep) -> Option<String> {
        if let Some(why) = self.program.as_ref().and_then(|program| program.refusal(step)) {
            return Some(why);
        }
        let (configuration, settable) = (step.configuration(), &self.settable);
        match &configuration {
            ServerConfiguration { receive_buffer: true, .. } => self
                .program
                .is_none()
                .then(|| "linerate's own server has receive buffers of 4 MiB at every step".to_owned()),
            ServerConfiguration { receive_spread: true, .. }
            | ServerConfiguration { transmit_by_cpu: true, .. } => settable.queue_cpus.clone().err(),
            ServerConfiguration { gro: false, .. } => settable.offload.clone().err(),
            ServerConfiguration { netfilter: false, .. } => settable.netfilter.clone().err(),
            ServerConfiguration { audit: false, .. } => settable.audit.clone().err(),
            ServerConfiguration { smt_switched: true, .. } => {
                Some("the generator runs on the same machine: use linerate ladder".to_owned())
            }
            ServerConfiguration { busy_poll: true, .. } if self.program.is_none() => {
                settable.busy_poll.clone().err()
            }
            _ => None,
        }
    }

    fn describe(&self, configuration: &ServerConfiguration) -> Vec<(String, String)> {
        let settings = stock::settings(&self.receiver, &self.placement, &self.settable, configuration);
        let receiver_settings = settings.into_iter().map(|(setting, value)| {
            let value = match (&setting, value.as_str()) {
                (Setting::NftTable { .. }, "") => "absent".to_owned(),
                (Setting::NftTable { .. }, _) => "input chain with connection tracking".to_owned(),
                (_, value) => value.to_owned(),
            };
            (setting.to_string(), value)
        });
        let server = match &self.program {
            Some(program) => program.describe(configuration, self.placement.server.len()),
            None => configuration.server_options(),
        };
        server.into_iter().chain(receiver_settings).collect()
    }

    fn switch(&mut self, configuration: &ServerConfiguration) -> Result<(), TestbedError> {
        self.sampler.check_cancelled()?;
        if self.program.is_none() {
            server::stop(&mut self.server)?;
        }
        self.apply(configuration)?;
        let (receiver, address) = (self.lab.receiver(), self.address);
        let (cpus, nice) = (&self.placement.server[..], self.server_nice);
        if let Some(program) = &mut self.program {
            let place = ProgramPlace { host: &self.host, receiver, address, cpus, nice };
            return program.switch(&place, &mut *self.generator, configuration);
        }
        let largest = self.sampler.config.payload_bytes as usize;
        self.server = Some(server::start_in_lab(receiver, configuration, address, cpus, nice, largest)?);
        Ok(())
    }

    fn sample(&mut self, request: &mut SampleRequest<'_>) -> Result<StepSample, TestbedError> {
        let fallbacks = server::fallbacks(self.server.as_ref());
        let sample = self.sampler.sample(&mut *self.generator, request, fallbacks);
        // A server that has ended explains a sample without answers.
        self.check_program()?;
        sample
    }

    fn overload(&mut self, capacity: f64, factors: &[f64]) -> Result<Vec<OverloadResult>, TestbedError> {
        let measured = self.sampler.overload(&mut *self.generator, capacity, factors);
        // The next switch starts a server again whose end was noticed here.
        self.check_program()?;
        measured
    }

    fn cpu_time(&self) -> Known<CpuTime> {
        CpuTime::observe(&self.host)
    }

    fn cpu_use(&mut self, per_second: f64) -> Result<Known<CpuUse>, TestbedError> {
        let (own_pid, receiver) = (std::process::id(), [self.lab.receiver().namespace_id()]);
        let has_program = self.program.is_some();
        let owner = |stack: &SampledStack| match i32::try_from(stack.pid) {
            _ if stack.pid == own_pid && has_program => SampleOwner::Generator,
            _ if stack.pid == own_pid => cpu_use::thread_owner(stack, SampleOwner::Generator),
            Ok(pid) if has_program && process::is_inside(pid, &receiver) == Some(true) => SampleOwner::Server,
            _ => SampleOwner::Other,
        };
        let sampled = cpu_use::sample(&self.host, &mut *self.generator, per_second, false, &owner);
        self.check_program()?;
        sampled
    }

    fn step_warning(&self, step: &LadderStep, configuration: &ServerConfiguration) -> Option<LadderWarning> {
        let without_napi = step.configuration().busy_poll && !configuration.gro;
        let detail = "with GRO off a veth interface has no NAPI instance to poll";
        without_napi.then(|| LadderWarning::new(WarningKind::NoEffectExpected, detail))
    }

    fn facts(&self) -> TestbedFacts {
        TestbedFacts {
            kind: TestbedKind::Lab,
            // A caller that entered a user namespace replaces this value.
            privilege: "root".to_owned(),
            architecture: std::env::consts::ARCH.to_owned(),
            numa_nodes: MachineState::observe(&self.host).numa_nodes.into_value(),
            server_cpus: self.placement.server.clone(),
            queues: self.receiver.queues,
            server_address: self.address.to_string(),
            link_bits_per_second: self.wire.figures().link_bits_per_second,
            wire_bits_per_transaction: self.wire.wire_bits(),
            generator: Some(self.generator.describe()),
            generator_hosts: Vec::new(),
            shares_cpus: self.placement.shared,
        }
    }
}
