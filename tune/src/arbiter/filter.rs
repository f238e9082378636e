//! Who sets rules of netfilter.

use linerate_host::ini;

use super::knob::{OwnedKnob, WantedKnob};
use super::scene::ArbiterHost;
use super::{Found, SettingOwner};
use crate::claim::{ClaimAgreement, EnforcementMode, SettingClaim};

const FIREWALLD: &str = "/etc/firewalld/firewalld.conf";

/// What the service nftables loads, of Debian and of Red Hat.
const RULESETS: [&str; 2] = ["/etc/nftables.conf", "/etc/sysconfig/nftables.conf"];

/// Where the service is when it starts at boot.
const ENABLED: [&str; 2] = [
    "/etc/systemd/system/sysinit.target.wants/nftables.service",
    "/etc/systemd/system/multi-user.target.wants/nftables.service",
];

#[derive(Debug)]
struct FilterOwner {
    claim: SettingClaim,
}

pub(super) fn observe(scene: &ArbiterHost<'_>) -> Found {
    [nftables(scene), firewalld(scene), keeper(scene)]
        .into_iter()
        .flatten()
        .map(|claim| Box::new(FilterOwner { claim }) as Box<dyn SettingOwner>)
        .collect()
}

fn nftables(scene: &ArbiterHost<'_>) -> Option<SettingClaim> {
    ENABLED.iter().find(|path| scene.host.read_link(path).is_ok())?;
    let (path, line) = RULESETS.iter().find_map(|path| Some((path, flushes(&scene.read(path)?)?)))?;
    Some(SettingClaim {
        owner: "nftables.service".to_owned(),
        what: "flushes the whole ruleset when it is started or reloaded, tables of others with it".to_owned(),
        read_from: format!("{path}:{line}"),
        acts: EnforcementMode::OnRestart,
        agreement: ClaimAgreement::ByHand {
            commands: vec![format!("# {path}: add the table to it, so that it is loaded with the others")],
        },
    })
}

/// The line of a ruleset that removes all there is.
pub(super) fn flushes(text: &str) -> Option<usize> {
    let is_flush = |line: &str| line.split_whitespace().take(2).eq(["flush", "ruleset"]);
    (1..).zip(text.lines()).find(|(_, line)| is_flush(line.trim_end_matches(';'))).map(|(number, _)| number)
}

fn firewalld(scene: &ArbiterHost<'_>) -> Option<SettingClaim> {
    let process = scene.process("firewalld")?;
    let backend = scene.read(FIREWALLD).as_deref().and_then(backend);
    // Its own table, and only that, is made anew with nftables, which is what it takes where nothing is said.
    if backend.is_none_or(|backend| backend != "iptables") {
        return None;
    }
    Some(SettingClaim {
        owner: "firewalld".to_owned(),
        what: "flushes the tables of iptables when it is started or reloaded".to_owned(),
        read_from: format!("{FIREWALLD} (process {})", process.pid),
        acts: EnforcementMode::OnRestart,
        agreement: ClaimAgreement::ByHand {
            commands: vec![
                "firewall-cmd --permanent --direct --add-rule ...  # the rule in its own configuration"
                    .to_owned(),
            ],
        },
    })
}

/// Which of iptables and nftables firewalld takes.
pub(super) fn backend(text: &str) -> Option<String> {
    let entry = ini::entries(text).filter(|entry| entry.key == "FirewallBackend").last()?;
    Some(entry.value.to_ascii_lowercase())
}

/// A program that sees to it that its rules are there.
fn keeper(scene: &ArbiterHost<'_>) -> Option<SettingClaim> {
    let process = scene.process("kube-proxy")?;
    Some(SettingClaim {
        owner: "kube-proxy".to_owned(),
        what: "makes its own rules again every 30 s where they are gone; it leaves those of others"
            .to_owned(),
        read_from: format!("/proc/{}/comm", process.pid),
        acts: EnforcementMode::Always,
        agreement: ClaimAgreement::NotNeeded,
    })
}

impl SettingOwner for FilterOwner {
    fn claims(&self, wanted: &WantedKnob<'_>) -> Vec<SettingClaim> {
        if wanted.turns(|knob| *knob == OwnedKnob::Filter) { vec![self.claim.clone()] } else { Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::super::SettingOwners;
    use super::*;
    use linerate_host::recording::RecordedEntry;
    use linerate_host::{Host, HostRecording, Setting, SettingValue};
    use proptest::prelude::*;

    #[test]
    fn what_flushes_is_told() {
        // As Debian 12 ships it.
        let debian = "#!/usr/sbin/nft -f\n\nflush ruleset\n\ntable inet filter {\n}\n";
        assert_eq!(flushes(debian), Some(3));
        assert_eq!(flushes("# flush ruleset\nflush table inet x\n"), None);
        assert_eq!(backend("# FirewallBackend\nFirewallBackend=IPTables\n").as_deref(), Some("iptables"));
    }

    #[test]
    fn a_service_that_flushes_has_a_say_in_every_rule() {
        let mut recording = HostRecording::new();
        recording.insert("/etc/nftables.conf", RecordedEntry::File("flush ruleset\n".into()));
        recording.insert(ENABLED[0], RecordedEntry::Link("/lib/systemd/system/nftables.service".into()));
        let owners = SettingOwners::observe(&Host::rehearsal(recording));
        let table: Setting =
            serde_json::from_str(r#"{"nft_table": {"table": "linerate"}}"#).expect("a setting");
        let found = owners.claims(&table, &SettingValue::new("table inet linerate {}"));
        let shown: Vec<_> = found.iter().map(|claim| (claim.owner.as_str(), claim.acts)).collect();
        assert_eq!(shown, [("nftables.service", EnforcementMode::OnRestart)]);
    }

    proptest! {
        #[test]
        fn any_text_is_answered(text in "(flush |ruleset|FirewallBackend=|[a-z;]{0,4}|\n){0,10}") {
            let _ = (flushes(&text), backend(&text));
        }
    }
}
