//! Whether a boost did what it was to, and whether the server answers as before.

use linerate_host::Known;
use linerate_host::landing::FlowCounts;
use linerate_tune::boost::answers::{self, AnswerCounts};
use linerate_tune::boost::delivery::PlanConformity;
use linerate_tune::boost::discovery::ObservedServer;
use linerate_tune::boost::plan::{BoostChoice, CpuAssignment};
use serde::Serialize;

/// Of fewer datagrams nothing is said.
const ENOUGH: u64 = 1_000;
/// The share of datagrams that has to land as planned.
const SHARE: f64 = 0.99;

/// What was seen after the changes, judged by the plan.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "verdict")]
pub(crate) enum BoostVerification {
    /// Packets land as planned.
    AsPlanned {
        /// What was counted.
        conformity: PlanConformity,
        /// Replies per request before and after the changes; `None` where too few were seen.
        replies_per_request: Option<[f64; 2]>,
    },
    /// The server answers less than before, or its packets land worse: the boost is undone.
    Harmful {
        /// What was seen.
        why: String,
    },
    /// Some land elsewhere.
    Elsewhere {
        /// What was counted.
        conformity: PlanConformity,
    },
    /// Too few came to tell.
    Idle {
        /// What was counted.
        conformity: PlanConformity,
    },
    /// It is not known, or was not to be.
    NotJudged {
        /// Why.
        why: String,
    },
}

impl BoostVerification {
    pub(super) fn not_judged(why: &str) -> Self {
        BoostVerification::NotJudged { why: why.to_owned() }
    }

    /// Judges what a second look saw.
    pub(super) fn of(
        places: &[CpuAssignment],
        (before, again): (&ObservedServer, &Known<ObservedServer>),
        flows: Option<&FlowCounts>,
        choice: &BoostChoice,
    ) -> Self {
        if let Some(why) = again.value().and_then(|now| answers::harm(before, now, flows)) {
            return BoostVerification::Harmful { why };
        }
        if choice.no_steer || choice.no_pin {
            let left = if choice.no_steer { "sockets" } else { "threads" };
            return Self::not_judged(&format!("{left} were to be left as they are"));
        }
        let server = match again {
            Known::Value(server) => server,
            Known::Unknown { why } => return Self::not_judged(why),
        };
        let conformity = match &server.landings {
            Known::Value(landings) => PlanConformity::of(places, landings),
            Known::Unknown { why } => return Self::not_judged(why),
        };
        match conformity.share() {
            _ if places.is_empty() => Self::not_judged("the plan has no places"),
            Some(share) if conformity.packets >= ENOUGH && share >= SHARE => {
                BoostVerification::AsPlanned { conformity, replies_per_request: replies(before, server) }
            }
            Some(_) if conformity.packets >= ENOUGH => BoostVerification::Elsewhere { conformity },
            _ => BoostVerification::Idle { conformity },
        }
    }

    /// Whether packets land elsewhere, or the boost did harm.
    pub(super) fn is_failure(&self) -> bool {
        matches!(self, BoostVerification::Elsewhere { .. } | BoostVerification::Harmful { .. })
    }
}

/// Replies per request of two looks, where both saw enough.
fn replies(before: &ObservedServer, now: &ObservedServer) -> Option<[f64; 2]> {
    let of = |server| AnswerCounts::of(server).filter(|seen| seen.requests >= ENOUGH)?.per_request();
    Some([of(before)?, of(now)?])
}
