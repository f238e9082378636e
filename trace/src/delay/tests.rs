//! Requests, causes and the timeline of synthetic events.

use std::collections::{BTreeMap, BTreeSet};

use linerate_host::Known;
use proptest::prelude::*;
use serde_json::Value;

use super::cause::{CauseFinder, NET_RX};
use super::chrome::DelayTrace;
use super::event::{ClientTag, EventKind, RecordedWindow, TraceEvent};
use super::requests::{self, RequestCounts};
use super::stacks::StackSample;
use super::summary::DelaySummary;
use super::timeline::WindowTimeline;
use super::{DelayCause, DelayRecord, DelayStage};
use crate::sys::KernelName;

const SERVER: u32 = 70;
const BURNER: u32 = 80;

fn switch(next: u32, name: &str, sleeps: bool) -> EventKind {
    let mut bytes = [0; 16];
    bytes[..name.len()].copy_from_slice(name.as_bytes());
    EventKind::Switch { sleeps, next, name: KernelName(bytes) }
}

fn window(events: &[(u64, u32, EventKind)]) -> RecordedWindow {
    let events = events.iter().map(|(at, cpu, kind)| TraceEvent { at: *at, cpu: *cpu, kind: *kind });
    let mut events: Vec<_> = events.collect();
    events.sort_by_key(|event| event.at);
    let end = events.last().map_or(0, |event| event.at + 1);
    RecordedWindow { begin: 1, end, events, ..RecordedWindow::default() }
}

/// A request that arrives on CPU 0 and is read on CPU 1, with the time of each step.
struct RequestTimes {
    buffer: u64,
    client: u64,
    waiting: u64,
    at: [u64; 8],
}

impl RequestTimes {
    fn events(&self) -> Vec<(u64, u32, EventKind)> {
        let Self { buffer, client, waiting, at } = *self;
        let client = ClientTag(client);
        vec![
            (at[0], 0, EventKind::SoftirqRaised),
            (at[1], 0, EventKind::SoftirqBegin { vector: NET_RX }),
            (at[2], 0, EventKind::Received { buffer, client, packets: 0 }),
            (at[3], 0, EventKind::Queued { socket: 5, last: buffer }),
            (at[3], 0, EventKind::Waking { thread: SERVER }),
            (at[3] + 1, 0, EventKind::SoftirqEnd { vector: NET_RX }),
            (at[4], 1, switch(SERVER, "server", false)),
            (at[5], 1, EventKind::Read { socket: 5, thread: SERVER, waiting }),
            (at[6], 1, EventKind::ReplyQueued { buffer: buffer + 1, client, device: 2 }),
            (at[7], 1, EventKind::ReplySent { buffer: buffer + 1, device: 2 }),
            (at[7] + 1, 1, switch(0, "swapper/1", true)),
        ]
    }
}

fn match_requests(window: &RecordedWindow) -> (Vec<DelayRecord>, RequestCounts) {
    let mut counts = RequestCounts::default();
    (requests::match_requests(window, &mut counts), counts)
}

fn cause(events: &[(u64, u32, EventKind)], record: &DelayRecord, stage: DelayStage) -> DelayCause {
    let timeline = WindowTimeline::new(&window(events), &BTreeSet::from([record.reader]));
    let interfaces = BTreeMap::from([(2, "eth0".to_owned())]);
    CauseFinder { timeline: &timeline, interfaces: &interfaces }.cause(record, stage)
}

const ONE: RequestTimes =
    RequestTimes { buffer: 100, client: 9 << 16, waiting: 0, at: [10, 20, 30, 40, 50, 60, 70, 80] };

#[test]
fn matched_request_has_the_times_of_its_events() {
    let (records, _) = match_requests(&window(&ONE.events()));
    let [record] = &records[..] else { panic!("{records:?}") };
    assert_eq!(record.points, ONE.at);
    let stages: u64 = DelayStage::ALL.iter().map(|stage| record.stage_ns(*stage)).sum();
    assert_eq!((stages, record.end_to_end_ns()), (70, 70));
    assert_eq!((record.receive_cpu, record.read_cpu, record.reader), (0, 1, SERVER));
}

#[test]
fn datagram_queued_before_the_window_matches_no_request() {
    let mut events = ONE.events();
    // A datagram from before the window is read first.
    events.push((45, 1, EventKind::Read { socket: 5, thread: SERVER, waiting: 1 }));
    let (records, counts) = match_requests(&window(&events));
    assert_eq!((counts.reads, counts.known_reads), (2, 1));
    assert_eq!(records[0].points[5], 60);
}

#[test]
fn unread_datagram_does_not_shift_later_matches() {
    let lost = RequestTimes { buffer: 300, client: 7 << 16, at: [1, 2, 3, 4, 5, 6, 7, 8], waiting: 0 };
    let queued = lost.events().into_iter().take(6);
    let events: Vec<_> = queued.chain(ONE.events()).collect();
    // When `ONE` was read, no other datagram waited in the socket.
    let first =
        RequestTimes { buffer: 500, client: 8 << 16, at: [91, 92, 93, 94, 95, 96, 97, 98], waiting: 0 };
    let (records, _) = match_requests(&window(&[events, first.events()].concat()));
    let points: Vec<_> = records.iter().map(|record| record.points).collect();
    assert!(points.contains(&first.at), "{points:?}");
}

#[test]
fn replies_belong_to_the_request_with_their_tag_or_else_to_the_oldest() {
    const TIMES: [u64; 8] = [10, 20, 30, 40, 50, 60, 170, 180];
    // Each request is read before the previous one is answered.
    let requests = [1, 2, 3].map(|id| {
        let at = TIMES.map(|point| id * 100 + point);
        RequestTimes { buffer: id * 10, client: 9 << 16 | id, waiting: 0, at }
    });
    let times = requests.each_ref().map(|request| request.at);
    let events: Vec<_> = requests.iter().flat_map(RequestTimes::events).collect();
    let earlier = [
        (165, 1, EventKind::ReplyQueued { buffer: 7, client: ClientTag(9 << 16 | 90), device: 2 }),
        (166, 1, EventKind::ReplySent { buffer: 7, device: 2 }),
    ];
    let other_tags = events.iter().map(|(at, cpu, kind)| match *kind {
        EventKind::ReplyQueued { buffer, client, device } => {
            (*at, *cpu, EventKind::ReplyQueued { buffer, client: ClientTag(client.0 | 0x8000), device })
        }
        other => (*at, *cpu, other),
    });
    for (events, by_order) in [(other_tags.collect(), 3), ([&events[..], &earlier].concat(), 0)] {
        let (records, counts) = match_requests(&window(&events));
        let points: Vec<_> = records.iter().map(|record| record.points).collect();
        assert_eq!((points, counts.replies_by_order), (times.to_vec(), by_order));
    }
}

#[test]
fn only_the_send_time_of_the_same_client_begins_a_request() {
    for (client, begin) in [(9 << 16, 5), (4 << 16, ONE.at[0])] {
        let sent = (5, 1, EventKind::RequestSent { buffer: ONE.buffer, client: ClientTag(client) });
        let (records, _) = match_requests(&window(&[vec![sent], ONE.events()].concat()));
        assert_eq!(records[0].points[0], begin);
    }
}

#[test]
fn gro_merged_packets_share_one_arrival_time() {
    let mut events = ONE.events();
    let client = ClientTag(9 << 16 | 1);
    events[2].2 = EventKind::Received { buffer: 100, client, packets: 3 };
    events.retain(|(_, _, kind)| !matches!(kind, EventKind::Queued { .. }));
    // The merged packet is split, so that no datagram has the buffer that arrived.
    for number in 0..3 {
        events.push((38 + number, 0, EventKind::Queued { socket: 5, last: 900 + number }));
        events.push((52 + number, 1, EventKind::Read { socket: 5, thread: SERVER, waiting: 2 - number }));
        let client = ClientTag(9 << 16 | (1 + number));
        events.push((65 + number, 1, EventKind::ReplyQueued { buffer: 500 + number, client, device: 2 }));
        events.push((75 + number, 1, EventKind::ReplySent { buffer: 500 + number, device: 2 }));
    }
    events.retain(|(at, _, _)| !(58..64).contains(at) && *at < 79);
    let (records, _) = match_requests(&window(&events));
    let times: Vec<_> =
        records.iter().map(|record| (record.points[2], record.points[3], record.points[5])).collect();
    assert_eq!(times, [(30, 38, 52), (30, 39, 53), (30, 40, 54)], "{records:?}");
}

#[test]
fn each_delay_stage_has_its_cause() {
    let record = match_requests(&window(&ONE.events())).0[0];
    // A thread that keeps NET_RX from running, and the same thread on the server's CPU.
    let busy = |cpu, at| (at, cpu, switch(BURNER, "burner", false));
    let burner = DelayCause::OtherThread { thread: "burner".to_owned() };
    let server = "server".to_owned();
    let events = [ONE.events(), vec![busy(0, 9)]].concat();
    assert_eq!(cause(&events, &record, DelayStage::Softirq), burner);
    assert_eq!(cause(&events, &record, DelayStage::Poll), DelayCause::Packets);
    assert_eq!(
        cause(&events, &record, DelayStage::Transmit),
        DelayCause::Qdisc { interface: "eth0".to_owned() }
    );
    assert_eq!(cause(&events, &record, DelayStage::Server), DelayCause::ServerRan { thread: server.clone() });
    // The server was runnable from 40 on, while the burner ran.
    let before = [(5, 1, switch(SERVER, "server", false)), (6, 1, switch(BURNER, "burner", true))];
    let events = [ONE.events(), before.to_vec()].concat();
    assert_eq!(cause(&events, &record, DelayStage::WakeUp), burner);
    // The server slept while it had a request.
    let sleeps = vec![
        (61, 1, switch(0, "swapper/1", true)),
        (68, 0, EventKind::Waking { thread: SERVER }),
        (69, 1, switch(SERVER, "server", false)),
    ];
    let events = [ONE.events(), sleeps].concat();
    assert_eq!(cause(&events, &record, DelayStage::Server), DelayCause::ServerSlept { thread: server });
}

#[test]
fn summary_reports_the_reasons_of_the_slowest_requests_most_frequent_first() {
    let requests = (0..400_u64).flat_map(|number| {
        let at = number * 1000;
        let mut times = ONE.at.map(|point| at + point);
        // Four slow requests, three of them in the server. Four others are less slow.
        match number {
            0 => (4..8).for_each(|point| times[point] += 420),
            50 | 100 | 150 => (times[6], times[7]) = (at + 500, at + 510),
            200 | 250 | 300 | 350 => times[7] += 100,
            _ => {}
        }
        RequestTimes { buffer: 100 + number * 10, client: number << 16, at: times, ..ONE }.events()
    });
    let mut summary = DelaySummary::default();
    summary.add(&window(&requests.collect::<Vec<_>>()), &BTreeMap::new(), |_| None);
    let report = summary.report(&Known::unknown("none"));
    assert_eq!((report.end_to_end_ns.count, report.slowest_ns.count), (400, 4));
    let reasons: Vec<_> =
        report.reasons.iter().map(|reason| (reason.stage, reason.stage_ns, reason.requests)).collect();
    assert_eq!(reasons, [(DelayStage::Server, 440, 3), (DelayStage::WakeUp, 430, 1)]);
}

#[test]
fn delay_trace_is_written_in_the_trace_event_format() {
    let events: Vec<_> = (0..20_u64)
        .flat_map(|number| {
            let at = ONE.at.map(|point| number * 100 + point);
            RequestTimes { buffer: 100 + number * 10, client: number << 16, at, ..ONE }.events()
        })
        .collect();
    let mut output = Vec::new();
    DelayTrace::from_window(53, window(&events)).write(&mut output).expect("written");
    let document: Value = serde_json::from_slice(&output).expect("JSON");
    let events = document["traceEvents"].as_array().expect("an array");
    let mut slices: BTreeMap<u64, Vec<(f64, f64)>> = BTreeMap::new();
    let mut phases: BTreeMap<(&str, u64), Vec<&str>> = BTreeMap::new();
    for event in events {
        let number = |key: &str| event[key].as_f64().unwrap_or_else(|| panic!("{key} of {event}"));
        let phase = event["ph"].as_str().expect("a phase");
        assert!(number("ts") >= 0.0 && number("pid") > 0.0 && event["name"].is_string(), "{event}");
        match phase {
            "X" => slices.entry(number("tid") as u64).or_default().push((number("ts"), number("dur"))),
            "M" => assert!(event["args"]["name"].is_string()),
            _ => {
                let category = event["cat"].as_str().expect("a category");
                phases.entry((category, number("id") as u64)).or_default().push(phase);
            }
        }
    }
    // On one track slices never overlap, and each request has an arrow with begin, step and end.
    for track in slices.values() {
        assert!(track.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0 + 1e-9), "{track:?}");
    }
    let arrows = phases.iter().filter(|((category, _), _)| *category == "request");
    assert_eq!(arrows.filter(|(_, phases)| **phases == ["s", "t", "f"]).count(), 20);
    let waits = phases.iter().filter(|((category, _), _)| *category == "socket");
    assert_eq!(waits.filter(|(_, phases)| **phases == ["b", "e"]).count(), 20);
}

proptest! {
    #[test]
    fn stages_add_up_for_arbitrary_events(
        events in proptest::collection::vec((1..400_u64, 0..3_u32, 0..14_u8, 0..6_u64), 0..300)
    ) {
        let kind = |kind: u8, number: u64| {
            let (buffer, client, socket) = (number, ClientTag((number % 3) << 16), 1);
            let thread = SERVER + u32::try_from(number).unwrap_or(0);
            match kind {
                0 => EventKind::IrqBegin,
                1 => EventKind::IrqEnd,
                2 => EventKind::SoftirqRaised,
                3 => EventKind::SoftirqBegin { vector: NET_RX },
                4 => EventKind::SoftirqEnd { vector: NET_RX },
                5 => EventKind::PollEnd { packets: 1 },
                6 => EventKind::Switch { sleeps: number.is_multiple_of(2), next: thread, name: KernelName::default() },
                7 => EventKind::Waking { thread },
                8 => EventKind::RequestSent { buffer, client },
                9 => EventKind::Received { buffer, client, packets: u16::try_from(number).unwrap_or(0) },
                10 => EventKind::Queued { socket, last: buffer },
                11 => EventKind::Read { socket, thread, waiting: number },
                12 => EventKind::ReplyQueued { buffer, client, device: 1 },
                _ => EventKind::ReplySent { buffer, device: 1 },
            }
        };
        let events: Vec<_> =
            events.into_iter().map(|(at, cpu, number, argument)| (at, cpu, kind(number, argument))).collect();
        let window = window(&events);
        for record in match_requests(&window).0 {
            prop_assert!(record.points.is_sorted(), "{record:?}");
            let sum: u64 = DelayStage::ALL.iter().map(|stage| record.stage_ns(*stage)).sum();
            prop_assert_eq!(sum, record.end_to_end_ns());
        }
        DelaySummary::default().add(&window, &BTreeMap::new(), |_| None);
    }
}

#[test]
fn longest_softirqs_have_the_stack_sampled_nearest_their_middle() {
    const TIMER: u16 = 1;
    let mut recording = window(&[
        (10, 0, EventKind::SoftirqBegin { vector: NET_RX }),
        (30, 0, EventKind::SoftirqEnd { vector: NET_RX }),
        (100, 1, EventKind::SoftirqBegin { vector: TIMER }),
        (900, 1, EventKind::SoftirqEnd { vector: TIMER }),
        (910, 1, EventKind::SoftirqBegin { vector: TIMER }),
        (5_000, 1, EventKind::SoftirqEnd { vector: NET_RX }),
    ]);
    let stack = |at, cpu, address| StackSample { at, cpu, addresses: vec![address, 1, 99] };
    recording.stacks = vec![stack(110, 1, 2), stack(480, 1, 3), stack(490, 0, 4), stack(890, 1, 2)];
    let mut summary = DelaySummary::default();
    summary.add(&recording, &BTreeMap::new(), |_| None);
    let function = |address| {
        Known::Value(match address {
            1 => "handle_softirqs.isra.0".to_owned(),
            other => format!("f{other}"),
        })
    };
    let longest = summary.longest_softirqs(function, "unsampled");
    let of = |at: usize| (longest[at].cpu, longest[at].name.as_str(), longest[at].ns);
    assert_eq!((of(0), of(1), longest.len()), ((1, "TIMER", 800), (0, "NET_RX", 20), 2));
    assert_eq!(
        longest[0].functions,
        Known::Value(vec!["f3".to_owned()]),
        "without the interrupted functions"
    );
    assert_eq!(longest[1].functions.why(), Some("unsampled"));
}
