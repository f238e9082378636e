//! Anonymous captures: addresses, the host name, and the names of processes, control groups, virtual
//! machines and open files are replaced.
//!
//! Each value has the same replacement everywhere, so that the findings stay the same. Addresses
//! that are equal on every host (any, loopback, multicast) stay, and so do the program names that
//! doctor uses.

use crate::HostRecording;
use crate::recording::RecordedResult;

mod address;
mod names;

use address::AddressAliases;
use names::NameAliases;

/// Files and directories written by people, which can contain the host name.
const WRITTEN_BY_PEOPLE: [&str; 4] = ["/etc/", "/usr/", "/run/", "/proc/cmdline"];

/// The ends of paths whose text stays. Versions of drivers and kernels can look like addresses, and
/// so does "0::", the group of cgroup v2.
const WITHOUT_ADDRESSES: [&str; 3] = ["/driver.json", "/cgroup", "/proc/sys/kernel/osrelease"];

/// Replaces addresses and names, and the host name with its first label if given.
pub fn anonymise(readings: &mut [HostRecording], host_name: Option<&str>) {
    let mut names = NameAliases::default();
    let mut addresses = AddressAliases::default();
    for reading in readings {
        reading.files = std::mem::take(&mut reading.files)
            .into_iter()
            .map(|(path, content)| (names.replace_in_path(path), content))
            .collect();
        for (path, result) in &mut reading.links {
            if let RecordedResult::Read(target) = result {
                *target = addresses.replace_in_text(&names::replace_in_link(path, target));
            }
        }
        for (path, result) in &mut reading.files {
            let RecordedResult::Read(content) = result else { continue };
            // The kernel cuts names of processes within a letter, and comments can be in Latin-1.
            let mut text = names.replace_in_file(path, &String::from_utf8_lossy(content));
            text = match path.as_str() {
                "/proc/net/udp" | "/proc/net/udp6" | "/proc/net/tcp" | "/proc/net/tcp6" => {
                    addresses.replace_in_hexadecimal(&text)
                }
                _ if WITHOUT_ADDRESSES.iter().any(|end| path.ends_with(end)) => text,
                _ => addresses.replace_in_text(&text),
            };
            if let Some(host) = host_name.filter(|name| name.len() > 1)
                && (WRITTEN_BY_PEOPLE.iter().any(|prefix| path.starts_with(prefix))
                    || path.ends_with("/cmdline"))
            {
                text = replace_word(&text, host);
                if let Some((label, _)) = host.split_once('.').filter(|(label, _)| label.len() > 1) {
                    text = replace_word(&text, label);
                }
            }
            *content = text.into_bytes();
        }
    }
}

/// Replaces a host name where it is not a part of another word.
fn replace_word(text: &str, name: &str) -> String {
    let mut output = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(name) {
        output.push_str(before);
        let is_part = output.ends_with(char::is_alphanumeric) || after.starts_with(char::is_alphanumeric);
        output.push_str(if is_part { name } else { "host" });
        rest = after;
    }
    output + rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Host;
    use crate::process::KNOWN_PROGRAMS;

    fn anonymised_host(files: &[(&str, &str)]) -> Host {
        let mut readings = [HostRecording::from_files(files.iter().copied())];
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
    fn control_groups_machines_and_open_files_get_aliases() {
        let recording = HostRecording::from_files([
            ("/proc/12/cgroup", "12:cpuset:/secret\n0::/system.slice/secret-dns.service\n"),
            ("/proc/13/cgroup", "0::/system.slice/docker-secret.scope/inner\n"),
            ("/sys/fs/cgroup/system.slice/secret-dns.service/cpu.max", "20000 100000\n"),
            ("/proc/12/cmdline", "qemu\0-name\0guest=secret-vm,debug-threads=on\0-drive\0/secret.img\0"),
            ("/proc/13/cmdline", "/usr/sbin/secretd\0"),
            ("/proc/14/cmdline", "/usr/sbin/irqbalance\0--banirq=24\0"),
            ("/proc/12/task/15/comm", "vhost-12\n"),
            ("/proc/12/task/16/comm", "CPU 0/KVM\n"),
        ]);
        let mut readings = [recording.with_links([
            ("/proc/12/fd/5", "/home/secret/customers.db"),
            ("/proc/12/fd/6", "socket:[15400]"),
            ("/proc/12/fd/7", "/dev/net/tun"),
            ("/proc/12/ns/net", "net:[4026531840]"),
            ("/sys/class/net/eth0/device/driver", "../../bus/pci/drivers/ixgbe"),
        ])];
        anonymise(&mut readings, None);
        let [recording] = readings;
        let all = format!("{recording:?}");
        assert!(!all.contains("secret"), "{all}");
        let host = Host::recorded(recording);
        let read = |path| host.read(path).expect("kept");
        let link = |path| host.read_link(path).expect("kept");
        assert_eq!(read("/proc/12/cgroup"), "0::/system.slice/group-1.service\n");
        assert_eq!(read("/proc/13/cgroup"), "0::/system.slice/group-2.scope/group-3\n");
        assert_eq!(read("/sys/fs/cgroup/system.slice/group-1.service/cpu.max"), "20000 100000\n");
        assert_eq!(read("/proc/12/cmdline"), "process-1\0-name\0process-2\0");
        assert_eq!(read("/proc/14/cmdline"), "/usr/sbin/irqbalance\0--banirq=24\0");
        assert_eq!(read("/proc/12/task/15/comm"), "vhost-12\n");
        assert_eq!(read("/proc/12/task/16/comm"), "CPU 0/KVM\n");
        assert_eq!(link("/proc/12/fd/5"), "file");
        assert_eq!(link("/proc/12/fd/6"), "socket:[15400]");
        assert_eq!(link("/proc/12/fd/7"), "/dev/net/tun");
        assert_eq!(link("/proc/12/ns/net"), "net:[4026531840]");
        assert_eq!(link("/sys/class/net/eth0/device/driver"), "../../bus/pci/drivers/ixgbe");
    }

    #[test]
    fn host_name_and_mac_are_replaced_but_versions_stay() {
        let link = "[Match]\nMACAddress=52:54:00:12:34:56\n# of db-7.example, db-7, db-70 and db-7's\n";
        let driver = r#"{"name": "x", "version": "5.1.0.13"}"#;
        for (path, content, expected) in [
            (
                "/etc/systemd/network/10-x.link",
                link,
                "[Match]\nMACAddress=02:00:00:00:00:01\n# of host, host, db-70 and host's\n",
            ),
            ("/calls/ethtool/eth0/driver.json", driver, driver),
            ("/proc/sys/kernel/osrelease", "6.6.47.1-1.azl3\n", "6.6.47.1-1.azl3\n"),
        ] {
            let host = anonymised_host(&[(path, content)]);
            assert_eq!(host.read(path).expect("kept"), expected);
        }
    }

    #[test]
    fn names_and_addresses_in_files_that_are_not_utf8_are_replaced() {
        let mut readings = [HostRecording::from_files([
            // A name that was cut within its last letter.
            ("/proc/12/comm", b"secret-name-\xc3\n".to_vec()),
            ("/proc/12/cmdline", b"secretd\0--for=M\xfcller\0".to_vec()),
            ("/etc/default/irqbalance", b"# f\xfcr 10.1.2.3 auf db-7.example\n".to_vec()),
        ])];
        anonymise(&mut readings, Some("db-7.example"));
        let [recording] = readings;
        let host = Host::recorded(recording);
        let read = |path| host.read(path).expect("kept");
        assert_eq!(read("/proc/12/comm"), "process-2\n");
        assert_eq!(read("/proc/12/cmdline"), "process-1\0");
        assert_eq!(read("/etc/default/irqbalance"), "# f\u{fffd}r 198.18.0.1 auf host\n");
    }

    #[test]
    fn programs_that_rules_recognise_keep_their_names() {
        for name in KNOWN_PROGRAMS {
            let comm = format!("{name}\n");
            let host = anonymised_host(&[("/proc/12/comm", &comm)]);
            assert_eq!(host.read("/proc/12/comm").expect("kept"), comm);
        }
    }
}
