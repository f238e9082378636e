//! The changes of a tune plan by the step that alternates them.

use std::collections::BTreeMap;

use linerate_host::process::{HostProcess, processes};
use linerate_host::setting::{Offload, QueueDirection};
use linerate_host::{CpuSet, Host, Setting, SettingValue};
use linerate_tune::plan::{ChangeBenefit, ChangeImpact, PlannedChange, SkippedFinding};
use linerate_tune::profile::FindingPolicy;
use linerate_tune::{TunePlan, TuneProfile};

use crate::ladder::configuration::ServerConfiguration;
use crate::ladder::lab_testbed::queue_cpus;
use crate::ladder::step::{LadderStep, STEPS};

/// The step that alternates the setting of a planned change.
fn step_of(change: &PlannedChange) -> Option<&'static LadderStep> {
    let id = match &change.setting {
        Setting::QueueCpus { direction: QueueDirection::Receive, .. }
        | Setting::IrqAffinity { .. }
        | Setting::RssTable { .. }
        | Setting::FlowHash { .. }
        | Setting::Channels { .. } => "irq-affinity-rps",
        Setting::QueueCpus { direction: QueueDirection::Transmit, .. } => "xps",
        Setting::Offload { offload: Offload::GenericReceive, .. } if change.to.as_str() == "off" => "gro-off",
        Setting::NftTable { .. } => "netfilter-off",
        Setting::Audit => "audit-off",
        Setting::SmtControl => "smt",
        Setting::Sysctl(name) if name.ends_with("_early_demux") => "early-demux-off",
        Setting::Sysctl(name) if name.ends_with(".rp_filter") || name.ends_with(".accept_local") => {
            "source-validation-off"
        }
        _ => return None,
    };
    STEPS.iter().find(|step| step.id == id)
}

/// Prefixes of the findings, and of the profile's values, that concern the settings of a step; `None` if
/// the step alternates no settings of the host.
fn finding_prefixes(step: &LadderStep) -> Option<&'static [&'static str]> {
    Some(match step.id {
        "irq-affinity-rps" => {
            &["irq.", "rss.", "softirq.rps-", "link.queues-below-cpus", "link.single-queue"]
        }
        "xps" => &["transmit.xps-", "transmit.single-queue"],
        "gro-off" => &["link.gro-for-udp"],
        "netfilter-off" => &["filter.conntrack-for-udp"],
        "source-validation-off" => &["route.source-validation", "route.reverse-path-drops"],
        "audit-off" => &["thread.audit"],
        "early-demux-off" => &["route.early-demux"],
        // No finding switches hardware threads.
        "smt" => &[],
        _ => return None,
    })
}

fn concerns(skipped_finding: &SkippedFinding, step: &LadderStep) -> bool {
    let prefixes = finding_prefixes(step).unwrap_or_default();
    prefixes.iter().any(|prefix| skipped_finding.finding.starts_with(prefix))
        || step.id == "gro-off" && skipped_finding.title.contains(Offload::GenericReceive.name())
}

/// The changes of a plan that a run alternates.
#[derive(Debug, Clone)]
pub(crate) struct StepChanges {
    changes: Vec<(&'static LadderStep, PlannedChange)>,
    /// Why a step has no changes, by its ID, if the host does not have the planned values already.
    reasons: BTreeMap<&'static str, String>,
    /// Changes of the plan that the run does not make, one line each.
    skipped: Vec<String>,
}

impl StepChanges {
    /// `host_wide` allows changes of the whole machine.
    pub(crate) fn from_plan(plan: &TunePlan, host_wide: bool) -> Self {
        let mut step_changes = Self { changes: Vec::new(), reasons: BTreeMap::new(), skipped: Vec::new() };
        for change in &plan.changes {
            match step_of(change) {
                Some(step) if change.setting == Setting::Audit && !host_wide => {
                    let why = "auditing is a setting of the whole machine; --host-wide allows to change it";
                    step_changes.reasons.insert(step.id, why.to_owned());
                }
                Some(step) if change.interrupts == ChangeImpact::Link => {
                    let why = format!(
                        "{} is left '{}': a change resets the link and cannot be alternated; set it with linerate tune \
                         before the run",
                        change.setting, change.from
                    );
                    step_changes.reasons.insert(step.id, why.clone());
                    step_changes.skipped.push(why);
                }
                Some(step) => step_changes.changes.push((step, change.clone())),
                None => step_changes.skipped.push(format!(
                    "{} is left '{}' instead of '{}': it belongs to no step",
                    change.setting, change.from, change.to
                )),
            }
        }
        for skipped_finding in &plan.skipped {
            for step in STEPS.iter().filter(|step| concerns(skipped_finding, step)) {
                let why = format!("the plan skips it: {}: {}", skipped_finding.title, skipped_finding.why);
                step_changes.reasons.entry(step.id).or_insert(why);
            }
        }
        step_changes
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
            Ok(change) => self.changes.extend(step_of(&change).map(|step| (step, change))),
            Err(why) => drop(self.reasons.insert("smt", why)),
        }
    }

    /// Every alternated setting with its value in a configuration.
    pub(crate) fn settings(
        &self,
        configuration: &ServerConfiguration,
    ) -> impl DoubleEndedIterator<Item = (&Setting, &SettingValue)> {
        self.changes.iter().map(|(step, change)| {
            let value = if step.is_in(configuration) { &change.to } else { &change.from };
            (&change.setting, value)
        })
    }

    pub(crate) fn kept_plan(&self, plan: &TunePlan, configuration: &ServerConfiguration) -> TunePlan {
        let kept_changes = self.changes.iter().filter(|(step, _)| step.is_in(configuration));
        let mut plan = plan.clone();
        plan.changes = kept_changes.map(|(_, change)| change.clone()).collect();
        if plan.changes.is_empty() {
            plan.exclusions.clear();
        }
        plan
    }

    /// Why a step is impossible on this host.
    pub(crate) fn refusal(&self, step: &LadderStep) -> Option<String> {
        finding_prefixes(step)?;
        if self.changes.iter().any(|(changed_step, _)| changed_step.id == step.id) {
            return None;
        }
        let reason = self.reasons.get(step.id).cloned();
        Some(reason.unwrap_or_else(|| {
            "already set on this host, as far as doctor can see: the plan does not change it".to_owned()
        }))
    }

    pub(crate) fn by_step(&self) -> Vec<(&'static LadderStep, Vec<&PlannedChange>)> {
        let changes_of = |step: &'static LadderStep| {
            let step_changes = self.changes.iter().filter(|(changed_step, _)| changed_step.id == step.id);
            (step, step_changes.map(|(_, change)| change).collect::<Vec<_>>())
        };
        STEPS.iter().map(changes_of).filter(|(_, changes)| !changes.is_empty()).collect()
    }

    /// Changes of the plan that the run does not make, one line each.
    pub(crate) fn skipped(&self) -> &[String] {
        &self.skipped
    }
}

fn smt_change(host: &Host) -> Result<PlannedChange, String> {
    let current = Setting::SmtControl.read(host).map_err(|error| error.to_string())?;
    let to = match current.as_str() {
        "on" => "off",
        "off" => "on",
        other => {
            return Err(format!(
                "the kernel does not switch hardware threads here: smt/control is '{other}'"
            ));
        }
    };
    let processes = processes(host);
    let is_irqbalance = |process: &HostProcess| process.comm == "irqbalance" && process.is_of_root(host);
    if processes.value().is_some_and(|list| list.iter().any(is_irqbalance)) {
        let why = "irqbalance moves interrupts when CPUs come and go: stop it for the run";
        return Err(why.to_owned());
    }
    Ok(added_change(
        Setting::SmtControl,
        current,
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
    let is_skipped =
        plan.skipped.iter().any(|skipped_finding| skipped_finding.finding.starts_with("transmit.xps-"));
    if queues < 2 || is_skipped || plan.changes.iter().any(|change| is_transmit(&change.setting)) {
        return;
    }
    let changes: Option<Vec<PlannedChange>> = (0..queues)
        .map(|queue| transmit_queue(host, interface, queue, &queue_cpus(cpus, queue, queues)))
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
        || plan.skipped.iter().any(|skipped_finding| skipped_finding.title.starts_with(&name));
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
pub(crate) mod tests {
    use super::*;
    use crate::ladder::step;
    use linerate_tune::plan::SCHEMA;

    fn change(setting: Setting, from: &str, to: &str, interrupts: ChangeImpact) -> PlannedChange {
        let change = added_change(setting, SettingValue::new(from), SettingValue::new(to), "", "");
        PlannedChange { interrupts, ..change }
    }

    pub(crate) fn plan(changes: Vec<PlannedChange>) -> TunePlan {
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

    fn refusal(step_changes: &StepChanges, id: &str) -> Option<String> {
        let steps = step::select([id]).expect("a step");
        step_changes.refusal(steps.last().expect("a step"))
    }

    #[test]
    fn each_step_applies_only_its_own_changes() {
        let early = change(Setting::sysctl("net.ipv4.udp_early_demux"), "1", "0", ChangeImpact::Nothing);
        let step_changes = StepChanges::from_plan(&plan(vec![gro(), early]), false);
        let mut without_gro = ServerConfiguration::baseline();
        without_gro.gro = false;
        let values = |configuration: &ServerConfiguration| {
            step_changes.settings(configuration).map(|(_, value)| value.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(values(&ServerConfiguration::baseline()), ["on", "1"]);
        assert_eq!(values(&without_gro), ["off", "1"]);
        let steps: Vec<&str> = step_changes.by_step().iter().map(|(step, _)| step.id).collect();
        assert_eq!(steps, ["gro-off", "early-demux-off"]);
        assert_eq!(refusal(&step_changes, "gro-off"), None);
        assert_eq!(refusal(&step_changes, "pin-threads"), None);
    }

    #[test]
    fn steps_without_changes_have_a_refusal_reason() {
        let interface = || "eth0".to_owned();
        let step_changes = StepChanges::from_plan(
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
        let assert_refusal = |id: &str, words: &str| {
            let why = refusal(&step_changes, id).expect("refused");
            assert!(why.starts_with(words), "{why}");
        };
        assert_refusal(
            "irq-affinity-rps",
            "channels of eth0 is left 'combined 1': a change resets the link and cannot be alternated; set it with \
             linerate tune before the run",
        );
        assert_refusal("gro-off", "already set on this host");
        assert_refusal("audit-off", "auditing is a setting of the whole machine");
        assert_refusal("source-validation-off", "the plan skips it: rp_filter=1: The host routes.");
        for step in ["xps", "netfilter-off", "early-demux-off"] {
            assert_refusal(step, "already set on this host");
        }
        assert_eq!(step_changes.skipped().len(), 2);
        assert!(step_changes.by_step().is_empty());
    }

    #[test]
    fn the_smt_step_toggles_smt_or_reports_the_reason() {
        let control = "/sys/devices/system/cpu/smt/control";
        let smt_change = |control_state: &str, host_wide: bool, comm: &str| {
            let host = Host::scripted([(control, control_state), ("/proc/9/comm", comm)]);
            let mut step_changes = StepChanges::from_plan(&plan(Vec::new()), host_wide);
            step_changes.add_smt(&host, host_wide);
            let change =
                step_changes.changes.first().map(|(_, change)| format!("{} to {}", change.from, change.to));
            let mut switched = ServerConfiguration::baseline();
            switched.smt_switched = true;
            let kept_plan = step_changes.kept_plan(&plan(Vec::new()), &switched);
            assert_eq!(kept_plan.changes.len(), step_changes.changes.len());
            change.unwrap_or_else(|| refusal(&step_changes, "smt").expect("refused"))
        };
        assert_eq!(smt_change("on\n", true, "nsd\n"), "on to off");
        assert_eq!(smt_change("off\n", true, "nsd\n"), "off to on");
        assert!(smt_change("on\n", false, "nsd\n").contains("--host-wide"));
        assert!(smt_change("notsupported\n", true, "nsd\n").contains("smt/control is 'notsupported'"));
        assert!(smt_change("on\n", true, "irqbalance\n").contains("stop it for the run"));
    }

    #[test]
    fn unset_xps_masks_get_the_cpus_of_their_queue() {
        let planned_masks = |masks: [&str; 2], cpus: &[u32]| -> Vec<String> {
            let file = |queue: usize| format!("/sys/class/net/eth0/queues/tx-{queue}/xps_cpus");
            let host = Host::scripted((0..2).map(|queue| (file(queue), masks[queue].to_owned())));
            let mut plan = plan(Vec::new());
            add_transmit_queues(&mut plan, &host, "eth0", 2, cpus);
            assert!(plan.changes.iter().all(|change| step_of(change).expect("a step").id == "xps"));
            plan.changes.iter().map(|change| change.to.to_string()).collect()
        };
        assert_eq!(planned_masks(["0\n", "00\n"], &[0, 1, 2]), ["00000005", "00000002"]);
        // A queue without a CPU keeps its empty mask, and a host with masks keeps all of them.
        assert_eq!(planned_masks(["0\n", "0\n"], &[3]), ["00000008"]);
        assert!(planned_masks(["0\n", "2\n"], &[0, 1]).is_empty());
    }
}
