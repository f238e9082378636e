//! What a ladder needs of the place where it is climbed.

mod counted;
pub(crate) mod measuring;
pub(crate) mod server;

use std::net::SocketAddr;
use std::time::Duration;

use linerate_host::Known;
use linerate_host::stage::machine::CpuTime;
use linerate_load::{GeneratorDescription, Latency};

use crate::ladder::configuration::ServerConfiguration;
use crate::ladder::report::LadderWarning;
use crate::ladder::step::LadderStep;

/// A place where configurations can be set and measured: the lab, or a real NIC.
pub trait Testbed {
    /// Why a step cannot be had here, if it cannot.
    fn refusal(&self, step: &LadderStep) -> Option<String>;

    /// The configuration in words: name and value of everything that would be set.
    fn describe(&self, configuration: &ServerConfiguration) -> Vec<(String, String)>;

    /// Sets host and server as told.
    ///
    /// # Errors
    /// When a setting is refused; some may have been changed by then.
    fn switch(&mut self, configuration: &ServerConfiguration) -> Result<(), BenchError>;

    /// Measures the capacity of what was switched to last.
    ///
    /// # Errors
    /// When server or generator fail.
    fn sample(&mut self, request: &mut SampleRequest<'_>) -> Result<StepSample, BenchError>;

    /// Offers multiples of a capacity and tells which share of it is still answered.
    ///
    /// # Errors
    /// When server or generator fail.
    fn overload(&mut self, capacity: f64, factors: &[f64]) -> Result<Vec<OverloadGoodput>, BenchError>;

    /// Time the CPUs spent so far, steal apart.
    fn cpu_time(&self) -> Known<CpuTime>;

    /// What casts doubt on a step because of where it is climbed.
    fn warnings(&self, step: &LadderStep, configuration: &ServerConfiguration) -> Vec<LadderWarning>;
}

/// A bench that a report can be made of.
pub trait ReportedTestbed: Testbed {
    /// What the report tells of it.
    fn facts(&self) -> PlaceFacts;
}

/// What a report tells of a bench.
#[derive(Debug, Clone)]
pub struct PlaceFacts {
    /// `lab` or `host`.
    pub bench: &'static str,
    /// The CPUs that the climb may use.
    pub cpus: Vec<u32>,
    /// Those of the server's workers.
    pub server_cpus: Vec<u32>,
    /// Queues of the receiver's interface.
    pub queues: u32,
    /// Address of the server.
    pub address: SocketAddr,
    /// What sends the load; none where nothing did.
    pub generator: Option<GeneratorDescription>,
    /// The hosts that send; none in a lab.
    pub generator_hosts: Vec<String>,
    /// Whether server and generator run on the same CPUs.
    pub shares_cpus: bool,
    /// What casts doubt on the whole climb.
    pub warnings: Vec<LadderWarning>,
}

/// How one sample is to be taken.
pub struct SampleRequest<'a> {
    /// Rates between which the capacity is expected, transactions a second.
    pub hint: Option<(f64, f64)>,
    /// Time to take about.
    pub budget: Duration,
    /// Told of each rate before it is offered, transactions a second.
    pub probing: &'a mut dyn FnMut(f64),
}

/// One measurement of a configuration's capacity.
#[derive(Debug, Clone)]
pub struct StepSample {
    /// Answered transactions a second at the highest rate that held.
    pub transactions_per_second: f64,
    /// Share of the requests lost at that rate.
    pub loss_ratio: f64,
    /// Latency of the answered ones from their intended send time.
    pub latency: Latency,
    /// Cycles of the machine a transaction.
    pub cycles_per_transaction: Known<f64>,
    /// Instructions of the machine a transaction.
    pub instructions_per_transaction: Known<f64>,
    /// Why the generator was the limit, if it was.
    pub generator_bound: Option<String>,
    /// Whether the time was over before the rate was confirmed.
    pub unconfirmed: bool,
    /// Replacements made for what was asked, as told by the server.
    pub fallbacks: Vec<String>,
}

/// What was answered under overload.
#[derive(Debug, Clone, PartialEq)]
pub struct OverloadGoodput {
    /// The multiple of the capacity offered.
    pub factor: f64,
    /// Share of the capacity answered.
    pub ratio: Known<f64>,
}

/// Why a configuration could not be set or measured: one line.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The climb was told to stop.
    #[error("interrupted")]
    Cancelled,
    /// A setting was refused.
    #[error(transparent)]
    Setting(#[from] linerate_host::SettingError),
    /// The server could not be run.
    #[error("server: {0}")]
    Server(String),
    /// The generator could not be run.
    #[error("generator: {0}")]
    Generator(String),
    /// A generator died, or the way to it: there is nothing to measure with any more.
    #[error("generator lost: {0}")]
    GeneratorLost(String),
    /// The host refused a setting.
    #[error("{setting}: {why}")]
    Refused { setting: String, why: String },
    /// A change could not be written down, or somebody else changed the setting since.
    #[error(transparent)]
    Tune(#[from] linerate_tune::transaction::TuneError),
    /// Nothing that was sent came back.
    #[error("{0}")]
    Unanswered(String),
    /// The interface has no link.
    #[error("{0}")]
    NoLink(String),
    #[error("lab: {0}")]
    Lab(String),
}

impl BenchError {
    /// Whether no other step could be measured either.
    #[must_use]
    pub fn ends_the_climb(&self) -> bool {
        matches!(
            self,
            BenchError::Cancelled
                | BenchError::GeneratorLost(_)
                | BenchError::Tune(_)
                | BenchError::NoLink(_)
        )
    }
}
