use std::collections::BTreeMap;

use linerate_host::delivery::{ArrivalCount, DeliveryCount, DeliveryReport, FlowCounts, SendCount};
use linerate_host::setting::SocketKnob;
use linerate_host::{Known, Setting};

use super::sample::{BoostSampleMachine, cpus, echo, nsd, pins, reader, seen_on, sent, server, tables};
use super::*;

fn plan_on(server: &ObservedServer, machine: &BoostSampleMachine) -> BoostPlan {
    make(server, &machine.path(), &BoostChoice::default())
}

/// A plan for a machine with two CPUs.
fn plan_with(server: &ObservedServer, choice: &BoostChoice) -> BoostPlan {
    make(server, &BoostSampleMachine::of(2).path(), choice)
}

fn pairs(map: &BTreeMap<u32, String>) -> Vec<(u32, &str)> {
    map.iter().map(|(tid, cpu)| (*tid, cpu.as_str())).collect()
}

#[test]
fn nsd_servers_get_one_cpu_each_in_all_groups() {
    let plan = plan_on(&nsd(2, "0-1"), &BoostSampleMachine::of(2));
    assert_eq!(plan.plan.goal, "boost nsd on port 53");
    assert_eq!(pairs(&pins(&plan)), [(800, "0"), (801, "1")]);
    let tables = tables(&plan);
    assert_eq!(tables["udp 0.0.0.0:53"], "by-cpu 0:100 1:101");
    assert_eq!(tables["udp [::]:53"], "by-cpu 0:200 1:201");
    assert_eq!(tables["tcp 0.0.0.0:53"], "by-cpu 0:300 1:301");
    assert!(plan.refusals.is_empty() && plan.advice.is_empty(), "{plan:#?}");
    let assignment =
        CpuAssignment { cpu: 1, receives: true, sockets: vec![101, 201, 301], threads: vec![801] };
    assert_eq!(plan.places[1], assignment);
}

#[test]
fn threads_are_pinned_before_steering_programs_are_attached() {
    let plan = plan_on(&nsd(2, "0-1"), &BoostSampleMachine::of(2));
    let steers = |change: &PlannedChange| matches!(change.setting, Setting::Steering { .. });
    let first = plan.plan.changes.iter().position(steers).expect("steered");
    assert!(plan.plan.changes[first..].iter().all(steers));
    assert_eq!(first, 2);
    for change in &plan.plan.changes {
        assert_ne!(change.from, change.to);
        change.setting.check(&change.to).expect("a valid value");
    }
    let text = serde_json::to_string(&plan.plan).expect("JSON");
    assert_eq!(serde_json::from_str::<TunePlan>(&text).expect("a plan"), plan.plan);
}

#[test]
fn observed_arrival_cpus_override_interrupt_affinities() {
    let mut server = echo(2, "0-3");
    seen_on(&mut server, "2-3");
    let machine = BoostSampleMachine { vectors: vec![0, 1], ..BoostSampleMachine::of(4) };
    let plan = plan_on(&server, &machine);
    assert_eq!(pairs(&pins(&plan)), [(800, "2"), (801, "3")]);
    assert_eq!(plan.plan.cpus, [2, 3]);
    assert_eq!(tables(&plan)["udp 0.0.0.0:7"], "by-cpu 0:100 1:101 2:100 3:101");
}

#[test]
fn table_is_kept_if_the_traffic_changes_and_it_spreads_packets_as_evenly() {
    let path = BoostSampleMachine { vectors: vec![0, 1, 2, 3], ..BoostSampleMachine::of(4) }.path();
    let plan_now = |server: &ObservedServer| make(server, &path, &BoostChoice::default());
    let mut server = echo(2, "0-3");
    seen_on(&mut server, "1-3");
    let plan = plan_now(&server);
    let table = tables(&plan)["udp 0.0.0.0:7"].clone();
    for (tid, cpu) in pins(&plan) {
        let reader = server.readers.iter_mut().find(|reader| reader.tid == tid).expect("a reader");
        reader.allowed = Known::Value(cpus(&cpu));
    }
    server.groups[0].steering = Known::Value(table.clone());
    server.delivery = Known::unknown("nobody looked");
    assert_eq!(table, "by-cpu 0:101 1:100 2:101 3:100");
    let kept = plan_now(&server);
    assert_eq!(kept.plan.changes, []);
    let sockets: Vec<_> = kept.places.iter().map(|place| &place.sockets[..]).collect();
    assert_eq!(sockets, [[101], [100], [101], [100]]);
    // A row without a socket, a socket in another unit's row, an uneven table.
    for other in
        ["by-cpu 0:101 1:100 2:101", "by-cpu 0:101 1:101 2:100 3:100", "by-cpu 0:100 1:100 2:101 3:100"]
    {
        server.groups[0].steering = Known::Value(other.to_owned());
        let changes = plan_now(&server).plan.changes;
        assert_eq!((changes.len(), changes[0].from.as_str()), (1, other));
    }
}

#[test]
fn nothing_is_placed_if_only_buffers_grow() {
    let buffers = BoostChoice { receive_buffer_bytes: Some(8 << 20), ..BoostChoice::default() };
    let no_pin = BoostChoice { no_pin: true, no_steer: true, ..buffers };
    // A table that is like the hash: both threads are confined to one CPU.
    for (server, choice) in [(nsd(2, "0-1"), no_pin), (nsd(2, "1"), BoostChoice { no_pin: true, ..buffers })]
    {
        let plan = plan_with(&server, &choice);
        assert!(!plan.plan.changes.is_empty() && tables(&plan).is_empty(), "{plan:#?}");
        assert_eq!(plan.places, []);
    }
}

#[test]
fn packets_arrive_on_the_cpus_of_rps() {
    let server = echo(2, "0-3");
    let machine =
        BoostSampleMachine { vectors: vec![0], rps: vec!["2-3".into()], ..BoostSampleMachine::of(4) };
    let plan = plan_on(&server, &machine);
    assert_eq!(pairs(&pins(&plan)), [(800, "2"), (801, "3")]);
}

#[test]
fn two_readers_on_twenty_cpus_get_the_packets_of_their_numa_nodes() {
    let mut server = echo(2, "0-19");
    server.readers[0].allowed = Known::Value(cpus("0-9"));
    server.readers[1].allowed = Known::Value(cpus("10-19"));
    let machine =
        BoostSampleMachine { nodes: vec!["0-9".into(), "10-19".into()], ..BoostSampleMachine::of(20) };
    let plan = plan_on(&server, &machine);
    assert_eq!(pairs(&pins(&plan)), [(800, "0"), (801, "10")]);
    let table: SteeringTable = tables(&plan)["udp 0.0.0.0:7"].parse().expect("a table");
    assert_eq!(table.by_cpu.len(), 20);
    for (cpu, row) in &table.by_cpu {
        assert_eq!(*row, [if *cpu < 10 { 100 } else { 101 }], "CPU {cpu}");
    }
    let advice = &plan.advice[0].what;
    assert!(advice.starts_with("Packets arrive on 20 CPUs, and 2 threads read them"), "{advice}");
}

#[test]
fn readers_beyond_the_receiving_cpus_run_on_other_cpus() {
    let server = echo(4, "0-3");
    let machine = BoostSampleMachine { vectors: vec![0, 1], ..BoostSampleMachine::of(4) };
    let plan = plan_on(&server, &machine);
    assert_eq!(pairs(&pins(&plan)), [(800, "0"), (801, "1"), (802, "2"), (803, "3")]);
    assert_eq!(tables(&plan)["udp 0.0.0.0:7"], "by-cpu 0:100+102 1:101+103 2:102 3:103");
    assert!(plan.advice[0].what.contains("More queues, or RPS"), "{:?}", plan.advice);
}

#[test]
fn threads_bound_by_the_server_keep_their_cpu() {
    let mut server = nsd(2, "0-3");
    server.readers[0].allowed = Known::Value(cpus("3"));
    let plan = plan_on(&server, &BoostSampleMachine::of(4));
    assert_eq!(pairs(&pins(&plan)), [(801, "0")]);
    assert_eq!(tables(&plan)["udp 0.0.0.0:53"], "by-cpu 0:101 1:101 2:100 3:100");
}

#[test]
fn single_socket_with_several_threads_is_refused_with_advice() {
    let mut server =
        server("nsd", &[(SocketProtocol::Udp, "0.0.0.0:53"), (SocketProtocol::Udp, "[::]:53")], 1, "0-3");
    server.readers.push(reader("nsd", 900, vec![100], "0-3"));
    let plan = plan_on(&server, &BoostSampleMachine::of(4));
    assert!(plan.plan.changes.is_empty());
    let why: Vec<&str> = plan.refusals.iter().map(|refusal| refusal.why.as_str()).collect();
    assert_eq!(
        why,
        [
            "one socket, 2 threads: nothing can be steered: all packets queue at one lock and one buffer",
            "one socket, 1 thread: nothing can be steered"
        ]
    );
    assert!(plan.advice[0].what.contains("480,000") && plan.advice[0].what.contains("650,000"));
    assert_eq!(plan.advice[0].option.as_deref(), Some("reuseport: yes"));
    assert_eq!(plan.advice[1].option.as_deref(), Some("server-count: 4"));
    assert_eq!(plan.plan.skipped.len(), 2);
}

/// Datagrams of the first group's sockets: cookie, CPU of arrival, CPU of the reader, and number.
fn set_delivery(server: &mut ObservedServer, counts: &[(u64, u32, u32, u64)]) {
    let read = counts.iter().map(|(cookie, from, on, packets)| DeliveryCount {
        cookie: *cookie,
        arrived_on: Some(*from),
        read_on: *on,
        pid: 1,
        tid: 1,
        packets: *packets,
    });
    let arrived = counts.iter().map(|(cookie, cpu, _, packets)| ArrivalCount {
        cookie: *cookie,
        cpu: *cpu,
        packets: *packets,
        refused: 0,
    });
    let (read, arrived) = (read.collect(), arrived.collect());
    server.delivery =
        Known::Value(DeliveryReport { seconds: 2.0, read, arrived, ..DeliveryReport::default() });
}

#[test]
fn servers_with_per_thread_client_state_are_steered_only_with_anyway() {
    for (name, port) in
        [("turnserver", "3478"), ("nginx", "443"), ("unknown", "443"), ("haproxy", "8443"), ("knotd", "853")]
    {
        let mut server = server(name, &[(SocketProtocol::Udp, &format!("0.0.0.0:{port}"))], 2, "0-1");
        server.product = server.product.or_else(|| {
            crate::boost::catalog::of_ports(&[port.parse().expect("a port")])
                .map(|product| product.id.clone())
        });
        let plan = plan_on(&server, &BoostSampleMachine::of(2));
        assert!(plan.plan.changes.is_empty() && plan.places.is_empty(), "{name}: {plan:#?}");
        let why = &plan.refusals[0].why;
        assert!(why.contains("keeps each client's state in") && why.contains("https://"), "{why}");
        let anyway_plan = plan_with(&server, &BoostChoice { anyway: true, ..BoostChoice::default() });
        assert!(!anyway_plan.plan.changes.is_empty(), "{name}: {:?}", anyway_plan.refusals);
    }
}

#[test]
fn plans_without_benefit_are_refused() {
    let plan_for = |counts: &[(u64, u32, u32, u64)]| {
        let mut server = echo(2, "0-1");
        set_delivery(&mut server, counts);
        plan_on(&server, &BoostSampleMachine { vectors: vec![0], ..BoostSampleMachine::of(2) })
    };
    // All datagrams arrive on CPU 0, and the scheduler runs both threads there most of the time.
    let plan = plan_for(&[(100, 0, 0, 430), (100, 0, 1, 70), (101, 0, 0, 430), (101, 0, 1, 70)]);
    assert!(plan.plan.changes.is_empty() && plan.places.is_empty(), "{plan:#?}");
    assert!(plan.refusals[0].why.contains("50 % would be: that is worse"), "{:?}", plan.refusals);
    // Nearly all datagrams are read on the CPU of arrival.
    let plan = plan_for(&[(100, 0, 0, 500), (101, 1, 1, 495), (101, 1, 0, 5)]);
    assert!(plan.plan.changes.is_empty(), "{plan:#?}");
    assert!(plan.refusals[0].why.contains("that changes nothing"), "{:?}", plan.refusals);
    // A plan with a benefit is made.
    let plan = plan_for(&[(100, 0, 0, 250), (100, 1, 0, 250), (101, 0, 1, 250), (101, 1, 1, 250)]);
    assert_eq!((pins(&plan).len(), tables(&plan).len()), (2, 1));
}

/// FreeRADIUS once got a larger buffer, which was undone because the scheduler had moved its
/// thread.
#[test]
fn buffer_only_changes_are_not_judged_by_delivery() {
    let before_and_after = [[750, 250], [250, 750]].map(|[local, remote]| {
        let mut server = server("freeradius", &[(SocketProtocol::Udp, "0.0.0.0:1812")], 1, "0-1");
        set_delivery(&mut server, &[(100, 0, 0, local), (100, 1, 0, remote)]);
        server
    });
    let [before, after] = &before_and_after;
    let assignment = CpuAssignment { cpu: 0, receives: true, sockets: vec![100], threads: vec![1] };
    assert_eq!(crate::boost::answers::harm(&[], before, after, None), None);
    let why = crate::boost::answers::harm(&[assignment], before, after, None).expect("harm");
    assert!(why.starts_with("75 % of its datagrams"), "{why}");
}

/// Their packets pass by the program that counts clients, as those of a macvlan of another namespace.
#[test]
fn clients_that_no_program_sees_are_silenced_if_datagrams_still_arrive() {
    let server_with = |requests, replies| {
        let mut server = echo(2, "0-1");
        set_delivery(&mut server, &[(100, 0, 0, requests)]);
        let sent = vec![SendCount { cookie: 100, packets: replies, largest_bytes: 64 }];
        server.delivery = server.delivery.map(|delivery| DeliveryReport { sent, ..delivery });
        server
    };
    let before = server_with(1000, 1000);
    let harm = |after| crate::boost::answers::harm(&[], &before, &after, Some(&FlowCounts::default()));
    assert!(harm(server_with(8, 0)).expect("harm").contains("its replies fell from 500 to 0"));
    assert_eq!(harm(server_with(0, 0)), None, "the load ended");
}

#[test]
fn servers_that_cannot_be_steered_are_refused_with_the_reason() {
    let steered_by = |program: &str| {
        let mut server = echo(2, "0-1");
        server.groups[0].steering = Known::Value(program.to_owned());
        server
    };
    let mut one_thread = echo(4, "0-3");
    one_thread.readers.truncate(1);
    one_thread.readers[0].sockets = vec![100, 101, 102, 103];
    let mut shared_socket = echo(2, "0-1");
    shared_socket.readers[1].sockets.push(100);
    for (server, cpus, expected) in [
        (server("echo", &[(SocketProtocol::Tcp, "0.0.0.0:7")], 2, "0-1"), 2, "no UDP socket"),
        (one_thread, 4, "steering would change nothing"),
        (shared_socket, 2, "2 threads read socket 100 of it: its packets have no one CPU to go to"),
        (steered_by("classic"), 2, "a classic BPF program of its own"),
        (
            steered_by("classic-by-cpu"),
            2,
            "by CPU already, by a classic BPF program of its own or of another tool",
        ),
        (steered_by("program pick (id 7)"), 2, "program pick (id 7)"),
    ] {
        let plan = plan_on(&server, &BoostSampleMachine::of(cpus));
        assert!(plan.plan.changes.is_empty(), "{expected}: {:#?}", plan.plan.changes);
        assert!(plan.refusals[0].why.contains(expected), "{:?}", plan.refusals);
    }
}

#[test]
fn threads_are_pinned_if_the_server_steers_by_cpu_itself() {
    let mut server = echo(2, "0-1");
    server.groups[0].steering = Known::Value("classic-by-cpu".to_owned());
    set_delivery(&mut server, &[(100, 1, 0, 300), (100, 1, 1, 200), (101, 0, 0, 250), (101, 0, 1, 250)]);
    let plan = plan_on(&server, &BoostSampleMachine::of(2));
    assert!(tables(&plan).is_empty(), "{:?}", tables(&plan));
    assert_eq!(pairs(&pins(&plan)), [(800, "1"), (801, "0")]);
}

#[test]
fn options_already_in_effect_are_not_advised() {
    let mut server = server("unbound", &[(SocketProtocol::Udp, "0.0.0.0:53")], 1, "0-1");
    server.readers.push(reader("unbound", 900, vec![100], "0-1"));
    let plan = plan_on(&server, &BoostSampleMachine::of(2));
    let options: Vec<&str> = plan.advice.iter().filter_map(|advice| advice.option.as_deref()).collect();
    assert_eq!(options, ["so-reuseport: yes"]);
}

#[test]
fn steering_of_boost_run_is_kept() {
    let mut server = echo(2, "0-1");
    let machine = BoostSampleMachine::of(2);
    let why = |server: &ObservedServer, is_steered_by_run| {
        let choice = BoostChoice { is_steered_by_run, ..BoostChoice::default() };
        let plan = make(server, &machine.path(), &choice);
        assert_eq!(plan.plan.changes.is_empty(), !plan.refusals.is_empty(), "{plan:#?}");
        plan.refusals.first().map(|refusal| refusal.why.clone()).unwrap_or_default()
    };
    // The table of --steer flow is one that boost could have made, too.
    server.groups[0].steering = Known::Value("by-cpu 0:100+101 1:100+101".to_owned());
    assert_eq!(why(&server, false), "");
    assert!(why(&server, true).contains("linerate boost run steers"));
    server.groups[0].steering = Known::Value("by-quic-id 0:100+101 1:100+101".to_owned());
    assert!(why(&server, false).contains("by QUIC connection ID"));
}

#[test]
fn sockets_without_a_reader_get_no_packets() {
    let mut server = nsd(2, "0-1");
    server.readers.remove(0);
    let plan = plan_on(&server, &BoostSampleMachine::of(2));
    assert_eq!(tables(&plan)["udp 0.0.0.0:53"], "by-cpu 0:101 1:101");
    assert!(plan.refusals[0].what.starts_with("socket 100 of udp 0.0.0.0:53"), "{:?}", plan.refusals);
}

#[test]
fn inherited_sockets_without_a_reader_get_no_packets() {
    let mut server = nsd(2, "0-1");
    server.readers.remove(0);
    // The worker also holds the dead worker's sockets, and was seen to read only its own.
    server.readers[0].sockets = vec![100, 101, 200, 201];
    server.readers[0].guessed = vec![100, 200];
    let plan = plan_on(&server, &BoostSampleMachine::of(2));
    assert_eq!(tables(&plan)["udp 0.0.0.0:53"], "by-cpu 0:101 1:101");
    assert_eq!(tables(&plan)["udp [::]:53"], "by-cpu 0:201 1:201");
}

#[test]
fn server_confined_to_one_cpu_is_not_steered() {
    let mut server = echo(2, "0-3");
    for reader in &mut server.readers {
        reader.cpuset = Some(cpus("2"));
    }
    let plan = plan_on(&server, &BoostSampleMachine::of(4));
    assert!(plan.plan.changes.is_empty());
    let refusals: Vec<(&str, &str)> =
        plan.refusals.iter().map(|refusal| (refusal.what.as_str(), refusal.why.as_str())).collect();
    assert_eq!(
        refusals,
        [
            ("thread 800 (echo), thread 801 (echo)", "its control group lets it run on CPU 2 alone"),
            ("udp 0.0.0.0:7", "one thread or one CPU has all its sockets: steering would change nothing"),
        ]
    );
}

#[test]
fn without_cap_bpf_sockets_get_so_incoming_cpu() {
    let mut server = echo(2, "0-1");
    server.groups[0].steering = Known::unknown("no CAP_BPF");
    let plan = plan_on(&server, &BoostSampleMachine::of(2));
    let incoming_cpus = changes_of(&plan, SocketKnob::IncomingCpu);
    assert_eq!(incoming_cpus, [("none".to_owned(), "0".to_owned()), ("none".to_owned(), "1".to_owned())]);
    let old_kernel = BoostSampleMachine { kernel: "6.1.0".into(), ..BoostSampleMachine::of(2) };
    let plan = plan_on(&server, &old_kernel);
    assert!(plan.plan.changes.is_empty() && plan.refusals[0].why.contains("no CAP_BPF"));
    server.groups[0].steering = Known::Value("none".to_owned());
    let plan =
        make(&server, &old_kernel.path(), &BoostChoice { by_incoming_cpu: true, ..BoostChoice::default() });
    assert!(plan.refusals[0].why.contains("since Linux 6.2 only"));
}

#[test]
fn sockets_with_so_incoming_cpu_get_no_steering_program() {
    let mut server = echo(2, "0-1");
    for (member, cpu) in server.groups[0].members.iter_mut().zip([1, 0]) {
        let options =
            linerate_host::stage::socket::SocketOptions { incoming_cpu: Some(cpu), ..Default::default() };
        member.options = Known::Value(Some(options));
    }
    let plan = plan_on(&server, &BoostSampleMachine::of(2));
    assert!(tables(&plan).is_empty());
    assert_eq!(pairs(&pins(&plan)), [(800, "1"), (801, "0")]);
    assert!(plan.refusals[0].why.contains("SO_INCOMING_CPU"));
}

fn changes_of(plan: &BoostPlan, knob: SocketKnob) -> Vec<(String, String)> {
    let of = |change: &&PlannedChange| matches!(&change.setting, Setting::Socket { knob: own, .. } if *own == knob);
    let values = |change: &PlannedChange| (change.from.to_string(), change.to.to_string());
    plan.plan.changes.iter().filter(of).map(values).collect()
}

#[test]
fn receive_buffers_grow_first_and_only_for_recent_drops_or_on_request() {
    let mut server = nsd(2, "0-1");
    server.groups[0].members[1].drops = Some(12);
    let plan = plan_on(&server, &BoostSampleMachine::of(2));
    assert!(changes_of(&plan, SocketKnob::ReceiveBuffer).is_empty(), "old drops do not count");
    let arrival = ArrivalCount { cookie: 101, cpu: 0, packets: 0, refused: 7 };
    server.delivery = Known::Value(DeliveryReport { arrived: vec![arrival], ..DeliveryReport::default() });
    let plan = plan_on(&server, &BoostSampleMachine::of(2));
    let change = ("212992 by default".to_owned(), "8388608".to_owned());
    assert_eq!(changes_of(&plan, SocketKnob::ReceiveBuffer), [change.clone(), change]);
    assert!(matches!(plan.plan.changes[0].setting, Setting::Socket { .. }));
    assert!(plan.plan.changes[0].why.contains("lost 7 packets"));
    assert_eq!(plan.advice[0].option.as_deref(), Some("receive-buffer-size: 4194304"));
    let larger = BoostChoice { receive_buffer_bytes: Some(1_000_001), ..BoostChoice::default() };
    let plan = plan_with(&nsd(2, "0-1"), &larger);
    let buffers = changes_of(&plan, SocketKnob::ReceiveBuffer);
    assert_eq!((buffers.len(), buffers[0].1.as_str()), (4, "1000002"));
    let smaller = BoostChoice { receive_buffer_bytes: Some(4096), ..BoostChoice::default() };
    let plan = plan_with(&nsd(2, "0-1"), &smaller);
    assert!(changes_of(&plan, SocketKnob::ReceiveBuffer).is_empty());
}

#[test]
fn skip_ip_id_requires_observed_replies_that_fit_the_mtu() {
    let choice = BoostChoice { skip_ip_id: true, ..BoostChoice::default() };
    let why =
        |server: &ObservedServer| plan_with(server, &choice).refusals.last().map(|last| last.why.clone());
    let mut server =
        server("echo", &[(SocketProtocol::Udp, "0.0.0.0:7"), (SocketProtocol::Udp, "[::]:7")], 2, "0-1");
    assert!(why(&server).is_some_and(|why| why.contains("nobody looked")));
    sent(&mut server, 10, 512);
    assert!(why(&server).is_some_and(|why| why.starts_with("20 replies were seen, too few")));
    sent(&mut server, 1000, 1473);
    let why_large = why(&server).expect("a refusal");
    assert!(why_large.contains("1473 bytes, with 28 of headers more than the 1500 of eth0"), "{why_large}");
    sent(&mut server, 1000, 1472);
    let plan = plan_with(&server, &choice);
    let change = ("want".to_owned(), "do".to_owned());
    assert_eq!(changes_of(&plan, SocketKnob::PathMtu), [change.clone(), change]);
    for member in &mut server.groups[0].members {
        let Known::Value(Some(options)) = &mut member.options else { unreachable!("a sample") };
        options.knobs.insert(SocketKnob::PathMtu, "omit".to_owned());
    }
    assert!(why(&server).is_some_and(|why| why.contains("'omit'")));
}

#[test]
fn skip_ip_id_refuses_sockets_of_both_families_only() {
    for (addresses, is_refused) in
        [(&["[::]:7"][..], true), (&["[::]:7", "0.0.0.0:7"], false), (&["[2001:db8::1]:7"], false)]
    {
        let addresses: Vec<_> = addresses.iter().map(|local| (SocketProtocol::Udp, *local)).collect();
        let mut server = server("echo", &addresses, 2, "0-1");
        sent(&mut server, 1000, 512);
        let choice = BoostChoice { skip_ip_id: true, ..BoostChoice::default() };
        let plan = make(&server, &BoostSampleMachine::of(2).path(), &choice);
        let has_refusal = plan.refusals.iter().any(|refusal| refusal.why.contains("may send IPv4 replies"));
        assert_eq!(has_refusal, is_refused, "{addresses:?} {:?}", plan.refusals);
    }
}

#[test]
fn unknown_servers_whose_datagrams_cannot_be_traced_are_not_judged() {
    let path = BoostSampleMachine::of(2).path();
    let why = |server: &ObservedServer, choice: &BoostChoice| {
        crate::boost::answers::steering_refusal(server, &make(server, &path, choice).plan)
    };
    let steers = BoostChoice::default();
    assert!(why(&echo(2, "0-1"), &steers).is_some_and(|why| why.contains("nobody looked")));
    assert_eq!(why(&nsd(2, "0-1"), &steers), None);
    assert_eq!(why(&echo(2, "0-1"), &BoostChoice { no_steer: true, ..steers }), None);
}

#[test]
fn busy_poll_is_set_only_on_request() {
    let polls = |busy_poll_us| {
        let choice = BoostChoice { busy_poll_us, ..BoostChoice::default() };
        changes_of(&plan_with(&nsd(2, "0-1"), &choice), SocketKnob::BusyPoll)
    };
    assert!(polls(None).is_empty());
    assert_eq!((polls(Some(50)).len(), polls(Some(50))[0].1.as_str()), (4, "50"));
}
