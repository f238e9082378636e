//! Tables of nftables and iptables.

use std::io;

use super::IptablesTableState;
use super::modules::KernelModules;
use crate::known::UnknownReason;
use crate::netlink::nfnetlink::table::{self, NftTable};
use crate::sys::iptables::{self, IpFamily};
use crate::{Host, Known};

pub(super) fn nftables(host: &Host, modules: &KernelModules) -> Known<Vec<NftTable>> {
    // Tables belong to nf_tables.
    if modules.is_available("nf_tables") == Known::Value(false) {
        return Known::Value(Vec::new());
    }
    let list_tables = || match modules.skip_reason("nf_tables") {
        Some(reason) => Err(io::Error::other(reason)),
        None => match table::tables() {
            // A kernel without nf_tables or without nfnetlink (see net/netfilter/nfnetlink.c).
            Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EPROTONOSUPPORT)) => {
                Ok(Vec::new())
            }
            reply => reply,
        },
    };
    host.call("nfnetlink/tables", "listing nftables' tables", list_tables).into()
}

pub(super) fn iptables(host: &Host) -> Result<Vec<IptablesTableState>, UnknownReason> {
    let mut tables = Vec::new();
    for family in [IpFamily::Ip, IpFamily::Ip6] {
        // Missing if ip_tables is not loaded.
        let path = format!("/proc/net/{family}_tables_names");
        let read_tables = |text: &str| {
            let names = parse_table_names(text)?;
            Ok::<_, String>(names.into_iter().map(|name| read_table(host, family, name)).collect::<Vec<_>>())
        };
        tables.extend(host.read_optional(&path, read_tables).into_known()?.into_iter().flatten());
    }
    Ok(tables)
}

fn read_table(host: &Host, family: IpFamily, name: &str) -> IptablesTableState {
    let action = format!("reading the iptables table {name} of {family}");
    let content = host.call(&format!("iptables/{family}/{name}"), &action, || iptables::table(family, name));
    IptablesTableState { family, name: name.to_owned(), content: content.into() }
}

/// One name per line. It becomes part of a path, and so must be a plain word.
fn parse_table_names(text: &str) -> Result<Vec<&str>, String> {
    let is_plain =
        |name: &str| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte));
    text.lines()
        .map(str::trim)
        .enumerate()
        .filter(|(_, name)| !name.is_empty())
        .map(
            |(index, name)| {
                if is_plain(name) {
                    Ok(name)
                } else {
                    Err(format!("line {}: '{name}' is no table", index + 1))
                }
            },
        )
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::iptables::IptablesTable;

    #[test]
    fn iptables_tables_are_read_by_name() {
        let host = Host::scripted([
            ("/proc/net/ip_tables_names", "raw\nfilter\n"),
            ("/calls/iptables/ip/filter.json", r#"{"rules": 0, "hooks": 3}"#),
            ("/calls/iptables/ip/raw.json", r#"{"errno": 1}"#),
        ]);
        let tables = Known::from(iptables(&host)).into_value().expect("tables");
        assert_eq!((tables.len(), &*tables[1].name), (2, "filter"));
        assert_eq!(tables[1].content, Known::Value(IptablesTable { rules: 0, hooks: 3 }));
        assert!(
            tables[0]
                .content
                .why()
                .is_some_and(|why| why.starts_with("reading the iptables table raw of ip: "))
        );
    }

    #[test]
    fn table_names_with_path_separators_are_rejected() {
        let host = Host::scripted([("/proc/net/ip_tables_names", "filter\n../../etc/x\n")]);
        let why = "/proc/net/ip_tables_names: line 2: '../../etc/x' is no table";
        assert_eq!(Known::from(iptables(&host)).why(), Some(why));
        assert_eq!(Known::from(iptables(&Host::scripted::<String, String>([]))), Known::Value(Vec::new()));
    }

    #[test]
    fn nftables_tables_are_empty_without_the_nf_tables_module() {
        let host = Host::scripted([
            ("/proc/modules", "ixgbe 1 0 - Live 0x0\n"),
            ("/proc/sys/kernel/osrelease", "4.6.3\n"),
            ("/lib/modules/4.6.3/modules.builtin", "kernel/fs/ext4/ext4.ko\n"),
        ]);
        assert_eq!(nftables(&host, &KernelModules::read(&host)), Known::Value(Vec::new()));
        let bare = Host::scripted([(
            "/calls/nfnetlink/tables.json",
            r#"[{"family": "inet", "name": "fw", "rules": 2}]"#,
        )]);
        let tables = nftables(&bare, &KernelModules::read(&bare)).into_value().expect("tables");
        assert_eq!((&*tables[0].name, tables[0].rules, tables[0].hooks), ("fw", 2, 0));
    }
}
