//! A server program that is measured: started, restarted with other workers, and changed from outside as `boost` does.

use std::net::SocketAddr;
use std::time::Duration;

use linerate_host::setting::SocketKnob;
use linerate_host::{Host, PacketPath, Setting};
use linerate_load::{Generator, LoadSlot, LoadWorkload};
use linerate_tune::boost::discovery::{ObservationOptions, ServerQuery};
use linerate_tune::boost::plan::{self, BoostChoice};
use linerate_tune::boost::{BoostPlan, ObservedServer};
use linerate_tune::plan::PlannedChange;
use tempfile::TempDir;

use crate::host::LabHost;
use crate::ladder::configuration::{PortSharing, ServerCalls, ServerConfiguration};
use crate::ladder::step::LadderStep;
use crate::ladder::testbed::TestbedError;
use crate::program::{ProgramError, RecipeValues, ServerProgram, ServerRecipe};

/// How long the server is observed under load. Samples of its system calls show the readers after some 100 ms.
const OBSERVATION: Duration = Duration::from_millis(700);
/// Requests per second during the observation: enough to see each reader, less than any server answers.
const OBSERVATION_RATE: f64 = 4_000.0;
/// SO_BUSY_POLL of the step `busy-poll`, microseconds, as in the steps of linerate's own server.
const BUSY_POLL_US: u32 = 50;
/// Receive buffer of the step `receive-buffer`, bytes as the kernel counts them: twice the requested size.
const RECEIVE_BUFFER: u64 = 8 << 20;
/// Tries of 200 ms until a started server answers.
const ANSWER_TRIES: u32 = 25;

/// Where a server program runs.
pub(crate) struct ProgramPlace<'a> {
    pub(crate) host: &'a Host,
    pub(crate) receiver: &'a LabHost,
    pub(crate) address: SocketAddr,
    /// CPUs of the server, and so its workers.
    pub(crate) cpus: usize,
    pub(crate) nice: Option<i32>,
}

/// A recipe with its directory, and the program while it runs.
#[derive(Debug)]
pub(crate) struct ProgramServer {
    recipe: ServerRecipe,
    directory: TempDir,
    workload: LoadWorkload,
    running: Option<ServerProgram>,
    boost: Option<BoostChanges>,
}

impl ProgramServer {
    /// Writes the files of the recipe and reads its requests. Nothing is started.
    pub(crate) fn prepare(recipe: &ServerRecipe) -> Result<Self, TestbedError> {
        let directory = tempfile::Builder::new()
            .prefix("linerate-server-")
            .tempdir()
            .map_err(|error| TestbedError::Server(format!("no directory for its configuration: {error}")))?;
        let address = SocketAddr::from(([0, 0, 0, 0], recipe.port));
        recipe.write(&RecipeValues { address, workers: 1, directory: directory.path() })?;
        let workload = recipe.requests(directory.path())?;
        Ok(Self { recipe: recipe.clone(), directory, workload, running: None, boost: None })
    }

    pub(crate) fn workload(&self) -> LoadWorkload {
        self.workload.clone()
    }

    /// Mean UDP payload of the requests.
    pub(crate) fn payload_bytes(&self) -> u32 {
        let mean = match &self.workload {
            LoadWorkload::Echo { payload_bytes } => *payload_bytes,
            LoadWorkload::Exchange(exchange) => {
                exchange.requests.iter().map(Vec::len).sum::<usize>() / exchange.requests.len().max(1)
            }
        };
        u32::try_from(mean).unwrap_or(u32::MAX)
    }

    /// Why a step cannot be had from outside.
    pub(crate) fn refusal(&self, step: &LadderStep) -> Option<String> {
        if let Some(why) = self.recipe.reserved_for_server(step.id) {
            return Some(format!("not possible from outside: {why}"));
        }
        let mut changed = ServerConfiguration::baseline();
        (step.change)(&mut changed);
        if changed.calls != ServerCalls::One {
            return Some(
                "not possible from outside: the server's source decides about its system calls".to_owned(),
            );
        }
        let needs_workers = changed.sharing == PortSharing::Reuseport && !self.recipe.has_workers();
        needs_workers.then(|| {
            "the command has no {workers}: name the server's option for the number of workers or sockets"
                .to_owned()
        })
    }

    /// The server's part of a configuration: name and value.
    pub(crate) fn describe(&self, configuration: &ServerConfiguration, cpus: usize) -> Vec<(String, String)> {
        let option = |name: &str, on: bool, value: &str| {
            (format!("server {name}"), if on { value.to_owned() } else { "as started".to_owned() })
        };
        let by_cpu = configuration.sharing == PortSharing::SteeredByCpu;
        vec![
            ("server workers".to_owned(), self.workers(configuration, cpus).to_string()),
            option("sockets", by_cpu, "chosen by CPU, with boost"),
            option("threads", configuration.pinned, "pinned, with boost"),
            option("IP_MTU_DISCOVER", configuration.skip_ip_id, "IP_PMTUDISC_DO, with boost"),
            option("receive buffers", configuration.receive_buffer, "4 MiB, with boost"),
            option("SO_BUSY_POLL", configuration.busy_poll.is_some(), "50 us, with boost"),
        ]
    }

    fn workers(&self, configuration: &ServerConfiguration, cpus: usize) -> usize {
        let many = configuration.sharing != PortSharing::OneSocket && self.recipe.has_workers();
        if many { cpus } else { 1 }
    }

    /// Starts or restarts the server if its workers differ, and makes the changes of the configuration.
    pub(crate) fn switch(
        &mut self,
        place: &ProgramPlace<'_>,
        generator: &mut dyn Generator,
        configuration: &ServerConfiguration,
    ) -> Result<(), TestbedError> {
        let workers = self.workers(configuration, place.cpus);
        if self.running.as_ref().is_some_and(|running| running.workers() != workers) {
            self.stop(place.receiver);
        }
        self.check()?;
        if self.running.is_none() {
            let values = RecipeValues { address: place.address, workers, directory: self.directory.path() };
            let started = ServerProgram::start(place.receiver, &self.recipe, &values, place.nice);
            self.running = Some(started.inspect_err(|_| ServerProgram::end_all(place.receiver))?);
            self.await_answers(generator)?;
        }
        if self.boost.is_none() && is_boosted(configuration) {
            self.boost = Some(BoostChanges::plan(place, generator)?);
        }
        self.boost.as_mut().map_or(Ok(()), |boost| boost.switch(place, configuration))
    }

    /// Fails if the program has ended; the next switch starts it again.
    pub(crate) fn check(&mut self) -> Result<(), TestbedError> {
        let Some(running) = &mut self.running else { return Ok(()) };
        let checked = running.check();
        if checked.is_err() {
            (self.running, self.boost) = (None, None);
        }
        Ok(checked?)
    }

    fn stop(&mut self, receiver: &LabHost) {
        // Its sockets and threads end with it, so there is nothing to restore.
        self.boost = None;
        if let Some(running) = self.running.take() {
            running.stop(receiver);
        }
    }

    fn await_answers(&mut self, generator: &mut dyn Generator) -> Result<(), TestbedError> {
        let (mut sent, mut corrupt) = (0, 0);
        for _ in 0..ANSWER_TRIES {
            let slot = LoadSlot {
                drain: Duration::from_millis(100),
                ..LoadSlot::rate(500.0, Duration::from_millis(100))
            };
            let outcome = generator.run(&slot)?;
            if outcome.answered > 0 {
                return Ok(());
            }
            sent += outcome.sent;
            corrupt += outcome.corrupt;
            self.check()?;
        }
        let output = self.running.as_ref().map_or_else(String::new, ServerProgram::last_output);
        let (name, workload) = (&self.recipe.name, &self.recipe.workload);
        Err(TestbedError::Server(format!(
            "{name} answered none of {sent} requests of workload {workload} ({corrupt} replies did not match){output}"
        )))
    }
}

impl From<ProgramError> for TestbedError {
    fn from(error: ProgramError) -> Self {
        TestbedError::Server(error.to_string())
    }
}

impl From<crate::program::RecipeError> for TestbedError {
    fn from(error: crate::program::RecipeError) -> Self {
        TestbedError::Server(error.to_string())
    }
}

/// The changes that were planned for a running server, by part, and those that are in effect. A restarted server has other
/// sockets and threads, so it gets a new plan.
#[derive(Debug)]
struct BoostChanges {
    by_part: Vec<BoostPlan>,
    made: Vec<PlannedChange>,
}

impl BoostChanges {
    /// Observes the server while the generator asks it, and plans all changes.
    fn plan(place: &ProgramPlace<'_>, generator: &mut dyn Generator) -> Result<Self, TestbedError> {
        let query = ServerQuery { port: Some(place.address.port()), ..ServerQuery::default() };
        let options = ObservationOptions { duration: OBSERVATION, datagrams: true };
        let slot = LoadSlot::rate(OBSERVATION_RATE, OBSERVATION + Duration::from_millis(500));
        let observed = std::thread::scope(|scope| {
            let observing = scope.spawn(|| {
                place.receiver.run(|| ObservedServer::observe(place.host, &query, options, &|| false))
            });
            // Requests that it does not answer do not matter here.
            let _ = generator.run(&slot);
            observing.join()
        });
        let failed = |why: String| TestbedError::Refused { setting: "boost".to_owned(), why };
        let (server, path) = observed
            .map_err(|_| failed("the observation of the server panicked".to_owned()))??
            .map_err(|error| failed(error.to_string()))?;
        let by_part = PARTS.iter().map(|part| part.plan(&server, &path)).collect();
        Ok(Self { by_part, made: Vec::new() })
    }

    /// Makes the changes of this configuration, and undoes all others, the last change first.
    fn switch(
        &mut self,
        place: &ProgramPlace<'_>,
        configuration: &ServerConfiguration,
    ) -> Result<(), TestbedError> {
        let mut wanted: Vec<PlannedChange> = Vec::new();
        for (part, plan) in PARTS.iter().zip(&self.by_part).filter(|(part, _)| (part.wanted)(configuration)) {
            let changes = plan.plan.changes.iter().filter(|change| (part.has)(&change.setting));
            let count = wanted.len();
            wanted.extend(changes.cloned());
            if wanted.len() == count {
                let why: Vec<&str> = plan.refusals.iter().map(|refusal| refusal.why.as_str()).collect();
                let why = if why.is_empty() { "it is so already".to_owned() } else { why.join("; ") };
                return Err(TestbedError::Refused { setting: format!("boost, {}", part.name), why });
            }
        }
        if wanted.iter().map(|change| &change.setting).eq(self.made.iter().map(|change| &change.setting)) {
            return Ok(());
        }
        while let Some(change) = self.made.pop() {
            place.receiver.run(|| change.setting.write(place.host, &change.from))??;
        }
        for change in wanted {
            place.receiver.run(|| change.setting.write(place.host, &change.to))??;
            self.made.push(change);
        }
        Ok(())
    }
}

/// A part of a configuration that boost changes.
struct BoostPart {
    name: &'static str,
    wanted: fn(&ServerConfiguration) -> bool,
    has: fn(&Setting) -> bool,
    /// Asks boost for this part alone.
    choose: fn(&mut BoostChoice),
}

/// In the order in which the changes are made: a thread is on its CPU before packets are steered to it.
const PARTS: &[BoostPart] = &[
    BoostPart {
        name: "receive buffers",
        wanted: |configuration| configuration.receive_buffer,
        has: |setting| matches!(setting, Setting::Socket { knob: SocketKnob::ReceiveBuffer, .. }),
        choose: |choice| choice.receive_buffer_bytes = Some(RECEIVE_BUFFER),
    },
    BoostPart {
        name: "pinning",
        wanted: |configuration| configuration.pinned,
        has: |setting| matches!(setting, Setting::ThreadCpus { .. }),
        choose: |choice| choice.no_pin = false,
    },
    BoostPart {
        name: "steering",
        wanted: |configuration| configuration.sharing == PortSharing::SteeredByCpu,
        has: |setting| {
            matches!(
                setting,
                Setting::Steering { .. } | Setting::Socket { knob: SocketKnob::IncomingCpu, .. }
            )
        },
        choose: |choice| choice.no_steer = false,
    },
    BoostPart {
        name: "IP_MTU_DISCOVER",
        wanted: |configuration| configuration.skip_ip_id,
        has: |setting| matches!(setting, Setting::Socket { knob: SocketKnob::PathMtu, .. }),
        choose: |choice| choice.skip_ip_id = true,
    },
    BoostPart {
        name: "busy polling",
        wanted: |configuration| configuration.busy_poll.is_some(),
        has: |setting| matches!(setting, Setting::Socket { knob: SocketKnob::BusyPoll, .. }),
        choose: |choice| choice.busy_poll_us = Some(BUSY_POLL_US),
    },
];

impl BoostPart {
    /// The plan for this part alone, with its own refusals.
    fn plan(&self, server: &ObservedServer, path: &PacketPath) -> BoostPlan {
        let nothing = BoostChoice { no_pin: true, no_steer: true, ..BoostChoice::default() };
        let mut choice = nothing.clone();
        (self.choose)(&mut choice);
        let mut plan = plan::make(server, path, &choice);
        let others = plan::make(server, path, &nothing).refusals;
        plan.refusals.retain(|refusal| !others.contains(refusal));
        plan
    }
}

fn is_boosted(configuration: &ServerConfiguration) -> bool {
    PARTS.iter().any(|part| (part.wanted)(configuration))
}
