//! Rules check the state of a packet path. Their results are findings.

use std::fmt;

use serde::{Deserialize, Serialize};
use strum::{Display, IntoStaticStr};

use crate::setting::SettingValue;
use crate::stage::HostView;
#[cfg(test)]
use crate::stage::PacketPath;
use crate::stage::irq::IrqVector;
use crate::stage::name::StageName;
use crate::{CpuSet, Setting};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[derive(Display, IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum Severity {
    /// Worth knowing, no change needed.
    Note,
    /// A few percent, or only under some loads.
    Low,
    /// Tens of percent, or packets lost at peaks.
    Medium,
    /// Limits the scaling of the service, or loses packets now.
    High,
}

/// The packets whose number determines the cost of a finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CostUnit {
    UdpDatagram,
    /// Also packets of other protocols, and forwarded packets.
    IpPacket,
    /// Packets that this interface receives or sends.
    PacketOf(String),
}

/// A known problem of a stage, the published effect of its fix, and the cases in which not to fix
/// it.
#[derive(Debug, Clone, Copy)]
pub struct Rule {
    /// `stage.name`, such as `rss.hash-without-ports`.
    pub id: &'static str,
    pub title: &'static str,
    /// The cause and its effect on packets, one paragraph.
    pub why: &'static str,
    /// The effect to expect from the fix, with figures where published.
    pub effect: &'static str,
    /// Throughput after the fix divided by throughput before it, as published.
    pub published_ratio: Option<f64>,
    pub source: &'static str,
    /// Such as `4.6 and later`.
    pub kernels: &'static str,
    /// One or two sentences.
    pub remedy: &'static str,
    /// Cases in which not to fix it.
    pub caveats: &'static str,
    pub check: fn(&HostView<'_>) -> Vec<RuleMatch>,
}

#[derive(Debug, Clone)]
pub struct RuleMatch {
    pub severity: Severity,
    /// The unit of packets that each cost a little. The finding is a note while few packets arrive.
    pub cost_per: Option<CostUnit>,
    /// A sentence with the facts of this host.
    pub title: String,
    pub evidence: Vec<Evidence>,
    /// Empty if no setting fixes it.
    pub changes: Vec<SettingChange>,
    /// Commands to run before the changes, for example to stop another tool from reverting them.
    pub first_commands: Vec<String>,
    /// Shell commands for a fix that no [`Setting`] covers.
    pub commands: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    /// With its unit.
    pub what: String,
    pub value: serde_json::Value,
    /// The file or the system call.
    pub read_from: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SettingChange {
    pub setting: Setting,
    /// `None` if it could not be read.
    pub from: Option<SettingValue>,
    pub to: SettingValue,
}

#[derive(Debug, Clone, Serialize)]
pub struct Finding {
    pub id: &'static str,
    pub stage: StageName,
    pub severity: Severity,
    /// The severity without regard to how many packets arrive. Plans follow this one, so that they
    /// are the same at every load.
    pub severity_under_load: Severity,
    pub title: String,
    pub evidence: Vec<Evidence>,
    pub effect: &'static str,
    pub published_ratio: Option<f64>,
    pub source: &'static str,
    pub kernels: &'static str,
    pub remedy: &'static str,
    pub changes: Vec<SettingChange>,
    /// Shell commands that fix it; empty while `fix_first` names another finding.
    pub commands: Vec<String>,
    /// The finding to fix first, because this fix alone would make things worse.
    pub fix_first: Option<&'static str>,
    /// When not to fix it.
    pub caveats: &'static str,
}

impl Rule {
    /// The part of the id before the dot.
    pub fn stage(&self) -> Option<StageName> {
        self.id.split_once('.').and_then(|(stage, _)| stage.parse().ok())
    }

    pub fn findings(&self, view: &HostView<'_>) -> Vec<Finding> {
        let Some(stage) = self.stage() else { return Vec::new() };
        (self.check)(view).into_iter().map(|rule_match| self.finding(stage, view, rule_match)).collect()
    }

    fn finding(&self, stage: StageName, view: &HostView<'_>, mut rule_match: RuleMatch) -> Finding {
        let severity_under_load = rule_match.severity;
        let cost_unit = rule_match.cost_per.as_ref().filter(|_| severity_under_load > Severity::Note);
        if let Some(load_evidence) = cost_unit.and_then(|unit| view.light_load(unit)) {
            rule_match.severity = Severity::Note;
            rule_match.evidence.push(load_evidence);
        }
        let setting_commands =
            rule_match.changes.iter().filter_map(|change| change.setting.command(&change.to));
        let commands = rule_match
            .first_commands
            .into_iter()
            .chain(setting_commands)
            .chain(rule_match.commands)
            .collect();
        Finding {
            id: self.id,
            stage,
            severity: rule_match.severity,
            severity_under_load,
            title: rule_match.title,
            evidence: rule_match.evidence,
            effect: self.effect,
            published_ratio: self.published_ratio,
            source: self.source,
            kernels: self.kernels,
            remedy: self.remedy,
            changes: rule_match.changes,
            commands,
            fix_first: None,
            caveats: self.caveats,
        }
    }
}

#[cfg(test)]
impl Rule {
    /// The matches on a host that was read once.
    pub(crate) fn once(&self, now: &PacketPath) -> Vec<RuleMatch> {
        (self.check)(&HostView::once(now))
    }

    /// Fails if it matches the host after one of these changes.
    pub(crate) fn assert_no_match(&self, path: &PacketPath, changes: &[fn(&mut PacketPath)]) {
        for (number, change) in changes.iter().enumerate() {
            let mut path = path.clone();
            change(&mut path);
            assert!(self.once(&path).is_empty(), "{} after change {number}", self.id);
        }
    }

    /// Severity and title of the matches.
    pub(crate) fn titles(&self, view: &HostView<'_>) -> Vec<(Severity, String)> {
        let matches = (self.check)(view).into_iter();
        matches.map(|rule_match| (rule_match.severity, rule_match.title)).collect()
    }

    /// The matches on a host that was read twice.
    pub(crate) fn twice(&self, before: &PacketPath, now: &PacketPath) -> Vec<RuleMatch> {
        (self.check)(&HostView::twice(before, now))
    }
}

impl Finding {
    pub(crate) fn is_about_loss(&self) -> bool {
        const ELSEWHERE: [&str; 2] = ["socket.memory-full", "link.allowance-exceeded"];
        self.id.ends_with("-drops") || ELSEWHERE.contains(&self.id)
    }

    // Removes commands that spread packets over more CPUs if several threads read one socket,
    // because each of these CPUs would wait for the lock of the socket.
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
            self.fix_first = Some("socket.shared-by-threads");
        }
    }
}

impl RuleMatch {
    pub fn new(severity: Severity, title: impl Into<String>) -> Self {
        Self {
            severity,
            cost_per: None,
            title: title.into(),
            evidence: Vec::new(),
            changes: Vec::new(),
            first_commands: Vec::new(),
            commands: Vec::new(),
        }
    }

    /// Sets the effect to a cost per packet.
    #[must_use]
    pub fn costs_per(mut self, unit: CostUnit) -> Self {
        self.cost_per = Some(unit);
        self
    }

    /// Sets the effect to a cost per packet of an interface.
    #[must_use]
    pub fn costs_packets_of(self, interface: &str) -> Self {
        self.costs_per(CostUnit::PacketOf(interface.to_owned()))
    }

    /// Matches with the same evidence and fix once, with the highest severity: a server with several
    /// addresses is reported once.
    pub(crate) fn joined(all: impl IntoIterator<Item = Self>) -> Vec<Self> {
        let mut matches: Vec<Self> = Vec::new();
        for rule_match in all {
            let is_same = |other: &&mut Self| {
                other.evidence == rule_match.evidence && other.commands == rule_match.commands
            };
            match matches.iter_mut().find(is_same) {
                Some(other) if other.severity < rule_match.severity => *other = rule_match,
                Some(_) => {}
                None => matches.push(rule_match),
            }
        }
        matches
    }

    pub fn evidence(
        mut self,
        label: impl Into<String>,
        value: impl Into<serde_json::Value>,
        read_from: impl Into<String>,
    ) -> Self {
        let (label, value, read_from) = (label.into(), value.into(), read_from.into());
        self.evidence.push(Evidence { what: label, value, read_from });
        self
    }

    /// Adds a value if it is known.
    pub(crate) fn evidence_if(
        self,
        label: impl Into<String>,
        value: Option<impl Into<serde_json::Value>>,
        read_from: impl Into<String>,
    ) -> Self {
        match value {
            Some(value) => self.evidence(label, value, read_from),
            None => self,
        }
    }

    /// Adds a table of values by key.
    pub fn evidence_by<K: ToString, V: Into<serde_json::Value>>(
        self,
        label: impl Into<String>,
        values: impl IntoIterator<Item = (K, V)>,
        read_from: impl Into<String>,
    ) -> Self {
        let values = values.into_iter().map(|(key, value)| (key.to_string(), value.into()));
        self.evidence(label, values.collect::<serde_json::Map<_, _>>(), read_from)
    }

    #[must_use]
    pub fn change(
        mut self,
        setting: Setting,
        from: Option<impl fmt::Display>,
        to: impl fmt::Display,
    ) -> Self {
        let (from, to) = (from.map(SettingValue::new), SettingValue::new(to));
        self.changes.push(SettingChange { setting, from, to });
        self
    }

    /// Moves the interrupt of a vector to one CPU.
    #[must_use]
    pub(crate) fn move_vector(self, vector: &IrqVector, cpu: u32) -> Self {
        let setting = Setting::IrqAffinity { irq: vector.irq, action: vector.name.clone() };
        let from = vector.affinity.value().map(CpuSet::to_mask);
        self.change(setting, from, CpuSet::from_iter([cpu]).to_mask())
    }

    #[cfg(test)]
    pub(crate) fn summary(&self) -> (Severity, &str) {
        (self.severity, &self.title)
    }

    /// Setting and new value of each change.
    #[cfg(test)]
    pub(crate) fn change_texts(&self) -> Vec<String> {
        self.changes.iter().map(|change| format!("{} {}", change.setting, change.to)).collect()
    }

    /// The commands of the changes.
    #[cfg(test)]
    pub(crate) fn change_commands(&self) -> Vec<String> {
        self.changes.iter().filter_map(|change| change.setting.command(&change.to)).collect()
    }

    #[must_use]
    pub fn command(mut self, command: impl Into<String>) -> Self {
        self.commands.push(command.into());
        self
    }
}

impl Severity {
    /// Worst first.
    pub const ALL: [Severity; 4] = [Severity::High, Severity::Medium, Severity::Low, Severity::Note];

    pub fn name(self) -> &'static str {
        self.into()
    }
}
