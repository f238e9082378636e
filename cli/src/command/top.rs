//! `linerate top`: the packet path as it runs, stage by stage. Changes nothing.

mod event;
mod event_threads;
mod jobs;
mod record;
mod replay;
mod session;

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use clap::Args;
use linerate_host::live::{LiveHost, Snapshot, SnapshotRecording, SnapshotSource};
use linerate_host::{Host, OpenedCapture, Scope};

use crate::command::doctor::arguments::SubjectArgs;
use crate::command::netns::NetnsArgs;
use crate::interrupt::InterruptFlag;
use crate::output::{self, OutputTarget};
use crate::quantity;
use crate::render::style::TextStyle;
use crate::top;
use crate::top::panel::RowSelection;
use crate::top::text;
use record::RecordFile;

#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    #[command(flatten)]
    pub(super) netns: NetnsArgs,
    #[command(flatten)]
    subject: SubjectArgs,
    /// Time between two snapshots
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = quantity::seconds(0.1..=3_600.0))]
    interval: Duration,
    /// Print one snapshot of one interval, and exit
    #[arg(long)]
    once: bool,
    /// Print that snapshot as JSON
    #[arg(short = 'j', long, requires = "once")]
    json: bool,
    /// Append each snapshot to a file, one line of JSON each; draw nothing without a terminal
    #[arg(long, value_name = "FILE", conflicts_with = "replay")]
    record: Option<PathBuf>,
    /// Play a file that --record wrote; needs no privileges
    #[arg(long, value_name = "FILE", conflicts_with_all = ["interfaces", "port", "pid", "root"])]
    replay: Option<PathBuf>,
    /// Read a capture of another host, or a directory with its proc and sys
    #[arg(long, value_name = "DIR|FILE.tar.gz")]
    root: Option<PathBuf>,
}

impl TopArgs {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let interrupt = InterruptFlag::install()?;
        match &self.replay {
            Some(file) => self.replay(file, interrupt)?,
            None => self.watch(interrupt)?,
        }
        Ok(ExitCode::SUCCESS)
    }

    fn replay(&self, file: &Path, interrupt: InterruptFlag) -> Result<()> {
        let recording = SnapshotRecording::open(file)?;
        if recording.is_cut() {
            status_line!("linerate: {}: its last line was cut short and is left out", file.display());
        }
        if self.once {
            // A recording has at least one snapshot, and the last one is the latest.
            return recording.snapshots().last().map_or(Ok(()), |last| self.print(last));
        }
        check_terminal()?;
        session::run_replay(&recording, file, self.interval, interrupt)
    }

    fn watch(&self, interrupt: InterruptFlag) -> Result<()> {
        if self.root.is_none() {
            // The interface and the process may disappear later.
            self.subject.scope().check(&Host::live())?;
        }
        let record = self.record.as_deref().map(RecordFile::open).transpose()?;
        if self.once {
            return self.print_once(record, &interrupt);
        }
        if !std::io::stdout().is_terminal()
            && let Some(record) = record
        {
            return self.record_only(record, &interrupt);
        }
        check_terminal()?;
        session::run_live(self, record, interrupt)
    }

    /// Opens the observed host and reads it completely.
    fn open(&self) -> Result<LiveHost> {
        let requested_scope = self.subject.scope();
        let Some(root) = &self.root else {
            return Ok(LiveHost::open(SnapshotSource::live(), requested_scope));
        };
        let capture = OpenedCapture::open(root)?;
        requested_scope.check(&capture.first)?;
        let captured_scope = capture.about.as_ref().map(|about| about.scope.clone());
        let scope = if requested_scope == Scope::default() {
            captured_scope.unwrap_or_default()
        } else {
            requested_scope
        };
        Ok(LiveHost::open(capture.into(), scope))
    }

    fn print_once(&self, record: Option<RecordFile>, interrupt: &InterruptFlag) -> Result<()> {
        let mut live_host = self.open()?;
        let mut snapshot = live_host.refresh();
        if self.root.is_none() {
            interrupt.wait(Some(self.interval))?;
            ensure!(!interrupt.is_raised(), "interrupted before the second reading");
            snapshot = live_host.refresh();
        }
        if let Some(mut record) = record {
            record.write(&snapshot)?;
        }
        self.print(&snapshot)
    }

    fn print(&self, snapshot: &Snapshot) -> Result<()> {
        if self.json {
            return OutputTarget::Stdout.write_json(&record::envelope(snapshot));
        }
        let text = text::snapshot(snapshot, &RowSelection::default(), TextStyle::stdout());
        output::print(&if top::is_ascii_only() { top::to_ascii(&text) } else { text })
    }

    /// Records until an interrupt.
    fn record_only(&self, mut record: RecordFile, interrupt: &InterruptFlag) -> Result<()> {
        let mut live_host = self.open()?;
        while !interrupt.is_raised() {
            let begin = std::time::Instant::now();
            record.write(&live_host.refresh())?;
            interrupt.wait(Some(self.interval.saturating_sub(begin.elapsed())))?;
        }
        Ok(())
    }
}

fn check_terminal() -> Result<()> {
    if !std::io::stdout().is_terminal() {
        bail!("standard output is no terminal to draw on: --once prints one snapshot, --record FILE records");
    }
    Ok(())
}
