//! `linerate tune persist`, `unpersist` and `reapply`: settings that outlast a boot.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use linerate_host::Host;
use linerate_tune::conflicts::SettingOwners;
use linerate_tune::persist::{
    self, ActiveSettings, DOCUMENT_FILE, InitSystem, PersistFiles, PersistTarget, SettingContext,
};
use linerate_tune::report::PersistReport;
use linerate_tune::status::JournalStatus;

use super::arguments::{ConsentMode, StateDirArgs, must_be_root};
use crate::command::results::write_state;
use crate::document::Section;
use crate::envelope::Envelope;
use crate::interrupt::InterruptFlag;
use crate::output::{self, OutputTarget};
use crate::render::format::count_with_noun;
use crate::render::style::TextStyle;
use crate::view;

#[derive(Debug, Args)]
pub(super) struct TunePersistArgs {
    /// Write below this directory, as for an image, instead of /
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,
    #[command(flatten)]
    consent: ConsentMode,
    /// Write what was done as JSON; - is standard output
    #[arg(short = 'j', long, value_name = "FILE")]
    json: Option<String>,
    #[command(flatten)]
    state_dir: StateDirArgs,
}

#[derive(Debug, Args)]
pub(super) struct TuneUnpersistArgs {
    /// Write what was done as JSON; - is standard output
    #[arg(short = 'j', long, value_name = "FILE")]
    json: Option<String>,
    #[command(flatten)]
    state_dir: StateDirArgs,
}

impl TunePersistArgs {
    pub(super) fn run(self) -> Result<ExitCode> {
        must_be_root("persist")?;
        self.consent.check()?;
        let json = OutputTarget::from_option(self.json.as_deref())?;
        let interrupt = InterruptFlag::install()?;
        let (host, store) = (Host::live(), self.state_dir.existing_store()?);
        let is_of_host = self.root == Path::new("/");
        ensure!(
            !is_of_host || is_in_first_namespace(&host),
            "files of / are applied to the host at boot, and this is another network namespace: persist without \
             --netns, or give the root of the namespace's own files by --root"
        );
        let in_effect = ActiveSettings::of(&JournalStatus::of(&store.read()?, &host), &host, &store)?;
        if let Some(tune) = in_effect.pending {
            bail!(
                "tune {tune} will be undone automatically: confirm it, or undo it and apply it without --for-duration"
            );
        }
        let mut files = self.files(&host, &in_effect)?;
        files.notes.extend(persist::overridden(&in_effect.settings, &SettingOwners::observe(&host)));
        let preview = view::persist::preview(&files, &in_effect.others, TextStyle::stdout());
        if json == Some(OutputTarget::Stdout) {
            status!("{preview}");
        } else {
            output::print(&preview)?;
        }
        let question = format!("write these {}?", count_with_noun(files.files.len(), "file"));
        if !self.consent.confirm(&question, &interrupt)? {
            status_line!("nothing was written");
            return Ok(ExitCode::from(1));
        }
        let write_result = files.write(&mut store.lock()?, &self.root)?;
        if is_of_host {
            reload_systemd(&host);
        }
        let has_kept_files = !write_result.kept.is_empty();
        let report = PersistReport { files, left_out: in_effect.others, wrote: write_result };
        write_state(json.as_ref(), &host, report, |envelope| {
            let command = self.state_dir.command("unpersist");
            let mut document = envelope.document();
            document.sections.push(Section::default().with(format!("To remove them: {command}")));
            document
        })?;
        Ok(ExitCode::from(u8::from(has_kept_files)))
    }

    fn files(&self, host: &Host, in_effect: &ActiveSettings) -> Result<PersistFiles> {
        ensure!(in_effect.tune.is_some(), "no tune is in effect: there is nothing to persist");
        let program = std::env::current_exe().context("cannot find the path of this program")?;
        check_program(&program)?;
        let directory =
            self.state_dir.store().directory().canonicalize().context("the journal's directory")?;
        let target = PersistTarget {
            settings: &in_effect.settings,
            surroundings: &SettingContext::observe(host, &in_effect.settings)?,
            goal: &in_effect.goals.join(", "),
            tune: in_effect.tune.unwrap_or(0),
            program: &program.to_string_lossy(),
            state_dir: &directory.to_string_lossy(),
            init: InitSystem::of(host),
        };
        Ok(PersistFiles::of(&target)?)
    }
}

impl TuneUnpersistArgs {
    pub(super) fn run(self) -> Result<ExitCode> {
        must_be_root("unpersist")?;
        let json = OutputTarget::from_option(self.json.as_deref())?;
        let host = Host::live();
        let removed = persist::unpersist(&mut self.state_dir.existing_store()?.lock()?)?;
        if removed.is_some() {
            reload_systemd(&host);
        }
        let removed = removed.unwrap_or_default();
        let has_kept_files = !removed.kept.is_empty();
        write_state(json.as_ref(), &host, removed, Envelope::document)?;
        Ok(ExitCode::from(u8::from(has_kept_files)))
    }
}

/// Fails if units cannot run this path: in a container with `--host-root` it is a path of the image,
/// and after an upgrade it ends with `(deleted)`. Also if other users may replace it, as in
/// `~/.cargo/bin`, because units run it as root.
pub(crate) fn check_program(program: &Path) -> Result<()> {
    let is_program = program.is_file() && rustix::fs::access(program, rustix::fs::Access::EXEC_OK).is_ok();
    ensure!(
        is_program,
        "{}: this host has no such program, so that no unit could run it: install linerate on the host and run this command \
         with that program",
        program.display()
    );
    for path in program.ancestors() {
        let metadata = path.metadata().with_context(|| format!("cannot look at {}", path.display()))?;
        // Debian gives /usr/local to the group staff, which it trusts like root (policy 9.1.2).
        let is_group_of_root = metadata.gid() == 0 || path.starts_with("/usr/local");
        let others_bits = if is_group_of_root { 0o002 } else { 0o022 };
        // In a sticky directory, only the owner of a file may replace it.
        let is_sticky = metadata.is_dir() && metadata.mode() & 0o1000 != 0;
        let is_writable = metadata.mode() & others_bits != 0 && !is_sticky;
        ensure!(
            metadata.uid() == 0 && !is_writable,
            "{}: other users may replace {}, and units would run it as root: copy linerate to /usr/local/bin and run this \
             command with that program",
            program.display(),
            path.display()
        );
    }
    Ok(())
}

/// Whether this is the network namespace of the first process, in which units run at boot.
fn is_in_first_namespace(host: &Host) -> bool {
    let namespace = |process: &str| host.read_link(&format!("/proc/{process}/ns/net")).ok();
    let (first, own) = (namespace("1"), namespace("thread-self"));
    first.is_none() || own.is_none() || first == own
}

/// Makes systemd reload its units. If that fails, the next boot loads them.
fn reload_systemd(host: &Host) {
    if let Err(error) = persist::reload_units(host) {
        status_line!("linerate: systemd did not reload its units: {error}; run systemctl daemon-reload");
    }
}

#[derive(Debug, Args)]
pub(super) struct TuneReapplyArgs {
    /// The file with the settings
    #[arg(long, value_name = "FILE", default_value = DOCUMENT_FILE)]
    file: PathBuf,
    /// Only the settings of this interface
    #[arg(short = 'i', long, value_name = "IF")]
    interface: Option<String>,
    #[command(flatten)]
    state_dir: StateDirArgs,
}

impl TuneReapplyArgs {
    pub(super) fn run(self) -> Result<ExitCode> {
        must_be_root("reapply")?;
        // The program must not end between two changes: systemd's stop ends it at the second
        // signal.
        let _interrupt = InterruptFlag::install_ignoring_hangup()?;
        let file = self.file.display().to_string();
        let text = std::fs::read_to_string(&self.file).with_context(|| format!("cannot read {file}"))?;
        let document = persist::PersistedSettings::parse(&text, &file)?;
        let interface = self.interface.as_deref();
        let reapply_report =
            persist::reapply(&self.state_dir.store(), &Host::live(), &document, interface, output::argv())?;
        let lines: Vec<String> =
            reapply_report.settings.iter().map(|setting| format!("{setting}\n")).collect();
        output::print(&lines.concat())?;
        Ok(ExitCode::from(u8::from(reapply_report.has_failures())))
    }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use linerate_host::HostRecording;
    use linerate_host::recording::RecordedEntry;

    use super::*;

    #[test]
    fn persist_requires_a_program_that_is_executable_and_that_others_cannot_replace() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("linerate");
        std::fs::write(&file, "").expect("written");
        let shell = Path::new("/bin/sh").canonicalize().expect("a shell");
        let deleted = PathBuf::from(format!("{} (deleted)", shell.display()));
        let open_directory = directory.path().join("open");
        std::fs::create_dir(&open_directory).expect("made");
        std::fs::set_permissions(&open_directory, Permissions::from_mode(0o777)).expect("set");
        let replaceable = open_directory.join("linerate");
        std::fs::copy(&shell, &replaceable).expect("copied");
        for (program, expected) in [
            (shell, true),
            (deleted, false),
            (file, false),
            (directory.path().to_owned(), false),
            (replaceable, false),
        ] {
            assert_eq!(check_program(&program).is_ok(), expected, "{}", program.display());
        }
    }

    #[test]
    fn files_of_the_host_are_written_only_in_its_network_namespace() {
        for (links, expected) in [
            (&[("1", 7), ("thread-self", 7)][..], true),
            (&[("1", 7), ("thread-self", 8)], false),
            (&[], true),
        ] {
            let mut recording = HostRecording::new();
            for (process, inode) in links {
                let link = RecordedEntry::Link(format!("net:[{inode}]"));
                recording.insert(format!("/proc/{process}/ns/net"), link);
            }
            assert_eq!(is_in_first_namespace(&Host::recorded(recording)), expected, "{links:?}");
        }
    }
}
