//! Who sets the frequency governor of CPUs: daemons, and services that run at boot.

use linerate_host::ini;

use super::knob::{OwnedKnob, OwnedSetting, WantedKnob};
use super::scene::ArbiterHost;
use super::{Found, SettingOwner};
use crate::claim::{ClaimAgreement, EnforcementMode, SettingClaim};

/// Names of processes, of which the kernel keeps 15 bytes; what each does, when, and what to type.
const DAEMONS: [(&str, &str, &str, EnforcementMode, &str); 3] = [
    (
        "power-profiles-",
        "power-profiles-daemon",
        "sets the governor when the power profile changes, and when it starts",
        EnforcementMode::OnRestart,
        "powerprofilesctl set performance",
    ),
    (
        "tuned-ppd",
        "tuned-ppd",
        "changes TuneD's profile when a power profile is asked for",
        EnforcementMode::OnRestart,
        "powerprofilesctl set performance",
    ),
    (
        "auto-cpufreq",
        "auto-cpufreq",
        "sets the governor by load, again and again",
        EnforcementMode::Always,
        "auto-cpufreq --force=performance",
    ),
];

/// Files of services, and the key of the governor.
const SERVICES: [(&str, &str, &str); 4] = [
    ("/etc/default/cpufrequtils", "GOVERNOR", "cpufrequtils"),
    ("/etc/default/cpupower", "governor", "cpupower"),
    ("/etc/sysconfig/cpupower", "CPUPOWER_START_OPTS", "cpupower"),
    ("/etc/tlp.conf", "CPU_SCALING_GOVERNOR_ON_AC", "tlp"),
];

#[derive(Debug)]
struct GovernorOwner {
    claim: SettingClaim,
    /// What it sets it to, where that is known.
    to: Option<String>,
}

pub(super) fn observe(scene: &ArbiterHost<'_>) -> Found {
    let daemons = DAEMONS.iter().filter_map(|(comm, owner, what, acts, command)| {
        let process = scene.process(comm)?;
        let claim = SettingClaim {
            owner: (*owner).to_owned(),
            what: (*what).to_owned(),
            read_from: format!("/proc/{}/comm", process.pid),
            acts: *acts,
            agreement: ClaimAgreement::ByHand { commands: vec![(*command).to_owned()] },
        };
        Some(GovernorOwner { claim, to: None })
    });
    let services = SERVICES.iter().filter_map(|(path, key, owner)| {
        let (line, to) = chosen(&scene.read(path)?, key)?;
        let claim = SettingClaim {
            owner: (*owner).to_owned(),
            what: format!("sets the governor to {to} when its service starts"),
            read_from: format!("{path}:{line}"),
            acts: EnforcementMode::AtBoot,
            agreement: ClaimAgreement::NotNeeded,
        };
        Some(GovernorOwner { claim, to: Some(to) })
    });
    daemons.chain(services).map(|governor| Box::new(governor) as Box<dyn SettingOwner>).collect()
}

/// The governor in a file of shell variables, and its line: `governor='ondemand'`, `OPTS="frequency-set -g performance"`.
pub(super) fn chosen(text: &str, key: &str) -> Option<(usize, String)> {
    let entry = ini::entries(text).filter(|entry| entry.key == key).last()?;
    let value = entry.value.trim_matches(['"', '\'']);
    let word = value.split_once("-g ").map_or(value, |(_, rest)| rest).split_whitespace().next()?;
    Some((entry.line, word.to_owned()))
}

impl SettingOwner for GovernorOwner {
    fn claims(&self, wanted: &WantedKnob<'_>) -> Vec<SettingClaim> {
        let set = OwnedSetting { knob: OwnedKnob::Governor, interface: None, to: self.to.clone() };
        wanted.contradicted_by(&set).map(|_| self.claim.clone()).into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::SettingOwners;
    use super::*;
    use linerate_host::{Host, Setting, SettingValue};
    use proptest::prelude::*;

    #[test]
    fn daemons_and_services_are_told() {
        let host = Host::scripted([
            ("/proc/9/comm", "power-profiles-\n"),
            (
                "/etc/sysconfig/cpupower",
                "# See 'cpupower help'\nCPUPOWER_START_OPTS=\"frequency-set -g ondemand\"\n",
            ),
            ("/etc/default/cpufrequtils", "ENABLE=\"true\"\nGOVERNOR=\"performance\"\n"),
        ]);
        let found = SettingOwners::observe(&host)
            .claims(&Setting::Governor { cpu: 0 }, &SettingValue::new("performance"));
        let shown: Vec<_> = found.iter().map(|claim| (claim.owner.as_str(), claim.acts)).collect();
        assert_eq!(
            shown,
            [("power-profiles-daemon", EnforcementMode::OnRestart), ("cpupower", EnforcementMode::AtBoot)]
        );
    }

    proptest! {
        #[test]
        fn any_text_is_answered(text in "(GOVERNOR=|-g |[a-z\"' ]{0,5}|\n){0,10}") {
            let _ = chosen(&text, "GOVERNOR");
        }
    }
}
