//! The ledger, of evidence.

use linerate_host::Known;

use super::evidence::{Evidence, Kind};
use super::fallen::{Fallen, fallen};
use super::unseen::{Completed, completed};
use super::way::{Leg, attributed, balanced};
use super::{Exactness, Ledger, Loss, Step, Way, checks, device, gaps};
use crate::drops::causes;
use crate::drops::seen::{Direction, Network, Origin, Point, Subject};

/// Losses that have not been put into a stage yet.
struct Losses(Vec<Fallen>);

impl Losses {
    /// Takes those of a stage out.
    fn take(&mut self, is_of: impl Fn(&Fallen) -> bool) -> Vec<Loss> {
        let (these, others) = std::mem::take(&mut self.0).into_iter().partition(is_of);
        self.0 = others;
        these.into_iter().map(|fallen| fallen.loss).collect()
    }
}

impl Ledger {
    /// Puts the books together.
    #[must_use]
    pub fn make(evidence: &Evidence) -> Self {
        let Completed { evidence, fallen, mut notes } = completed(evidence, fallen(evidence));
        let evidence = &evidence;
        notes.extend(checks::notes(evidence, &fallen));
        let mut losses = Losses(fallen);
        let forwarded = forwarded(evidence, &mut losses);
        let mut requests = requests(evidence, &mut losses);
        let mut replies = replies(evidence, &mut losses, &requests, &mut notes);
        gaps::explain(evidence, &mut requests, Direction::Request);
        gaps::explain(evidence, &mut replies, Direction::Reply);
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

fn named(subject: &Subject) -> String {
    let ports: Vec<String> = subject.ports.iter().map(u16::to_string).collect();
    let what = match ports.as_slice() {
        [] => "all UDP".to_owned(),
        [port] => format!("UDP port {port}"),
        ports => format!("UDP ports {}", ports.join(", ")),
    };
    let peer = subject.peer.map(|peer| format!(" with {peer}")).unwrap_or_default();
    let place = match subject.network {
        Network::Here => String::new(),
        Network::Inode(inode) => format!(" in network namespace {inode}"),
        Network::All => " in all network namespaces".to_owned(),
    };
    format!("{what}{peer}{place}")
}

fn requests(evidence: &Evidence, losses: &mut Losses) -> Way {
    let passed = |point| evidence.passed(point, Direction::Request);
    let mut at = |step| losses.take(|fallen| is_received(fallen, Direction::Request) && fallen.step == step);
    let sent = match &evidence.generator {
        Some(generator) => Known::Value(generator.sent),
        None => Known::unknown("no generator said what it sent"),
    };
    let softirq = at(Step::Softirq);
    let arrived = passed(Point::Received).map(|received| received.saturating_add(sum(&softirq)));
    let (link, xdp) =
        before_arrival(evidence, sent.value().zip(arrived.value()), at(Step::Link), at(Step::Xdp));
    let (waited, waiting) = (&evidence.waited, &evidence.waiting);
    let handled = both_ends(evidence, &[Point::Received, Point::Forwarded, Point::Delivered], true);
    let forwarded = passed(Point::Forwarded).into_value().unwrap_or_default();
    let mut legs = vec![
        Leg::of(Step::Link, link),
        Leg::of(Step::Xdp, xdp),
        Leg::counted(Step::Softirq, softirq, passed(Point::Received))
            .waiting(waited.backlogs_packets, waiting.backlogs_packets),
        Leg::of(Step::Ingress, at(Step::Ingress)),
        Leg::of(Step::Filter, at(Step::Filter)),
        Leg::of(Step::Route, at(Step::Route)).forwarding(forwarded),
        Leg::counted(Step::Socket, at(Step::Socket), passed(Point::Delivered)).waiting(handled, handled),
        application(evidence, at(Step::Application)),
    ];
    if evidence.generator.is_some() {
        legs.insert(0, Leg::counted(Step::Generator, Vec::new(), sent.clone()));
    }
    balanced(sent, legs)
}

/// The losses of the device and of XDP, where counters of the device are what there is to know.
fn before_arrival(
    evidence: &Evidence,
    sent_arrived: Option<(&u64, &u64)>,
    link: Vec<Loss>,
    xdp: Vec<Loss>,
) -> (Vec<Loss>, Vec<Loss>) {
    const LINK: [(Kind, &str); 3] = [
        (Kind::DeviceLost, "device-lost"),
        (Kind::DeviceAllowance, "allowance"),
        (Kind::DeviceDamaged, "damaged-frame"),
    ];
    const XDP: [(Kind, &str); 2] = [(Kind::XdpDropped, "xdp-drop"), (Kind::XdpFailed, "xdp-failed")];
    let counted_xdp = device::losses(evidence, &XDP, &xdp);
    let counted_link = device::losses(evidence, &LINK, &link);
    let missing = sent_arrived.map(|(sent, arrived)| {
        [&link, &xdp]
            .into_iter()
            .flatten()
            .fold(sent.saturating_sub(*arrived), |missing, loss| missing.saturating_sub(loss.packets))
    });
    // A program's drops are counted for certain and by queue; what is missing still is what the ring may have lost.
    let counted_xdp = attributed(counted_xdp, missing);
    let found: u64 = counted_xdp.iter().map(|loss| loss.packets).sum();
    let counted_link = attributed(counted_link, missing.map(|missing| missing.saturating_sub(found)));
    ([link, counted_link].concat(), [xdp, counted_xdp].concat())
}

/// The program that reads: what it read and did not cut off goes on.
fn application(evidence: &Evidence, mut losses: Vec<Loss>) -> Leg {
    let passed = |point| evidence.passed(point, Direction::Request);
    let cut = passed(Point::Truncated).into_value().unwrap_or_default();
    if let Some(cause) = causes::named("truncated").filter(|_| cut > 0) {
        let exactness = match passed(Point::LengthUnknown) {
            Known::Value(0) => Exactness::Exact,
            _ => Exactness::Sampled,
        };
        losses.push(Loss::of(
            cause,
            cut,
            exactness,
            "sock_recv_length and the datagrams' lengths".to_owned(),
        ));
    }
    let whole = passed(Point::Read).map(|read| read.saturating_sub(cut));
    let (waited, waiting) = (evidence.waited.most_datagrams(), evidence.waiting.most_datagrams());
    let between = both_ends(evidence, &[Point::Delivered, Point::Read], false);
    Leg::counted(Step::Application, losses, whole)
        .waiting(waited.saturating_add(between), waiting.saturating_add(between))
}

fn replies(evidence: &Evidence, losses: &mut Losses, requests: &Way, notes: &mut Vec<String>) -> Way {
    let passed = |point| evidence.passed(point, Direction::Reply);
    let mut at = |step| {
        let is_ours =
            |fallen: &Fallen| (fallen.direction, fallen.origin) == (Direction::Reply, Origin::Local);
        losses.take(|fallen| is_ours(fallen) && fallen.step == step)
    };
    let (filter, route, ingress) = (at(Step::Filter), at(Step::Route), at(Step::Ingress));
    let fell = sum(&filter).saturating_add(sum(&route)).saturating_add(sum(&ingress));
    let called = both(passed(Point::Sent), passed(Point::SendFailed), u64::saturating_add);
    let failed = failed_calls(&called, &passed(Point::SendFailed), fell, &passed(Point::Queued));
    let Answering { first, silent, at_work } = answering(evidence, requests, &called, notes);
    let handled = both_ends(evidence, &[Point::Sent, Point::Queued], true);
    let left = called.map(|called| called.saturating_sub(failed.as_ref().map_or(0, |loss| loss.packets)));
    let (waited, waiting) = (evidence.waited.disciplines_packets, evidence.waiting.disciplines_packets);
    let application = silent.into_iter().chain(failed).chain(at(Step::Application)).collect();
    let mut legs = vec![
        Leg::counted(Step::Application, application, left).waiting(0, at_work),
        Leg::of(Step::Filter, filter),
        Leg::of(Step::Route, route),
        Leg::counted(Step::Ingress, ingress, passed(Point::Queued)).waiting(handled, handled),
    ];
    let transmit = at(Step::Transmit);
    let waits = waiting.saturating_sub(waited);
    let left =
        passed(Point::Queued).map(|queued| queued.saturating_sub(sum(&transmit)).saturating_sub(waits));
    legs.push(Leg::of(Step::Transmit, transmit).waiting(waited, waiting));
    let link = at(Step::Link);
    match &evidence.generator {
        None => legs.push(Leg::of(Step::Link, link)),
        Some(generator) => {
            let left = left.map(|left| left.saturating_sub(sum(&link)));
            let missing = left.value().map(|left| left.saturating_sub(generator.received()));
            let unsent = device::losses(evidence, &[(Kind::DeviceUnsent, "transmit-ring")], &link);
            let unsent = attributed(unsent, missing);
            let gone = missing.map(|missing| missing.saturating_sub(sum(&unsent)));
            legs.push(Leg::of(Step::Link, [link, unsent].concat()));
            let lost = loss("reply-lost", gone.unwrap_or_default(), "the generator's own count");
            legs.push(Leg::counted(Step::Wire, lost, Known::Value(generator.received())));
            let late = loss("reply-late", generator.late, "the generator's own count");
            let wanted = generator.received() - generator.late;
            legs.push(Leg::counted(Step::Generator, late, Known::Value(wanted)));
        }
    }
    balanced(first, legs)
}

/// What failed in the call and never became a packet. A packet that netfilter drops on its way out fails the call, too, and is
/// that rule's loss.
fn failed_calls(called: &Known<u64>, failed: &Known<u64>, fell: u64, queued: &Known<u64>) -> Option<Loss> {
    let (called, failed, queued) = (*called.value()?, *failed.value()?, *queued.value()?);
    let missing = called.saturating_sub(fell).saturating_sub(queued);
    loss("send-failed", failed.min(missing), "sock_send_length").pop()
}

/// What came to the program that replies.
struct Answering {
    /// As requests, or as calls to send where the two have nothing to do with each other.
    first: Known<u64>,
    /// Requests that it did not answer.
    silent: Option<Loss>,
    /// Requests that it can still have been at work on.
    at_work: u64,
}

/// What came to the program as requests, and what it did not answer. Only of a server's ports: what a host reads and what it
/// sends need have nothing to do with each other.
fn answering(evidence: &Evidence, requests: &Way, called: &Known<u64>, notes: &mut Vec<String>) -> Answering {
    let unrelated = |why: &str| Answering { first: called_or(called, why), silent: None, at_work: 0 };
    let between = both_ends(evidence, &[Point::Sent, Point::SendFailed], false);
    if evidence.subject.ports.is_empty() {
        return unrelated("no port was named");
    }
    let read = evidence.passed(Point::Read, Direction::Request).into_value();
    // Of what was cut off it is not known whether it was answered.
    let whole = requests.entry(Step::Application).and_then(|entry| entry.packets_out.value().copied());
    match (read.zip(whole), called.value()) {
        (Some((read, _)), Some(0)) if read > 0 => {
            notes.push(format!("the program read {read} packets and sent none from these ports"));
            unrelated("nothing was sent")
        }
        (Some((_, whole)), Some(called)) if *called < whole => {
            let at_work = between.min(whole - called);
            let silent = whole - called - at_work;
            let silent = loss("not-answered", silent, "sock_recv_length less sock_send_length").pop();
            Answering { first: Known::Value(whole), silent, at_work }
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

/// What came by a device and leaves by another. What is lost before it is given to that other is of the way in, but for
/// replies: of these nobody knows how many came for programs of this host.
fn forwarded(evidence: &Evidence, losses: &mut Losses) -> Way {
    const BEFORE: [Step; 3] = [Step::Ingress, Step::Filter, Step::Route];
    const BEHIND: [Step; 2] = [Step::Transmit, Step::Link];
    let passed = |direction| evidence.passed(Point::Forwarded, direction).into_value().unwrap_or_default();
    let (requests, replies) = (passed(Direction::Request), passed(Direction::Reply));
    if requests == 0 && replies == 0 {
        return Way::default();
    }
    let received = |fallen: &Fallen| fallen.origin == Origin::Received;
    let before: Vec<Vec<Loss>> = BEFORE
        .iter()
        .map(|step| {
            let is_reply = |fallen: &Fallen| received(fallen) && fallen.direction == Direction::Reply;
            losses.take(|fallen| is_reply(fallen) && fallen.step == *step)
        })
        .collect();
    let lost = before.iter().map(|losses| sum(losses)).fold(0, u64::saturating_add);
    let behind = BEHIND.iter().map(|step| losses.take(|fallen| received(fallen) && fallen.step == *step));
    let legs = BEFORE.iter().zip(before).chain(BEHIND.iter().zip(behind.collect::<Vec<_>>()));
    let first = requests.saturating_add(replies).saturating_add(lost);
    balanced(Known::Value(first), legs.map(|(step, losses)| Leg::of(*step, losses)).collect())
}

/// Whether it is of what came by a device.
fn is_received(fallen: &Fallen, direction: Direction) -> bool {
    fallen.direction == direction && fallen.origin != Origin::Local
}

fn sum(losses: &[Loss]) -> u64 {
    losses.iter().map(|loss| loss.packets).fold(0, u64::saturating_add)
}

/// Packets that can have been between points at either end of the time.
fn both_ends(evidence: &Evidence, points: &[Point], is_handled: bool) -> u64 {
    let (begin, end) = evidence.between(points, is_handled);
    begin.saturating_add(end)
}

fn both(one: Known<u64>, other: Known<u64>, of: impl Fn(u64, u64) -> u64) -> Known<u64> {
    match (one, other) {
        (Known::Value(one), Known::Value(other)) => Known::Value(of(one, other)),
        (Known::Unknown { why }, _) | (_, Known::Unknown { why }) => Known::Unknown { why },
    }
}

fn loss(name: &str, packets: u64, source: &str) -> Vec<Loss> {
    let cause = causes::named(name).filter(|_| packets > 0);
    cause.map(|cause| Loss::of(cause, packets, Exactness::Exact, source.to_owned())).into_iter().collect()
}
