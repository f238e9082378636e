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

use crate::conflicts::SettingOwners;

pub use active::ActiveSettings;
pub use context::{QueueVector, SettingContext};
pub use document::{PersistFileError, PersistedSetting, PersistedSettings, SCHEMA};
pub use file::PlaceError;
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

/// Why the settings of a tune cannot persist.
#[derive(Debug, thiserror::Error)]
pub enum PersistError {
    #[error("no tune is in effect, so that there is nothing to persist")]
    Nothing,
    /// Drop-ins of units are files, and exclusions from irqbalance are made again at boot.
    #[error("the settings in effect require no files to persist")]
    NoFiles,
    #[error("{setting}: the device of {interface} is not known, so that it would not be found again")]
    UnknownDevice { setting: String, interface: String },
    /// All settings in effect end with a process.
    #[error(
        "{setting}{}: what is set of a running process ends with it and cannot last; boost the server again when it has \
         started",
        and_more(.more)
    )]
    OfProcess {
        /// The first such setting.
        setting: String,
        /// The number of other settings.
        more: usize,
    },
    /// A path that a unit cannot name.
    #[error("{path}: not an absolute path that a systemd unit can name; move it, or give another")]
    Path { path: String },
    #[error("{DOCUMENT_FILE}: {0}")]
    Document(#[from] serde_json::Error),
    /// Other files have these paths.
    #[error("{}: not written by linerate as it is, and so not replaced; move it away", .paths.join(", "))]
    Foreign { paths: Vec<String> },
    /// A file or directory cannot be written.
    #[error(transparent)]
    Place(#[from] PlaceError),
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
        if target.settings.is_empty() {
            return Err(PersistError::Nothing);
        }
        for path in [target.program, target.state_dir] {
            if !unit::is_expressible(path) {
                return Err(PersistError::Path { path: path.to_owned() });
            }
        }
        let (process_settings, lasting_settings): (Vec<_>, Vec<_>) =
            target.settings.iter().partition(|(setting, _)| setting.is_of_process());
        if let ([(setting, _), more @ ..], []) = (process_settings.as_slice(), lasting_settings.as_slice()) {
            return Err(PersistError::OfProcess { setting: setting.to_string(), more: more.len() });
        }
        // In another boot irqbalance is another process, with which reapply makes new exclusions. A drop-in is a file.
        let is_persisted = |(setting, _): &&(Setting, SettingValue)| {
            !matches!(setting, Setting::IrqbalanceBans { .. } | Setting::UnitDropIn { .. })
        };
        let lasting_settings = lasting_settings.into_iter().filter(is_persisted);
        let (sysctls, other_settings): (Vec<_>, Vec<_>) =
            lasting_settings.partition(|(setting, value)| is_for_sysctl_d(setting, value, target.init));
        let mut files = Vec::new();
        if !sysctls.is_empty() {
            files.push(PersistFile::text(SYSCTL_FILE, sysctl_file(&sysctls, target)));
        }
        if !other_settings.is_empty() {
            let document = document(&other_settings, target)?;
            files.push(PersistFile::text(DOCUMENT_FILE, document.to_text()?));
            if target.init == InitSystem::Systemd {
                files.extend(systemd_files(&document, target));
            }
        }
        if files.is_empty() {
            return Err(PersistError::NoFiles);
        }
        let mut notes = notes(!sysctls.is_empty(), !other_settings.is_empty(), target);
        notes.extend(process_settings.first().map(|(setting, _)| {
            format!(
                "Not written: {setting}{}: what is set of a running process ends with it. Boost the server again when it has \
                 started.",
                and_more(&(process_settings.len() - 1))
            )
        }));
        Ok(Self { tune: target.tune, files, notes })
    }
}

/// One sentence per setting that a file read after [`SYSCTL_FILE`] overrides.
pub fn overridden(settings: &[(Setting, SettingValue)], owners: &SettingOwners) -> Vec<String> {
    let name = |file: &str| file.rsplit('/').next().unwrap_or(file).to_owned();
    let sentence = |(setting, to): &(Setting, SettingValue)| {
        let claims = owners.claims(setting, to).into_iter();
        let mut later_claims = claims.filter(|claim| {
            let file = claim.read_from.rsplit_once(':').map_or(claim.read_from.as_str(), |(file, _)| file);
            claim.owner == "sysctl.d" && name(file) > name(SYSCTL_FILE)
        });
        let claim = later_claims.next()?;
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

#[expect(clippy::trivially_copy_pass_by_ref, reason = "thiserror passes a reference")]
fn and_more(count: &usize) -> String {
    if *count == 0 { String::new() } else { format!(" and {count} more") }
}

// Whether sysctl.d can set a sysctl at boot. It cannot if the sysctl appears later: with a module
// (`net.netfilter`, `nf_conntrack`), or with an interface unless systemd's udev rule applies it again.
// That rule covers the four directories of IPv4 and IPv6 (rules.d/99-systemd.rules of systemd 252).
fn is_for_sysctl_d(setting: &Setting, value: &SettingValue, init: InitSystem) -> bool {
    let Setting::Sysctl(name) = setting else { return false };
    let is_of_module = name.starts_with("net.netfilter.") || name.starts_with("net.nf_conntrack");
    let interface_is_served = match setting.interface() {
        None => true,
        Some(_) => init == InitSystem::Systemd && !name.starts_with("net.mpls."),
    };
    sysctl_d::is_expressible(name, value) && !is_of_module && interface_is_served
}

fn sysctl_file(sysctls: &[&(Setting, SettingValue)], target: &PersistTarget<'_>) -> String {
    let values: Vec<_> = sysctls
        .iter()
        .filter_map(|(setting, value)| match setting {
            Setting::Sysctl(name) => Some((name.as_str(), value)),
            _ => None,
        })
        .collect();
    format!(
        "# Written by `linerate tune persist` for {}; `linerate tune unpersist` removes it.\n{}",
        target.goal.replace(char::is_control, " "),
        sysctl_d::lines(&values)
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
            let (setting, interface) = (persisted.setting.to_string(), interface.into_owned());
            return Err(PersistError::UnknownDevice { setting, interface });
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
    let commands = unit::UnitCommands { program: target.program, state_dir: target.state_dir };
    unit::files(commands, &settings, &interfaces)
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
