//! Changes that belong together: of one kind, on one interface, for one reason.

use linerate_host::Setting;
use linerate_host::setting::QueueDirection;
use linerate_tune::claim::{ClaimAgreement, EnforcementMode, SettingClaim};
use linerate_tune::plan::{ChangeImpact, PlannedChange};
use linerate_tune::{NamedDevice, TunePlan};

use super::count_with_noun;
use super::rows::{self, SettingRow};
use crate::render::column::TextColumn;
use crate::render::style::{TextStyle, TextTone};

/// Where a change belongs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PlanSection {
    Others,
    Interface(String),
    /// With a running server.
    Server,
    /// With the network stack.
    Network,
    /// With the machine as a whole, every container and virtual machine on it included.
    Machine,
}

/// Changes of one kind, for one reason.
pub(super) struct ChangeBlock<'a> {
    pub(super) section: PlanSection,
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

/// The plan's changes in blocks, those of a section one after the other.
pub(super) fn blocks(plan: &TunePlan) -> Vec<ChangeBlock<'_>> {
    let agreements = plan.agreements.iter().map(|change| (PlanSection::Others, change));
    let changes = plan.changes.iter().map(|change| (section(&change.setting, &plan.devices), change));
    let mut blocks: Vec<ChangeBlock<'_>> = Vec::new();
    for (section, change) in agreements.chain(changes) {
        match blocks.iter_mut().find(|block| block.section == section && block.takes(change)) {
            Some(block) => block.changes.push(change),
            None => {
                let new = ChangeBlock { section, kind: kind(&change.setting), changes: vec![change] };
                let after = blocks.iter().rposition(|block| block.section == new.section);
                blocks.insert(after.map_or(blocks.len(), |place| place + 1), new);
            }
        }
    }
    blocks
}

impl PlanSection {
    pub(super) fn heading(&self, devices: &[NamedDevice]) -> String {
        match self {
            PlanSection::Others => "with others".to_owned(),
            PlanSection::Server => "what is changed".to_owned(),
            PlanSection::Network => "network stack".to_owned(),
            PlanSection::Machine => "whole machine".to_owned(),
            PlanSection::Interface(name) => {
                let device = devices.iter().find(|device| device.interface == *name);
                match device.and_then(|device| device.device.as_ref()) {
                    Some(device) => format!("{name} ({device})"),
                    None => name.clone(),
                }
            }
        }
    }
}

impl ChangeBlock<'_> {
    fn takes(&self, other: &PlannedChange) -> bool {
        // Of a server each thread and socket has a reason of its own, in the same words.
        let why = |change: &PlannedChange| (!self.kind.is_of_server()).then(|| change.why.clone());
        let reason = |change: &PlannedChange| {
            (why(change), change.effect.clone(), change.risk.clone(), change.interrupts)
        };
        let claims = |change: &PlannedChange| change.claims.clone();
        self.kind == kind(&other.setting)
            && self
                .changes
                .first()
                .is_some_and(|first| reason(first) == reason(other) && claims(first) == claims(other))
    }

    pub(super) fn lines(&self, full: bool, style: TextStyle) -> Vec<String> {
        let column = TextColumn { style, before: 4, label: 8 };
        let text = |label: &str, text: &str| {
            if full { column.labelled(label, text) } else { column.labelled_short(label, text) }
        };
        let Some(first) = self.changes.first() else { return Vec::new() };
        let mut lines = self.heading(style);
        let indent = if lines.is_empty() { 2 } else { 4 };
        lines.extend(rows::lines(&self.rows(), indent, full, style));
        lines.extend(text("why", &first.why));
        let others = self.changes.iter().skip(1).filter(|change| change.why != first.why);
        if full {
            lines.extend(others.flat_map(|change| column.labelled("", &change.why)));
        } else if others.count() > 0 {
            lines.extend(column.labelled("", "So for the others (--full)."));
        }
        lines.extend(text("effect", first.effect.as_deref().unwrap_or_default()));
        if full {
            lines.extend(column.labelled("source", first.source.as_deref().unwrap_or_default()));
            lines.extend(column.labelled("fixes", &first.findings.join(", ")));
        }
        lines.extend(text("risk", first.risk.as_deref().unwrap_or_default()));
        if let Some(words) = interrupted(first.interrupts) {
            lines.extend(
                column.labelled("while", words).into_iter().map(|line| style.paint(TextTone::Warn, &line)),
            );
        }
        lines.extend(first.claims.iter().flat_map(|claim| self::claim(claim, column, full)));
        if full {
            lines.extend(self.commands(column));
        }
        lines
    }

    /// What the rows of a table have in common.
    fn heading(&self, style: TextStyle) -> Vec<String> {
        let count = self.changes.len();
        let words = match self.kind {
            ChangeKind::Interrupts => format!("the CPU of {}", count_with_noun(count, "interrupt")),
            ChangeKind::Rps => {
                format!("RPS: the CPUs that {} hand packets to", count_with_noun(count, "receive queue"))
            }
            ChangeKind::Xps => {
                format!("XPS: the CPUs that send by {}", count_with_noun(count, "transmit queue"))
            }
            ChangeKind::Threads => format!("the CPUs of {}", count_with_noun(count, "thread")),
            ChangeKind::Steering if count > 1 => {
                format!("which socket of {} is chosen", count_with_noun(count, "group"))
            }
            ChangeKind::Options if count > 1 => count_with_noun(count, "socket option"),
            ChangeKind::Steering | ChangeKind::Options | ChangeKind::Other => return Vec::new(),
        };
        vec![format!("  {}", style.paint(TextTone::Strong, &words))]
    }

    fn rows(&self) -> Vec<SettingRow> {
        let row = |change: &&PlannedChange| {
            SettingRow::new(self.name(&change.setting), &change.setting, &change.from, &change.to)
        };
        self.changes.iter().map(row).collect()
    }

    /// The setting's name without what the headings say.
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
        let PlanSection::Interface(interface) = &self.section else { return name };
        let bare = name
            .strip_prefix(&format!("{interface} "))
            .or_else(|| name.strip_suffix(&format!(" of {interface}")));
        bare.map_or_else(|| name.clone(), str::to_owned)
    }

    fn commands(&self, column: TextColumn) -> Vec<String> {
        let command = |change: &&PlannedChange| change.setting.command(&change.to);
        self.changes.iter().filter_map(command).map(|command| column.whole_command(&command)).collect()
    }
}

/// Who else sets it, and how that is agreed.
fn claim(claim: &SettingClaim, column: TextColumn, full: bool) -> Vec<String> {
    let acts = match claim.acts {
        EnforcementMode::Always => "again and again",
        EnforcementMode::OnRestart => "when it is started or reloaded",
        EnforcementMode::OnLink => "when the interface appears or is taken up",
        EnforcementMode::AtBoot => "at boot",
    };
    let what = claim.what.trim_end_matches('.');
    let text = format!("{} sets it {acts}: {what} ({}).", claim.owner, claim.read_from);
    let mut lines = if full { column.labelled("also", &text) } else { column.labelled_short("also", &text) };
    match &claim.agreement {
        ClaimAgreement::InPlan => lines.extend(column.labelled("", "The plan tells it to leave this be.")),
        ClaimAgreement::NotNeeded => {}
        ClaimAgreement::ByHand { commands } => match commands.split_first() {
            Some(_) if full => lines.extend(commands.iter().map(|command| column.whole_command(command))),
            Some((first, rest)) => lines.push(column.command("", first, rest.len())),
            None => {}
        },
    }
    lines
}

fn interrupted(interrupts: ChangeImpact) -> Option<&'static str> {
    match interrupts {
        ChangeImpact::Nothing => None,
        ChangeImpact::Order => Some("packets of a flow may be reordered for a moment; none is lost"),
        ChangeImpact::Moment => Some("packets may be reordered or lost for a moment"),
        ChangeImpact::Link => {
            Some("the link goes down for up to seconds; what comes after it is planned anew")
        }
    }
}

fn kind(setting: &Setting) -> ChangeKind {
    match setting {
        Setting::IrqAffinity { .. } => ChangeKind::Interrupts,
        Setting::QueueCpus { direction: QueueDirection::Receive, .. } => ChangeKind::Rps,
        Setting::QueueCpus { direction: QueueDirection::Transmit, .. } => ChangeKind::Xps,
        Setting::Steering { .. } => ChangeKind::Steering,
        Setting::ThreadCpus { .. } => ChangeKind::Threads,
        Setting::Socket { .. } => ChangeKind::Options,
        _ => ChangeKind::Other,
    }
}

impl ChangeKind {
    fn is_of_server(self) -> bool {
        matches!(self, ChangeKind::Steering | ChangeKind::Threads | ChangeKind::Options)
    }
}

fn section(setting: &Setting, devices: &[NamedDevice]) -> PlanSection {
    match setting.interface() {
        // Sysctls of all interfaces, and of those to come.
        Some(name) if ["all", "default"].contains(&name.as_ref()) => return PlanSection::Network,
        Some(name) => return PlanSection::Interface(name.into_owned()),
        None => {}
    }
    match setting {
        // An interrupt bears its interface's name only where the driver gave it one.
        Setting::IrqAffinity { .. } => match devices {
            [only] => PlanSection::Interface(only.interface.clone()),
            _ => PlanSection::Machine,
        },
        Setting::Governor { .. } | Setting::Audit => PlanSection::Machine,
        Setting::Steering { .. } | Setting::Socket { .. } | Setting::ThreadCpus { .. } => PlanSection::Server,
        _ => PlanSection::Network,
    }
}
