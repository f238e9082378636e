//! Files that make the settings of a tune persist over boots, and their removal.
//!
//! [`PersistFiles::of`] returns the files to write, so that they can be shown before.
//! [`PersistFiles::write`] journals and writes them; [`unpersist`] removes exactly these files.
//! Sysctls go to a file of sysctl.d(5), which systemd's udev rule applies again when an interface
//! appears. All other settings go to a document that [`reapply`] applies, started by systemd units.
//! No `.link` file is written: udev applies only the first file that matches an interface, so
//! linerate's file would replace the distribution's file, which names interfaces.

mod active;
mod context;
mod document;
mod file;
mod identity;
mod reapply;
mod sysctl_d;
mod unit;
mod written_files;

use linerate_host::{Host, HostError, Setting, SettingValue};
use serde::{Deserialize, Serialize};

use crate::conflicts::{SettingOwners, is_in_later_file};

pub use active::ActiveSettings;
pub use context::{QueueVector, SettingContext};
pub use document::{PersistFileError, PersistedSetting, PersistedSettings, SCHEMA};
pub use identity::DeviceIdentity;
pub use reapply::{GOAL, ReappliedSetting, ReapplyOutcome, ReapplyResult, reapply};
pub(crate) use unit::{argument, is_expressible};
pub use written_files::{RemovedFiles, StandingFiles, WrittenFiles, unpersist};

pub const SYSCTL_FILE: &str = "/etc/sysctl.d/90-linerate.conf";
/// The file of all other settings.
pub const DOCUMENT_FILE: &str = "/etc/linerate/tune.json";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum InitSystem {
    Systemd,
    /// Another init system, which a person has to configure.
    Other,
}

#[derive(Debug, Clone, Copy)]
pub struct PersistTarget<'a> {
    /// In the order in which they were made.
    pub settings: &'a [(Setting, SettingValue)],
    pub surroundings: &'a SettingContext,
    pub goal: &'a str,
    pub tune: u64,
    /// Absolute path of linerate at boot.
    pub program: &'a str,
    /// Absolute path of the journal's directory.
    pub state_dir: &'a str,
    pub init: InitSystem,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PersistFiles {
    /// Number of the tune.
    pub tune: u64,
    /// In the order in which they are written: the links that enable units come last.
    pub files: Vec<PersistFile>,
    /// Sentences on the files for the user.
    pub notes: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PersistFile {
    pub path: String,
    #[serde(flatten)]
    pub content: FileContent,
}

impl PersistFile {
    fn text(path: impl Into<String>, text: String) -> Self {
        Self { path: path.into(), content: FileContent::Text(text) }
    }

    fn link(path: String, target: String) -> Self {
        Self { path, content: FileContent::Link(target) }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileContent {
    /// A regular file with this text.
    Text(String),
    /// A symbolic link to this.
    Link(String),
}

/// Why the settings of a tune cannot persist, or their files not be removed, in one line.
#[derive(Debug, thiserror::Error)]
pub enum PersistError {
    #[error("{0}")]
    Refused(String),
    #[error(transparent)]
    Journal(#[from] crate::journal::JournalError),
}

impl InitSystem {
    /// systemd if its directory is in `/run` (sd_booted(3)).
    pub fn of(host: &Host) -> Self {
        if host.list("/run/systemd/system").is_ok() { Self::Systemd } else { Self::Other }
    }
}

impl PersistFiles {
    /// The files for these settings.
    ///
    /// # Errors
    /// [`PersistError`] if there is nothing to write, or if it could not be applied at boot.
    pub fn of(target: &PersistTarget<'_>) -> Result<Self, PersistError> {
        let refused = |why: String| Err(PersistError::Refused(why));
        if target.settings.is_empty() {
            return refused("no tune is in effect, so that there is nothing to persist".to_owned());
        }
        for path in [target.program, target.state_dir] {
            if !unit::is_expressible(path) {
                return refused(format!(
                    "{path}: not an absolute path that a systemd unit can name; move it, or give another"
                ));
            }
        }
        let (process_settings, lasting_settings): (Vec<_>, Vec<_>) =
            target.settings.iter().partition(|(setting, _)| setting.is_of_process());
        let process_names = process_settings.split_first().map(|((setting, _), others)| match others.len() {
            0 => setting.to_string(),
            more => format!("{setting} and {more} more"),
        });
        if let (Some(names), []) = (&process_names, lasting_settings.as_slice()) {
            return refused(format!(
                "{names}: what is set of a running process ends with it and cannot last; boost the server again when it \
                 has started"
            ));
        }
        // In another boot irqbalance is another process, with which reapply makes new exclusions. A drop-in is a file.
        let is_persisted = |(setting, _): &&(Setting, SettingValue)| {
            !matches!(setting, Setting::IrqbalanceBans { .. } | Setting::UnitDropIn { .. })
        };
        let (mut sysctls, mut other_settings) = (Vec::new(), Vec::new());
        for setting in lasting_settings.into_iter().filter(is_persisted) {
            match sysctl_for_file(setting, target.init) {
                Some(sysctl) => sysctls.push(sysctl),
                None => other_settings.push(setting),
            }
        }
        let mut files = Vec::new();
        if !sysctls.is_empty() {
            files.push(PersistFile::text(SYSCTL_FILE, sysctl_file(&sysctls, target)));
        }
        if !other_settings.is_empty() {
            let document = document(&other_settings, target)?;
            let text = document.to_text();
            let text = text.map_err(|error| PersistError::Refused(format!("{DOCUMENT_FILE}: {error}")))?;
            files.push(PersistFile::text(DOCUMENT_FILE, text));
            if target.init == InitSystem::Systemd {
                files.extend(systemd_files(&document, target));
            }
        }
        if files.is_empty() {
            return refused("the settings in effect require no files to persist".to_owned());
        }
        let mut notes = notes(!sysctls.is_empty(), !other_settings.is_empty(), target);
        notes.extend(process_names.map(|names| {
            format!(
                "Not written: {names}: what is set of a running process ends with it. Boost the server again when it has \
                 started."
            )
        }));
        Ok(Self { tune: target.tune, files, notes })
    }
}

/// One sentence per setting that a file read after [`SYSCTL_FILE`] overrides.
pub fn overridden(settings: &[(Setting, SettingValue)], owners: &SettingOwners) -> Vec<String> {
    let sentence = |(setting, to): &(Setting, SettingValue)| {
        let mut claims = owners.claims(setting, to).into_iter();
        let claim = claims.find(|claim| claim.owner == "sysctl.d" && is_in_later_file(&claim.read_from))?;
        Some(format!("{setting} does not stay {to}: {} {} ({}).", claim.owner, claim.what, claim.read_from))
    };
    settings.iter().filter_map(sentence).collect()
}

/// Makes systemd reload its units, if the host runs systemd.
///
/// # Errors
/// [`HostError`] with the message of systemctl. Then systemd loads the units at the next boot.
pub fn reload_units(host: &Host) -> Result<(), HostError> {
    if InitSystem::of(host) == InitSystem::Other {
        return Ok(());
    }
    host.program("systemctl", &["daemon-reload"], "").map(drop)
}

// Name and value of a sysctl that sysctl.d can set at boot. It cannot if the sysctl appears later: with
// a module (`net.netfilter`, `nf_conntrack`), or with an interface unless systemd's udev rule applies it
// again. That rule covers the four directories of IPv4 and IPv6 (rules.d/99-systemd.rules of systemd 252).
fn sysctl_for_file(
    (setting, value): &(Setting, SettingValue),
    init: InitSystem,
) -> Option<(&str, &SettingValue)> {
    let Setting::Sysctl(name) = setting else { return None };
    let is_of_module = name.starts_with("net.netfilter.") || name.starts_with("net.nf_conntrack");
    let interface_is_served = match setting.interface() {
        None => true,
        Some(_) => init == InitSystem::Systemd && !name.starts_with("net.mpls."),
    };
    (sysctl_d::is_expressible(name, value) && !is_of_module && interface_is_served).then_some((name, value))
}

fn sysctl_file(sysctls: &[(&str, &SettingValue)], target: &PersistTarget<'_>) -> String {
    format!(
        "# Written by `linerate tune persist` for {}; `linerate tune unpersist` removes it.\n{}",
        target.goal.replace(char::is_control, " "),
        sysctl_d::lines(sysctls)
    )
}

fn document(
    settings: &[&(Setting, SettingValue)],
    target: &PersistTarget<'_>,
) -> Result<PersistedSettings, PersistError> {
    let to_persisted = |(setting, value): &(Setting, SettingValue)| PersistedSetting {
        setting: setting.clone(),
        value: value.clone(),
        vector: target.surroundings.vectors.get(setting).cloned(),
    };
    let settings: Vec<_> = settings.iter().map(|setting| to_persisted(setting)).collect();
    // Interfaces with nothing but sysctls are not in the document.
    let is_named = |device: &&DeviceIdentity| {
        settings.iter().any(|persisted| persisted.interface().is_some_and(|name| name == device.interface))
    };
    let document = PersistedSettings {
        schema: SCHEMA.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        goal: target.goal.to_owned(),
        tune: target.tune,
        devices: target.surroundings.devices.iter().filter(is_named).cloned().collect(),
        settings,
    };
    for persisted in &document.settings {
        let Some(interface) = persisted.interface() else { continue };
        if document.device(&interface).is_none() {
            return Err(PersistError::Refused(format!(
                "{}: the device of {interface} is not known, so that it would not be found again",
                persisted.setting
            )));
        }
    }
    Ok(document)
}

// For systemd loopback is not a device, and it always exists.
fn systemd_files(document: &PersistedSettings, target: &PersistTarget<'_>) -> Vec<PersistFile> {
    let settings: Vec<_> = document.settings.iter().map(|persisted| &persisted.setting).collect();
    let interfaces: Vec<_> = document
        .devices
        .iter()
        .map(|device| device.interface.as_str())
        .filter(|name| *name != "lo")
        .collect();
    unit::files(target, &settings, &interfaces)
}

fn notes(has_sysctls: bool, has_others: bool, target: &PersistTarget<'_>) -> Vec<String> {
    let mut notes = Vec::new();
    let command =
        format!("{} tune reapply --file {DOCUMENT_FILE} --state-dir {}", target.program, target.state_dir);
    if has_others && target.init == InitSystem::Other {
        notes.push(format!(
            "This host does not run systemd: no unit is written. Have its boot run `{command}` once the interfaces are \
             there, for example from /etc/rc.local."
        ));
    }
    if has_sysctls && target.init == InitSystem::Other {
        notes.push(format!("{SYSCTL_FILE} takes effect at boot if this host's boot runs `sysctl --system`."));
    }
    if has_others {
        notes.push(format!("At boot {} is run: it has to stay there.", target.program));
        let temporary_directories = ["/tmp/", "/var/tmp/", "/run/", "/dev/shm/", "/home/", "/root/"];
        if temporary_directories.iter().any(|directory| target.program.starts_with(directory)) {
            notes.push(format!(
                "{} is in a place that may not be there at boot, or from which SELinux lets no service start: install it \
                 to /usr/local/bin and persist with that.",
                target.program
            ));
        }
    }
    notes
}

#[cfg(test)]
mod tests;
