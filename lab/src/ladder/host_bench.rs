//! This host as a place to climb: a server of ours on a real interface, generators on other hosts.
//!
//! What a tune would change is changed step by step, back and forth, each time written down in the journal first.

mod part;
mod sending;
pub(crate) mod supplement;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU16;
use std::time::{Duration, Instant};

use linerate_engine::{Echo, RunningServer};
use linerate_host::stage::machine::CpuTime;
use linerate_host::{Host, Known, Setting, SettingValue};
use linerate_networks::Net;
use linerate_services::guarded::GuardedService;
use linerate_tune::TunePlan;
use linerate_tune::plan::PlannedChange;
use linerate_tune::transaction::{ChangeResult, TuneTransaction};

use crate::ladder::bench::measuring::SampleMethod;
use crate::ladder::bench::{
    BenchError, OverloadGoodput, PlaceFacts, ReportedTestbed, SampleRequest, StepSample, Testbed, server,
};
use crate::ladder::configuration::ServerConfiguration;
use crate::ladder::report::{LadderWarning, WarningKind};
use crate::ladder::step::{LadderStep, StepRequirement};
use part::AlternatedChanges;

pub use sending::{RemoteSenders, Start};

/// Longest wait for stragglers after a slot.
pub(crate) const DRAIN: Duration = Duration::from_millis(200);
/// Where a search without a hint starts, transactions a second.
pub(crate) const START: f64 = 10_000.0;
/// How long a link may take to come back after a change.
const LINK_TIME: Duration = Duration::from_secs(30);
/// How often it is looked at.
const TICK: Duration = Duration::from_millis(50);

/// The server that is measured.
#[derive(Debug, Clone)]
pub struct MeasuredServer {
    /// The interface that requests come in by.
    pub interface: String,
    /// Address and port of the server.
    pub address: SocketAddr,
    /// The CPUs of its workers.
    pub cpus: Vec<u32>,
    /// The longest request, bytes.
    pub payload: u32,
    /// Networks it answers; loopback, private and link-local ones if none are named.
    pub allowed: Vec<Net>,
}

impl MeasuredServer {
    /// Starts the server that a configuration asks for.
    ///
    /// # Errors
    /// [`BenchError::Server`], as where the port is taken.
    pub(crate) fn start(&self, configuration: &ServerConfiguration) -> Result<RunningServer, BenchError> {
        let own_port = Arc::new(AtomicU16::new(self.address.port()));
        let guarded = GuardedService::new(Echo, self.allowed.clone(), own_port);
        server::builder(configuration, self.address, &self.cpus, self.payload as usize)
            .start(move |_| guarded.clone())
            .map_err(|error| BenchError::Server(error.to_string()))
    }
}

/// What a climb changes here, step by step.
#[derive(Debug, Clone)]
pub struct StepChanges(AlternatedChanges);

impl StepChanges {
    /// Those of a plan that steps are about; of the whole machine only where that is allowed.
    #[must_use]
    pub fn of(plan: &TunePlan, host_wide: bool) -> Self {
        Self(AlternatedChanges::of(plan, host_wide))
    }

    /// The steps that change settings, and what they change.
    #[must_use]
    pub fn by_step(&self) -> Vec<(&'static LadderStep, Vec<&PlannedChange>)> {
        self.0.by_step()
    }

    /// What the plan would set and the climb does not, a line each.
    #[must_use]
    pub fn left(&self) -> &[String] {
        self.0.left()
    }

    /// The plan without the changes that a configuration does not have.
    pub(crate) fn kept(&self, plan: &TunePlan, kept: &ServerConfiguration) -> TunePlan {
        let planned: Vec<&Setting> = self.0.planned(kept).collect();
        let mut plan = plan.clone();
        plan.changes.retain(|change| planned.contains(&&change.setting));
        if plan.changes.is_empty() {
            plan.agreements.clear();
        }
        plan
    }
}

/// A setting that is to be other than it is.
struct WantedSetting<'a> {
    setting: &'a Setting,
    found: &'a SettingValue,
    to: &'a SettingValue,
}

/// What the bench is made of.
pub(crate) struct HostBenchOptions {
    pub(crate) service: MeasuredServer,
    /// Receive queues of the interface.
    pub(crate) queues: u32,
    pub(crate) changes: StepChanges,
    pub(crate) measuring: SampleMethod,
}

/// A host that is ready to be climbed on.
pub(crate) struct HostBench<'w> {
    server: Option<RunningServer>,
    sending: RemoteSenders,
    host: &'w Host,
    options: HostBenchOptions,
    busy_poll: Option<String>,
    transaction: TuneTransaction<'w>,
    /// What was written last; what is missing is as it was found.
    set: BTreeMap<Setting, SettingValue>,
    cpus: Vec<u32>,
}

impl<'w> HostBench<'w> {
    /// A bench on which nothing is changed yet. Its generators are not started before there is a server to send to.
    pub(crate) fn new(
        options: HostBenchOptions,
        host: &'w Host,
        transaction: TuneTransaction<'w>,
        sending: RemoteSenders,
    ) -> Self {
        let busy_poll = server::busy_poll_refusal();
        let cpus = options.service.cpus.clone();
        Self { server: None, sending, host, options, busy_poll, transaction, set: BTreeMap::new(), cpus }
    }

    /// Starts the server as it is at the foot of the ladder, and as many generators as it takes.
    ///
    /// # Errors
    /// Where either cannot be had.
    pub(crate) fn begin(&mut self) -> Result<(), BenchError> {
        self.switch(&ServerConfiguration::baseline())?;
        self.sending.raise()?;
        if self.sending.is_answered() { Ok(()) } else { Err(BenchError::Unanswered(self.why_unanswered())) }
    }

    /// Why nothing is answered, by whether anything arrived.
    fn why_unanswered(&self) -> String {
        let address = self.options.service.address;
        let received = self.server.as_ref().map_or(0, |server| server.total().received);
        if received > 0 {
            return format!(
                "{received} requests came to {address}, from sources that it does not answer: name their network with --allow"
            );
        }
        format!(
            "of what was sent to {address} nothing came in: does the way from the generators lead there, and does a \
             firewall here or in between let UDP port {} through?",
            address.port()
        )
    }

    /// Stops server and generators; what is set stays, for the journal to undo.
    pub(crate) fn end(mut self, broke_off: Option<String>) -> Result<(), BenchError> {
        let stopped = server::stop(&mut self.server);
        self.transaction.end(broke_off)?;
        stopped
    }

    /// Makes the changes that have other programs leave what the climb sets.
    ///
    /// # Errors
    /// Where one is refused.
    pub(crate) fn agree(&mut self, agreements: &[PlannedChange]) -> Result<(), BenchError> {
        agreements.iter().try_for_each(|agreed| self.change(&agreed.setting, &agreed.from, &agreed.to))
    }

    /// Writes what differs from what was written last: first back what goes back, the latest first.
    fn apply(&mut self, configuration: &ServerConfiguration) -> Result<(), BenchError> {
        let found = ServerConfiguration::baseline();
        let changes = self.options.changes.clone();
        let wanted: Vec<WantedSetting<'_>> = changes
            .0
            .settings(configuration)
            .zip(changes.0.settings(&found))
            .map(|((setting, to), (_, found))| WantedSetting { setting, found, to })
            .filter(|wanted| self.set.get(wanted.setting).unwrap_or(wanted.found) != wanted.to)
            .collect();
        let back = wanted.iter().filter(|wanted| wanted.to == wanted.found).rev();
        let forth = wanted.iter().filter(|wanted| wanted.to != wanted.found);
        for WantedSetting { setting, found, to } in back.chain(forth) {
            self.change(setting, found, to)?;
            self.set.insert((*setting).clone(), (*to).clone());
        }
        if wanted.is_empty() { Ok(()) } else { self.await_link() }
    }

    fn change(
        &mut self,
        setting: &Setting,
        found: &SettingValue,
        value: &SettingValue,
    ) -> Result<(), BenchError> {
        match self.transaction.change_from(self.host, setting, found, value)? {
            ChangeResult::Made { .. } | ChangeResult::Already => Ok(()),
            ChangeResult::Refused { why } => Err(BenchError::Refused { setting: setting.to_string(), why }),
        }
    }

    /// Some drivers reset the link over changes that need not.
    fn await_link(&self) -> Result<(), BenchError> {
        let interface = &self.options.service.interface;
        let carrier = format!("/sys/class/net/{interface}/carrier");
        let begun = Instant::now();
        while self.host.read(&carrier).is_ok_and(|carrier| carrier.trim() == "0") {
            self.options.measuring.go_on()?;
            if begun.elapsed() > LINK_TIME {
                let seconds = LINK_TIME.as_secs();
                return Err(BenchError::NoLink(format!(
                    "{interface} has no link {seconds} s after a change"
                )));
            }
            std::thread::sleep(TICK);
        }
        Ok(())
    }

    /// What fails of a generator here fails for all steps.
    fn lost(error: BenchError) -> BenchError {
        match error {
            BenchError::Generator(why) => BenchError::GeneratorLost(why),
            other => other,
        }
    }
}

impl Testbed for HostBench<'_> {
    fn refusal(&self, step: &LadderStep) -> Option<String> {
        match step.touches {
            StepRequirement::BusyPoll => self.busy_poll.clone(),
            _ => self.options.changes.0.refusal(step),
        }
    }

    fn describe(&self, configuration: &ServerConfiguration) -> Vec<(String, String)> {
        let settings = self.options.changes.0.settings(configuration);
        let of_host = settings.map(|(setting, value)| {
            let value = if value.as_str().is_empty() { "absent" } else { value.as_str() };
            (setting.to_string(), value.to_owned())
        });
        configuration.server_options().into_iter().chain(of_host).collect()
    }

    fn switch(&mut self, configuration: &ServerConfiguration) -> Result<(), BenchError> {
        self.options.measuring.go_on()?;
        server::stop(&mut self.server)?;
        self.apply(configuration)?;
        self.server = Some(self.options.service.start(configuration)?);
        Ok(())
    }

    fn sample(&mut self, request: &mut SampleRequest<'_>) -> Result<StepSample, BenchError> {
        let fallbacks = server::fallbacks(self.server.as_ref());
        let measuring = &self.options.measuring;
        let generator = self.sending.generator()?;
        let sample = measuring.sample(generator, request, fallbacks.clone()).map_err(Self::lost)?;
        if sample.generator_bound.is_none() || !self.sending.can_raise() {
            return Ok(sample);
        }
        // What is faster now takes more to be loaded. A figure without more of them is a lower bound all the same.
        self.sending.raise()?;
        let generator = self.sending.generator()?;
        measuring.sample(generator, request, fallbacks).map_err(Self::lost)
    }

    fn overload(&mut self, capacity: f64, factors: &[f64]) -> Result<Vec<OverloadGoodput>, BenchError> {
        let generator = self.sending.generator()?;
        self.options.measuring.overload(generator, capacity, factors).map_err(Self::lost)
    }

    fn cpu_time(&self) -> Known<CpuTime> {
        CpuTime::observe(self.host)
    }

    fn warnings(&self, _: &LadderStep, _: &ServerConfiguration) -> Vec<LadderWarning> {
        Vec::new()
    }
}

impl ReportedTestbed for HostBench<'_> {
    fn facts(&self) -> PlaceFacts {
        let generator = self.sending.described();
        let fallbacks = generator.iter().flat_map(|generator| generator.fallbacks.iter());
        let mut warnings: Vec<LadderWarning> = fallbacks
            .map(|fallback| LadderWarning {
                kind: WarningKind::Fallback,
                detail: format!("generator: {fallback}"),
            })
            .collect();
        warnings.extend(self.sending.warning().cloned());
        let left = self.options.changes.left().iter();
        warnings
            .extend(left.map(|left| LadderWarning { kind: WarningKind::LeftAsFound, detail: left.clone() }));
        PlaceFacts {
            bench: "host",
            cpus: self.cpus.clone(),
            server_cpus: self.options.service.cpus.clone(),
            queues: self.options.queues,
            address: self.options.service.address,
            generator: generator.cloned(),
            generator_hosts: self.sending.hosts().to_vec(),
            shares_cpus: false,
            warnings,
        }
    }
}
