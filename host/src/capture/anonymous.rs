//! Anonymous captures: addresses, the host name and process names are replaced.
//!
//! Each value has the same replacement everywhere, so that the findings stay the same. Addresses
//! that are equal on every host (any, loopback, multicast) stay, and so do the program names that
//! doctor uses.

use std::collections::BTreeMap;

use crate::HostRecording;
use crate::recording::RecordedResult;

mod address;

use address::AddressAliases;

// Prefixes of program names that doctor uses, and of kernel threads.
const KNOWN: [&str; 14] = [
    "irqbalance",
    "tuned",
    "google_guest",
    "systemd",
    "ksoftirqd",
    "kworker",
    "kthreadd",
    "migration",
    "rcu",
    "irq/",
    "napi/",
    "cpuhp",
    "idle_inject",
    "kauditd",
];

/// Files and directories written by people, which can contain the host name.
const WRITTEN_BY_PEOPLE: [&str; 4] = ["/etc/", "/usr/", "/run/", "/proc/cmdline"];

/// Replaces addresses, process names, and the host name if given.
pub fn anonymise(readings: &mut [HostRecording], host_name: Option<&str>) {
    let mut names = ProcessAliases::default();
    let mut addresses = AddressAliases::default();
    for reading in readings {
        for (path, result) in &mut reading.files {
            let RecordedResult::Read(content) = result else { continue };
            // Files that are not text contain nothing that is replaced here.
            let Ok(text) = std::str::from_utf8(content) else { continue };
            let mut text = names.replace_names(path, text);
            text = match path.as_str() {
                "/proc/net/udp" | "/proc/net/udp6" | "/proc/net/tcp" | "/proc/net/tcp6" => {
                    addresses.replace_in_hexadecimal(&text)
                }
                // Driver versions look like addresses.
                _ if path.ends_with("/driver.json") => text,
                _ => addresses.replace_in_text(&text),
            };
            if let Some(host) = host_name.filter(|name| name.len() > 1)
                && (WRITTEN_BY_PEOPLE.iter().any(|prefix| path.starts_with(prefix))
                    || path.ends_with("/cmdline"))
            {
                text = text.replace(host, "host");
            }
            *content = text.into_bytes();
        }
    }
}

#[derive(Default)]
struct ProcessAliases {
    known: BTreeMap<String, String>,
}

impl ProcessAliases {
    fn replace_names(&mut self, path: &str, text: &str) -> String {
        let is_of_process = path.starts_with("/proc/");
        match path.rsplit('/').next() {
            Some("comm") if is_of_process => {
                let name = text.trim_end_matches('\n');
                format!("{}{}", self.alias_for(name), text.get(name.len()..).unwrap_or(""))
            }
            // The name is in parentheses, and may contain parentheses itself (proc_pid_stat(5)).
            Some("stat") if is_of_process => match (text.find('('), text.rfind(')')) {
                (Some(open), Some(close)) if open < close => {
                    let name = self.alias_for(&text[open + 1..close]);
                    format!("{}{name}{}", &text[..=open], &text[close..])
                }
                _ => text.to_owned(),
            },
            Some("status") if is_of_process => {
                match text.strip_prefix("Name:\t").and_then(|rest| rest.split_once('\n')) {
                    Some((name, rest)) => format!("Name:\t{}\n{rest}", self.alias_for(name)),
                    None => text.to_owned(),
                }
            }
            _ => text.to_owned(),
        }
    }

    fn alias_for(&mut self, name: &str) -> String {
        if KNOWN.iter().any(|known| name.starts_with(known)) {
            return name.to_owned();
        }
        let next = self.known.len() + 1;
        self.known.entry(name.to_owned()).or_insert_with(|| format!("process-{next}")).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Host;

    fn anonymised_host(files: &[(&str, &str)]) -> Host {
        let mut recording = HostRecording::new();
        for (path, content) in files {
            recording.insert_file(*path, *content);
        }
        let mut readings = [recording];
        anonymise(&mut readings, Some("db-7.example"));
        let [recording] = readings;
        Host::recorded(recording)
    }

    #[test]
    fn process_names_get_the_same_alias_in_every_file() {
        let host = anonymised_host(&[
            ("/proc/12/comm", "secret-dns\n"),
            ("/proc/12/task/13/stat", "13 (secret-dns) S 1 2 3\n"),
            ("/proc/12/task/13/status", "Name:\tsecret-dns\nCpus_allowed_list:\t0-3\n"),
            ("/proc/9/comm", "irqbalance\n"),
            ("/proc/stat", "cpu  1 2 3\n"),
            ("/proc/13/comm", "other\n"),
        ]);
        let read = |path| host.read(path).expect("kept");
        assert_eq!(read("/proc/12/comm"), "process-1\n");
        assert_eq!(read("/proc/12/task/13/stat"), "13 (process-1) S 1 2 3\n");
        assert_eq!(read("/proc/12/task/13/status"), "Name:\tprocess-1\nCpus_allowed_list:\t0-3\n");
        assert_eq!(read("/proc/9/comm"), "irqbalance\n");
        assert_eq!(read("/proc/stat"), "cpu  1 2 3\n");
        assert_eq!(read("/proc/13/comm"), "process-2\n");
    }

    #[test]
    fn host_name_and_mac_are_replaced_but_driver_versions_stay() {
        let host = anonymised_host(&[
            ("/etc/systemd/network/10-x.link", "[Match]\nMACAddress=52:54:00:12:34:56\n# of db-7.example\n"),
            ("/calls/ethtool/eth0/driver.json", r#"{"name": "x", "version": "5.1.0.13"}"#),
        ]);
        let read = |path| host.read(path).expect("kept");
        let link = read("/etc/systemd/network/10-x.link");
        assert_eq!(link, "[Match]\nMACAddress=02:00:00:00:00:01\n# of host\n");
        assert!(read("/calls/ethtool/eth0/driver.json").contains("5.1.0.13"));
    }
}
