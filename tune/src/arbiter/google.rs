//! Google's guest agent, which spreads the queues of virtual NICs when it starts.

use linerate_host::ini;

use super::knob::{OwnedKnob, WantedKnob};
use super::scene::ArbiterHost;
use super::{Found, SettingOwner};
use crate::claim::{ClaimAgreement, EnforcementMode, SettingClaim};

/// Names of the process, of which the kernel keeps 15 bytes.
const COMM: [&str; 2] = ["google_guest_ag", "google_guest_co"];

/// As of its README ("Instance Setup"); the second is a distribution's, and yields.
const CONFIGURATION: [&str; 2] =
    ["/etc/default/instance_configs.cfg", "/etc/default/instance_configs.cfg.distro"];

#[derive(Debug)]
struct GoogleAgent {
    read_from: String,
}

pub(super) fn observe(scene: &ArbiterHost<'_>) -> Found {
    let Some(process) = COMM.iter().find_map(|name| scene.process(name)) else { return Vec::new() };
    let told = CONFIGURATION.iter().find_map(|path| told(&scene.read(path)?));
    if told == Some(false) {
        return Vec::new();
    }
    vec![Box::new(GoogleAgent { read_from: format!("/proc/{}/comm", process.pid) })]
}

/// Whether it is told to spread queues.
pub(super) fn told(text: &str) -> Option<bool> {
    let entries = ini::entries(text)
        .filter(|entry| entry.section == "InstanceSetup" && entry.key == "set_multiqueue")
        .last();
    entries.and_then(|entry| ini::switch(entry.value)).map(|switch| switch == "on")
}

impl SettingOwner for GoogleAgent {
    fn claims(&self, wanted: &WantedKnob<'_>) -> Vec<SettingClaim> {
        let is_its = |knob: &OwnedKnob| {
            matches!(knob, OwnedKnob::Interrupt) || *knob == OwnedKnob::File("xps_cpus".into())
        };
        if !wanted.turns(is_its) {
            return Vec::new();
        }
        vec![SettingClaim {
            owner: "google-guest-agent".to_owned(),
            what: "sets the affinity of interrupts, and XPS, of virtual NICs when it starts".to_owned(),
            read_from: self.read_from.clone(),
            acts: EnforcementMode::OnRestart,
            agreement: ClaimAgreement::ByHand {
                commands: vec![format!(
                    "printf '[InstanceSetup]\\nset_multiqueue = false\\n' >> {}  # it leaves queues alone from its next \
                     start on",
                    CONFIGURATION[0]
                )],
            },
        }]
    }
}
