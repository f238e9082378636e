//! Exchanges over sockets, against services on loopback with known faults.

mod service;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use linerate_load::generator::GeneratorBuilder;
use linerate_load::workload::{EchoedTag, PreparedExchange, RequestOrder, dns, radius, raw};
use linerate_load::{Generator, LoadWorkload, PacingMode, SlotOutcome, SocketGenerator};
use md5::{Digest as _, Md5};
use service::{Service, slot};

fn generator(address: SocketAddr, exchange: PreparedExchange, flows: usize) -> SocketGenerator {
    let workload = LoadWorkload::Exchange(Arc::new(exchange));
    GeneratorBuilder::default()
        .targets(vec![address])
        .flows(flows)
        .timeout(Duration::from_millis(20))
        .workload(workload)
        .start_socket()
        .unwrap()
}

fn count(outcome: &SlotOutcome, code: u8) -> u64 {
    outcome.codes.iter().find(|code_count| code_count.code == code).map_or(0, |code_count| code_count.count)
}

#[test]
fn dns_replies_are_matched_and_faults_counted_exactly() {
    for mode in [PacingMode::Rate { per_second: 6_000.0 }, PacingMode::Window { outstanding: 4 }] {
        let service = Service::start(|socket, query, source, account| {
            let number = account.received;
            query[2] |= 0x80;
            if number % 10 == 1 {
                account.dropped += 1;
            } else if number % 10 == 2 {
                // Without the QR bit, the message is not a response.
                account.corrupted += 1;
                query[2] &= 0x7f;
                socket.send_to(query, source).unwrap();
            } else if number % 10 == 3 {
                account.corrupted += 1;
                socket.send_to(&query[..11], source).unwrap();
            } else {
                query[3] |= if number % 10 == 4 { 3 } else { 0 };
                account.answered += 1;
                socket.send_to(query, source).unwrap();
                if number % 10 == 5 {
                    account.duplicated += 1;
                    socket.send_to(query, source).unwrap();
                }
            }
        });
        let queries = "a.example A\nbb.example AAAA\nccc.example MX\n";
        let exchange = dns::from_text(queries, "queries", &dns::DnsQueryOptions::default()).unwrap();
        let outcome = generator(service.address, exchange, 3).run(&slot(mode, 500)).unwrap();
        let account = service.stop();
        // On a busy machine, the service's receive buffer may overflow. The requests that it
        // received are counted exactly.
        let overflowed = outcome.sent - account.received;
        assert_eq!(outcome.answered, account.answered);
        assert_eq!(outcome.lost, account.dropped + account.corrupted + overflowed);
        assert_eq!((outcome.corrupt, outcome.duplicate), (account.corrupted, account.duplicated));
        assert_eq!((outcome.unsolicited, outcome.late, outcome.reordered), (0, 0, 0), "{outcome:?}");
        assert_eq!(count(&outcome, 0) + count(&outcome, 3), outcome.answered);
        assert!(count(&outcome, 3).abs_diff(account.received / 10) <= 1);
    }
}

#[test]
fn truncated_dns_replies_are_counted_per_code() {
    let service = Service::start(|socket, query, source, account| {
        query[2] |= if account.received.is_multiple_of(4) { 0x82 } else { 0x80 };
        query[3] |= if account.received.is_multiple_of(2) { 3 } else { 0 };
        account.answered += 1;
        socket.send_to(query, source).unwrap();
    });
    let exchange = dns::from_text("a.example A\n", "queries", &dns::DnsQueryOptions::default()).unwrap();
    let mode = PacingMode::Rate { per_second: 4_000.0 };
    let outcome = generator(service.address, exchange, 3).run(&slot(mode, 200)).unwrap();
    let account = service.stop();
    assert_eq!(outcome.answered, account.answered);
    let codes: Vec<_> = outcome.codes.iter().map(|code| (code.code, code.count, code.truncated)).collect();
    let answered = account.answered;
    assert_eq!(codes, [(0, answered - answered / 2, 0), (3, answered / 2, answered / 4)]);
}

#[test]
fn echo_payloads_shorter_than_the_header_are_matched() {
    for payload_bytes in [0, 1, 2, 5, 8, 18, 39] {
        // The service drops one of 10 requests, except empty ones. It damages the last byte of
        // another one of 10 if that byte does not belong to the tag.
        let service = Service::start(move |socket, request, source, account| {
            assert_eq!(request.len(), payload_bytes);
            if account.received % 10 == 1 && payload_bytes > 0 {
                account.dropped += 1;
                return;
            }
            if account.received % 10 == 2 && [5, 18, 39].contains(&payload_bytes) {
                account.corrupted += 1;
                request[payload_bytes - 1] ^= 0x20;
            } else {
                account.answered += 1;
            }
            socket.send_to(request, source).unwrap();
        });
        let workload = LoadWorkload::Echo { payload_bytes };
        let builder = GeneratorBuilder::default().targets(vec![service.address]).flows(3).workload(workload);
        let mut generator = builder.start_socket().unwrap();
        let description = generator.describe();
        assert_eq!((description.workload.as_str(), description.payload_bytes), ("echo", payload_bytes));
        // At this rate, a tag of one byte identifies every outstanding request.
        let outcome = generator.run(&slot(PacingMode::Rate { per_second: 1_000.0 }, 300)).unwrap();
        let account = service.stop();
        // On a busy machine, the generator sends fewer requests in time.
        assert_eq!((outcome.sent, outcome.answered), (account.received, account.answered), "{outcome:?}");
        assert!(outcome.answered > 0, "{payload_bytes}");
        assert_eq!((outcome.corrupt, outcome.unsolicited), (account.corrupted, 0), "{payload_bytes}");
    }
}

#[test]
fn late_and_forged_replies_do_not_count_as_answers() {
    // The service answers nothing in the first slot. In the second slot, it adds two datagrams to
    // each reply: a request held from the first slot, and a reply with a forged tag.
    let hold_requests = Arc::new(AtomicBool::new(true));
    let service_holds = Arc::clone(&hold_requests);
    let mut stale_requests: VecDeque<Vec<u8>> = VecDeque::new();
    let service = Service::start(move |socket, request, source, account| {
        if service_holds.load(Ordering::Relaxed) {
            stale_requests.push_back(request.to_vec());
            return;
        }
        socket.send_to(request, source).unwrap();
        if let Some(stale) = stale_requests.pop_front() {
            account.duplicated += 1;
            socket.send_to(&stale, source).unwrap();
            let mut forged_reply = request.to_vec();
            forged_reply[0] ^= 0x40;
            socket.send_to(&forged_reply, source).unwrap();
        }
    });
    let tag = EchoedTag { bytes: 8, request_offset: 0, reply_offset: 0 };
    let exchange = raw::from_hex("0000000000000000 ff", "requests", Some(tag)).unwrap();
    let mut generator = generator(service.address, exchange, 1);
    let first = generator.run(&slot(PacingMode::Rate { per_second: 500.0 }, 100)).unwrap();
    assert!(first.sent > 0 && first.answered == 0);
    hold_requests.store(false, Ordering::Relaxed);
    let second = generator.run(&slot(PacingMode::Rate { per_second: 500.0 }, 200)).unwrap();
    assert_eq!((second.lost, second.duplicate), (0, 0), "{second:?}");
    let account = service.stop();
    assert_eq!((second.late, second.unsolicited), (account.duplicated, account.duplicated));
    assert!(account.duplicated > 0);
}

#[test]
fn requests_without_a_tag_have_exact_counts() {
    let service = Service::start(|socket, request, source, account| {
        if account.received.is_multiple_of(10) {
            account.dropped += 1;
            return;
        }
        account.answered += 1;
        socket.send_to(request, source).unwrap();
    });
    let exchange = raw::from_hex("01\n0203\n040506", "requests", None).unwrap();
    let mut generator = generator(service.address, exchange, 2);
    let (mut answered, mut lost) = (0, 0);
    for mode in [PacingMode::Rate { per_second: 3_000.0 }, PacingMode::Window { outstanding: 3 }] {
        let outcome = generator.run(&slot(mode, 200)).unwrap();
        assert!(outcome.sent > 0);
        assert_eq!(outcome.answered + outcome.lost, outcome.sent);
        answered += outcome.answered;
        lost += outcome.lost;
        assert_eq!((outcome.duplicate, outcome.late, outcome.unsolicited, outcome.reordered), (0, 0, 0, 0));
    }
    let account = service.stop();
    assert_eq!((answered, lost), (account.answered, account.dropped));
    assert!(lost > 0);
}

const SECRET: &[u8] = b"xyzzy5461";

fn md5(parts: &[&[u8]]) -> [u8; 16] {
    let mut hash = Md5::new();
    parts.iter().for_each(|part| hash.update(part));
    hash.finalize().into()
}

/// The value of the first RADIUS attribute of type `attribute_type`.
fn attribute(packet: &[u8], attribute_type: u8) -> Option<&[u8]> {
    let mut rest = packet.get(20..)?;
    while let [kind, length, ..] = *rest {
        let (current, next) = rest.split_at_checked(usize::from(length))?;
        if kind == attribute_type {
            return current.get(2..);
        }
        rest = next;
    }
    None
}

/// A RADIUS server that accepts the password `arctangent` and rejects other passwords of up to 16
/// bytes. Every 10th reply has a wrong authenticator.
fn radius_service() -> Service {
    Service::start(|socket, request, source, account| {
        let hidden_password = attribute(request, 2).unwrap();
        let mask = md5(&[SECRET, &request[4..20]]);
        let password: Vec<u8> = hidden_password.iter().zip(mask).map(|(byte, mask)| byte ^ mask).collect();
        let accepted = password == *b"arctangent\0\0\0\0\0\0";
        let mut reply = vec![if accepted { 2 } else { 3 }, request[1], 0, 26];
        let attributes = [18, 6, b't', b'e', b's', b't'];
        let authenticator = md5(&[&reply, &request[4..20], &attributes, SECRET]);
        reply.extend_from_slice(&authenticator);
        reply.extend_from_slice(&attributes);
        if account.received % 10 == 0 {
            account.corrupted += 1;
            // A wrong authenticator, as if the server had another secret.
            reply[7] ^= 1;
        } else {
            account.answered += 1;
        }
        socket.send_to(&reply, source).unwrap();
    })
}

#[test]
fn radius_replies_with_a_wrong_authenticator_are_corrupt() {
    for (password, code) in [(&b"arctangent"[..], 2), (b"hyperbolic", 3)] {
        let service = radius_service();
        let method = radius::PasswordMethod::Pap;
        let exchange = radius::access_requests(SECRET, "nemo", password, method).unwrap();
        assert_eq!(exchange.order, RequestOrder::ByTag);
        let mut generator = generator(service.address, exchange, 3);
        let mut sum = (0, 0);
        for mode in [PacingMode::Rate { per_second: 3_000.0 }, PacingMode::Window { outstanding: 5 }] {
            let outcome = generator.run(&slot(mode, 300)).unwrap();
            assert_eq!(outcome.answered + outcome.lost, outcome.sent);
            assert_eq!(count(&outcome, code), outcome.answered);
            sum = (sum.0 + outcome.answered, sum.1 + outcome.corrupt);
        }
        drop(generator);
        let account = service.stop();
        assert_eq!(sum, (account.answered, account.corrupted));
    }
}
