//! A server program that is measured: started, restarted with other workers, and changed from outside as `boost` does.

use std::net::SocketAddr;
use std::time::Duration;

use linerate_host::{Host, SettingValue};
use linerate_load::{Generator, LoadSlot, LoadWorkload};
use linerate_tune::boost::ObservedServer;
use linerate_tune::boost::discovery::ServerQuery;
use linerate_tune::plan::PlannedChange;
use tempfile::TempDir;

use crate::host::LabHost;
use crate::ladder::boost_changes::{self, BoostChanges};
use crate::ladder::configuration::{PortSharing, ServerConfiguration};
use crate::ladder::error::TestbedError;
use crate::ladder::server;
use crate::ladder::step::LadderStep;
use crate::program::{ProgramError, RecipeValues, ServerProgram, ServerRecipe};

/// Slots of an [`AnswerProbe`]. A resolver answers once it has asked other servers.
const ANSWER_TRIES: u32 = 25;
/// Most requests per second of an [`AnswerProbe`].
const ANSWER_RATE: f64 = 500.0;
/// Time of a slot, and time for its replies.
const ANSWER_SLOT: Duration = Duration::from_millis(100);

/// Where a server program runs.
pub(crate) struct ProgramPlace<'a> {
    pub(crate) host: &'a Host,
    pub(crate) receiver: &'a LabHost,
    pub(crate) address: SocketAddr,
    /// CPUs of the server, with a worker for each.
    pub(crate) cpus: &'a [u32],
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
        self.workload.mean_bytes()
    }

    /// Why a step is not possible from outside.
    pub(crate) fn refusal(&self, step: &LadderStep) -> Option<String> {
        if let Some(why) = self.recipe.reserved_for_server(step.id) {
            return Some(format!("not possible from outside: {why}"));
        }
        if let Some(why) = refusal_of_source(step) {
            return Some(why);
        }
        let configuration = step.configuration();
        let needs_workers = configuration.sharing == PortSharing::Reuseport && !self.recipe.has_workers();
        needs_workers.then(|| {
            "the command has no {workers}: name the server's option for the number of workers or sockets"
                .to_owned()
        })
    }

    /// The server's part of a configuration: name and value.
    pub(crate) fn describe(&self, configuration: &ServerConfiguration, cpus: usize) -> Vec<(String, String)> {
        let workers = self.workers(configuration, cpus).to_string();
        std::iter::once(("server workers".to_owned(), workers))
            .chain(boost_changes::describe(configuration))
            .collect()
    }

    fn workers(&self, configuration: &ServerConfiguration, cpus: usize) -> usize {
        let has_many = configuration.sharing != PortSharing::OneSocket && self.recipe.has_workers();
        if has_many { cpus } else { 1 }
    }

    /// Starts or restarts the server if its workers differ, and makes the changes of the configuration.
    pub(crate) fn switch(
        &mut self,
        place: &ProgramPlace<'_>,
        generator: &mut dyn Generator,
        configuration: &ServerConfiguration,
    ) -> Result<(), TestbedError> {
        let workers = self.workers(configuration, place.cpus.len());
        if self.running.as_ref().is_some_and(|running| running.workers() != workers) {
            self.stop(place.receiver);
        }
        self.check()?;
        if self.running.is_none() {
            let values = RecipeValues { address: place.address, workers, directory: self.directory.path() };
            let start = || ServerProgram::start(place.receiver, &self.recipe, &values, place.nice);
            let start_result = server::confined(place.cpus, start)?;
            self.running = Some(start_result.inspect_err(|_| ServerProgram::end_all(place.receiver))?);
            self.await_answers(generator)?;
        }
        if self.boost.is_none() && boost_changes::is_boosted(configuration) {
            let query = ServerQuery { port: Some(place.address.port()), ..ServerQuery::default() };
            let observe = |options| {
                let observe = || ObservedServer::observe(place.host, &query, options, &|| false);
                Ok(place.receiver.run(observe)??)
            };
            self.boost = Some(BoostChanges::plan(generator, None, observe)?);
        }
        let mut write = |change: &PlannedChange, value: &SettingValue| {
            Ok(place.receiver.run(|| change.setting.write(place.host, value))??)
        };
        self.boost.as_mut().map_or(Ok(()), |boost| boost.switch(configuration, &mut write))
    }

    /// Fails if the program has ended; the next switch starts it again.
    pub(crate) fn check(&mut self) -> Result<(), TestbedError> {
        let Some(running) = &mut self.running else { return Ok(()) };
        let check_result = running.check();
        if check_result.is_err() {
            (self.running, self.boost) = (None, None);
        }
        Ok(check_result?)
    }

    fn stop(&mut self, receiver: &LabHost) {
        // Its sockets and threads end with it, so there is nothing to restore.
        self.boost = None;
        if let Some(running) = self.running.take() {
            running.stop(receiver);
        }
    }

    fn await_answers(&mut self, generator: &mut dyn Generator) -> Result<(), TestbedError> {
        let mut probe = AnswerProbe::new(None);
        if probe.await_answer(generator, || self.check())? {
            return Ok(());
        }
        let output = self.running.as_ref().map_or_else(String::new, ServerProgram::last_output);
        let why = probe.describe_silence(&self.recipe);
        Err(TestbedError::Server(format!("{why}{output}")))
    }
}

/// A few requests, to see whether a server answers this workload at all.
#[derive(Debug)]
pub(crate) struct AnswerProbe {
    slot: LoadSlot,
    sent: u64,
    corrupt: u64,
}

impl AnswerProbe {
    /// Offers at most `max_per_second`.
    pub(crate) fn new(max_per_second: Option<f64>) -> Self {
        let rate = max_per_second.map_or(ANSWER_RATE, |limit| limit.min(ANSWER_RATE));
        // At a low rate, too, a slot has a request.
        let duration = ANSWER_SLOT.max(Duration::from_secs_f64((1.0 / rate).min(1.0)));
        Self { slot: LoadSlot { drain: ANSWER_SLOT, ..LoadSlot::rate(rate, duration) }, sent: 0, corrupt: 0 }
    }

    /// Sends requests until one is answered, in at most [`ANSWER_TRIES`] slots. Calls `check` after
    /// each unanswered slot.
    pub(crate) fn await_answer(
        &mut self,
        generator: &mut dyn Generator,
        mut check: impl FnMut() -> Result<(), TestbedError>,
    ) -> Result<bool, TestbedError> {
        for _ in 0..ANSWER_TRIES {
            let outcome = generator.run(&self.slot)?;
            self.sent += outcome.sent;
            self.corrupt += outcome.corrupt;
            if outcome.answered > 0 {
                return Ok(true);
            }
            check()?;
        }
        Ok(false)
    }

    /// One line about a server that did not answer.
    pub(crate) fn describe_silence(&self, recipe: &ServerRecipe) -> String {
        let Self { sent, corrupt, .. } = self;
        let ServerRecipe { name, workload, .. } = recipe;
        if recipe.no_reply {
            return format!("{name} read none of {sent} requests of workload {workload}");
        }
        format!(
            "{name} answered none of {sent} requests of workload {workload} ({corrupt} replies did not match)"
        )
    }
}

/// Why a step requires a change of the server's source; `None` if it does not.
pub(crate) fn refusal_of_source(step: &LadderStep) -> Option<String> {
    step.configuration()
        .batched_calls
        .then(|| "not possible from outside: the server's source decides about its system calls".to_owned())
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
