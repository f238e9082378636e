//! `linerate tune persist`: what is in force is made again at boot. `unpersist` takes that back.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use linerate_host::Host;
use linerate_tune::arbiter::Owners;
use linerate_tune::persist::{self, Files, InForce, Init, Lasts, Removed, Surroundings, Wrote};
use linerate_tune::status::Status;
use serde::Serialize;

use super::arguments::{Place, must_be_root};
use super::ask::Agreement;
use crate::interrupt::Interrupt;
use crate::output::{self, Target};
use crate::render::style::Style;
use crate::render::{tune_persist, tune_plan};

/// Arguments of `tune persist`.
#[derive(Debug, Args)]
pub(super) struct Persist {
    /// Write below this directory, as for an image, instead of /
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,
    #[command(flatten)]
    agreement: Agreement,
    /// Write what was done as JSON; - is standard output
    #[arg(long, value_name = "FILE")]
    json: Option<String>,
    #[command(flatten)]
    place: Place,
}

/// Arguments of `tune unpersist`.
#[derive(Debug, Args)]
pub(super) struct Unpersist {
    /// Write what was done as JSON; - is standard output
    #[arg(long, value_name = "FILE")]
    json: Option<String>,
    #[command(flatten)]
    place: Place,
}

/// What was done, as `--json` has it.
#[derive(Serialize)]
struct Document<T> {
    schema: &'static str,
    version: &'static str,
    argv: Vec<String>,
    #[serde(flatten)]
    what: T,
}

/// What `persist` did.
#[derive(Serialize)]
struct Persisted<'a> {
    /// What is to be there.
    files: &'a Files,
    /// Settings that do not last, and why.
    left_out: &'a [String],
    /// What was written.
    wrote: &'a Wrote,
}

/// What `unpersist` did.
#[derive(Serialize)]
struct Unpersisted<'a> {
    #[serde(flatten)]
    removed: &'a Removed,
}

impl Persist {
    pub(super) fn run(self) -> Result<ExitCode> {
        must_be_root("persist")?;
        self.agreement.check()?;
        let json = Target::wanted(self.json.as_deref())?;
        let interrupt = Interrupt::install()?;
        let (host, store) = (Host::live(), self.place.existing()?);
        let in_force = InForce::of(&Status::of(&store.read()?, &host), &host, &store)?;
        if let Some(tune) = in_force.pending {
            bail!("tune {tune} may yet undo itself: confirm or undo it first");
        }
        let mut files = self.files(&host, &in_force)?;
        files.notes.extend(persist::overridden(&in_force.settings, &Owners::observe(&host)));
        let shown = tune_persist::files(&files, &in_force.others, Style::stdout());
        if json == Some(Target::Stdout) {
            eprint!("{shown}");
        } else {
            output::print_if_read(&shown)?;
        }
        let question = format!("write these {}?", tune_plan::counted(files.files.len(), "file"));
        if !self.agreement.given(&question, &interrupt)? {
            eprintln!("nothing was written");
            return Ok(ExitCode::from(1));
        }
        let wrote = files.write(&mut store.lock()?, &self.root)?;
        if self.root.as_os_str() == "/" {
            tell_systemd(&host);
        }
        let what = Persisted { files: &files, left_out: &in_force.others, wrote: &wrote };
        finish(json.as_ref(), "linerate.tune-persist/1", what, || {
            tune_persist::wrote(&wrote, &self.place.command("unpersist"))
        })?;
        Ok(ExitCode::from(u8::from(!wrote.left.is_empty())))
    }

    fn files(&self, host: &Host, in_force: &InForce) -> Result<Files> {
        ensure!(in_force.tune.is_some(), "no tune is in force, so that there is nothing to persist");
        let program = std::env::current_exe().context("cannot tell where this program is")?;
        let directory = self.place.store().directory().canonicalize().context("the journal's directory")?;
        let lasts = Lasts {
            settings: &in_force.settings,
            surroundings: &Surroundings::observe(host, &in_force.settings)?,
            goal: &in_force.goals.join(", "),
            tune: in_force.tune.unwrap_or(0),
            program: &program.to_string_lossy(),
            state_dir: &directory.to_string_lossy(),
            init: Init::of(host),
        };
        Ok(Files::of(&lasts)?)
    }
}

impl Unpersist {
    pub(super) fn run(self) -> Result<ExitCode> {
        must_be_root("unpersist")?;
        let json = Target::wanted(self.json.as_deref())?;
        let removed = persist::unpersist(&mut self.place.existing()?.lock()?)?;
        if removed.is_some() {
            tell_systemd(&Host::live());
        }
        let nothing = removed.is_none();
        let removed = removed.unwrap_or_default();
        finish(json.as_ref(), "linerate.tune-unpersist/1", Unpersisted { removed: &removed }, || {
            if nothing {
                "Nothing was made to persist.\n".to_owned()
            } else {
                tune_persist::removed(&removed)
            }
        })?;
        Ok(ExitCode::from(u8::from(!removed.left.is_empty())))
    }
}

fn finish<T: Serialize>(
    json: Option<&Target>,
    schema: &'static str,
    what: T,
    text: impl Fn() -> String,
) -> Result<()> {
    if let Some(target) = json {
        target.json(&Document { schema, version: env!("CARGO_PKG_VERSION"), argv: output::argv(), what })?;
    }
    if json == Some(&Target::Stdout) { Ok(()) } else { output::print(&text()) }
}

/// Units that came or went are known to systemd once it read its files again. Nothing is lost if it does not: a boot does too.
fn tell_systemd(host: &Host) {
    if let Err(error) = persist::reload_units(host) {
        eprintln!(
            "linerate: systemd could not be told to read its units again: {error}: systemctl daemon-reload"
        );
    }
}
