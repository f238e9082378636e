//! The lab as a place to climb: a server on the receiver, a generator on the sender.

mod counted;
mod placement;
mod server;
mod setup;
mod stock;
#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use linerate_engine::{Echo, Running};
use linerate_host::stage::machine::CpuTime;
use linerate_host::{Host, Known, Setting, SettingError, Value};
use linerate_lab::Lab;
use linerate_measure::capacity::{self, Ended, Event, SearchOptions};
use linerate_measure::generator::Backend;
use linerate_measure::{Description, Generator};

use crate::bench::{Bench, BenchError, Goodput, Sample, SampleRequest};
use crate::configuration::Configuration;
use crate::report::{Warning, WarningKind};
use crate::rung::{Rung, Touches};
use counted::Counted;
use stock::{Receiver, Settable};

pub use placement::Placement;

/// Longest wait for stragglers after a slot.
const DRAIN: Duration = Duration::from_millis(60);
/// Where a search without a hint starts, transactions a second.
const START: f64 = 8_000.0;

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
    pub backend: Backend,
    /// Whether to refuse what would be fragmented.
    pub no_fragment: bool,
    /// Highest loss ratio at which a rate holds.
    pub max_loss: f64,
    /// Length of one probe of a rate.
    pub slot: Duration,
    /// Ratio of a rate that does not hold to one that does at which a search ends.
    pub resolution: f64,
    /// Whether host-wide settings may be changed.
    pub host_wide: bool,
    /// Raised to stop.
    pub cancel: Arc<AtomicBool>,
}

/// A lab that is ready to be climbed in.
pub struct LabBench {
    // In the order of dropping: what lives in the hosts goes before them.
    server: Option<Running>,
    generator: Box<dyn Generator>,
    host: Host,
    options: LabBenchOptions,
    placement: Placement,
    receiver: Receiver,
    address: SocketAddr,
    settable: Settable,
    refusals: Refusals,
    /// Niceness of the server's workers, where they share CPUs with the generator.
    server_nice: Option<i32>,
    applied: BTreeMap<Setting, Value>,
    lab: Lab,
}

/// Why what a rung acts on cannot be acted on here.
#[derive(Debug, Clone, Default)]
struct Refusals {
    queue_cpus: Option<String>,
    offload: Option<String>,
    netfilter: Option<String>,
    audit: Option<String>,
    busy_poll: Option<String>,
}

impl LabBench {
    /// What sends the load.
    #[must_use]
    pub fn generator(&self) -> Description {
        self.generator.describe()
    }

    /// Who runs where.
    #[must_use]
    pub fn placement(&self) -> &Placement {
        &self.placement
    }

    /// Address of the server.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Queues of the receiver's interface.
    #[must_use]
    pub fn queues(&self) -> u32 {
        self.receiver.queues
    }

    fn cancelled(&self) -> bool {
        self.options.cancel.load(Ordering::Relaxed)
    }

    /// Writes what differs from what was written last.
    fn apply(&mut self, configuration: &Configuration) -> Result<(), BenchError> {
        let wanted = stock::settings(&self.receiver, &self.placement, &self.settable, configuration);
        let changed: Vec<(Setting, Value)> =
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

    fn serve(&mut self, configuration: &Configuration) -> Result<(), BenchError> {
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

impl Bench for LabBench {
    fn refusal(&self, rung: &Rung) -> Option<String> {
        match rung.touches {
            Touches::Server | Touches::Sysctl => None,
            Touches::QueueCpus => self.refusals.queue_cpus.clone(),
            Touches::Offload => self.refusals.offload.clone(),
            Touches::Netfilter => self.refusals.netfilter.clone(),
            Touches::Audit => self.refusals.audit.clone(),
            Touches::BusyPoll => self.refusals.busy_poll.clone(),
        }
    }

    fn describe(&self, configuration: &Configuration) -> Vec<(String, String)> {
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

    fn switch(&mut self, configuration: &Configuration) -> Result<(), BenchError> {
        if self.cancelled() {
            return Err(BenchError::Cancelled);
        }
        if let Some(running) = self.server.take() {
            running.stop().map_err(|error| BenchError::Server(error.to_string()))?;
        }
        self.apply(configuration)?;
        self.serve(configuration)
    }

    fn sample(&mut self, request: &mut SampleRequest<'_>) -> Result<Sample, BenchError> {
        let probing = RefCell::new(&mut *request.probing);
        let observer = |event: Event<'_>| {
            if let Event::Offering { per_second, .. } = event {
                (probing.borrow_mut())(per_second);
            }
        };
        let options = SearchOptions {
            max_loss: self.options.max_loss,
            slot: self.options.slot,
            drain: DRAIN,
            start_per_second: START,
            bracket: request.hint,
            resolution: self.options.resolution,
            confirm: 1,
            budget: request.budget,
            cancel: Some(&self.options.cancel),
            observer: Some(&observer),
            ..SearchOptions::default()
        };
        let mut counted = Counted::new(&mut *self.generator);
        let found = capacity::search(&mut counted, &options)
            .map_err(|error| BenchError::Generator(error.to_string()))?;
        if found.ended == Ended::Cancelled {
            return Err(BenchError::Cancelled);
        }
        let (cycles_per_transaction, instructions_per_transaction) = counted.at(found.offered_per_second);
        let generator_bound = found.generator_bound.then(|| {
            let reasons = found.slots.iter().flat_map(|slot| &slot.bound_because);
            reasons.last().map_or_else(|| "it could not offer more".to_owned(), ToString::to_string)
        });
        let fallbacks = self.server.as_ref().map_or_else(Vec::new, |server| {
            server.fallbacks().iter().map(|fallback| format!("{}: {}", fallback.what, fallback.why)).collect()
        });
        Ok(Sample {
            transactions_per_second: found.transactions_per_second,
            loss_ratio: found.loss_ratio,
            latency: found.latency_ns,
            cycles_per_transaction,
            instructions_per_transaction,
            generator_bound,
            unconfirmed: found.ended == Ended::OutOfTime,
            fallbacks,
        })
    }

    fn overload(&mut self, capacity: f64, factors: &[f64]) -> Result<Vec<Goodput>, BenchError> {
        if self.cancelled() {
            return Err(BenchError::Cancelled);
        }
        let measured = capacity::overload(&mut *self.generator, capacity, factors, self.options.slot)
            .map_err(|error| BenchError::Generator(error.to_string()))?;
        Ok(measured
            .into_iter()
            .map(|overload| Goodput { factor: overload.factor, ratio: overload.goodput_ratio })
            .collect())
    }

    fn cpu_time(&self) -> Known<CpuTime> {
        CpuTime::observe(&self.host)
    }

    fn warnings(&self, rung: &Rung, configuration: &Configuration) -> Vec<Warning> {
        let mut warnings = Vec::new();
        if rung.touches == Touches::BusyPoll && !configuration.gro {
            warnings.push(Warning {
                kind: WarningKind::NoEffectExpected,
                detail: "with GRO off a veth interface has no NAPI instance that could be polled".to_owned(),
            });
        }
        warnings
    }
}
