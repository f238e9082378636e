//! A tune plan: changes by interface and kind with their reasons, and the remaining findings.

use std::collections::BTreeSet;

use linerate_host::setting::{QueueDirection, SteeringTable};
use linerate_host::{CpuSet, Setting, SettingValue, Severity};
use linerate_tune::claim::{ClaimExclusion, EnforcementMode, SettingClaim};
use linerate_tune::plan::{
    ChangeImpact, HeldBackChanges, InterfaceLayout, PlanRehearsal, PlannedChange, SkippedFinding,
};
use linerate_tune::{NamedDevice, TunePlan};

use super::measurement::benefit_words;
use crate::document::{Audience, Block, Document, Fact, Section, Table, Tile, Tone};
use crate::origin::{HostSummary, Origin};
use crate::render::column::cut;
use crate::render::format::{self, count_with_noun};

/// A plan and the facts known when it was made.
pub(crate) struct PlannedTune {
    pub(crate) plan: TunePlan,
    pub(crate) host: String,
    /// Findings after the changes; `None` if the plan was not rehearsed.
    pub(crate) rehearsal: Option<PlanRehearsal>,
    /// Parts of the host that could not be read, so that changes or other tools may be missing; one sentence each.
    pub(crate) unseen: Vec<String>,
}

impl PlannedTune {
    /// A plan that was not made from a reading of the whole host.
    pub(crate) fn of_plan(plan: TunePlan, host: impl Into<String>) -> Self {
        Self { plan, host: host.into(), rehearsal: None, unseen: Vec::new() }
    }
}

/// Longer values are shortened in the short form.
const LONGEST: usize = 34;
/// Rows of a table in the short form.
const ROWS: usize = 24;

/// The plan, with all reasons, masks, commands and sources if it is `full`.
pub(crate) fn document(planned_tune: &PlannedTune, full: bool) -> Document {
    let PlannedTune { plan, host, unseen, .. } = planned_tune;
    let mut sections = change_sections(plan, full);
    sections.extend(held_back_section(&plan.held_back));
    sections.extend(plan.layouts.iter().filter(|layout| full || is_reset(plan, layout)).map(layout));
    sections.extend(skipped_section(&plan.skipped, full));
    sections.extend(rehearsal_section(planned_tune, full));
    if !unseen.is_empty() {
        sections.push(paragraphs("Could not read", unseen));
    }
    let changes = plan.exclusions.len() + plan.changes.len();
    let mut verdict = summary(plan, host);
    if !plan.cpus.is_empty() {
        verdict.push_str(&format!(" Packets go to CPUs {}.", cpu_runs_text(&plan.cpus)));
    }
    Document {
        title: "Tune plan",
        verdict,
        origin: Origin {
            schema: plan.schema.clone(),
            version: plan.version.clone(),
            argv: Vec::new(),
            started_unix_seconds: plan.read_unix_seconds,
            host: HostSummary::named(Some(host.clone())),
        },
        tiles: vec![
            Tile::new(changes.to_string(), "", "changes"),
            Tile::new(plan.skipped.len().to_string(), "", "findings left as they are"),
        ],
        sections,
        full,
        ..Document::default()
    }
}

/// Number of changes, and the interruptions they cause.
pub(crate) fn summary(plan: &TunePlan, host: &str) -> String {
    let changes = || plan.exclusions.iter().chain(&plan.changes);
    let goal = &plan.goal;
    let held_text = match plan.held_back.iter().map(|held_back| held_back.changes.len()).sum::<usize>() {
        0 => String::new(),
        count => format!(" {} held back.", count_with_noun(count, "change")),
    };
    if changes().next().is_none() {
        return format!("Nothing to change on {host} for {goal}.{held_text}");
    }
    let resets = changes().filter(|change| change.interrupts == ChangeImpact::Link).count();
    let moments = changes().filter(|change| change.interrupts == ChangeImpact::Moment).count();
    let interruption_text = match (resets, moments) {
        (0, 0) => "none interrupts traffic".to_owned(),
        (0, count) => format!("no link goes down, {count} may reorder or lose packets for a moment"),
        (1, _) => "1 takes a link down for up to seconds".to_owned(),
        (count, _) => format!("{count} take a link down for up to seconds"),
    };
    format!(
        "{} on {host} for {goal}; {interruption_text}.{held_text}",
        count_with_noun(changes().count(), "change")
    )
}

/// CPUs in the order of use, runs as ranges: `0-9, then 20-29`.
fn cpu_runs_text(cpus: &[u32]) -> String {
    let mut runs: Vec<Vec<u32>> = Vec::new();
    for cpu in cpus {
        match runs.last_mut() {
            Some(run) if run.last().and_then(|last| last.checked_add(1)) == Some(*cpu) => run.push(*cpu),
            _ => runs.push(vec![*cpu]),
        }
    }
    let texts: Vec<String> = runs.iter().map(|run| format::cpu_list(run)).collect();
    // Many single CPUs are listed without words.
    texts.join(if runs.len() > 4 { " " } else { ", then " })
}

/// The changes alone, one section per interface or subject.
pub(crate) fn change_sections(plan: &TunePlan, full: bool) -> Vec<Section> {
    let mut sections: Vec<Section> = Vec::new();
    for group in change_groups(plan) {
        let heading = group.subject.heading(&plan.devices);
        if sections.last().is_none_or(|section| section.heading != heading) {
            sections.push(Section::new(heading));
        }
        if let Some(section) = sections.last_mut() {
            section.blocks.extend(group.blocks(full).into_iter().map(|block| (Audience::Both, block)));
        }
    }
    sections
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum ChangeSubject {
    /// Tools that manage the same settings.
    OtherTools,
    Interface(String),
    Server,
    NetworkStack,
    /// Includes every container and virtual machine.
    Machine,
}

/// Changes of one kind with the same reason.
struct ChangeGroup<'a> {
    subject: ChangeSubject,
    kind: ChangeKind,
    changes: Vec<&'a PlannedChange>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ChangeKind {
    Interrupts,
    Rps,
    Xps,
    Steering,
    Threads,
    Options,
    Other,
}

/// The changes in groups, sorted by subject.
fn change_groups(plan: &TunePlan) -> Vec<ChangeGroup<'_>> {
    let exclusions = plan.exclusions.iter().map(|change| (ChangeSubject::OtherTools, change));
    let changes = plan
        .changes
        .iter()
        .map(|change| (ChangeSubject::for_setting(&change.setting, &plan.devices), change));
    let mut groups: Vec<ChangeGroup<'_>> = Vec::new();
    for (subject, change) in exclusions.chain(changes) {
        match groups.iter_mut().find(|group| group.subject == subject && group.has_same_reason(change)) {
            Some(group) => group.changes.push(change),
            None => {
                let new_group = ChangeGroup {
                    subject,
                    kind: ChangeKind::for_setting(&change.setting),
                    changes: vec![change],
                };
                let last_index = groups.iter().rposition(|group| group.subject == new_group.subject);
                groups.insert(last_index.map_or(groups.len(), |index| index + 1), new_group);
            }
        }
    }
    groups
}

impl ChangeSubject {
    fn for_setting(setting: &Setting, devices: &[NamedDevice]) -> Self {
        match setting.interface() {
            // Sysctls of all present and future interfaces.
            Some(name) if ["all", "default"].contains(&name.as_ref()) => return Self::NetworkStack,
            Some(name) => return Self::Interface(name.into_owned()),
            None => {}
        }
        match setting {
            // An interrupt has its interface's name only if the driver sets it.
            Setting::IrqAffinity { .. } => match devices {
                [only] => Self::Interface(only.interface.clone()),
                _ => Self::Machine,
            },
            Setting::Governor { .. } | Setting::Audit | Setting::SmtControl | Setting::UnitDropIn { .. } => {
                Self::Machine
            }
            Setting::Steering { .. } | Setting::Socket { .. } | Setting::ThreadCpus { .. } => Self::Server,
            _ => Self::NetworkStack,
        }
    }

    fn heading(&self, devices: &[NamedDevice]) -> String {
        match self {
            Self::OtherTools => "Other tools".to_owned(),
            Self::Server => "The changes".to_owned(),
            Self::NetworkStack => "Network stack".to_owned(),
            Self::Machine => "Whole machine".to_owned(),
            Self::Interface(name) => {
                let device = devices.iter().find(|device| device.interface == *name);
                match device.and_then(|device| device.device.as_ref()) {
                    Some(device) => format!("{name} ({device})"),
                    None => name.clone(),
                }
            }
        }
    }
}

impl ChangeKind {
    fn for_setting(setting: &Setting) -> Self {
        match setting {
            Setting::IrqAffinity { .. } => Self::Interrupts,
            Setting::QueueCpus { direction: QueueDirection::Receive, .. } => Self::Rps,
            Setting::QueueCpus { direction: QueueDirection::Transmit, .. } => Self::Xps,
            Setting::Steering { .. } => Self::Steering,
            Setting::ThreadCpus { .. } => Self::Threads,
            Setting::Socket { .. } => Self::Options,
            _ => Self::Other,
        }
    }

    fn is_of_server(self) -> bool {
        matches!(self, Self::Steering | Self::Threads | Self::Options)
    }
}

impl ChangeGroup<'_> {
    fn has_same_reason(&self, candidate: &PlannedChange) -> bool {
        // Each thread and socket of a server has its own reason in the same words.
        let own_reason = |change: &PlannedChange| (!self.kind.is_of_server()).then(|| change.why.clone());
        let reason = |change: &PlannedChange| {
            let claims = change.claims.clone();
            let texts = (change.effect.clone(), change.risk.clone(), change.benefit.clone());
            (own_reason(change), texts, change.interrupts, claims)
        };
        self.kind == ChangeKind::for_setting(&candidate.setting)
            && self.changes.first().is_some_and(|first| reason(first) == reason(candidate))
    }

    fn blocks(&self, full: bool) -> Vec<Block> {
        let heading = self.heading().map(|heading| Block::Paragraph(Tone::Strong, heading));
        heading.into_iter().chain([self.table(full).into(), self.facts(full).into()]).collect()
    }

    /// The common part of the rows' names.
    fn heading(&self) -> Option<String> {
        let count = self.changes.len();
        Some(match self.kind {
            ChangeKind::Interrupts => format!("CPU of {}", count_with_noun(count, "interrupt")),
            ChangeKind::Rps => format!("RPS: CPUs that process {}", count_with_noun(count, "receive queue")),
            ChangeKind::Xps => format!("XPS: CPUs that send by {}", count_with_noun(count, "transmit queue")),
            ChangeKind::Threads => format!("CPUs of {}", count_with_noun(count, "thread")),
            ChangeKind::Steering if count > 1 => {
                format!("socket selection of {}", count_with_noun(count, "group"))
            }
            ChangeKind::Options if count > 1 => count_with_noun(count, "socket option"),
            ChangeKind::Steering | ChangeKind::Options | ChangeKind::Other => return None,
        })
    }

    fn table(&self, full: bool) -> Table {
        let has_masks = full && self.changes.iter().any(|change| is_mask(&change.setting));
        let headings = if has_masks { "setting | from | to | as masks" } else { "setting | from | to" };
        let table = Table::new(headings).with_rows(self.changes.iter().map(|change| {
            let PlannedChange { setting, from, to, .. } = change;
            let mut row = vec![self.name(setting), value_text(setting, from), value_text(setting, to)];
            row.extend(has_masks.then(|| format!("{from} -> {to}")));
            row
        }));
        table.with_text_limit(ROWS, "more (--full)")
    }

    /// The setting's name without the words of the headings.
    fn name(&self, setting: &Setting) -> String {
        if let Setting::ThreadCpus { pid, tid, .. } = setting {
            return format!("thread {tid} of process {pid}");
        }
        if let Setting::QueueCpus { direction, queue, .. } = setting {
            return match direction {
                QueueDirection::Receive => format!("rx-{queue}"),
                QueueDirection::Transmit => format!("tx-{queue}"),
            };
        }
        let name = setting.to_string();
        let ChangeSubject::Interface(interface) = &self.subject else { return name };
        let short_name = name
            .strip_prefix(&format!("{interface} "))
            .or_else(|| name.strip_suffix(&format!(" of {interface}")));
        short_name.map_or_else(|| name.clone(), str::to_owned)
    }

    fn facts(&self, full: bool) -> Vec<Fact> {
        let Some(first_change) = self.changes.first() else { return Vec::new() };
        let text_of = |text_of: &Option<String>| text_of.clone().unwrap_or_default();
        let mut facts = vec![Fact::new("why", &first_change.why)];
        let differing: Vec<_> =
            self.changes.iter().skip(1).filter(|change| change.why != first_change.why).collect();
        if full {
            facts.extend(differing.iter().map(|change| Fact::new("", &change.why)));
        } else if !differing.is_empty() {
            facts.push(Fact::new("", "The others have similar reasons (--full)."));
        }
        facts.push(Fact::new("effect", text_of(&first_change.effect)));
        if !self.kind.is_of_server() {
            facts.push(Fact::new("gain", benefit_words(&first_change.benefit)));
        }
        if full {
            facts.push(Fact::new("source", text_of(&first_change.source)));
            facts.push(Fact::new("fixes", first_change.findings.join(", ")));
        }
        facts.push(Fact::new("risk", text_of(&first_change.risk)));
        facts.push(Fact::new("while", interruption_text(first_change.interrupts)));
        facts.extend(first_change.claims.iter().map(|claim| claim_fact(claim, full)));
        facts.retain(|fact| !fact.value.is_empty());
        facts.iter_mut().for_each(|fact| fact.text_lines = Some(2));
        if full {
            let command = |change: &&PlannedChange| change.setting.command(&change.to);
            let commands: Vec<String> = self.changes.iter().filter_map(command).collect();
            facts.extend((!commands.is_empty()).then(|| Fact { commands, ..Fact::new("commands", "") }));
        }
        facts
    }
}

/// Another tool that manages the setting, and how to keep that tool from changing it back.
fn claim_fact(claim: &SettingClaim, full: bool) -> Fact {
    let enforcement_text = match claim.enforcement {
        EnforcementMode::Always => "again and again",
        EnforcementMode::OnRestart => "when it is started or reloaded",
        EnforcementMode::OnLink => "when the interface appears or is taken up",
        EnforcementMode::AtBoot => "at boot",
    };
    let claim_text = claim.what.trim_end_matches('.');
    let mut text = format!("{} sets it {enforcement_text}: {claim_text} ({}).", claim.owner, claim.read_from);
    if claim.exclusion == ClaimExclusion::InPlan {
        text.push_str(" The plan keeps it from doing so.");
    }
    let commands = match &claim.exclusion {
        ClaimExclusion::ByHand { commands } if full => commands.clone(),
        ClaimExclusion::ByHand { commands } => commands.iter().take(1).cloned().collect(),
        ClaimExclusion::InPlan | ClaimExclusion::NotNeeded => Vec::new(),
    };
    Fact { commands, ..Fact::new("also", text) }
}

fn interruption_text(interrupts: ChangeImpact) -> &'static str {
    match interrupts {
        ChangeImpact::Nothing => "",
        ChangeImpact::Order => "packets of a flow may be reordered for a moment; none is lost",
        ChangeImpact::Moment => "packets may be reordered or lost for a moment",
        ChangeImpact::Link => "the link goes down for up to seconds; later changes are planned again",
    }
}

/// Changes that wait until a finding is fixed.
fn held_back_section(held_changes: &[HeldBackChanges]) -> Option<Section> {
    let mut section = Section::new("Held back");
    for HeldBackChanges { until_fixed, why, fix_first, effect, source, changes } in held_changes {
        let summary = format!("{} until {until_fixed} is fixed", count_with_noun(changes.len(), "change"));
        let table = Table::new("setting | from | to").with_rows(changes.iter().map(|change| {
            let PlannedChange { setting, from, to, .. } = change;
            [setting.to_string(), value_text(setting, from), value_text(setting, to)]
        }));
        let table = table.with_text_limit(2, "more (--full)");
        section = section.with(Block::Paragraph(Tone::Warn, summary)).with(table).with(vec![
            Fact::new("why", why),
            Fact::new("first", fix_first),
            Fact::new("effect", format!("{effect} ({source})")),
            Fact::new("or", "--anyway plans these changes, too."),
        ]);
    }
    (!held_changes.is_empty()).then_some(section)
}

/// Whether the queues of the interface are created again, so that the changes do not name their
/// CPUs.
fn is_reset(plan: &TunePlan, layout: &InterfaceLayout) -> bool {
    plan.changes.iter().any(|change| {
        change.interrupts == ChangeImpact::Link
            && change.setting.interface().as_deref() == Some(layout.interface.as_str())
    })
}

fn layout(layout: &InterfaceLayout) -> Section {
    let list = |cpus: &str| if cpus.is_empty() { "-".to_owned() } else { cpus.to_owned() };
    let table = Table::new("queue | interrupt | RPS | XPS").with_rows(layout.queues.iter().map(|queue| {
        let interrupt = queue.interrupt.map_or_else(|| "-".to_owned(), |cpu| format!("CPU {cpu}"));
        [queue.queue.to_string(), interrupt, list(&queue.receive), list(&queue.transmit)]
    }));
    Section::new(format!("CPUs of the queues of {} after the changes", layout.interface))
        .with(table.with_text_limit(ROWS, "more"))
}

/// Findings that the plan does not fix.
fn skipped_section(findings: &[SkippedFinding], full: bool) -> Option<Section> {
    let mut section = Section::new("Not fixed");
    for (index, finding) in findings.iter().enumerate() {
        let tone = severity_tone(&finding.severity);
        let title = format!("{:<8}{}", finding.severity, finding.finding);
        section = section.with(Block::Paragraph(tone, title));
        let short_fact = |name, text: &str| Fact { text_lines: Some(2), ..Fact::new(name, text) };
        let mut facts = vec![short_fact("found", &finding.title)];
        // Neighbouring findings with the same reason print it once.
        let next_finding = findings.get(index + 1);
        if !next_finding.is_some_and(|next_finding| {
            finding.why == next_finding.why && finding.commands == next_finding.commands
        }) {
            let commands = if full {
                finding.commands.clone()
            } else {
                finding.commands.iter().take(1).cloned().collect()
            };
            facts.push(Fact { commands, ..short_fact("left", &finding.why) });
        }
        section = section.with(facts);
    }
    (!findings.is_empty()).then_some(section)
}

fn severity_tone(severity: &str) -> Tone {
    match severity {
        "high" => Tone::Bad,
        "medium" => Tone::Warn,
        "note" => Tone::Faint,
        _ => Tone::Strong,
    }
}

/// Findings above note that would remain, according to a rehearsal on the host's readings.
fn rehearsal_section(planned_tune: &PlannedTune, full: bool) -> Option<Section> {
    let plan = &planned_tune.plan;
    let rehearsal = planned_tune.rehearsal.as_ref().filter(|_| !plan.changes.is_empty())?;
    let remaining = rehearsal.diagnosis.findings.iter().filter(|finding| finding.severity > Severity::Note);
    let mut facts: Vec<Fact> = remaining
        .map(|finding| {
            let is_skipped = plan.skipped.iter().any(|skipped| skipped.finding == finding.id);
            let reason = match is_skipped {
                true => "not fixed",
                false if plan.held_back.iter().any(|group| group.fixes(finding.id)) => "held back",
                false => finding.title.as_str(),
            };
            Fact {
                text_lines: Some(2),
                ..Fact::new(finding.severity.name(), format!("{}: {reason}", finding.id))
            }
        })
        .collect();
    if facts.is_empty() {
        facts.push(Fact::new("none", "nothing above note"));
    }
    let unrehearsed = &rehearsal.unrehearsed;
    if full {
        let failures = unrehearsed.iter();
        facts.extend(failures.map(|(setting, reason)| Fact::new("untried", format!("{setting}: {reason}"))));
    } else if let Some((setting, reason)) = unrehearsed.first() {
        let changes = count_with_noun(unrehearsed.len(), "change");
        facts.push(Fact::new("untried", format!("{changes} could not be rehearsed: {setting}: {reason}")));
    }
    Some(Section::new("Findings after these changes").with(facts))
}

pub(crate) fn paragraphs(heading: &str, texts: &[String]) -> Section {
    texts.iter().fold(Section::new(heading), |section, text| section.with(text.as_str()))
}

/// `eth0 rx-0/rps_cpus: none -> 0-3`.
pub(crate) fn one_line(change: &PlannedChange) -> String {
    let PlannedChange { setting, from, to, .. } = change;
    format!("{setting}: {} -> {}", value_text(setting, from), value_text(setting, to))
}

/// A value for people in one line: CPUs as a list, an empty value as `none`.
pub(crate) fn value_text(setting: &Setting, value: &SettingValue) -> String {
    let text = value.as_str();
    if is_mask(setting)
        && let Some(cpus) = cpus_of_mask(text)
    {
        return cpus;
    }
    if let (Setting::Steering { .. }, Ok(table)) = (setting, text.parse::<SteeringTable>()) {
        return steering_summary(&table, text);
    }
    let mut lines = text.lines();
    match (lines.next(), lines.count()) {
        (None | Some(""), 0) => "none".to_owned(),
        (Some(only_line), 0) => cut(only_line, LONGEST),
        (_, further_lines) => format!("{} lines", further_lines + 1),
    }
}

fn steering_summary(table: &SteeringTable, text: &str) -> String {
    if text.chars().count() <= LONGEST {
        return text.to_owned();
    }
    let sockets: BTreeSet<u64> = table.by_cpu.values().flatten().copied().collect();
    format!("by-cpu, {} CPUs to {} sockets", table.by_cpu.len(), sockets.len())
}

/// The CPUs of a mask, and of the effective mask if it is known.
fn cpus_of_mask(text: &str) -> Option<String> {
    let (mask, effective) =
        text.split_once(" at ").map_or((text, None), |(mask, effective)| (mask, Some(effective)));
    let cpus: Vec<u32> = CpuSet::from_mask(mask).ok()?.iter().collect();
    let list = if cpus.is_empty() { "none".to_owned() } else { format::cpu_list(&cpus) };
    Some(match effective {
        Some(effective) if list != effective => format!("{list} at {effective}"),
        _ => list,
    })
}

fn is_mask(setting: &Setting) -> bool {
    matches!(setting, Setting::QueueCpus { .. } | Setting::IrqAffinity { .. })
}

#[cfg(test)]
mod tests;
