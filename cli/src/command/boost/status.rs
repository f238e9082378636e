//! `linerate boost status`: what is in force, where packets go, and whether somebody still reads them. Changes nothing.

use std::process::ExitCode;

use anyhow::Result;
use linerate_host::setting::steered;
use linerate_host::{Host, Known, Setting};
use linerate_tune::boost::discovery::{ObservedServer, ServerQuery};
use linerate_tune::boost::plan;
use linerate_tune::journal::Journal;
use linerate_tune::status::{JournalStatus, TuneStatus};

use super::arguments::BoostTargetArgs;
use super::boosts;
use super::document::{self, ActiveBoost, BoostStatusDocument, BoostedServerState, SteeredGroup};
use super::sighting;
use crate::interrupt::InterruptFlag;
use crate::output::{self, OutputTarget};
use crate::render::boost_status;
use crate::render::style::TextStyle;

pub(super) fn run(asked: &BoostTargetArgs) -> Result<ExitCode> {
    let json = OutputTarget::from_option(asked.json.as_deref())?;
    let (host, interrupt) = (Host::live().gently(), InterruptFlag::install()?);
    let journal = asked.place.existing()?.read()?;
    let JournalStatus { journal: file, trouble, holder, tunes, .. } = JournalStatus::of(&journal, &host);
    let meant = |status: &TuneStatus| is_meant(&journal, status.tune, asked);
    let looking = BoostStatusReader { host: &host, journal: &journal, asked, interrupt: &interrupt };
    let boosts = tunes.into_iter().filter(meant).map(|tune| looking.boost(tune)).collect();
    let in_force = BoostStatusDocument {
        schema: document::STATUS,
        version: env!("CARGO_PKG_VERSION"),
        argv: output::argv(),
        journal: file,
        trouble,
        holder,
        boosts,
    };
    if let Some(target) = &json {
        target.write_json(&in_force)?;
    }
    if json != Some(OutputTarget::Stdout) {
        output::print(&boost_status::status(&in_force, &asked.place, asked.full, TextStyle::stdout()))?;
    }
    Ok(ExitCode::from(u8::from(in_force.needs_attention())))
}

fn is_meant(journal: &Journal, number: u64, asked: &BoostTargetArgs) -> bool {
    let tunes = journal.tunes();
    tunes.iter().any(|tune| tune.begun.tune == number && boosts::is_meant(tune, asked))
}

struct BoostStatusReader<'a> {
    host: &'a Host,
    journal: &'a Journal,
    asked: &'a BoostTargetArgs,
    interrupt: &'a InterruptFlag,
}

impl BoostStatusReader<'_> {
    fn boost(&self, tune: TuneStatus) -> ActiveBoost {
        let groups = tune.settings.iter().filter_map(|setting| self.group(&setting.setting)).collect();
        let now = self.now(&tune);
        ActiveBoost { tune, groups, now }
    }

    /// What the program of a group did.
    fn group(&self, setting: &Setting) -> Option<SteeredGroup> {
        let Setting::Steering { namespace, protocol, local } = setting else { return None };
        let steered = match steered(self.host, *namespace, *protocol, *local) {
            Ok(steered) => Known::Value(steered),
            Err(error) => Known::unknown(error.to_string()),
        };
        Some(SteeredGroup { protocol: *protocol, local: *local, steered })
    }

    /// The server, looked at anew.
    fn now(&self, tune: &TuneStatus) -> Known<BoostedServerState> {
        let tunes = self.journal.tunes();
        let begun = tunes.iter().find(|known| known.begun.tune == tune.tune);
        let asked = self.asked;
        let wanted = if asked.port.is_some() || asked.pid.is_some() {
            ServerQuery { port: asked.port, pid: asked.pid, interfaces: asked.interfaces().to_vec() }
        } else {
            let Some(port) = begun.and_then(boosts::port) else {
                return Known::unknown("the journal does not tell the server's port: --port or --pid does");
            };
            ServerQuery { port: Some(port), pid: None, interfaces: asked.interfaces().to_vec() }
        };
        match ObservedServer::observe(self.host, &wanted, asked.look(), &|| self.interrupt.is_raised()) {
            Ok((server, path)) => {
                let boost = plan::make(&server, &path, &asked.choice());
                Known::Value(BoostedServerState::of(&server, &boost, sighting::landed(&server)))
            }
            Err(error) => Known::unknown(error.to_string()),
        }
    }
}
