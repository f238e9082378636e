//! Makes a ledger from evidence.

use linerate_host::Known;

use super::divide::PlacedLoss;
use super::evidence::{CounterUse, PacketEvidence};
use super::fallen::fallen;
use super::unseen::{CompletedEvidence, completed};
use super::way::{UnbalancedStage, attributed, balanced};
use super::{AccountingPath, LossExactness, PacketAccounting, PathStep, StageLoss, checks, device, gaps};
use crate::drops::causes;
use crate::drops::seen::{NamespaceScope, PacketDirection, PacketOrigin, PathPoint, PortSubject};

/// Losses without a stage yet.
struct UnplacedLosses(Vec<PlacedLoss>);

impl UnplacedLosses {
    /// Removes the losses of a stage.
    fn take(&mut self, is_of: impl Fn(&PlacedLoss) -> bool) -> Vec<StageLoss> {
        let (these, others) = std::mem::take(&mut self.0).into_iter().partition(is_of);
        self.0 = others;
        these.into_iter().map(|fallen| fallen.loss).collect()
    }
}

impl PacketAccounting {
    pub fn make(evidence: &PacketEvidence) -> Self {
        let CompletedEvidence { evidence, fallen, mut notes } = completed(evidence, fallen(evidence));
        let evidence = &evidence;
        let taken = taken(evidence, &fallen, &mut notes);
        notes.extend(checks::notes(evidence, &fallen));
        let mut losses = UnplacedLosses(fallen);
        let forwarded = forwarded(evidence, &mut losses);
        let mut requests = requests(evidence, &mut losses, taken);
        let mut replies = replies(evidence, &mut losses, &requests, &mut notes);
        gaps::explain(evidence, &mut requests, PacketDirection::Request);
        gaps::explain(evidence, &mut replies, PacketDirection::Reply);
        Self {
            subject: named(&evidence.subject),
            seconds: evidence.seen.seconds,
            requests,
            replies,
            forwarded,
            overhead: evidence.overhead.clone(),
            sampled: evidence.sampled,
            elsewhere: losses.0.into_iter().map(|fallen| fallen.loss).collect(),
            notes,
        }
    }
}

fn named(subject: &PortSubject) -> String {
    let ports: Vec<String> = subject.ports.iter().map(u16::to_string).collect();
    let what = match ports.as_slice() {
        [] => "all UDP".to_owned(),
        [port] => format!("UDP port {port}"),
        ports => format!("UDP ports {}", ports.join(", ")),
    };
    let peer = subject.peer.map(|peer| format!(" with {peer}")).unwrap_or_default();
    let place = match subject.network {
        NamespaceScope::Here => String::new(),
        NamespaceScope::Inode(inode) => format!(" in network namespace {inode}"),
        NamespaceScope::All => " in all network namespaces".to_owned(),
    };
    format!("{what}{peer}{place}")
}

/// Requests that the queues of macvtaps accepted: from counters of all packets, up to the number of
/// missing requests.
fn taken(evidence: &PacketEvidence, fallen: &[PlacedLoss], notes: &mut Vec<String>) -> u64 {
    let passed = |point| evidence.passed(point, PacketDirection::Request).into_value();
    let Some((received, delivered)) = passed(PathPoint::Received).zip(passed(PathPoint::Delivered)) else {
        return 0;
    };
    let behind = [PathStep::Ingress, PathStep::Filter, PathStep::Route, PathStep::Socket];
    let lost = fallen
        .iter()
        .filter(|fallen| is_received(fallen, PacketDirection::Request) && behind.contains(&fallen.step))
        .map(|fallen| fallen.loss.packets);
    let forwarded = passed(PathPoint::Forwarded).unwrap_or_default();
    let gone = lost.fold(delivered.saturating_add(forwarded), u64::saturating_add);
    let mut missing = received.saturating_sub(gone);
    let mut taken = 0;
    for grown in evidence.of_kind(CounterUse::MacvtapTaken) {
        let packets = grown.packets.min(missing);
        if packets > 0 {
            let label = evidence.ports.get(&grown.place).unwrap_or(&grown.place);
            notes.push(format!(
                "{packets} requests are counted as taken by {label}: no tracepoint sees them, and {} grew by {}",
                grown.read_from, grown.packets
            ));
        }
        (missing, taken) = (missing - packets, taken + packets);
    }
    taken
}

fn requests(evidence: &PacketEvidence, losses: &mut UnplacedLosses, taken: u64) -> AccountingPath {
    let passed = |point| evidence.passed(point, PacketDirection::Request);
    let mut at =
        |step| losses.take(|fallen| is_received(fallen, PacketDirection::Request) && fallen.step == step);
    let sent = match &evidence.generator {
        Some(generator) => Known::Value(generator.sent),
        None => Known::unknown("no generator said what it sent"),
    };
    let softirq = at(PathStep::Softirq);
    let arrived = passed(PathPoint::Received).map(|received| received.saturating_add(sum(&softirq)));
    let (link, xdp) =
        before_arrival(evidence, sent.value().zip(arrived.value()), at(PathStep::Link), at(PathStep::Xdp));
    let (waited, waiting) = (&evidence.waited, &evidence.waiting);
    let handled =
        both_ends(evidence, &[PathPoint::Received, PathPoint::Forwarded, PathPoint::Delivered], true);
    let forwarded = passed(PathPoint::Forwarded).into_value().unwrap_or_default();
    let mut legs = vec![
        UnbalancedStage::of(PathStep::Link, link),
        UnbalancedStage::of(PathStep::Xdp, xdp),
        UnbalancedStage::counted(PathStep::Softirq, softirq, passed(PathPoint::Received))
            .waiting(waited.backlogs_packets, waiting.backlogs_packets),
        UnbalancedStage::of(PathStep::Ingress, at(PathStep::Ingress)).forwarding(taken),
        UnbalancedStage::of(PathStep::Filter, at(PathStep::Filter)),
        UnbalancedStage::of(PathStep::Route, at(PathStep::Route)).forwarding(forwarded),
        UnbalancedStage::counted(PathStep::Socket, at(PathStep::Socket), passed(PathPoint::Delivered))
            .waiting(handled, handled),
        application(evidence, at(PathStep::Application)),
    ];
    if evidence.generator.is_some() {
        legs.insert(0, UnbalancedStage::counted(PathStep::Generator, Vec::new(), sent.clone()));
    }
    balanced(sent, legs)
}

/// The losses of the device and of XDP, known from device counters.
fn before_arrival(
    evidence: &PacketEvidence,
    sent_arrived: Option<(&u64, &u64)>,
    link: Vec<StageLoss>,
    xdp: Vec<StageLoss>,
) -> (Vec<StageLoss>, Vec<StageLoss>) {
    const LINK: [(CounterUse, &str); 3] = [
        (CounterUse::DeviceLost, "device-lost"),
        (CounterUse::DeviceAllowance, "allowance"),
        (CounterUse::DeviceDamaged, "damaged-frame"),
    ];
    const XDP: [(CounterUse, &str); 2] =
        [(CounterUse::XdpDropped, "xdp-drop"), (CounterUse::XdpFailed, "xdp-failed")];
    let counted_xdp = device::losses(evidence, &XDP, &xdp);
    let counted_link = device::losses(evidence, &LINK, &link);
    let missing = sent_arrived.map(|(sent, arrived)| {
        [&link, &xdp]
            .into_iter()
            .flatten()
            .fold(sent.saturating_sub(*arrived), |missing, loss| missing.saturating_sub(loss.packets))
    });
    // A program's drops are counted exactly and by queue; the other packets may have been lost in
    // the ring.
    let counted_xdp = attributed(counted_xdp, missing);
    let found: u64 = counted_xdp.iter().map(|loss| loss.packets).sum();
    let counted_link = attributed(counted_link, missing.map(|missing| missing.saturating_sub(found)));
    ([link, counted_link].concat(), [xdp, counted_xdp].concat())
}

/// The reading program: only complete datagrams continue to the next stage.
fn application(evidence: &PacketEvidence, mut losses: Vec<StageLoss>) -> UnbalancedStage {
    let passed = |point| evidence.passed(point, PacketDirection::Request);
    let cut = passed(PathPoint::Truncated).into_value().unwrap_or_default();
    if let Some(cause) = causes::named("truncated").filter(|_| cut > 0) {
        let exactness = match passed(PathPoint::LengthUnknown) {
            Known::Value(0) => LossExactness::Exact,
            _ => LossExactness::Sampled,
        };
        losses.push(StageLoss::of(
            cause,
            cut,
            exactness,
            "sock_recv_length and the datagrams' lengths".to_owned(),
        ));
    }
    let whole = passed(PathPoint::Read).map(|read| read.saturating_sub(cut));
    let (waited, waiting) = (evidence.waited.most_datagrams(), evidence.waiting.most_datagrams());
    let between = both_ends(evidence, &[PathPoint::Delivered, PathPoint::Read], false);
    UnbalancedStage::counted(PathStep::Application, losses, whole)
        .waiting(waited.saturating_add(between), waiting.saturating_add(between))
}

fn replies(
    evidence: &PacketEvidence,
    losses: &mut UnplacedLosses,
    requests: &AccountingPath,
    notes: &mut Vec<String>,
) -> AccountingPath {
    let passed = |point| evidence.passed(point, PacketDirection::Reply);
    let mut at = |step| {
        let is_ours = |fallen: &PlacedLoss| {
            (fallen.direction, fallen.origin) == (PacketDirection::Reply, PacketOrigin::Local)
        };
        losses.take(|fallen| is_ours(fallen) && fallen.step == step)
    };
    let (filter, route, ingress) = (at(PathStep::Filter), at(PathStep::Route), at(PathStep::Ingress));
    let fell = sum(&filter).saturating_add(sum(&route)).saturating_add(sum(&ingress));
    let called = both(passed(PathPoint::Sent), passed(PathPoint::SendFailed), u64::saturating_add);
    let failed = failed_calls(&called, &passed(PathPoint::SendFailed), fell, &passed(PathPoint::Queued));
    let AnsweringCounts { first, silent, at_work } = answering(evidence, requests, &called, notes);
    let handled = both_ends(evidence, &[PathPoint::Sent, PathPoint::Queued], true);
    let left = called.map(|called| called.saturating_sub(failed.as_ref().map_or(0, |loss| loss.packets)));
    let (waited, waiting) = (evidence.waited.disciplines_packets, evidence.waiting.disciplines_packets);
    let application = silent.into_iter().chain(failed).chain(at(PathStep::Application)).collect();
    let mut legs = vec![
        UnbalancedStage::counted(PathStep::Application, application, left).waiting(0, at_work),
        UnbalancedStage::of(PathStep::Filter, filter),
        UnbalancedStage::of(PathStep::Route, route),
        UnbalancedStage::counted(PathStep::Ingress, ingress, passed(PathPoint::Queued))
            .waiting(handled, handled),
    ];
    let transmit = at(PathStep::Transmit);
    let waits = waiting.saturating_sub(waited);
    let left =
        passed(PathPoint::Queued).map(|queued| queued.saturating_sub(sum(&transmit)).saturating_sub(waits));
    legs.push(UnbalancedStage::of(PathStep::Transmit, transmit).waiting(waited, waiting));
    let link = at(PathStep::Link);
    match &evidence.generator {
        None => legs.push(UnbalancedStage::of(PathStep::Link, link)),
        Some(generator) => {
            let left = left.map(|left| left.saturating_sub(sum(&link)));
            let missing = left.value().map(|left| left.saturating_sub(generator.received()));
            let unsent = device::losses(evidence, &[(CounterUse::DeviceUnsent, "transmit-ring")], &link);
            let unsent = attributed(unsent, missing);
            let gone = missing.map(|missing| missing.saturating_sub(sum(&unsent)));
            legs.push(UnbalancedStage::of(PathStep::Link, [link, unsent].concat()));
            let lost = loss("reply-lost", gone.unwrap_or_default(), "the generator's own count");
            legs.push(UnbalancedStage::counted(PathStep::Wire, lost, Known::Value(generator.received())));
            let late = loss("reply-late", generator.late, "the generator's own count");
            let wanted = generator.received() - generator.late;
            legs.push(UnbalancedStage::counted(PathStep::Generator, late, Known::Value(wanted)));
        }
    }
    balanced(first, legs)
}

// Calls that failed and never became a packet. A packet that netfilter drops on transmit also
// makes the call fail, and is that rule's loss.
fn failed_calls(
    called: &Known<u64>,
    failed: &Known<u64>,
    fell: u64,
    queued: &Known<u64>,
) -> Option<StageLoss> {
    let (called, failed, queued) = (*called.value()?, *failed.value()?, *queued.value()?);
    let missing = called.saturating_sub(fell).saturating_sub(queued);
    loss("send-failed", failed.min(missing), "sock_send_length").pop()
}

/// Requests that reached the replying program.
struct AnsweringCounts {
    /// As requests, or as send calls if the two are unrelated.
    first: Known<u64>,
    /// Requests without a reply.
    silent: Option<StageLoss>,
    /// Requests that may still be in progress.
    at_work: u64,
}

// Requests to the program, and those without a reply. Only for a server's ports, because otherwise
// received and sent packets are unrelated.
fn answering(
    evidence: &PacketEvidence,
    requests: &AccountingPath,
    called: &Known<u64>,
    notes: &mut Vec<String>,
) -> AnsweringCounts {
    let unrelated = |why: &str| AnsweringCounts { first: called_or(called, why), silent: None, at_work: 0 };
    let between = both_ends(evidence, &[PathPoint::Sent, PathPoint::SendFailed], false);
    if evidence.subject.ports.is_empty() {
        return unrelated("no port was named");
    }
    let read = evidence.passed(PathPoint::Read, PacketDirection::Request).into_value();
    // A truncated request may have been answered or not.
    let whole = requests.entry(PathStep::Application).and_then(|entry| entry.packets_out.value().copied());
    match (read.zip(whole), called.value()) {
        (Some((read, _)), Some(0)) if read > 0 => {
            notes.push(format!("the program read {read} packets and sent none from these ports"));
            unrelated("nothing was sent")
        }
        (Some((_, whole)), Some(called)) if *called < whole => {
            let at_work = between.min(whole - called);
            let silent = whole - called - at_work;
            let silent = loss("not-answered", silent, "sock_recv_length less sock_send_length").pop();
            AnsweringCounts { first: Known::Value(whole), silent, at_work }
        }
        (Some((read, _)), Some(called)) if *called > read.saturating_add(between) => {
            notes.push(format!("the program sent {} packets more than it read", called - read));
            unrelated("")
        }
        _ => unrelated(""),
    }
}

fn called_or(called: &Known<u64>, why: &str) -> Known<u64> {
    match called {
        Known::Value(called) => Known::Value(*called),
        Known::Unknown { why: unknown } if why.is_empty() => Known::unknown(unknown.clone()),
        Known::Unknown { .. } => Known::unknown(why),
    }
}

/// Forwarded packets. Losses before the transmitting device belong to the receive path, except for
/// replies, of which the number for local programs is unknown.
fn forwarded(evidence: &PacketEvidence, losses: &mut UnplacedLosses) -> AccountingPath {
    const BEFORE: [PathStep; 3] = [PathStep::Ingress, PathStep::Filter, PathStep::Route];
    const BEHIND: [PathStep; 2] = [PathStep::Transmit, PathStep::Link];
    let passed =
        |direction| evidence.passed(PathPoint::Forwarded, direction).into_value().unwrap_or_default();
    let (requests, replies) = (passed(PacketDirection::Request), passed(PacketDirection::Reply));
    if requests == 0 && replies == 0 {
        return AccountingPath::default();
    }
    let received = |fallen: &PlacedLoss| fallen.origin == PacketOrigin::Received;
    let before: Vec<Vec<StageLoss>> = BEFORE
        .iter()
        .map(|step| {
            let is_reply =
                |fallen: &PlacedLoss| received(fallen) && fallen.direction == PacketDirection::Reply;
            losses.take(|fallen| is_reply(fallen) && fallen.step == *step)
        })
        .collect();
    let lost = before.iter().map(|losses| sum(losses)).fold(0, u64::saturating_add);
    let behind = BEHIND.iter().map(|step| losses.take(|fallen| received(fallen) && fallen.step == *step));
    let legs = BEFORE.iter().zip(before).chain(BEHIND.iter().zip(behind.collect::<Vec<_>>()));
    let first = requests.saturating_add(replies).saturating_add(lost);
    balanced(Known::Value(first), legs.map(|(step, losses)| UnbalancedStage::of(*step, losses)).collect())
}

/// Whether a loss concerns received packets.
fn is_received(fallen: &PlacedLoss, direction: PacketDirection) -> bool {
    fallen.direction == direction && fallen.origin != PacketOrigin::Local
}

fn sum(losses: &[StageLoss]) -> u64 {
    losses.iter().map(|loss| loss.packets).fold(0, u64::saturating_add)
}

/// Packets that may have been between points at either end of the time.
fn both_ends(evidence: &PacketEvidence, points: &[PathPoint], is_handled: bool) -> u64 {
    let (begin, end) = evidence.between(points, is_handled);
    begin.saturating_add(end)
}

fn both(one: Known<u64>, other: Known<u64>, of: impl Fn(u64, u64) -> u64) -> Known<u64> {
    match (one, other) {
        (Known::Value(one), Known::Value(other)) => Known::Value(of(one, other)),
        (Known::Unknown { why }, _) | (_, Known::Unknown { why }) => Known::Unknown { why },
    }
}

fn loss(name: &str, packets: u64, source: &str) -> Vec<StageLoss> {
    let cause = causes::named(name).filter(|_| packets > 0);
    cause
        .map(|cause| StageLoss::of(cause, packets, LossExactness::Exact, source.to_owned()))
        .into_iter()
        .collect()
}
