//! Makes a ledger from evidence.

use linerate_host::Known;

use super::direction_balance::{UnbalancedStage, attribute_losses, balance_stages};
use super::divide::{PlacedLoss, packets};
use super::evidence::{CounterUse, PacketEvidence};
use super::ignored_packets::leave_out_ignored_packets;
use super::loss_placement::place_losses;
use super::untraced_packets::add_untraced_packets;
use super::{AccountingPath, LossExactness, PacketAccounting, PathStep, StageLoss, checks, device, gaps};
use crate::drops::causes;
use crate::drops::packet_counts::{PacketDirection, PacketOrigin, PathPoint, PortSubject};

/// Takes the losses of a stage.
fn take(unplaced: &mut Vec<PlacedLoss>, is_of: impl Fn(&PlacedLoss) -> bool) -> Vec<StageLoss> {
    unplaced.extract_if(.., |placed| is_of(placed)).map(|placed| placed.loss).collect()
}

impl PacketAccounting {
    pub fn make(evidence: &PacketEvidence) -> Self {
        let mut evidence = evidence.clone();
        let ignored_note = leave_out_ignored_packets(&mut evidence);
        let mut losses = place_losses(&evidence);
        let mut notes = add_untraced_packets(&mut evidence, &mut losses);
        let evidence = &evidence;
        notes.extend(ignored_note);
        let taken_packets = macvtap_packets(evidence, &losses, &mut notes);
        notes.extend(checks::notes(evidence, &losses));
        let forwarded = forwarded(evidence, &mut losses);
        let mut requests = requests(evidence, &mut losses, taken_packets);
        let mut replies = replies(evidence, &mut losses, &requests, &mut notes);
        gaps::explain(evidence, &mut requests, PacketDirection::Request);
        gaps::explain(evidence, &mut replies, PacketDirection::Reply);
        Self {
            subject: describe_subject(&evidence.subject),
            seconds: evidence.seen.seconds,
            requests,
            replies,
            forwarded,
            overhead: evidence.overhead.clone(),
            sampled: evidence.sampled,
            elsewhere: losses.into_iter().map(|placed| placed.loss).collect(),
            notes,
        }
    }
}

fn describe_subject(subject: &PortSubject) -> String {
    let ports: Vec<String> = subject.ports.iter().map(u16::to_string).collect();
    let traffic = match ports.as_slice() {
        [] => "all UDP".to_owned(),
        [port] => format!("UDP port {port}"),
        ports => format!("UDP ports {}", ports.join(", ")),
    };
    let peer = subject.peer.map(|peer| format!(" with {peer}")).unwrap_or_default();
    format!("{traffic}{peer}")
}

/// Requests that the queues of macvtaps accepted: from counters of all packets, up to the number of
/// missing requests.
fn macvtap_packets(evidence: &PacketEvidence, placed_losses: &[PlacedLoss], notes: &mut Vec<String>) -> u64 {
    let passed = |point| evidence.passed(point, PacketDirection::Request).into_value();
    let Some((received, delivered)) = passed(PathPoint::Received).zip(passed(PathPoint::Delivered)) else {
        return 0;
    };
    let later_steps = [PathStep::Ingress, PathStep::Filter, PathStep::Route, PathStep::Socket];
    let lost_packets = packets(placed_losses.iter().filter(|placed| {
        is_received(placed, PacketDirection::Request) && later_steps.contains(&placed.step)
    }));
    let forwarded = passed(PathPoint::Forwarded).unwrap_or_default();
    let mut missing =
        received.saturating_sub(delivered.saturating_add(forwarded).saturating_add(lost_packets));
    let mut taken_packets = 0;
    for counter in evidence.counters_of_kind(CounterUse::MacvtapTaken) {
        let packets = counter.packets.min(missing);
        if packets > 0 {
            let label = evidence.ports.get(&counter.place).unwrap_or(&counter.place);
            notes.push(format!(
                "{packets} requests are counted as taken by {label}: no tracepoint sees them, and {} grew by {}",
                counter.read_from, counter.packets
            ));
        }
        (missing, taken_packets) = (missing - packets, taken_packets + packets);
    }
    taken_packets
}

fn requests(evidence: &PacketEvidence, losses: &mut Vec<PlacedLoss>, taken_packets: u64) -> AccountingPath {
    let passed = |point| evidence.passed(point, PacketDirection::Request);
    let mut take_losses = |step| {
        let is_request = |placed: &PlacedLoss| is_received(placed, PacketDirection::Request);
        take(losses, |placed| is_request(placed) && placed.step == step)
    };
    let sent = match &evidence.generator {
        Some(generator) => Known::Value(generator.sent),
        None => Known::unknown("no generator said what it sent"),
    };
    let softirq = take_losses(PathStep::Softirq);
    let arrived = passed(PathPoint::Received).map(|received| received.saturating_add(sum(&softirq)));
    let (link, xdp) = before_arrival(
        evidence,
        sent.value().zip(arrived.value()),
        take_losses(PathStep::Link),
        take_losses(PathStep::Xdp),
    );
    let (waited, waiting) = (&evidence.waited, &evidence.waiting);
    let in_transit =
        evidence.between(&[PathPoint::Received, PathPoint::Forwarded, PathPoint::Delivered], true);
    let forwarded = passed(PathPoint::Forwarded).into_value().unwrap_or_default();
    let mut stages = vec![
        UnbalancedStage::new(PathStep::Link, link),
        UnbalancedStage::new(PathStep::Xdp, xdp),
        UnbalancedStage::counted(PathStep::Softirq, softirq, passed(PathPoint::Received))
            .waiting(waited.backlogs_packets, waiting.backlogs_packets),
        UnbalancedStage::new(PathStep::Ingress, take_losses(PathStep::Ingress)).forwarding(taken_packets),
        UnbalancedStage::new(PathStep::Filter, take_losses(PathStep::Filter)),
        UnbalancedStage::new(PathStep::Route, take_losses(PathStep::Route)).forwarding(forwarded),
        UnbalancedStage::counted(
            PathStep::Socket,
            take_losses(PathStep::Socket),
            passed(PathPoint::Delivered),
        )
        .waiting(in_transit, in_transit),
        application(evidence, take_losses(PathStep::Application)),
    ];
    if evidence.generator.is_some() {
        stages.insert(0, UnbalancedStage::counted(PathStep::Generator, Vec::new(), sent.clone()));
    }
    balance_stages(sent, stages)
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
    let counted_xdp = attribute_losses(counted_xdp, missing);
    let xdp_packets: u64 = counted_xdp.iter().map(|loss| loss.packets).sum();
    let counted_link =
        attribute_losses(counted_link, missing.map(|missing| missing.saturating_sub(xdp_packets)));
    ([link, counted_link].concat(), [xdp, counted_xdp].concat())
}

/// The reading program: only complete datagrams continue to the next stage.
fn application(evidence: &PacketEvidence, mut losses: Vec<StageLoss>) -> UnbalancedStage {
    let passed = |point| evidence.passed(point, PacketDirection::Request);
    let truncated = passed(PathPoint::Truncated).into_value().unwrap_or_default();
    if let Some(cause) = causes::find_cause("truncated").filter(|_| truncated > 0) {
        let exactness = match passed(PathPoint::LengthUnknown) {
            Known::Value(0) => LossExactness::Exact,
            _ => LossExactness::Sampled,
        };
        losses.push(StageLoss::new(
            cause,
            truncated,
            exactness,
            "sock_recv_length and the datagrams' lengths".to_owned(),
        ));
    }
    let complete = passed(PathPoint::Read).map(|read| read.saturating_sub(truncated));
    let [waited, waiting] =
        [&evidence.waited, &evidence.waiting].map(|queued| queued.most_datagrams(&evidence.seen));
    let between = evidence.between(&[PathPoint::Delivered, PathPoint::Read], false);
    UnbalancedStage::counted(PathStep::Application, losses, complete)
        .waiting(waited.saturating_add(between), waiting.saturating_add(between))
}

fn replies(
    evidence: &PacketEvidence,
    losses: &mut Vec<PlacedLoss>,
    requests: &AccountingPath,
    notes: &mut Vec<String>,
) -> AccountingPath {
    let passed = |point| evidence.passed(point, PacketDirection::Reply);
    let mut take_losses = |step| {
        let is_local_reply = |placed: &PlacedLoss| {
            (placed.direction, placed.origin) == (PacketDirection::Reply, PacketOrigin::Local)
        };
        take(losses, |placed| is_local_reply(placed) && placed.step == step)
    };
    let (filter, route, ingress) =
        (take_losses(PathStep::Filter), take_losses(PathStep::Route), take_losses(PathStep::Ingress));
    let dropped = sum(&filter).saturating_add(sum(&route)).saturating_add(sum(&ingress));
    let send_calls = passed(PathPoint::Sent)
        .zip(passed(PathPoint::SendFailed))
        .map(|(sent, failed)| sent.saturating_add(failed));
    let failed_sends =
        failed_calls(&send_calls, &passed(PathPoint::SendFailed), dropped, &passed(PathPoint::Queued));
    // A call with UDP_SEGMENT as a control message sends several packets.
    let packets_left = passed(PathPoint::Queued).map(|queued| queued.saturating_add(dropped));
    let sent = send_calls.zip(packets_left).map(|(calls, packets)| calls.max(packets));
    let AnsweringCounts { first, silent, at_work } = count_answers(evidence, requests, &sent, notes);
    let in_transit = evidence.between(&[PathPoint::Sent, PathPoint::Queued], true);
    let remaining =
        sent.map(|packets| packets.saturating_sub(failed_sends.as_ref().map_or(0, |loss| loss.packets)));
    let (waited, waiting) = (evidence.waited.disciplines_packets, evidence.waiting.disciplines_packets);
    let application =
        silent.into_iter().chain(failed_sends).chain(take_losses(PathStep::Application)).collect();
    let mut stages = vec![
        UnbalancedStage::counted(PathStep::Application, application, remaining).waiting(0, at_work),
        UnbalancedStage::new(PathStep::Filter, filter),
        UnbalancedStage::new(PathStep::Route, route),
        UnbalancedStage::counted(PathStep::Ingress, ingress, passed(PathPoint::Queued))
            .waiting(in_transit, in_transit),
    ];
    let transmit = take_losses(PathStep::Transmit);
    let waits = waiting.saturating_sub(waited);
    let remaining =
        passed(PathPoint::Queued).map(|queued| queued.saturating_sub(sum(&transmit)).saturating_sub(waits));
    stages.push(UnbalancedStage::new(PathStep::Transmit, transmit).waiting(waited, waiting));
    let link = take_losses(PathStep::Link);
    match &evidence.generator {
        None => stages.push(UnbalancedStage::new(PathStep::Link, link)),
        Some(generator) => {
            let remaining = remaining.map(|remaining| remaining.saturating_sub(sum(&link)));
            // Others may get replies, too: the generator only misses those of its own requests.
            let unanswered = generator.lost.saturating_sub(generator.late);
            let missing = remaining
                .value()
                .map(|remaining| remaining.saturating_sub(generator.received()).min(unanswered));
            let unsent = device::losses(evidence, &[(CounterUse::DeviceUnsent, "transmit-ring")], &link);
            let unsent = attribute_losses(unsent, missing);
            let lost_packets = missing.map(|missing| missing.saturating_sub(sum(&unsent)));
            stages.push(UnbalancedStage::new(PathStep::Link, [link, unsent].concat()));
            let lost_replies =
                loss("reply-lost", lost_packets.unwrap_or_default(), "the generator's own count");
            stages.push(UnbalancedStage::counted(
                PathStep::Wire,
                lost_replies,
                Known::Value(generator.received()),
            ));
            let late_replies = loss("reply-late", generator.late, "the generator's own count");
            let in_time = generator.received() - generator.late;
            stages.push(UnbalancedStage::counted(PathStep::Generator, late_replies, Known::Value(in_time)));
        }
    }
    balance_stages(first, stages)
}

// Calls that failed and never became a packet. A packet that netfilter drops on transmit also
// makes the call fail, and is that rule's loss.
fn failed_calls(
    send_calls: &Known<u64>,
    failed: &Known<u64>,
    dropped: u64,
    queued: &Known<u64>,
) -> Option<StageLoss> {
    let (send_calls, failed, queued) = (*send_calls.value()?, *failed.value()?, *queued.value()?);
    let missing = send_calls.saturating_sub(dropped).saturating_sub(queued);
    loss("send-failed", failed.min(missing), "sock_send_length").pop()
}

/// Requests that reached the replying program.
struct AnsweringCounts {
    /// As requests, or as sent packets if the two are unrelated.
    first: Known<u64>,
    /// Requests without a reply.
    silent: Option<StageLoss>,
    /// Requests that may still be in progress.
    at_work: u64,
}

// Requests to the program, and those without a reply. Only for a server's ports, because otherwise
// received and sent packets are unrelated.
fn count_answers(
    evidence: &PacketEvidence,
    requests: &AccountingPath,
    sent: &Known<u64>,
    notes: &mut Vec<String>,
) -> AnsweringCounts {
    let unrelated_counts =
        |why: &str| AnsweringCounts { first: known_or(sent, why), silent: None, at_work: 0 };
    let between = evidence.between(&[PathPoint::Sent, PathPoint::SendFailed], false);
    if evidence.subject.ports.is_empty() {
        return unrelated_counts("no port was named");
    }
    let read = evidence.passed(PathPoint::Read, PacketDirection::Request).into_value();
    // A truncated request may have been answered or not.
    let complete = requests.entry(PathStep::Application).and_then(|entry| entry.packets_out.value().copied());
    match (read.zip(complete), sent.value()) {
        (Some((read, _)), Some(0)) if read > 0 => {
            notes.push(format!("the program read {read} packets and sent none from these ports"));
            unrelated_counts("nothing was sent")
        }
        (Some((_, complete)), Some(sent)) if *sent < complete => {
            let at_work = between.min(complete - sent);
            let silent = complete - sent - at_work;
            let silent = loss("not-answered", silent, "sock_recv_length less sock_send_length").pop();
            AnsweringCounts { first: Known::Value(complete), silent, at_work }
        }
        (Some((read, _)), Some(sent)) if *sent > read.saturating_add(between) => {
            notes.push(format!("the program sent {} packets more than it read", sent - read));
            unrelated_counts("")
        }
        _ => unrelated_counts(""),
    }
}

fn known_or(sent: &Known<u64>, why: &str) -> Known<u64> {
    match sent {
        Known::Value(sent) => Known::Value(*sent),
        Known::Unknown { why: unknown } if why.is_empty() => Known::unknown(unknown.clone()),
        Known::Unknown { .. } => Known::unknown(why),
    }
}

/// Forwarded packets. Losses before the transmitting device belong to the receive path, except for
/// replies, of which the number for local programs is unknown.
fn forwarded(evidence: &PacketEvidence, losses: &mut Vec<PlacedLoss>) -> AccountingPath {
    const BEFORE: [PathStep; 3] = [PathStep::Ingress, PathStep::Filter, PathStep::Route];
    const BEHIND: [PathStep; 2] = [PathStep::Transmit, PathStep::Link];
    let passed =
        |direction| evidence.passed(PathPoint::Forwarded, direction).into_value().unwrap_or_default();
    let (requests, replies) = (passed(PacketDirection::Request), passed(PacketDirection::Reply));
    if requests == 0 && replies == 0 {
        return AccountingPath::default();
    }
    let is_forwarded = |placed: &PlacedLoss| placed.origin == PacketOrigin::Received;
    let losses_before: Vec<Vec<StageLoss>> = BEFORE
        .iter()
        .map(|step| {
            let is_reply =
                |placed: &PlacedLoss| is_forwarded(placed) && placed.direction == PacketDirection::Reply;
            take(losses, |placed| is_reply(placed) && placed.step == *step)
        })
        .collect();
    let lost_packets = losses_before.iter().map(|losses| sum(losses)).fold(0, u64::saturating_add);
    let losses_behind =
        BEHIND.iter().map(|step| take(losses, |placed| is_forwarded(placed) && placed.step == *step));
    let stages = BEFORE.iter().zip(losses_before).chain(BEHIND.iter().zip(losses_behind.collect::<Vec<_>>()));
    let packet_count = requests.saturating_add(replies).saturating_add(lost_packets);
    balance_stages(
        Known::Value(packet_count),
        stages.map(|(step, losses)| UnbalancedStage::new(*step, losses)).collect(),
    )
}

fn is_received(placed: &PlacedLoss, direction: PacketDirection) -> bool {
    placed.direction == direction && placed.origin != PacketOrigin::Local
}

fn sum(losses: &[StageLoss]) -> u64 {
    losses.iter().map(|loss| loss.packets).fold(0, u64::saturating_add)
}

fn loss(name: &str, packets: u64, source: &str) -> Vec<StageLoss> {
    let cause = causes::find_cause(name).filter(|_| packets > 0);
    cause
        .map(|cause| StageLoss::new(cause, packets, LossExactness::Exact, source.to_owned()))
        .into_iter()
        .collect()
}
