//! Each fault against a client that looks at every reply.

use std::net::UdpSocket;
use std::time::Duration;

use linerate_testkit::reflector::{Reflector, ReflectorAccount, ReflectorBuilder, RunningReflector};

use crate::PATIENCE;

fn client(service: &RunningReflector) -> UdpSocket {
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    client.connect(service.address()).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client
}

fn receive(client: &UdpSocket) -> Vec<u8> {
    let mut bytes = vec![0; 65_536];
    let length = client.recv(&mut bytes).unwrap();
    bytes.truncate(length);
    bytes
}

/// Sends `requests` of 100 bytes that begin with their number, and returns the account and all replies.
fn exchange(builder: ReflectorBuilder, requests: u32) -> (ReflectorAccount, Vec<Vec<u8>>) {
    let service = builder.start().unwrap();
    let client = client(&service);
    for number in 0..requests {
        let mut request = vec![1; 100];
        request[..4].copy_from_slice(&number.to_be_bytes());
        client.send(&request).unwrap();
    }
    let account = service.stop();
    assert_eq!((account.received, account.overflowed, account.unsent), (u64::from(requests), 0, 0));
    let sum = account.answered + account.corrupted + account.dropped + account.over_capacity;
    assert_eq!(account.received, sum, "{account:?}");
    // Loopback delivers datagrams at once, so all replies have arrived.
    client.set_nonblocking(true).unwrap();
    let mut replies = Vec::new();
    let mut bytes = [0; 200];
    while let Ok(length) = client.recv(&mut bytes) {
        replies.push(bytes[..length].to_vec());
    }
    (account, replies)
}

fn number(reply: &[u8]) -> u32 {
    u32::from_be_bytes(reply[..4].try_into().unwrap())
}

#[test]
fn echo_returns_payloads_of_all_sizes_unchanged() {
    let service = Reflector::builder().start().unwrap();
    let client = client(&service);
    for length in [0, 1, 100, 1_472, 9_000, 65_507] {
        let request = vec![7; length];
        client.send(&request).unwrap();
        assert_eq!(receive(&client), request);
    }
    let account = service.stop();
    assert_eq!((account.received, account.answered), (6, 6));
    assert!(account.reply_delay_ns(0.5).unwrap() > 0);
}

#[test]
fn reflector_answers_over_ipv6() {
    let Ok(service) = Reflector::builder().address(([0, 0, 0, 0, 0, 0, 0, 1], 0)).start() else {
        linerate_testkit::skip("reflector_answers_over_ipv6", "no IPv6 here");
        return;
    };
    let client = UdpSocket::bind("[::1]:0").unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client.send_to(b"request", service.address()).unwrap();
    assert_eq!(client.recv_from(&mut [0; 100]).unwrap(), (7, service.address()));
}

#[test]
fn fault_counts_match_the_configuration() {
    let builder = Reflector::builder().drop_every(10).corrupt_every(9).duplicate_every(4);
    let (account, replies) = exchange(builder, 200);
    assert_eq!((account.dropped, account.corrupted, account.answered, account.duplicated), (20, 20, 160, 40));
    assert_eq!(replies.len(), 160 + 40 + 20);
    let intact = |reply: &&Vec<u8>| reply[4..].iter().all(|byte| *byte == 1) && number(reply) < 200;
    // 20 changed bytes at different places. A change from one valid number to another is not visible.
    let damaged = replies.len() - replies.iter().filter(intact).count();
    assert!((16..=20).contains(&damaged), "{damaged} replies are damaged");
    assert!(replies.iter().all(|reply| reply.len() == 100));
}

#[test]
fn every_third_pair_of_replies_is_swapped() {
    let (account, replies) = exchange(Reflector::builder().swap_every(3), 12);
    let numbers: Vec<u32> = replies.iter().map(|reply| number(reply)).collect();
    assert_eq!(numbers, [0, 1, 2, 3, 5, 4, 6, 7, 8, 9, 11, 10]);
    assert_eq!(account.swapped, 2);
}

#[test]
fn an_unpaired_request_is_answered_after_a_timeout() {
    let service = Reflector::builder().swap_every(1).start().unwrap();
    let client = client(&service);
    client.send(b"alone").unwrap();
    assert_eq!(receive(&client), b"alone");
    let account = service.stop();
    assert_eq!((account.answered, account.swapped), (1, 0));
    assert!(account.reply_delay_ns(0.5).unwrap() >= 99_000_000);
}

#[test]
fn replies_leave_no_earlier_than_the_delay() {
    for delay in [Duration::from_micros(100), Duration::from_millis(1), Duration::from_millis(30)] {
        let service = Reflector::builder().delay(delay).busy().start().unwrap();
        let client = client(&service);
        for _ in 0..50 {
            client.send(b"request").unwrap();
            receive(&client);
        }
        let held_ns = service.stop().reply_delay_ns(0.0).unwrap();
        // No reply leaves before its time. The tolerance covers the rounding of the histogram.
        assert!(held_ns as f64 >= delay.as_nanos() as f64 * 0.999, "{delay:?}: {held_ns} ns");
    }
}

#[test]
fn token_bucket_answers_its_depth_and_drops_the_rest() {
    // So slow that no token comes back within the test.
    let (account, replies) = exchange(Reflector::builder().token_bucket(0.001, 30), 100);
    assert_eq!((account.answered, account.over_capacity), (30, 70));
    assert_eq!(replies.iter().map(|reply| number(reply)).collect::<Vec<_>>(), (0..30).collect::<Vec<_>>());
}

#[test]
fn requests_during_a_freeze_wait_until_its_end() {
    let (every, lasting) = (Duration::from_millis(200), Duration::from_millis(100));
    let service = Reflector::builder().freeze(every, lasting).start().unwrap();
    let client = client(&service);
    // Sends one request after the other until a freeze has ended. One of the requests waits for the
    // end of the freeze.
    while service.account().frozen.is_empty() {
        client.send(b"request").unwrap();
        receive(&client);
    }
    let account = service.stop();
    let frozen = account.frozen[0];
    let frozen_ns = frozen.ended_realtime_ns - frozen.began_realtime_ns;
    assert_eq!(account.received, account.answered);
    assert!(account.reply_delay_ns(1.0).unwrap() as f64 >= frozen_ns as f64 * 0.9, "{account:?}");
}

#[test]
fn reflector_at_a_foreign_address_does_not_start() {
    let error = Reflector::builder().address(([192, 0, 2, 1], 9)).start().unwrap_err();
    assert!(error.to_string().contains("cannot serve 192.0.2.1:9"), "{error}");
}
