//! From findings to a plan.

use std::borrow::Cow;
use std::collections::BTreeSet;

use linerate_host::finding::{Finding, Severity};
use linerate_host::stage::View;
use linerate_host::stage::spread::{Handing, Spread};
use linerate_host::{CpuSet, Diagnosis, Host, PacketPath, Setting};

use super::draft::{Added, Draft, Reason, rank};
use super::{Plan, SCHEMA, predict, threads, values};
use crate::Device;
use crate::layout::{self, Placement, Placing};
use crate::profile::{Profile, Verdict};

/// The plan that tunes a host for what a profile is for. `host` is the one that was observed, or a capture of it: it is
/// asked what settings are, and which devices its interfaces are. Nothing is changed.
///
/// Where channels are to change, that resets the interface; what is set of its queues is planned after that, anew. The
/// layout shows what that will be.
#[must_use]
pub fn make(host: &Host, view: &View<'_>, diagnosis: &Diagnosis, profile: &Profile) -> Plan {
    let path = view.now;
    let mut draft = Draft::new(host);
    let mut placed = Vec::new();
    for finding in &diagnosis.findings {
        take_up(&mut draft, &mut placed, finding, profile);
    }
    values::add(&mut draft, path, profile);
    let expected = with_consequences(&mut draft, view, diagnosis, profile);
    let spreads = Spread::of(&expected, &profile.cpus.policy).unwrap_or_default();
    let cpus = layout::cpus(&expected, &spreads, &profile.cpus);
    place(&mut draft, path, &spreads, &placed, profile);
    leave_what_remains(&mut draft, view, &spreads, &placed, profile);
    let asked = |finding: &&Finding| matches!(profile.verdict(finding.id), Verdict::Ask(_));
    for finding in diagnosis.findings.iter().filter(asked).filter(|finding| finding.id.starts_with("thread."))
    {
        threads::tell(&mut draft.left, view, finding, &cpus);
    }
    draft.changes.sort_by_key(|change| rank(&change.setting));
    let severity = |name: &str| Severity::ALL.iter().position(|severity| severity.name() == name);
    draft.left.sort_by_key(|left| severity(&left.severity));
    Plan {
        schema: SCHEMA.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        read_unix_seconds: None,
        goal: profile.name.clone(),
        devices: devices(host, path, &draft),
        cpus,
        layouts: spreads.iter().map(|spread| layout::shown(spread, &profile.cpus)).collect(),
        agreements: Vec::new(),
        changes: draft.changes,
        left: draft.left,
    }
}

/// Adds the changes of a finding that the profile mends, and leaves others. Those that place packets on CPUs are for the
/// layout to make, and so are findings that a good layout mends though they name no change.
fn take_up<'d>(
    draft: &mut Draft<'_>,
    placed: &mut Vec<&'d Finding>,
    finding: &'d Finding,
    profile: &Profile,
) {
    match profile.verdict(finding.id) {
        Verdict::Mend(from) if finding.severity >= from => {}
        Verdict::Mend(from) => {
            let why = format!("{} mends it from the severity {from} on.", profile.name);
            return draft.leave(finding, why, finding.commands.clone());
        }
        Verdict::Ask(why) => return draft.leave(finding, why, finding.commands.clone()),
        Verdict::Leave(why) => return draft.leave(finding, why, Vec::new()),
        Verdict::Unnamed => {
            let why = format!("{} says nothing of it.", profile.name);
            return draft.leave(finding, why, finding.commands.clone());
        }
    }
    let by_layout = finding.changes.iter().any(|change| Placing::of(&change.setting).is_some());
    if by_layout || finding.changes.is_empty() && is_mended_by_layout(finding.id) {
        placed.push(finding);
    } else if finding.changes.is_empty() {
        let why = match finding.commands.is_empty() {
            true => format!("No setting mends it. {}", finding.remedy),
            false => "No setting that could be put back mends it; these commands do.".to_owned(),
        };
        return draft.leave(finding, why, finding.commands.clone());
    }
    let reason = Reason::of(&[finding]);
    let mut fixed = None;
    let mut commands = Vec::new();
    for change in finding.changes.iter().filter(|change| Placing::of(&change.setting).is_none()) {
        match draft.add(&change.setting, change.from.as_ref(), &change.to, &reason) {
            Added::Unread(error) => {
                let why =
                    format!("What it is now cannot be read, so that it could not be put back: {error}.");
                draft.leave(finding, why, finding.commands.clone());
            }
            Added::Fixed(why) => {
                fixed = Some(format!("{}: {why}.", change.setting));
                commands.extend(change.setting.command(&change.to));
            }
            Added::Planned | Added::Already => {}
        }
    }
    if let Some(why) = fixed {
        draft.leave(finding, why, commands);
    }
    if FOR_NEW_SOCKETS.contains(&finding.id) {
        draft.leave(
            finding,
            "What is changed holds for sockets made from then on: restart the server.",
            Vec::new(),
        );
    }
}

/// What the host will be like after the changes but for those that place packets. What these bring to light is taken up too: a
/// table that names one queue hides that the hash lacks ports.
fn with_consequences(
    draft: &mut Draft<'_>,
    view: &View<'_>,
    diagnosis: &Diagnosis,
    profile: &Profile,
) -> PacketPath {
    loop {
        let count = draft.changes.len();
        let expected =
            predict::after(view.now, draft.changes.iter().map(|change| (&change.setting, &change.to)));
        let then = Diagnosis::of(&View { now: &expected, before: view.before });
        let known = |id: &str| diagnosis.findings.iter().any(|finding| finding.id == id);
        // Findings that place packets are for the layout, which is made of what is expected.
        let places =
            |finding: &Finding| finding.changes.iter().any(|change| Placing::of(&change.setting).is_some());
        let planned: Vec<Setting> = draft.changes.iter().map(|change| change.setting.clone()).collect();
        let more =
            |finding: &Finding| finding.changes.iter().any(|change| !planned.contains(&change.setting));
        let new = |finding: &&Finding| !places(finding) && (!known(finding.id) || more(finding));
        for finding in then.findings.iter().filter(new) {
            take_up(draft, &mut Vec::new(), finding, profile);
        }
        // Each round adds a change, of which there are only so many.
        if draft.changes.len() == count {
            return expected;
        }
    }
}

/// Findings that go when sockets are made anew, and not before.
const FOR_NEW_SOCKETS: [&str; 1] = ["socket.buffer-small"];

/// Findings that a layout may mend though they name no change: those of rules that would, where there is nothing better.
fn is_mended_by_layout(id: &str) -> bool {
    const BY_RPS: [&str; 3] = ["link.queues-below-cpus", "link.single-queue", "rss.table-misses-queues"];
    BY_RPS.contains(&id)
        || ["irq.", "softirq.rps-", "transmit.xps-"].iter().any(|stage| id.starts_with(stage))
        || id == "link.far-node"
}

/// Adds what places packets on CPUs, unless it is of queues that are to be others.
fn place(
    draft: &mut Draft<'_>,
    path: &PacketPath,
    spreads: &[Spread],
    placed: &[&Finding],
    profile: &Profile,
) {
    let settings: Vec<_> = draft.changes.iter().map(|change| change.setting.clone()).collect();
    let reshaped = predict::reshaped(settings.iter());
    for spread in spreads.iter().filter(|spread| !reshaped.contains(spread.interface.as_str())) {
        let placements = layout::placements(path, spread, &profile.cpus);
        for placing in [Placing::Interrupts, Placing::Receive, Placing::Transmit] {
            let of = || placements.iter().filter(|placement| placement.placing == placing);
            let reason = reason(path, spread, placing, &of().collect::<Vec<_>>(), placed);
            for placement in of() {
                let added = draft.add(&placement.setting, placement.from.as_ref(), &placement.to, &reason);
                if let (Added::Unread(error), Some(finding)) =
                    (added, mended(path, spread, placing, placed).first())
                {
                    draft.leave(finding, format!("What is set cannot be read: {error}."), Vec::new());
                }
            }
        }
    }
}

/// The findings that placing an interface's packets mends.
fn mended<'d>(
    path: &PacketPath,
    spread: &Spread,
    placing: Placing,
    placed: &[&'d Finding],
) -> Vec<&'d Finding> {
    let interface = spread.interface.as_str();
    let irqs: Vec<u32> = path.irq.vectors(interface).iter().map(|vector| vector.irq).collect();
    let concerns = |finding: &&&Finding| {
        let names_it = finding.changes.iter().any(|change| {
            let of_interface = match &change.setting {
                Setting::IrqAffinity { irq, .. } => irqs.contains(irq),
                setting => setting.interface().as_deref() == Some(interface),
            };
            of_interface && Placing::of(&change.setting) == Some(placing)
        });
        names_it
            || finding.changes.is_empty()
                && names(&finding.title, interface)
                && placing_of(finding.id) == placing
    };
    placed.iter().filter(concerns).copied().collect()
}

/// What mends a finding that names no change.
fn placing_of(id: &str) -> Placing {
    match id.split_once('.') {
        Some(("irq", _)) => Placing::Interrupts,
        Some(("transmit", _)) => Placing::Transmit,
        _ if id == "link.far-node" => Placing::Interrupts,
        _ => Placing::Receive,
    }
}

/// Whether a title names an interface.
fn names(title: &str, interface: &str) -> bool {
    title
        .split(|letter: char| letter.is_whitespace() || matches!(letter, ',' | ':'))
        .any(|word| word == interface)
}

fn reason(
    path: &PacketPath,
    spread: &Spread,
    placing: Placing,
    placements: &[&Placement],
    placed: &[&Finding],
) -> Reason {
    let interface = &spread.interface;
    let more = match placing {
        Placing::Interrupts => {
            let cpus: BTreeSet<&u32> = spread.receive_interrupts.values().collect();
            let queues = spread.receive_interrupts.len();
            if cpus.len() == queues {
                format!("Each queue of {interface} then interrupts a CPU of its own.")
            } else {
                format!("The {queues} queues of {interface} then interrupt {} CPUs evenly.", cpus.len())
            }
        }
        Placing::Receive if spread.receive.values().all(CpuSet::is_empty) => {
            format!("Every CPU has packets without {interface}'s queues handing them on.")
        }
        Placing::Receive => {
            format!("CPUs without a queue get packets of those of {interface}, on their node first.")
        }
        Placing::Transmit => {
            format!(
                "Each CPU then sends by one queue of {interface}: that whose interrupt comes to it, or to its node."
            )
        }
    };
    let findings = if placements.is_empty() { Vec::new() } else { mended(path, spread, placing, placed) };
    let mut reason = Reason::of(&findings).and(&more);
    let usual = || Some("Documentation/networking/scaling.rst".to_owned());
    reason.source = reason.source.or_else(usual);
    reason
}

/// Leaves the findings about places that are still there once all is placed: where the kernel manages interrupts, or where
/// the profile keeps packets from CPUs.
fn leave_what_remains(
    draft: &mut Draft<'_>,
    view: &View<'_>,
    spreads: &[Spread],
    placed: &[&Finding],
    profile: &Profile,
) {
    let after = predict::after(view.now, draft.changes.iter().map(|change| (&change.setting, &change.to)));
    let then = Diagnosis::of(&View { now: &after, before: view.before });
    let remains = |finding: &&&Finding| {
        then.findings.iter().any(|still| still.id == finding.id && still.severity > Severity::Note)
    };
    for finding in placed.iter().filter(remains) {
        let managed =
            spreads.iter().find(|spread| spread.managed && names(&finding.title, &spread.interface));
        let why = match managed {
            Some(spread) => format!(
                "The kernel manages where {}'s interrupts go: nobody may change it.",
                spread.interface
            ),
            None if profile.cpus.policy.handing == Handing::None => {
                format!("It remains with the CPUs that {} gives packets, without RPS.", profile.name)
            }
            None => format!("It remains with the CPUs that {} gives packets.", profile.name),
        };
        draft.leave(finding, why, Vec::new());
    }
}

/// The devices of all interfaces that are looked at or named. A capture may not tell.
fn devices(host: &Host, path: &PacketPath, draft: &Draft<'_>) -> Vec<Device> {
    let mut names: Vec<String> = path.link.iter().map(|link| link.interface.clone()).collect();
    for change in &draft.changes {
        names.extend(change.setting.interface().map(Cow::into_owned));
    }
    let mut seen = BTreeSet::new();
    names.retain(|name| seen.insert(name.clone()));
    names.iter().filter_map(|name| Device::observe(host, name).ok()).collect()
}
