//! This host as a testbed: a server on a real interface, either linerate's own or one that already
//! runs, and generators on other hosts.
//!
//! The changes of a tune are applied and reverted step by step, each through the journal.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16};
use std::time::{Duration, Instant};

use linerate_engine::{Echo, RunningServer};
use linerate_host::stage::machine::{CpuTime, MachineState};
use linerate_host::{Host, Known, Setting, SettingValue};
use linerate_load::capacity::OverloadResult;
use linerate_services::guarded_service::GuardedService;
use linerate_services::start::StartService;
use linerate_trace::flame::SampledStack;
use linerate_tune::boost::ObservedServer;
use linerate_tune::plan::PlannedChange;
use linerate_tune::transaction::{ChangeOutcome, ChangeTarget, TuneTransaction};

use crate::ladder::boost_changes::{self, BoostChanges};
use crate::ladder::client_guard::{ClientGuard, ClientLimits};
use crate::ladder::configuration::ServerConfiguration;
use crate::ladder::cpu_use::{self, CpuUse, SampleOwner};
use crate::ladder::error::TestbedError;
use crate::ladder::host_run::{HostRunConfig, PreparedRun};
use crate::ladder::program_server::AnswerProbe;
use crate::ladder::remote::RemoteGenerators;
use crate::ladder::report::{LadderWarning, TestbedFacts, TestbedKind, WarningKind};
use crate::ladder::running_program::RunningProgram;
use crate::ladder::sampler::Sampler;
use crate::ladder::saturation::RemoteSenders;
use crate::ladder::server;
use crate::ladder::step::LadderStep;
use crate::ladder::testbed::{SampleRequest, StepSample, Testbed};

/// Longest wait for the link after a change.
const LINK_TIME: Duration = Duration::from_secs(30);
const CARRIER_POLL: Duration = Duration::from_millis(50);

/// Starts linerate's own server on those of the CPUs that are online.
pub(crate) fn start_server(
    config: &HostRunConfig,
    address: SocketAddr,
    cpus: &[u32],
    configuration: &ServerConfiguration,
) -> Result<RunningServer, TestbedError> {
    let own_port = Arc::new(AtomicU16::new(address.port()));
    let guarded = GuardedService::new(Echo, config.allowed.clone(), own_port);
    // A step may have taken hardware threads offline.
    let online = MachineState::observe(&Host::live()).online;
    let is_online = |cpu: &u32| online.value().is_none_or(|online| online.contains(*cpu));
    let cpus: Vec<u32> = cpus.iter().copied().filter(is_online).collect();
    let builder = server::builder(configuration, address, &cpus, config.run.payload_bytes as usize);
    Ok(server::confined(&cpus, || {
        GuardedService::start_server(builder.prepare()?, Box::new(move |_| guarded.clone()))
    })??)
}

/// A host during a run. Generators start after the server.
pub(crate) struct HostTestbed<'a> {
    prepared: &'a PreparedRun,
    sampler: Sampler<'a>,
    senders: RemoteSenders<RemoteGenerators>,
    transaction: TuneTransaction<'a>,
    server: Option<RunningServer>,
    boost: Option<BoostChanges>,
    clients: Option<ClientGuard>,
    busy_poll: Option<String>,
    /// Interrupts and their CPUs before hardware threads went offline.
    interrupts: Vec<(Setting, SettingValue)>,
    /// Last written value per setting. A missing setting has its original value.
    written: BTreeMap<Setting, SettingValue>,
}

impl<'a> HostTestbed<'a> {
    pub(crate) fn new(
        prepared: &'a PreparedRun,
        cancel: Arc<AtomicBool>,
        transaction: TuneTransaction<'a>,
        senders: RemoteSenders<RemoteGenerators>,
    ) -> Self {
        Self {
            prepared,
            sampler: Sampler { config: &prepared.config.run, cancel },
            senders,
            transaction,
            server: None,
            boost: None,
            clients: None,
            busy_poll: server::busy_poll_refusal(),
            interrupts: Vec::new(),
            written: BTreeMap::new(),
        }
    }

    /// Starts the baseline server unless a server already runs, and adds generators until the
    /// server is the limit.
    pub(crate) fn begin(&mut self) -> Result<(), TestbedError> {
        if let (Some(_), Some(limits)) =
            (&self.prepared.program, ClientLimits::from_config(self.sampler.config))
        {
            let (host, port) = (&self.prepared.host, self.prepared.address.port());
            let (sources, cancel) = (self.senders.sources.clone(), Arc::clone(&self.sampler.cancel));
            let guard = ClientGuard::start(host, port, sources, limits, cancel);
            let guard = guard
                .map_err(|error| TestbedError::Server(format!("real clients cannot be observed: {error}")))?;
            self.clients = Some(guard);
        }
        let load_result = self.begin_load();
        load_result.map_err(|error| self.cause(error))
    }

    fn begin_load(&mut self) -> Result<(), TestbedError> {
        self.switch(&ServerConfiguration::baseline())?;
        if let Some(program) = &self.prepared.program {
            // A few requests first, because a wrong workload should not become a flood.
            let mut probe = AnswerProbe::new(self.sampler.config.max_rate_per_second);
            let generator = self.senders.ensure_started()?;
            let is_answered = probe.await_answer(generator, || {
                self.sampler.check_cancelled()?;
                program.check(&self.prepared.host)
            });
            if !is_answered? {
                return Err(TestbedError::Unanswered(probe.describe_silence(&program.recipe)));
            }
            let sources_result = self.clients.as_ref().map_or(Ok(()), ClientGuard::check_generators);
            sources_result.map_err(TestbedError::Server)?;
        }
        self.senders.saturate(&self.sampler)?;
        if self.senders.is_answered() { Ok(()) } else { Err(TestbedError::Unanswered(self.why_unanswered())) }
    }

    fn why_unanswered(&self) -> String {
        let address = self.prepared.address;
        let received = self.server.as_ref().map_or(0, |server| server.total().received);
        if received > 0 {
            return format!(
                "{received} requests came to {address} from networks that the server does not answer: name them with --allow"
            );
        }
        format!(
            "no request sent to {address} came in: check the route from the generators, and whether a firewall here or in \
             between accepts UDP port {}",
            address.port()
        )
    }

    /// Why the run has to end, if it was cancelled.
    pub(crate) fn interruption(&self) -> Option<TestbedError> {
        self.sampler.check_cancelled().err().map(|error| self.cause(error))
    }

    /// Stops server and generators. Changed settings stay in effect; the journal can undo them.
    pub(crate) fn end(mut self, abort_reason: Option<String>) -> Result<(), TestbedError> {
        let stop_result = server::stop(&mut self.server);
        self.transaction.end(abort_reason)?;
        stop_result
    }

    /// Makes the changes that keep other programs from changing the same settings.
    pub(crate) fn exclude_others(&mut self, exclusions: &[PlannedChange]) -> Result<(), TestbedError> {
        exclusions.iter().try_for_each(|change| self.change(&change.setting, &change.from, &change.to))
    }

    /// Writes the settings that differ from the values written last. First it restores original values, the latest change
    /// first.
    fn apply(&mut self, configuration: &ServerConfiguration) -> Result<(), TestbedError> {
        let baseline = ServerConfiguration::baseline();
        let changes = &self.prepared.changes;
        let pending: Vec<(&Setting, &SettingValue, &SettingValue)> = changes
            .settings(configuration)
            .zip(changes.settings(&baseline))
            .map(|((setting, to), (_, original))| (setting, original, to))
            .filter(|(setting, original, to)| self.written.get(*setting).unwrap_or(*original) != *to)
            .collect();
        let restorations = pending.iter().filter(|(_, original, to)| to == original).rev();
        let new_changes = pending.iter().filter(|(_, original, to)| to != original);
        for (setting, original, to) in restorations.chain(new_changes) {
            if matches!(setting, Setting::SmtControl) && self.interrupts.is_empty() {
                self.interrupts = dependent_interrupts(&self.prepared.host, setting);
            }
            self.change(setting, original, to)?;
            self.written.insert((*setting).clone(), (*to).clone());
            if matches!(setting, Setting::SmtControl) && to == original {
                self.restore_interrupts()?;
            }
        }
        if pending.is_empty() { Ok(()) } else { self.await_link() }
    }

    /// Restores the CPUs of interrupts after hardware threads came back online. A managed interrupt
    /// already has its CPUs, and the kernel refuses the write.
    fn restore_interrupts(&mut self) -> Result<(), TestbedError> {
        for (setting, value) in self.interrupts.clone() {
            let value = self.written.get(&setting).cloned().unwrap_or(value);
            self.transaction.change(&self.prepared.host, &setting, &value)?;
        }
        Ok(())
    }

    fn change(
        &mut self,
        setting: &Setting,
        original: &SettingValue,
        value: &SettingValue,
    ) -> Result<(), TestbedError> {
        match self.transaction.change_from(&self.prepared.host, setting, original, value)? {
            ChangeOutcome::Made | ChangeOutcome::Already => Ok(()),
            ChangeOutcome::Refused { why } => {
                Err(TestbedError::Refused { setting: setting.to_string(), why })
            }
        }
    }

    /// Some drivers reset the link when a setting changes.
    fn await_link(&self) -> Result<(), TestbedError> {
        let interface = &self.prepared.config.interface;
        let carrier = format!("/sys/class/net/{interface}/carrier");
        let begin = Instant::now();
        while self.prepared.host.read(&carrier).is_ok_and(|carrier| carrier.trim() == "0") {
            self.sampler.check_cancelled()?;
            if begin.elapsed() > LINK_TIME {
                let seconds = LINK_TIME.as_secs();
                return Err(TestbedError::RunEnded(format!(
                    "{interface} has no link {seconds} s after a change"
                )));
            }
            std::thread::sleep(CARRIER_POLL);
        }
        Ok(())
    }

    /// Applies the parts of the configuration that boost changes on a running server.
    fn boost(
        &mut self,
        program: &RunningProgram,
        configuration: &ServerConfiguration,
    ) -> Result<(), TestbedError> {
        let host = &self.prepared.host;
        let mut boost = match self.boost.take() {
            Some(boost) => boost,
            None if !boost_changes::is_boosted(configuration) => return Ok(()),
            None => {
                let observe =
                    |options| Ok(ObservedServer::observe(host, &program.query, options, &|| false)?);
                let max_rate = self.sampler.config.max_rate_per_second;
                BoostChanges::plan(self.senders.generator()?, max_rate, observe)?
            }
        };
        let mut write =
            |change: &PlannedChange, value: &SettingValue| self.change(&change.setting, &change.from, value);
        let switch_result = boost.switch(configuration, &mut write);
        self.boost = Some(boost);
        switch_result
    }

    pub(crate) fn boost_changes(&self, configuration: &ServerConfiguration) -> Vec<PlannedChange> {
        self.boost.as_ref().and_then(|boost| boost.changes_for(configuration).ok()).unwrap_or_default()
    }

    /// The reason behind an error: the server may have ended, or its clients may have ended the run.
    fn cause(&self, error: TestbedError) -> TestbedError {
        if let Some(why) = self.clients.as_ref().and_then(ClientGuard::verdict) {
            return TestbedError::RunEnded(why);
        }
        let program = self.prepared.program.as_ref();
        program.and_then(|program| program.check(&self.prepared.host).err()).unwrap_or(match error {
            // A remote generator that fails once fails for all steps.
            TestbedError::Generator(why) => TestbedError::GeneratorLost(why),
            other => other,
        })
    }

    fn set(&mut self, configuration: &ServerConfiguration) -> Result<(), TestbedError> {
        self.sampler.check_cancelled()?;
        if let Some(program) = &self.prepared.program {
            program.check(&self.prepared.host)?;
            self.apply(configuration)?;
            return self.boost(program, configuration);
        }
        server::stop(&mut self.server)?;
        self.apply(configuration)?;
        let prepared = self.prepared;
        self.server =
            Some(start_server(&prepared.config, prepared.address, &prepared.server_cpus, configuration)?);
        Ok(())
    }

    fn measure(&mut self, request: &mut SampleRequest<'_>) -> Result<StepSample, TestbedError> {
        let fallbacks = server::fallbacks(self.server.as_ref());
        let generator = self.senders.generator()?;
        let sample = self.sampler.sample(generator, request, fallbacks.clone())?;
        if let Some(program) = &self.prepared.program {
            // A server that has ended explains a sample without answers.
            program.check(&self.prepared.host)?;
        }
        let is_limited = self.sampler.config.max_rate_per_second.is_some();
        if sample.generator_bound.is_none() || is_limited || !self.senders.can_add() {
            return Ok(sample);
        }
        // A faster server needs more senders.
        self.senders.saturate(&self.sampler)?;
        let generator = self.senders.generator()?;
        self.sampler.sample(generator, request, fallbacks)
    }
}

fn dependent_interrupts(host: &Host, setting: &Setting) -> Vec<(Setting, SettingValue)> {
    let dependents = host.dependents(setting);
    dependents.into_iter().filter_map(|irq| irq.read(host).ok().map(|value| (irq, value))).collect()
}

impl Testbed for HostTestbed<'_> {
    fn refusal(&self, step: &LadderStep) -> Option<String> {
        if let Some(program) = &self.prepared.program {
            return program.refusal(step).or_else(|| self.prepared.changes.refusal(step));
        }
        if step.needs_program() {
            return Some("only a server program has this step".to_owned());
        }
        if step.configuration().busy_poll {
            self.busy_poll.clone()
        } else {
            self.prepared.changes.refusal(step)
        }
    }

    fn describe(&self, configuration: &ServerConfiguration) -> Vec<(String, String)> {
        let settings = self.prepared.changes.settings(configuration);
        let host_settings = settings.map(|(setting, value)| {
            let value = if value.as_str().is_empty() { "absent" } else { value.as_str() };
            (setting.to_string(), value.to_owned())
        });
        let server_options = match &self.prepared.program {
            Some(_) => boost_changes::describe(configuration).collect(),
            None => configuration.server_options(),
        };
        server_options.into_iter().chain(host_settings).collect()
    }

    fn switch(&mut self, configuration: &ServerConfiguration) -> Result<(), TestbedError> {
        let set_result = self.set(configuration);
        set_result.map_err(|error| self.cause(error))
    }

    fn sample(&mut self, request: &mut SampleRequest<'_>) -> Result<StepSample, TestbedError> {
        let measured = self.measure(request);
        measured.map_err(|error| self.cause(error))
    }

    fn overload(&mut self, capacity: f64, factors: &[f64]) -> Result<Vec<OverloadResult>, TestbedError> {
        let generator = self.senders.generator()?;
        let measured = self.sampler.overload(generator, capacity, factors);
        measured.map_err(|error| self.cause(error))
    }

    fn cpu_time(&self) -> Known<CpuTime> {
        CpuTime::observe(&self.prepared.host)
    }

    fn cpu_use(&mut self, per_second: f64) -> Result<Known<CpuUse>, TestbedError> {
        let own_pid = std::process::id();
        let program = self.prepared.program.as_ref();
        let owner = |stack: &SampledStack| match program {
            Some(program) if program.processes.contains(&stack.pid) => SampleOwner::Server,
            None if stack.pid == own_pid => cpu_use::thread_owner(stack, SampleOwner::Other),
            _ => SampleOwner::Other,
        };
        let generator = self.senders.generator()?;
        let sampled = cpu_use::sample(&self.prepared.host, generator, per_second, true, &owner);
        sampled.map_err(|error| self.cause(error))
    }

    fn run_warnings(&self) -> Vec<LadderWarning> {
        let skipped = self.prepared.changes.skipped().iter();
        let skipped = skipped.map(|line| LadderWarning::new(WarningKind::LeftAsFound, line.as_str()));
        self.senders.warnings().into_iter().chain(skipped).collect()
    }

    fn facts(&self) -> TestbedFacts {
        TestbedFacts {
            kind: TestbedKind::Host,
            privilege: "root".to_owned(),
            architecture: std::env::consts::ARCH.to_owned(),
            numa_nodes: self.prepared.numa_nodes,
            server_cpus: self.prepared.server_cpus.clone(),
            queues: self.prepared.queues,
            server_address: self.prepared.address.to_string(),
            link_bits_per_second: self.prepared.wire.figures().link_bits_per_second,
            wire_bits_per_transaction: self.prepared.wire.wire_bits(),
            generator: self.senders.description().cloned(),
            generator_hosts: self.senders.hosts().to_vec(),
            shares_cpus: false,
        }
    }
}
