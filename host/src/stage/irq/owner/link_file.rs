//! systemd's .link files, which set affinity when an interface appears (`IRQAffinity...=`,
//! systemd.link(5), since 2026).

use std::collections::BTreeSet;

use super::IrqOwner;
use crate::{Host, ini};

/// In order of precedence: a file hides later files with the same name (systemd.link(5)).
const DIRECTORIES: [&str; 4] = [
    "/etc/systemd/network",
    "/run/systemd/network",
    "/usr/local/lib/systemd/network",
    "/usr/lib/systemd/network",
];

pub(super) fn observe(host: &Host) -> Vec<IrqOwner> {
    let mut file_names = BTreeSet::new();
    let mut owners = Vec::new();
    for directory in DIRECTORIES {
        for name in host.list(directory).unwrap_or_default() {
            let path = format!("{directory}/{name}");
            if name.ends_with(".link.d") {
                let drop_ins = host.list(&path).unwrap_or_default();
                let drop_ins = drop_ins.iter().filter(|drop_in| drop_in.ends_with(".conf"));
                owners.extend(drop_ins.filter_map(|drop_in| owner(host, format!("{path}/{drop_in}"))));
            } else if name.ends_with(".link") && file_names.insert(name) {
                owners.extend(owner(host, path));
            }
        }
    }
    owners
}

fn owner(host: &Host, path: String) -> Option<IrqOwner> {
    let text = host.read(&path).ok()?;
    let lines = affinity_lines(&text);
    (!lines.is_empty()).then(|| IrqOwner {
        name: "systemd .link".to_owned(),
        how: lines.join("; "),
        pid: None,
        read_from: path,
        leaves_alone: Vec::new(),
        environment: None,
    })
}

/// The lines of a .link file that set affinity.
pub(crate) fn affinity_lines(text: &str) -> Vec<String> {
    ini::entries(text)
        .filter(|entry| {
            entry.section == "Link" && entry.key.starts_with("IRQAffinity") && !entry.value.is_empty()
        })
        .map(|entry| format!("{}={}", entry.key, entry.value))
        .collect()
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
