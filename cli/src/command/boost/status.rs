//! `linerate boost status`: the boosts in effect, the delivery of packets, sockets that are not read, and replicas. Changes
//! nothing.

use std::process::ExitCode;

use anyhow::Result;
use linerate_host::setting::steering_counts;
use linerate_host::{Host, Known, Setting};
use linerate_tune::boost::discovery::{ObservedServer, ServerQuery};
use linerate_tune::boost::plan::{self, BoostChoice};
use linerate_tune::boost::replicas::{self, ReplicaSetState};
use linerate_tune::boost::report::{ActiveBoost, BoostStatusReport, BoostedServerState, SteeredGroup};
use linerate_tune::journal::Journal;
use linerate_tune::status::{JournalStatus, TuneStatus};

use super::arguments::BoostTargetArgs;
use super::boosts;
use crate::command::results::write_state;
use crate::interrupt::InterruptFlag;
use crate::output::OutputTarget;
use crate::view;

pub(super) fn run(target: &BoostTargetArgs) -> Result<ExitCode> {
    let json = OutputTarget::from_option(target.json.as_deref())?;
    let (host, interrupt) = (Host::live().gently(), InterruptFlag::install()?);
    let journal = target.state_dir.existing_store()?.read()?;
    let JournalStatus { journal: file, trouble: corruption, holder, tunes, .. } =
        JournalStatus::of(&journal, &host);
    let recorded_tunes = journal.tunes();
    let requested = boosts::of_target(&recorded_tunes, target);
    let matches_target =
        |status: &TuneStatus| requested.iter().any(|recorded| recorded.begun.tune == status.tune);
    let status_reader = BoostStatusReader { host: &host, journal: &journal, target, interrupt: &interrupt };
    let boosts = tunes.into_iter().filter(matches_target).map(|tune| status_reader.boost(tune)).collect();
    let replicas = ReplicaSetState::observe_all(&host, target.port).into();
    let report = BoostStatusReport { journal: file, trouble: corruption, holder, boosts, replicas };
    let needs_attention = report.needs_attention();
    write_state(json.as_ref(), &host, report, |envelope| {
        view::boost::status(envelope, &|subcommand| target.state_dir.command(subcommand), target.full)
    })?;
    Ok(ExitCode::from(u8::from(needs_attention)))
}

struct BoostStatusReader<'a> {
    host: &'a Host,
    journal: &'a Journal,
    target: &'a BoostTargetArgs,
    interrupt: &'a InterruptFlag,
}

impl BoostStatusReader<'_> {
    fn boost(&self, tune: TuneStatus) -> ActiveBoost {
        let groups = tune.settings.iter().filter_map(|setting| self.group(&setting.setting)).collect();
        let now = self.observe_again(&tune);
        ActiveBoost { tune, groups, now }
    }

    fn group(&self, setting: &Setting) -> Option<SteeredGroup> {
        let Setting::Steering { namespace, protocol, local } = setting else { return None };
        let group_state = match steering_counts(self.host, *namespace, *protocol, *local) {
            Ok(steered) => Known::Value(steered),
            Err(error) => Known::unknown(error.to_string()),
        };
        Some(SteeredGroup { protocol: *protocol, local: *local, steered: group_state })
    }

    fn observe_again(&self, tune: &TuneStatus) -> Known<BoostedServerState> {
        let tunes = self.journal.tunes();
        let recorded_tune = tunes.iter().find(|recorded| recorded.begun.tune == tune.tune);
        if recorded_tune.is_some_and(|tune| !boosts::is_in_own_namespace(tune)) {
            return Known::unknown("it is in another network namespace: see --netns");
        }
        let target = self.target;
        let port = match (target.port, target.pid) {
            (None, None) => recorded_tune.and_then(boosts::port),
            (port, _) => port,
        };
        if port.is_none() && target.pid.is_none() {
            return Known::unknown("the journal does not contain the server's port: give --port or --pid");
        }
        let query = ServerQuery { port, pid: target.pid, interfaces: target.interfaces.clone() };
        match ObservedServer::observe(self.host, &query, target.observation_options(), &|| {
            self.interrupt.is_raised()
        }) {
            Ok((server, path)) => {
                let is_steered_by_run = replicas::are_copies(self.host, &server);
                let choice = BoostChoice { is_steered_by_run, ..target.boost_choice() };
                let choice = match recorded_tune {
                    Some(recorded_tune) => boosts::choice_of(recorded_tune, &choice),
                    None => choice,
                };
                let boost = plan::make(&server, &path, &choice);
                Known::Value(BoostedServerState::of(&server, &boost))
            }
            Err(error) => Known::unknown(error.to_string()),
        }
    }
}
