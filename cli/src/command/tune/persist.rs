//! `linerate tune persist`: what is in force is made again at boot. `unpersist` takes that back.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use linerate_host::Host;
use linerate_tune::conflicts::SettingOwners;
use linerate_tune::persist::{
    self, ActiveSettings, InitSystem, PersistFiles, PersistTarget, RemovedFiles, SettingContext, WrittenFiles,
};
use linerate_tune::status::JournalStatus;
use serde::Serialize;

use super::arguments::{StateDirArgs, must_be_root};
use super::ask::ConsentMode;
use crate::interrupt::InterruptFlag;
use crate::output::{self, OutputTarget};
use crate::render::style::TextStyle;
use crate::render::{tune_persist, tune_plan};

/// Arguments of `tune persist`.
#[derive(Debug, Args)]
pub(super) struct TunePersistArgs {
    /// Write below this directory, as for an image, instead of /
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,
    #[command(flatten)]
    agreement: ConsentMode,
    /// Write what was done as JSON; - is standard output
    #[arg(short = 'j', long, value_name = "FILE")]
    json: Option<String>,
    #[command(flatten)]
    place: StateDirArgs,
}

/// Arguments of `tune unpersist`.
#[derive(Debug, Args)]
pub(super) struct TuneUnpersistArgs {
    /// Write what was done as JSON; - is standard output
    #[arg(short = 'j', long, value_name = "FILE")]
    json: Option<String>,
    #[command(flatten)]
    place: StateDirArgs,
}

/// What was done, as `--json` has it.
#[derive(Serialize)]
struct PersistDocument<T> {
    schema: &'static str,
    version: &'static str,
    argv: Vec<String>,
    #[serde(flatten)]
    what: T,
}

/// What `persist` did.
#[derive(Serialize)]
struct PersistResult<'a> {
    /// What is to be there.
    files: &'a PersistFiles,
    /// Settings that do not last, and why.
    left_out: &'a [String],
    /// What was written.
    wrote: &'a WrittenFiles,
}

/// What `unpersist` did.
#[derive(Serialize)]
struct UnpersistResult<'a> {
    #[serde(flatten)]
    removed: &'a RemovedFiles,
}

impl TunePersistArgs {
    pub(super) fn run(self) -> Result<ExitCode> {
        must_be_root("persist")?;
        self.agreement.check()?;
        let json = OutputTarget::from_option(self.json.as_deref())?;
        let interrupt = InterruptFlag::install()?;
        let (host, store) = (Host::live(), self.place.existing()?);
        let in_force = ActiveSettings::of(&JournalStatus::of(&store.read()?, &host), &host, &store)?;
        if let Some(tune) = in_force.pending {
            bail!("tune {tune} may yet undo itself: confirm or undo it first");
        }
        let mut files = self.files(&host, &in_force)?;
        files.notes.extend(persist::overridden(&in_force.settings, &SettingOwners::observe(&host)));
        let shown = tune_persist::files(&files, &in_force.others, TextStyle::stdout());
        if json == Some(OutputTarget::Stdout) {
            eprint!("{shown}");
        } else {
            output::print_if_read(&shown)?;
        }
        let question = format!("write these {}?", tune_plan::count_with_noun(files.files.len(), "file"));
        if !self.agreement.given(&question, &interrupt)? {
            eprintln!("nothing was written");
            return Ok(ExitCode::from(1));
        }
        let wrote = files.write(&mut store.lock()?, &self.root)?;
        if self.root.as_os_str() == "/" {
            tell_systemd(&host);
        }
        let what = PersistResult { files: &files, left_out: &in_force.others, wrote: &wrote };
        finish(json.as_ref(), "linerate.tune-persist/1", what, || {
            tune_persist::written_text(&wrote, &self.place.command("unpersist"))
        })?;
        Ok(ExitCode::from(u8::from(!wrote.left.is_empty())))
    }

    fn files(&self, host: &Host, in_force: &ActiveSettings) -> Result<PersistFiles> {
        ensure!(in_force.tune.is_some(), "no tune is in force, so that there is nothing to persist");
        let program = std::env::current_exe().context("cannot tell where this program is")?;
        let directory = self.place.store().directory().canonicalize().context("the journal's directory")?;
        let lasts = PersistTarget {
            settings: &in_force.settings,
            surroundings: &SettingContext::observe(host, &in_force.settings)?,
            goal: &in_force.goals.join(", "),
            tune: in_force.tune.unwrap_or(0),
            program: &program.to_string_lossy(),
            state_dir: &directory.to_string_lossy(),
            init: InitSystem::of(host),
        };
        Ok(PersistFiles::of(&lasts)?)
    }
}

impl TuneUnpersistArgs {
    pub(super) fn run(self) -> Result<ExitCode> {
        must_be_root("unpersist")?;
        let json = OutputTarget::from_option(self.json.as_deref())?;
        let removed = persist::unpersist(&mut self.place.existing()?.lock()?)?;
        if removed.is_some() {
            tell_systemd(&Host::live());
        }
        let nothing = removed.is_none();
        let removed = removed.unwrap_or_default();
        finish(json.as_ref(), "linerate.tune-unpersist/1", UnpersistResult { removed: &removed }, || {
            if nothing {
                "Nothing was made to persist.\n".to_owned()
            } else {
                tune_persist::removed_text(&removed)
            }
        })?;
        Ok(ExitCode::from(u8::from(!removed.left.is_empty())))
    }
}

fn finish<T: Serialize>(
    json: Option<&OutputTarget>,
    schema: &'static str,
    what: T,
    text: impl Fn() -> String,
) -> Result<()> {
    if let Some(target) = json {
        target.write_json(&PersistDocument {
            schema,
            version: env!("CARGO_PKG_VERSION"),
            argv: output::argv(),
            what,
        })?;
    }
    if json == Some(&OutputTarget::Stdout) { Ok(()) } else { output::print(&text()) }
}

/// Units that came or went are known to systemd once it read its files again. Nothing is lost if it does not: a boot does too.
fn tell_systemd(host: &Host) {
    if let Err(error) = persist::reload_units(host) {
        eprintln!(
            "linerate: systemd could not be told to read its units again: {error}: systemctl daemon-reload"
        );
    }
}
