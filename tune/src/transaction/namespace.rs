//! The network namespace of a tune, in which its interfaces, sysctls and addresses have their meaning.

use linerate_host::{Host, Setting};

use super::{TuneError, boot_id};
use crate::journal::record::BeginRecord;

/// Where the network namespace of a tune is, seen from the calling thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TuneNamespace {
    /// The namespace of the thread, or an unknown one.
    Here,
    /// Another namespace, which can be entered through this file.
    Elsewhere {
        /// The file, for setns(2).
        path: String,
    },
    /// Nothing refers to the namespace any more. Its sockets and virtual interfaces are gone, and its
    /// physical interfaces are in the initial namespace.
    Gone { inode: u64 },
}

impl TuneNamespace {
    /// Looks for the namespace. After another boot the answer is `Here`.
    pub fn of(host: &Host, begun: &BeginRecord) -> Self {
        let (Some(inode), Some(own_inode), Ok(boot)) =
            (begun.namespace, namespace_inode(host, "thread-self"), boot_id(host))
        else {
            return Self::Here;
        };
        if begun.is_of_earlier_boot(&boot) == Some(true) {
            return Self::Here;
        }
        if inode == own_inode {
            let cookies = begun.namespace_cookie.zip(host.network_namespace_cookie());
            let is_other = cookies.is_some_and(|(cookie, own_cookie)| cookie != own_cookie);
            return if is_other { Self::Gone { inode } } else { Self::Here };
        }
        let path = of_process(host, inode, "task", "/ns/net")
            .or_else(|| mount_point(host, inode))
            .or_else(|| of_process(host, inode, "fd", ""));
        path.map_or(Self::Gone { inode }, |path| Self::Elsewhere { path })
    }

    pub(super) fn check_here(self, tune: u64) -> Result<(), TuneError> {
        match self {
            Self::Elsewhere { path } => Err(TuneError::OtherNamespace { tune, path }),
            Self::Here | Self::Gone { .. } => Ok(()),
        }
    }

    // Why its settings cannot be read from here; `None` if they can.
    pub(super) fn unreachable_reason(&self) -> Option<String> {
        match self {
            Self::Here => None,
            Self::Elsewhere { path } => Some(format!("it is in another network namespace (--netns {path})")),
            Self::Gone { inode } => Some(format!("its network namespace ({inode}) is gone")),
        }
    }
}

/// Whether the setting belongs to a network namespace, and not to the machine.
pub(super) fn is_of_namespace(setting: &Setting) -> bool {
    match setting {
        Setting::Sysctl(name) => name.starts_with("net.") || name.starts_with("net/"),
        Setting::ThreadCpus { .. }
        | Setting::IrqAffinity { .. }
        | Setting::IrqbalanceBans { .. }
        | Setting::Governor { .. }
        | Setting::Audit
        | Setting::SmtControl
        | Setting::UnitDropIn { .. } => false,
        _ => true,
    }
}

/// Inode of the network namespace of a process or `thread-self`.
pub(crate) fn namespace_inode(host: &Host, process: &str) -> Option<u64> {
    inode(&host.read_link(&format!("/proc/{process}/ns/net")).ok()?)
}

/// From `net:[4026531840]`.
fn inode(link: &str) -> Option<u64> {
    link.strip_prefix("net:[")?.strip_suffix(']')?.parse().ok()
}

/// A file below `/proc/PID/{directory}` that refers to the namespace.
fn of_process(host: &Host, target_inode: u64, directory: &str, file: &str) -> Option<String> {
    let numbers = |path: &str| host.list_numbers(path, "").unwrap_or_default().into_iter();
    let mut files = numbers("/proc").flat_map(|pid| {
        let path = format!("/proc/{pid}/{directory}");
        numbers(&path).map(move |number| format!("{path}/{number}{file}"))
    });
    files.find(|file| host.read_link(file).is_ok_and(|link| inode(&link) == Some(target_inode)))
}

/// A mount point of the namespace, as made by `ip netns add`.
fn mount_point(host: &Host, target_inode: u64) -> Option<String> {
    let table = host.read("/proc/thread-self/mountinfo").ok()?;
    let mut mounts = table.lines().filter_map(|line| {
        let mut words = line.split(' ').skip(3);
        Some((words.next()?, words.next()?))
    });
    mounts.find(|(root, _)| inode(root) == Some(target_inode)).map(|(_, mount_point)| mount_point.to_owned())
}

#[cfg(test)]
mod tests {
    use linerate_host::HostRecording;

    use super::*;

    fn place(inode: u64, boot: &str) -> TuneNamespace {
        let mount = "40 30 0:4 net:[3] /run/netns/blue rw shared:1 - nsfs nsfs rw\n";
        let files = [("/proc/sys/kernel/random/boot_id", "now\n"), ("/proc/thread-self/mountinfo", mount)];
        let links = [("/proc/thread-self/ns/net", 1), ("/proc/50/task/51/ns/net", 2), ("/proc/52/fd/6", 5)]
            .map(|(path, inode)| (path, format!("net:[{inode}]")));
        let recording = HostRecording::from_files(files).with_links(links);
        let begun = BeginRecord { boot: boot.to_owned(), namespace: Some(inode), ..BeginRecord::lost(1, 0) };
        TuneNamespace::of(&Host::recorded(recording), &begun)
    }

    #[test]
    fn another_namespace_with_the_same_inode_is_not_that_of_the_tune() {
        let host = Host::live();
        let Some(own_cookie) = host.network_namespace_cookie() else {
            return println!("SKIP: Linux before 5.14");
        };
        let place = |cookie| {
            let boot = boot_id(&host).expect("a boot id");
            let namespace = namespace_inode(&host, "thread-self");
            let begun =
                BeginRecord { boot, namespace, namespace_cookie: Some(cookie), ..BeginRecord::lost(1, 0) };
            TuneNamespace::of(&host, &begun)
        };
        assert_eq!(place(own_cookie), TuneNamespace::Here);
        assert!(matches!(place(own_cookie + 1), TuneNamespace::Gone { .. }));
    }

    #[test]
    fn namespaces_are_found_by_thread_mount_or_descriptor() {
        let elsewhere = |path: &str| TuneNamespace::Elsewhere { path: path.to_owned() };
        assert_eq!(place(1, "now"), TuneNamespace::Here);
        assert_eq!(place(2, "now"), elsewhere("/proc/50/task/51/ns/net"));
        assert_eq!(place(3, "now"), elsewhere("/run/netns/blue"));
        assert_eq!(place(5, "now"), elsewhere("/proc/52/fd/6"));
        assert_eq!(place(4, "now"), TuneNamespace::Gone { inode: 4 });
        assert_eq!(place(4, "before"), TuneNamespace::Here);
    }
}
