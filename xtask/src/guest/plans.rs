//! Plans of `linerate tune` for each interface of a variant: each change has a reason, a second
//! plan is empty, and undo restores all values.

use linerate_host::Setting;
use linerate_host::setting::NapiKnob;
use linerate_tune::plan::PlannedChange;
use linerate_tune::{TunePlan, TuneProfile};

use super::machine::{GuestVariant, TO_NIC, TO_VIRTIO};
use super::session::GuestSession;
use super::traffic::{FEW, FlowCount, GuestTraffic};
use super::tuning::GuestState;

/// Makes two virtual functions if the variant has them, and waits for the link, which this resets.
const VIRTUAL_FUNCTIONS: &str = "
echo 2 >/sys/class/net/igb0/device/sriov_numvfs || exit
[ \"$(cat /sys/class/net/igb0/device/sriov_numvfs)\" = 2 ] || exit
modprobe igbvf
until [ \"$(cat /sys/class/net/igb0/operstate)\" = up ]; do sleep 0.1; done
";

/// Runs the checks, prints the planned changes, and returns failures.
pub(super) fn run(guest: &mut GuestSession, variant: GuestVariant) -> anyhow::Result<Vec<String>> {
    if variant == GuestVariant::VirtualFunctions {
        guest.run_successfully(VIRTUAL_FUNCTIONS)?;
    }
    let mut failures = Vec::new();
    let wires = [(variant.nic().interface, &TO_NIC), ("vnet0", &TO_VIRTIO)];
    for (interface, _) in wires {
        let (changes, findings) = plan(guest, interface, "")?;
        println!("  {interface} without a server: {} changes, doctor finds {findings}", changes.len());
        // Without a UDP service, interrupts must not move and TCP must not become slower.
        let is_costly = |change: &&GuestChange| {
            matches!(
                change.change.setting,
                Setting::IrqAffinity { .. }
                    | Setting::IrqbalanceBans { .. }
                    | Setting::Napi { knob: NapiKnob::DeferHardIrqs, .. }
                    | Setting::Offload { .. }
            )
        };
        let costly_changes = changes.iter().filter(is_costly);
        failures.extend(costly_changes.map(|change| format!("{interface}: without a UDP service: {change}")));
        failures.extend(changes_without_reason(interface, &changes));
    }
    guest.serve("0.0.0.0")?;
    for (interface, wire) in wires {
        let traffic = GuestTraffic::start(guest, wire, FlowCount::Many, FEW)?;
        failures.extend(check_tuning(guest, interface)?);
        traffic.stop()?;
    }
    Ok(failures)
}

/// Plans, applies, plans again and undoes.
fn check_tuning(guest: &mut GuestSession, interface: &str) -> anyhow::Result<Vec<String>> {
    let mut failures = Vec::new();
    let before = GuestState::read(guest, interface)?;
    let (changes, findings) = plan(guest, interface, "--port 4000 --interval 3")?;
    println!("  {interface} under load: {} changes, doctor finds {findings}", changes.len());
    for change in &changes {
        println!("    {change}");
    }
    failures.extend(changes_without_reason(interface, &changes));
    let apply = format!("linerate tune apply --interface {interface} --port 4000 --interval 3 --yes");
    failures.extend(guest.failure_of(&apply, 1)?);
    let (new_changes, _) = plan(guest, interface, "--port 4000 --interval 3")?;
    if !new_changes.is_empty() {
        failures.push(format!("{interface}: planned again after apply: {}", changes_text(&new_changes)));
    }
    if !changes.is_empty() {
        failures.extend(
            guest.failure_of("linerate tune undo", 0)?.map(|failure| format!("{interface}: {failure}")),
        );
        // An affinity takes effect with the next interrupt.
        guest.run_script("sleep 3")?;
    }
    let after = GuestState::read(guest, interface)?;
    let differences = before.differences(&after);
    println!("  {interface} after undo: {} values compared, {} differ", before.len(), differences.len());
    failures
        .extend(differences.into_iter().map(|difference| format!("{interface} after undo: {difference}")));
    Ok(failures)
}

struct GuestChange {
    change: PlannedChange,
    /// Findings that the change fixes, or the profile that requires it.
    reasons: Vec<String>,
}

impl std::fmt::Display for GuestChange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let PlannedChange { setting, from, to, .. } = &self.change;
        write!(f, "{setting}: {from} -> {to} for {}", self.reasons.join(" "))
    }
}

fn changes_without_reason(interface: &str, changes: &[GuestChange]) -> Vec<String> {
    let without_reason = changes.iter().filter(|change| change.reasons.is_empty());
    without_reason.map(|change| format!("{interface}: no reason for {change}")).collect()
}

/// The planned changes for an interface, and the findings without a planned change.
fn plan(
    guest: &mut GuestSession,
    interface: &str,
    options: &str,
) -> anyhow::Result<(Vec<GuestChange>, String)> {
    let plan = guest.json(&format!("linerate tune plan --interface {interface} {options} --json -"))?;
    let plan: TunePlan = serde_json::from_value(plan)?;
    let profile = TuneProfile::named(&plan.goal)?;
    let with_reasons = |change: PlannedChange| {
        let mut reasons = change.findings.clone();
        if profile.values.iter().any(|value| value.why == change.why) {
            reasons.push(format!("profile {}", profile.name));
        }
        GuestChange { change, reasons }
    };
    let changes = plan.exclusions.into_iter().chain(plan.changes).map(with_reasons).collect();
    let skipped = plan.skipped.into_iter().map(|skipped| skipped.finding);
    let held_back = plan.held_back.iter().map(|group| format!("(held back until {})", group.until_fixed));
    let findings: Vec<String> = skipped.chain(held_back).collect();
    Ok((changes, findings.join(" ")))
}

fn changes_text(changes: &[GuestChange]) -> String {
    changes.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}
