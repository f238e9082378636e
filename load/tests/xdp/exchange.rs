//! Exchanges (prepared requests of a protocol) with the XDP generator.

use std::sync::Arc;

use linerate_load::generator::LiveFrames;
use linerate_load::workload::{
    EchoedTag, PreparedExchange, ReplyCode, ReplyMark, ReplyVerifier, RequestOrder,
};
use linerate_load::{Generator as _, LoadWorkload, PacingMode};

use crate::scene::Scene;
use crate::service::{assert_balanced, rate, slot};

/// An exchange whose replies consist of the tag, a byte with the mark 0x80 and the reply code, and
/// the request.
fn exchange(
    tag: EchoedTag,
    requests: Vec<Vec<u8>>,
    order: RequestOrder,
    verify: Option<Arc<dyn ReplyVerifier>>,
) -> LoadWorkload {
    LoadWorkload::Exchange(Arc::new(PreparedExchange {
        protocol: "raw",
        requests,
        order,
        tag: Some(tag),
        marks: vec![ReplyMark { offset: tag.bytes, mask: 0x80, value: 0x80 }],
        shortest_reply_bytes: tag.bytes + 1,
        code: Some(ReplyCode {
            offset: tag.bytes,
            mask: 0x0f,
            truncated: None,
            name: |code| (code == 3).then_some("THREE"),
        }),
        verify,
        notes: Vec::new(),
    }))
}

/// The reply to a request. Every third reply has the code 3, and every 50th lacks the mark.
fn answer(tag: EchoedTag, request: &[u8], number: u64) -> Vec<u8> {
    let mut reply = request[tag.request_offset..][..tag.bytes].to_vec();
    reply.push(if number.is_multiple_of(3) { 0x83 } else { 0x80 });
    if number.is_multiple_of(50) {
        reply[tag.bytes] &= 0x0f;
    }
    reply.extend_from_slice(request);
    reply
}

#[test]
fn echo_payloads_in_shortest_frames_are_matched() {
    let Some(scene) = Scene::new("echo_payloads_in_shortest_frames_are_matched") else { return };
    for (v4, payload_bytes) in [(true, 18), (false, 18), (true, 39), (false, 8), (true, 1)] {
        // The service drops one of 10 requests. It damages the last byte of another one of 10,
        // unless that byte belongs to the tag.
        let service = scene.serve(v4, move |socket, request, source, account| {
            assert_eq!(request.len(), payload_bytes);
            if account.received % 10 == 1 {
                account.dropped += 1;
                return;
            }
            if account.received % 10 == 2 && payload_bytes > 8 {
                account.corrupted += 1;
                request[payload_bytes - 1] ^= 0x20;
            } else {
                account.answered += 1;
            }
            socket.send_to(request, source).unwrap();
        });
        let (mut sent, mut answered, mut corrupt) = (0, 0, 0);
        for live_frames in [LiveFrames::Never, LiveFrames::Always] {
            let builder = scene.builder(service.address, 3).workload(LoadWorkload::Echo { payload_bytes });
            let Some(mut generator) = scene.generator_of(builder.live_frames(live_frames)) else { return };
            let outcome = generator.run(&slot(rate(1_000.0), 300)).unwrap();
            assert_balanced(&outcome);
            assert_eq!((outcome.unsolicited, outcome.late), (0, 0), "{payload_bytes}: {outcome:?}");
            (sent, answered) = (sent + outcome.sent, answered + outcome.answered);
            corrupt += outcome.corrupt;
        }
        let account = service.stop();
        assert_eq!((sent, answered, corrupt), (account.received, account.answered, account.corrupted));
        assert!(answered > 0);
    }
}

#[test]
fn replies_with_tags_of_every_size_are_matched() {
    let Some(scene) = Scene::new("replies_with_tags_of_every_size_are_matched") else { return };
    // Tags at even and odd offsets, in requests of several lengths, over IPv4 and IPv6.
    for (v4, bytes, request_offset) in
        [(true, 2, 0), (false, 2, 1), (true, 4, 3), (false, 8, 4), (true, 1, 1), (true, 8, 7), (false, 1, 0)]
    {
        let tag = EchoedTag { bytes, request_offset, reply_offset: 0 };
        let requests = (0..5u8).map(|number| vec![number; 20 + 7 * usize::from(number)]).collect();
        let service = scene.serve(v4, move |socket, request, source, account| {
            let reply = answer(tag, request, account.received);
            account.answered += 1;
            account.corrupted += u64::from(account.received.is_multiple_of(50));
            socket.send_to(&reply, source).unwrap();
        });
        let workload = exchange(tag, requests, RequestOrder::InTurn, None);
        let Some(mut generator) = scene.generator_of(scene.builder(service.address, 3).workload(workload))
        else {
            return;
        };
        let mut served = 0;
        // At this rate, a tag of one byte identifies every outstanding request.
        for _ in 0..2 {
            let outcome = generator.run(&slot(rate(2_000.0), 250)).unwrap();
            assert_balanced(&outcome);
            let refused_count = outcome.self_watch.refused_by_link;
            let before = served;
            served += outcome.sent - refused_count;
            let spoilt = served / 50 - before / 50;
            assert_eq!(
                (outcome.lost, outcome.corrupt),
                (spoilt + refused_count, spoilt),
                "{tag} {outcome:?}"
            );
            assert_eq!(
                (outcome.late, outcome.unsolicited, outcome.duplicate),
                (0, 0, 0),
                "{tag} {outcome:?}"
            );
            let codes: Vec<_> =
                outcome.codes.iter().map(|code| (code.code, code.name.as_deref(), code.count)).collect();
            assert_eq!(codes.iter().map(|code| code.2).sum::<u64>(), outcome.answered);
            assert!(codes.contains(&(3, Some("THREE"), codes[1].2)), "{codes:?}");
        }
        let outcome = generator.run(&slot(PacingMode::Window { outstanding: 8 }, 100)).unwrap();
        assert_balanced(&outcome);
        assert!(outcome.answered > 0 && outcome.unsolicited == 0, "{tag} {outcome:?}");
        drop(generator);
        assert!(service.stop().received >= served);
    }
}

#[derive(Debug)]
struct SameBytes;

impl ReplyVerifier for SameBytes {
    fn verify(&self, request: &[u8], reply: &[u8]) -> bool {
        reply[2..] == *request
    }
}

#[test]
fn replies_are_verified_against_their_requests() {
    let Some(scene) = Scene::new("replies_are_verified_against_their_requests") else { return };
    let tag = EchoedTag { bytes: 1, request_offset: 0, reply_offset: 0 };
    let requests = (0..1_024u32).map(|n| vec![n as u8, (n >> 8) as u8, 9, 9]).collect();
    let service = scene.serve(true, move |socket, request, source, account| {
        let mut reply = vec![request[0], 0x83];
        reply.extend_from_slice(request);
        if account.received.is_multiple_of(10) {
            account.corrupted += 1;
            reply[4] ^= 1;
        }
        socket.send_to(&reply, source).unwrap();
    });
    let workload = exchange(tag, requests, RequestOrder::ByTag, Some(Arc::new(SameBytes)));
    let Some(mut generator) = scene.generator_of(scene.builder(service.address, 5).workload(workload)) else {
        return;
    };
    let mut served = 0;
    for _ in 0..2 {
        let outcome = generator.run(&slot(rate(3_000.0), 200)).unwrap();
        assert_balanced(&outcome);
        let refused_count = outcome.self_watch.refused_by_link;
        let before = served;
        served += outcome.sent - refused_count;
        let spoilt = served / 10 - before / 10;
        assert_eq!((outcome.lost, outcome.corrupt), (spoilt + refused_count, spoilt), "{outcome:?}");
        assert_eq!((outcome.unverified, outcome.late, outcome.unsolicited), (0, 0, 0), "{outcome:?}");
        assert_eq!(outcome.codes[0].count, outcome.answered);
    }
    drop(generator);
    let account = service.stop();
    assert_eq!((account.received, account.corrupted), (served, served / 10));
}
