//! `linerate tune` in the guest: findings disappear, and undo restores every value.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;

use anyhow::Context as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::machine::TO_NIC;
use super::session::GuestSession;
use super::traffic::{ENOUGH, FEW, FlowCount, GuestTraffic};

const DISORDER: &str = include_str!("disorder.sh");
const AWAIT_PACKETS: &str = include_str!("await_packets.sh");
const SNAPSHOT: &str = include_str!("snapshot.sh");

// Files of a capture with counters or events instead of settings.
const COUNTERS: [&str; 18] = [
    "capture.json",
    "proc/uptime",
    "proc/stat",
    "proc/interrupts",
    "proc/softirqs",
    "proc/net/",
    "proc/sys/net/netfilter/nf_conntrack_count",
    "/qstats.json",
    "/statistics.json",
    // The snapshot contains the affinities of queues.
    "/effective_affinity_list",
    // Numbers of NAPI instances, which change with each reset of the interface.
    "calls/netdev/napi.json",
    // Contains packet counts; the snapshot has the settings.
    "calls/qdisc/",
    "calls/sock_diag/",
    "/statistics/",
    "/schedstat",
    "/stat",
    "/byte_queue_limits/",
    // Rules load modules, which stay loaded.
    "proc/modules",
];

// A finding that the emulation causes, because the guest has more CPUs than the host.
const SLOW: &str = "transmit.qdisc-drops";

/// Runs the checks, prints their findings, and returns failures.
pub(super) fn run(guest: &mut GuestSession) -> anyhow::Result<Vec<String>> {
    let mut failures = Vec::new();
    guest.run_successfully(DISORDER)?;
    guest.serve("198.18.81.2")?;
    let initial_findings = findings(guest, ENOUGH)?;
    println!("  igb in disorder: {}", findings_text(&initial_findings));
    if initial_findings.get("high").is_none_or(|high_ids| high_ids.len() < 3) {
        failures.push("tune: doctor finds less than three things of severity high to begin with".to_owned());
    }
    let before = GuestState::read(guest, "igb0")?;
    let command = "linerate tune apply --for udp-server --interface igb0 --interval 5 --yes";
    // The same load as before: a service that uses little CPU time is not tuned.
    // 1: doctor still reports findings, which are judged below.
    failures.extend(traffic(guest, ENOUGH, |guest| guest.failure_of(command, 1))?);
    // Conntrack entries outlive the rule that prevents new ones.
    let wait_until_empty =
        "until [ $(cat /proc/sys/net/netfilter/nf_conntrack_count) -lt 9 ]; do sleep 0.2; done";
    guest.run_script(wait_until_empty)?;
    // Fewer packets: the slow guest is judged by its settings, not by its lack of CPU time.
    let remaining_findings = findings(guest, FEW)?;
    println!("  after tune apply: {}", findings_text(&remaining_findings));
    let unresolved = remaining_findings.iter().filter(|(severity, _)| *severity != "note");
    failures.extend(unresolved.map(|(severity, ids)| format!("tune: still {severity}: {ids:?}")));
    failures.extend(guest.failure_of("linerate tune status", 0)?);
    failures.extend(guest.failure_of("linerate tune undo", 0)?);
    // An affinity takes effect with the next interrupt.
    traffic(guest, FEW, |guest| guest.run_script("sleep 5"))?;
    let after = GuestState::read(guest, "igb0")?;
    let differences = before.differences(&after);
    println!("  after tune undo: {} values compared, {} differ", before.len(), differences.len());
    failures.extend(differences.into_iter().map(|difference| format!("after tune undo: {difference}")));
    Ok(failures)
}

pub(super) struct GuestState {
    snapshot: String,
    capture: BTreeMap<String, Vec<u8>>,
}

impl GuestState {
    pub(super) fn read(guest: &mut GuestSession, interface: &str) -> anyhow::Result<Self> {
        let reply = guest.run_successfully(&SNAPSHOT.replace("NIC", interface))?;
        let script = format!(
            "linerate doctor capture /run/host --interface {interface} >&2 && base64 /run/host && rm /run/host"
        );
        let archive: String = guest.run_successfully(&script)?.output.split_whitespace().collect();
        let archive = STANDARD.decode(archive).context("what the guest printed is no base64")?;
        Ok(Self { snapshot: reply.output, capture: unpack_capture(&archive)? })
    }

    pub(super) fn len(&self) -> usize {
        self.snapshot.lines().count() + self.capture.len()
    }

    pub(super) fn differences(&self, other: &Self) -> Vec<String> {
        let lines = |state: &Self| state.snapshot.lines().map(str::to_owned).collect::<BTreeSet<_>>();
        let (own_lines, other_lines) = (lines(self), lines(other));
        let removed = own_lines.difference(&other_lines).map(|line| format!("no longer '{line}'"));
        let added = other_lines.difference(&own_lines).map(|line| format!("now '{line}'"));
        let names: BTreeSet<&String> = self.capture.keys().chain(other.capture.keys()).collect();
        let files = names
            .into_iter()
            .filter(|name| self.capture.get(*name) != other.capture.get(*name))
            .map(|name| format!("{name} of the capture is another"));
        removed.chain(added).chain(files).collect()
    }
}

/// The files of a capture without counters.
fn unpack_capture(archive: &[u8]) -> anyhow::Result<BTreeMap<String, Vec<u8>>> {
    let mut files = BTreeMap::new();
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(archive));
    for entry in archive.entries()? {
        let mut entry = entry?;
        let name = entry.path()?.to_string_lossy().into_owned();
        let is_counter = COUNTERS.iter().any(|counter| match counter.strip_prefix('/') {
            Some(_) => name.contains(counter),
            None => name.starts_with(counter),
        });
        // Processes come and go.
        let is_process =
            name.strip_prefix("proc/").is_some_and(|suffix| suffix.starts_with(char::is_numeric));
        let mut content = Vec::new();
        entry.read_to_end(&mut content)?;
        if !is_counter && !is_process {
            files.insert(name, content);
        }
    }
    Ok(files)
}

/// Runs a function while datagrams of many flows arrive.
fn traffic<T>(
    guest: &mut GuestSession,
    per_second: u32,
    action: impl FnOnce(&mut GuestSession) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let traffic = GuestTraffic::start(guest, &TO_NIC, FlowCount::Many, per_second)?;
    guest.run_successfully(AWAIT_PACKETS).context("nothing arrives at igb0")?;
    let result = action(guest);
    traffic.stop()?;
    result
}

/// Findings of doctor for `igb0` under load: ids by severity.
fn findings(guest: &mut GuestSession, per_second: u32) -> anyhow::Result<BTreeMap<String, Vec<String>>> {
    let command = "linerate doctor --interface igb0 --interval 5 --json -";
    let document = traffic(guest, per_second, |guest| guest.json(command))?;
    let findings = document["result"]["findings"].as_array().context("doctor's document has no findings")?;
    let mut ids_by_severity = BTreeMap::<String, Vec<String>>::new();
    for finding in findings {
        let text_of = |key: &str| finding[key].as_str().unwrap_or_default().to_owned();
        // Findings about sockets and threads concern the server, which is not tuned here.
        let is_servers = ["socket", "thread"].contains(&text_of("stage").as_str());
        if is_servers || text_of("id") == SLOW {
            continue;
        }
        ids_by_severity.entry(text_of("severity")).or_default().push(text_of("id"));
    }
    Ok(ids_by_severity)
}

fn findings_text(ids_by_severity: &BTreeMap<String, Vec<String>>) -> String {
    let severity_text = |(severity, ids): (&String, &Vec<String>)| format!("{severity}: {}", ids.join(" "));
    ids_by_severity.iter().map(severity_text).collect::<Vec<_>>().join("; ")
}
