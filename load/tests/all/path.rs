//! Packets that the path loses or changes, and their place in the outcome.

use std::net::IpAddr;
use std::process::Command;
use std::sync::Arc;

use linerate_lab::LabHost;
use linerate_load::generator::GeneratorOptions;
use linerate_load::workload::raw;
use linerate_load::{BoundReason, LoadWorkload};
use linerate_testkit::skip;

use crate::scene::Scene;
use crate::service::{PAYLOAD, assert_balanced, rate, slot};

/// Runs a command on a host of the lab. False, after a SKIP message, if it fails.
fn runs(test: &'static str, host: &LabHost, command: &str) -> bool {
    let mut words = command.split(' ');
    let mut process = Command::new(words.next().unwrap());
    let output = host.run(|| process.args(words).output()).unwrap();
    let is_done = output.as_ref().is_ok_and(|output| output.status.success());
    if !is_done {
        skip(test, format!("{command}: {output:?}"));
    }
    is_done
}

#[test]
fn requests_rejected_by_a_router_count_as_sent_and_rejected() {
    const TEST: &str = "requests_rejected_by_a_router_count_as_sent_and_rejected";
    // Sockets learn the path MTU instead. The kernel limits the messages to one sender, so each case
    // has a lab.
    for (uses_xdp, v4, exceeds_mtu) in
        [(false, true, false), (true, true, false), (true, true, true), (true, false, true)]
    {
        let Some(scene) = Scene::new(TEST) else { return };
        if !scene.families().contains(&v4) {
            continue;
        }
        let (sender, receiver) = (&scene.lab().senders()[0], scene.lab().receiver());
        let target: IpAddr = if v4 { "10.9.9.9" } else { "fd09::9" }.parse().unwrap();
        let end = &scene.link().sender;
        let back: IpAddr = if v4 { end.ipv4[0].into() } else { end.ipv6[0].into() };
        let small = format!("ip route add {target} via {back} mtu lock 1300");
        let prohibit = format!("ip route add prohibit {target}");
        for (host, command) in [
            (sender, format!("ip route add {target} via {}", scene.receiver(v4).ip()).as_str()),
            (receiver, if exceeds_mtu { &small } else { &prohibit }),
            (receiver, "sysctl -qew net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1"),
        ] {
            if !runs(TEST, host, command) {
                return;
            }
        }
        let workload = LoadWorkload::Echo { payload_bytes: if exceeds_mtu { 1_400 } else { PAYLOAD } };
        let options = GeneratorOptions { workload, ..scene.options((target, 7).into(), 3) };
        let mut generator = if uses_xdp {
            let Some(generator) = scene.generator_of(options) else { return };
            generator
        } else {
            sender.run(move || options.start_socket()).unwrap().unwrap()
        };
        let outcome = generator.run(&slot(rate(1_000.0), 200)).unwrap();
        assert_balanced(&outcome);
        assert_eq!((outcome.sent, outcome.send_errors.unsent()), (200, 0), "{outcome:?}");
        assert!(outcome.send_errors.rejected > 0, "{outcome:?}");
    }
}

#[test]
fn replies_in_fragments_are_reported_by_the_xdp_backend() {
    let Some(scene) = Scene::new("replies_in_fragments_are_reported_by_the_xdp_backend") else { return };
    let exchange = Arc::new(raw::from_hex("0000 01020304", "requests", "0:2".parse().ok()).unwrap());
    for v4 in scene.families().iter().copied() {
        let service = scene.serve(v4, |socket, request, source, _| {
            let mut reply = request.to_vec();
            reply.resize(3_000, 0);
            socket.send_to(&reply, source).unwrap();
        });
        let workload = LoadWorkload::Exchange(Arc::clone(&exchange));
        let options = GeneratorOptions { workload, ..scene.options(service.address, 2) };
        let Some(mut generator) = scene.generator_of(options) else { return };
        let outcome = generator.run(&slot(rate(1_000.0), 100)).unwrap();
        assert_balanced(&outcome);
        assert_eq!((outcome.sent, outcome.lost, outcome.fragmented), (100, 100, 100), "{outcome:?}");
    }
}

#[test]
fn requests_that_the_own_queue_drops_are_the_generators_limit() {
    const TEST: &str = "requests_that_the_own_queue_drops_are_the_generators_limit";
    let Some(scene) = Scene::new(TEST) else { return };
    let service = scene.echo(true);
    let command = format!(
        "tc qdisc replace dev {} root tbf rate 1mbit burst 2000 limit 3000",
        scene.link().sender.interface
    );
    if !runs(TEST, &scene.lab().senders()[0], &command) {
        return;
    }
    let options = scene.options(service.address, 4);
    let mut generator = scene.lab().senders()[0].run(move || options.start_socket()).unwrap().unwrap();
    let outcome = generator.run(&slot(rate(5_000.0), 200)).unwrap();
    assert_balanced(&outcome);
    let dropped = outcome.self_watch.send_drops;
    assert!(dropped > 0 && dropped <= outcome.lost, "{outcome:?}");
    let is_reason = |reason: &BoundReason| matches!(reason, BoundReason::RequestsDropped { .. });
    assert!(outcome.self_watch.bound_because.iter().any(is_reason), "{outcome:?}");
}

#[test]
fn each_target_is_sent_requests_from_the_source_address_of_its_own_route() {
    const TEST: &str = "each_target_is_sent_requests_from_the_source_address_of_its_own_route";
    let Some(scene) = Scene::new(TEST) else { return };
    let ends =
        [(scene.lab().receiver(), &scene.link().receiver), (&scene.lab().senders()[0], &scene.link().sender)];
    for (number, (host, end)) in (1..).zip(ends) {
        if !runs(TEST, host, &format!("ip address add 10.43.2.{number}/24 dev {}", end.interface)) {
            return;
        }
    }
    let targets = ["198.18.0.1:7", "10.43.2.1:7"].map(|target| target.parse().unwrap());
    let options = GeneratorOptions { targets: targets.to_vec(), ..scene.options(targets[0], 4) };
    let Some(generator) = scene.generator_of(options) else { return };
    let own = scene.link().sender.ipv4[0];
    assert_eq!(generator.describe().sources, [IpAddr::from(own), "10.43.2.2".parse().unwrap()]);
}
