//! Netfilter as files show it: modules, tables, connection tracking.

use std::fmt::Write;

use crate::Tree;

/// Netfilter on a host.
#[derive(Debug, Clone, Default)]
pub struct Netfilter {
    /// Modules loaded, in the order of `/proc/modules`, with how many others use each.
    pub modules: Vec<(&'static str, u32)>,
    /// Tables of iptables; none where its module is not loaded, so that the file does not exist.
    pub ip_tables: Option<Vec<&'static str>>,
    /// Tables of ip6tables.
    pub ip6_tables: Option<Vec<&'static str>>,
    /// Entries of connection tracking, and how many there can be; none where it is not loaded.
    pub conntrack: Option<(u64, u64)>,
}

impl Netfilter {
    pub(crate) fn write(&self, tree: &mut Tree) {
        let mut modules = String::new();
        for (name, users) in &self.modules {
            let _ = writeln!(modules, "{name} 16384 {users} - Live 0xffffffffc0000000");
        }
        tree.file("/proc/modules", modules);
        for (file, tables) in [("ip_tables_names", &self.ip_tables), ("ip6_tables_names", &self.ip6_tables)] {
            if let Some(tables) = tables {
                tree.file(
                    format!("/proc/net/{file}"),
                    tables.iter().map(|table| format!("{table}\n")).collect::<String>(),
                );
            }
        }
        if let Some((count, max)) = self.conntrack {
            tree.line("/proc/sys/net/netfilter/nf_conntrack_count", count);
            tree.line("/proc/sys/net/netfilter/nf_conntrack_max", max);
        }
    }
}
