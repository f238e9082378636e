//! Plans whose settings have other owners, and helpers for the tests of each owner.

use linerate_host::recording::RecordedEntry;
use linerate_host::setting::Offload;
use linerate_host::{Diagnosis, Host, HostView, PacketPath, Scope, Setting, SettingValue};
use proptest::prelude::*;

use super::{SettingOwners, any_text, lasting_claim, resolve, resolved_plan};
use crate::TuneProfile;
use crate::claim::{ClaimExclusion, EnforcementMode, SettingClaim};
use crate::plan::tests::{change_lines, recordings};
use crate::plan::{InterfaceLayout, PlannedChange, QueueLayout, TargetSetting, TunePlan, make};

pub(super) fn claims(files: &[(&str, &str)], setting: &Setting, to: &str) -> Vec<SettingClaim> {
    let host = Host::scripted(files.iter().copied());
    SettingOwners::observe(&host).claims(setting, &SettingValue::new(to))
}

/// The commands by which a person excludes the owner.
pub(super) fn commands(claim: &SettingClaim) -> &[String] {
    let ClaimExclusion::ByHand { commands } = &claim.exclusion else { panic!("{claim:?}") };
    commands
}

pub(super) fn gro(interface: &str) -> Setting {
    Setting::Offload { interface: interface.to_owned(), offload: Offload::GenericReceive }
}

pub(super) fn rings(interface: &str) -> Setting {
    Setting::Rings { interface: interface.to_owned() }
}

const STAT: &str = "612 (irqbalance) S 1 612 612 0 -1 4194304 1 0 0 0 5 3 0 0 20 0 2 0 1234 8 9 10\n";
const SETUP: &str = r#"{"interval_seconds": 10, "banned": [9]}"#;
const INTERRUPTS: &str = "           CPU0       CPU1\n 30:  1  0  PCI-MSIX-0000:01:00.0  1-edge  eth0-TxRx-0\n \
     31:  0  1  PCI-MSIX-0000:01:00.0  2-edge  eth0-TxRx-1\n";

/// A host on which irqbalance runs. It answers over its socket if `setup` is given.
fn host(setup: Option<&str>) -> Host {
    let mut files = vec![
        ("/proc/612/comm", "irqbalance\n"),
        ("/proc/612/stat", STAT),
        ("/proc/612/cmdline", "/usr/sbin/irqbalance\0--foreground\0--banirq=8\0"),
        ("/proc/interrupts", INTERRUPTS),
        ("/proc/irq/30/smp_affinity", "3\n"),
        ("/proc/irq/8/smp_affinity", "3\n"),
        ("/sys/devices/system/cpu/online", "0-1\n"),
        ("/sys/class/net/eth0/device/uevent", "PCI_SLOT_NAME=0000:01:00.0\n"),
        ("/etc/default/irqbalance", "IRQBALANCE_ARGS=\"--banirq=8\"\n"),
    ];
    files.extend(setup.map(|setup| ("/calls/irqbalance/612/setup.json", setup)));
    Host::scripted(files)
}

fn affinity(irq: u32) -> PlannedChange {
    change(Setting::IrqAffinity { irq, action: String::new() }, "3", "1")
}

fn change(setting: Setting, from: &str, to: &str) -> PlannedChange {
    let findings = vec!["irq.one-node".into()];
    let (from, to) = (SettingValue::new(from), SettingValue::new(to));
    PlannedChange { findings, ..PlannedChange::new(setting, from, to, "A reason.") }
}

fn plan(changes: Vec<PlannedChange>) -> TunePlan {
    TunePlan { cpus: vec![0, 1], changes, ..TunePlan::new("udp-server") }
}

fn resolve_plan(host: &Host, mut plan: TunePlan) -> TunePlan {
    resolve(&mut plan, &SettingOwners::observe(host));
    plan
}

#[test]
fn irqbalance_bans_are_added_to_the_plan() {
    let host = host(Some(SETUP));
    let plan = resolve_plan(&host, plan(vec![affinity(30), affinity(8)]));
    assert_eq!((plan.changes.len(), plan.skipped.len()), (2, 0));
    let claim = &plan.changes[0].claims[0];
    assert_eq!(
        (claim.owner.as_str(), claim.enforcement, &claim.exclusion),
        ("irqbalance", EnforcementMode::Always, &ClaimExclusion::InPlan)
    );
    assert!(claim.what.starts_with("looks every 10 s"), "{}", claim.what);
    // An argument of irqbalance bans IRQ 8.
    assert_eq!(plan.changes[1].claims, []);
    let exclusion = &plan.exclusions[0];
    assert_eq!(exclusion.setting, Setting::IrqbalanceBans { pid: 612, started: 1234 });
    assert_eq!((exclusion.from.as_str(), exclusion.to.as_str()), ("9", "9,30"));
    exclusion.setting.write(&host, &exclusion.to).expect("written");
    assert_eq!(
        resolve_plan(&host, plan.clone()).changes[0].claims,
        [],
        "irqbalance leaves the interrupts alone now"
    );
}

#[test]
fn interrupts_that_irqbalance_moves_before_the_ban_keep_the_plan_valid() {
    let host = host(Some(SETUP));
    let plan = resolve_plan(&host, plan(vec![affinity(30), affinity(8)]));
    host.write("/proc/irq/30/smp_affinity", "2\n").expect("moved by irqbalance");
    plan.check(&host).expect("still valid for this host");
    host.write("/proc/irq/8/smp_affinity", "2\n").expect("moved by a person");
    let error = plan.check(&host).expect_err("irqbalance leaves 8 alone").to_string();
    assert!(error.starts_with("affinity of IRQ 8 is '2' now, and was '3'"), "{error}");
}

#[test]
fn an_interrupt_is_found_by_its_name_if_its_number_changed() {
    let old = Setting::IrqAffinity { irq: 77, action: "eth0-TxRx-1".into() };
    let plan = resolve_plan(&host(Some(SETUP)), plan(vec![change(old, "3", "1")]));
    assert_eq!(plan.exclusions[0].to.as_str(), "9,31");
}

#[test]
fn interrupts_already_on_their_target_cpu_are_banned_too() {
    let mut unresolved = plan(vec![affinity(30)]);
    let placed_interrupt = Setting::IrqAffinity { irq: 31, action: "eth0-TxRx-1".into() };
    unresolved.target.push(TargetSetting { setting: placed_interrupt, value: SettingValue::new("2") });
    assert_eq!(resolve_plan(&host(Some(SETUP)), unresolved).exclusions[0].to.as_str(), "9,30-31");
    // A plan that places no interrupt needs no ban.
    let mut layout_plan = plan(Vec::new());
    let (receive, transmit) = (String::new(), String::new());
    let queues = vec![QueueLayout { queue: 0, interrupt: Some(0), receive, transmit }];
    layout_plan.layouts.push(InterfaceLayout { interface: "eth0".into(), queues });
    assert_eq!(resolve_plan(&host(Some(SETUP)), layout_plan).exclusions, []);
}

#[test]
fn changes_that_irqbalance_would_revert_are_skipped() {
    let plan = resolve_plan(&host(None), plan(vec![affinity(30), affinity(31), affinity(8)]));
    assert_eq!(
        (plan.changes.len(), plan.exclusions.len()),
        (1, 0),
        "only the interrupt that irqbalance leaves alone stays"
    );
    assert_eq!(plan.skipped.len(), 1, "one finding is skipped once");
    let skipped = &plan.skipped[0];
    assert_eq!(skipped.finding, "irq.one-node");
    assert!(skipped.why.starts_with("irqbalance would take it back"), "{}", skipped.why);
    assert_eq!(
        skipped.commands,
        ["echo 'IRQBALANCE_ARGS=\"--banirq=8 --banirq=30 --banirq=31\"' >> /etc/default/irqbalance && \
             systemctl restart irqbalance"]
    );
}

#[test]
fn bans_that_exceed_a_message_are_skipped_with_a_command() {
    let changes: Vec<_> = (1000..1200).map(affinity).collect();
    let plan = resolve_plan(&host(Some(SETUP)), plan(changes));
    assert_eq!((plan.changes.len(), plan.exclusions.len(), plan.skipped.len()), (0, 0, 1));
    assert!(plan.skipped[0].commands[0].contains("--banirq=1199"), "{:?}", plan.skipped[0].commands);
}

/// The queues keep their CPUs, so RPS and XPS are those for these CPUs.
#[test]
fn rps_and_xps_fit_interrupts_that_irqbalance_would_move_back() {
    let mut recording = recordings("makita-2016").remove(0);
    // irqbalance does not answer.
    let failure = serde_json::from_str(r#"{"errno": 111}"#).expect("a failure");
    recording.insert("/calls/irqbalance/811/setup.json", RecordedEntry::Failed(failure));
    let host = Host::recorded(recording);
    let path = PacketPath::observe(&host, &Scope::default());
    let (view, owners) = (HostView::once(&path), SettingOwners::observe(&host));
    let diagnosis = Diagnosis::of(&view);
    let mut profile = TuneProfile { anyway: true, ..TuneProfile::named("udp-server").expect("a profile") };
    let plan = resolved_plan(&host, &view, &diagnosis, &profile, &owners);
    let interrupts: Vec<_> = plan.layouts[0].queues.iter().map(|queue| queue.interrupt).collect();
    assert_eq!(interrupts[..4], [Some(12), Some(11), Some(10), Some(10)], "as they are now");
    let is_irq = |setting: &Setting| matches!(setting, Setting::IrqAffinity { .. });
    assert!(!plan.target.iter().any(|target| is_irq(&target.setting)), "{:?}", plan.target);
    assert_eq!(plan.exclusions, []);
    profile.cpus.policy.interrupts_stay = true;
    let expected_lines = change_lines(&make(&host, &view, &diagnosis, &profile));
    assert!(expected_lines.iter().any(|line| line.contains("ps_cpus")), "{expected_lines:?}");
    assert_eq!(change_lines(&plan), expected_lines);
    let skipped: Vec<_> = plan.skipped.iter().filter(|skipped| skipped.finding == "irq.stacked").collect();
    let [skipped] = skipped.as_slice() else { panic!("{:#?}", plan.skipped) };
    assert!(skipped.commands.concat().contains("--banirq="), "{skipped:?}");
}

#[test]
fn owners_that_act_at_restart_or_boot_remove_no_change() {
    let host = Host::scripted([
        ("/proc/7/comm", "google_guest_ag\n"),
        ("/etc/sysctl.d/10-a.conf", "net.core.rmem_max=1\n"),
    ]);
    let sysctl = change(Setting::sysctl("net.core.rmem_max"), "1", "2");
    let plan = resolve_plan(&host, plan(vec![affinity(30), sysctl]));
    let owners: Vec<_> =
        plan.changes.iter().flat_map(|change| &change.claims).map(|claim| claim.enforcement).collect();
    assert_eq!(owners, [EnforcementMode::OnRestart, EnforcementMode::AtBoot]);
    assert_eq!((plan.skipped, plan.exclusions), (Vec::new(), Vec::new()));
}

#[test]
fn google_agent_with_multiqueue_disabled_claims_nothing() {
    let agent = ("/proc/7/comm", "google_guest_ag\n");
    let config = ("/etc/default/instance_configs.cfg", "[InstanceSetup]\nset_multiqueue = false\n");
    let count = |files: &[(&str, &str)]| claims(files, &affinity(30).setting, "1").len();
    assert_eq!((count(&[agent]), count(&[agent, config])), (1, 0));
}

proptest! {
    #[test]
    fn a_resolved_plan_has_no_lasting_claim_and_loses_no_finding(
        irqs in proptest::collection::btree_set(1..300u32, 0..150), has_socket in any::<bool>(),
    ) {
        let host = host(has_socket.then_some(SETUP));
        let unresolved = plan(irqs.iter().copied().map(affinity).collect());
        let plan = resolve_plan(&host, unresolved);
        prop_assert!(plan.changes.iter().all(|change| lasting_claim(change).is_none()));
        let is_complete = plan.changes.len() == irqs.len() || !plan.skipped.is_empty();
        prop_assert!(is_complete, "{} of {} changes, and nothing skipped", plan.changes.len(), irqs.len());
        for exclusion in &plan.exclusions {
            prop_assert!(exclusion.setting.check(&exclusion.to).is_ok());
        }
        prop_assert_eq!(resolve_plan(&host, plan.clone()), plan, "a second resolve changes nothing");
    }

    #[test]
    fn parsing_arbitrary_text_never_panics(
        text in "(\\[?(Link|Match|main|net|sysctl|ethtool|Journal)\\]?|KERNEL==\"|iface |offload-|ethtool |-G |-e|flush |\
                  ruleset|(GOVERNOR|Audit|FirewallBackend|RxBufferSize|RxCoalesceSec|feature-gro|include)=|\
                  /sys/class/net/|rps_cpus|-?[a-z.*/]{0,12} ?=|[A-Za-z0-9#;:, \"'\\\\>{}$/]{0,8}|\n){0,20}",
    ) {
        any_text(&text);
    }
}
