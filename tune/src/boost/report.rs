//! Results of `linerate boost`: the plan, the outcome of applying it, and the boosts in effect.

use std::net::SocketAddr;

use linerate_host::Known;
use linerate_host::delivery::FlowCounts;
use linerate_host::setting::SteeredSockets;
use linerate_host::stage::socket::SocketProtocol;
use serde::{Deserialize, Serialize};

use super::answers::{self, AnswerCounts};
use super::delivery::DeliveryAgreement;
use super::delivery::PlanConformity;
use super::discovery::{ObservedServer, ServerGroup};
use super::plan::{BoostChoice, BoostPlan, BoostRefusal, CpuAssignment, ServerAdvice};
use super::replicas::ReplicaSetState;
use crate::journal::record::UndoDeadline;
use crate::journal::{JournalCorruption, LockHolder};
use crate::measure::ChangeMeasurement;
use crate::report::AppliedChange;
use crate::status::TuneStatus;

/// Fewer datagrams are not judged.
const ENOUGH_DATAGRAMS: u64 = 1_000;
/// Ratio of datagrams that must be delivered as planned.
const PLANNED_RATIO: f64 = 0.99;

/// Outcome of `boost plan`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct BoostPlanReport {
    pub server: ObservedServer,
    /// Delivery of its datagrams while it was observed.
    pub agreement: Known<DeliveryAgreement>,
    #[serde(flatten)]
    pub boost: BoostPlan,
}

/// Delivery of datagrams during one observation.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DeliveryCounts {
    /// Duration of the observation; `None` if datagrams could not be traced.
    pub seconds: Option<f64>,
    pub agreement: Known<DeliveryAgreement>,
}

/// Outcome of `boost apply`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct BoostApplyReport {
    /// Number of the tune; `None` if there was nothing to change.
    pub tune: Option<u64>,
    pub goal: String,
    /// When linerate undoes the boost by itself; `None` for never.
    pub until: Option<UndoDeadline>,
    /// The attempted changes in their order.
    pub changes: Vec<AppliedChange>,
    /// Why changes are missing; `None` if all were made.
    pub broke_off: Option<String>,
    pub places: Vec<CpuAssignment>,
    pub refusals: Vec<BoostRefusal>,
    pub advice: Vec<ServerAdvice>,
    pub before: DeliveryCounts,
    /// `None` if the server could not be observed again.
    pub now: Option<DeliveryCounts>,
    pub verification: BoostVerification,
    /// What the changes won or cost the server; unknown if that was not measured.
    #[serde(default)]
    pub measurement: Known<ChangeMeasurement>,
    /// Whether the boost was undone: the server was worse or not measured, or its time was over.
    #[serde(default)]
    pub undone: bool,
}

/// Outcome of `boost status`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct BoostStatusReport {
    /// Path of the journal.
    pub journal: String,
    /// Damage because of which boosts may be missing here.
    pub trouble: Option<JournalCorruption>,
    /// The process that changes settings now.
    pub holder: Option<LockHolder>,
    /// The boosts in effect, the earliest first.
    pub boosts: Vec<ActiveBoost>,
    /// Copies of servers that share a port.
    #[serde(default)]
    pub replicas: Known<Vec<ReplicaSetState>>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ActiveBoost {
    #[serde(flatten)]
    pub tune: TuneStatus,
    /// Counters of its steering programs.
    pub groups: Vec<SteeredGroup>,
    pub now: Known<BoostedServerState>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SteeredGroup {
    pub protocol: SocketProtocol,
    pub local: SocketAddr,
    /// `None` if the program is no longer attached.
    pub steered: Known<Option<SteeredSockets>>,
}

/// A boosted server, observed again.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct BoostedServerState {
    pub delivery: DeliveryCounts,
    /// Cookies of the sockets that no thread was seen to read.
    pub unread_sockets: Vec<u64>,
    /// Number of changes in a plan made now.
    pub changes_wanted: usize,
}

/// Comparison of the delivery after the changes with the plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "verdict")]
pub enum BoostVerification {
    AsPlanned {
        conformity: PlanConformity,
        /// Before and after the changes; `None` if there were too few requests.
        replies_per_request: Option<[f64; 2]>,
    },
    /// The server answers less than before, or delivery is worse: the boost is undone.
    Harmful {
        why: String,
    },
    Elsewhere {
        conformity: PlanConformity,
    },
    /// Too few datagrams to judge.
    Idle {
        conformity: PlanConformity,
    },
    NotJudged {
        why: String,
    },
}

impl DeliveryCounts {
    pub fn of(server: &ObservedServer) -> Self {
        Self {
            seconds: server.delivery.value().map(|delivery| delivery.seconds),
            agreement: agreement(server),
        }
    }
}

/// Delivery of the datagrams of a server while it was observed.
pub fn agreement(server: &ObservedServer) -> Known<DeliveryAgreement> {
    server.delivery.as_ref().map(|delivery| DeliveryAgreement::of(server, delivery))
}

impl BoostVerification {
    pub fn not_judged(reason: &str) -> Self {
        BoostVerification::NotJudged { why: reason.to_owned() }
    }

    /// Compares the observations before and after the changes.
    pub fn of(
        places: &[CpuAssignment],
        (before, after): (&ObservedServer, &Known<ObservedServer>),
        flows: Option<&FlowCounts>,
        choice: &BoostChoice,
    ) -> Self {
        if let Some(why) = after.value().and_then(|server| answers::harm(places, before, server, flows)) {
            return BoostVerification::Harmful { why };
        }
        if choice.no_steer || choice.no_pin {
            let unchanged = if choice.no_steer { "sockets" } else { "threads" };
            return Self::not_judged(&format!("{unchanged} were to be left as they are"));
        }
        let server = match after {
            Known::Value(server) => server,
            Known::Unknown { why } => return Self::not_judged(why),
        };
        let conformity = match &server.delivery {
            Known::Value(delivery) => PlanConformity::of(places, delivery),
            Known::Unknown { why } => return Self::not_judged(why),
        };
        match conformity.share() {
            _ if places.is_empty() => Self::not_judged("the plan has no places"),
            Some(share) if conformity.packets >= ENOUGH_DATAGRAMS && share >= PLANNED_RATIO => {
                let replies_per_request = replies_per_request(before, server);
                BoostVerification::AsPlanned { conformity, replies_per_request }
            }
            Some(_) if conformity.packets >= ENOUGH_DATAGRAMS => BoostVerification::Elsewhere { conformity },
            _ => BoostVerification::Idle { conformity },
        }
    }

    /// Whether packets are delivered elsewhere, or the boost did harm.
    pub fn is_failure(&self) -> bool {
        matches!(self, BoostVerification::Elsewhere { .. } | BoostVerification::Harmful { .. })
    }
}

fn replies_per_request(before: &ObservedServer, after: &ObservedServer) -> Option<[f64; 2]> {
    let ratio =
        |server| AnswerCounts::of(server).filter(|counts| counts.requests >= ENOUGH_DATAGRAMS)?.per_request();
    Some([ratio(before)?, ratio(after)?])
}

impl BoostedServerState {
    pub fn of(server: &ObservedServer, boost: &BoostPlan) -> Self {
        let cookies = server.groups.iter().flat_map(ServerGroup::cookies);
        let is_unread = |cookie: &u64| server.readers_of(*cookie).next().is_none();
        Self {
            delivery: DeliveryCounts::of(server),
            unread_sockets: cookies.filter(is_unread).collect(),
            changes_wanted: boost.plan.changes.len(),
        }
    }

    fn needs_attention(&self) -> bool {
        !self.unread_sockets.is_empty() || self.changes_wanted > 0
    }
}

impl BoostStatusReport {
    /// Whether a setting drifted, a socket is gone or not read, a copy is missing or left by a
    /// linerate that was killed.
    pub fn needs_attention(&self) -> bool {
        let lacks_socket = |group: &SteeredGroup| match &group.steered {
            Known::Value(Some(steered)) => steered.sockets.iter().any(|socket| !socket.present),
            Known::Value(None) => true,
            Known::Unknown { .. } => false,
        };
        let lacks_copy = |set: &ReplicaSetState| {
            !set.is_supervised
                || (!set.is_replaced && set.copies.iter().any(|copy| copy.processes.is_empty()))
        };
        self.trouble.is_some()
            || self.replicas.value().into_iter().flatten().any(lacks_copy)
            || self.boosts.iter().any(|boost| {
                boost.tune.needs_attention()
                    || boost.groups.iter().any(lacks_socket)
                    || boost.now.value().is_some_and(BoostedServerState::needs_attention)
            })
    }
}
