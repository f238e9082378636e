//! The changes of a tune plan by the step that alternates them.

use std::collections::BTreeMap;

use linerate_host::setting::{Offload, QueueDirection};
use linerate_host::{CpuSet, Host, Setting, SettingValue};
use linerate_tune::plan::{ChangeBenefit, ChangeImpact, PlannedChange, SkippedFinding};
use linerate_tune::profile::FindingPolicy;
use linerate_tune::{TunePlan, TuneProfile};

use crate::ladder::configuration::ServerConfiguration;
use crate::ladder::lab_testbed::senders;
use crate::ladder::step::{LadderStep, STEPS};

/// A part of a configuration that consists of settings of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum ConfigurationPart {
    /// CPUs that process received packets.
    Receive,
    /// Transmit queue of each CPU.
    Transmit,
    Offload,
    Netfilter,
    /// Reverse-path filter and the check for local source addresses.
    SourceValidation,
    /// Auditing of system calls.
    Audit,
    /// The socket lookup before routing.
    EarlyDemux,
    /// Hardware threads of the whole machine.
    Smt,
}

impl ConfigurationPart {
    const ALL: [ConfigurationPart; 8] = [
        ConfigurationPart::Receive,
        ConfigurationPart::Transmit,
        ConfigurationPart::Offload,
        ConfigurationPart::Netfilter,
        ConfigurationPart::SourceValidation,
        ConfigurationPart::Audit,
        ConfigurationPart::EarlyDemux,
        ConfigurationPart::Smt,
    ];

    /// `None` if no step alternates this setting.
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
            Setting::SmtControl => Some(ConfigurationPart::Smt),
            Setting::Sysctl(name) if name.ends_with("_early_demux") => Some(ConfigurationPart::EarlyDemux),
            Setting::Sysctl(name) if name.ends_with(".rp_filter") || name.ends_with(".accept_local") => {
                Some(ConfigurationPart::SourceValidation)
            }
            _ => None,
        }
    }

    /// Whether a configuration has the planned values and not the original ones.
    fn is_planned(self, configuration: &ServerConfiguration) -> bool {
        match self {
            ConfigurationPart::Receive => configuration.receive_spread,
            ConfigurationPart::Transmit => configuration.transmit_by_cpu,
            ConfigurationPart::Offload => !configuration.gro,
            ConfigurationPart::Netfilter => !configuration.netfilter,
            ConfigurationPart::SourceValidation => !configuration.source_validation,
            ConfigurationPart::Audit => !configuration.audit,
            ConfigurationPart::EarlyDemux => !configuration.early_demux,
            ConfigurationPart::Smt => configuration.smt_switched,
        }
    }

    /// Whether a finding or value of the profile that the plan skips concerns this part.
    fn concerns(self, left: &SkippedFinding) -> bool {
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
            // No finding switches hardware threads.
            ConfigurationPart::Smt => &[],
        };
        stems.iter().any(|stem| left.finding.starts_with(stem))
            || self == ConfigurationPart::Offload && left.title.contains(Offload::GenericReceive.name())
    }

    /// The parts that a step changes; empty for server options.
    fn of_step(step: &LadderStep) -> impl Iterator<Item = Self> + use<> {
        let mut with = ServerConfiguration::baseline();
        (step.change)(&mut with);
        Self::ALL.into_iter().filter(move |part| part.is_planned(&with))
    }
}

/// The changes of a plan that a run alternates.
#[derive(Debug, Clone)]
pub(crate) struct StepChanges {
    changes: Vec<(ConfigurationPart, PlannedChange)>,
    /// Why a part has no changes, if the host does not have the planned values already.
    reasons: BTreeMap<ConfigurationPart, String>,
    /// Changes of the plan that the run does not make, one line each.
    skipped: Vec<String>,
}

impl StepChanges {
    /// `host_wide` allows changes of the whole machine.
    pub(crate) fn from_plan(plan: &TunePlan, host_wide: bool) -> Self {
        let mut alternated = Self { changes: Vec::new(), reasons: BTreeMap::new(), skipped: Vec::new() };
        for change in &plan.changes {
            match ConfigurationPart::of(change) {
                Some(ConfigurationPart::Audit) if !host_wide => {
                    let why = "auditing is a setting of the whole machine; --host-wide allows to change it";
                    alternated.reasons.insert(ConfigurationPart::Audit, why.to_owned());
                }
                Some(part) if change.interrupts == ChangeImpact::Link => {
                    let why = format!(
                        "{} is left '{}': a change resets the link and cannot be alternated; set it with linerate tune \
                         before the run",
                        change.setting, change.from
                    );
                    alternated.reasons.insert(part, why.clone());
                    alternated.skipped.push(why);
                }
                Some(part) => alternated.changes.push((part, change.clone())),
                None => alternated.skipped.push(format!(
                    "{} is left '{}' instead of '{}': it belongs to no step",
                    change.setting, change.from, change.to
                )),
            }
        }
        for left in &plan.skipped {
            for part in ConfigurationPart::ALL.into_iter().filter(|part| part.concerns(left)) {
                let why = format!("the plan skips it: {}: {}", left.title, left.why);
                alternated.reasons.entry(part).or_insert(why);
            }
        }
        alternated
    }

    /// Adds the switch of the hardware threads, which no plan has.
    pub(crate) fn add_smt(&mut self, host: &Host, host_wide: bool) {
        let change = if host_wide {
            smt_change(host)
        } else {
            Err("hardware threads are a setting of the whole machine; --host-wide allows to change it"
                .to_owned())
        };
        match change {
            Ok(change) => self.changes.push((ConfigurationPart::Smt, change)),
            Err(why) => drop(self.reasons.insert(ConfigurationPart::Smt, why)),
        }
    }

    /// Every alternated setting with its value in a configuration.
    pub(crate) fn settings(
        &self,
        configuration: &ServerConfiguration,
    ) -> impl DoubleEndedIterator<Item = (&Setting, &SettingValue)> {
        self.changes.iter().map(|(part, change)| {
            let value = if part.is_planned(configuration) { &change.to } else { &change.from };
            (&change.setting, value)
        })
    }

    /// The part of a plan that a configuration applies.
    pub(crate) fn kept_plan(&self, plan: &TunePlan, kept: &ServerConfiguration) -> TunePlan {
        let planned = self.changes.iter().filter(|(part, _)| part.is_planned(kept));
        let planned: Vec<&Setting> = planned.map(|(_, change)| &change.setting).collect();
        let mut plan = plan.clone();
        plan.changes.retain(|change| planned.contains(&&change.setting));
        if plan.changes.is_empty() {
            plan.exclusions.clear();
        }
        plan
    }

    /// Why a step is impossible on this host.
    pub(crate) fn refusal(&self, step: &LadderStep) -> Option<String> {
        let mut parts = ConfigurationPart::of_step(step).peekable();
        let part = *parts.peek()?;
        if parts.any(|part| self.changes.iter().any(|(of, _)| *of == part)) {
            return None;
        }
        let reason = self.reasons.get(&part).cloned();
        Some(reason.unwrap_or_else(|| {
            "already set on this host, as far as doctor can see: the plan does not change it".to_owned()
        }))
    }

    /// The steps that change settings, with their changes.
    pub(crate) fn by_step(&self) -> Vec<(&'static LadderStep, Vec<&PlannedChange>)> {
        let of_step = |step: &'static LadderStep| {
            let parts: Vec<ConfigurationPart> = ConfigurationPart::of_step(step).collect();
            let of = self.changes.iter().filter(|(part, _)| parts.contains(part));
            (step, of.map(|(_, change)| change).collect::<Vec<_>>())
        };
        STEPS.iter().map(of_step).filter(|(_, changes)| !changes.is_empty()).collect()
    }

    /// Changes of the plan that the run does not make, one line each.
    pub(crate) fn skipped(&self) -> &[String] {
        &self.skipped
    }
}

fn smt_change(host: &Host) -> Result<PlannedChange, String> {
    let found = Setting::SmtControl.read(host).map_err(|error| error.to_string())?;
    let to = match found.as_str() {
        "on" => "off",
        "off" => "on",
        other => {
            return Err(format!(
                "the kernel does not switch hardware threads here: smt/control is '{other}'"
            ));
        }
    };
    let processes = linerate_host::process::processes(host);
    if processes.value().is_some_and(|all| all.iter().any(|process| process.comm == "irqbalance")) {
        let why = "irqbalance moves interrupts when CPUs come and go: stop it for the run";
        return Err(why.to_owned());
    }
    Ok(added_change(
        Setting::SmtControl,
        found,
        SettingValue::new(to),
        "Two hardware threads of a core share its execution units and its first caches.",
        "T. Makita, Boost UDP Transaction Performance, LinuxCon Japan 2016",
    ))
}

/// Adds XPS masks if the plan has none and all masks are empty. The plan has none for a virtual interface, because without
/// interrupts no queue is nearest to a CPU.
pub(crate) fn add_transmit_queues(
    plan: &mut TunePlan,
    host: &Host,
    interface: &str,
    queues: u32,
    cpus: &[u32],
) {
    let is_transmit =
        |setting: &Setting| matches!(setting, Setting::QueueCpus { direction: QueueDirection::Transmit, .. });
    let is_left = plan.skipped.iter().any(|left| left.finding.starts_with("transmit.xps-"));
    if queues < 2 || is_left || plan.changes.iter().any(|change| is_transmit(&change.setting)) {
        return;
    }
    let changes: Option<Vec<PlannedChange>> = (0..queues)
        .map(|queue| transmit_queue(host, interface, queue, &senders(cpus, queue, queues)))
        .collect();
    // With fewer CPUs than queues, some queues have no CPU, before and after.
    let differs = |change: &PlannedChange| !change.setting.same(&change.from, &change.to);
    plan.changes.extend(changes.into_iter().flatten().filter(differs));
}

/// Adds the change that switches GRO off, if the profile has it and the plan does not mention GRO,
/// for example on a virtual interface.
pub(crate) fn add_offload(plan: &mut TunePlan, host: &Host, interface: &str, profile: &TuneProfile) {
    let setting = Setting::Offload { interface: interface.to_owned(), offload: Offload::GenericReceive };
    let name = setting.to_string();
    let is_mentioned = plan.changes.iter().any(|change| change.setting == setting)
        || plan.skipped.iter().any(|left| left.title.starts_with(&name));
    let is_wanted = matches!(profile.verdict("link.gro-for-udp"), FindingPolicy::Fix(_));
    match setting.read(host) {
        Ok(from) if from.as_str() == "on" && is_wanted && !is_mentioned => plan.changes.push(added_change(
            setting,
            from,
            SettingValue::new("off"),
            "Datagrams are merged only for sockets that enable UDP_GRO; for other sockets the attempt costs CPU time.",
            "T. Makita, Boost UDP Transaction Performance, LinuxCon Japan 2016",
        )),
        _ => {}
    }
}

/// `None` if the mask cannot be read or has CPUs.
fn transmit_queue(host: &Host, interface: &str, queue: u32, cpus: &CpuSet) -> Option<PlannedChange> {
    let direction = QueueDirection::Transmit;
    let setting = Setting::QueueCpus { interface: interface.to_owned(), direction, queue };
    let from = setting.read(host).ok()?;
    CpuSet::from_mask(from.as_str()).ok().filter(CpuSet::is_empty)?;
    Some(added_change(
        setting,
        from,
        SettingValue::new(cpus.to_mask()),
        "Each CPU sends by its own queue instead of one chosen by flow hash.",
        "Documentation/networking/scaling.rst, XPS",
    ))
}

fn added_change(
    setting: Setting,
    from: SettingValue,
    to: SettingValue,
    why: &str,
    source: &str,
) -> PlannedChange {
    PlannedChange {
        setting,
        from,
        to,
        why: why.to_owned(),
        findings: Vec::new(),
        effect: None,
        source: Some(source.to_owned()),
        risk: None,
        interrupts: ChangeImpact::Nothing,
        claims: Vec::new(),
        benefit: ChangeBenefit::default(),
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
            benefit: ChangeBenefit::default(),
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
            exclusions: Vec::new(),
            changes,
            target: Vec::new(),
            held_back: Vec::new(),
            skipped: vec![SkippedFinding {
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

    fn refusal(alternated: &StepChanges, id: &str) -> Option<String> {
        let steps = step::select([id]).expect("a step");
        alternated.refusal(steps.last().expect("a step"))
    }

    #[test]
    fn a_step_has_its_changes_and_no_others() {
        let early = change(Setting::sysctl("net.ipv4.udp_early_demux"), "1", "0", ChangeImpact::Nothing);
        let alternated = StepChanges::from_plan(&plan(vec![gro(), early]), false);
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
        let alternated = StepChanges::from_plan(
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
        starts("irq-affinity-rps", "channels of eth0 is left 'combined 1': a change resets the link");
        starts("gro-off", "already set on this host");
        starts("audit-off", "auditing is a setting of the whole machine");
        starts("source-validation-off", "the plan skips it: rp_filter=1: The host routes.");
        assert_eq!(alternated.skipped().len(), 2);
        assert!(alternated.by_step().is_empty());
    }

    #[test]
    fn hardware_threads_are_switched_where_the_kernel_can() {
        let control = "/sys/devices/system/cpu/smt/control";
        let switched = |found: &str, host_wide: bool, comm: &str| {
            let host = Host::scripted([(control, found), ("/proc/9/comm", comm)]);
            let mut alternated = StepChanges::from_plan(&plan(Vec::new()), host_wide);
            alternated.add_smt(&host, host_wide);
            let change =
                alternated.changes.first().map(|(_, change)| format!("{} to {}", change.from, change.to));
            change.unwrap_or_else(|| refusal(&alternated, "smt").expect("refused"))
        };
        assert_eq!(switched("on\n", true, "nsd\n"), "on to off");
        assert_eq!(switched("off\n", true, "nsd\n"), "off to on");
        assert!(switched("on\n", false, "nsd\n").contains("--host-wide"));
        assert!(switched("notsupported\n", true, "nsd\n").contains("smt/control is 'notsupported'"));
        assert!(switched("on\n", true, "irqbalance\n").contains("stop it for the run"));
    }

    fn added(masks: [&str; 2], cpus: &[u32]) -> Vec<String> {
        let file = |queue: usize| format!("/sys/class/net/eth0/queues/tx-{queue}/xps_cpus");
        let host = Host::scripted((0..2).map(|queue| (file(queue), masks[queue].to_owned())));
        let mut plan = plan(Vec::new());
        add_transmit_queues(&mut plan, &host, "eth0", 2, cpus);
        plan.changes.iter().map(|change| change.to.to_string()).collect()
    }

    #[test]
    fn every_cpu_gets_a_queue_where_none_has_any() {
        assert_eq!(added(["0\n", "00\n"], &[0, 1, 2]), ["00000005", "00000002"]);
    }

    #[test]
    fn a_queue_without_a_cpu_is_no_change() {
        assert_eq!(added(["0\n", "0\n"], &[3]), ["00000008"]);
    }

    #[test]
    fn masks_with_cpus_are_left() {
        assert!(added(["0\n", "2\n"], &[0, 1]).is_empty());
    }
}
