//! Which changes of a plan belong to which step.

use std::collections::BTreeMap;

use linerate_host::setting::{Offload, QueueDirection};
use linerate_host::{Setting, SettingValue};
use linerate_tune::TunePlan;
use linerate_tune::plan::{ChangeImpact, PlannedChange, SkippedFinding};

use crate::ladder::configuration::ServerConfiguration;
use crate::ladder::step::{LadderStep, RUNGS};

/// A part of a configuration that settings of the host make up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ConfigurationPart {
    /// Where received packets are processed.
    Receive,
    /// Which queue a CPU sends by.
    Transmit,
    Offload,
    /// What netfilter does to the service's packets.
    Netfilter,
    /// The reverse-path filter, and the check for local source addresses.
    SourceValidation,
    /// Auditing of system calls.
    Audit,
    /// The socket lookup before routing.
    EarlyDemux,
}

impl ConfigurationPart {
    const ALL: [ConfigurationPart; 7] = [
        ConfigurationPart::Receive,
        ConfigurationPart::Transmit,
        ConfigurationPart::Offload,
        ConfigurationPart::Netfilter,
        ConfigurationPart::SourceValidation,
        ConfigurationPart::Audit,
        ConfigurationPart::EarlyDemux,
    ];

    /// The part that a change belongs to; none where no step is about it.
    fn of(change: &PlannedChange) -> Option<Self> {
        match &change.setting {
            Setting::QueueCpus { direction: QueueDirection::Receive, .. }
            | Setting::IrqAffinity { .. }
            | Setting::RssTable { .. }
            | Setting::FlowHash { .. }
            | Setting::Channels { .. } => Some(ConfigurationPart::Receive),
            Setting::QueueCpus { direction: QueueDirection::Transmit, .. } => {
                Some(ConfigurationPart::Transmit)
            }
            Setting::Offload { offload: Offload::GenericReceive, .. } if change.to.as_str() == "off" => {
                Some(ConfigurationPart::Offload)
            }
            Setting::NftTable { .. } => Some(ConfigurationPart::Netfilter),
            Setting::Audit => Some(ConfigurationPart::Audit),
            Setting::Sysctl(name) if name.ends_with("_early_demux") => Some(ConfigurationPart::EarlyDemux),
            Setting::Sysctl(name) if name.ends_with(".rp_filter") || name.ends_with(".accept_local") => {
                Some(ConfigurationPart::SourceValidation)
            }
            _ => None,
        }
    }

    /// Whether a configuration has it as the plan says, not as it was found.
    fn is_planned(self, configuration: &ServerConfiguration) -> bool {
        match self {
            ConfigurationPart::Receive => configuration.receive_spread,
            ConfigurationPart::Transmit => configuration.transmit_by_cpu,
            ConfigurationPart::Offload => !configuration.gro,
            ConfigurationPart::Netfilter => !configuration.netfilter,
            ConfigurationPart::SourceValidation => !configuration.source_validation,
            ConfigurationPart::Audit => !configuration.audit,
            ConfigurationPart::EarlyDemux => !configuration.early_demux,
        }
    }

    /// Whether something that is left is about it: a finding, or a value of the profile.
    fn is_about(self, left: &SkippedFinding) -> bool {
        let stems: &[&str] = match self {
            ConfigurationPart::Receive => {
                &["irq.", "rss.", "softirq.rps-", "link.queues-below-cpus", "link.single-queue"]
            }
            ConfigurationPart::Transmit => &["transmit.xps-", "transmit.single-queue"],
            ConfigurationPart::Offload => &["link.gro-for-udp"],
            ConfigurationPart::Netfilter => &["filter.conntrack-for-udp"],
            ConfigurationPart::SourceValidation => &["route.source-validation", "route.reverse-path-drops"],
            ConfigurationPart::Audit => &["thread.audit"],
            ConfigurationPart::EarlyDemux => &["route.early-demux"],
        };
        stems.iter().any(|stem| left.finding.starts_with(stem))
            || self == ConfigurationPart::Offload && left.title.contains(Offload::GenericReceive.name())
    }

    /// The parts that a step is about; none where it is about the server alone.
    fn of_step(step: &LadderStep) -> impl Iterator<Item = Self> + use<> {
        let mut with = ServerConfiguration::baseline();
        (step.change)(&mut with);
        Self::ALL.into_iter().filter(move |part| part.is_planned(&with))
    }
}

/// The changes of a plan that a climb goes back and forth between.
#[derive(Debug, Clone)]
pub(super) struct AlternatedChanges {
    changes: Vec<(ConfigurationPart, PlannedChange)>,
    /// Why a part has no changes, where there is more to say than that it is so already.
    reasons: BTreeMap<ConfigurationPart, String>,
    /// What the plan would set and the climb does not, a line each.
    left: Vec<String>,
}

impl AlternatedChanges {
    /// Sorts a plan's changes out.
    pub(super) fn of(plan: &TunePlan, host_wide: bool) -> Self {
        let mut alternated = Self { changes: Vec::new(), reasons: BTreeMap::new(), left: Vec::new() };
        for change in &plan.changes {
            match ConfigurationPart::of(change) {
                Some(ConfigurationPart::Audit) if !host_wide => {
                    let why = "auditing belongs to the whole machine; --host-wide allows it to be switched";
                    alternated.reasons.insert(ConfigurationPart::Audit, why.to_owned());
                }
                Some(part) if change.interrupts == ChangeImpact::Link => {
                    let why = format!(
                        "{} is left '{}': to change it resets the link, which cannot be done back and forth; \
                         set it with linerate tune first, and climb then",
                        change.setting, change.from
                    );
                    alternated.reasons.insert(part, why.clone());
                    alternated.left.push(why);
                }
                Some(part) => alternated.changes.push((part, change.clone())),
                None => alternated.left.push(format!(
                    "{} is left '{}' instead of '{}': no step is about it",
                    change.setting, change.from, change.to
                )),
            }
        }
        for left in &plan.left {
            for part in ConfigurationPart::ALL.into_iter().filter(|part| part.is_about(left)) {
                let why = format!("the plan leaves it: {}: {}", left.title, left.why);
                alternated.reasons.entry(part).or_insert(why);
            }
        }
        alternated
    }

    /// Every setting that is gone back and forth between, with its value in a configuration.
    pub(super) fn settings(
        &self,
        configuration: &ServerConfiguration,
    ) -> impl DoubleEndedIterator<Item = (&Setting, &SettingValue)> {
        self.changes.iter().map(|(part, change)| {
            let value = if part.is_planned(configuration) { &change.to } else { &change.from };
            (&change.setting, value)
        })
    }

    /// The settings that a configuration has as the plan says.
    pub(super) fn planned(&self, configuration: &ServerConfiguration) -> impl Iterator<Item = &Setting> {
        let planned = self.changes.iter().filter(|(part, _)| part.is_planned(configuration));
        planned.map(|(_, change)| &change.setting)
    }

    /// Why a step cannot be had here, if it cannot.
    pub(super) fn refusal(&self, step: &LadderStep) -> Option<String> {
        let mut parts = ConfigurationPart::of_step(step).peekable();
        let part = *parts.peek()?;
        if parts.any(|part| self.changes.iter().any(|(of, _)| *of == part)) {
            return None;
        }
        let reason = self.reasons.get(&part).cloned();
        Some(reason.unwrap_or_else(|| {
            "already so on this host, as far as doctor can see: the plan changes nothing of it".to_owned()
        }))
    }

    /// The steps that change settings, and what they change.
    pub(super) fn by_step(&self) -> Vec<(&'static LadderStep, Vec<&PlannedChange>)> {
        let of_step = |step: &'static LadderStep| {
            let parts: Vec<ConfigurationPart> = ConfigurationPart::of_step(step).collect();
            let of = self.changes.iter().filter(|(part, _)| parts.contains(part));
            (step, of.map(|(_, change)| change).collect::<Vec<_>>())
        };
        RUNGS.iter().map(of_step).filter(|(_, changes)| !changes.is_empty()).collect()
    }

    /// What the plan would set and the climb does not, a line each.
    pub(super) fn left(&self) -> &[String] {
        &self.left
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ladder::step;
    use linerate_tune::plan::SCHEMA;

    fn change(setting: Setting, from: &str, to: &str, interrupts: ChangeImpact) -> PlannedChange {
        PlannedChange {
            setting,
            from: SettingValue::new(from),
            to: SettingValue::new(to),
            why: String::new(),
            findings: Vec::new(),
            effect: None,
            source: None,
            risk: None,
            interrupts,
            claims: Vec::new(),
        }
    }

    fn plan(changes: Vec<PlannedChange>) -> TunePlan {
        TunePlan {
            schema: SCHEMA.to_owned(),
            version: String::new(),
            read_unix_seconds: None,
            goal: "udp-server".to_owned(),
            devices: Vec::new(),
            cpus: vec![0, 1],
            layouts: Vec::new(),
            agreements: Vec::new(),
            changes,
            target: Vec::new(),
            held_back: Vec::new(),
            left: vec![SkippedFinding {
                finding: "route.source-validation".to_owned(),
                severity: "low".to_owned(),
                title: "rp_filter=1".to_owned(),
                why: "The host routes.".to_owned(),
                commands: Vec::new(),
            }],
        }
    }

    fn gro() -> PlannedChange {
        let setting = Setting::Offload { interface: "eth0".into(), offload: Offload::GenericReceive };
        change(setting, "on", "off", ChangeImpact::Nothing)
    }

    fn refusal(alternated: &AlternatedChanges, id: &str) -> Option<String> {
        let steps = step::select([id]).expect("a step");
        alternated.refusal(steps.last().expect("a step"))
    }

    #[test]
    fn a_step_has_its_changes_and_no_others() {
        let early = change(Setting::sysctl("net.ipv4.udp_early_demux"), "1", "0", ChangeImpact::Nothing);
        let alternated = AlternatedChanges::of(&plan(vec![gro(), early]), false);
        let mut without_gro = ServerConfiguration::baseline();
        without_gro.gro = false;
        let values = |configuration: &ServerConfiguration| {
            alternated.settings(configuration).map(|(_, value)| value.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(values(&ServerConfiguration::baseline()), ["on", "1"]);
        assert_eq!(values(&without_gro), ["off", "1"]);
        let steps: Vec<&str> = alternated.by_step().iter().map(|(step, _)| step.id).collect();
        assert_eq!(steps, ["gro-off", "early-demux-off"]);
        assert_eq!(refusal(&alternated, "gro-off"), None);
        assert_eq!(refusal(&alternated, "pin-threads"), None);
    }

    #[test]
    fn a_step_without_a_change_says_why() {
        let interface = || "eth0".to_owned();
        let alternated = AlternatedChanges::of(
            &plan(vec![
                change(
                    Setting::Channels { interface: interface() },
                    "combined 1",
                    "combined 8",
                    ChangeImpact::Link,
                ),
                change(Setting::Rings { interface: interface() }, "rx 256", "rx 4096", ChangeImpact::Link),
                change(Setting::Audit, "1", "0", ChangeImpact::Nothing),
            ]),
            false,
        );
        let starts = |id: &str, words: &str| {
            let why = refusal(&alternated, id).expect("refused");
            assert!(why.starts_with(words), "{why}");
        };
        starts("irq-affinity-rps", "channels of eth0 is left 'combined 1': to change it resets the link");
        starts("gro-off", "already so on this host");
        starts("audit-off", "auditing belongs to the whole machine");
        starts("source-validation-off", "the plan leaves it: rp_filter=1: The host routes.");
        assert_eq!(alternated.left().len(), 2);
        assert!(alternated.by_step().is_empty());
    }
}
