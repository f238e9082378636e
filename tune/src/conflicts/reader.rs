//! Reads of processes and configuration files. Failed reads are recorded.

use std::cell::{OnceCell, RefCell};
use std::collections::BTreeSet;

use linerate_host::process::{HostProcess, KNOWN_PROGRAMS, processes};
use linerate_host::{Host, HostError, ini};

pub(super) struct ConfigurationReader<'a> {
    pub(super) host: &'a Host,
    pub(super) processes: Vec<HostProcess>,
    interfaces: OnceCell<Vec<ConfiguredInterface>>,
    unknown: RefCell<BTreeSet<String>>,
}

/// The properties of an interface that configuration files can match.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ConfiguredInterface {
    pub(super) name: String,
    pub(super) index: u32,
    /// In lower case.
    pub(super) address: String,
    pub(super) driver: Option<String>,
    /// udev's `ID_PATH`, such as `pci-0000:01:00.0`.
    pub(super) path: Option<String>,
    /// The .link file that udev applied.
    pub(super) link_file: Option<String>,
}

impl<'a> ConfigurationReader<'a> {
    pub(super) fn new(host: &'a Host) -> Self {
        let mut unknown = BTreeSet::new();
        let processes = match processes(host) {
            linerate_host::Known::Value(processes) => processes,
            linerate_host::Known::Unknown { why } => {
                unknown.insert(format!("programs that set things: {why}"));
                Vec::new()
            }
        };
        // Every host has /etc. A capture without it lacks all configuration files.
        if let Err(error) = host.list("/etc") {
            unknown.insert(format!("files of configuration: {error}"));
        }
        Self { host, processes, interfaces: OnceCell::new(), unknown: RefCell::new(unknown) }
    }

    pub(super) fn unknown(self) -> Vec<String> {
        self.unknown.into_inner().into_iter().collect()
    }

    pub(super) fn process(&self, name: &str) -> Option<&HostProcess> {
        debug_assert!(KNOWN_PROGRAMS.contains(&name), "an anonymous capture would hide {name}");
        self.processes.iter().find(|process| process.comm == name && process.is_of_root(self.host))
    }

    /// The text of a file. An unreadable file is `None` like a missing one, and is added to `unknown`.
    pub(super) fn read(&self, path: &str) -> Option<String> {
        self.note_errors(self.host.read(path))
    }

    /// The sorted names in a directory; empty if it is missing.
    pub(super) fn list(&self, path: &str) -> Vec<String> {
        self.note_errors(self.host.list(path)).unwrap_or_default()
    }

    fn note_errors<T>(&self, result: Result<T, HostError>) -> Option<T> {
        match result {
            Ok(result) => Some(result),
            Err(error) if error.is_missing() => None,
            Err(error) => {
                self.unknown.borrow_mut().insert(error.to_string());
                None
            }
        }
    }

    /// Files with this suffix, sorted by name. A file hides those with its name in later directories.
    pub(super) fn layered(&self, directories: &[&str], suffix: &str) -> Vec<String> {
        let listed = directories.iter().map(|directory| ((*directory).to_owned(), self.list(directory)));
        ini::layered(listed, suffix)
    }

    pub(super) fn interfaces(&self) -> &[ConfiguredInterface] {
        self.interfaces.get_or_init(|| {
            self.list("/sys/class/net").into_iter().filter_map(|name| self.interface(name)).collect()
        })
    }

    fn interface(&self, name: String) -> Option<ConfiguredInterface> {
        let file = |file: &str| self.host.read(&format!("/sys/class/net/{name}/{file}")).ok();
        let index = file("ifindex")?.trim().parse().ok()?;
        let address = file("address").unwrap_or_default().trim().to_ascii_lowercase();
        let driver = self.host.read_link(&format!("/sys/class/net/{name}/device/driver")).ok();
        let driver = driver.and_then(|target| target.rsplit('/').next().map(str::to_owned));
        let udev = self.host.read(&format!("/run/udev/data/n{index}")).unwrap_or_default();
        let path = property(&udev, "ID_PATH").map(str::to_owned);
        let link_file = property(&udev, "ID_NET_LINK_FILE").map(str::to_owned);
        Some(ConfiguredInterface { name, index, address, driver, path, link_file })
    }
}

// A property in udev's database file of a device: `E:NAME=VALUE` (systemd 252, src/libsystemd/sd-device).
pub(super) fn property<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let line = |line: &'a str| line.strip_prefix("E:")?.strip_prefix(name)?.strip_prefix('=');
    text.lines().find_map(line).filter(|value| !value.is_empty())
}

/// Matches a pattern as glob(7) does. A text that is no pattern matches itself.
pub(super) fn matches(pattern: &str, name: &str) -> bool {
    glob::Pattern::new(pattern).map_or(pattern == name, |pattern| pattern.matches(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_of_users_are_not_those_that_set_things() {
        let host = Host::scripted([
            ("/proc/7/comm", "tuned\n"),
            ("/proc/7/status", "Uid:\t1000\t1000\t1000\t1000\n"),
            ("/proc/8/comm", "tuned\n"),
            ("/proc/8/status", "Uid:\t0\t0\t0\t0\n"),
        ]);
        let pid = ConfigurationReader::new(&host).process("tuned").map(|process| process.pid);
        assert_eq!(pid, Some(8));
    }

    #[test]
    fn earlier_directories_hide_files_of_the_same_name() {
        let host = Host::scripted([
            ("/etc/x.d/20-b.conf", ""),
            ("/usr/lib/x.d/20-b.conf", ""),
            ("/usr/lib/x.d/10-a.conf", ""),
            ("/usr/lib/x.d/README", ""),
        ]);
        let reader = ConfigurationReader::new(&host);
        let found = reader.layered(&["/etc/x.d", "/run/x.d", "/usr/lib/x.d"], ".conf");
        assert_eq!(found, ["/usr/lib/x.d/10-a.conf", "/etc/x.d/20-b.conf"]);
    }

    #[test]
    fn captures_without_processes_or_etc_report_unknown_owners() {
        let unknown = ConfigurationReader::new(&Host::scripted::<String, String>([])).unknown();
        assert_eq!(unknown.len(), 2, "{unknown:?}");
        let whole = Host::scripted([("/proc/1/comm", "init\n"), ("/etc/hostname", "a\n")]);
        assert_eq!(ConfigurationReader::new(&whole).unknown(), [""; 0]);
    }
}
