//! Exchanges (prepared requests of a protocol) with services that have known faults.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use linerate_load::generator::GeneratorOptions;
use linerate_load::workload::{EchoedTag, PreparedExchange, RequestOrder, dns, radius, raw};
use linerate_load::{BoundReason, Generator, LoadWorkload, PacingMode, SlotOutcome};
use md5::{Digest as _, Md5};

use crate::scene::Scene;
use crate::service::{Service, assert_balanced, rate, slot};

impl Scene {
    fn exchange_generator(
        &self,
        service: &Service,
        exchange: PreparedExchange,
        flows: usize,
    ) -> Option<Box<dyn Generator>> {
        let workload = LoadWorkload::Exchange(Arc::new(exchange));
        let timeout = Duration::from_millis(20);
        self.generator_of(GeneratorOptions { workload, timeout, ..self.options(service.address, flows) })
    }
}

fn count(outcome: &SlotOutcome, code: u8) -> u64 {
    outcome.codes.iter().find(|code_count| code_count.code == code).map_or(0, |code_count| code_count.count)
}

#[test]
fn dns_replies_are_matched_and_faults_counted_exactly() {
    Scene::with_each_backend("dns_replies_are_matched_and_faults_counted_exactly", |scene| {
        for mode in [PacingMode::Rate { per_second: 6_000.0 }, PacingMode::Window { outstanding: 4 }] {
            let service = scene.serve(true, |socket, query, source, account| {
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
            let Some(mut generator) = scene.exchange_generator(&service, exchange, 3) else { return };
            let outcome = generator.run(&slot(mode, 500)).unwrap();
            drop(generator);
            let account = service.stop();
            // On a busy machine, the link or the service's receive buffer may overflow. The requests
            // that it received are counted exactly.
            let overflowed = outcome.sent - account.received;
            assert_eq!(outcome.answered, account.answered);
            assert_eq!(outcome.lost, account.dropped + account.corrupted + overflowed);
            assert_eq!((outcome.corrupt, outcome.duplicate), (account.corrupted, account.duplicated));
            assert_eq!((outcome.unsolicited, outcome.late, outcome.reordered), (0, 0, 0), "{outcome:?}");
            assert_eq!(count(&outcome, 0) + count(&outcome, 3), outcome.answered);
            assert!(count(&outcome, 3).abs_diff(account.received / 10) <= 1);
        }
    });
}

#[test]
fn truncated_dns_replies_are_counted_per_code() {
    Scene::with_each_backend("truncated_dns_replies_are_counted_per_code", |scene| {
        let service = scene.serve(true, |socket, query, source, account| {
            query[2] |= if account.received.is_multiple_of(4) { 0x82 } else { 0x80 };
            query[3] |= if account.received.is_multiple_of(2) { 3 } else { 0 };
            account.answered += 1;
            socket.send_to(query, source).unwrap();
        });
        let exchange = dns::from_text("a.example A\n", "queries", &dns::DnsQueryOptions::default()).unwrap();
        let Some(mut generator) = scene.exchange_generator(&service, exchange, 3) else { return };
        let outcome = generator.run(&slot(rate(4_000.0), 200)).unwrap();
        drop(generator);
        let account = service.stop();
        assert_eq!(outcome.answered, account.answered);
        let codes: Vec<_> =
            outcome.codes.iter().map(|code| (code.code, code.count, code.truncated)).collect();
        let answered = account.answered;
        assert_eq!(codes, [(0, answered - answered / 2, 0), (3, answered / 2, answered / 4)]);
    });
}

#[test]
fn late_and_forged_replies_do_not_count_as_answers() {
    Scene::with_each_backend("late_and_forged_replies_do_not_count_as_answers", |scene| {
        // The service answers nothing in the first slot. In the second slot, it adds two datagrams to
        // each reply: a request held from the first slot, and a reply with a forged tag.
        let hold_requests = Arc::new(AtomicBool::new(true));
        let service_holds = Arc::clone(&hold_requests);
        let mut stale_requests: VecDeque<Vec<u8>> = VecDeque::new();
        let service = scene.serve(true, move |socket, request, source, account| {
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
        let Some(mut generator) = scene.exchange_generator(&service, exchange, 1) else { return };
        let first = generator.run(&slot(rate(500.0), 100)).unwrap();
        assert!(first.sent > 0 && first.answered == 0);
        hold_requests.store(false, Ordering::Relaxed);
        let second = generator.run(&slot(rate(500.0), 200)).unwrap();
        assert_eq!((second.lost, second.duplicate), (0, 0), "{second:?}");
        let account = service.stop();
        assert_eq!((second.late, second.unsolicited), (account.duplicated, account.duplicated));
        assert!(account.duplicated > 0);
    });
}

#[test]
fn requests_without_a_tag_have_exact_counts() {
    // Without tags there is no XDP backend.
    let scene = Scene::loopback("requests_without_a_tag_have_exact_counts");
    let service = scene.serve(true, |socket, request, source, account| {
        if account.received.is_multiple_of(10) {
            account.dropped += 1;
            return;
        }
        account.answered += 1;
        socket.send_to(request, source).unwrap();
    });
    let exchange = raw::from_hex("01\n0203\n040506", "requests", None).unwrap();
    let mut generator = scene.exchange_generator(&service, exchange, 2).unwrap();
    let (mut answered, mut lost) = (0, 0);
    for mode in [rate(3_000.0), PacingMode::Window { outstanding: 3 }] {
        let outcome = generator.run(&slot(mode, 200)).unwrap();
        assert!(outcome.sent > 0);
        assert_balanced(&outcome);
        answered += outcome.answered;
        lost += outcome.lost;
        assert_eq!((outcome.duplicate, outcome.late, outcome.unsolicited, outcome.reordered), (0, 0, 0, 0));
    }
    let account = service.stop();
    assert_eq!((answered, lost), (account.answered, account.dropped));
    assert!(lost > 0);
}

#[test]
fn tags_of_every_size_and_offset_are_matched() {
    Scene::with_each_backend("tags_of_every_size_and_offset_are_matched", |scene| {
        // Tags at even and odd offsets, in requests of several lengths, over IPv4 and IPv6.
        for (v4, bytes, request_offset) in [
            (true, 2, 0),
            (false, 2, 1),
            (true, 4, 3),
            (false, 8, 4),
            (true, 1, 1),
            (true, 8, 7),
            (false, 1, 0),
        ] {
            let v4 = v4 || !scene.has_ipv6();
            let service = scene.serve(v4, move |socket, request, source, account| {
                let mut reply = request[request_offset..][..bytes].to_vec();
                if account.received.is_multiple_of(50) {
                    account.corrupted += 1;
                    reply.pop();
                } else {
                    account.answered += 1;
                    reply.extend_from_slice(request);
                }
                socket.send_to(&reply, source).unwrap();
            });
            let tag = EchoedTag { bytes, request_offset, reply_offset: 0 };
            let requests = [20, 27, 34, 41, 48].map(|length| "00".repeat(length)).join("\n");
            let exchange = raw::from_hex(&requests, "requests", Some(tag)).unwrap();
            let Some(mut generator) = scene.exchange_generator(&service, exchange, 3) else { return };
            let mut sum = (0, 0);
            // At this rate, a tag of one byte identifies every outstanding request.
            for mode in [rate(2_000.0), rate(2_000.0), PacingMode::Window { outstanding: 8 }] {
                let outcome = generator.run(&slot(mode, 200)).unwrap();
                assert_balanced(&outcome);
                assert_eq!(
                    (outcome.late, outcome.unsolicited, outcome.duplicate),
                    (0, 0, 0),
                    "{tag} {outcome:?}"
                );
                sum = (sum.0 + outcome.answered, sum.1 + outcome.corrupt);
            }
            drop(generator);
            let account = service.stop();
            assert_eq!(sum, (account.answered, account.corrupted), "{tag}");
            assert!(account.corrupted > 0);
        }
    });
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

/// The reply of a RADIUS server that accepts the password `arctangent` and rejects other passwords of
/// up to 16 bytes.
fn radius_reply(request: &[u8]) -> Vec<u8> {
    let hidden_password = attribute(request, 2).unwrap();
    let mask = md5(&[SECRET, &request[4..20]]);
    let password: Vec<u8> = hidden_password.iter().zip(mask).map(|(byte, mask)| byte ^ mask).collect();
    let accepted = password == *b"arctangent\0\0\0\0\0\0";
    let mut reply = vec![if accepted { 2 } else { 3 }, request[1], 0, 26];
    let attributes = [18, 6, b't', b'e', b's', b't'];
    let authenticator = md5(&[&reply, &request[4..20], &attributes, SECRET]);
    reply.extend_from_slice(&authenticator);
    reply.extend_from_slice(&attributes);
    reply
}

/// A RADIUS server. Every 10th reply has a wrong authenticator.
fn radius_service(scene: &Scene) -> Service {
    scene.serve(true, |socket, request, source, account| {
        let mut reply = radius_reply(request);
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
    Scene::with_each_backend("radius_replies_with_a_wrong_authenticator_are_corrupt", |scene| {
        for (password, code) in [(&b"arctangent"[..], 2), (b"hyperbolic", 3)] {
            let service = radius_service(scene);
            let method = radius::PasswordMethod::Pap;
            let exchange = radius::access_requests(SECRET, "nemo", password, method).unwrap();
            assert_eq!(exchange.order, RequestOrder::ByTag);
            let Some(mut generator) = scene.exchange_generator(&service, exchange, 3) else { return };
            let mut sum = (0, 0);
            for mode in [rate(3_000.0), PacingMode::Window { outstanding: 5 }] {
                let outcome = generator.run(&slot(mode, 300)).unwrap();
                assert_balanced(&outcome);
                assert_eq!((outcome.unverified, outcome.late, outcome.unsolicited), (0, 0, 0), "{outcome:?}");
                assert_eq!(count(&outcome, code), outcome.answered);
                sum = (sum.0 + outcome.answered, sum.1 + outcome.corrupt);
            }
            drop(generator);
            let account = service.stop();
            assert_eq!(sum, (account.answered, account.corrupted));
        }
    });
}

#[test]
fn replies_that_come_after_their_tag_was_used_again_are_the_generators_limit() {
    let test = "replies_that_come_after_their_tag_was_used_again_are_the_generators_limit";
    Scene::with_each_backend(test, |scene| {
        // The service answers each request 300 requests later, and 256 requests have distinct tags.
        let mut replies: VecDeque<Vec<u8>> = VecDeque::new();
        let service = scene.serve(true, move |socket, request, source, _| {
            replies.push_back(radius_reply(request));
            if replies.len() > 300 {
                socket.send_to(&replies.pop_front().unwrap(), source).unwrap();
            }
        });
        let method = radius::PasswordMethod::Pap;
        let exchange = radius::access_requests(SECRET, "nemo", b"arctangent", method).unwrap();
        let Some(mut generator) = scene.exchange_generator(&service, exchange, 1) else { return };
        let outcome = generator.run(&slot(rate(3_000.0), 300)).unwrap();
        assert_balanced(&outcome);
        assert!(outcome.late > 0 && outcome.corrupt == 0, "{outcome:?}");
        let is_reason = |reason: &BoundReason| matches!(reason, BoundReason::TagsUsedUp { .. });
        assert!(outcome.self_watch.bound_because.iter().any(is_reason), "{outcome:?}");
    });
}
