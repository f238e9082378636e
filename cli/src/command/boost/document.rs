//! What `--json` has of a boost.

use std::net::SocketAddr;

use linerate_host::Known;
use linerate_host::setting::SteeredSockets;
use linerate_host::stage::socket::SocketProtocol;
use linerate_tune::boost::BoostPlan;
use linerate_tune::boost::delivery::DeliveryAgreement;
use linerate_tune::boost::discovery::ObservedServer;
use linerate_tune::boost::plan::{BoostRefusal, CpuAssignment, ServerAdvice};
use linerate_tune::journal::record::UndoDeadline;
use linerate_tune::journal::{JournalCorruption, LockHolder};
use linerate_tune::status::TuneStatus;
use serde::Serialize;

use super::verification::BoostVerification;
use crate::command::tune::apply::carrying::AppliedChange;

/// The schema of a plan.
pub(super) const PLAN: &str = "linerate.boost/1";
/// The schema of what was done.
pub(super) const APPLY: &str = "linerate.boost-apply/1";
/// The schema of what is in force.
pub(super) const STATUS: &str = "linerate.boost-status/1";

/// What was seen of a server, and what would be done.
#[derive(Serialize)]
pub(crate) struct BoostPlanDocument<'a> {
    pub(crate) schema: &'static str,
    pub(crate) version: &'static str,
    pub(crate) argv: Vec<String>,
    /// When the server was looked at.
    pub(crate) started_unix_seconds: Option<u64>,
    /// What the host calls itself.
    pub(crate) host: &'a str,
    pub(crate) server: &'a ObservedServer,
    /// How its packets landed while it was looked at.
    pub(crate) agreement: &'a Known<DeliveryAgreement>,
    #[serde(flatten)]
    pub(crate) boost: &'a BoostPlan,
}

/// How packets landed during one look.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct DeliveryCounts {
    /// For how long was looked; null where datagrams could not be looked at.
    pub(crate) seconds: Option<f64>,
    pub(crate) agreement: Known<DeliveryAgreement>,
}

/// What was done, and what came of it.
#[derive(Serialize)]
pub(crate) struct BoostApplyDocument<'a> {
    pub(crate) schema: &'static str,
    pub(crate) version: &'static str,
    pub(crate) argv: Vec<String>,
    /// When the server was looked at first.
    pub(crate) started_unix_seconds: Option<u64>,
    /// Number of the tune; null where nothing was to be changed.
    pub(crate) tune: Option<u64>,
    pub(crate) goal: &'a str,
    pub(crate) host: &'a str,
    /// When it is undone without being asked; null for never.
    pub(crate) until: Option<UndoDeadline>,
    /// The changes in the order in which they were made; one that is not here was not made.
    pub(crate) changes: &'a [AppliedChange],
    /// Why not all were made, or none could be; null where they were.
    pub(crate) broke_off: Option<&'a str>,
    pub(crate) places: &'a [CpuAssignment],
    pub(crate) refusals: &'a [BoostRefusal],
    pub(crate) advice: &'a [ServerAdvice],
    /// How packets landed before.
    pub(crate) before: DeliveryCounts,
    /// How they land now; null where the server could not be looked at again.
    pub(crate) now: Option<DeliveryCounts>,
    /// That, judged by the plan.
    pub(crate) verification: &'a BoostVerification,
}

/// The boosts in force.
#[derive(Serialize)]
pub(crate) struct BoostStatusDocument {
    pub(crate) schema: &'static str,
    pub(crate) version: &'static str,
    pub(crate) argv: Vec<String>,
    /// The journal's file.
    pub(crate) journal: String,
    /// Why there may be more than is told.
    pub(crate) trouble: Option<JournalCorruption>,
    /// The process that changes settings now.
    pub(crate) holder: Option<LockHolder>,
    /// The earliest first.
    pub(crate) boosts: Vec<ActiveBoost>,
}

/// A boost in force.
#[derive(Serialize)]
pub(crate) struct ActiveBoost {
    #[serde(flatten)]
    pub(crate) tune: TuneStatus,
    /// What its programs did.
    pub(crate) groups: Vec<SteeredGroup>,
    /// The server as it is seen now.
    pub(crate) now: Known<BoostedServerState>,
}

/// A group that a boost steers.
#[derive(Serialize)]
pub(crate) struct SteeredGroup {
    pub(crate) protocol: SocketProtocol,
    pub(crate) local: SocketAddr,
    /// Null where the program is not there any more.
    pub(crate) steered: Known<Option<SteeredSockets>>,
}

/// A boosted server, looked at anew.
#[derive(Serialize)]
pub(crate) struct BoostedServerState {
    pub(crate) landed: DeliveryCounts,
    /// Sockets of its groups that nobody was seen to read.
    pub(crate) unread_sockets: Vec<u64>,
    /// How many changes a plan would have now.
    pub(crate) changes_wanted: usize,
}

impl BoostedServerState {
    pub(super) fn of(server: &ObservedServer, boost: &BoostPlan, landed: DeliveryCounts) -> Self {
        let members = server.groups.iter().flat_map(|group| &group.members);
        let is_unread = |cookie: &u64| server.readers_of(*cookie).next().is_none();
        Self {
            landed,
            unread_sockets: members.map(|member| member.socket.cookie).filter(is_unread).collect(),
            changes_wanted: boost.plan.changes.len(),
        }
    }

    fn needs_attention(&self) -> bool {
        !self.unread_sockets.is_empty() || self.changes_wanted > 0
    }
}

impl BoostStatusDocument {
    /// Whether a person should look: something is not as it was left, or somebody's packets are read by nobody.
    pub(super) fn needs_attention(&self) -> bool {
        let lacks_socket = |group: &SteeredGroup| match &group.steered {
            Known::Value(Some(steered)) => steered.sockets.iter().any(|socket| !socket.present),
            Known::Value(None) => true,
            Known::Unknown { .. } => false,
        };
        self.trouble.is_some()
            || self.boosts.iter().any(|boost| {
                boost.tune.needs_attention()
                    || boost.groups.iter().any(lacks_socket)
                    || boost.now.value().is_some_and(BoostedServerState::needs_attention)
            })
    }
}
