//! Collects the changes of a plan, one per setting, and the findings that it does not fix.

use linerate_host::finding::{Finding, Severity};
use linerate_host::{Host, Setting, SettingError, SettingValue, diagnosis};

use super::{PlannedChange, SkippedFinding, TargetSetting};

pub(super) struct PlanDraft<'a> {
    host: &'a Host,
    pub(super) changes: Vec<PlannedChange>,
    /// Changes that have to wait for the precondition.
    pub(super) held: Vec<PlannedChange>,
    pub(super) skipped: Vec<SkippedFinding>,
    /// Settings that have the wanted value already.
    pub(super) target: Vec<TargetSetting>,
    /// The finding to fix before packets are spread over more CPUs.
    pub(super) precondition: Option<&'a Finding>,
    /// Whether a UDP service is busy, or was named.
    pub(super) has_service: bool,
}

#[derive(Debug, Clone, Default)]
pub(super) struct DraftReason {
    pub(super) why: String,
    pub(super) findings: Vec<String>,
    pub(super) effect: Option<String>,
    pub(super) source: Option<String>,
    pub(super) risk: Option<String>,
}

pub(super) enum AddedChange {
    /// The change is planned, or held back.
    Planned,
    /// The setting has this value already.
    Already,
    /// The current value cannot be read, so that it could not be restored.
    Unread(SettingError),
    /// The setting cannot be changed on this host, for this reason.
    Fixed(&'static str),
}

impl DraftReason {
    /// The reason from findings: the first finding has the cause and the expected effect.
    pub(super) fn of(findings: &[&Finding]) -> Self {
        let first = findings.first();
        let rule = first.and_then(|finding| diagnosis::rule(finding.id));
        let mut ids: Vec<String> = findings.iter().map(|finding| finding.id.to_owned()).collect();
        ids.dedup();
        Self {
            why: first.map_or_else(String::new, |finding| format!("{}.", finding.title)),
            findings: ids,
            effect: rule.map(|rule| rule.effect.to_owned()),
            source: rule.map(|rule| rule.source.to_owned()),
            risk: rule.map(|rule| format!("Not where this holds: {}", rule.caveats)),
        }
    }

    /// Adds a sentence to the reason.
    pub(super) fn with_sentence(mut self, sentence: &str) -> Self {
        if !self.why.is_empty() {
            self.why.push(' ');
        }
        self.why.push_str(sentence);
        self
    }
}

impl<'a> PlanDraft<'a> {
    pub(super) fn new(host: &'a Host, precondition: Option<&'a Finding>, has_service: bool) -> Self {
        let (changes, held, skipped, target) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self { host, changes, held, skipped, target, precondition, has_service }
    }

    /// Records that a setting has the wanted value.
    pub(super) fn add_target(&mut self, setting: &Setting, value: SettingValue) {
        if !self.target.iter().any(|known| known.setting == *setting) {
            self.target.push(TargetSetting { setting: setting.clone(), value });
        }
    }

    /// The value of a setting: the planned value, or else the value on the host.
    pub(super) fn read(&self, setting: &Setting) -> Result<SettingValue, String> {
        match self.changes.iter().find(|planned| planned.setting == *setting) {
            Some(planned) => Ok(planned.to.clone()),
            None => setting.read(self.host).map_err(|error| error.reason()),
        }
    }

    /// Adds a change. If a change of the setting is planned already, only adds the findings that it
    /// also fixes. The current value comes from the host. If the host is a capture without the
    /// value, `known_value` is used, the value from the finding.
    pub(super) fn add(
        &mut self,
        is_held_back: bool,
        setting: &Setting,
        known_value: Option<&SettingValue>,
        to: &SettingValue,
        reason: &DraftReason,
    ) -> AddedChange {
        if let Some(planned) = self.list(is_held_back).iter_mut().find(|planned| planned.setting == *setting)
        {
            let new = reason.findings.iter().filter(|id| !planned.findings.contains(id));
            let new: Vec<String> = new.cloned().collect();
            planned.findings.extend(new);
            return AddedChange::Planned;
        }
        let from = match (setting.read(self.host), known_value) {
            (Ok(from), _) => from,
            (Err(error), Some(known_value)) if !error.is_unsupported() && !error.is_denied() => {
                known_value.clone()
            }
            (Err(error), _) => return AddedChange::Unread(error),
        };
        if setting.same(&from, to) {
            if !is_held_back {
                self.add_target(setting, from);
            }
            return AddedChange::Already;
        }
        if let Some(why) = setting.fixed_reason(self.host) {
            return AddedChange::Fixed(why);
        }
        self.list(is_held_back).push(PlannedChange {
            findings: reason.findings.clone(),
            effect: reason.effect.clone(),
            source: reason.source.clone(),
            risk: reason.risk.clone(),
            ..PlannedChange::new(setting.clone(), from, to.clone(), &reason.why)
        });
        AddedChange::Planned
    }

    /// The planned changes, or with `is_held_back` the changes that are held back.
    fn list(&mut self, is_held_back: bool) -> &mut Vec<PlannedChange> {
        if is_held_back { &mut self.held } else { &mut self.changes }
    }

    /// Records that a finding is not fixed. Omits findings that are only notes.
    pub(super) fn skip_finding(
        &mut self,
        finding: &Finding,
        reason: impl Into<String>,
        commands: Vec<String>,
    ) {
        let is_known =
            |skipped: &SkippedFinding| skipped.finding == finding.id && skipped.title == finding.title;
        if finding.severity_under_load > Severity::Note && !self.skipped.iter().any(is_known) {
            self.skipped.push(SkippedFinding {
                finding: finding.id.to_owned(),
                severity: finding.severity_under_load.name().to_owned(),
                title: finding.title.clone(),
                why: reason.into(),
                commands,
            });
        }
    }
}

/// The order in which changes are made: first changes that reset the interface, because they
/// replace queues and vectors; then the CPUs of queues, beginning with the interrupts; the
/// distribution of packets to queues; the rest of the interface; the network stack; the machine;
/// servers.
pub(super) fn rank(setting: &Setting) -> u8 {
    use linerate_host::setting::QueueDirection::{Receive, Transmit};
    match setting {
        Setting::Channels { .. } | Setting::VirtualFunctions { .. } => 0,
        Setting::Rings { .. } => 1,
        Setting::IrqAffinity { .. } => 2,
        Setting::QueueCpus { direction: Receive, .. } => 3,
        Setting::QueueCpus { direction: Transmit, .. } => 4,
        Setting::FlowHash { .. } => 5,
        Setting::RssTable { .. } => 6,
        Setting::Sysctl(_) => 8,
        Setting::NftTable { .. } => 9,
        Setting::Governor { .. } | Setting::Audit | Setting::SmtControl => 10,
        Setting::Steering { .. }
        | Setting::Socket { .. }
        | Setting::ThreadCpus { .. }
        | Setting::UnitDropIn { .. } => 11,
        // Features of interfaces.
        _ => 7,
    }
}
