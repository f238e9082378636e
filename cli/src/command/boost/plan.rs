//! `linerate boost plan`: the server, and what would be done with it. Changes nothing.

use std::process::ExitCode;

use anyhow::Result;
use linerate_host::Host;

use super::arguments::BoostTargetArgs;
use super::sighting;
use crate::command::tune::host_name;
use crate::interrupt::InterruptFlag;
use crate::output::{self, OutputTarget};
use crate::render::boost_plan;
use crate::render::style::TextStyle;

pub(super) fn run(asked: &BoostTargetArgs) -> Result<ExitCode> {
    let json = OutputTarget::from_option(asked.json.as_deref())?;
    let host = Host::live().gently();
    let sighted = sighting::look(&host, asked, &InterruptFlag::install()?)?;
    let name = host_name(&host);
    let planned = sighted.planned(&name);
    if let Some(target) = &json {
        target.write_json(&planned)?;
    }
    if json != Some(OutputTarget::Stdout) {
        let mut text = boost_plan::plan(&planned, asked.full, TextStyle::stdout());
        if !sighted.boost.plan.changes.is_empty() {
            text.push_str("Nothing was changed. To make these changes: the same command with apply.\n");
        }
        output::print(&text)?;
    }
    Ok(ExitCode::SUCCESS)
}
