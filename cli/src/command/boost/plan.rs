//! `linerate boost plan`: the server and its plan. Changes nothing.

use std::process::ExitCode;

use anyhow::Result;
use linerate_host::{BackgroundThread, Host};
use linerate_tune::boost::report::BoostPlanReport;

use super::arguments::BoostTargetArgs;
use super::boosts;
use super::observation;
use crate::command::results::write_result;
use crate::document::Section;
use crate::interrupt::InterruptFlag;
use crate::output::OutputTarget;
use crate::view;

pub(super) fn run(target: &BoostTargetArgs) -> Result<ExitCode> {
    let json = OutputTarget::from_option(target.json.as_deref())?;
    // Stays in effect until the process ends, because its end also takes some milliseconds of CPU
    // time.
    std::mem::forget(BackgroundThread::enter());
    let host = Host::live().gently();
    let envelope = observation::discover(&host, target, &InterruptFlag::install()?)?;
    write_result(json.as_ref(), &envelope, || {
        let mut document = view::boost::plan(&envelope, target.full);
        let BoostPlanReport { server, boost, .. } = &envelope.result;
        let in_effect = || {
            let store = target.state_dir.existing_store().ok()?;
            boosts::of_server(&store, &host, server, target).ok().flatten()
        };
        if boost.plan.changes.is_empty() && in_effect().is_some() {
            document.verdict = view::boost::nothing_to_change(&envelope.result);
        }
        if !boost.plan.changes.is_empty() {
            let text = match target.steering_refusal(server, &boost.plan) {
                Some(reason) => format!("Nothing was changed, and apply refuses for now: {reason}."),
                None => "Nothing was changed. To make these changes: the same command with apply.".to_owned(),
            };
            document.sections.push(Section::default().with(text));
        }
        document
    })?;
    Ok(ExitCode::SUCCESS)
}
