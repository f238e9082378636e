use linerate_host::recording::RecordedEntry;
use linerate_host::{Diagnosis, Host, HostRecording, HostView, PacketPath, Scope, Severity};
use linerate_testkit::fixture::{Node, Tree, fixture, healthy_guests};

use super::*;
use crate::TuneProfile;

pub(super) fn recording(tree: &Tree) -> HostRecording {
    let mut recording = HostRecording::new();
    for (path, node) in tree.followed().entries() {
        let entry = match node {
            Node::File(content) => RecordedEntry::File(content.clone().into_bytes()),
            Node::Link(target) => RecordedEntry::Link(target.clone()),
        };
        recording.insert(path, entry);
    }
    recording
}

pub(crate) fn recordings(name: &str) -> Vec<HostRecording> {
    fixture(name).expect("a fixture").trees().iter().map(recording).collect()
}

/// The plan for recorded readings.
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

pub(super) fn named(name: &str) -> TuneProfile {
    TuneProfile::named(name).expect("a profile")
}

/// The profile with `--anyway`: changes are planned although another fix should come first.
pub(super) fn anyway(name: &str) -> TuneProfile {
    TuneProfile { anyway: true, ..named(name) }
}

pub(crate) fn shown(plan: &TunePlan) -> Vec<String> {
    plan.changes
        .iter()
        .map(|change| format!("{}: {} -> {}", change.setting, change.from, change.to))
        .collect()
}

const PROFILES: [&str; 4] = ["udp-server", "udp-server-with-tcp", "hypervisor", "low-latency"];
const FIXTURES: [&str; 5] = ["makita-2016", "makita-2016-fixed", "million-packets", "many", "small-vm"];

#[test]
fn nothing_above_a_note_remains_but_what_is_left_with_a_reason() {
    for (name, profile) in FIXTURES.iter().flat_map(|name| PROFILES.map(|profile| (*name, profile))) {
        let readings = recordings(name);
        let plan = plan(&readings, &named(profile));
        let rehearsal = rehearse(readings, &Scope::default(), &plan);
        assert!(rehearsal.unrehearsed.is_empty(), "{name}: {:?}", rehearsal.unrehearsed);
        for finding in &rehearsal.diagnosis.findings {
            let left = plan.skipped.iter().any(|left| left.finding == finding.id && !left.why.is_empty());
            let waits = plan.held_back.iter().any(|held| held.fixes(finding.id));
            // The recording keeps the distribution of packets, whatever the plan changes.
            let recorded = finding.id == "rss.single-flow";
            // The profile enables merging, and this host had it switched off.
            let wanted =
                (name, profile, finding.id) == ("makita-2016-fixed", "hypervisor", "link.gro-for-udp");
            let expected = finding.severity == Severity::Note || left || waits || recorded || wanted;
            assert!(expected, "{name}, {profile}: {} {}", finding.id, finding.title);
        }
    }
}

#[test]
fn a_plan_that_was_carried_out_leaves_nothing_to_change() {
    for (name, profile) in FIXTURES.iter().flat_map(|name| PROFILES.map(|profile| (*name, profile))) {
        let readings = recordings(name);
        let profile = named(profile);
        let rehearsal = rehearse(readings.clone(), &Scope::default(), &plan(&readings, &profile));
        let again = of_states(&rehearsal.host, &rehearsal.readings, &profile);
        assert_eq!(shown(&again), [""; 0], "{name}, {}", profile.name);
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
fn packets_are_not_spread_over_more_cpus_while_one_socket_is_shared() {
    for profile in PROFILES {
        let readings = recordings("makita-2016");
        let plan = plan(&readings, &named(profile));
        assert_eq!(plan.changes.iter().filter(|change| spreads(change)).count(), 0, "{profile}: {plan:#?}");
        let [held] = plan.held_back.as_slice() else { panic!("{profile}: {:?}", plan.held_back) };
        assert_eq!(held.until_fixed, "socket.shared-by-threads");
        assert!(held.changes.iter().all(spreads), "{profile}: {:?}", held.changes);
        let interrupts = held.changes.iter().filter(|change| change.setting.to_string().contains("IRQ"));
        assert_eq!(interrupts.count(), 20, "{profile}");
        // As with `--anyway`: one layout, not parts of two.
        let mut at_once = shown(&self::plan(&readings, &anyway(profile)));
        at_once.retain(|change| change.contains("IRQ") || change.contains("rps_cpus"));
        let waiting = held.changes.iter();
        let waiting: Vec<String> =
            waiting.map(|change| format!("{}: {} -> {}", change.setting, change.from, change.to)).collect();
        assert_eq!(waiting, at_once, "{profile}");
        assert!(
            held.effect.contains("270,000 to 17,000") && held.fix_first.contains("SO_REUSEPORT"),
            "{held:?}"
        );
        assert!(held.why.contains("20 threads serve one socket"), "{held:?}");
        // Pinned threads do not help before each has its own socket.
        let pinned =
            |skipped: &&SkippedFinding| skipped.commands.iter().any(|command| command.starts_with("taskset"));
        assert!(!plan.skipped.iter().any(|left| pinned(&left)), "{:?}", plan.skipped);
        // The layout shows where packets go now.
        let now: Vec<_> = plan.layouts[0].queues.iter().map(|queue| queue.interrupt).collect();
        assert_eq!(now[..4], [Some(12), Some(11), Some(10), Some(10)]);
    }
}

/// A socket per thread has to come first.
#[test]
fn packets_are_spread_once_each_thread_has_its_own_socket() {
    let mut tree = fixture("makita-2016").expect("a fixture").first;
    let fixed = fixture("makita-2016-fixed").expect("a fixture").first;
    let of_sockets = ["/proc/net/udp", "/calls/sock_diag/", "/calls/reuseport/", "/calls/socket/"];
    let of_processes = ["/proc/4711/", "/proc/811/", "/calls/irqbalance/"];
    tree.copy_below(&[&of_sockets[..], &of_processes].concat(), &fixed);
    let plan = plan(&[recording(&tree)], &named("udp-server"));
    assert_eq!((plan.changes.iter().filter(|change| spreads(change)).count(), plan.held_back.len()), (24, 0));
}

/// The changes to the host on the slides of 2016. Threads and sockets belong to the server.
#[test]
fn the_machine_of_2016_is_tuned_as_the_slides_did_when_told_to_do_so_anyway() {
    let plan = plan(&recordings("makita-2016"), &anyway("udp-server"));
    assert_eq!(plan.held_back, []);
    let shown = shown(&plan);
    let irqs = (0..20)
        .map(|queue| (105 + queue, queue))
        .map(|(irq, cpu): (u32, u32)| format!("affinity of IRQ {irq} (ens1f0-TxRx-{cpu}): "));
    for (irq, change) in irqs.zip(&plan.changes) {
        assert!(change.setting.to_string().starts_with(&irq[..irq.len() - 2]), "{irq} {}", change.setting);
        assert_eq!(change.findings, ["irq.one-node", "irq.stacked", "irq.not-hint"]);
    }
    assert_eq!(
        shown[20..],
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
    let threads = plan.skipped.iter().find(|left| left.finding == "thread.unpinned").expect("left");
    assert_eq!((threads.commands.len(), threads.commands[19].as_str()), (20, "taskset -pc 19 4730"));
    assert!(
        plan.skipped.iter().any(|left| left.finding == "filter.hooks-without-rules"),
        "{:?}",
        plan.skipped
    );
}

#[test]
fn every_change_says_why_and_where_that_is_from() {
    for (name, profile) in FIXTURES.iter().flat_map(|name| PROFILES.map(|profile| (*name, profile))) {
        for change in plan(&recordings(name), &named(profile)).changes {
            assert!(change.why.ends_with('.') && change.source.is_some(), "{name}, {profile}: {change:?}");
            assert!(change.setting.check(&change.to).is_ok(), "{}", change.setting);
        }
    }
}

/// A sysctl that is read-only in a network namespace is left to you, with the command to run
/// outside. All other changes stay in the plan.
#[test]
fn what_nobody_can_set_here_is_left_to_a_person() {
    let mut readings = recordings("makita-2016");
    let all = plan(&readings, &named("udp-server"));
    let path = "/calls/read_only/proc/sys/net/core/rmem_max.json";
    readings.last_mut().expect("a reading").insert(path, RecordedEntry::File(b"true".to_vec()));
    let plan = plan(&readings, &named("udp-server"));
    let mut expected = shown(&all);
    expected.retain(|change| !change.starts_with("net.core.rmem_max"));
    assert_eq!(expected.len() + 1, all.changes.len());
    assert_eq!(shown(&plan), expected);
    let left: Vec<&SkippedFinding> =
        plan.skipped.iter().filter(|left| left.why.contains("network namespace")).collect();
    assert!(left.iter().any(|left| left.commands == ["sysctl -w net.core.rmem_max=4194304"]), "{left:#?}");
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
fn what_resets_an_interface_comes_first_and_its_queues_are_planned_after_it() {
    let readings = [with_eight_channels()];
    let plan = plan(&readings, &anyway("udp-server"));
    let shown = shown(&plan);
    assert_eq!(shown[0], "channels of ens1f0: combined 8 -> combined 20");
    assert_eq!(plan.changes[0].interrupts, ChangeImpact::Link);
    assert!(shown.iter().all(|change| !change.contains("cpus") && !change.contains("IRQ")), "{shown:?}");
    // The later layout is shown already.
    let interrupts: Vec<_> = plan.layouts[0].queues.iter().filter_map(|queue| queue.interrupt).collect();
    assert_eq!(interrupts, plan.cpus);
    assert_eq!((interrupts.len(), plan.layouts[0].queues[19].transmit.as_str()), (20, "19"));
    let first = plan.until_link_reset().expect("a reset");
    assert_eq!((first.changes.len(), first.layouts), (1, plan.layouts.clone()));
    let rehearsal = rehearse(readings.to_vec(), &Scope::default(), &plan);
    assert_eq!(rehearsal.unrehearsed.len(), 1);
    let mut without = plan;
    without.leave_out(|change| {
        (change.interrupts == ChangeImpact::Link).then(|| "the interface must not pause".to_owned())
    });
    assert_eq!(without.until_link_reset(), None);
    let left =
        without.skipped.iter().find(|left| left.title.starts_with("channels of ens1f0")).expect("left");
    assert_eq!(left.commands, ["ethtool -L ens1f0 combined 20"]);
}

#[test]
fn interrupts_that_the_kernel_manages_are_left_with_that_reason() {
    let host = Host::recorded(recordings("makita-2016").remove(0));
    let mut path = PacketPath::observe(&host, &Scope::default());
    let linerate_host::Known::Value(vectors) = &mut path.irq.interfaces[0].vectors else { panic!("vectors") };
    vectors.iter_mut().for_each(|vector| vector.managed = linerate_host::Known::Value(Some(true)));
    let plan = of_states(&host, &[path], &anyway("udp-server"));
    assert!(plan.changes.iter().all(|change| !change.setting.to_string().contains("IRQ")));
    let left = plan.skipped.iter().find(|left| left.finding == "irq.stacked").expect("left");
    assert_eq!(left.why, "The kernel manages where ens1f0's interrupts go, and allows no change.");
}

#[test]
fn a_profile_of_ones_own_decides_which_cpus_take_packets_and_which_are_merged() {
    let text = named("udp-server").text.replace("free = \"\"", "free = \"0,10\"");
    let [gro, forwarded] = ["generic-receive-offload", "rx-udp-gro-forwarding"]
        .map(|knob| format!("interface = \"{knob}\"\nto = \"o"));
    let text = text.replace(&format!("{gro}ff"), &format!("{forwarded}n"));
    let profile = TuneProfile { anyway: true, ..TuneProfile::parse(&text, "mine.toml").expect("a profile") };
    let mut tree = fixture("makita-2016").expect("a fixture").first;
    tree.edit("/calls/ethtool/ens1f0/features.json", |text| {
        text.replacen('{', r#"{ "rx-udp-gro-forwarding": false,"#, 1)
    });
    let plan = plan(&[recording(&tree)], &profile);
    let merged = "ens1f0 rx-udp-gro-forwarding: off -> on";
    assert!(shown(&plan).iter().any(|change| change == merged), "{:?}", shown(&plan));
    assert_eq!(plan.cpus, [1, 2, 3, 4, 11, 12, 13, 14, 5, 6, 7, 8, 9, 15, 16, 17, 18, 19]);
    for queue in &plan.layouts[0].queues {
        assert!(queue.interrupt.is_some_and(|cpu| cpu != 0 && cpu != 10), "{queue:?}");
    }
}

/// Whether a change fixes a finding or is a value of the profile.
fn is_asked_for(change: &PlannedChange, profile: &TuneProfile) -> bool {
    let named = |wanted: &crate::profile::ProfileValue| match &wanted.knob {
        crate::profile::ProfileKnob::Sysctl(name) => change.setting == Setting::sysctl(name.clone()),
        crate::profile::ProfileKnob::Interface(_) => {
            matches!(
                change.setting,
                Setting::Offload { .. } | Setting::Coalesce { .. } | Setting::Napi { .. }
            )
        }
        crate::profile::ProfileKnob::Governor => matches!(change.setting, Setting::Governor { .. }),
    };
    !change.findings.is_empty() || profile.values.iter().any(named)
}

/// Drivers place their queues well on machines of any shape, so no plan changes that.
#[test]
fn healthy_guests_are_left_as_they_are() {
    for fixture in healthy_guests() {
        let readings: Vec<HostRecording> = fixture.trees().iter().map(recording).collect();
        for name in ["udp-server", "udp-server-with-tcp"] {
            // The only change is a value of the profile, which a later service may request.
            let plan = plan(&readings, &named(name));
            let changes = ["net.core.rmem_max: 212992 -> 4194304"];
            assert_eq!(shown(&plan), changes, "{}, {name}", fixture.name);
            assert_eq!((plan.exclusions.len(), plan.held_back.len()), (0, 0));
        }
        for name in PROFILES {
            let profile = named(name);
            for change in plan(&readings, &profile).changes {
                assert!(is_asked_for(&change, &profile), "{}, {name}: {change:?}", fixture.name);
                let places = crate::layout::PlacementOwner::of(&change.setting).is_some();
                assert!(!places, "{}, {name}: {} {}", fixture.name, change.setting, change.to);
            }
        }
    }
}

#[test]
fn each_change_fixes_a_finding_or_is_asked_for_by_the_profile() {
    for (name, profile) in FIXTURES.iter().flat_map(|name| PROFILES.map(|profile| (*name, profile))) {
        for profile in [named(profile), anyway(profile)] {
            for change in plan(&recordings(name), &profile).changes {
                assert!(is_asked_for(&change, &profile), "{name}, {}: {change:?}", profile.name);
            }
        }
    }
}

/// A profile that fixes only the findings of one stage changes nothing else.
#[test]
fn of_one_stage_only_its_findings_are_fixed() {
    for stage in ["link", "irq", "route"] {
        let mut profile = anyway("udp-server");
        profile.values.clear();
        let of_stage = |id: &str| id.split_once('.').is_some_and(|(of, _)| of == stage);
        for rule in linerate_host::diagnosis::rules().filter(|rule| !of_stage(rule.id)) {
            profile.fix.remove(rule.id);
            profile.leave.insert(rule.id.to_owned(), "--only does not name it.".to_owned());
        }
        for name in FIXTURES {
            for change in plan(&recordings(name), &profile).changes {
                assert!(change.findings.iter().all(|id| of_stage(id)), "{name}, {stage}: {change:?}");
                let places = crate::layout::PlacementOwner::of(&change.setting).is_some();
                assert!(!places || stage == "irq", "{name}, {stage}: {} {}", change.setting, change.to);
            }
        }
    }
}

/// The target includes settings that are right already, because the next boot may reset them.
#[test]
fn the_target_has_what_is_right_already_too() {
    let mut tree = fixture("makita-2016").expect("a fixture").first;
    // The interrupt of queue 3 is already on the planned CPU.
    tree.line("/proc/irq/108/smp_affinity", "00008");
    tree.line("/proc/irq/108/smp_affinity_list", 3);
    tree.line("/proc/sys/net/core/rmem_max", 4_194_304);
    let plan = plan(&[recording(&tree)], &anyway("udp-server"));
    let moved = plan.changes.iter().filter(|change| change.setting.to_string().contains("IRQ")).count();
    let kept: Vec<String> = plan.target.iter().map(|kept| kept.setting.to_string()).collect();
    assert_eq!(moved, 19);
    for wanted in [
        "affinity of IRQ 108 (ens1f0-TxRx-3)",
        "net.core.rmem_max",
        "ens1f0 rx-0/rps_cpus",
        "ens1f0 tx-19/xps_cpus",
    ] {
        assert!(kept.iter().any(|kept| kept == wanted), "{wanted}: {kept:?}");
    }
    let twice = |kept: &TargetSetting| plan.changes.iter().any(|change| change.setting == kept.setting);
    assert!(!plan.target.iter().any(twice));
}
