//! Changes that belong together: of one kind, on one interface, for one reason.

use linerate_host::Setting;
use linerate_host::setting::QueueDirection;
use linerate_tune::claim::{Acts, Agreement, Claim};
use linerate_tune::plan::{Interrupts, PlannedChange};
use linerate_tune::{Device, Plan};

use super::counted;
use super::rows::{self, Row};
use crate::render::column::Column;
use crate::render::style::{Style, Tone};

/// Where a change belongs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Section {
    /// With another program.
    Others,
    /// With an interface.
    Interface(String),
    /// With a running server.
    Server,
    /// With the network stack.
    Network,
    /// With the machine as a whole, every container and virtual machine on it included.
    Machine,
}

/// Changes of one kind, for one reason.
pub(super) struct Block<'a> {
    pub(super) section: Section,
    kind: Kind,
    changes: Vec<&'a PlannedChange>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Interrupts,
    Rps,
    Xps,
    Steering,
    Threads,
    Options,
    Other,
}

/// The plan's changes in blocks, those of a section one after the other.
pub(super) fn blocks(plan: &Plan) -> Vec<Block<'_>> {
    let agreements = plan.agreements.iter().map(|change| (Section::Others, change));
    let changes = plan.changes.iter().map(|change| (section(&change.setting, &plan.devices), change));
    let mut blocks: Vec<Block<'_>> = Vec::new();
    for (section, change) in agreements.chain(changes) {
        match blocks.iter_mut().find(|block| block.section == section && block.takes(change)) {
            Some(block) => block.changes.push(change),
            None => {
                let new = Block { section, kind: kind(&change.setting), changes: vec![change] };
                let after = blocks.iter().rposition(|block| block.section == new.section);
                blocks.insert(after.map_or(blocks.len(), |place| place + 1), new);
            }
        }
    }
    blocks
}

impl Section {
    pub(super) fn heading(&self, devices: &[Device]) -> String {
        match self {
            Section::Others => "with others".to_owned(),
            Section::Server => "what is changed".to_owned(),
            Section::Network => "network stack".to_owned(),
            Section::Machine => "whole machine".to_owned(),
            Section::Interface(name) => {
                let device = devices.iter().find(|device| device.interface == *name);
                match device.and_then(|device| device.device.as_ref()) {
                    Some(device) => format!("{name} ({device})"),
                    None => name.clone(),
                }
            }
        }
    }
}

impl Block<'_> {
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

    pub(super) fn lines(&self, full: bool, style: Style) -> Vec<String> {
        let column = Column { style, before: 4, label: 8 };
        let text = |label: &str, text: &str| {
            if full { column.labelled(label, text) } else { column.short(label, text) }
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
                column.labelled("while", words).into_iter().map(|line| style.paint(Tone::Warn, &line)),
            );
        }
        lines.extend(first.claims.iter().flat_map(|claim| self::claim(claim, column, full)));
        if full {
            lines.extend(self.commands(column));
        }
        lines
    }

    /// What the rows of a table have in common.
    fn heading(&self, style: Style) -> Vec<String> {
        let count = self.changes.len();
        let words = match self.kind {
            Kind::Interrupts => format!("the CPU of {}", counted(count, "interrupt")),
            Kind::Rps => format!("RPS: the CPUs that {} hand packets to", counted(count, "receive queue")),
            Kind::Xps => format!("XPS: the CPUs that send by {}", counted(count, "transmit queue")),
            Kind::Threads => format!("the CPUs of {}", counted(count, "thread")),
            Kind::Steering if count > 1 => format!("which socket of {} is chosen", counted(count, "group")),
            Kind::Options if count > 1 => counted(count, "socket option"),
            Kind::Steering | Kind::Options | Kind::Other => return Vec::new(),
        };
        vec![format!("  {}", style.paint(Tone::Strong, &words))]
    }

    fn rows(&self) -> Vec<Row> {
        let row = |change: &&PlannedChange| {
            Row::new(self.name(&change.setting), &change.setting, &change.from, &change.to)
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
        let Section::Interface(interface) = &self.section else { return name };
        let bare = name
            .strip_prefix(&format!("{interface} "))
            .or_else(|| name.strip_suffix(&format!(" of {interface}")));
        bare.map_or_else(|| name.clone(), str::to_owned)
    }

    fn commands(&self, column: Column) -> Vec<String> {
        let command = |change: &&PlannedChange| change.setting.command(&change.to);
        self.changes.iter().filter_map(command).map(|command| column.whole_command(&command)).collect()
    }
}

/// Who else sets it, and how that is agreed.
fn claim(claim: &Claim, column: Column, full: bool) -> Vec<String> {
    let acts = match claim.acts {
        Acts::Always => "again and again",
        Acts::OnRestart => "when it is started or reloaded",
        Acts::OnLink => "when the interface appears or is taken up",
        Acts::AtBoot => "at boot",
    };
    let what = claim.what.trim_end_matches('.');
    let text = format!("{} sets it {acts}: {what} ({}).", claim.owner, claim.read_from);
    let mut lines = if full { column.labelled("also", &text) } else { column.short("also", &text) };
    match &claim.agreement {
        Agreement::InPlan => lines.extend(column.labelled("", "The plan tells it to leave this be.")),
        Agreement::NotNeeded => {}
        Agreement::ByHand { commands } => match commands.split_first() {
            Some(_) if full => lines.extend(commands.iter().map(|command| column.whole_command(command))),
            Some((first, rest)) => lines.push(column.command("", first, rest.len())),
            None => {}
        },
    }
    lines
}

fn interrupted(interrupts: Interrupts) -> Option<&'static str> {
    match interrupts {
        Interrupts::Nothing => None,
        Interrupts::Order => Some("packets of a flow may be reordered for a moment; none is lost"),
        Interrupts::Moment => Some("packets may be reordered or lost for a moment"),
        Interrupts::Link => Some("the link goes down for up to seconds; what comes after it is planned anew"),
    }
}

fn kind(setting: &Setting) -> Kind {
    match setting {
        Setting::IrqAffinity { .. } => Kind::Interrupts,
        Setting::QueueCpus { direction: QueueDirection::Receive, .. } => Kind::Rps,
        Setting::QueueCpus { direction: QueueDirection::Transmit, .. } => Kind::Xps,
        Setting::Steering { .. } => Kind::Steering,
        Setting::ThreadCpus { .. } => Kind::Threads,
        Setting::Socket { .. } => Kind::Options,
        _ => Kind::Other,
    }
}

impl Kind {
    fn is_of_server(self) -> bool {
        matches!(self, Kind::Steering | Kind::Threads | Kind::Options)
    }
}

fn section(setting: &Setting, devices: &[Device]) -> Section {
    match setting.interface() {
        // Sysctls of all interfaces, and of those to come.
        Some(name) if ["all", "default"].contains(&name.as_ref()) => return Section::Network,
        Some(name) => return Section::Interface(name.into_owned()),
        None => {}
    }
    match setting {
        // An interrupt bears its interface's name only where the driver gave it one.
        Setting::IrqAffinity { .. } => match devices {
            [only] => Section::Interface(only.interface.clone()),
            _ => Section::Machine,
        },
        Setting::Governor { .. } | Setting::Audit => Section::Machine,
        Setting::Steering { .. } | Setting::Socket { .. } | Setting::ThreadCpus { .. } => Section::Server,
        _ => Section::Network,
    }
}
