//! Plans whose settings have other owners.

use linerate_host::{Host, Setting, SettingValue};
use proptest::prelude::*;

use super::{SettingOwners, any_text, lasting_claim, resolve};
use crate::claim::{ClaimExclusion, EnforcementMode};
use crate::plan::{InterfaceLayout, PlannedChange, QueueLayout, TargetSetting, TunePlan};

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

fn resolved(host: &Host, mut plan: TunePlan) -> TunePlan {
    resolve(&mut plan, &SettingOwners::observe(host));
    plan
}

#[test]
fn irqbalance_is_agreed_with_in_the_plan() {
    let host = host(Some(SETUP));
    let plan = resolved(&host, plan(vec![affinity(30), affinity(8)]));
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
    exclusion.setting.write(&host, &exclusion.to).expect("carried out");
    assert_eq!(resolved(&host, plan.clone()).changes[0].claims, [], "it leaves them alone now");
}

#[test]
fn interrupts_that_irqbalance_moves_before_the_ban_keep_the_plan_valid() {
    let host = host(Some(SETUP));
    let plan = resolved(&host, plan(vec![affinity(30), affinity(8)]));
    host.write("/proc/irq/30/smp_affinity", "2\n").expect("moved by irqbalance");
    plan.check(&host).expect("still one for this host");
    host.write("/proc/irq/8/smp_affinity", "2\n").expect("moved by a person");
    let error = plan.check(&host).expect_err("irqbalance leaves 8 alone").to_string();
    assert!(error.starts_with("affinity of IRQ 8 is '2' now, and was '3'"), "{error}");
}

#[test]
fn an_interrupt_is_found_by_its_name_if_its_number_changed() {
    let old = Setting::IrqAffinity { irq: 77, action: "eth0-TxRx-1".into() };
    let plan = resolved(&host(Some(SETUP)), plan(vec![change(old, "3", "1")]));
    assert_eq!(plan.exclusions[0].to.as_str(), "9,31");
}

#[test]
fn interrupts_that_are_in_place_are_banned_too() {
    let mut wanted = plan(vec![affinity(30)]);
    let there = Setting::IrqAffinity { irq: 31, action: "eth0-TxRx-1".into() };
    wanted.target.push(TargetSetting { setting: there, value: SettingValue::new("2") });
    assert_eq!(resolved(&host(Some(SETUP)), wanted).exclusions[0].to.as_str(), "9,30-31");
    // A plan that places no interrupt needs no ban.
    let mut shown = plan(Vec::new());
    let (receive, transmit) = (String::new(), String::new());
    let queues = vec![QueueLayout { queue: 0, interrupt: Some(0), receive, transmit }];
    shown.layouts.push(InterfaceLayout { interface: "eth0".into(), queues });
    assert_eq!(resolved(&host(Some(SETUP)), shown).exclusions, []);
}

#[test]
fn a_change_that_would_be_reverted_is_skipped() {
    let plan = resolved(&host(None), plan(vec![affinity(30), affinity(31), affinity(8)]));
    assert_eq!(
        (plan.changes.len(), plan.exclusions.len()),
        (1, 0),
        "only the one that it leaves alone stays"
    );
    assert_eq!(plan.skipped.len(), 1, "one finding is told once");
    let left = &plan.skipped[0];
    assert_eq!(left.finding, "irq.one-node");
    assert!(left.why.starts_with("irqbalance would take it back"), "{}", left.why);
    assert_eq!(
        left.commands,
        ["echo 'IRQBALANCE_ARGS=\"--banirq=8 --banirq=30 --banirq=31\"' >> /etc/default/irqbalance && \
             systemctl restart irqbalance"]
    );
}

#[test]
fn more_bans_than_fit_into_a_message_are_left_to_a_person() {
    let many: Vec<_> = (1000..1200).map(affinity).collect();
    let plan = resolved(&host(Some(SETUP)), plan(many));
    assert_eq!((plan.changes.len(), plan.exclusions.len(), plan.skipped.len()), (0, 0, 1));
    assert!(plan.skipped[0].commands[0].contains("--banirq=1199"), "{:?}", plan.skipped[0].commands);
}

#[test]
fn owners_that_act_later_remove_no_change() {
    let host = Host::scripted([
        ("/proc/7/comm", "google_guest_ag\n"),
        ("/etc/sysctl.d/10-a.conf", "net.core.rmem_max=1\n"),
    ]);
    let sysctl = change(Setting::sysctl("net.core.rmem_max"), "1", "2");
    let plan = resolved(&host, plan(vec![affinity(30), sysctl]));
    let owners: Vec<_> =
        plan.changes.iter().flat_map(|change| &change.claims).map(|claim| claim.enforcement).collect();
    assert_eq!(owners, [EnforcementMode::OnRestart, EnforcementMode::AtBoot]);
    assert_eq!((plan.skipped, plan.exclusions), (Vec::new(), Vec::new()));
}

#[test]
fn an_agent_whose_configuration_excludes_queues_claims_nothing() {
    let agent = ("/proc/7/comm", "google_guest_ag\n");
    let told = ("/etc/default/instance_configs.cfg", "[InstanceSetup]\nset_multiqueue = false\n");
    let claims = |files: &[(&str, &str)]| {
        let host = Host::scripted(files.iter().copied());
        SettingOwners::observe(&host).claims(&affinity(30).setting, &SettingValue::new("1")).len()
    };
    assert_eq!((claims(&[agent]), claims(&[agent, told])), (1, 0));
}

proptest! {
    #[test]
    fn a_resolved_plan_has_no_lasting_claim_and_loses_no_finding(
        irqs in proptest::collection::btree_set(1..300u32, 0..150), answers in any::<bool>(),
    ) {
        let host = host(answers.then_some(SETUP));
        let wanted = plan(irqs.iter().copied().map(affinity).collect());
        let plan = resolved(&host, wanted);
        prop_assert!(plan.changes.iter().all(|change| lasting_claim(change).is_none()));
        let told = plan.changes.len() == irqs.len() || !plan.skipped.is_empty();
        prop_assert!(told, "{} of {} changes, and nothing left", plan.changes.len(), irqs.len());
        for exclusion in &plan.exclusions {
            prop_assert!(exclusion.setting.check(&exclusion.to).is_ok());
        }
        prop_assert_eq!(resolved(&host, plan.clone()), plan, "resolving twice is resolving once");
    }

    #[test]
    fn any_text_is_parsed_without_panic(
        text in "(\\[?(Link|Match|main|net|sysctl|ethtool|Journal)\\]?|KERNEL==\"|iface |offload-|ethtool |-G |-e|flush |\
                  ruleset|(GOVERNOR|Audit|FirewallBackend|RxBufferSize|RxCoalesceSec|feature-gro|include)=|\
                  /sys/class/net/|rps_cpus|-?[a-z.*/]{0,12} ?=|[A-Za-z0-9#;:, \"'\\\\]{0,8}|\n){0,20}",
    ) {
        any_text(&text);
    }
}
