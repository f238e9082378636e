//! Exchanges over a simulated network: what is dropped, doubled, reordered, damaged and forged is known, and so is what
//! each datagram has to be taken for.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use proptest::prelude::*;

use super::carried::Script;
use super::tally::Judgement;
use super::trail::Track;
use crate::sys::Received;
use crate::workload::{Code, Exchange, Mark, Order, Tag, Verify};

/// Where replies have what: a mark, a code, the tag, and a number that only the test reads.
const REPLY_MARK: u8 = 0x80;
const TAG_AT: usize = 2;
const BYTES: usize = 16;

/// Replies whose second byte is 0xee are forged.
#[derive(Debug)]
struct NotForged;

impl Verify for NotForged {
    fn verify(&self, request: &[u8], reply: &[u8]) -> bool {
        request[TAG_AT..] == reply[TAG_AT..] && reply[1] != 0xee
    }
}

fn exchange(tag_bytes: Option<usize>, order: Order) -> Exchange {
    let tag = tag_bytes.map(|bytes| Tag { bytes, request_offset: TAG_AT, reply_offset: TAG_AT });
    let by_tag = order == Order::ByTag;
    let requests = (0..if by_tag { 1024u32 } else { 3 }).map(|number| {
        let mut request = vec![0; BYTES];
        if by_tag && let Some(tag) = tag {
            tag.write(u64::from(number), &mut request);
            // What tells requests of one tag apart.
            request[BYTES - 4..].copy_from_slice(&number.to_be_bytes());
        }
        request
    });
    Exchange {
        protocol: "raw",
        requests: requests.collect(),
        order,
        tag,
        marks: vec![Mark { offset: 0, mask: REPLY_MARK, value: REPLY_MARK }],
        shortest_reply_bytes: TAG_AT + tag_bytes.unwrap_or(0),
        code: Some(Code { offset: 1, mask: 0x0f, truncated: None, name: |_| None }),
        verify: by_tag.then(|| Arc::new(NotForged) as Arc<dyn Verify>),
        notes: Vec::new(),
    }
}

/// A request under way, or its reply.
#[derive(Debug, Clone)]
struct Datagram {
    bytes: Vec<u8>,
    slot: u32,
    /// Number of the request in its slot.
    request: u64,
}

/// One flow and the network behind it.
struct Network {
    tag_bytes: Option<usize>,
    script: Script,
    track: Track,
    slot: u32,
    answered: HashSet<u64>,
    intended: HashMap<u64, u64>,
    under_way: Vec<Datagram>,
}

impl Network {
    fn new(tag_bytes: Option<usize>, order: Order) -> Self {
        let exchange = Arc::new(exchange(tag_bytes, order));
        Network {
            tag_bytes,
            track: Track::of_exchange(&exchange, 0x1234_5678, 1, 1),
            script: Script::new(exchange, 0, 1),
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
        let first = self.track.ledger.next();
        for index in 0..count {
            let mut bytes = vec![0; BYTES];
            let length = self.script.write(&self.track, index, &mut bytes);
            assert_eq!(length, BYTES);
            self.under_way.push(Datagram { bytes, slot: self.slot, request: first + index });
        }
        let slot = u64::from(self.slot);
        let intended = |request: u64| slot << 32 | request;
        self.script.sent(&mut self.track, count, |index| intended(first + index));
        self.track.ledger.sent(count);
        self.intended.extend((first..first + count).map(|request| (request, intended(request))));
    }

    fn reply(request: &Datagram, code: u8) -> Vec<u8> {
        let mut bytes = request.bytes.clone();
        bytes[0] = REPLY_MARK;
        bytes[1] = code;
        bytes
    }

    fn judge(&mut self, bytes: &[u8]) -> Judgement {
        let reply = Received { bytes, truncated: false, realtime_ns: None };
        self.script.judge(&reply, &mut self.track)
    }

    /// Hands over the reply to a request, and holds the judgement against what is known. A tag of one or two bytes may be
    /// in use again: whose reply it is then cannot be told, and it is not handed over.
    fn deliver(&mut self, request: &Datagram) {
        let next = self.track.ledger.next();
        let in_view = request.slot == self.slot && next - request.request <= self.track.ledger.in_view();
        let narrow = self.tag_bytes.is_some_and(|bytes| bytes <= 2);
        if narrow && !in_view {
            return;
        }
        let judgement = self.judge(&Self::reply(request, 5));
        if !in_view {
            assert_eq!(judgement, Judgement::Late);
        } else if self.answered.insert(request.request) {
            let Judgement::First { intended_ns, code, .. } = judgement else {
                panic!("{judgement:?} instead of the answer to {request:?}, {next} sent");
            };
            assert_eq!((intended_ns, code), (self.intended[&request.request], Some(5)));
        } else {
            assert_eq!(judgement, Judgement::Duplicate);
        }
    }
}

#[derive(Debug, Clone)]
enum Step {
    Send(u64),
    /// Answers one that is under way, `0` the oldest.
    Answer(prop::sample::Index),
    Twice(prop::sample::Index),
    Drop(prop::sample::Index),
    Damage(prop::sample::Index),
    Forge(prop::sample::Index),
    Foreign(u64),
    NewSlot,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (1..300u64).prop_map(Step::Send),
        12 => any::<prop::sample::Index>().prop_map(Step::Answer),
        2 => any::<prop::sample::Index>().prop_map(Step::Twice),
        2 => any::<prop::sample::Index>().prop_map(Step::Drop),
        1 => any::<prop::sample::Index>().prop_map(Step::Damage),
        1 => any::<prop::sample::Index>().prop_map(Step::Forge),
        1 => any::<u64>().prop_map(Step::Foreign),
        1 => Just(Step::NewSlot),
    ];
    prop::collection::vec(step, 0..120)
}

fn run(tag_bytes: usize, order: Order, steps: Vec<Step>) {
    let mut network = Network::new(Some(tag_bytes), order);
    network.begin();
    for step in steps {
        let taken = |network: &mut Network, index: prop::sample::Index| {
            let count = network.under_way.len();
            (count > 0).then(|| network.under_way.swap_remove(index.index(count)))
        };
        match step {
            Step::Send(count) => network.send(count),
            Step::NewSlot => network.begin(),
            Step::Answer(index) => {
                if let Some(request) = taken(&mut network, index) {
                    network.deliver(&request);
                }
            }
            Step::Twice(index) => {
                if let Some(request) = taken(&mut network, index) {
                    network.deliver(&request);
                    network.deliver(&request);
                }
            }
            Step::Drop(index) => drop(taken(&mut network, index)),
            Step::Damage(index) => {
                if let Some(request) = taken(&mut network, index) {
                    let mut reply = Network::reply(&request, 0);
                    reply[0] = 0;
                    assert_eq!(network.judge(&reply), Judgement::Corrupt);
                    assert_eq!(network.judge(&Network::reply(&request, 0)[..TAG_AT]), Judgement::Corrupt);
                }
            }
            Step::Forge(index) if order == Order::ByTag => {
                if let Some(request) = taken(&mut network, index) {
                    let judgement = network.judge(&Network::reply(&request, 0xee));
                    assert!(!matches!(judgement, Judgement::First { .. }), "{judgement:?}");
                }
            }
            Step::Forge(_) => {}
            Step::Foreign(tag) if tag_bytes == 8 && order == Order::InTurn => {
                // Of 2^64 tags a few thousand are in view.
                let bytes = [&[REPLY_MARK, 0][..], &tag.to_be_bytes()].concat();
                assert_eq!(network.judge(&bytes), Judgement::Foreign);
            }
            Step::Foreign(_) => {}
        }
        let (sent, answered) = (network.track.ledger.next(), network.answered.len() as u64);
        assert!(answered + network.track.ledger.outstanding() <= sent);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn every_reply_is_taken_for_what_it_is(
        tag_bytes in prop::sample::select(vec![1usize, 2, 4, 8]),
        steps in steps(),
    ) {
        run(tag_bytes, Order::InTurn, steps);
    }

    #[test]
    fn requests_in_the_order_of_their_tag_are_known_and_verified(steps in steps()) {
        run(1, Order::ByTag, steps);
    }

    #[test]
    fn every_sequence_in_view_is_found_from_its_tag(
        tag_bytes in prop::sample::select(vec![1usize, 2, 4, 8]),
        before in 0..100_000u64,
        sent in 1..100_000u64,
        back in any::<prop::sample::Index>(),
    ) {
        let mut network = Network::new(Some(tag_bytes), Order::InTurn);
        network.begin();
        network.track.ledger.sent(before);
        network.begin();
        network.track.ledger.sent(sent);
        let in_view = network.track.ledger.in_view().min(sent);
        let request = sent - 1 - back.index(in_view as usize) as u64;
        let mut bytes = vec![REPLY_MARK, 0];
        bytes.extend_from_slice(&network.track.trail.tag_of(request).to_be_bytes()[8 - tag_bytes..]);
        let meaning = network.track.trail.meaning(&bytes, &network.track.ledger);
        prop_assert_eq!(meaning, super::trail::Meaning::Request(request));
    }
}

#[test]
fn a_reused_tag_is_the_newest_requests_and_the_old_one_is_lost() {
    let mut network = Network::new(Some(1), Order::InTurn);
    network.begin();
    network.send(300);
    let requests = std::mem::take(&mut network.under_way);
    assert_eq!(network.track.ledger.outstanding(), 256, "more cannot be told apart");
    // The first 44 share their tags with the last 44: what is answered is answered once.
    for request in &requests {
        network.judge(&Network::reply(request, 0));
    }
    assert_eq!(network.track.ledger.outstanding(), 0);
}

#[test]
fn a_verified_reply_to_a_request_whose_tag_is_used_again_is_late() {
    let mut network = Network::new(Some(1), Order::ByTag);
    network.begin();
    network.send(600);
    let requests = std::mem::take(&mut network.under_way);
    let judged = |network: &mut Network, number: usize| network.judge(&Network::reply(&requests[number], 0));
    assert_eq!(judged(&mut network, 0), Judgement::Late, "tag 0 is of requests 0, 256 and 512");
    assert_eq!(judged(&mut network, 256), Judgement::Late);
    assert!(matches!(judged(&mut network, 512), Judgement::First { .. }));
    assert_eq!(judged(&mut network, 512), Judgement::Duplicate);
    let damaged = Datagram { bytes: vec![0xff; BYTES], slot: 1, request: 0 };
    assert_eq!(network.judge(&Network::reply(&damaged, 0)), Judgement::Corrupt);
}

#[test]
fn without_tags_the_oldest_outstanding_is_answered() {
    let mut network = Network::new(None, Order::InTurn);
    network.begin();
    let reply = [REPLY_MARK, 3];
    assert_eq!(network.judge(&reply), Judgement::Late, "nothing was sent yet");
    network.send(3);
    network.track.ledger.release(1);
    for request in [1u64, 2] {
        let Judgement::First { intended_ns, reordered: false, code: Some(3) } = network.judge(&reply) else {
            panic!("request {request} is outstanding");
        };
        assert_eq!(intended_ns, network.intended[&request]);
    }
    assert_eq!(network.judge(&reply), Judgement::Duplicate, "nothing is outstanding");
    network.begin();
    assert_eq!(network.judge(&reply), Judgement::Late);
    network.send(1);
    assert!(matches!(network.judge(&reply), Judgement::First { .. }));
}

#[test]
fn a_longer_reply_that_was_cut_is_fine_unless_it_is_to_be_verified() {
    for (order, fine) in [(Order::InTurn, true), (Order::ByTag, false)] {
        let mut network = Network::new(Some(1), order);
        network.begin();
        network.send(1);
        let bytes = Network::reply(&network.under_way[0], 0);
        let reply = Received { bytes: &bytes, truncated: true, realtime_ns: None };
        let judgement = network.script.judge(&reply, &mut network.track);
        assert_eq!(matches!(judgement, Judgement::First { .. }), fine);
    }
}

#[test]
fn threads_take_the_requests_in_turn_together() {
    let exchange = Arc::new(Exchange {
        requests: (0..5u8).map(|number| vec![number; 4]).collect(),
        tag: None,
        marks: Vec::new(),
        shortest_reply_bytes: 0,
        code: None,
        ..exchange(None, Order::InTurn)
    });
    let mut track = Track::of_exchange(&exchange, 1, 0, 1);
    let mut taken = [const { Vec::new() }; 2];
    for (thread, taken) in taken.iter_mut().enumerate() {
        let mut script = Script::new(Arc::clone(&exchange), thread, 2);
        for count in [1, 3, 2] {
            for index in 0..count {
                let mut bytes = [0; 4];
                script.write(&track, index, &mut bytes);
                taken.push(bytes[0]);
            }
            script.sent(&mut track, count, |_| 0);
        }
    }
    assert_eq!(taken, [vec![0, 2, 4, 1, 3, 0], vec![1, 3, 0, 2, 4, 1]]);
}
