//! Observation of a server, and its plan.

use anyhow::Result;
use linerate_host::Host;
use linerate_tune::boost::discovery::ObservedServer;
use linerate_tune::boost::plan;
use linerate_tune::boost::replicas;
use linerate_tune::boost::report::{self, BoostPlanReport};

use super::arguments::BoostTargetArgs;
use crate::envelope::Envelope;
use crate::interrupt::InterruptFlag;
use crate::origin::{self, HostSummary};
use crate::output::ProgressLine;

/// Observes the server and plans. Changes nothing.
pub(super) fn discover(
    host: &Host,
    target: &BoostTargetArgs,
    interrupt: &InterruptFlag,
) -> Result<Envelope<BoostPlanReport>> {
    let (query, mut boost_choice) = (target.server_query()?, target.boost_choice());
    let progress_line = ProgressLine::new();
    let server_text = match (query.port, query.pid) {
        (Some(port), _) => format!("the server on port {port}"),
        (None, Some(pid)) => format!("the server of process {pid}"),
        (None, None) => "the server".to_owned(),
    };
    let seconds = target.observation_options().duration.as_secs_f64();
    progress_line
        .show(&format!("observing {server_text} for {seconds} s (Ctrl-C: use the observations so far)"));
    let started_unix_seconds = origin::unix_seconds();
    let (server, path) =
        ObservedServer::observe(host, &query, target.observation_options(), &|| interrupt.is_raised())?;
    drop(progress_line);
    boost_choice.is_steered_by_run = replicas::are_copies(host, &server);
    let mut boost = plan::make(&server, &path, &boost_choice);
    boost.plan.read_unix_seconds = started_unix_seconds;
    let agreement = report::agreement(&server);
    let report = BoostPlanReport { server, agreement, boost };
    Ok(Envelope::new(HostSummary::observe(host), started_unix_seconds, report))
}
