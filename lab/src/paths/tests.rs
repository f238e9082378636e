use std::sync::Arc;
use std::time::Duration;

use linerate_host::Known;
use linerate_load::LoadSlot;
use linerate_trace::cost::{CostReport, CostVictim};
use serde_json::json;

use super::cost::{LOOPED_LOAD, TRACED_LOAD, ThreadOwner};
use super::path_lab::{PathError, PathLab};
use super::recipe::{PATHS, RecipeValues};
use super::relay;
use super::report::{CostContext, PathCost};
use crate::ladder::config::{LadderConfig, RunTiming};

fn config() -> LadderConfig {
    let mut config = LadderConfig { flows: 8, ..LadderConfig::new(Vec::new(), RunTiming::LAB) };
    config.resolve_cpus().expect("CPUs");
    config
}

#[test]
fn recipe_commands_use_lab_hosts_and_known_programs() {
    let values = RecipeValues { sender1: "1".into(), object: "/o".into(), linerate: "/bin/l".into() };
    for path in &PATHS {
        for command in path.commands(&values) {
            assert!(["receiver", "sender0", "sender1"].contains(&command.host), "{command:?}");
            let words = shlex::split(&command.line).expect("words");
            let programs = ["ip", "tc", "nft", "ethtool", "ovs-dpctl", "sh", "/bin/l"];
            assert!(programs.contains(&words[0].as_str()), "{command:?}");
            assert!(!command.line.contains("{sender1}") && !command.line.contains("{object}"), "{command:?}");
        }
        let lines: usize = path.recipe().len();
        assert!(lines >= path.commands(&values).len() + 4, "{:?}", path.recipe());
    }
}

#[test]
fn a_proxy_refuses_more_flows_than_it_serves() {
    let path = PATHS.iter().find(|path| path.name == "userland-proxy").expect("the path");
    let config = LadderConfig { flows: 1025, ..config() };
    let error = PathLab::start(path, &config, "linerate".as_ref(), &Arc::default()).err().expect("refused");
    assert!(error.to_string().contains("at most 1024 clients"), "{error}");
}

/// Each path carries all requests to the service and all replies back, unless this kernel lacks its
/// device. The paths with relays are left out, because they require the program `linerate`.
#[test]
fn each_path_carries_requests_and_replies() {
    let (config, cancel) = (config(), Arc::default());
    for path in PATHS.iter().filter(|path| !["userland-proxy", "tap"].contains(&path.name)) {
        let mut lab = match PathLab::start(path, &config, "linerate".as_ref(), &cancel) {
            Ok(lab) => lab,
            Err(PathError::Lab(why)) => {
                return linerate_testkit::skip("each_path_carries_requests_and_replies", why);
            }
            Err(error @ PathError::Command { .. }) if ["ipvlan", "netkit", "ovs"].contains(&path.name) => {
                let reasons =
                    ["Unknown device type", "there is no program ovs-dpctl", "module is probably not loaded"];
                assert!(reasons.iter().any(|reason| error.to_string().contains(reason)), "{error}");
                continue;
            }
            Err(error) => panic!("{}: {error}", path.name),
        };
        // The first slot is a warm-up: its packets resolve neighbours.
        let slot = LoadSlot::rate(1000.0, Duration::from_millis(100));
        lab.generator.run(&slot).expect("a slot");
        let outcome = lab.generator.run(&slot).expect("a slot");
        assert!(outcome.sent > 50 && outcome.lost == 0, "{}: {outcome:?}", path.name);
    }
}

#[test]
fn path_cost_splits_cpu_time_by_context_without_the_client() {
    let cpu = json!({"cpu": 0, "elapsed_ns": 1_000_000, "idle_ns": 100_000, "tasks_ns": 500_000,
        "net_rx_ns": 320_000, "net_tx_ns": 10_000, "other_softirq_ns": 20_000, "nic_irq_ns": 30_000,
        "other_irq_ns": 20_000, "in_ksoftirqd_ns": 0, "in_threads_ns": 0, "from_idle_ns": 0, "rx_runs": 1,
        "polls": 1, "packets": 1, "own_runs": 0, "time_squeezes": 0, "steal_ns": 0});
    let device = |name: &str, network: u32, ns: u64| {
        json!({"name": name, "ifindex": 1, "network_namespace": network, "polls": 1,
            "threaded_polls": 0, "busy_polls": 0, "packets": 1, "budget_exhausted": 0, "taken_ns": ns})
    };
    let victim = |pid: u32, ns: u64| {
        json!({"pid": pid, "tid": pid, "comm": format!("p{pid}"), "cgroup_id": 0, "cgroup": "/",
            "on_cpu_ns": ns + 7, "taken_ns": 4, "taken_in_own_calls_ns": 0, "taken_other_ns": 3, "accounted_ns": 0})
    };
    let traced: CostReport = serde_json::from_value(json!({
        "seconds": 0.001,
        "cpus": [cpu],
        "victims": [victim(1, 200_000), victim(2, 100_000), victim(3, 50_000), victim(4, 1)],
        "devices": [device("eth0", 1, 150_000), device("eth0", 2, 80_000), device("backlog", 0, 70_000)],
        "own": {"runs": 0, "ns_a_run": 100.0, "share": 0.0, "highest_share": 0.0},
    }))
    .expect("a report");
    let owner = |victim: &CostVictim| match victim.pid {
        1 => ThreadOwner::Host(CostContext::Service),
        2 => ThreadOwner::Client,
        3 => ThreadOwner::Host(CostContext::KernelThread),
        _ => ThreadOwner::Other,
    };
    let host_of = |network| match network {
        1 => Some("receiver".to_owned()),
        2 => Some("sender0".to_owned()),
        _ => None,
    };
    // 10,000 transactions per second for 1 ms: 10 transactions.
    let cost = PathCost::from_trace(&traced, 10_000.0, &owner, &host_of);
    let of = CostContext::ALL.map(|context| cost.of(context).round());
    assert_eq!(of, [5_000.0, 27_000.0, 5_000.0, 0.0, 20_000.0], "{cost:?}");
    assert_eq!(cost.client_ns_per_transaction.round(), 18_000.0);
    assert_eq!(cost.host_ns_per_transaction.round(), 57_000.0);
    assert_eq!(cost.machine_ns_per_transaction.round(), 90_000.0);
    let softirqs: Vec<&str> = cost
        .parts
        .iter()
        .filter(|part| part.context == CostContext::Softirq)
        .map(|part| part.name.as_str())
        .collect();
    assert_eq!(softirqs, ["receiver eth0", "backlog", "NET_RX outside of polls", "other softirqs", "NET_TX"]);
}

#[test]
fn a_proxy_copies_each_clients_datagrams_and_replies() {
    use std::net::UdpSocket;
    let server = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let front = UdpSocket::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a free port");
    let to = server.local_addr().expect("an address");
    let (ready, is_ready) = std::sync::mpsc::channel();
    std::thread::spawn(move || relay::proxy(front, to, || ready.send(()).expect("a listener")));
    is_ready.recv().expect("it listens");
    let clients = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").expect("a socket"));
    for socket in clients.iter().chain([&server]) {
        socket.set_read_timeout(Some(Duration::from_secs(10))).expect("a timeout");
    }
    let mut buffer = [0; 16];
    for (client, word) in clients.iter().zip([b"one", b"two"]) {
        client.send_to(word, front).expect("sent");
        let (length, from) = server.recv_from(&mut buffer).expect("received");
        assert_eq!(&buffer[..length], word);
        server.send_to(&buffer[..length], from).expect("sent");
    }
    for (client, word) in clients.iter().zip([b"one", b"two"]) {
        let (length, from) = client.recv_from(&mut buffer).expect("received");
        assert_eq!((&buffer[..length], from), (&word[..], front));
    }
}

/// Compares the traced CPU time per packet with `/proc/stat` and an nftables counter. Uses the
/// median of three ratios, because `/proc/stat` counts in ticks and other tests run at the same
/// time.
#[test]
fn cpu_time_per_packet_agrees_with_proc_stat_and_nftables() {
    let test = "cpu_time_per_packet_agrees_with_proc_stat_and_nftables";
    let config = config();
    let path = super::NetworkPath::find("bridge").expect("a path");
    let mut lab = match PathLab::start(path, &config, "linerate".as_ref(), &Arc::default()) {
        Ok(lab) => lab,
        Err(error) => return linerate_testkit::skip(test, error),
    };
    for line in [
        "nft add table bridge count",
        "nft add chain bridge count forward '{ type filter hook forward priority 0; }'",
        "nft add rule bridge count forward udp dport 7777 counter",
    ] {
        let words = shlex::split(line).expect("words");
        let mut command = std::process::Command::new(&words[0]);
        command.args(&words[1..]);
        let status = lab.lab.receiver().spawn(command).expect("nft").wait().expect("its status");
        assert!(status.success(), "{line}");
    }
    let (mut ratios, mut packets_before) = (Vec::new(), 0);
    for _ in 0..3 {
        let cost = match PathCost::measure(&mut lab, 20_000.0, &config.cpus).expect("load") {
            Known::Value(cost) => cost,
            Known::Unknown { why } => return linerate_testkit::skip(test, why),
        };
        let Known::Value(by_proc_stat) = cost.proc_stat_ns_per_transaction else { panic!("{cost:?}") };
        let output = lab
            .lab
            .receiver()
            .run(|| std::process::Command::new("nft").args(["-j", "list", "ruleset"]).output().expect("nft"));
        let ruleset: serde_json::Value =
            serde_json::from_slice(&output.expect("the host").stdout).expect("JSON");
        let rules = ruleset["nftables"].as_array().expect("objects");
        let counter = |object: &serde_json::Value| object["rule"]["expr"][1]["counter"]["packets"].as_u64();
        let packets = rules.iter().find_map(counter).expect("a counter");
        let load = (TRACED_LOAD + LOOPED_LOAD).as_secs_f64();
        let packets_per_second = (packets - packets_before) as f64 / load;
        packets_before = packets;
        let answered_per_second = cost.offered_per_second * cost.answered_ratio;
        let independent = by_proc_stat * answered_per_second / packets_per_second;
        ratios.push(cost.machine_ns_per_transaction / independent);
    }
    ratios.sort_by(f64::total_cmp);
    eprintln!("traced CPU time per packet is {ratios:.3?} of that by /proc/stat and nftables");
    // /proc/stat counts in ticks of 10 ms, so single ratios scatter by 15 % while other tests run.
    assert!((0.8..1.25).contains(&ratios[1]), "{ratios:?}");
}
