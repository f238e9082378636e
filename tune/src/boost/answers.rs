//! Checks whether a server answers as well after a boost as before.

use std::collections::BTreeSet;

use linerate_host::Setting;
use linerate_host::delivery::{DeliveryReport, FlowCounts};
use linerate_host::setting::SocketKnob;
use linerate_host::stage::socket::SocketProtocol;
use serde::Serialize;

use crate::TunePlan;
use crate::boost::ObservedServer;
use crate::boost::catalog;
use crate::boost::delivery::DeliveryAgreement;
use crate::boost::discovery::ServerGroup;
use crate::boost::plan::CpuAssignment;
use crate::plan::PlannedChange;

/// Observations with fewer datagrams are not compared by the CPU of reading.
const ENOUGH: u64 = 500;
/// With fewer requests a server is not judged by its replies.
const ENOUGH_REQUESTS: u64 = 100;
/// Fewer missing replies may belong to requests that were unanswered at the end of the observation.
const MISSING: f64 = 50.0;
/// A server with fewer replies per request, such as a syslog server, is not judged by its replies.
const REPLIES: f64 = 0.1;
/// The required replies per request of a boosted server, relative to the replies before the boost.
const KEPT: f64 = 0.9;
/// The required replies per second of a boosted server, relative to the replies before the boost.
const RATE: f64 = 0.5;
/// A server with fewer replies per request may have a rate limit, so that the clients with fewer
/// replies change by themselves.
const ANSWERS_ALL: f64 = 0.9;
/// Replies per request that were traced for a shorter time, s, are compared with the count of clients.
const SHORT: f64 = 0.25;
/// This ratio of clients may lack a reply because their last request was lost.
const SILENCED: f64 = 0.05;
/// The ratio of datagrams read on the CPU of arrival may fall by this much.
const LARGEST_DECREASE: f64 = 0.05;

/// Requests and replies of a server's UDP sockets during one observation.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct AnswerCounts {
    /// Duration of the observation.
    pub seconds: f64,
    pub requests: u64,
    pub replies: u64,
}

impl AnswerCounts {
    /// `None` if datagrams were not traced, or over 1 % of them were not counted.
    pub fn of(server: &ObservedServer) -> Option<Self> {
        let delivery = server.delivery.value()?;
        let all_reads: u64 = delivery.read.iter().map(|item| item.packets).sum();
        if delivery.missed > all_reads / 100 {
            return None;
        }
        let groups = server.groups.iter().filter(|group| group.protocol == SocketProtocol::Udp);
        let own_cookies: BTreeSet<u64> = groups.flat_map(ServerGroup::cookies).collect();
        let read_counts = delivery.read.iter().filter(|item| own_cookies.contains(&item.cookie));
        let send_counts = delivery.sent.iter().filter(|item| own_cookies.contains(&item.cookie));
        Some(Self {
            seconds: delivery.seconds,
            requests: read_counts.map(|item| item.packets).sum(),
            replies: send_counts.map(|item| item.packets).sum(),
        })
    }

    pub fn per_request(&self) -> Option<f64> {
        (self.requests > 0).then(|| self.replies as f64 / self.requests as f64)
    }

    fn rate(&self) -> f64 {
        self.replies as f64 / self.seconds.max(f64::MIN_POSITIVE)
    }

    fn has_enough_replies(&self) -> bool {
        self.requests >= ENOUGH_REQUESTS && self.per_request().is_some_and(|share| share >= REPLIES)
    }
}

/// Why an unknown server is not steered now: its datagrams could not be traced, or too few requests
/// arrived to see afterwards whether each thread has the state of its own clients only.
pub fn steering_refusal(server: &ObservedServer, plan: &TunePlan) -> Option<String> {
    let starts_steering = |change: &PlannedChange| match &change.setting {
        Setting::Steering { .. } => change.from.as_str() == "none",
        Setting::Socket { knob, .. } => *knob == SocketKnob::IncomingCpu,
        _ => false,
    };
    if is_stateless(server) || !plan.changes.iter().any(starts_steering) {
        return None;
    }
    if let Some(why) = server.delivery.why() {
        return Some(format!(
            "its datagrams could not be traced ({why}), so that nothing would show whether its clients still get \
             replies, and it is not known as a server whose threads can answer every client. --anyway steers it"
        ));
    }
    let Some(counts) = AnswerCounts::of(server) else {
        return Some(
            "over 1 % of its datagrams were not counted, so that nothing would show whether its clients still get \
             replies, and it is not known as a server whose threads can answer every client. --anyway steers it"
                .to_owned(),
        );
    };
    if counts.requests >= ENOUGH_REQUESTS {
        return None;
    }
    Some(format!(
        "it got {} datagrams in {:.1} s, too few to see afterwards whether its clients still get replies, and it \
         is not known as a server whose threads can answer every client. Put it under load and apply again \
         (--look SECONDS observes for longer); --anyway steers it now",
        counts.requests, counts.seconds
    ))
}

/// Whether it is known that every thread can answer every client.
fn is_stateless(server: &ObservedServer) -> bool {
    let product = server.product.as_deref().and_then(catalog::product);
    product.is_some_and(|product| product.client_state.is_none())
}

/// Why a boost has to be undone: the server answers less than before, or fewer datagrams are read on
/// the CPU of arrival.
///
/// `flows` counts the clients right after the changes. Without it, missing replies count as harm,
/// although the load may have ended. Without `places` nothing was steered or pinned, so that the
/// scheduler alone decides where datagrams are read.
pub fn harm(
    places: &[CpuAssignment],
    before: &ObservedServer,
    after: &ObservedServer,
    flows: Option<&FlowCounts>,
) -> Option<String> {
    let cause = if places.is_empty() || is_stateless(before) {
        "it may get less CPU time than before"
    } else {
        "their packets may come to threads that do not know them"
    };
    // Packets may reach the server past the program: through a macvlan or VLAN of another namespace, or
    // by bpf_redirect_peer.
    let has_arrivals = |delivery: &DeliveryReport| delivery.arrived.iter().any(|item| item.packets > 0);
    let sees_no_client = |flows: &FlowCounts| {
        *flows == FlowCounts::default() && after.delivery.value().is_some_and(has_arrivals)
    };
    let flows = flows.filter(|flows| !sees_no_client(flows));
    let answers = |server| AnswerCounts::of(server).unwrap_or_default();
    let agreement = |server: &ObservedServer| {
        let delivered = DeliveryAgreement::of(server, server.delivery.value()?);
        (delivered.packets >= ENOUGH).then(|| delivered.share()).flatten()
    };
    let missing_replies = || report_missing_replies(&answers(before), &answers(after), flows, cause);
    flows
        .and_then(|flows| report_silenced_clients(flows, &answers(before), cause))
        .or_else(missing_replies)
        .or_else(|| {
            let (share_before, share_now) = (agreement(before)?, agreement(after)?);
            (!places.is_empty() && share_now < share_before - LARGEST_DECREASE).then(|| {
            format!(
                "{:.0} % of its datagrams were read on the CPU they arrived on before, and {:.0} % are now",
                share_before * 100.0,
                share_now * 100.0
            )
        })
        })
}

/// Reports clients that get no reply any more, or fewer replies than before.
fn report_silenced_clients(flows: &FlowCounts, before: &AnswerCounts, cause: &str) -> Option<String> {
    let known_clients = flows.silenced + flows.curtailed + flows.answered;
    let answered_all = before.per_request().is_some_and(|share| share >= ANSWERS_ALL);
    let harmed_clients = flows.silenced + if answered_all { flows.curtailed } else { 0 };
    (harmed_clients > 0 && harmed_clients as f64 >= known_clients as f64 * SILENCED).then(|| {
        format!(
            "{harmed_clients} of {known_clients} clients (address and port) that got replies before wait for one now: {cause}"
        )
    })
}

/// Whether nearly all clients are known from before and get replies to most of their requests.
///
/// A busy server is traced in short windows. A batch that is read and not answered at the end of a
/// window looks like missing replies. All packets of clients are counted, without windows.
fn are_clients_answered(flows: &FlowCounts) -> bool {
    let harmed_clients = flows.silenced + flows.curtailed;
    let known_clients = harmed_clients + flows.answered;
    known_clients > 0
        && 2 * known_clients >= flows.waiting + flows.served
        && (harmed_clients as f64) < known_clients as f64 * SILENCED
}

fn report_missing_replies(
    before: &AnswerCounts,
    after: &AnswerCounts,
    flows: Option<&FlowCounts>,
    cause: &str,
) -> Option<String> {
    if !before.has_enough_replies() {
        return None;
    }
    let (ratio_before, ratio_now) = (before.per_request()?, after.per_request());
    let missing_replies = |ratio_now: f64| (ratio_before - ratio_now) * after.requests as f64;
    let reduced_ratio = ratio_now
        .filter(|ratio_now| *ratio_now < ratio_before * KEPT && missing_replies(*ratio_now) >= MISSING);
    if let Some(ratio_now) =
        reduced_ratio.filter(|_| after.seconds >= SHORT || !flows.is_some_and(are_clients_answered))
    {
        return Some(format!(
            "it sent {ratio_before:.2} replies per request of its clients before, and {ratio_now:.2} now: {cause}"
        ));
    }
    if flows.is_some_and(|flows| flows.waiting <= flows.served) {
        // No client waits: clients send less than before.
        return None;
    }
    let expected = before.rate() * after.seconds;
    (expected >= ENOUGH as f64 / 2.0 && after.rate() < before.rate() * RATE).then(|| {
        format!(
            "its replies fell from {:.0} to {:.0} per second: clients wait for replies, or send less (then apply it \
             again under steady load)",
            before.rate(),
            after.rate()
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answers(requests: u64, replies: u64) -> AnswerCounts {
        AnswerCounts { seconds: 2.0, requests, replies }
    }

    #[test]
    fn lost_replies_or_stalled_requests_are_harm() {
        let why = |before, after| report_missing_replies(&before, &after, None, "");
        assert_eq!(why(answers(2_000, 2_000), answers(3_000, 2_950)), None);
        // coturn: a third of the packets came to the thread that did not know their client.
        let ratio_reason = why(answers(2_000, 2_000), answers(2_700, 1_760)).expect("harm");
        assert!(
            ratio_reason.contains("1.00 replies per request of its clients before, and 0.65 now"),
            "{ratio_reason}"
        );
        assert!(why(answers(390, 390), answers(1_600, 800)).is_some(), "the load had just begun");
        assert_eq!(why(answers(390, 390), answers(300, 260)), None, "some replies come later");
        let rate_reason = why(answers(2_000, 2_000), answers(20, 20)).expect("harm");
        assert!(rate_reason.contains("fell from 1000 to 10 per second"), "{rate_reason}");
        assert!(why(answers(2_000, 2_000), answers(0, 0)).is_some());
        let short_sample = AnswerCounts { seconds: 0.2, ..answers(0, 0) };
        assert_eq!(why(answers(2_000, 2_000), short_sample), None, "the sample is too short");
    }

    #[test]
    fn missing_replies_in_traced_windows_are_no_harm_if_clients_are_answered() {
        let before = answers(5_400, 5_300);
        let after = AnswerCounts { seconds: 0.05, ..answers(6_000, 4_980) };
        let flows = FlowCounts { answered: 64, served: 64, ..FlowCounts::default() };
        let why = |flows: FlowCounts| report_missing_replies(&before, &after, Some(&flows), "");
        assert_eq!(why(flows), None);
        assert!(why(FlowCounts { curtailed: 4, answered: 60, ..flows }).is_some());
        assert!(why(FlowCounts { answered: 20, ..flows }).is_some(), "most clients are new");
        assert!(report_missing_replies(&before, &after, None, "").is_some());
        let long_sample = AnswerCounts { seconds: 2.0, ..after };
        assert!(report_missing_replies(&before, &long_sample, Some(&flows), "").is_some());
    }

    #[test]
    fn servers_idle_or_rarely_replying_before_boost_are_not_judged() {
        for before in [answers(0, 0), answers(99, 99), answers(100_000, 0), answers(100_000, 9_000)] {
            assert_eq!(report_missing_replies(&before, &answers(50_000, 0), None, ""), None, "{before:?}");
        }
    }

    #[test]
    fn ended_load_is_no_harm_and_silenced_clients_are() {
        let counts = |silenced, answered, waiting, served| FlowCounts {
            silenced,
            answered,
            waiting,
            served,
            ..FlowCounts::default()
        };
        let why = |flows| report_missing_replies(&answers(2_000, 2_000), &answers(20, 20), Some(&flows), "");
        assert_eq!(why(counts(0, 0, 0, 0)), None, "no client sends requests any more");
        assert_eq!(why(counts(0, 4, 1, 9)), None, "fewer clients send requests");
        assert!(why(counts(0, 0, 8, 1)).is_some(), "clients with a port for each request wait");
        let all_answered = answers(2_000, 2_000);
        let silenced = |flows: &FlowCounts, before: &AnswerCounts| report_silenced_clients(flows, before, "");
        assert_eq!(silenced(&counts(0, 100, 40, 100), &all_answered), None);
        assert_eq!(silenced(&counts(1, 60, 1, 60), &all_answered), None, "a request was lost");
        let why = silenced(&counts(2, 2, 2, 2), &all_answered).expect("harm");
        assert!(why.starts_with("2 of 4 clients"), "{why}");
        let curtailed = FlowCounts { curtailed: 2, ..counts(0, 2, 0, 4) };
        assert!(silenced(&curtailed, &all_answered).is_some());
        assert_eq!(silenced(&curtailed, &answers(2_000, 1_200)), None, "a rate limit");
    }
}
