//! What has to hold in the guest.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, ensure};

use super::machine::{CPUS, Variant};
use super::session::Guest;

/// How long a command of these may take. Most take less than a second.
const PATIENCE: Duration = Duration::from_secs(120);

/// Says what the guest is, a line each.
const DESCRIBE: &str = r#"
echo "CPUs: $(nproc)"
echo "nodes: $(ls -d /sys/devices/system/node/node* | wc -l)"
echo "threads a core: $(busybox tr ',-' '\n\n' </sys/devices/system/cpu/cpu0/topology/thread_siblings_list | wc -l)"
echo "CPUs of node 0: $(cat /sys/devices/system/node/node0/cpulist)"
echo "queues of igb0: $(ls -d /sys/class/net/igb0/queues/rx-* | wc -l)"
echo "queues of vnet0: $(ls -d /sys/class/net/vnet0/queues/rx-* | wc -l)"
echo "node of igb0: $(cat /sys/class/net/igb0/device/numa_node)"
echo "driver of igb0: $(ethtool -i igb0 | sed -n 's/^driver: //p')"
echo "driver of vnet0: $(ethtool -i vnet0 | sed -n 's/^driver: //p')"
"#;

/// Runs all checks, and tells of each that fails.
pub(super) fn run(guest: &mut Guest, variant: Variant) -> anyhow::Result<Vec<String>> {
    let said = guest.ask(DESCRIBE, PATIENCE)?;
    ensure!(said.status == 0 && said.errors.is_empty(), "describing the guest: {}", said.errors);
    let found: BTreeMap<&str, &str> = said.output.lines().filter_map(|line| line.split_once(": ")).collect();
    let mut failed = Vec::new();
    for (what, expected) in facts(variant) {
        let value = found.get(what).with_context(|| format!("the guest does not tell its {what}"))?;
        if *value != expected {
            failed.push(format!("{what}: {value}, not {expected}"));
        }
    }
    Ok(failed)
}

/// What the guest has to be.
fn facts(variant: Variant) -> [(&'static str, String); 9] {
    let (nodes, threads) = (variant.nodes(), variant.threads());
    [
        ("CPUs", CPUS.to_string()),
        ("nodes", nodes.to_string()),
        ("threads a core", threads.to_string()),
        ("CPUs of node 0", format!("0-{}", CPUS / nodes - 1)),
        ("queues of igb0", "8".into()),
        ("queues of vnet0", variant.virtio_queues().to_string()),
        ("node of igb0", (nodes - 1).to_string()),
        ("driver of igb0", "igb".into()),
        ("driver of vnet0", "virtio_net".into()),
    ]
}
