//! Load from other hosts, over the system's OpenSSH.
//!
//! [`RemoteGenerators`] is a [`Generator`] of one `linerate load --on-demand` per host. Each runs at the other end of one ssh
//! process for many slots, so ports and programs stay the same and no interface is reset. It ends with its connection: at the
//! end of its standard input, or after 15 s without a line. Nothing is installed or left running there.
//!
//! All hosts begin a slot at the same time. Each host's clock is compared with the local clock over the connection, and the
//! order has the start in that host's time, so clocks need not agree. Latency is measured by each generator's own clock.

mod clock;
mod link;
mod on_demand;
mod protocol;
mod slot;
mod ssh;
#[cfg(test)]
pub(crate) mod tests;
mod workload;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use linerate_load::{Generator, GeneratorDescription, GeneratorError, LoadSlot, SlotInterval, SlotOutcome};

use link::{HostLink, LinkNews};
use protocol::{ReadyGenerator, RemoteAnswer, SCHEMA};
use slot::LateSlots;

pub use clock::ClockOffset;
pub use on_demand::serve;
pub use ssh::{RemoteError, RemoteLoad, SshHost, SshHostError};
pub use workload::receive_workload;

/// Longest wait for a generator. ssh gives up a connection after 10 s, and an interface needs some time.
const READY_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest comparison of clocks before the first slot.
const CLOCK_TIMEOUT: Duration = Duration::from_secs(2);
/// A larger error of a clock is worth a warning.
const CLOCK_ERROR_LIMIT: Duration = Duration::from_millis(10);
const CANCEL_POLL: Duration = Duration::from_millis(50);
/// Readings of a clock before the first slot.
const READINGS: usize = 5;

#[derive(Debug, Clone)]
pub struct RemoteOptions {
    /// Each host sends an equal share of a rate.
    pub hosts: Vec<SshHost>,
    /// ssh with its arguments, such as `-i KEY`.
    pub ssh: Vec<String>,
    /// Name or path of linerate on the other hosts.
    pub program: String,
    pub load: RemoteLoad,
    /// Set to end the current slot, whose result is complete then, or the start of the generators.
    pub cancel: Arc<AtomicBool>,
}

impl Default for RemoteOptions {
    fn default() -> Self {
        RemoteOptions {
            hosts: Vec::new(),
            ssh: vec!["ssh".to_owned()],
            program: "linerate".to_owned(),
            load: RemoteLoad::default(),
            cancel: Arc::default(),
        }
    }
}

/// Generators on other hosts that send at the same time. After one has failed every slot is an error; start all of them
/// again.
#[derive(Debug)]
pub struct RemoteGenerators {
    options: RemoteOptions,
    // Dropped first, because threads of links may wait for room in it.
    events: Receiver<(usize, LinkNews)>,
    links: Vec<HostLink>,
    warnings: Vec<String>,
    slots: u64,
    late_slots: LateSlots,
}

impl RemoteGenerators {
    /// Connects to all hosts and starts a generator on each. Nothing is sent yet.
    ///
    /// # Errors
    /// If a host cannot be reached, has no linerate or another version, or its generator refuses to
    /// start; the message names every such host. [`RemoteError::Cancelled`] after `cancel` is set.
    /// Generators that did start are ended.
    pub fn start(options: RemoteOptions) -> Result<Self, RemoteError> {
        if options.hosts.is_empty() {
            return Err(RemoteError::NoHosts);
        }
        for (host_index, host) in options.hosts.iter().enumerate() {
            if options.hosts[..host_index].contains(host) {
                return Err(RemoteError::Twice(host.clone()));
            }
        }
        // Bounded, because a host could send more than fits into memory.
        let (event_sender, events) = mpsc::sync_channel(4 * options.hosts.len());
        let mut generators = RemoteGenerators {
            options,
            events,
            links: Vec::new(),
            warnings: Vec::new(),
            slots: 0,
            late_slots: LateSlots::default(),
        };
        let RemoteOptions { hosts, ssh, program, load, .. } = &generators.options;
        for (host_index, host) in hosts.iter().enumerate() {
            generators.links.push(HostLink::start(ssh, host, program, load, host_index, &event_sender)?);
        }
        generators.await_ready()?;
        Ok(generators)
    }

    pub fn each(&self) -> impl Iterator<Item = (&SshHost, &GeneratorDescription)> {
        self.links.iter().filter_map(|link| Some((&link.host, &link.ready.as_ref()?.generator)))
    }

    /// CPUs of the host that has the fewest CPUs.
    #[must_use]
    pub fn fewest_cpus(&self) -> usize {
        self.links.iter().filter_map(|link| link.ready.as_ref()).map(|ready| ready.cpus).min().unwrap_or(1)
    }

    /// `None` if no reading of a host's clock arrived.
    pub fn clocks(&self) -> impl Iterator<Item = (&SshHost, Option<ClockOffset>)> {
        self.links.iter().map(|link| (&link.host, link.clock()))
    }

    /// One line each about the start, in order of time.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    fn warn(&mut self, warning: String) {
        if !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }

    /// Waits until generators are ready and clocks compared.
    fn await_ready(&mut self) -> Result<(), RemoteError> {
        let mut waiting: BTreeSet<usize> = (0..self.links.len()).collect();
        let deadline = Instant::now() + READY_TIMEOUT;
        let mut errors = BTreeMap::new();
        while !waiting.is_empty() {
            if self.options.cancel.load(Ordering::Relaxed) {
                return Err(RemoteError::Cancelled);
            }
            let Some((host_index, news)) = self.next_event(deadline.min(Instant::now() + CANCEL_POLL)) else {
                if Instant::now() < deadline {
                    continue;
                }
                let silent_errors = waiting.iter().filter_map(|host_index| {
                    Some((*host_index, no_answer_error(self.links.get(*host_index)?)))
                });
                errors.extend(silent_errors);
                break;
            };
            match news {
                LinkNews::Answer(RemoteAnswer::Ready(ready)) if waiting.remove(&host_index) => {
                    errors.extend(self.record_ready(host_index, ready).map(|error| (host_index, error)));
                }
                LinkNews::Answer(_) | LinkNews::Odd(_) => {}
                LinkNews::Gone => {
                    waiting.remove(&host_index);
                    let (ssh, program) = (&self.options.ssh, &self.options.program);
                    let link = self.links.get_mut(host_index).filter(|_| !errors.contains_key(&host_index));
                    errors.extend(link.map(|link| (host_index, link.ready_error(ssh, program))));
                }
            }
        }
        let mut errors: Vec<RemoteError> = errors.into_values().collect();
        match errors.len() {
            0 => {}
            1 => return errors.pop().map_or(Ok(()), Err),
            _ => return Err(RemoteError::Several(errors)),
        }
        self.compare_clocks();
        Ok(())
    }

    fn record_ready(&mut self, host_index: usize, ready: Box<ReadyGenerator>) -> Option<RemoteError> {
        let link = self.links.get_mut(host_index)?;
        // It ends without pings, and the other hosts may take longer than that.
        link.keep_alive();
        let (host, version, own_version) = (link.host.clone(), &ready.version, env!("CARGO_PKG_VERSION"));
        if ready.schema != SCHEMA {
            let its = format!("linerate {version} ({})", ready.schema);
            return Some(RemoteError::Version { host, program: self.options.program.clone(), its });
        }
        let warning = (version != own_version).then(|| {
            format!("{host} runs linerate {version}, this is {own_version}: they may measure differently")
        });
        let fallbacks: Vec<String> =
            ready.generator.fallbacks.iter().map(|fallback| format!("{host}: {fallback}")).collect();
        link.ready = Some(ready);
        for line in warning.into_iter().chain(fallbacks) {
            self.warn(line);
        }
        None
    }

    /// A host that does not answer fails at its first slot.
    fn compare_clocks(&mut self) {
        let deadline = Instant::now() + CLOCK_TIMEOUT;
        let ping = |link: &HostLink, number: usize| {
            // The end of the answers reports a broken connection.
            let _ = link.line().ping(u64::MAX - number as u64);
        };
        self.links.iter().for_each(|link| ping(link, 0));
        while self.links.iter().any(|link| link.clock_readings() < READINGS && link.lost.is_none()) {
            let Some((host_index, news)) = self.next_event(deadline) else { break };
            match news {
                LinkNews::Answer(RemoteAnswer::Pong { .. }) => {
                    self.links.get(host_index).inspect(|link| ping(link, link.clock_readings()));
                }
                LinkNews::Gone => drop(self.links.get_mut(host_index).map(HostLink::record_loss)),
                LinkNews::Answer(_) | LinkNews::Odd(_) => {}
            }
        }
        let warnings: Vec<String> =
            self.clocks().filter_map(|(host, clock)| clock_warning(host, clock)).collect();
        warnings.into_iter().for_each(|warning| self.warn(warning));
    }

    /// The next news of a link; `None` after `deadline`.
    fn next_event(&mut self, deadline: Instant) -> Option<(usize, LinkNews)> {
        let timeout = deadline.saturating_duration_since(Instant::now());
        match self.events.recv_timeout(timeout) {
            Ok(event) => Some(event),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => {
                // All links are gone; no more news can come.
                std::thread::sleep(timeout);
                None
            }
        }
    }
}

/// A warning about a clock with a large error.
fn clock_warning(host: &SshHost, clock: Option<ClockOffset>) -> Option<String> {
    let Some(clock) = clock else {
        return Some(format!(
            "{host}: the offset of its clock is unknown, so its part of a slot may begin at another time"
        ));
    };
    let uncertainty = Duration::from_nanos(clock.uncertain_ns);
    (uncertainty > CLOCK_ERROR_LIMIT).then(|| {
        let milliseconds = uncertainty.as_millis();
        format!(
            "{host}: the offset of its clock is known to {milliseconds} ms only, so its part of a slot may begin earlier or later by that"
        )
    })
}

impl Drop for RemoteGenerators {
    fn drop(&mut self) {
        // All links close first; then each link is waited for.
        for link in &self.links {
            link.close();
        }
    }
}

fn no_answer_error(link: &HostLink) -> RemoteError {
    RemoteError::Silent { host: link.host.clone(), seconds: READY_TIMEOUT.as_secs() }
}

impl Generator for RemoteGenerators {
    /// The sum of all hosts; see [`RemoteGenerators::each`].
    fn describe(&self) -> GeneratorDescription {
        let each: Vec<&GeneratorDescription> = self.each().map(|(_, description)| description).collect();
        GeneratorDescription::merge_all(&each).unwrap_or_else(|| GeneratorDescription {
            backend: "none".to_owned(),
            workload: "none".to_owned(),
            targets: self.options.load.targets.clone(),
            ..GeneratorDescription::default()
        })
    }

    /// Offers load from all hosts at once. A rate is shared equally; a window applies to each host's flows.
    ///
    /// # Errors
    /// The errors of [`Generator::run`], and [`GeneratorError::Incomplete`] if a host fails in the
    /// slot or failed before.
    fn watch(
        &mut self,
        slot: &LoadSlot,
        observer: &mut dyn FnMut(&SlotInterval),
    ) -> Result<SlotOutcome, GeneratorError> {
        self.carry_out(slot, observer)
    }

    fn warning(&self) -> Option<String> {
        self.late_slots.warning(self.slots)
    }
}
