//! The parts of a configuration that `boost` changes on a server program from outside.

use std::time::Duration;

use linerate_host::setting::SocketKnob;
use linerate_host::{PacketPath, Setting, SettingValue};
use linerate_load::{Generator, LoadSlot};
use linerate_tune::boost::discovery::{DiscoveryError, ObservationOptions};
use linerate_tune::boost::plan::{self, BoostChoice};
use linerate_tune::boost::{BoostPlan, ObservedServer};
use linerate_tune::plan::PlannedChange;

use crate::ladder::configuration::{BUSY_POLL_US, PortSharing, ServerConfiguration};
use crate::ladder::error::TestbedError;

/// How long the server is observed under load. Samples of its system calls show the readers after some 100 ms.
const OBSERVATION: Duration = Duration::from_millis(700);
/// Requests per second during the observation: enough to see each reader, less than any server answers.
const OBSERVATION_RATE: f64 = 4_000.0;
/// Receive buffer of the step `receive-buffer`, bytes as the kernel counts them: twice the requested size.
const RECEIVE_BUFFER: u64 = 8 << 20;

/// The changes that were planned for a running server, by part, and the changes that are in effect.
/// A restarted server has other sockets and threads, so it gets a new plan.
#[derive(Debug)]
pub(crate) struct BoostChanges {
    by_part: Vec<BoostPlan>,
    made: Vec<PlannedChange>,
}

impl BoostChanges {
    /// Observes the server while the generator sends at most `max_per_second` requests, and plans all changes.
    pub(crate) fn plan(
        generator: &mut dyn Generator,
        max_per_second: Option<f64>,
        observe: impl FnOnce(ObservationOptions) -> Result<(ObservedServer, PacketPath), TestbedError> + Send,
    ) -> Result<Self, TestbedError> {
        let options = ObservationOptions { duration: OBSERVATION, datagrams: true };
        let rate = max_per_second.map_or(OBSERVATION_RATE, |limit| limit.min(OBSERVATION_RATE));
        let slot = LoadSlot::rate(rate, OBSERVATION + Duration::from_millis(500));
        let observation = std::thread::scope(|scope| {
            let observer = scope.spawn(move || observe(options));
            // Unanswered requests do not matter here.
            let _ = generator.run(&slot);
            observer.join()
        });
        let (server, path) = observation
            .map_err(|_| observation_error("the observation of the server panicked".to_owned()))??;
        let by_part = PARTS.iter().map(|part| part.plan(&server, &path)).collect();
        Ok(Self { by_part, made: Vec::new() })
    }

    /// The changes of a configuration, in the order in which they are made.
    pub(crate) fn changes_for(
        &self,
        configuration: &ServerConfiguration,
    ) -> Result<Vec<PlannedChange>, TestbedError> {
        let mut changes: Vec<PlannedChange> = Vec::new();
        for (part, plan) in PARTS.iter().zip(&self.by_part).filter(|(part, _)| (part.wanted)(configuration)) {
            let part_changes = plan.plan.changes.iter().filter(|change| (part.has)(&change.setting));
            let count = changes.len();
            changes.extend(part_changes.cloned());
            if changes.len() == count {
                let why: Vec<&str> = plan.refusals.iter().map(|refusal| refusal.why.as_str()).collect();
                let why = if why.is_empty() { "it is so already".to_owned() } else { why.join("; ") };
                return Err(TestbedError::Refused { setting: format!("boost, {}", part.name), why });
            }
        }
        Ok(changes)
    }

    /// Undoes the changes that this configuration does not have, last change first. Then makes the
    /// missing changes.
    pub(crate) fn switch(
        &mut self,
        configuration: &ServerConfiguration,
        write: &mut dyn FnMut(&PlannedChange, &SettingValue) -> Result<(), TestbedError>,
    ) -> Result<(), TestbedError> {
        let planned = self.changes_for(configuration)?;
        let contains = |changes: &[PlannedChange], change: &PlannedChange| {
            changes.iter().any(|other| other.setting == change.setting)
        };
        // Changes that both configurations have stay, so that a running server notices as little as
        // possible.
        for index in (0..self.made.len()).rev() {
            if !contains(&planned, &self.made[index]) {
                let change = self.made.remove(index);
                write(&change, &change.from)?;
            }
        }
        for change in planned {
            if !contains(&self.made, &change) {
                write(&change, &change.to)?;
                self.made.push(change);
            }
        }
        Ok(())
    }
}

fn observation_error(why: String) -> TestbedError {
    TestbedError::Refused { setting: "boost".to_owned(), why }
}

impl From<DiscoveryError> for TestbedError {
    fn from(error: DiscoveryError) -> Self {
        observation_error(error.to_string())
    }
}

struct BoostPart {
    name: &'static str,
    wanted: fn(&ServerConfiguration) -> bool,
    has: fn(&Setting) -> bool,
    /// Enables this part in the options of boost.
    choose: fn(&mut BoostChoice),
    /// The option of a server in a report, and its value with boost.
    shown: (&'static str, &'static str),
}

/// In the order in which the changes are made: a thread is on its CPU before packets are steered to it.
const PARTS: &[BoostPart] = &[
    BoostPart {
        name: "receive buffers",
        wanted: |configuration| configuration.receive_buffer,
        has: |setting| matches!(setting, Setting::Socket { knob: SocketKnob::ReceiveBuffer, .. }),
        choose: |choice| choice.receive_buffer_bytes = Some(RECEIVE_BUFFER),
        shown: ("receive buffers", "4 MiB, with boost"),
    },
    BoostPart {
        name: "pinning",
        wanted: |configuration| configuration.pinned,
        has: |setting| matches!(setting, Setting::ThreadCpus { .. }),
        choose: |choice| choice.no_pin = false,
        shown: ("threads", "pinned, with boost"),
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
        shown: ("sockets", "chosen by CPU, with boost"),
    },
    BoostPart {
        name: "IP_MTU_DISCOVER",
        wanted: |configuration| configuration.skip_ip_id,
        has: |setting| matches!(setting, Setting::Socket { knob: SocketKnob::PathMtu, .. }),
        choose: |choice| choice.skip_ip_id = true,
        shown: ("IP_MTU_DISCOVER", "IP_PMTUDISC_DO, with boost"),
    },
    BoostPart {
        name: "busy polling",
        wanted: |configuration| configuration.busy_poll,
        has: |setting| matches!(setting, Setting::Socket { knob: SocketKnob::BusyPoll, .. }),
        choose: |choice| choice.busy_poll_us = Some(BUSY_POLL_US),
        shown: ("SO_BUSY_POLL", "50 us, with boost"),
    },
];

impl BoostPart {
    /// The plan for this part alone. A part that neither pins nor steers keeps only its own
    /// refusals, because sockets that cannot be steered can still get socket options.
    fn plan(&self, server: &ObservedServer, path: &PacketPath) -> BoostPlan {
        let no_choice = BoostChoice { no_pin: true, no_steer: true, ..BoostChoice::default() };
        let mut choice = no_choice.clone();
        (self.choose)(&mut choice);
        let mut plan = plan::make(server, path, &choice);
        if choice.no_pin && choice.no_steer {
            let base_refusals = plan::make(server, path, &no_choice).refusals;
            plan.refusals.retain(|refusal| !base_refusals.contains(refusal));
        }
        plan
    }
}

pub(crate) fn is_boosted(configuration: &ServerConfiguration) -> bool {
    PARTS.iter().any(|part| (part.wanted)(configuration))
}

/// Name and value of each option that boost may change.
pub(crate) fn describe(configuration: &ServerConfiguration) -> impl Iterator<Item = (String, String)> {
    PARTS.iter().map(|part| {
        let (name, boosted_value) = part.shown;
        let value = if (part.wanted)(configuration) { boosted_value } else { "as started" };
        (format!("server {name}"), value.to_owned())
    })
}
