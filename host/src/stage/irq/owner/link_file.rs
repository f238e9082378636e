//! systemd's .link files, which udev applies when an interface appears (systemd.link(5)).
//! `IRQAffinity...=` sets affinity since 2026.

use super::IrqOwner;
use crate::Host;
use crate::ini::{FileEntry, file_entries, layered};

/// In order of precedence: a file hides files of the same name in later directories. `/lib` may be
/// a link to `/usr/lib`.
const DIRECTORIES: [&str; 5] = [
    "/etc/systemd/network",
    "/run/systemd/network",
    "/usr/local/lib/systemd/network",
    "/usr/lib/systemd/network",
    "/lib/systemd/network",
];

/// A .link file with its drop-ins.
#[derive(Debug)]
pub struct LinkFile {
    pub path: String,
    /// Each value of `[Link]` that counts, and all of `[Match]`.
    pub entries: Vec<FileEntry>,
}

/// `list` returns the names in a directory, `read` the text of a file, if there are any.
pub fn link_files(
    list: &dyn Fn(&str) -> Vec<String>,
    read: &dyn Fn(&str) -> Option<String>,
) -> Vec<LinkFile> {
    let directories = DIRECTORIES.map(|directory| (directory.to_owned(), list(directory)));
    let file = |path: String| {
        let mut entries = Vec::new();
        let drop_ins = format!("{}.d", path.rsplit('/').next().unwrap_or_default());
        let drop_in_directories =
            directories.iter().filter(|(_, names)| names.contains(&drop_ins)).map(|(directory, _)| {
                let directory = format!("{directory}/{drop_ins}");
                let names = list(&directory);
                (directory, names)
            });
        for path in [path.clone()].into_iter().chain(layered(drop_in_directories, ".conf")) {
            for entry in file_entries(&read(&path).unwrap_or_default(), &path) {
                if entry.section == "Link" { entry.replace_in(&mut entries) } else { entries.push(entry) }
            }
        }
        LinkFile { path, entries }
    };
    layered(directories.iter().cloned(), ".link").into_iter().map(file).collect()
}

/// One owner per file that sets affinity.
pub(super) fn observe(host: &Host) -> Vec<IrqOwner> {
    let files = link_files(&|path| host.list(path).unwrap_or_default(), &|path| host.read(path).ok());
    files
        .iter()
        .flat_map(|file| file.entries.chunk_by(|entry, next| entry.path == next.path))
        .filter_map(owner)
        .collect()
}

fn owner(entries: &[FileEntry]) -> Option<IrqOwner> {
    let affinity = |entry: &&FileEntry| {
        entry.section == "Link" && entry.key.starts_with("IRQAffinity") && !entry.value.is_empty()
    };
    let lines: Vec<_> =
        entries.iter().filter(affinity).map(|entry| format!("{}={}", entry.key, entry.value)).collect();
    (!lines.is_empty()).then(|| IrqOwner {
        name: "systemd .link".to_owned(),
        how: lines.join("; "),
        pid: None,
        read_from: entries[0].path.clone(),
        leaves_alone: Vec::new(),
        environment: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_link_files_that_set_irq_affinity_are_owners() {
        let host = Host::scripted([
            ("/etc/systemd/network/10-nic.link", "[Match]\nDriver=ice\n[Link]\nIRQAffinityPolicy=spread\n"),
            ("/usr/lib/systemd/network/10-nic.link", "[Link]\nIRQAffinity=0-3\n"),
            ("/usr/lib/systemd/network/99-default.link", "[Link]\nNamePolicy=keep kernel\n"),
            ("/etc/systemd/network/99-default.link.d/irq.conf", "[Link]\nIRQAffinity=4-7\n"),
            // As if /lib were a link.
            ("/lib/systemd/network/99-default.link.d/irq.conf", "[Link]\nIRQAffinity=4-7\n"),
            ("/etc/systemd/network/20-wan.network", "[Link]\nIRQAffinity=1\n"),
        ]);
        let owners = observe(&host);
        let sources: Vec<_> =
            owners.iter().map(|owner| (owner.read_from.as_str(), owner.how.as_str())).collect();
        assert_eq!(
            sources,
            [
                ("/etc/systemd/network/10-nic.link", "IRQAffinityPolicy=spread"),
                ("/etc/systemd/network/99-default.link.d/irq.conf", "IRQAffinity=4-7"),
            ]
        );
    }
}
