//! The hardware of the guest, and the findings of doctor before and after changes by hand.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, bail, ensure};
use serde::Deserialize;
use serde_json::Value;

use super::machine::{CPUS, GuestVariant, TO_VIRTIO};
use super::session::GuestSession;
use super::traffic::{self, FlowCount, GuestTraffic};

const DESCRIBE: &str = include_str!("describe.sh");

/// The steps by variant.
const STEPS: &str = include_str!("steps.toml");

/// A change by hand, and the findings that doctor must report after it.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct ManualStep {
    what: String,
    change: String,
    traffic: Option<FlowCount>,
    doctor: String,
    present: Vec<String>,
    absent: Vec<String>,
}

fn steps() -> anyhow::Result<BTreeMap<String, Vec<ManualStep>>> {
    toml::from_str(STEPS).context("steps.toml")
}

/// Runs all checks, prints the findings, and returns failures.
pub(super) fn run(guest: &mut GuestSession, variant: GuestVariant) -> anyhow::Result<Vec<String>> {
    let mut failures = describe(guest, variant)?;
    for step in steps()?.get(&variant.to_string()).into_iter().flatten() {
        failures.extend(run_step(guest, step).with_context(|| step.what.clone())?);
    }
    Ok(failures)
}

fn describe(guest: &mut GuestSession, variant: GuestVariant) -> anyhow::Result<Vec<String>> {
    let reply = guest.run_successfully(&DESCRIBE.replace("NIC", variant.nic().interface))?;
    ensure!(reply.errors.is_empty(), "describing the guest: {}", reply.errors);
    let reported_facts: BTreeMap<&str, &str> =
        reply.output.lines().filter_map(|line| line.split_once(": ")).collect();
    let mut failures = Vec::new();
    for (fact_name, expected) in facts(variant) {
        let value = reported_facts
            .get(fact_name.as_str())
            .with_context(|| format!("the guest does not report its {fact_name}"))?;
        if *value != expected {
            failures.push(format!("{fact_name}: {value}, not {expected}"));
        }
    }
    Ok(failures)
}

fn facts(variant: GuestVariant) -> Vec<(String, String)> {
    let (nodes, threads, nic) = (variant.nodes(), variant.threads(), variant.nic());
    // nproc does not count isolated CPUs.
    let usable_cpus = if variant == GuestVariant::IsolatedCpus { CPUS / 2 } else { CPUS };
    let nic_fact = |fact_name: &str| format!("{fact_name} of {}", nic.interface);
    vec![
        ("CPUs".into(), usable_cpus.to_string()),
        ("nodes".into(), nodes.to_string()),
        ("threads a core".into(), threads.to_string()),
        ("CPUs of node 0".into(), format!("0-{}", CPUS / nodes - 1)),
        (nic_fact("queues"), nic.queues.to_string()),
        ("queues of vnet0".into(), variant.virtio_queues().to_string()),
        (nic_fact("node"), (nodes - 1).to_string()),
        (nic_fact("driver"), nic.driver.into()),
        ("driver of vnet0".into(), "virtio_net".into()),
    ]
}

/// Makes the change of a step and runs doctor.
fn run_step(guest: &mut GuestSession, step: &ManualStep) -> anyhow::Result<Vec<String>> {
    guest.run_successfully(&step.change)?;
    let (document, traffic_text) = match step.traffic {
        Some(flows) => doctor_under_traffic(guest, step, flows)?,
        None => (doctor(guest, step)?, String::new()),
    };
    let finding_ids = ids(&document)?;
    println!("  {}{traffic_text}: {}", step.what, finding_ids.iter().cloned().collect::<Vec<_>>().join(" "));
    Ok(judge(step, &finding_ids))
}

fn doctor(guest: &mut GuestSession, step: &ManualStep) -> anyhow::Result<Value> {
    guest.json(&format!("linerate doctor {} --json -", step.doctor))
}

// Runs doctor while datagrams arrive, and returns its document and the number of datagrams.
//
// Once in 16 boots the emulated virtio-net received nothing from its start. Doctor has nothing to
// judge then, so the interface is restarted.
fn doctor_under_traffic(
    guest: &mut GuestSession,
    step: &ManualStep,
    flows: FlowCount,
) -> anyhow::Result<(Value, String)> {
    const TRIES: usize = 3;
    for _ in 0..TRIES {
        let traffic = GuestTraffic::start(guest, &TO_VIRTIO, flows, traffic::FEW)?;
        let (begin, before) = arrived_packets(guest)?;
        let document = doctor(guest, step)?;
        let (end, after) = arrived_packets(guest)?;
        let sent_count = traffic.stop()?;
        let received = after - before;
        if received as f64 / (end - begin) >= f64::from(traffic::FEW) / 2.0 {
            return Ok((document, format!(", {sent_count} packets sent, {received} received")));
        }
        println!(
            "  {}: vnet0 received {received} of {sent_count} packets, AGAIN after its restart",
            step.what
        );
        guest.run_successfully("ip link set vnet0 down && ip link set vnet0 up && sleep 1")?;
    }
    bail!("vnet0 did not receive half of {} packets per second in {TRIES} tries", traffic::FEW)
}

// Seconds since boot, and packets that vnet0 received.
fn arrived_packets(guest: &mut GuestSession) -> anyhow::Result<(f64, u64)> {
    let reply = guest.run_successfully("cat /proc/uptime /sys/class/net/vnet0/statistics/rx_packets")?;
    let values: Vec<&str> = reply.output.split_whitespace().collect();
    let [seconds, _, packets] = values[..] else { bail!("unexpected counters: {}", reply.output) };
    Ok((seconds.parse()?, packets.parse()?))
}

fn ids(document: &Value) -> anyhow::Result<BTreeSet<String>> {
    let findings = document["result"]["findings"].as_array().context("doctor's document has no findings")?;
    findings
        .iter()
        .map(|finding| finding["id"].as_str().map(str::to_owned).context("a finding has no id"))
        .collect()
}

fn judge(step: &ManualStep, finding_ids: &BTreeSet<String>) -> Vec<String> {
    let missing_findings =
        step.present.iter().filter(|id| !finding_ids.contains(*id)).map(|id| format!("{id} is not found"));
    let unexpected_findings =
        step.absent.iter().filter(|id| finding_ids.contains(*id)).map(|id| format!("{id} is found"));
    missing_findings.chain(unexpected_findings).map(|failure| format!("{}: {failure}", step.what)).collect()
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum as _;
    use serde_json::json;

    use super::*;

    #[test]
    fn every_table_of_steps_is_named_after_a_variant() {
        let variants: Vec<String> = GuestVariant::value_variants().iter().map(ToString::to_string).collect();
        assert!(steps().expect("steps").keys().all(|name| variants.contains(name)));
    }

    #[test]
    fn missing_and_unexpected_findings_are_reported() {
        let document =
            json!({ "result": { "findings": [{ "id": "a.b" }, { "id": "a.b" }, { "id": "c.d" }] } });
        let found = ids(&document).expect("a document");
        let step = ManualStep {
            what: "s".into(),
            present: ["a.b", "e.f"].map(String::from).into(),
            absent: ["c.d"].map(String::from).into(),
            ..ManualStep::default()
        };
        assert_eq!(judge(&step, &found), ["s: e.f is not found", "s: c.d is found"]);
        assert!(ids(&json!({})).is_err());
    }
}
