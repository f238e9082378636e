//! Makes a plan from findings.

use std::borrow::Cow;
use std::collections::BTreeSet;

use linerate_host::finding::{Finding, Severity};
use linerate_host::setting::QueueDirection;
use linerate_host::stage::HostView;
use linerate_host::stage::spread::{PacketSpread, RpsTarget};
use linerate_host::{CpuSet, Diagnosis, Host, PacketPath, Setting, diagnosis};

use super::draft::{AddedChange, DraftReason, PlanDraft, rank};
use super::{TunePlan, precondition, predict, threads, values};
use crate::NamedDevice;
use crate::layout::{self, PlacementOwner};
use crate::profile::{FindingPolicy, TuneProfile};

/// The plan that tunes a host for the goal of a profile. `host` is the observed host, or a capture
/// of it: the values of settings and the devices of interfaces are read from it. Nothing is
/// changed.
///
/// A change of channels resets the interface, so settings of its queues are planned for the new
/// queues, which the layout shows.
pub fn make(host: &Host, view: &HostView<'_>, diagnosis: &Diagnosis, profile: &TuneProfile) -> TunePlan {
    let path = view.now;
    let precondition = precondition::unmet(view, diagnosis, profile);
    let mut maker = PlanMaker {
        draft: PlanDraft::new(host, precondition, view.has_busy_udp_service()),
        placement_findings: Vec::new(),
        view,
        profile,
    };
    let findings = diagnosis.findings_under_load(view);
    for finding in findings.iter().copied() {
        maker.add_finding(finding);
    }
    values::add(&mut maker.draft, path, profile);
    let expected_path = maker.add_consequences(diagnosis);
    let spreads = maker.place_packets(&expected_path);
    let cpus = layout::cpus(&expected_path, &spreads, &profile.cpus);
    maker.skip_remaining(&spreads);
    let mut draft = maker.draft;
    let is_for_person = |finding: &&Finding| matches!(profile.verdict(finding.id), FindingPolicy::Ask(_));
    let is_about_threads =
        |finding: &&Finding| finding.id.starts_with("thread.") && draft.precondition.is_none();
    for finding in findings.iter().copied().filter(is_for_person).filter(is_about_threads) {
        threads::set_commands(&mut draft.skipped, view, finding, &cpus);
    }
    for changes in [&mut draft.changes, &mut draft.held] {
        changes.sort_by_key(|change| rank(&change.setting));
    }
    let severity = |name: &str| Severity::ALL.iter().position(|severity| severity.name() == name);
    draft.skipped.sort_by_key(|skipped| severity(&skipped.severity));
    let devices = devices(host, path, &draft);
    draft.target.retain(|target| draft.changes.iter().all(|change| change.setting != target.setting));
    let held_changes = std::mem::take(&mut draft.held);
    let held_back = draft.precondition.map(|finding| precondition::held_back(finding, held_changes));
    TunePlan {
        devices,
        cpus,
        layouts: spreads.iter().map(|spread| layout::interface_layout(spread, &profile.cpus)).collect(),
        changes: draft.changes,
        target: draft.target,
        held_back: held_back.into_iter().filter(|held_back| !held_back.changes.is_empty()).collect(),
        skipped: draft.skipped,
        ..TunePlan::new(&profile.name)
    }
}

/// A plan in the making.
struct PlanMaker<'a> {
    draft: PlanDraft<'a>,
    /// Findings that placing packets on CPUs may fix.
    placement_findings: Vec<Finding>,
    view: &'a HostView<'a>,
    profile: &'a TuneProfile,
}

impl PlanMaker<'_> {
    /// Adds the changes of a finding that the profile fixes, and leaves other findings. Changes
    /// that place packets on CPUs are left to the layout, and so are findings that a good layout
    /// fixes although they name no change.
    fn add_finding(&mut self, finding: &Finding) {
        if let Some((skip_reason, commands)) = self.skip_reason(finding) {
            return self.draft.skip_finding(finding, skip_reason, commands.to_vec());
        }
        if places_packets(finding) || finding.changes.is_empty() && is_fixed_by_layout(finding.id) {
            self.placement_findings.push(finding.clone());
        } else if finding.changes.is_empty() {
            let skip_reason = match finding.commands.is_empty() {
                true => format!("No setting fixes it. {}", finding.remedy),
                false => "No setting that linerate can restore fixes it; these commands do.".to_owned(),
            };
            return self.draft.skip_finding(finding, skip_reason, finding.commands.clone());
        }
        let reason = DraftReason::of(&[finding]);
        let mut fixed_reason = None;
        let mut commands = Vec::new();
        // A layout covers only queues with interrupts, but RPS of other queues can send all packets
        // to one CPU, too.
        let is_added_here =
            |setting: &Setting| PlacementOwner::of(setting).is_none() || finding.id == "softirq.skew";
        for change in finding.changes.iter().filter(|change| is_added_here(&change.setting)) {
            let is_held_back = self.draft.precondition.is_some()
                && (change.setting.spreads_packets() || PlacementOwner::of(&change.setting).is_some());
            match self.draft.add(is_held_back, &change.setting, change.from.as_ref(), &change.to, &reason) {
                AddedChange::Unread(error) => {
                    let skip_reason =
                        format!("Its present value cannot be read, so undo could not restore it: {error}.");
                    self.draft.skip_finding(finding, skip_reason, finding.commands.clone());
                }
                AddedChange::Fixed(skip_reason) => {
                    fixed_reason = Some(format!("{}: {skip_reason}.", change.setting));
                    commands.extend(change.setting.command(&change.to));
                }
                AddedChange::Planned | AddedChange::Already => {}
            }
        }
        if let Some(skip_reason) = fixed_reason {
            self.draft.skip_finding(finding, skip_reason, commands);
        }
        if FOR_NEW_SOCKETS.contains(&finding.id) {
            self.draft.skip_finding(
                finding,
                "The new value applies to sockets that are opened afterwards: restart the server.",
                Vec::new(),
            );
        }
    }

    /// Why the profile leaves a finding, and the commands for a person; `None` if it is to be fixed.
    fn skip_reason<'f>(&self, finding: &'f Finding) -> Option<(String, &'f [String])> {
        // Findings that are only notes are left if there is no UDP service that a fix could help.
        let least_severity = match self.profile.needs_udp_service && !self.draft.has_service {
            true => Severity::Low,
            false => Severity::Note,
        };
        let name = &self.profile.name;
        let with_commands = |reason| Some((reason, finding.commands.as_slice()));
        match self.profile.verdict(finding.id) {
            FindingPolicy::Fix(from) if finding.severity_under_load >= least_severity.max(*from) => None,
            FindingPolicy::Fix(from) => {
                with_commands(format!("{name} fixes it from the severity {from} on."))
            }
            FindingPolicy::Ask(_)
                if self.draft.precondition.is_some() && finding.id.starts_with("thread.") =>
            {
                let reason =
                    "A CPU per thread helps where each thread has a socket of its own: that comes first.";
                Some((reason.to_owned(), &[]))
            }
            FindingPolicy::Ask(reason) => with_commands(reason.clone()),
            FindingPolicy::Leave(reason) => Some((reason.clone(), &[])),
            FindingPolicy::Unnamed => with_commands(format!("{name} does not mention it.")),
        }
    }

    /// The host after the changes so far.
    fn expected_path(&self) -> PacketPath {
        let changes = self.draft.changes.iter().map(|change| (&change.setting, &change.to));
        predict::after(self.view.now, changes)
    }

    fn findings_of(&self, path: &PacketPath) -> Vec<Finding> {
        diagnosis::findings(&HostView { now: path, before: self.view.before })
    }

    fn holds_back(&self, spread: &PacketSpread, expected_path: &PacketPath) -> bool {
        self.draft.precondition.is_some() && spread.uses_more_cpus(expected_path)
    }

    /// The expected host after all changes except those that place packets. Findings that these
    /// changes reveal are taken up, too: a table that names one queue hides that the hash lacks
    /// ports.
    fn add_consequences(&mut self, diagnosis: &Diagnosis) -> PacketPath {
        loop {
            let count = self.draft.changes.len();
            let expected_path = self.expected_path();
            let expected_findings = self.findings_of(&expected_path);
            let is_known = |id: &str| diagnosis.findings.iter().any(|finding| finding.id == id);
            let planned: Vec<Setting> = self
                .draft
                .changes
                .iter()
                .chain(&self.draft.held)
                .map(|change| change.setting.clone())
                .collect();
            let has_new_changes =
                |finding: &Finding| finding.changes.iter().any(|change| !planned.contains(&change.setting));
            let is_revealed = |finding: &&Finding| {
                !places_packets(finding) && (!is_known(finding.id) || has_new_changes(finding))
            };
            let known_count = self.placement_findings.len();
            for finding in expected_findings.iter().filter(is_revealed) {
                self.add_finding(finding);
            }
            // A revealed finding that names no change does not require a layout.
            self.placement_findings.truncate(known_count);
            // Every round except the last adds a change, and the number of changes is limited.
            if self.draft.changes.len() == count {
                self.add_placement_findings(&expected_findings);
                return expected_path;
            }
        }
    }

    /// Takes up the findings about placement that changes reveal: if interrupts go to other CPUs,
    /// XPS has to follow.
    fn add_placement_findings(&mut self, expected_findings: &[Finding]) {
        for finding in expected_findings.iter().filter(|finding| places_packets(finding)) {
            let is_known = |known: &Finding| known.id == finding.id && known.title == finding.title;
            if !self.placement_findings.iter().any(is_known) {
                self.add_finding(finding);
            }
        }
    }

    /// Adds the changes that place packets on CPUs, if a finding requires them, and returns the
    /// resulting placement. Changes for queues that will be replaced wait for the next plan, but
    /// the placement of these queues is returned already.
    fn place_packets(&mut self, expected_path: &PacketPath) -> Vec<PacketSpread> {
        let settings: Vec<_> = self.draft.changes.iter().map(|change| change.setting.clone()).collect();
        let reshaped = predict::reshaped(settings.iter());
        let keeps_queues = |spread: &&PacketSpread| !reshaped.contains(spread.interface.as_str());
        let mut policy = self.profile.cpus.policy.clone();
        let best_spreads = PacketSpread::of(expected_path, &policy).unwrap_or_default();
        let mut waiting_interfaces = BTreeSet::new();
        for spread in best_spreads.iter().filter(keeps_queues) {
            let is_held_back = self.holds_back(spread, expected_path);
            if is_held_back {
                for owner in [PlacementOwner::Interrupts, PlacementOwner::Receive] {
                    self.add_placements(expected_path, spread, owner, true);
                }
                waiting_interfaces.insert(spread.interface.clone());
            }
            // Correct interrupts stay, and RPS and XPS are made to fit them.
            let owner = PlacementOwner::Interrupts;
            let findings = fixed_findings(expected_path, spread, owner, &self.placement_findings);
            if is_held_back || requiring_finding(&findings).is_none() {
                policy.stays.insert(spread.interface.clone());
            }
        }
        let mut spreads = PacketSpread::of(expected_path, &policy).unwrap_or_default();
        let is_moved =
            |spread: &&PacketSpread| keeps_queues(spread) && !policy.stays.contains(&spread.interface);
        for spread in spreads.iter().filter(is_moved) {
            let is_held_back = self.holds_back(spread, expected_path);
            self.add_placements(expected_path, spread, PlacementOwner::Interrupts, is_held_back);
        }
        let findings = self.findings_of(&self.expected_path());
        self.add_placement_findings(&findings);
        for spread in spreads.iter_mut().filter(|spread| keeps_queues(&&**spread)) {
            let is_held_back = self.holds_back(spread, expected_path);
            // A placement that waits is reported once, in its final form.
            let requires_rps = !waiting_interfaces.contains(&spread.interface)
                && self.add_placements(expected_path, spread, PlacementOwner::Receive, is_held_back);
            let sets_rps = requires_rps && !is_held_back;
            if !sets_rps {
                let direction = QueueDirection::Receive;
                spread.receive = layout::current_cpus(expected_path, &spread.interface, direction);
            }
            let sets_xps = self.add_placements(expected_path, spread, PlacementOwner::Transmit, false);
            if !sets_xps {
                let direction = QueueDirection::Transmit;
                spread.transmit = layout::current_cpus(expected_path, &spread.interface, direction);
            }
            let changed = [!policy.stays.contains(&spread.interface), sets_rps, sets_xps];
            if changed.contains(&true) {
                self.keep_other_settings(expected_path, spread, changed);
            }
        }
        spreads
    }

    /// If a part of an interface's layout changes, the other parts belong to the target, too,
    /// because interrupts, RPS and XPS fit each other.
    fn keep_other_settings(&mut self, path: &PacketPath, spread: &PacketSpread, changed: [bool; 3]) {
        let owners = [PlacementOwner::Interrupts, PlacementOwner::Receive, PlacementOwner::Transmit];
        for (owner, _) in owners.into_iter().zip(changed).filter(|(_, changed)| !changed) {
            let placements = match owner {
                PlacementOwner::Interrupts => layout::current_interrupts(path, spread),
                _ => layout::placements(path, spread, owner, &self.profile.cpus),
            };
            for placement in placements {
                self.draft.add_target(&placement.setting, placement.to);
            }
        }
    }

    /// Adds the changes of one kind that place an interface's packets, if a finding requires them.
    /// Returns whether a finding does. With `is_held_back` the changes are held back.
    fn add_placements(
        &mut self,
        path: &PacketPath,
        spread: &PacketSpread,
        owner: PlacementOwner,
        is_held_back: bool,
    ) -> bool {
        let findings = fixed_findings(path, spread, owner, &self.placement_findings);
        let Some(first_finding) = requiring_finding(&findings) else { return false };
        let placements = layout::placements(path, spread, owner, &self.profile.cpus);
        let reason = placement_reason(spread, owner, &findings);
        for placement in placements {
            let result = self.draft.add(
                is_held_back,
                &placement.setting,
                placement.from.as_ref(),
                &placement.to,
                &reason,
            );
            if let AddedChange::Unread(error) = result {
                self.draft.skip_finding(
                    first_finding,
                    format!("What is set cannot be read: {error}."),
                    Vec::new(),
                );
            }
        }
        true
    }

    /// Leaves the findings about placement that remain after all changes, because the kernel manages
    /// interrupts or the profile keeps packets from CPUs.
    fn skip_remaining(&mut self, spreads: &[PacketSpread]) {
        let is_held =
            |id: &str| self.draft.held.iter().flat_map(|change| &change.findings).any(|held| held == id);
        // Queues that a link reset replaces are planned afterwards, with other findings.
        let reshaped = predict::reshaped(self.draft.changes.iter().map(|change| &change.setting));
        let is_planned_later =
            |finding: &Finding| reshaped.iter().any(|name| names_interface(&finding.title, name));
        let placement_findings: Vec<&Finding> = self
            .placement_findings
            .iter()
            .filter(|finding| !is_held(finding.id) && !is_planned_later(finding))
            .collect();
        let findings_after = self.findings_of(&self.expected_path());
        let is_remaining = |finding: &&Finding| {
            findings_after
                .iter()
                .any(|other| other.id == finding.id && other.severity_under_load > Severity::Note)
        };
        for finding in placement_findings.into_iter().filter(is_remaining) {
            let managed_spread = spreads
                .iter()
                .find(|spread| spread.managed && names_interface(&finding.title, &spread.interface));
            let skip_reason = match managed_spread {
                Some(spread) => format!(
                    "The kernel manages where {}'s interrupts go, and allows no change.",
                    spread.interface
                ),
                None if self.profile.cpus.policy.handing == RpsTarget::None => {
                    format!("It remains with the CPUs that {} gives packets, without RPS.", self.profile.name)
                }
                None => format!("It remains with the CPUs that {} gives packets.", self.profile.name),
            };
            self.draft.skip_finding(finding, skip_reason, Vec::new());
        }
    }
}

/// Whether a finding names changes that place packets on CPUs.
fn places_packets(finding: &Finding) -> bool {
    finding.changes.iter().any(|change| PlacementOwner::of(&change.setting).is_some())
}

/// Findings that disappear only when sockets are opened again.
const FOR_NEW_SOCKETS: [&str; 1] = ["socket.buffer-small"];

/// Findings about too few queues, which RPS compensates if there is nothing better.
const FEW_QUEUES: [&str; 3] = ["link.queues-below-cpus", "link.single-queue", "rss.table-misses-queues"];

/// Findings that a layout may fix although they name no change, because their rules have nothing
/// better here.
fn is_fixed_by_layout(id: &str) -> bool {
    FEW_QUEUES.contains(&id)
        || ["irq.", "softirq.rps-", "transmit.xps-"].iter().any(|stage| id.starts_with(stage))
        || id == "link.far-node"
}

/// The first finding that requires a layout. Few queues alone are no reason for RPS: the rules of
/// RPS decide where it helps.
fn requiring_finding<'d>(findings: &[&'d Finding]) -> Option<&'d Finding> {
    findings.iter().copied().find(|finding| !FEW_QUEUES.contains(&finding.id))
}

/// The findings that placing an interface's packets fixes.
fn fixed_findings<'d>(
    path: &PacketPath,
    spread: &PacketSpread,
    owner: PlacementOwner,
    placement_findings: &'d [Finding],
) -> Vec<&'d Finding> {
    let interface = spread.interface.as_str();
    let irqs: Vec<u32> = path.irq.vectors(interface).iter().map(|vector| vector.irq).collect();
    let is_fixed = |finding: &&Finding| {
        let is_named = finding.changes.iter().any(|change| {
            let is_of_interface = match &change.setting {
                Setting::IrqAffinity { irq, .. } => irqs.contains(irq),
                setting => setting.interface().as_deref() == Some(interface),
            };
            is_of_interface && PlacementOwner::of(&change.setting) == Some(owner)
        });
        is_named
            || finding.changes.is_empty()
                && names_interface(&finding.title, interface)
                && placement_owner(finding.id) == owner
    };
    placement_findings.iter().filter(is_fixed).collect()
}

/// The placement that fixes a finding that names no change.
fn placement_owner(id: &str) -> PlacementOwner {
    match id.split_once('.') {
        Some(("irq", _)) => PlacementOwner::Interrupts,
        Some(("transmit", _)) => PlacementOwner::Transmit,
        _ if id == "link.far-node" => PlacementOwner::Interrupts,
        _ => PlacementOwner::Receive,
    }
}

fn names_interface(title: &str, interface: &str) -> bool {
    title
        .split(|letter: char| letter.is_whitespace() || matches!(letter, ',' | ':'))
        .any(|word| word == interface)
}

fn placement_reason(spread: &PacketSpread, owner: PlacementOwner, findings: &[&Finding]) -> DraftReason {
    let interface = &spread.interface;
    let sentence = match owner {
        PlacementOwner::Interrupts => {
            let cpus: BTreeSet<&u32> = spread.receive_interrupts.values().collect();
            let queues = spread.receive_interrupts.len();
            if cpus.len() == queues {
                format!("Each queue of {interface} then interrupts a CPU of its own.")
            } else {
                format!("The {queues} queues of {interface} then interrupt {} CPUs evenly.", cpus.len())
            }
        }
        PlacementOwner::Receive if spread.receive.values().all(CpuSet::is_empty) => {
            format!("Every CPU has packets without {interface}'s queues handing them on.")
        }
        PlacementOwner::Receive => {
            format!("CPUs without a queue get packets of those of {interface}, on their node first.")
        }
        PlacementOwner::Transmit => {
            format!(
                "Each CPU then sends by one queue of {interface}: that whose interrupt comes to it, or to its node."
            )
        }
    };
    let mut reason = DraftReason::of(findings).with_sentence(&sentence);
    let usual = || Some("Documentation/networking/scaling.rst".to_owned());
    reason.source = reason.source.or_else(usual);
    reason
}

/// The devices of all interfaces that are observed or named. A capture may not contain them.
fn devices(host: &Host, path: &PacketPath, draft: &PlanDraft<'_>) -> Vec<NamedDevice> {
    let mut names: Vec<String> = path.link.iter().map(|link| link.interface.clone()).collect();
    for change in draft.changes.iter().chain(&draft.held) {
        names.extend(change.setting.interface().map(Cow::into_owned));
    }
    let mut unique_names = BTreeSet::new();
    names.retain(|name| unique_names.insert(name.clone()));
    names.iter().filter_map(|name| NamedDevice::observe(host, name).ok()).collect()
}
