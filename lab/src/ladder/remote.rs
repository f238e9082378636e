//! Load from other hosts, over the system's OpenSSH.
//!
//! [`RemoteGenerators`] is a [`Generator`] made of one `linerate load --on-demand` a host. Each runs at the other end of one ssh
//! process and lives over many slots, as a generator here does: ports and programs stay the same from slot to slot, and no
//! interface is reset in between. It ends when its connection does, however that happens: at the end of its standard
//! input, or when it hears nothing for 15 s. Nothing is installed or left running there.
//!
//! A slot begins everywhere at one moment. Each host's clock is compared with ours over the connection all along, and the
//! moment is told in that host's time; clocks need not agree. Latency is as each generator's own clock has it.
//!
//! [`raise`] finds out how many senders it takes.

mod clock;
mod command;
mod error;
mod far;
mod host;
mod line;
mod link;
mod merged;
mod pinger;
mod raise;
mod slot;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use linerate_load::{Generator, GeneratorDescription, GeneratorError, LoadSlot, SlotInterval, SlotOutcome};

use line::{RemoteAnswer, SCHEMA};
use link::{FarGenerator, HostEvent, HostLink, LinkNews};
use pinger::KeepalivePinger;

pub use clock::ClockOffset;
pub use command::RemoteLoad;
pub use error::RemoteError;
pub use far::serve;
pub use host::{SshHost, SshHostError};
pub use raise::{RaiseError, RaiseOptions, SaturationResult, SenderCounts, SenderStep, raise, steps};

/// The longest wait for a generator to be ready: ssh gives up a connection after 10 s, and an interface may take some.
const TO_GET_READY: Duration = Duration::from_secs(30);
/// How long clocks are compared before the first slot, at most.
const TO_COMPARE: Duration = Duration::from_secs(2);
/// A clock that is known better than this starts a slot well enough.
const WELL_KNOWN: Duration = Duration::from_millis(10);
/// Readings of a clock before the first slot.
const READINGS: usize = 5;

/// Which hosts, and what runs there.
#[derive(Debug, Clone)]
pub struct RemoteOptions {
    /// The hosts; each sends an equal share of a rate.
    pub hosts: Vec<SshHost>,
    /// ssh, with words of its own such as `-i KEY`.
    pub ssh: Vec<String>,
    /// linerate, as the other hosts' shells find it.
    pub program: String,
    /// What each generator is to be.
    pub load: RemoteLoad,
    /// Raised to end the slot under way: its account is complete.
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

/// A host whose generator failed.
#[derive(Debug, Clone, PartialEq)]
pub struct LostHost {
    pub host: SshHost,
    /// How far into a slot it was, if in one.
    pub into_slot: Option<Duration>,
    /// Why, in one line.
    pub why: String,
}

/// Generators on other hosts that send together.
#[derive(Debug)]
pub struct RemoteGenerators {
    options: RemoteOptions,
    links: Vec<HostLink>,
    events: Receiver<HostEvent>,
    pinger: KeepalivePinger,
    lost: Vec<LostHost>,
    warnings: Vec<String>,
    slots: u64,
}

impl RemoteGenerators {
    /// Connects to all hosts and makes a generator on each. Nothing is sent.
    ///
    /// # Errors
    /// A host that cannot be reached, has no linerate or another one, or whose generator refuses: one line that names
    /// every such host. Those that did start are ended.
    pub fn start(options: RemoteOptions) -> Result<Self, RemoteError> {
        if options.hosts.is_empty() {
            return Err(RemoteError::NoHosts);
        }
        for (place, host) in options.hosts.iter().enumerate() {
            if options.hosts[..place].contains(host) {
                return Err(RemoteError::Twice(host.clone()));
            }
        }
        let (news, events) = mpsc::channel();
        let mut generators = RemoteGenerators {
            options,
            links: Vec::new(),
            events,
            pinger: KeepalivePinger::default(),
            lost: Vec::new(),
            warnings: Vec::new(),
            slots: 0,
        };
        let RemoteOptions { hosts, ssh, program, load, .. } = &generators.options;
        for (place, host) in hosts.iter().enumerate() {
            generators.links.push(HostLink::start(ssh, host, program, load, place, &news)?);
        }
        generators.get_ready()?;
        Ok(generators)
    }

    /// The hosts that send, in order.
    pub fn hosts(&self) -> impl Iterator<Item = &SshHost> {
        self.links.iter().map(|link| &link.host)
    }

    /// The generator of each host that sends.
    pub fn each(&self) -> impl Iterator<Item = (&SshHost, &GeneratorDescription)> {
        self.links.iter().filter_map(|link| Some((&link.host, &link.ready.as_ref()?.generator)))
    }

    /// The fewest CPUs that a generator may use on any of the hosts.
    #[must_use]
    pub fn fewest_cpus(&self) -> usize {
        self.links.iter().filter_map(|link| link.ready.as_ref()).map(|ready| ready.cpus).min().unwrap_or(1)
    }

    /// How far each host's clock is ahead of ours; none where that could not be told.
    pub fn clocks(&self) -> impl Iterator<Item = (&SshHost, Option<ClockOffset>)> {
        self.links.iter().map(|link| (&link.host, link.clock()))
    }

    /// Hosts whose generators failed. While there are any, every slot is an error; all have to be started anew.
    #[must_use]
    pub fn lost(&self) -> &[LostHost] {
        &self.lost
    }

    /// What a reader of the results has to know, one line each, in the order it came up.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    fn warn(&mut self, warning: String) {
        if !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }

    /// Waits until generators are made and clocks compared.
    fn get_ready(&mut self) -> Result<(), RemoteError> {
        let mut waiting: BTreeSet<usize> = (0..self.links.len()).collect();
        let deadline = Instant::now() + TO_GET_READY;
        let mut errors = BTreeMap::new();
        while !waiting.is_empty() {
            let Some((place, news)) = self.next_event(deadline) else {
                let silent =
                    waiting.iter().filter_map(|place| Some((*place, silent(self.links.get(*place)?))));
                errors.extend(silent);
                break;
            };
            if !waiting.contains(&place) {
                continue;
            }
            match news {
                LinkNews::Answer(RemoteAnswer::Ready { schema, version, generator, cpus }) => {
                    waiting.remove(&place);
                    let far = FarGenerator { version, generator: *generator, cpus };
                    errors.extend(self.is_ready(place, &schema, far).map(|error| (place, error)));
                }
                LinkNews::Answer(_) | LinkNews::Odd(_) => {}
                LinkNews::Gone => {
                    waiting.remove(&place);
                    let (ssh, program) = (&self.options.ssh, &self.options.program);
                    let why = self.links.get_mut(place).map(|link| link.why_not_ready(ssh, program));
                    errors.extend(why.map(|error| (place, error)));
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
        self.pinger = KeepalivePinger::of(&self.links);
        Ok(())
    }

    fn is_ready(&mut self, place: usize, schema: &str, far: FarGenerator) -> Option<RemoteError> {
        let link = self.links.get_mut(place)?;
        let (host, ours) = (link.host.clone(), env!("CARGO_PKG_VERSION"));
        if schema != SCHEMA {
            let (program, its) =
                (self.options.program.clone(), format!("linerate {} ({schema})", far.version));
            return Some(RemoteError::Version { host, program, its });
        }
        let warning = (far.version != ours).then(|| {
            format!("{host} runs linerate {}, this is {ours}: they may measure differently", far.version)
        });
        let fallbacks: Vec<String> =
            far.generator.fallbacks.iter().map(|fallback| format!("{host}: {fallback}")).collect();
        link.ready = Some(far);
        for line in warning.into_iter().chain(fallbacks) {
            self.warn(line);
        }
        None
    }

    /// Asks the time a few times over; a host that does not answer is found out at its first slot.
    fn compare_clocks(&mut self) {
        let deadline = Instant::now() + TO_COMPARE;
        let ask = |link: &HostLink, number: usize| {
            // A broken line is told of by the end of the answers.
            let _ = link.line().ping(u64::MAX - number as u64);
        };
        self.links.iter().for_each(|link| ask(link, 0));
        while !self.links.iter().all(|link| link.clock_readings() >= READINGS) {
            let Some((place, news)) = self.next_event(deadline) else { break };
            match news {
                LinkNews::Answer(RemoteAnswer::Pong { .. }) => {
                    self.links.get(place).inspect(|link| ask(link, link.clock_readings()));
                }
                LinkNews::Gone => {
                    self.lose(place, None);
                    break;
                }
                LinkNews::Answer(_) | LinkNews::Odd(_) => {}
            }
        }
        let doubts: Vec<String> = self.clocks().filter_map(|(host, clock)| doubt(host, clock)).collect();
        doubts.into_iter().for_each(|doubt| self.warn(doubt));
    }

    /// Notes that a host's connection is over, and why.
    fn lose(&mut self, place: usize, into_slot: Option<Duration>) -> String {
        let Some(link) = self.links.get_mut(place) else { return String::new() };
        let (host, why) = (link.host.clone(), link.last_words());
        if !self.lost.iter().any(|loss| loss.host == host) {
            self.lost.push(LostHost { host, into_slot, why: why.clone() });
        }
        why
    }

    /// The next thing a link tells; none after `deadline`.
    fn next_event(&mut self, deadline: Instant) -> Option<(usize, LinkNews)> {
        let left = deadline.saturating_duration_since(Instant::now());
        match self.events.recv_timeout(left) {
            Ok(HostEvent { place, news }) => Some((place, news)),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => {
                // All have told that they are gone; who waits for more waits for the time to pass.
                std::thread::sleep(left);
                None
            }
        }
    }
}

/// What a clock that is not well known means for a slot.
fn doubt(host: &SshHost, clock: Option<ClockOffset>) -> Option<String> {
    let Some(clock) = clock else {
        return Some(format!(
            "{host}: its clock is not known, its part of a slot may begin at another moment"
        ));
    };
    let uncertain = Duration::from_nanos(clock.uncertain_ns);
    (uncertain > WELL_KNOWN).then(|| {
        let milliseconds = uncertain.as_millis();
        format!(
            "{host}: its clock is known to {milliseconds} ms only, its part of a slot may begin so much apart"
        )
    })
}

impl Drop for RemoteGenerators {
    fn drop(&mut self) {
        // All at once; each is waited for after that.
        self.links.iter().for_each(HostLink::close);
    }
}

fn silent(link: &HostLink) -> RemoteError {
    RemoteError::Silent { host: link.host.clone(), seconds: TO_GET_READY.as_secs() }
}

impl Generator for RemoteGenerators {
    /// All of them together; see [`RemoteGenerators::each`].
    fn describe(&self) -> GeneratorDescription {
        let each: Vec<&GeneratorDescription> = self.each().map(|(_, description)| description).collect();
        GeneratorDescription::of_all(&each).unwrap_or_else(|| GeneratorDescription {
            backend: "none".to_owned(),
            workload: "none".to_owned(),
            threads: 0,
            flows: 0,
            payload_bytes: 0,
            targets: self.options.load.targets.clone(),
            sources: Vec::new(),
            cpus: Vec::new(),
            no_fragment: false,
            nice: None,
            receive_buffer_bytes: 0,
            fallbacks: Vec::new(),
        })
    }

    /// Offers load from all hosts at once; a rate is shared equally, a window is each host's flows'.
    ///
    /// # Errors
    /// As [`Generator::run`], and [`GeneratorError::Incomplete`] if a host fails in the slot or failed before.
    fn watch(
        &mut self,
        slot: &LoadSlot,
        observer: &mut dyn FnMut(&SlotInterval),
    ) -> Result<SlotOutcome, GeneratorError> {
        self.carry_out(slot, observer)
    }
}
