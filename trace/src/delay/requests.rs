//! Joins events to requests.
//!
//! Buffers are known by their address from the client's interface to the socket. None of the
//! kernel's tracepoints reports which datagram a call read. Therefore the order of the socket's
//! queue, and the number of datagrams that wait behind it, decide. A reply belongs to the request
//! of its client with the same first two bytes (the ID of DNS). If the replies of a window do not
//! repeat these bytes, it belongs to the client's oldest request.

use std::collections::{HashMap, HashSet, VecDeque};

use super::cause::NET_RX;
use super::event::{ClientTag, EventKind, RecordedWindow};
use super::record::DelayRecord;

/// If a smaller part of the replies repeats the tag of a request, it does so by chance.
const LEAST_REPEATED: f64 = 0.1;

#[derive(Debug, Clone, Copy)]
struct OpenRequest {
    /// As far as it is known.
    record: DelayRecord,
    /// `None` after the first of the datagrams that GRO merged: their bytes were not seen.
    tag: Option<u64>,
    client: u64,
    /// Datagrams behind this one that GRO merged with it.
    merged: u16,
}

#[derive(Debug, Default)]
struct ReceiveState {
    irq: Option<u64>,
    // Time since which NET_RX is raised.
    raised: Option<u64>,
    /// Time at which NET_RX was raised, and at which it began to run.
    run: Option<(u64, u64)>,
    // End of the last poll, in this run or turn.
    polled: Option<u64>,
    thread: u32,
    turn: u64,
    /// Buffers on their way to a socket.
    order: VecDeque<u64>,
}

#[derive(Debug, Default)]
struct SocketQueue {
    /// `None` for datagrams whose path was not seen.
    known: VecDeque<Option<OpenRequest>>,
    /// Number of datagrams ahead of `known`, which arrived before the window.
    unknown: u64,
    was_read: bool,
}

impl SocketQueue {
    /// Removes and returns the datagram that was read while `waiting` datagrams were behind it.
    fn read(&mut self, waiting: u64) -> Option<OpenRequest> {
        let known_count = |queue: &Self| u64::try_from(queue.known.len()).unwrap_or(u64::MAX);
        if !self.was_read {
            self.unknown = (waiting + 1).saturating_sub(known_count(self));
            self.was_read = true;
        }
        // More datagrams than the socket can have: some left otherwise, or another thread read
        // them.
        while self.unknown + known_count(self) > waiting + 1 {
            if self.unknown > 0 {
                self.unknown -= 1;
            } else {
                self.known.pop_front();
            }
        }
        if self.unknown > 0 {
            self.unknown -= 1;
            return None;
        }
        self.known.pop_front().flatten()
    }
}

#[derive(Debug, Default)]
pub(super) struct RequestCounts {
    /// Datagrams that entered IP.
    pub(super) received: u64,
    /// Reads whose datagram is known, and all reads.
    pub(super) known_reads: u64,
    pub(super) reads: u64,
    pub(super) replies: u64,
    /// Replies that were matched by their order alone.
    pub(super) replies_by_order: u64,
}

/// The requests of a window, whose numbers are added to `counts`.
pub(super) fn match_requests(window: &RecordedWindow, counts: &mut RequestCounts) -> Vec<DelayRecord> {
    let mut records = Vec::new();
    let mut cpus: HashMap<u32, ReceiveState> = HashMap::new();
    let mut wake_times: HashMap<u32, u64> = HashMap::new();
    let mut send_times: HashMap<u64, (ClientTag, u64)> = HashMap::new();
    let mut arriving: HashMap<u64, OpenRequest> = HashMap::new();
    let mut sockets: HashMap<u64, SocketQueue> = HashMap::new();
    let mut unanswered: HashMap<u64, VecDeque<OpenRequest>> = HashMap::new();
    let mut leaving: HashMap<u64, OpenRequest> = HashMap::new();
    let repeats_tags = repeats_tags(window);
    for event in &window.events {
        let (at, cpu) = (event.at, event.cpu);
        let state = cpus.entry(cpu).or_default();
        match event.kind {
            EventKind::IrqBegin => state.irq = Some(at),
            EventKind::IrqEnd => state.irq = None,
            EventKind::SoftirqRaised => {
                state.raised.get_or_insert(state.irq.unwrap_or(at));
            }
            EventKind::SoftirqBegin { vector: NET_RX } => {
                state.run = Some((state.raised.take().unwrap_or(at), at));
                state.polled = None;
            }
            EventKind::SoftirqEnd { vector: NET_RX } => {
                state.run = None;
                state.polled = None;
                state.order.clear();
            }
            EventKind::SoftirqBegin { .. } | EventKind::SoftirqEnd { .. } => {}
            EventKind::PollEnd { .. } => state.polled = Some(at),
            EventKind::Switch { next, .. } => {
                state.thread = next;
                state.turn = at;
                state.polled = None;
            }
            EventKind::Waking { thread } => _ = wake_times.insert(thread, at),
            EventKind::RequestSent { buffer, client } => _ = send_times.insert(buffer, (client, at)),
            EventKind::Received { buffer, client, packets } => {
                counts.received += u64::from(packets.max(1));
                let (raised_at, run_at) = match (state.polled, state.run) {
                    (Some(polled), _) => (polled, polled),
                    (None, Some(run)) => run,
                    // A thread of NAPI.
                    (None, None) => {
                        let turn = if state.turn > 0 { state.turn } else { at };
                        let wake_time = wake_times.get(&state.thread).filter(|woken_at| **woken_at < turn);
                        (wake_time.copied().unwrap_or(turn), turn)
                    }
                };
                // Drivers use the buffers of sent packets again, also of requests to other hosts.
                let sent = send_times.remove(&buffer).filter(|(sender, _)| *sender == client);
                let arrival = sent.map_or(raised_at, |(_, sent_at)| sent_at);
                let mut request = OpenRequest {
                    record: DelayRecord { receive_cpu: cpu, ..DelayRecord::default() },
                    client: client.client(),
                    tag: Some(client.tag()),
                    merged: packets.saturating_sub(1),
                };
                request.record.points[..3].copy_from_slice(&[arrival, run_at.max(arrival), at]);
                arriving.insert(buffer, request);
                state.order.push_back(buffer);
            }
            EventKind::Queued { socket, last } => {
                let mut request = arriving.remove(&last);
                while request.is_none() {
                    let Some(buffer) = state.order.front() else { break };
                    match arriving.get_mut(buffer) {
                        Some(merged_request) if merged_request.merged > 0 => {
                            request = Some(*merged_request);
                            merged_request.tag = None;
                            merged_request.merged -= 1;
                        }
                        _ => request = state.order.pop_front().and_then(|buffer| arriving.remove(&buffer)),
                    }
                }
                if let Some(request) = &mut request {
                    request.record.points[3] = at;
                    request.record.socket = socket;
                }
                sockets.entry(socket).or_default().known.push_back(request);
            }
            EventKind::Read { socket, thread, waiting } => {
                counts.reads += 1;
                let Some(mut request) = sockets.entry(socket).or_default().read(waiting) else { continue };
                counts.known_reads += 1;
                // The thread's turn began before the window if no switch was seen.
                let turn = if state.thread == thread { state.turn } else { 0 };
                request.record.points[4] = turn.clamp(request.record.points[3], at);
                request.record.points[5] = at;
                request.record.reader = thread;
                request.record.read_cpu = cpu;
                unanswered.entry(request.client).or_default().push_back(request);
            }
            EventKind::ReplyQueued { buffer, client, device } => {
                counts.replies += 1;
                let Some(mut request) = take_answered(&mut unanswered, client, repeats_tags) else {
                    continue;
                };
                counts.replies_by_order += u64::from(!repeats_tags && request.tag != Some(client.tag()));
                request.record.points[6] = at;
                request.record.replier = if state.turn > 0 { state.thread } else { request.record.reader };
                request.record.device = device;
                leaving.insert(buffer, request);
            }
            EventKind::ReplySent { buffer, device } => {
                let Some(mut request) = leaving.remove(&buffer) else { continue };
                request.record.points[7] = at;
                request.record.transmit_cpu = cpu;
                if request.record.device == device {
                    records.push(request.record);
                }
            }
        }
    }
    records
}

/// Whether replies repeat the tags of their requests, as in DNS.
fn repeats_tags(window: &RecordedWindow) -> bool {
    let (mut requests, mut clients) = (HashSet::new(), HashSet::new());
    let (mut repeated, mut others) = (0_u64, 0_u64);
    for event in &window.events {
        match event.kind {
            EventKind::Received { client, packets, .. } => {
                requests.insert(client.0);
                if packets <= 1 {
                    clients.insert(client.client());
                }
            }
            EventKind::ReplyQueued { client, .. } if requests.contains(&client.0) => repeated += 1,
            EventKind::ReplyQueued { client, .. } if clients.contains(&client.client()) => others += 1,
            _ => {}
        }
    }
    repeated as f64 > (repeated + others) as f64 * LEAST_REPEATED
}

/// The request that a reply to this client answers; `None` if it came before the window.
fn take_answered(
    unanswered: &mut HashMap<u64, VecDeque<OpenRequest>>,
    client: ClientTag,
    repeats_tags: bool,
) -> Option<OpenRequest> {
    let requests = unanswered.get_mut(&client.client())?;
    let index = requests
        .iter()
        .position(|request| request.tag == Some(client.tag()))
        .or_else(|| requests.iter().position(|request| !repeats_tags || request.tag.is_none()))?;
    let request = requests.remove(index);
    if requests.is_empty() {
        unanswered.remove(&client.client());
    }
    request
}
