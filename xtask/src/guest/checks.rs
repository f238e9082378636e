//! The hardware of the guest, and the findings of doctor before and after changes by hand.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, ensure};
use serde_json::Value;

use super::machine::{CPUS, GuestVariant, TO_VIRTIO};
use super::session::GuestSession;
use super::steps::{self, ManualStep};
use super::traffic::{self, GuestTraffic};

/// Describes the guest, one fact per line.
const DESCRIBE: &str = r#"
echo "CPUs: $(nproc)"
echo "nodes: $(ls -d /sys/devices/system/node/node* | wc -l)"
echo "threads a core: $(tr ',-' '\n\n' </sys/devices/system/cpu/cpu0/topology/thread_siblings_list | wc -l)"
echo "CPUs of node 0: $(cat /sys/devices/system/node/node0/cpulist)"
echo "queues of NIC: $(ls -d /sys/class/net/NIC/queues/rx-* | wc -l)"
echo "queues of vnet0: $(ls -d /sys/class/net/vnet0/queues/rx-* | wc -l)"
echo "node of NIC: $(cat /sys/class/net/NIC/device/numa_node)"
echo "driver of NIC: $(ethtool -i NIC | sed -n 's/^driver: //p')"
echo "driver of vnet0: $(ethtool -i vnet0 | sed -n 's/^driver: //p')"
"#;

/// Runs all checks, prints the findings, and returns failures.
pub(super) fn run(guest: &mut GuestSession, variant: GuestVariant) -> anyhow::Result<Vec<String>> {
    let mut failed = describe(guest, variant)?;
    for step in steps::of(variant) {
        failed.extend(take(guest, step).with_context(|| step.what)?);
    }
    Ok(failed)
}

fn describe(guest: &mut GuestSession, variant: GuestVariant) -> anyhow::Result<Vec<String>> {
    let said = guest.succeed(&DESCRIBE.replace("NIC", variant.nic().interface))?;
    ensure!(said.errors.is_empty(), "describing the guest: {}", said.errors);
    let found: BTreeMap<&str, &str> = said.output.lines().filter_map(|line| line.split_once(": ")).collect();
    let mut failed = Vec::new();
    for (what, expected) in facts(variant) {
        let value =
            found.get(what.as_str()).with_context(|| format!("the guest does not report its {what}"))?;
        if *value != expected {
            failed.push(format!("{what}: {value}, not {expected}"));
        }
    }
    Ok(failed)
}

fn facts(variant: GuestVariant) -> Vec<(String, String)> {
    let (nodes, threads, nic) = (variant.nodes(), variant.threads(), variant.nic());
    // nproc does not count isolated CPUs.
    let scheduled = if variant == GuestVariant::IsolatedCpus { CPUS / 2 } else { CPUS };
    let own = |what: &str| format!("{what} of {}", nic.interface);
    vec![
        ("CPUs".into(), scheduled.to_string()),
        ("nodes".into(), nodes.to_string()),
        ("threads a core".into(), threads.to_string()),
        ("CPUs of node 0".into(), format!("0-{}", CPUS / nodes - 1)),
        (own("queues"), nic.queues.to_string()),
        ("queues of vnet0".into(), variant.virtio_queues().to_string()),
        (own("node"), (nodes - 1).to_string()),
        (own("driver"), nic.driver.into()),
        ("driver of vnet0".into(), "virtio_net".into()),
    ]
}

/// Makes the change of a step and runs doctor.
fn take(guest: &mut GuestSession, step: &ManualStep) -> anyhow::Result<Vec<String>> {
    guest.succeed(step.change)?;
    let traffic =
        step.traffic.map(|flows| GuestTraffic::start(guest, &TO_VIRTIO, flows, traffic::FEW)).transpose()?;
    let document = guest.json(&format!("linerate doctor {} --json -", step.doctor))?;
    let sent = traffic.map(GuestTraffic::stop).transpose()?;
    let found = ids(&document)?;
    let sent = sent.map_or(String::new(), |packets| format!(", {packets} packets sent"));
    println!("  {}{sent}: {}", step.what, found.iter().cloned().collect::<Vec<_>>().join(" "));
    Ok(judge(step, &found))
}

fn ids(document: &Value) -> anyhow::Result<BTreeSet<String>> {
    let findings = document["result"]["findings"].as_array().context("doctor's document has no findings")?;
    findings
        .iter()
        .map(|finding| finding["id"].as_str().map(str::to_owned).context("a finding has no id"))
        .collect()
}

fn judge(step: &ManualStep, found: &BTreeSet<String>) -> Vec<String> {
    let missing =
        step.present.iter().filter(|id| !found.contains(**id)).map(|id| format!("{id} is not found"));
    let there = step.absent.iter().filter(|id| found.contains(**id)).map(|id| format!("{id} is found"));
    missing.chain(there).map(|failure| format!("{}: {failure}", step.what)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_finding_too_many_and_one_too_few_are_told() {
        let document =
            json!({ "result": { "findings": [{ "id": "a.b" }, { "id": "a.b" }, { "id": "c.d" }] } });
        let found = ids(&document).expect("a document");
        let step = ManualStep { what: "s", present: &["a.b", "e.f"], absent: &["c.d"], ..steps::UNCHANGED };
        assert_eq!(judge(&step, &found), ["s: e.f is not found", "s: c.d is found"]);
        assert!(ids(&json!({})).is_err());
    }
}
