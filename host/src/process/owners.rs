//! Socket owners: the descriptors of all processes, read in one pass.

use std::collections::BTreeMap;

use crate::{Host, HostError, Known};

#[derive(Debug, Default)]
pub(crate) struct DescriptorOwners {
    sockets: BTreeMap<u64, Vec<(u32, u32)>>,
    programs: BTreeMap<u32, Vec<u32>>,
    refused: Vec<u32>,
    whole_failure: Option<String>,
}

/// The type of a descriptor by its link.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum DescriptorKind {
    /// By inode.
    Socket(u64),
    Program,
    Epoll,
    Other,
}

impl DescriptorKind {
    /// The text of a link in `/proc/PID/fd`.
    pub(crate) fn of(link: &str) -> Self {
        let inode = link.strip_prefix("socket:[").and_then(|rest| rest.strip_suffix(']'));
        match (inode.map(str::parse), link.trim_start_matches("anon_inode:")) {
            (Some(Ok(inode)), _) => DescriptorKind::Socket(inode),
            (_, "bpf-prog") => DescriptorKind::Program,
            (_, "[eventpoll]") => DescriptorKind::Epoll,
            _ => DescriptorKind::Other,
        }
    }
}

/// The descriptors of a process with their links.
pub(crate) fn descriptors(
    host: &Host,
    pid: u32,
) -> Result<impl Iterator<Item = (u32, String)> + use<'_>, HostError> {
    let directory = format!("/proc/{pid}/fd");
    let descriptors = host.list_numbers(&directory, "")?.into_iter();
    Ok(descriptors.filter_map(move |descriptor| {
        Some((descriptor, host.read_link(&format!("{directory}/{descriptor}")).ok()?))
    }))
}

impl DescriptorOwners {
    /// Reads the descriptors of all processes. A process that ends during the reading is left out.
    pub(crate) fn observe(host: &Host) -> Self {
        let mut owners = DescriptorOwners::default();
        match host.list_numbers("/proc", "") {
            Ok(pids) => pids.into_iter().for_each(|pid| owners.add_process(host, pid)),
            Err(error) => owners.whole_failure = Some(error.to_string()),
        }
        owners
    }

    fn add_process(&mut self, host: &Host, pid: u32) {
        let descriptors = match descriptors(host, pid) {
            Ok(descriptors) => descriptors,
            Err(error) => {
                if error.is_denied() {
                    self.refused.push(pid);
                }
                return;
            }
        };
        for (descriptor, link) in descriptors {
            match DescriptorKind::of(&link) {
                DescriptorKind::Socket(inode) => {
                    self.sockets.entry(inode).or_default().push((pid, descriptor));
                }
                DescriptorKind::Program => self.programs.entry(pid).or_default().push(descriptor),
                DescriptorKind::Epoll | DescriptorKind::Other => {}
            }
        }
    }

    /// The descriptors of a socket. An empty result requires that all processes could be read.
    pub(crate) fn descriptors_of(&self, inode: u64) -> Known<Vec<(u32, u32)>> {
        match (self.sockets.get(&inode), &self.whole_failure, self.refused.as_slice()) {
            (Some(descriptors), ..) => Known::Value(descriptors.clone()),
            (None, Some(why), _) => Known::unknown(why.clone()),
            (None, None, [first, rest @ ..]) => {
                let others =
                    if rest.is_empty() { String::new() } else { format!(" and {} more", rest.len()) };
                Known::unknown(format!(
                    "/proc/{first}/fd{others} may not be read: this requires CAP_SYS_PTRACE, so run it as root"
                ))
            }
            (None, None, []) => Known::Value(Vec::new()),
        }
    }

    pub(crate) fn programs_of(&self, pid: u32) -> &[u32] {
        self.programs.get(&pid).map_or(&[], Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HostRecording;
    use crate::recording::{RecordedEntry, RecordedFailure};

    fn recording() -> HostRecording {
        HostRecording::new().with_links([
            ("/proc/12/fd/3", "socket:[700]"),
            ("/proc/12/fd/4", "anon_inode:bpf-prog"),
            ("/proc/12/fd/5", "/dev/null"),
            ("/proc/30/fd/9", "socket:[700]"),
        ])
    }

    #[test]
    fn socket_owners_include_the_descriptors_of_all_processes() {
        let owners = DescriptorOwners::observe(&Host::recorded(recording()));
        assert_eq!(owners.descriptors_of(700), Known::Value(vec![(12, 3), (30, 9)]));
        assert_eq!(owners.descriptors_of(701), Known::Value(vec![]));
        assert_eq!((owners.programs_of(12), owners.programs_of(30)), (&[4][..], &[][..]));
    }

    #[test]
    fn missing_owner_is_unknown_if_some_process_is_unreadable() {
        let mut recording = recording();
        recording
            .insert("/proc", RecordedEntry::Directory(["12", "30", "40", "41"].map(str::to_owned).to_vec()));
        recording
            .insert("/proc/40/fd", RecordedEntry::Failed(RecordedFailure::Errno { errno: libc::EACCES }));
        recording
            .insert("/proc/41/fd", RecordedEntry::Failed(RecordedFailure::Errno { errno: libc::ENOENT }));
        let owners = DescriptorOwners::observe(&Host::recorded(recording));
        assert!(owners.descriptors_of(700).value().is_some());
        let why = "/proc/40/fd may not be read: this requires CAP_SYS_PTRACE, so run it as root";
        assert_eq!(owners.descriptors_of(701).why(), Some(why));
        let owners = DescriptorOwners::observe(&Host::scripted::<String, String>([]));
        assert!(owners.descriptors_of(700).why_contains("/proc"));
    }

    #[test]
    fn descriptor_kind_is_parsed_from_the_fd_link() {
        assert_eq!(DescriptorKind::of("socket:[812]"), DescriptorKind::Socket(812));
        assert_eq!(DescriptorKind::of("anon_inode:[eventpoll]"), DescriptorKind::Epoll);
        for other in ["socket:[", "socket:[x]", "socket:812", "pipe:[1]", ""] {
            assert_eq!(DescriptorKind::of(other), DescriptorKind::Other);
        }
    }
}
