//! Whether a port has a socket here, or in another network namespace.

use std::collections::BTreeMap;

use linerate_host::Host;

/// Where a UDP port is open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PortPlace {
    Here,
    /// In the network namespace of this process.
    Elsewhere {
        pid: u32,
        process: String,
    },
    Nowhere,
}

impl PortPlace {
    /// Looks in the calling thread's network namespace, then in the namespaces of all processes.
    pub fn find(host: &Host, port: u16) -> Self {
        if is_open(host, "/proc/thread-self/net", port) {
            return Self::Here;
        }
        let mut namespaces = BTreeMap::new();
        for pid in host.list_numbers("/proc", "").unwrap_or_default() {
            if let Ok(namespace) = host.read_link(&format!("/proc/{pid}/ns/net")) {
                namespaces.entry(namespace).or_insert(pid);
            }
        }
        let namespace_pid =
            namespaces.into_values().find(|pid| is_open(host, &format!("/proc/{pid}/net"), port));
        namespace_pid.map_or(Self::Nowhere, |pid| {
            let process = host.read(&format!("/proc/{pid}/comm")).unwrap_or_default().trim().to_owned();
            Self::Elsewhere { pid, process }
        })
    }
}

fn is_open(host: &Host, directory: &str, port: u16) -> bool {
    let suffix = format!(":{port:04X}");
    let is_on_port =
        |line: &str| line.split_whitespace().nth(1).is_some_and(|address| address.ends_with(&suffix));
    ["udp", "udp6"].iter().any(|file| {
        host.read(&format!("{directory}/{file}")).is_ok_and(|text| text.lines().skip(1).any(is_on_port))
    })
}

#[cfg(test)]
mod tests {
    use linerate_host::HostRecording;
    use linerate_host::recording::RecordedEntry;

    use super::*;

    #[test]
    fn port_is_found_here_or_by_the_link_to_its_namespace() {
        const HEADER: &str = "  sl  local_address rem_address   st tx_queue rx_queue\n";
        let line = format!("{HEADER}  1: 00000000:0035 00000000:0000 07 00000000:00000000\n");
        let mut recording = HostRecording::new();
        for (path, text) in
            [("/proc/thread-self/net/udp", HEADER), ("/proc/812/net/udp", &line), ("/proc/812/comm", "nsd\n")]
        {
            recording.insert(path, RecordedEntry::File(text.into()));
        }
        let find = |recording: &HostRecording| PortPlace::find(&Host::rehearsal(recording.clone()), 53);
        assert_eq!(find(&recording), PortPlace::Nowhere, "no link to its namespace");
        for (pid, namespace) in [(7, "net:[4026531840]"), (812, "net:[4026532177]")] {
            recording.insert(format!("/proc/{pid}/ns/net"), RecordedEntry::Link(namespace.to_owned()));
        }
        assert_eq!(find(&recording), PortPlace::Elsewhere { pid: 812, process: "nsd".to_owned() });
        let own_host = Host::scripted([("/proc/thread-self/net/udp6", line.as_str())]);
        assert_eq!(PortPlace::find(&own_host, 53), PortPlace::Here);
        assert_eq!(PortPlace::find(&own_host, 5), PortPlace::Nowhere);
    }
}
