use linerate_host::{Diagnosis, Host, HostRecording, HostView, PacketPath, Scope, Severity};
use linerate_testkit::fixture::{Tree, fixture, healthy_guests};

use super::*;
use crate::TuneProfile;
use crate::profile::FindingPolicy;

pub(super) fn recording(tree: &Tree) -> HostRecording {
    let tree = tree.followed();
    HostRecording::from_files(tree.files()).with_links(tree.links())
}

pub(crate) fn recordings(name: &str) -> Vec<HostRecording> {
    fixture(name).expect("a fixture").trees().iter().map(recording).collect()
}

pub(super) fn plan(readings: &[HostRecording], profile: &TuneProfile) -> TunePlan {
    let states: Vec<PacketPath> = readings
        .iter()
        .map(|reading| PacketPath::observe(&Host::recorded(reading.clone()), &Scope::default()))
        .collect();
    let host = Host::recorded(readings.last().expect("a reading").clone());
    of_states(&host, &states, profile)
}

pub(super) fn of_states(host: &Host, states: &[PacketPath], profile: &TuneProfile) -> TunePlan {
    let view = match states {
        [before, now] => HostView::twice(before, now),
        [now] => HostView::once(now),
        _ => panic!("one reading or two"),
    };
    make(host, &view, &Diagnosis::of(&view), profile)
}

pub(super) fn builtin_profile(name: &str) -> TuneProfile {
    TuneProfile::named(name).expect("a profile")
}

/// The profile with `--anyway`: changes are planned although another fix should come first.
pub(super) fn anyway(name: &str) -> TuneProfile {
    TuneProfile { anyway: true, ..builtin_profile(name) }
}

pub(crate) fn change_lines(plan: &TunePlan) -> Vec<String> {
    plan.changes
        .iter()
        .map(|change| format!("{}: {} -> {}", change.setting, change.from, change.to))
        .collect()
}

const PROFILES: [&str; 4] = ["udp-server", "udp-server-with-tcp", "hypervisor", "low-latency"];
const FIXTURES: [&str; 5] = ["makita-2016", "makita-2016-fixed", "million-packets", "many", "small-vm"];

#[test]
fn plans_fix_or_explain_all_findings_in_one_run_with_reasons() {
    for (name, profile) in FIXTURES.iter().flat_map(|name| PROFILES.map(|profile| (*name, profile))) {
        let readings = recordings(name);
        let plan_with = |profile: &TuneProfile| {
            let plan = plan(&readings, profile);
            for change in &plan.changes {
                let has_cause = has_finding_or_profile_value(change, profile);
                assert!(has_cause, "{name}, {}: {change:?}", profile.name);
                assert!(change.why.ends_with('.') && change.source.is_some(), "{name}: {change:?}");
                assert!(change.setting.check(&change.to).is_ok(), "{}", change.setting);
            }
            plan
        };
        plan_with(&anyway(profile));
        let plan = plan_with(&builtin_profile(profile));
        let rehearsal = rehearse(readings.clone(), &Scope::default(), &plan);
        assert!(rehearsal.unrehearsed.is_empty(), "{name}: {:?}", rehearsal.unrehearsed);
        for finding in &rehearsal.diagnosis.findings {
            let is_skipped =
                plan.skipped.iter().any(|skipped| skipped.finding == finding.id && !skipped.why.is_empty());
            let is_held_back = plan.held_back.iter().any(|group| group.fixes(finding.id));
            // The recording keeps the distribution of packets, whatever the plan changes.
            let is_recorded = finding.id == "rss.single-flow";
            // The profile enables merging, and this host had it switched off.
            let is_profile_value =
                (name, profile, finding.id) == ("makita-2016-fixed", "hypervisor", "link.gro-for-udp");
            let is_explained = finding.severity == Severity::Note
                || is_skipped
                || is_held_back
                || is_recorded
                || is_profile_value;
            assert!(is_explained, "{name}, {profile}: {} {}", finding.id, finding.title);
        }
        let next_plan = of_states(&rehearsal.host, &rehearsal.readings, &builtin_profile(profile));
        assert_eq!(change_lines(&next_plan), [""; 0], "{name}, {profile}");
    }
}

/// Whether a change gives more CPUs packets to process.
fn spreads(change: &PlannedChange) -> bool {
    matches!(
        change.setting,
        Setting::IrqAffinity { .. }
            | Setting::Channels { .. }
            | Setting::RssTable { .. }
            | Setting::FlowHash { .. }
            | Setting::QueueCpus { direction: linerate_host::setting::QueueDirection::Receive, .. }
    )
}

/// When packets were spread over all CPUs while 20 threads shared one socket, that machine fell
/// from 270,000 to 17,000 transactions per second.
#[test]
fn packet_spreading_is_held_back_while_threads_share_one_socket() {
    for profile in PROFILES {
        let readings = recordings("makita-2016");
        let plan = plan(&readings, &builtin_profile(profile));
        assert_eq!(plan.changes.iter().filter(|change| spreads(change)).count(), 0, "{profile}: {plan:#?}");
        let [group] = plan.held_back.as_slice() else { panic!("{profile}: {:?}", plan.held_back) };
        assert_eq!(group.until_fixed, "socket.shared-by-threads");
        assert!(group.changes.iter().all(spreads), "{profile}: {:?}", group.changes);
        let affinities = group.changes.iter().filter(|change| change.setting.to_string().contains("IRQ"));
        assert_eq!(affinities.count(), 20, "{profile}");
        // As with `--anyway`: one layout, not parts of two.
        let mut at_once = change_lines(&self::plan(&readings, &anyway(profile)));
        at_once.retain(|change| change.contains("IRQ") || change.contains("rps_cpus"));
        let held_changes = group.changes.iter();
        let held_lines: Vec<String> = held_changes
            .map(|change| format!("{}: {} -> {}", change.setting, change.from, change.to))
            .collect();
        assert_eq!(held_lines, at_once, "{profile}");
        assert!(
            group.effect.contains("270,000 to 17,000") && group.fix_first.contains("SO_REUSEPORT"),
            "{group:?}"
        );
        assert!(group.why.contains("20 threads serve one socket"), "{group:?}");
        // Pinned threads do not help before each has its own socket.
        let has_taskset =
            |skipped: &&SkippedFinding| skipped.commands.iter().any(|command| command.starts_with("taskset"));
        assert!(!plan.skipped.iter().any(|skipped| has_taskset(&skipped)), "{:?}", plan.skipped);
        // The layout shows where packets go now.
        let interrupts: Vec<_> = plan.layouts[0].queues.iter().map(|queue| queue.interrupt).collect();
        assert_eq!(interrupts[..4], [Some(12), Some(11), Some(10), Some(10)]);
    }
}

#[test]
fn packets_are_spread_once_each_thread_has_its_own_socket() {
    let mut tree = fixture("makita-2016").expect("a fixture").first;
    let fixed = fixture("makita-2016-fixed").expect("a fixture").first;
    let of_sockets = ["/proc/net/udp", "/calls/sock_diag/", "/calls/reuseport/", "/calls/socket/"];
    let of_processes = ["/proc/4711/", "/proc/811/", "/calls/irqbalance/"];
    tree.copy_below(&[&of_sockets[..], &of_processes].concat(), &fixed);
    let plan = plan(&[recording(&tree)], &builtin_profile("udp-server"));
    assert_eq!((plan.changes.iter().filter(|change| spreads(change)).count(), plan.held_back.len()), (24, 0));
}

/// The changes to the host on the slides of 2016. Threads and sockets belong to the server.
#[test]
fn anyway_plan_for_the_machine_of_2016_matches_the_slides() {
    let plan = plan(&recordings("makita-2016"), &anyway("udp-server"));
    assert_eq!(plan.held_back, []);
    let lines = change_lines(&plan);
    let irqs = (0..20)
        .map(|queue| (105 + queue, queue))
        .map(|(irq, cpu): (u32, u32)| format!("affinity of IRQ {irq} (ens1f0-TxRx-{cpu}): "));
    for (irq, change) in irqs.zip(&plan.changes) {
        assert!(change.setting.to_string().starts_with(&irq[..irq.len() - 2]), "{irq} {}", change.setting);
        assert_eq!(change.findings, ["irq.one-node", "irq.stacked", "irq.not-hint"]);
    }
    assert_eq!(
        lines[20..],
        [
            // The table reaches 16 of 20 queues. The CPUs of the others, 16 to 19, are on node 1,
            // like 5 to 9 and 15.
            "ens1f0 rx-5/rps_cpus: 00000 -> 00010020",
            "ens1f0 rx-6/rps_cpus: 00000 -> 00020040",
            "ens1f0 rx-7/rps_cpus: 00000 -> 00040080",
            "ens1f0 rx-8/rps_cpus: 00000 -> 00080100",
            "ens1f0 generic-receive-offload: on -> off",
            "net.ipv4.conf.all.rp_filter: 1 -> 0",
            "net.ipv4.conf.ens1f0.rp_filter: 1 -> 0",
            "net.ipv4.conf.ens1f0.accept_local: 0 -> 1",
            "net.core.rmem_max: 212992 -> 4194304",
            "audit enabled: 1 -> 0",
        ]
    );
    assert_eq!(plan.cpus, [0, 1, 2, 3, 4, 10, 11, 12, 13, 14, 5, 6, 7, 8, 9, 15, 16, 17, 18, 19]);
    assert_eq!(plan.layouts[0].queues[8].receive, "8,19");
    assert_eq!(
        (plan.devices[0].interface.as_str(), plan.devices[0].device.as_deref()),
        ("ens1f0", Some("0000:04:00.0"))
    );
    let threads = plan.skipped.iter().find(|skipped| skipped.finding == "thread.unpinned").expect("skipped");
    assert_eq!((threads.commands.len(), threads.commands[19].as_str()), (20, "taskset -pc 19 4730"));
    assert!(
        plan.skipped.iter().any(|skipped| skipped.finding == "filter.hooks-without-rules"),
        "{:?}",
        plan.skipped
    );
}

/// A sysctl that is read-only in a network namespace is left to you, with the command to run
/// outside. All other changes stay in the plan.
#[test]
fn read_only_sysctls_are_skipped_with_the_command_to_set_them() {
    let mut readings = recordings("makita-2016");
    let writable_plan = plan(&readings, &builtin_profile("udp-server"));
    let path = "/calls/read_only/proc/sys/net/core/rmem_max.json";
    readings.last_mut().expect("a reading").insert_file(path, "true");
    let plan = plan(&readings, &builtin_profile("udp-server"));
    let mut expected = change_lines(&writable_plan);
    expected.retain(|change| !change.starts_with("net.core.rmem_max"));
    assert_eq!(expected.len() + 1, writable_plan.changes.len());
    assert_eq!(change_lines(&plan), expected);
    let skipped: Vec<&SkippedFinding> =
        plan.skipped.iter().filter(|skipped| skipped.why.contains("network namespace")).collect();
    assert!(
        skipped.iter().any(|skipped| skipped.commands == ["sysctl -w net.core.rmem_max=4194304"]),
        "{skipped:#?}"
    );
}

/// The machine of 2016 with eight channels of the 63 that its NIC offers.
fn with_eight_channels() -> HostRecording {
    let mut tree = fixture("makita-2016").expect("a fixture").first;
    for queue in 8..20 {
        let irq = 105 + queue;
        tree.remove_below(&[
            &format!("/sys/class/net/ens1f0/queues/rx-{queue}/"),
            &format!("/sys/class/net/ens1f0/queues/tx-{queue}/"),
            &format!("/sys/devices/pci0000:00/0000:00:03.0/0000:04:00.0/msi_irqs/{irq}"),
            &format!("/proc/irq/{irq}/"),
        ]);
        let name = format!("ens1f0-TxRx-{queue}");
        tree.edit("/proc/interrupts", |text| {
            text.split_inclusive('\n').filter(|line| !line.trim_end().ends_with(&name)).collect()
        });
    }
    tree.edit("/calls/ethtool/ens1f0/channels.json", |text| text.replace("20", "8"));
    let table: Vec<u32> = (0..128).map(|entry| entry % 8).collect();
    let hash = serde_json::json!({ "function": "toeplitz", "key": "6d5a56da255b0ec24167253d43a38fb0" });
    tree.call("ethtool/ens1f0/rss", &serde_json::json!({ "table": table, "hash": hash }));
    recording(&tree)
}

#[test]
fn channel_changes_come_first_and_postpone_queue_and_irq_changes() {
    let readings = [with_eight_channels()];
    let plan = plan(&readings, &anyway("udp-server"));
    let lines = change_lines(&plan);
    assert_eq!(lines[0], "channels of ens1f0: combined 8 -> combined 20");
    assert_eq!(plan.changes[0].interrupts, ChangeImpact::Link);
    assert!(lines.iter().all(|change| !change.contains("cpus") && !change.contains("IRQ")), "{lines:?}");
    // The later layout is shown already.
    let interrupts: Vec<_> = plan.layouts[0].queues.iter().filter_map(|queue| queue.interrupt).collect();
    assert_eq!(interrupts, plan.cpus);
    assert_eq!((interrupts.len(), plan.layouts[0].queues[19].transmit.as_str()), (20, "19"));
    let first_part = plan.until_link_reset().expect("a reset");
    assert_eq!((first_part.changes.len(), first_part.layouts), (1, plan.layouts.clone()));
    let rehearsal = rehearse(readings.to_vec(), &Scope::default(), &plan);
    assert_eq!(rehearsal.unrehearsed.len(), 1);
}

#[test]
fn kernel_managed_interrupts_are_skipped_with_a_reason() {
    let host = Host::recorded(recordings("makita-2016").remove(0));
    let mut path = PacketPath::observe(&host, &Scope::default());
    let linerate_host::Known::Value(vectors) = &mut path.irq.interfaces[0].vectors else { panic!("vectors") };
    vectors.iter_mut().for_each(|vector| vector.managed = linerate_host::Known::Value(Some(true)));
    let plan = of_states(&host, &[path], &anyway("udp-server"));
    assert!(plan.changes.iter().all(|change| !change.setting.to_string().contains("IRQ")));
    let skipped = plan.skipped.iter().find(|skipped| skipped.finding == "irq.stacked").expect("skipped");
    assert_eq!(skipped.why, "The kernel manages where ens1f0's interrupts go, and allows no change.");
}

#[test]
fn custom_profile_controls_free_cpus_and_gro_forwarding() {
    let text = builtin_profile("udp-server").text.replace("free = \"\"", "free = \"0,10\"");
    let [gro, forwarding] = ["generic-receive-offload", "rx-udp-gro-forwarding"]
        .map(|knob| format!("interface = \"{knob}\"\nto = \"o"));
    let text = text.replace(&format!("{gro}ff"), &format!("{forwarding}n"));
    let profile = TuneProfile { anyway: true, ..TuneProfile::parse(&text, "mine.toml").expect("a profile") };
    let mut tree = fixture("makita-2016").expect("a fixture").first;
    tree.edit("/calls/ethtool/ens1f0/features.json", |text| {
        text.replacen('{', r#"{ "rx-udp-gro-forwarding": false,"#, 1)
    });
    let plan = plan(&[recording(&tree)], &profile);
    let forwarding_change = "ens1f0 rx-udp-gro-forwarding: off -> on";
    assert!(
        change_lines(&plan).iter().any(|change| change == forwarding_change),
        "{:?}",
        change_lines(&plan)
    );
    assert_eq!(plan.cpus, [1, 2, 3, 4, 11, 12, 13, 14, 5, 6, 7, 8, 9, 15, 16, 17, 18, 19]);
    for queue in &plan.layouts[0].queues {
        assert!(queue.interrupt.is_some_and(|cpu| cpu != 0 && cpu != 10), "{queue:?}");
    }
}

fn has_finding_or_profile_value(change: &PlannedChange, profile: &TuneProfile) -> bool {
    let is_set_by = |value: &crate::profile::ProfileValue| match &value.knob {
        crate::profile::ProfileKnob::Sysctl(name) => change.setting == Setting::sysctl(name.clone()),
        crate::profile::ProfileKnob::Interface(_) => {
            matches!(
                change.setting,
                Setting::Offload { .. } | Setting::Coalesce { .. } | Setting::Napi { .. }
            )
        }
        crate::profile::ProfileKnob::Governor => matches!(change.setting, Setting::Governor { .. }),
    };
    !change.findings.is_empty() || profile.values.iter().any(is_set_by)
}

/// Drivers place their queues well on machines of any shape, so no plan changes that.
#[test]
fn plans_for_healthy_guests_place_no_queue_or_interrupt() {
    for fixture in healthy_guests() {
        let readings: Vec<HostRecording> = fixture.trees().iter().map(recording).collect();
        for name in ["udp-server", "udp-server-with-tcp"] {
            // The only change is a value of the profile, which a later service may request.
            let plan = plan(&readings, &builtin_profile(name));
            let changes = ["net.core.rmem_max: 212992 -> 4194304"];
            assert_eq!(change_lines(&plan), changes, "{}, {name}", fixture.name);
            assert_eq!((plan.exclusions.len(), plan.held_back.len()), (0, 0));
        }
        for name in PROFILES {
            let profile = builtin_profile(name);
            for change in plan(&readings, &profile).changes {
                assert!(
                    has_finding_or_profile_value(&change, &profile),
                    "{}, {name}: {change:?}",
                    fixture.name
                );
                let is_placement = crate::layout::PlacementOwner::of(&change.setting).is_some();
                assert!(!is_placement, "{}, {name}: {} {}", fixture.name, change.setting, change.to);
            }
        }
    }
}

#[test]
fn profile_limited_to_one_stage_fixes_only_findings_of_that_stage() {
    for stage in ["link", "irq", "route"] {
        let mut profile = anyway("udp-server");
        profile.values.clear();
        let of_stage = |id: &str| id.split_once('.').is_some_and(|(of, _)| of == stage);
        for rule in linerate_host::diagnosis::rules().filter(|rule| !of_stage(rule.id)) {
            let policy = FindingPolicy::Leave("--only does not name it.".to_owned());
            profile.findings.insert(rule.id.to_owned(), policy);
        }
        for name in FIXTURES {
            for change in plan(&recordings(name), &profile).changes {
                assert!(change.findings.iter().all(|id| of_stage(id)), "{name}, {stage}: {change:?}");
                let is_placement = crate::layout::PlacementOwner::of(&change.setting).is_some();
                assert!(!is_placement || stage == "irq", "{name}, {stage}: {} {}", change.setting, change.to);
            }
        }
    }
}

/// The target includes settings that are right already, because the next boot may reset them.
#[test]
fn target_includes_settings_that_already_have_the_planned_value() {
    let mut tree = fixture("makita-2016").expect("a fixture").first;
    // The interrupt of queue 3 is already on the planned CPU.
    tree.line("/proc/irq/108/smp_affinity", "00008");
    tree.line("/proc/irq/108/smp_affinity_list", 3);
    tree.line("/proc/sys/net/core/rmem_max", 4_194_304);
    let plan = plan(&[recording(&tree)], &anyway("udp-server"));
    let affinity_changes =
        plan.changes.iter().filter(|change| change.setting.to_string().contains("IRQ")).count();
    let names: Vec<String> = plan.target.iter().map(|target| target.setting.to_string()).collect();
    assert_eq!(affinity_changes, 19);
    for expected in [
        "affinity of IRQ 108 (ens1f0-TxRx-3)",
        "net.core.rmem_max",
        "ens1f0 rx-0/rps_cpus",
        "ens1f0 tx-19/xps_cpus",
    ] {
        assert!(names.iter().any(|name| name == expected), "{expected}: {names:?}");
    }
    let is_changed =
        |target: &TargetSetting| plan.changes.iter().any(|change| change.setting == target.setting);
    assert!(!plan.target.iter().any(is_changed));
}
