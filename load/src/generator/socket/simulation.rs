//! Exchanges over a simulated network that drops, doubles, reorders, damages and forges datagrams, so
//! that the right kind of each datagram is known.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use proptest::prelude::*;

use super::flow_track::FlowTrack;
use super::requests::ScriptedRequests;
use super::totals::DatagramKind;
use crate::sys::ReplyDatagram;
use crate::workload::{EchoedTag, PreparedExchange, ReplyCode, ReplyMark, ReplyVerifier, RequestOrder};

// Layout of a reply: a mark, a code, the tag, and a number that only the test reads.
const REPLY_MARK: u8 = 0x80;
const TAG_AT: usize = 2;
const BYTES: usize = 16;

/// Replies whose second byte is 0xee are forged.
#[derive(Debug)]
struct NotForged;

impl ReplyVerifier for NotForged {
    fn verify(&self, request: &[u8], reply: &[u8]) -> bool {
        request[TAG_AT..] == reply[TAG_AT..] && reply[1] != 0xee
    }
}

fn exchange(tag_bytes: Option<usize>, order: RequestOrder) -> PreparedExchange {
    let tag = tag_bytes.map(|bytes| EchoedTag { bytes, request_offset: TAG_AT, reply_offset: TAG_AT });
    let by_tag = order == RequestOrder::ByTag;
    let requests = (0..if by_tag { 1024u32 } else { 3 }).map(|number| {
        let mut request = vec![0; BYTES];
        if by_tag && let Some(tag) = tag {
            tag.write(u64::from(number), &mut request);
            // The number distinguishes requests with the same tag.
            request[BYTES - 4..].copy_from_slice(&number.to_be_bytes());
        }
        request
    });
    PreparedExchange {
        protocol: "raw",
        requests: requests.collect(),
        order,
        tag,
        marks: vec![ReplyMark { offset: 0, mask: REPLY_MARK, value: REPLY_MARK }],
        shortest_reply_bytes: TAG_AT + tag_bytes.unwrap_or(0),
        code: Some(ReplyCode { offset: 1, mask: 0x0f, truncated: None, name: |_| None }),
        verify: by_tag.then(|| Arc::new(NotForged) as Arc<dyn ReplyVerifier>),
        notes: Vec::new(),
    }
}

/// A request under way, or its reply.
#[derive(Debug, Clone)]
struct SimulatedDatagram {
    bytes: Vec<u8>,
    slot: u32,
    request: u64,
}

/// One flow and the network behind it.
struct SimulatedNetwork {
    tag_bytes: Option<usize>,
    script: ScriptedRequests,
    track: FlowTrack,
    slot: u32,
    answered: HashSet<u64>,
    intended: HashMap<u64, u64>,
    under_way: Vec<SimulatedDatagram>,
}

impl SimulatedNetwork {
    fn new(tag_bytes: Option<usize>, order: RequestOrder) -> Self {
        let exchange = Arc::new(exchange(tag_bytes, order));
        SimulatedNetwork {
            tag_bytes,
            track: FlowTrack::for_exchange(&exchange, 0x1234_5678, 1, 1),
            script: ScriptedRequests::new(exchange, 0, 1),
            slot: 0,
            answered: HashSet::new(),
            intended: HashMap::new(),
            under_way: Vec::new(),
        }
    }

    fn begin(&mut self) {
        self.slot += 1;
        self.answered.clear();
        self.intended.clear();
        self.track.begin(0);
    }

    fn send(&mut self, count: u64) {
        let first = self.track.window.next();
        for index in 0..count {
            let mut bytes = vec![0; BYTES];
            let length = self.script.write(&self.track, index, &mut bytes);
            assert_eq!(length, BYTES);
            self.under_way.push(SimulatedDatagram { bytes, slot: self.slot, request: first + index });
        }
        let slot = u64::from(self.slot);
        let intended = |request: u64| slot << 32 | request;
        self.script.record_sent(&mut self.track, count, |index| intended(first + index));
        self.track.window.record_sent(count);
        self.intended.extend((first..first + count).map(|request| (request, intended(request))));
    }

    fn reply(request: &SimulatedDatagram, code: u8) -> Vec<u8> {
        let mut bytes = request.bytes.clone();
        bytes[0] = REPLY_MARK;
        bytes[1] = code;
        bytes
    }

    fn judge(&mut self, bytes: &[u8]) -> DatagramKind {
        let reply = ReplyDatagram { bytes, truncated: false, realtime_ns: None };
        self.script.judge(&reply, &mut self.track)
    }

    /// Delivers the reply to a request, and checks its kind. A reply whose narrow tag may be in use again
    /// is ambiguous and not delivered.
    fn deliver(&mut self, request: &SimulatedDatagram) {
        let next = self.track.window.next();
        let in_view = request.slot == self.slot && next - request.request <= self.track.window.in_view();
        let narrow = self.tag_bytes.is_some_and(|bytes| bytes <= 2);
        if narrow && !in_view {
            return;
        }
        let judgement = self.judge(&Self::reply(request, 5));
        if !in_view {
            assert_eq!(judgement, DatagramKind::Late);
        } else if self.answered.insert(request.request) {
            let DatagramKind::First { intended_ns, code, .. } = judgement else {
                panic!("{judgement:?} instead of the answer to {request:?}, {next} sent");
            };
            assert_eq!((intended_ns, code), (self.intended[&request.request], Some(5)));
        } else {
            assert_eq!(judgement, DatagramKind::Duplicate);
        }
    }
}

#[derive(Debug, Clone)]
enum SimulationStep {
    Send(u64),
    /// Answers a request that is under way, `0` the oldest.
    Answer(prop::sample::Index),
    Twice(prop::sample::Index),
    Drop(prop::sample::Index),
    Damage(prop::sample::Index),
    Forge(prop::sample::Index),
    Unsolicited(u64),
    /// Gives up requests before this one, as a window does.
    Release(u64),
    NewSlot,
}

fn steps() -> impl Strategy<Value = Vec<SimulationStep>> {
    let step = prop_oneof![
        4 => (1..300u64).prop_map(SimulationStep::Send),
        12 => any::<prop::sample::Index>().prop_map(SimulationStep::Answer),
        2 => any::<prop::sample::Index>().prop_map(SimulationStep::Twice),
        2 => any::<prop::sample::Index>().prop_map(SimulationStep::Drop),
        1 => any::<prop::sample::Index>().prop_map(SimulationStep::Damage),
        1 => any::<prop::sample::Index>().prop_map(SimulationStep::Forge),
        1 => any::<u64>().prop_map(SimulationStep::Unsolicited),
        1 => (0..20_000u64).prop_map(SimulationStep::Release),
        1 => Just(SimulationStep::NewSlot),
    ];
    prop::collection::vec(step, 0..120)
}

fn run(tag_bytes: usize, order: RequestOrder, steps: Vec<SimulationStep>) {
    let mut network = SimulatedNetwork::new(Some(tag_bytes), order);
    network.begin();
    for step in steps {
        let request_at = |network: &mut SimulatedNetwork, index: prop::sample::Index| {
            let count = network.under_way.len();
            (count > 0).then(|| network.under_way.swap_remove(index.index(count)))
        };
        match step {
            SimulationStep::Send(count) => network.send(count),
            SimulationStep::NewSlot => network.begin(),
            SimulationStep::Release(before) => {
                network.track.window.release(before);
            }
            SimulationStep::Answer(index) => {
                if let Some(request) = request_at(&mut network, index) {
                    network.deliver(&request);
                }
            }
            SimulationStep::Twice(index) => {
                if let Some(request) = request_at(&mut network, index) {
                    network.deliver(&request);
                    network.deliver(&request);
                }
            }
            SimulationStep::Drop(index) => drop(request_at(&mut network, index)),
            SimulationStep::Damage(index) => {
                if let Some(request) = request_at(&mut network, index) {
                    let mut reply = SimulatedNetwork::reply(&request, 0);
                    reply[0] = 0;
                    assert_eq!(network.judge(&reply), DatagramKind::Corrupt);
                    assert_eq!(
                        network.judge(&SimulatedNetwork::reply(&request, 0)[..TAG_AT]),
                        DatagramKind::Corrupt
                    );
                }
            }
            SimulationStep::Forge(index) if order == RequestOrder::ByTag => {
                if let Some(request) = request_at(&mut network, index) {
                    let judgement = network.judge(&SimulatedNetwork::reply(&request, 0xee));
                    assert!(!matches!(judgement, DatagramKind::First { .. }), "{judgement:?}");
                }
            }
            SimulationStep::Forge(_) => {}
            SimulationStep::Unsolicited(tag) if tag_bytes == 8 && order == RequestOrder::InTurn => {
                // Of 2^64 tags a few thousand are in view.
                let bytes = [&[REPLY_MARK, 0][..], &tag.to_be_bytes()].concat();
                assert_eq!(network.judge(&bytes), DatagramKind::Unsolicited);
            }
            SimulationStep::Unsolicited(_) => {}
        }
        let (sent, answered) = (network.track.window.next(), network.answered.len() as u64);
        assert!(answered + network.track.window.outstanding() <= sent);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn tagged_replies_are_classified_correctly_on_a_faulty_network(
        tag_bytes in prop::sample::select(vec![1usize, 2, 4, 8]),
        steps in steps(),
    ) {
        run(tag_bytes, RequestOrder::InTurn, steps);
    }

    #[test]
    fn replies_to_requests_ordered_by_tag_are_classified_and_verified(steps in steps()) {
        run(1, RequestOrder::ByTag, steps);
    }

    #[test]
    fn tags_resolve_to_every_sequence_in_view(
        tag_bytes in prop::sample::select(vec![1usize, 2, 4, 8]),
        before in 0..100_000u64,
        sent in 1..100_000u64,
        back in any::<prop::sample::Index>(),
    ) {
        let mut network = SimulatedNetwork::new(Some(tag_bytes), RequestOrder::InTurn);
        network.begin();
        network.track.window.record_sent(before);
        network.begin();
        network.track.window.record_sent(sent);
        let in_view = network.track.window.in_view().min(sent);
        let request = sent - 1 - back.index(in_view as usize) as u64;
        let mut bytes = vec![REPLY_MARK, 0];
        bytes.extend_from_slice(&network.track.tags.tag_of(request).to_be_bytes()[8 - tag_bytes..]);
        let meaning = network.track.tags.find_request(&bytes, &network.track.window);
        prop_assert_eq!(meaning, super::flow_track::TagMeaning::Request(request));
    }
}

#[test]
fn a_reused_tag_leaves_one_outstanding_request_per_tag() {
    let mut network = SimulatedNetwork::new(Some(1), RequestOrder::InTurn);
    network.begin();
    network.send(300);
    let requests = std::mem::take(&mut network.under_way);
    assert_eq!(network.track.window.outstanding(), 256, "a tag of one byte has 256 values");
    // The first 44 share their tags with the last 44; a reply to either answers the later request.
    for (number, request) in (0..).zip(&requests) {
        let judgement = network.judge(&SimulatedNetwork::reply(request, 0));
        if number >= 256 {
            assert_eq!(judgement, DatagramKind::Duplicate, "{number}");
            continue;
        }
        let answered = if number < 44 { number + 256 } else { number };
        let DatagramKind::First { intended_ns, .. } = judgement else { panic!("{judgement:?} for {number}") };
        assert_eq!(intended_ns, network.intended[&answered]);
    }
    assert_eq!(network.track.window.outstanding(), 0);
}

#[test]
fn a_verified_reply_to_an_older_request_of_a_reused_tag_is_late() {
    let mut network = SimulatedNetwork::new(Some(1), RequestOrder::ByTag);
    network.begin();
    network.send(600);
    let requests = std::mem::take(&mut network.under_way);
    let judgement = |network: &mut SimulatedNetwork, number: usize| {
        network.judge(&SimulatedNetwork::reply(&requests[number], 0))
    };
    assert_eq!(judgement(&mut network, 0), DatagramKind::Late, "requests 0, 256 and 512 have tag 0");
    assert_eq!(judgement(&mut network, 256), DatagramKind::Late);
    assert!(matches!(judgement(&mut network, 512), DatagramKind::First { .. }));
    assert_eq!(judgement(&mut network, 512), DatagramKind::Duplicate);
    let damaged = SimulatedDatagram { bytes: vec![0xff; BYTES], slot: 1, request: 0 };
    assert_eq!(network.judge(&SimulatedNetwork::reply(&damaged, 0)), DatagramKind::Corrupt);
}

#[test]
fn replies_without_tags_answer_the_oldest_outstanding_request() {
    let mut network = SimulatedNetwork::new(None, RequestOrder::InTurn);
    network.begin();
    let reply = [REPLY_MARK, 3];
    assert_eq!(network.judge(&reply), DatagramKind::Late, "nothing was sent yet");
    network.send(3);
    network.track.window.release(1);
    for request in [1u64, 2] {
        let DatagramKind::First { intended_ns, reordered: false, code: Some(3) } = network.judge(&reply)
        else {
            panic!("request {request} is outstanding");
        };
        assert_eq!(intended_ns, network.intended[&request]);
    }
    assert_eq!(network.judge(&reply), DatagramKind::Duplicate, "nothing is outstanding");
    network.begin();
    assert_eq!(network.judge(&reply), DatagramKind::Late);
    network.send(1);
    assert!(matches!(network.judge(&reply), DatagramKind::First { .. }));
}

#[test]
fn a_truncated_reply_matches_if_no_verification_is_required() {
    for (order, fine) in [(RequestOrder::InTurn, true), (RequestOrder::ByTag, false)] {
        let mut network = SimulatedNetwork::new(Some(1), order);
        network.begin();
        network.send(1);
        let bytes = SimulatedNetwork::reply(&network.under_way[0], 0);
        let reply = ReplyDatagram { bytes: &bytes, truncated: true, realtime_ns: None };
        let judgement = network.script.judge(&reply, &mut network.track);
        assert_eq!(matches!(judgement, DatagramKind::First { .. }), fine);
    }
}

#[test]
fn threads_share_scripted_requests_round_robin() {
    let exchange = Arc::new(PreparedExchange {
        requests: (0..5u8).map(|number| vec![number; 4]).collect(),
        tag: None,
        marks: Vec::new(),
        shortest_reply_bytes: 0,
        code: None,
        ..exchange(None, RequestOrder::InTurn)
    });
    let mut track = FlowTrack::for_exchange(&exchange, 1, 0, 1);
    let mut numbers_by_thread = [const { Vec::new() }; 2];
    for (thread, numbers) in numbers_by_thread.iter_mut().enumerate() {
        let mut script = ScriptedRequests::new(Arc::clone(&exchange), thread, 2);
        for count in [1, 3, 2] {
            for index in 0..count {
                let mut bytes = [0; 4];
                script.write(&track, index, &mut bytes);
                numbers.push(bytes[0]);
            }
            script.record_sent(&mut track, count, |_| 0);
        }
    }
    assert_eq!(numbers_by_thread, [vec![0, 2, 4, 1, 3, 0], vec![1, 3, 0, 2, 4, 1]]);
}
