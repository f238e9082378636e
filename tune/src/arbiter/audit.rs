//! Who switches auditing on: auditd with its rules, and systemd's journal.

use linerate_host::{Setting, ini};

use super::knob::WantedKnob;
use super::scene::ArbiterHost;
use super::{Found, SettingOwner};
use crate::claim::{ClaimAgreement, EnforcementMode, SettingClaim};

const RULES: [&str; 1] = ["/etc/audit/rules.d"];

const JOURNAL: [&str; 4] = [
    "/etc/systemd/journald.conf.d",
    "/run/systemd/journald.conf.d",
    "/usr/local/lib/systemd/journald.conf.d",
    "/usr/lib/systemd/journald.conf.d",
];

#[derive(Debug)]
struct AuditOwner {
    claim: SettingClaim,
    to: u32,
}

pub(super) fn observe(scene: &ArbiterHost<'_>) -> Found {
    rules(scene)
        .into_iter()
        .chain(auditd(scene))
        .chain(journal(scene))
        .map(|it| Box::new(it) as Box<dyn SettingOwner>)
        .collect()
}

/// augenrules loads these files, the last line of them counts.
fn rules(scene: &ArbiterHost<'_>) -> Option<AuditOwner> {
    let mut paths = scene.layered(&RULES, ".rules");
    paths.push("/etc/audit/audit.rules".to_owned());
    let (at, to) = paths.iter().rev().find_map(|path| {
        let (line, to) = enabled(&scene.read(path)?)?;
        Some((format!("{path}:{line}"), to))
    })?;
    let lock = if to == 2 { ", and locks that until the next boot" } else { "" };
    Some(AuditOwner {
        claim: SettingClaim {
            owner: "audit rules".to_owned(),
            what: format!("set auditing to {to} when they are loaded{lock}"),
            read_from: at.clone(),
            acts: EnforcementMode::OnRestart,
            agreement: ClaimAgreement::ByHand { commands: vec![format!("# {at}: make it '-e 0'")] },
        },
        to,
    })
}

/// The last `-e N` of a file of rules, and its line.
pub(super) fn enabled(text: &str) -> Option<(usize, u32)> {
    let value = |line: &str| {
        let rest = line.trim().strip_prefix("-e")?;
        rest.trim().parse::<u32>().ok().filter(|enabled| *enabled <= 2)
    };
    (1..).zip(text.lines()).filter_map(|(number, line)| Some((number, value(line)?))).last()
}

fn auditd(scene: &ArbiterHost<'_>) -> Option<AuditOwner> {
    // kauditd is the kernel's.
    let process = scene.process("auditd")?;
    let command_line = scene.read(&format!("/proc/{}/cmdline", process.pid)).unwrap_or_default();
    let words: Vec<&str> = command_line.split('\0').collect();
    let told = words.iter().position(|word| *word == "-s").and_then(|at| words.get(at + 1)).copied();
    // auditd(8): enable unless told otherwise.
    if matches!(told, Some("disable" | "nochange")) {
        return None;
    }
    Some(AuditOwner {
        claim: SettingClaim {
            owner: "auditd".to_owned(),
            what: "switches auditing on when it starts".to_owned(),
            read_from: format!("/proc/{}/cmdline", process.pid),
            acts: EnforcementMode::OnRestart,
            agreement: ClaimAgreement::ByHand {
                commands: vec![
                    "systemctl edit auditd  # [Service] ExecStart= and ExecStart=/sbin/auditd -s nochange"
                        .to_owned(),
                ],
            },
        },
        to: 1,
    })
}

fn journal(scene: &ArbiterHost<'_>) -> Option<AuditOwner> {
    let mut paths = vec!["/etc/systemd/journald.conf".to_owned()];
    paths.extend(scene.layered(&JOURNAL, ".conf"));
    let (at, on) = paths.iter().rev().find_map(|path| {
        let (line, on) = journal_audits(&scene.read(path)?)?;
        Some((format!("{path}:{line}"), on))
    })?;
    on.then(|| AuditOwner {
        claim: SettingClaim {
            owner: "systemd-journald".to_owned(),
            what: "switches auditing on when it starts".to_owned(),
            read_from: at,
            acts: EnforcementMode::OnRestart,
            agreement: ClaimAgreement::ByHand {
                commands: vec![
                    "mkdir -p /etc/systemd/journald.conf.d && printf '[Journal]\\nAudit=keep\\n' > \
                     /etc/systemd/journald.conf.d/90-linerate.conf  # an older systemd knows 'no' only"
                        .to_owned(),
                ],
            },
        },
        to: 1,
    })
}

/// What a file of journald.conf(5) says of auditing, and its line.
pub(super) fn journal_audits(text: &str) -> Option<(usize, bool)> {
    let entry =
        ini::entries(text).filter(|entry| (entry.section, entry.key) == ("Journal", "Audit")).last()?;
    Some((entry.line, ini::switch(entry.value)? == "on"))
}

impl SettingOwner for AuditOwner {
    fn claims(&self, wanted: &WantedKnob<'_>) -> Vec<SettingClaim> {
        let other = *wanted.setting == Setting::Audit && wanted.to.as_str() != self.to.to_string();
        if other { vec![self.claim.clone()] } else { Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::super::SettingOwners;
    use super::*;
    use linerate_host::{Host, SettingValue};
    use proptest::prelude::*;

    #[test]
    fn all_who_switch_it_on_are_told() {
        let host = Host::scripted([
            ("/proc/9/comm", "auditd\n"),
            ("/proc/9/cmdline", "/sbin/auditd\0"),
            ("/etc/audit/rules.d/10-base.rules", "-D\n-b 8192\n-e 1\n"),
            ("/etc/audit/rules.d/99-finalize.rules", "#-e 1\n-e 2\n"),
            ("/etc/systemd/journald.conf", "[Journal]\n#Storage=auto\nAudit=yes\n"),
        ]);
        let owners = SettingOwners::observe(&host);
        let found = owners.claims(&Setting::Audit, &SettingValue::new("0"));
        let shown: Vec<_> =
            found.iter().map(|claim| (claim.owner.as_str(), claim.read_from.as_str())).collect();
        assert_eq!(
            shown,
            [
                ("audit rules", "/etc/audit/rules.d/99-finalize.rules:2"),
                ("auditd", "/proc/9/cmdline"),
                ("systemd-journald", "/etc/systemd/journald.conf:3"),
            ]
        );
        assert_eq!(owners.claims(&Setting::sysctl("kernel.x"), &SettingValue::new("0")), []);
    }

    proptest! {
        #[test]
        fn any_text_is_answered(text in "(-e|Audit=|\\[Journal\\]|[0-9a-z ]{0,3}|\n){0,12}") {
            let _ = (enabled(&text), journal_audits(&text));
        }
    }
}
