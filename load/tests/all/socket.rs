//! The socket generator.

use std::net::UdpSocket;
use std::sync::Arc;
use std::time::Duration;

use linerate_load::generator::GeneratorOptions;
use linerate_load::{GeneratorError, LoadSlot, LoadWorkload, PacingMode};
use linerate_testkit::skip;

use crate::scene::Scene;
use crate::service::{PAYLOAD, Service, assert_balanced, rate, slot};

#[test]
fn a_slot_ends_in_time_while_its_windows_are_not_full() {
    let service = Service::start(|_, _, _, _| {});
    let options = GeneratorOptions { flows: 64, ..GeneratorOptions::new(vec![service.address]) };
    let mut generator = options.start_socket().unwrap();
    let outcome = generator.run(&slot(PacingMode::Window { outstanding: 4_096 }, 50)).unwrap();
    assert_balanced(&outcome);
    assert!(outcome.sent < 64 * 4_096, "filling all windows takes several slots: {}", outcome.sent);
    // Requests that left after the end of the slot lower the rate.
    let sent_in_time = outcome.offered_per_second * outcome.duration.as_secs_f64();
    assert!(sent_in_time > 0.5 * outcome.sent as f64, "{outcome:?}");
}

#[test]
fn a_reply_after_the_window_timeout_counts_as_answered() {
    let mut delayed_requests: Vec<Vec<u8>> = Vec::new();
    let service = Service::start(move |socket, request, source, _| {
        delayed_requests.push(request.to_vec());
        // The service answers each request five requests later. With a window of two, that is later
        // than the timeout.
        if delayed_requests.len() > 5 {
            socket.send_to(&delayed_requests.remove(0), source).unwrap();
        }
    });
    let timeout = Duration::from_millis(10);
    let options = GeneratorOptions { flows: 1, timeout, ..GeneratorOptions::new(vec![service.address]) };
    let mut generator = options.start_socket().unwrap();
    let outcome = generator.run(&slot(PacingMode::Window { outstanding: 2 }, 200)).unwrap();
    assert_balanced(&outcome);
    assert_eq!(outcome.lost, 5);
    assert!(outcome.answered > 0 && outcome.self_watch.timed_out >= outcome.answered);
}

#[test]
fn flows_spread_over_targets_sources_and_address_families() {
    let services: Vec<Service> = (0..3).map(|_| Service::echo()).collect();
    let options = GeneratorOptions {
        sources: vec!["127.0.0.2".parse().unwrap(), "127.0.0.3".parse().unwrap()],
        flows: 12,
        burst: 1,
        no_fragment: true,
        ..GeneratorOptions::new(services.iter().map(|service| service.address).collect())
    };
    let mut generator = options.start_socket().unwrap();
    let outcome = generator.run(&slot(rate(1_200.0), 100)).unwrap();
    assert_balanced(&outcome);
    assert_eq!((outcome.sent, outcome.lost), (120, 0));
    drop(generator);
    for service in services {
        assert_eq!(service.stop().received, 40, "bursts of one request use the flows in turn");
    }
    let Ok(v6) = UdpSocket::bind("[::1]:0") else {
        skip("flows_spread_over_targets_sources_and_address_families", "no IPv6 loopback");
        return;
    };
    let v4 = Service::echo();
    let mapped = format!("[::ffff:127.0.0.1]:{}", v4.address.port()).parse().unwrap();
    let options = GeneratorOptions { no_fragment: true, ..GeneratorOptions::new(vec![mapped]) };
    assert_eq!(options.start_socket().unwrap().describe().targets, [v4.address]);
    let targets = vec![v6.local_addr().unwrap(), v4.address];
    let options = GeneratorOptions { flows: 2, ..GeneratorOptions::new(targets) };
    let mut generator = options.start_socket().unwrap();
    let outcome = generator.run(&slot(rate(1_000.0), 50)).unwrap();
    assert_balanced(&outcome);
    v6.set_nonblocking(true).unwrap();
    let mut to_v6 = 0;
    while v6.recv(&mut [0; PAYLOAD]).is_ok() {
        to_v6 += 1;
    }
    assert_eq!(outcome.lost, to_v6, "only the IPv6 target does not answer");
    assert!(to_v6 > 0 && outcome.answered > 0);
}

#[test]
fn all_of_900_flows_send_on_schedule() {
    let sources = Arc::new(std::sync::Mutex::new(std::collections::HashMap::<u16, u64>::new()));
    let requests_by_port = Arc::clone(&sources);
    let service = Service::start(move |socket, request, source, _| {
        *requests_by_port.lock().unwrap().entry(source.port()).or_default() += 1;
        socket.send_to(request, source).unwrap();
    });
    let targets = vec![service.address];
    let options = GeneratorOptions { flows: 900, threads: 2, burst: 1, ..GeneratorOptions::new(targets) };
    let mut generator = match options.start_socket() {
        Ok(generator) => generator,
        Err(error) => {
            skip("all_of_900_flows_send_on_schedule", error.to_string());
            return;
        }
    };
    for _ in 0..2 {
        let outcome = generator.run(&slot(rate(9_000.0), 200)).unwrap();
        assert_balanced(&outcome);
        assert_eq!((outcome.sent, outcome.lost), (1_800, 0));
    }
    drop(generator);
    assert_eq!(service.stop().received, 3_600);
    let sources = sources.lock().unwrap();
    assert_eq!(sources.len(), 900, "every flow is used");
    assert!(sources.values().all(|requests| *requests == 4), "{sources:?}");
}

#[test]
fn invalid_options_are_one_line_errors_and_send_nothing() {
    let service = Service::echo();
    let good = || GeneratorOptions::new(vec![service.address]);
    let to = |target: &str| GeneratorOptions::new(vec![target.parse().unwrap()]);
    let from = |source: &str| GeneratorOptions { sources: vec![source.parse().unwrap()], ..good() };
    let on_cpus = |cpus| GeneratorOptions { cpus: Some(cpus), ..good() };
    let workload = LoadWorkload::Echo { payload_bytes: 65_508 };
    let invalid_options = [
        (GeneratorOptions::default(), "no target"),
        (GeneratorOptions { flows: 0, ..good() }, "zero flows"),
        (GeneratorOptions { threads: 0, ..good() }, "zero threads"),
        (GeneratorOptions { threads: 3, flows: 2, ..good() }, "3 threads but only 2 flows"),
        (GeneratorOptions { workload, ..good() }, "larger than a UDP datagram"),
        (on_cpus(vec![1_000_000]), "CPU 1000000"),
        (on_cpus(vec![1_000]), "CPU 1000"),
        (on_cpus(vec![]), "empty list of CPUs"),
        (GeneratorOptions { burst: 0, ..good() }, "burst of 0"),
        (GeneratorOptions { flows: 100_000_000, ..good() }, "RLIMIT_NOFILE is"),
        (from("::1"), "no source address of the family"),
        (from("192.0.2.1"), "cannot send from 192.0.2.1"),
        (to("8.8.8.8:53"), "--allow-destination 8.8.8.8"),
        (to("127.0.0.1:0"), "port 0"),
    ];
    for (options, message) in invalid_options {
        let result = options.start_socket();
        let error = result.err().map(|error| error.to_string()).unwrap_or_default();
        assert!(error.contains(message), "\"{error}\" does not contain \"{message}\"");
        assert!(!error.contains('\n'));
    }
    let mut generator = good().start_socket().unwrap();
    for mode in
        [rate(0.0), rate(-1.0), rate(f64::NAN), rate(f64::INFINITY), PacingMode::Window { outstanding: 0 }]
    {
        assert!(generator.run(&slot(mode, 10)).is_err(), "{mode:?}");
    }
    assert!(generator.run(&slot(rate(10.0), 0)).is_err());
    drop(generator);
    assert_eq!(service.stop().received, 0);
}

#[test]
fn allow_admits_a_destination_outside_near_networks() {
    // The generator starts but sends nothing.
    let address = "192.0.2.1".parse::<std::net::IpAddr>().unwrap();
    let allowed = vec![address.into()];
    let options = GeneratorOptions { allowed, ..GeneratorOptions::new(vec![(address, 9).into()]) };
    match options.start_socket() {
        Ok(generator) => assert_eq!(generator.describe().targets.len(), 1),
        Err(GeneratorError::System { what, .. }) => {
            skip("allow_admits_a_destination_outside_near_networks", what);
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn generator_runs_with_given_cpu_and_nice_value() {
    let service = Service::echo();
    let (cpus, nice) = (Some(vec![0]), Some(19));
    let options = GeneratorOptions { cpus, nice, ..GeneratorOptions::new(vec![service.address]) };
    let mut generator = match options.start_socket() {
        Ok(generator) => generator,
        Err(error @ GeneratorError::Cpu { .. }) => {
            skip("generator_runs_with_given_cpu_and_nice_value", error.to_string());
            return;
        }
        Err(error) => panic!("{error}"),
    };
    assert_eq!(generator.describe().cpus, [0]);
    // No other test of this process starts threads with this nice value.
    let is_prepared = |thread: std::io::Result<std::fs::DirEntry>| {
        let thread = thread.unwrap().path();
        let read = |file| std::fs::read_to_string(thread.join(file)).unwrap_or_default();
        // The nice value is the 17th field after the command name.
        let nice = read("stat").rsplit(')').next().and_then(|fields| fields.split(' ').nth(17)?.parse().ok());
        nice == Some(19) && read("status").contains("\nCpus_allowed_list:\t0\n")
    };
    assert!(std::fs::read_dir("/proc/self/task").unwrap().any(is_prepared));
    let outcome = generator.run(&slot(rate(1_000.0), 50)).unwrap();
    assert_balanced(&outcome);
}

#[test]
fn no_fragment_refuses_payloads_over_the_path_mtu() {
    let Some(scene) = Scene::new("no_fragment_refuses_payloads_over_the_path_mtu") else { return };
    let start = |v4, payload_bytes, no_fragment| {
        let mut target = scene.receiver(v4);
        target.set_port(9);
        let workload = LoadWorkload::Echo { payload_bytes };
        let options = GeneratorOptions { workload, no_fragment, ..scene.options(target, 1) };
        scene.lab().senders()[0].run(move || options.start_socket()).unwrap().map(drop)
    };
    for (v4, most) in [(true, 1_472), (false, 1_452)] {
        if !v4 && !scene.has_ipv6() {
            continue;
        }
        assert!(start(v4, most, true).is_ok());
        assert!(start(v4, most + 1, false).is_ok());
        let error = start(v4, most + 1, true).unwrap_err().to_string();
        assert!(error.contains("path MTU of 1500") && error.contains(&format!("at most {most}")), "{error}");
    }
}

#[test]
fn flows_send_from_the_given_addresses_and_ports() {
    let sources = Arc::new(std::sync::Mutex::new(std::collections::BTreeSet::new()));
    let service_sources = Arc::clone(&sources);
    let service = Service::start(move |socket, request, source, _| {
        service_sources.lock().unwrap().insert(source);
        socket.send_to(request, source).unwrap();
    });
    let (first, second) = ("127.0.0.5", "127.0.0.6");
    let options = GeneratorOptions {
        sources: vec![first.parse().unwrap(), second.parse().unwrap()],
        source_ports: Some(23_101..=23_102),
        flows: 4,
        ..GeneratorOptions::new(vec![service.address])
    };
    let mut generator = options.start_socket().unwrap();
    let outcome = generator.run(&LoadSlot::window(1, Duration::from_millis(50)));
    assert!(outcome.unwrap().answered > 0);
    drop(generator);
    let expected = [(first, 23_101), (first, 23_102), (second, 23_101), (second, 23_102)];
    let expected =
        expected.map(|(address, port)| (address.parse::<std::net::IpAddr>().unwrap(), port).into());
    assert_eq!(sources.lock().unwrap().iter().copied().collect::<Vec<_>>(), expected);
}
