//! Testbeds, on which configurations are applied and measured. There are two: the lab, and this
//! host with a real interface.

use std::time::Duration;

use linerate_host::Known;
use linerate_host::stage::machine::CpuTime;
use linerate_load::Latency;
use linerate_load::capacity::OverloadResult;
use linerate_load::stats;

use crate::ladder::configuration::ServerConfiguration;
use crate::ladder::cpu_use::CpuUse;
use crate::ladder::error::TestbedError;
use crate::ladder::report::{LadderWarning, TestbedFacts};
use crate::ladder::step::LadderStep;

pub trait Testbed {
    fn facts(&self) -> TestbedFacts;

    /// Why a step is impossible on this testbed.
    fn refusal(&self, step: &LadderStep) -> Option<String>;

    /// Name and value of each setting of a configuration.
    fn describe(&self, configuration: &ServerConfiguration) -> Vec<(String, String)>;

    /// Applies a configuration to host and server.
    ///
    /// # Errors
    /// When a setting is refused; the settings before it have changed by then.
    fn switch(&mut self, configuration: &ServerConfiguration) -> Result<(), TestbedError>;

    /// Measures the capacity of the current configuration.
    fn sample(&mut self, request: &mut SampleRequest<'_>) -> Result<StepSample, TestbedError>;

    /// Offers multiples of a capacity and measures the share of the capacity that is still answered.
    fn overload(&mut self, capacity: f64, factors: &[f64]) -> Result<Vec<OverloadResult>, TestbedError>;

    fn cpu_time(&self) -> Known<CpuTime>;

    /// Offers a rate and samples the CPUs. Unknown if that is not possible.
    fn cpu_use(&mut self, per_second: f64) -> Result<Known<CpuUse>, TestbedError>;

    /// A warning about one step.
    fn step_warning(&self, _: &LadderStep, _: &ServerConfiguration) -> Option<LadderWarning> {
        None
    }

    /// Warnings about the whole run, in addition to those about [`Testbed::facts`].
    fn run_warnings(&self) -> Vec<LadderWarning> {
        Vec::new()
    }
}

pub struct SampleRequest<'a> {
    /// Rates between which the capacity is expected, transactions per second.
    pub hint: Option<(f64, f64)>,
    /// Approximate time for the search.
    pub budget: Duration,
    /// Called before each probe with its rate, transactions per second.
    pub on_probe: &'a mut dyn FnMut(f64),
}

/// One measurement of a configuration's capacity.
#[derive(Debug, Clone, Default)]
pub struct StepSample {
    /// Answered transactions per second at the highest rate that held.
    pub transactions_per_second: f64,
    /// Share of the requests lost at that rate.
    pub loss_ratio: f64,
    /// Latency at that rate, from the intended send time.
    pub latency: Latency,
    /// Of the whole machine.
    pub cycles_per_transaction: Known<f64>,
    /// Of the whole machine.
    pub instructions_per_transaction: Known<f64>,
    /// Why the generator was the limit, if it was.
    pub generator_bound: Option<String>,
    /// Whether the time was over before the rate was confirmed.
    pub unconfirmed: bool,
    /// Options that the server had to replace.
    pub fallbacks: Vec<String>,
}

/// The samples of one configuration.
#[derive(Debug, Default)]
pub(crate) struct ConfigurationSamples(pub(crate) Vec<StepSample>);

impl ConfigurationSamples {
    pub(crate) fn rates(&self) -> Vec<f64> {
        self.0.iter().map(|sample| sample.transactions_per_second).collect()
    }

    /// `None` without a rate that held.
    pub(crate) fn median(&self) -> Option<f64> {
        stats::median(&self.rates()).filter(|rate| *rate > 0.0)
    }
}
