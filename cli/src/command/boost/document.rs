//! What `--json` has of a boost.

use std::net::SocketAddr;

use linerate_host::Known;
use linerate_host::setting::Steered;
use linerate_host::stage::socket::Protocol;
use linerate_tune::boost::BoostPlan;
use linerate_tune::boost::plan::{Advice, Place, Refusal};
use linerate_tune::boost::sight::Server;
use linerate_tune::boost::verify::Agreement;
use linerate_tune::journal::record::Until;
use linerate_tune::journal::{Holder, Trouble};
use linerate_tune::status::TuneStatus;
use serde::Serialize;

use super::verification::Verification;
use crate::command::tune::apply::carrying::Step;

/// The schema of a plan.
pub(super) const PLAN: &str = "linerate.boost/1";
/// The schema of what was done.
pub(super) const APPLY: &str = "linerate.boost-apply/1";
/// The schema of what is in force.
pub(super) const STATUS: &str = "linerate.boost-status/1";

/// What was seen of a server, and what would be done.
#[derive(Serialize)]
pub(crate) struct Planned<'a> {
    pub(crate) schema: &'static str,
    pub(crate) version: &'static str,
    pub(crate) argv: Vec<String>,
    /// When the server was looked at.
    pub(crate) started_unix_seconds: Option<u64>,
    /// What the host calls itself.
    pub(crate) host: &'a str,
    pub(crate) server: &'a Server,
    /// How its packets landed while it was looked at.
    pub(crate) agreement: &'a Known<Agreement>,
    #[serde(flatten)]
    pub(crate) boost: &'a BoostPlan,
}

/// How packets landed during one look.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Landed {
    /// For how long was looked; null where datagrams could not be looked at.
    pub(crate) seconds: Option<f64>,
    pub(crate) agreement: Known<Agreement>,
}

/// What was done, and what came of it.
#[derive(Serialize)]
pub(crate) struct Applied<'a> {
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
    pub(crate) until: Option<Until>,
    /// The changes in the order in which they were made; one that is not here was not made.
    pub(crate) changes: &'a [Step],
    /// Why not all were made, or none could be; null where they were.
    pub(crate) broke_off: Option<&'a str>,
    pub(crate) places: &'a [Place],
    pub(crate) refusals: &'a [Refusal],
    pub(crate) advice: &'a [Advice],
    /// How packets landed before.
    pub(crate) before: Landed,
    /// How they land now; null where the server could not be looked at again.
    pub(crate) now: Option<Landed>,
    /// That, judged by the plan.
    pub(crate) verification: &'a Verification,
}

/// The boosts in force.
#[derive(Serialize)]
pub(crate) struct InForce {
    pub(crate) schema: &'static str,
    pub(crate) version: &'static str,
    pub(crate) argv: Vec<String>,
    /// The journal's file.
    pub(crate) journal: String,
    /// Why there may be more than is told.
    pub(crate) trouble: Option<Trouble>,
    /// The process that changes settings now.
    pub(crate) holder: Option<Holder>,
    /// The earliest first.
    pub(crate) boosts: Vec<Boosted>,
}

/// A boost in force.
#[derive(Serialize)]
pub(crate) struct Boosted {
    #[serde(flatten)]
    pub(crate) tune: TuneStatus,
    /// What its programs did.
    pub(crate) groups: Vec<SteeredGroup>,
    /// The server as it is seen now.
    pub(crate) now: Known<Now>,
}

/// A group that a boost steers.
#[derive(Serialize)]
pub(crate) struct SteeredGroup {
    pub(crate) protocol: Protocol,
    pub(crate) local: SocketAddr,
    /// Null where the program is not there any more.
    pub(crate) steered: Known<Option<Steered>>,
}

/// A boosted server, looked at anew.
#[derive(Serialize)]
pub(crate) struct Now {
    pub(crate) landed: Landed,
    /// Sockets of its groups that nobody was seen to read.
    pub(crate) unread_sockets: Vec<u64>,
    /// How many changes a plan would have now.
    pub(crate) changes_wanted: usize,
}

impl Now {
    pub(super) fn of(server: &Server, boost: &BoostPlan, landed: Landed) -> Self {
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

impl InForce {
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
                    || boost.now.value().is_some_and(Now::needs_attention)
            })
    }
}
