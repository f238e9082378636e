//! Netfilter without connection tracking: modules and tables, and what is attached to interfaces before it.

use std::fmt::Write;

use serde_json::json;

use crate::specimen::{Kernel, Tree};

/// A table of iptables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IpTable {
    pub name: &'static str,
    /// How many rules it holds.
    pub rules: u32,
    /// At how many hooks it is: 3 of `filter`, 5 of `mangle`, 2 of `raw`.
    pub hooks: u32,
}

/// Netfilter on a host.
#[derive(Debug, Clone, Default)]
pub struct Netfilter {
    /// Modules loaded, in the order of `/proc/modules`, with how many others use each.
    pub modules: Vec<(&'static str, u32)>,
    /// Tables of iptables; none where its module is not loaded, so that the file does not exist.
    pub ip_tables: Option<Vec<IpTable>>,
}

impl Netfilter {
    pub(crate) fn write(&self, tree: &mut Tree, kernel: Kernel) {
        let mut modules = String::new();
        for (name, users) in &self.modules {
            let _ = writeln!(modules, "{name} 16384 {users} - Live 0xffffffffc0000000");
        }
        tree.file("/proc/modules", modules);
        if let Some(tables) = &self.ip_tables {
            let names = tables.iter().map(|table| format!("{}\n", table.name)).collect::<String>();
            tree.file("/proc/net/ip_tables_names", names);
            for table in tables {
                let content = json!({ "rules": table.rules, "hooks": table.hooks });
                tree.call(&format!("iptables/ip/{}", table.name), &content);
            }
        }
        tree.call("nfnetlink/tables", &json!([]));
        // nfnetlink_rcv_msg in net/netfilter/nfnetlink.c says EINVAL where there is no such subsystem.
        tree.call(
            "nfnetlink/hooks",
            &if kernel.at_least(5, 14) { json!([]) } else { json!({ "errno": EINVAL }) },
        );
    }
}

/// There is no such subsystem.
const EINVAL: i32 = 22;

/// An interface without XDP program or tc filter.
pub(crate) fn write_nothing_attached(tree: &mut Tree, interface: &str) {
    tree.call(&format!("xdp/{interface}/attached"), &json!(null));
    tree.call(&format!("tc/{interface}"), &json!({ "ingress": 0, "egress": 0 }));
}
