//! Runs the fix of a finding in docs/findings.md on a copy of its example host. Then doctor has to
//! show that the finding is fixed.

use std::fs;

use anyhow::{Context as _, Result, bail, ensure};
use serde::Deserialize;

use crate::copy;
use crate::mark::ExampleSettings;
use crate::markdown::FencedBlock;
use crate::shell::ShellCommand;
use crate::stage::ExampleTestbed;

/// Findings that stay after their fix, because a copy keeps its old counters or because the fix
/// applies only to new sockets. The evidence has another value after the fix.
const COUNTED: [(&str, &str); 5] = [
    ("link.ring-small", "descriptors of a receive ring"),
    ("route.reverse-path-drops", "rp_filter in effect on ens3"),
    ("socket.buffer-small", "net.core.rmem_max"),
    ("softirq.backlog-drops", "netdev_max_backlog, packets"),
    ("softirq.squeezed", "netdev_budget"),
];

/// doctor reads no rules and so cannot see this fix. It then reports a note.
const MILDER: &str = "filter.conntrack-for-udp";

/// The parts of doctor's document that the test reads.
#[derive(Deserialize)]
struct DoctorOutput {
    result: DoctorFindings,
}

#[derive(Deserialize)]
struct DoctorFindings {
    findings: Vec<DoctorFinding>,
}

#[derive(Deserialize)]
struct DoctorFinding {
    id: String,
    title: String,
    severity: String,
    evidence: Vec<DoctorEvidence>,
    commands: Vec<String>,
}

#[derive(Deserialize)]
struct DoctorEvidence {
    what: String,
    value: serde_json::Value,
}

impl DoctorFinding {
    fn evidence(&self, what: &str) -> Option<&serde_json::Value> {
        self.evidence.iter().find(|evidence| evidence.what == what).map(|evidence| &evidence.value)
    }
}

/// Runs all commands of the fix, of which the page shows the first ones. Compares doctor's findings
/// before and after.
pub(crate) fn carry_out(stage: &mut ExampleTestbed, id: &str, block: &FencedBlock, host: &str) -> Result<()> {
    // Another fix may have changed the directory.
    let _ = fs::remove_dir_all(stage.path("work").join(host));
    stage.put_fixture(host)?;
    let before = findings(stage, host, id)?;
    let finding = before.first().with_context(|| format!("{id} is not found on {host}"))?;
    let lines: Vec<String> = finding.commands.iter().map(|command| command.replace('\n', " ")).collect();
    let documented: Vec<&str> = block.text.lines().collect();
    ensure!(
        !documented.is_empty() && documented.iter().eq(lines.iter().take(documented.len())),
        "doctor advises other commands:\n{}",
        lines.join("\n")
    );
    // Fixes all readings of the host, as if the fix came before them.
    let copy = stage.path("work").join(host);
    for reading in [copy.clone(), copy.join("later")].iter().filter(|reading| reading.exists()) {
        copy::run(stage, reading, &finding.commands)?;
    }
    is_fixed(&before, &findings(stage, host, id)?)
}

/// Whether doctor no longer reports the worst of these findings. For findings in `COUNTED`: whether
/// the evidence has another value.
fn is_fixed(before: &[DoctorFinding], after: &[DoctorFinding]) -> Result<()> {
    let Some(finding) = before.first() else { return Ok(()) };
    let Some((_, what)) = COUNTED.iter().find(|(counted, _)| *counted == finding.id) else {
        let remaining = after.iter().find(|other| other.title == finding.title);
        return match remaining.or(after.get(before.len() - 1)) {
            Some(remaining)
                if remaining.id == MILDER && finding.severity != "note" && remaining.severity == "note" =>
            {
                Ok(())
            }
            Some(remaining) => bail!("after that, doctor still finds: {}", remaining.title),
            None => Ok(()),
        };
    };
    let gone = || format!("{} is gone, so COUNTED need not list it", finding.id);
    let remaining = after.first().with_context(gone)?;
    match (finding.evidence(what), remaining.evidence(what)) {
        (Some(before), now) if Some(before) != now => Ok(()),
        (_, now) => bail!("after that, {what} is {now:?}"),
    }
}

/// doctor's findings with this ID, worst first.
fn findings(stage: &mut ExampleTestbed, host: &str, id: &str) -> Result<Vec<DoctorFinding>> {
    let text = format!("linerate doctor --root {host} --json doctor.json");
    let result = stage.run(&ShellCommand { text, background: false }, &ExampleSettings::default())?;
    if let Some(result) = result.filter(|result| !result.is_well(false)) {
        bail!("doctor --root {host} ended with {}\n{}", result.status, result.stderr);
    }
    let text = fs::read_to_string(stage.path("work/doctor.json"))?;
    let output: DoctorOutput = serde_json::from_str(&text)?;
    Ok(output.result.findings.into_iter().filter(|finding| finding.id == id).collect())
}

#[test]
fn is_fixed_rejects_fixes_that_change_nothing() {
    let finding = |id: &str, value: u32| DoctorFinding {
        id: id.to_owned(),
        title: "as it was".to_owned(),
        severity: "low".to_owned(),
        evidence: COUNTED
            .iter()
            .map(|(_, what)| DoctorEvidence { what: (*what).to_owned(), value: value.into() })
            .collect(),
        commands: Vec::new(),
    };
    let judge = |id: &str, now: u32| is_fixed(&[finding(id, 1)], &[finding(id, now)]);
    assert!(judge("irq.stacked", 2).is_err_and(|why| why.to_string().contains("still finds: as it was")));
    assert!(is_fixed(&[finding("irq.stacked", 1)], &[]).is_ok());
    for (id, _) in COUNTED {
        assert!(judge(id, 1).is_err() && judge(id, 2).is_ok(), "{id}");
        assert!(is_fixed(&[finding(id, 1)], &[]).is_err(), "{id}");
    }
}
