//! Looking at a server, and deciding.

use std::io::IsTerminal;

use anyhow::Result;
use linerate_host::{Host, Known};
use linerate_tune::boost::delivery::DeliveryAgreement;
use linerate_tune::boost::discovery::{ObservationOptions, ObservedServer, ServerQuery};
use linerate_tune::boost::plan::{self, BoostPlan};

use super::arguments::BoostTargetArgs;
use super::document::{self, BoostPlanDocument, DeliveryCounts};
use crate::interrupt::InterruptFlag;
use crate::{origin, output};

/// A server, what is to be done with it, and how its packets land now.
pub(super) struct DiscoveredServer {
    pub(super) server: ObservedServer,
    pub(super) boost: BoostPlan,
    pub(super) agreement: Known<DeliveryAgreement>,
    /// When it was looked at.
    pub(super) started_unix_seconds: Option<u64>,
}

impl DiscoveredServer {
    /// The same as a document.
    pub(super) fn planned<'s>(&'s self, host: &'s str) -> BoostPlanDocument<'s> {
        BoostPlanDocument {
            schema: document::PLAN,
            version: env!("CARGO_PKG_VERSION"),
            argv: output::argv(),
            started_unix_seconds: self.started_unix_seconds,
            host,
            server: &self.server,
            agreement: &self.agreement,
            boost: &self.boost,
        }
    }

    /// How its packets landed.
    pub(super) fn landed(&self) -> DeliveryCounts {
        landed(&self.server)
    }
}

/// Looks, and decides. Changes nothing.
pub(super) fn look(
    host: &Host,
    asked: &BoostTargetArgs,
    interrupt: &InterruptFlag,
) -> Result<DiscoveredServer> {
    let (wanted, choice) = (asked.wanted()?, asked.choice());
    let line = WaitingLine::show(&wanted, asked.look());
    let started_unix_seconds = origin::unix_seconds();
    let (server, path) = ObservedServer::observe(host, &wanted, asked.look(), &|| interrupt.is_raised())?;
    drop(line);
    let mut boost = plan::make(&server, &path, &choice);
    boost.plan.read_unix_seconds = started_unix_seconds;
    let agreement = agreement(&server);
    Ok(DiscoveredServer { server, boost, agreement, started_unix_seconds })
}

/// How packets of a server landed, and in what time.
pub(super) fn landed(server: &ObservedServer) -> DeliveryCounts {
    DeliveryCounts { seconds: server.landings.value().map(|seen| seen.seconds), agreement: agreement(server) }
}

/// How packets of a server landed while it was looked at.
fn agreement(server: &ObservedServer) -> Known<DeliveryAgreement> {
    match &server.landings {
        Known::Value(landings) => Known::Value(DeliveryAgreement::of(server, landings)),
        Known::Unknown { why } => Known::unknown(why.clone()),
    }
}

/// What goes on, for who waits at a terminal.
struct WaitingLine;

impl WaitingLine {
    fn show(wanted: &ServerQuery, look: ObservationOptions) -> Option<Self> {
        if !std::io::stderr().is_terminal() {
            return None;
        }
        let what = match (wanted.port, wanted.pid) {
            (Some(port), _) => format!("the server on port {port}"),
            (None, Some(pid)) => format!("the server of process {pid}"),
            (None, None) => "the server".to_owned(),
        };
        eprint!(
            "\r\u{1b}[Klooking at {what} for {} s (Ctrl-C: go by what was seen)",
            look.duration.as_secs_f64()
        );
        Some(Self)
    }
}

impl Drop for WaitingLine {
    fn drop(&mut self) {
        eprint!("\r\u{1b}[K");
    }
}
