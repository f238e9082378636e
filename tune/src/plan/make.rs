//! Makes a plan from findings.

use std::borrow::Cow;
use std::collections::BTreeSet;

use linerate_host::finding::{Finding, Severity};
use linerate_host::stage::HostView;
use linerate_host::stage::spread::{PacketSpread, RpsTarget};
use linerate_host::{CpuSet, Diagnosis, Host, PacketPath, Setting};

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
#[must_use]
pub fn make(host: &Host, view: &HostView<'_>, diagnosis: &Diagnosis, profile: &TuneProfile) -> TunePlan {
    let path = view.now;
    let mut draft =
        PlanDraft::new(host, precondition::unmet(view, diagnosis, profile), view.has_busy_udp_service());
    let mut placed = Vec::new();
    let findings = diagnosis.findings_under_load(view);
    for finding in findings.iter().copied() {
        take_up(&mut draft, &mut placed, finding, profile);
    }
    values::add(&mut draft, path, profile);
    let expected = with_consequences(&mut draft, &mut placed, view, diagnosis, profile);
    let spreads = place(&mut draft, &mut placed, view, &expected, profile);
    let cpus = layout::cpus(&expected, &spreads, &profile.cpus);
    leave_what_remains(&mut draft, view, &spreads, &placed, profile);
    let asked = |finding: &&Finding| matches!(profile.verdict(finding.id), FindingPolicy::Ask(_));
    let about_threads =
        |finding: &&Finding| finding.id.starts_with("thread.") && draft.precondition.is_none();
    for finding in findings.iter().copied().filter(asked).filter(about_threads) {
        threads::tell(&mut draft.skipped, view, finding, &cpus);
    }
    for changes in [&mut draft.changes, &mut draft.held] {
        changes.sort_by_key(|change| rank(&change.setting));
    }
    let severity = |name: &str| Severity::ALL.iter().position(|severity| severity.name() == name);
    draft.skipped.sort_by_key(|left| severity(&left.severity));
    let devices = devices(host, path, &draft);
    draft.target.retain(|kept| draft.changes.iter().all(|change| change.setting != kept.setting));
    let held = std::mem::take(&mut draft.held);
    let held = draft.precondition.map(|finding| precondition::held_back(finding, held));
    TunePlan {
        devices,
        cpus,
        layouts: spreads.iter().map(|spread| layout::shown(spread, &profile.cpus)).collect(),
        changes: draft.changes,
        target: draft.target,
        held_back: held.into_iter().filter(|held| !held.changes.is_empty()).collect(),
        skipped: draft.skipped,
        ..TunePlan::new(&profile.name)
    }
}

/// Adds the changes of a finding that the profile fixes, and leaves other findings. Changes that
/// place packets on CPUs are left to the layout, and so are findings that a good layout fixes
/// although they name no change.
fn take_up(draft: &mut PlanDraft<'_>, placed: &mut Vec<Finding>, finding: &Finding, profile: &TuneProfile) {
    // Findings that are only notes are left if there is no UDP service that a fix could help.
    let least = match profile.needs_udp_service && !draft.has_service {
        true => Severity::Low,
        false => Severity::Note,
    };
    match profile.verdict(finding.id) {
        FindingPolicy::Fix(from) if finding.severity_under_load >= from.max(least) => {}
        FindingPolicy::Fix(from) => {
            let why = format!("{} fixes it from the severity {from} on.", profile.name);
            return draft.leave(finding, why, finding.commands.clone());
        }
        FindingPolicy::Ask(_) if draft.precondition.is_some() && finding.id.starts_with("thread.") => {
            let why = "A CPU per thread helps where each thread has a socket of its own: that comes first.";
            return draft.leave(finding, why, Vec::new());
        }
        FindingPolicy::Ask(why) => return draft.leave(finding, why, finding.commands.clone()),
        FindingPolicy::Leave(why) => return draft.leave(finding, why, Vec::new()),
        FindingPolicy::Unnamed => {
            let why = format!("{} does not mention it.", profile.name);
            return draft.leave(finding, why, finding.commands.clone());
        }
    }
    if places(finding) || finding.changes.is_empty() && is_fixed_by_layout(finding.id) {
        placed.push(finding.clone());
    } else if finding.changes.is_empty() {
        let why = match finding.commands.is_empty() {
            true => format!("No setting fixes it. {}", finding.remedy),
            false => "No setting that linerate can restore fixes it; these commands do.".to_owned(),
        };
        return draft.leave(finding, why, finding.commands.clone());
    }
    let reason = DraftReason::of(&[finding]);
    let mut fixed = None;
    let mut commands = Vec::new();
    // A layout covers only queues with interrupts, but RPS of other queues can send all packets to
    // one CPU, too.
    let itself = |setting: &Setting| PlacementOwner::of(setting).is_none() || finding.id == "softirq.skew";
    for change in finding.changes.iter().filter(|change| itself(&change.setting)) {
        let hold = draft.precondition.is_some()
            && (change.setting.spreads_packets() || PlacementOwner::of(&change.setting).is_some());
        match draft.add_to(hold, &change.setting, change.from.as_ref(), &change.to, &reason) {
            AddedChange::Unread(error) => {
                let why = format!("Its present value cannot be read, so undo could not restore it: {error}.");
                draft.leave(finding, why, finding.commands.clone());
            }
            AddedChange::Fixed(why) => {
                fixed = Some(format!("{}: {why}.", change.setting));
                commands.extend(change.setting.command(&change.to));
            }
            AddedChange::Planned | AddedChange::Already => {}
        }
    }
    if let Some(why) = fixed {
        draft.leave(finding, why, commands);
    }
    if FOR_NEW_SOCKETS.contains(&finding.id) {
        draft.leave(
            finding,
            "The new value applies to sockets that are opened afterwards: restart the server.",
            Vec::new(),
        );
    }
}

/// Whether a finding names changes that place packets on CPUs.
fn places(finding: &Finding) -> bool {
    finding.changes.iter().any(|change| PlacementOwner::of(&change.setting).is_some())
}

/// The expected host after all changes except those that place packets. Findings that these changes
/// reveal are taken up, too: a table that names one queue hides that the hash lacks ports.
fn with_consequences(
    draft: &mut PlanDraft<'_>,
    placed: &mut Vec<Finding>,
    view: &HostView<'_>,
    diagnosis: &Diagnosis,
    profile: &TuneProfile,
) -> PacketPath {
    loop {
        let count = draft.changes.len();
        let expected =
            predict::after(view.now, draft.changes.iter().map(|change| (&change.setting, &change.to)));
        let then = Diagnosis::of(&HostView { now: &expected, before: view.before });
        let known = |id: &str| diagnosis.findings.iter().any(|finding| finding.id == id);
        let planned: Vec<Setting> =
            draft.changes.iter().chain(&draft.held).map(|change| change.setting.clone()).collect();
        let more =
            |finding: &Finding| finding.changes.iter().any(|change| !planned.contains(&change.setting));
        let new = |finding: &&Finding| !places(finding) && (!known(finding.id) || more(finding));
        for finding in then.findings.iter().filter(new) {
            take_up(draft, &mut Vec::new(), finding, profile);
        }
        // Every round except the last adds a change, and the number of changes is limited.
        if draft.changes.len() == count {
            take_up_places(draft, placed, &then, profile);
            return expected;
        }
    }
}

/// Takes up the findings about placement that changes reveal: if interrupts go to other CPUs, XPS
/// has to follow.
fn take_up_places(
    draft: &mut PlanDraft<'_>,
    placed: &mut Vec<Finding>,
    then: &Diagnosis,
    profile: &TuneProfile,
) {
    for finding in then.findings.iter().filter(|finding| places(finding)) {
        let is_known = |one: &Finding| one.id == finding.id && one.title == finding.title;
        if !placed.iter().any(is_known) {
            take_up(draft, placed, finding, profile);
        }
    }
}

/// Findings that disappear only when sockets are opened again.
const FOR_NEW_SOCKETS: [&str; 1] = ["socket.buffer-small"];

/// Findings about too few queues, which RPS compensates if there is nothing better.
const FEW_QUEUES: [&str; 3] = ["link.queues-below-cpus", "link.single-queue", "rss.table-misses-queues"];

/// Findings that a layout may fix though they name no change: those of rules that would, where there is nothing better.
fn is_fixed_by_layout(id: &str) -> bool {
    FEW_QUEUES.contains(&id)
        || ["irq.", "softirq.rps-", "transmit.xps-"].iter().any(|stage| id.starts_with(stage))
        || id == "link.far-node"
}

/// Adds the changes that place packets on CPUs, if a finding requires them, and returns the
/// resulting placement. Changes for queues that will be replaced wait for the next plan, but the
/// placement of these queues is returned already.
fn place(
    draft: &mut PlanDraft<'_>,
    placed: &mut Vec<Finding>,
    view: &HostView<'_>,
    expected: &PacketPath,
    profile: &TuneProfile,
) -> Vec<PacketSpread> {
    let settings: Vec<_> = draft.changes.iter().map(|change| change.setting.clone()).collect();
    let reshaped = predict::reshaped(settings.iter());
    let is_here = |spread: &&PacketSpread| !reshaped.contains(spread.interface.as_str());
    let mut policy = profile.cpus.policy.clone();
    let best = PacketSpread::of(expected, &policy).unwrap_or_default();
    let mut waiting = BTreeSet::new();
    for spread in best.iter().filter(is_here) {
        let hold = draft.precondition.is_some() && spread.takes_more_cpus(expected);
        for placing in [PlacementOwner::Interrupts, PlacementOwner::Receive].into_iter().filter(|_| hold) {
            add_placements(draft, expected, spread, placing, placed, (profile, hold));
        }
        if hold {
            waiting.insert(spread.interface.clone());
        }
        // Correct interrupts stay, and RPS and XPS are made to fit them.
        if hold || asks(&fixed(expected, spread, PlacementOwner::Interrupts, placed)).is_none() {
            policy.stays.insert(spread.interface.clone());
        }
    }
    let mut spreads = PacketSpread::of(expected, &policy).unwrap_or_default();
    let moves = |spread: &&PacketSpread| is_here(spread) && !policy.stays.contains(&spread.interface);
    for spread in spreads.iter().filter(moves) {
        let hold = draft.precondition.is_some() && spread.takes_more_cpus(expected);
        add_placements(draft, expected, spread, PlacementOwner::Interrupts, placed, (profile, hold));
    }
    let after = predict::after(view.now, draft.changes.iter().map(|change| (&change.setting, &change.to)));
    take_up_places(draft, placed, &Diagnosis::of(&HostView { now: &after, before: view.before }), profile);
    for spread in spreads.iter_mut().filter(|spread| is_here(&&**spread)) {
        let hold = draft.precondition.is_some() && spread.takes_more_cpus(expected);
        // A placement that waits is reported once, in its final form.
        let receives = !waiting.contains(&spread.interface)
            && add_placements(draft, expected, spread, PlacementOwner::Receive, placed, (profile, hold));
        if hold || !receives {
            layout::keep_receive(expected, spread);
        }
        let sends =
            add_placements(draft, expected, spread, PlacementOwner::Transmit, placed, (profile, false));
        if !sends {
            layout::keep_transmit(expected, spread);
        }
        let moved = !policy.stays.contains(&spread.interface);
        if moved || sends || receives && !hold {
            keep_others(draft, expected, spread, [moved, receives && !hold, sends], profile);
        }
    }
    spreads
}

/// If a part of an interface's layout changes, the other parts belong to the target, too, because
/// interrupts, RPS and XPS fit each other.
fn keep_others(
    draft: &mut PlanDraft<'_>,
    path: &PacketPath,
    spread: &PacketSpread,
    changed: [bool; 3],
    profile: &TuneProfile,
) {
    let all = [PlacementOwner::Interrupts, PlacementOwner::Receive, PlacementOwner::Transmit];
    for (placing, _) in all.into_iter().zip(changed).filter(|(_, changed)| !changed) {
        let now = match placing {
            PlacementOwner::Interrupts => layout::interrupts_now(path, spread),
            _ => layout::placements(path, spread, placing, &profile.cpus),
        };
        for placement in now {
            draft.keep(&placement.setting, placement.to);
        }
    }
}

/// Adds the changes of one kind that place an interface's packets, if a finding requires them.
/// Returns whether a finding does. With `hold` the changes are held back.
fn add_placements(
    draft: &mut PlanDraft<'_>,
    path: &PacketPath,
    spread: &PacketSpread,
    placing: PlacementOwner,
    placed: &[Finding],
    (profile, hold): (&TuneProfile, bool),
) -> bool {
    let fixed = fixed(path, spread, placing, placed);
    let Some(first) = asks(&fixed) else { return false };
    let placements = layout::placements(path, spread, placing, &profile.cpus);
    let reason = reason(spread, placing, &fixed);
    for placement in placements {
        let added = draft.add_to(hold, &placement.setting, placement.from.as_ref(), &placement.to, &reason);
        if let AddedChange::Unread(error) = added {
            draft.leave(first, format!("What is set cannot be read: {error}."), Vec::new());
        }
    }
    true
}

/// The first finding that requires a layout. Few queues alone are no reason for RPS: the rules of
/// RPS decide where it helps.
fn asks<'d>(fixed: &[&'d Finding]) -> Option<&'d Finding> {
    fixed.iter().copied().find(|finding| !FEW_QUEUES.contains(&finding.id))
}

/// The findings that placing an interface's packets fixes.
fn fixed<'d>(
    path: &PacketPath,
    spread: &PacketSpread,
    placing: PlacementOwner,
    placed: &'d [Finding],
) -> Vec<&'d Finding> {
    let interface = spread.interface.as_str();
    let irqs: Vec<u32> = path.irq.vectors(interface).iter().map(|vector| vector.irq).collect();
    let concerns = |finding: &&Finding| {
        let names_it = finding.changes.iter().any(|change| {
            let of_interface = match &change.setting {
                Setting::IrqAffinity { irq, .. } => irqs.contains(irq),
                setting => setting.interface().as_deref() == Some(interface),
            };
            of_interface && PlacementOwner::of(&change.setting) == Some(placing)
        });
        names_it
            || finding.changes.is_empty()
                && names(&finding.title, interface)
                && placing_of(finding.id) == placing
    };
    placed.iter().filter(concerns).collect()
}

/// The placement that fixes a finding that names no change.
fn placing_of(id: &str) -> PlacementOwner {
    match id.split_once('.') {
        Some(("irq", _)) => PlacementOwner::Interrupts,
        Some(("transmit", _)) => PlacementOwner::Transmit,
        _ if id == "link.far-node" => PlacementOwner::Interrupts,
        _ => PlacementOwner::Receive,
    }
}

/// Whether a title names an interface.
fn names(title: &str, interface: &str) -> bool {
    title
        .split(|letter: char| letter.is_whitespace() || matches!(letter, ',' | ':'))
        .any(|word| word == interface)
}

fn reason(spread: &PacketSpread, placing: PlacementOwner, fixed: &[&Finding]) -> DraftReason {
    let interface = &spread.interface;
    let more = match placing {
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
    let mut reason = DraftReason::of(fixed).and(&more);
    let usual = || Some("Documentation/networking/scaling.rst".to_owned());
    reason.source = reason.source.or_else(usual);
    reason
}

/// Leaves the findings about placement that remain after all changes, because the kernel manages
/// interrupts or the profile keeps packets from CPUs.
fn leave_what_remains(
    draft: &mut PlanDraft<'_>,
    view: &HostView<'_>,
    spreads: &[PacketSpread],
    placed: &[Finding],
    profile: &TuneProfile,
) {
    let is_held = |id: &str| draft.held.iter().flat_map(|change| &change.findings).any(|held| held == id);
    let placed: Vec<&Finding> = placed.iter().filter(|finding| !is_held(finding.id)).collect();
    let after = predict::after(view.now, draft.changes.iter().map(|change| (&change.setting, &change.to)));
    let then = Diagnosis::of(&HostView { now: &after, before: view.before });
    let remains = |finding: &&Finding| {
        then.findings.iter().any(|still| still.id == finding.id && still.severity_under_load > Severity::Note)
    };
    for finding in placed.into_iter().filter(remains) {
        let managed =
            spreads.iter().find(|spread| spread.managed && names(&finding.title, &spread.interface));
        let why = match managed {
            Some(spread) => format!(
                "The kernel manages where {}'s interrupts go, and allows no change.",
                spread.interface
            ),
            None if profile.cpus.policy.handing == RpsTarget::None => {
                format!("It remains with the CPUs that {} gives packets, without RPS.", profile.name)
            }
            None => format!("It remains with the CPUs that {} gives packets.", profile.name),
        };
        draft.leave(finding, why, Vec::new());
    }
}

/// The devices of all interfaces that are observed or named. A capture may not contain them.
fn devices(host: &Host, path: &PacketPath, draft: &PlanDraft<'_>) -> Vec<NamedDevice> {
    let mut names: Vec<String> = path.link.iter().map(|link| link.interface.clone()).collect();
    for change in draft.changes.iter().chain(&draft.held) {
        names.extend(change.setting.interface().map(Cow::into_owned));
    }
    let mut seen = BTreeSet::new();
    names.retain(|name| seen.insert(name.clone()));
    names.iter().filter_map(|name| NamedDevice::observe(host, name).ok()).collect()
}
