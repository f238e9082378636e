//! `linerate boost plan`: the server, and what would be done with it. Changes nothing.

use std::process::ExitCode;

use anyhow::Result;
use linerate_host::Host;

use super::arguments::Asked;
use super::sighting;
use crate::command::tune::host_name;
use crate::interrupt::Interrupt;
use crate::output::{self, Target};
use crate::render::boost_plan;
use crate::render::style::Style;

pub(super) fn run(asked: &Asked) -> Result<ExitCode> {
    let json = Target::wanted(asked.json.as_deref())?;
    let host = Host::live().gently();
    let sighted = sighting::look(&host, asked, &Interrupt::install()?)?;
    let name = host_name(&host);
    let planned = sighted.planned(&name);
    if let Some(target) = &json {
        target.json(&planned)?;
    }
    if json != Some(Target::Stdout) {
        let mut text = boost_plan::plan(&planned, asked.full, Style::stdout());
        if !sighted.boost.plan.changes.is_empty() {
            text.push_str("Nothing was changed. To make these changes: the same command with apply.\n");
        }
        output::print(&text)?;
    }
    Ok(ExitCode::SUCCESS)
}
