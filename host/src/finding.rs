//! What is wrong on a packet path: rules that look at its state, and what they find.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::Setting;
use crate::setting::SettingValue;
use crate::stage::{HostView, StageName};

/// How much a finding matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Worth knowing; nothing need be done.
    Note,
    /// A few per cent, or only under some loads.
    Low,
    /// Tens of per cent, or packets lost at peaks.
    Medium,
    /// Keeps the service from scaling, or loses packets now.
    High,
}

/// Something a stage looks for: what it is, what fixing it gave, and when not to fix it.
#[derive(Debug, Clone, Copy)]
pub struct Rule {
    /// `stage.name`, such as `rss.hash-without-ports`.
    pub id: &'static str,
    /// What is wrong, in general.
    pub title: &'static str,
    /// How it comes about and what it does to packets: a paragraph for a person.
    pub why: &'static str,
    /// The effect to expect from fixing it, with figures where there are any.
    pub effect: &'static str,
    /// By how much fixing it multiplied throughput, where somebody published it.
    pub published_ratio: Option<f64>,
    /// Where effect and mechanism are from.
    pub source: &'static str,
    /// The kernels for which that holds, such as `4.6 and later`.
    pub kernels: &'static str,
    /// How to fix it, in general: a sentence or two.
    pub remedy: &'static str,
    /// When not to fix it.
    pub caveats: &'static str,
    /// Looks for it.
    pub check: fn(&HostView<'_>) -> Vec<RuleMatch>,
}

/// One place where a rule found something.
#[derive(Debug, Clone)]
pub struct RuleMatch {
    /// How much it matters here.
    pub severity: Severity,
    /// What is wrong here: a sentence with the facts in it.
    pub title: String,
    /// The very values that say so.
    pub evidence: Vec<Evidence>,
    /// The settings that would fix it; empty where no setting does.
    pub changes: Vec<SettingChange>,
    /// Commands that have to come before the changes, such as those that have somebody else not take them back.
    pub first: Vec<String>,
    /// Commands that fix what no [`Setting`] covers, as a person would type them.
    pub commands: Vec<String>,
}

/// A value and where it was read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    /// What the value is, with its unit.
    pub what: String,
    /// The value as it was read.
    pub value: serde_json::Value,
    /// The file, or the call to the kernel.
    pub read_from: String,
}

/// A knob to turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SettingChange {
    /// Which one.
    pub setting: Setting,
    /// What it is set to; none where it could not be read.
    pub from: Option<SettingValue>,
    /// What to set it to.
    pub to: SettingValue,
}

/// A rule's sighting with all that a reader needs.
#[derive(Debug, Clone, Serialize)]
pub struct Finding {
    /// `stage.name`.
    pub id: &'static str,
    /// The stage.
    pub stage: StageName,
    /// How much it matters here.
    pub severity: Severity,
    /// A sentence with the facts in it.
    pub title: String,
    /// The very values that say so.
    pub evidence: Vec<Evidence>,
    /// The effect to expect from fixing it.
    pub effect: &'static str,
    /// By how much fixing it multiplied throughput, where somebody published it.
    pub published_ratio: Option<f64>,
    /// Where that is from.
    pub source: &'static str,
    /// The kernels for which that holds.
    pub kernels: &'static str,
    /// How to fix it, in a sentence or two.
    pub remedy: &'static str,
    /// The settings that would fix it.
    pub changes: Vec<SettingChange>,
    /// What a person would type to fix it; empty while `first` names something.
    pub commands: Vec<String>,
    /// The finding to fix first, because this fix alone would make things worse.
    pub first: Option<&'static str>,
    /// When not to fix it.
    pub caveats: &'static str,
}

impl Rule {
    /// The stage it belongs to: the part of its id before the dot.
    #[must_use]
    pub fn stage(&self) -> Option<StageName> {
        self.id.split_once('.').and_then(|(stage, _)| StageName::from_name(stage))
    }

    /// All it finds.
    #[must_use]
    pub fn findings(&self, view: &HostView<'_>) -> Vec<Finding> {
        let Some(stage) = self.stage() else { return Vec::new() };
        (self.check)(view).into_iter().map(|sighting| self.finding(stage, sighting)).collect()
    }

    fn finding(&self, stage: StageName, sighting: RuleMatch) -> Finding {
        let typed = sighting.changes.iter().filter_map(|change| change.setting.command(&change.to));
        let commands = sighting.first.into_iter().chain(typed).chain(sighting.commands).collect();
        Finding {
            id: self.id,
            stage,
            severity: sighting.severity,
            title: sighting.title,
            evidence: sighting.evidence,
            effect: self.effect,
            published_ratio: self.published_ratio,
            source: self.source,
            kernels: self.kernels,
            remedy: self.remedy,
            changes: sighting.changes,
            commands,
            first: None,
            caveats: self.caveats,
        }
    }
}

impl Finding {
    /// Whether it is about packets that were lost.
    pub(crate) fn is_about_loss(&self) -> bool {
        const ELSEWHERE: [&str; 2] = ["socket.memory-full", "link.allowance-exceeded"];
        self.id.ends_with("-drops") || ELSEWHERE.contains(&self.id)
    }

    /// Takes away commands that spread packets over more CPUs, where several threads read one
    /// socket: each of these CPUs would wait for its lock.
    pub(crate) fn hold_back(&mut self) {
        let spreads = |change: &SettingChange| {
            change.setting.spreads_packets()
                || matches!(
                    change.setting,
                    Setting::IrqAffinity { .. }
                        | Setting::QueueCpus { direction: crate::setting::QueueDirection::Receive, .. }
                )
        };
        if self.changes.iter().any(spreads) {
            self.commands.clear();
            self.first = Some("socket.shared-by-threads");
        }
    }
}

impl RuleMatch {
    /// A sighting without evidence yet.
    pub fn new(severity: Severity, title: impl Into<String>) -> Self {
        let title = title.into();
        let (first, commands) = (Vec::new(), Vec::new());
        Self { severity, title, evidence: Vec::new(), changes: Vec::new(), first, commands }
    }

    /// Adds a value and where it was read.
    #[must_use]
    pub fn evidence(
        mut self,
        what: impl Into<String>,
        value: impl Into<serde_json::Value>,
        read_from: impl Into<String>,
    ) -> Self {
        let (what, value, read_from) = (what.into(), value.into(), read_from.into());
        self.evidence.push(Evidence { what, value, read_from });
        self
    }

    /// Adds a knob to turn.
    #[must_use]
    pub fn change(mut self, setting: Setting, from: Option<SettingValue>, to: SettingValue) -> Self {
        self.changes.push(SettingChange { setting, from, to });
        self
    }

    /// Adds a command for what no setting covers.
    #[must_use]
    pub fn command(mut self, command: impl Into<String>) -> Self {
        self.commands.push(command.into());
        self
    }
}

impl Severity {
    /// All of them, worst first.
    pub const ALL: [Severity; 4] = [Severity::High, Severity::Medium, Severity::Low, Severity::Note];

    /// Its name, as in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Severity::Note => "note",
            Severity::Low => "low",
            Severity::Medium => "medium",
            Severity::High => "high",
        }
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
