//! `linerate tune plan`: what would be changed. Changes nothing.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use linerate_host::Host;
use linerate_tune::Plan;
use linerate_tune::plan::Rehearsal;

use super::arguments::Place;
use super::choice::Choice;
use super::planning::{self, Planner};
use crate::command::doctor::arguments::Sight;
use crate::interrupt::Interrupt;
use crate::output::{self, Target};
use crate::render::style::Style;
use crate::render::tune_plan;

/// Arguments of `tune plan`.
#[derive(Debug, Args)]
pub(super) struct Show {
    #[command(flatten)]
    sight: Sight,
    #[command(flatten)]
    choice: Choice,
    /// Show this plan, as --json wrote it, instead of making one
    #[arg(long, value_name = "FILE", conflicts_with_all = ["interfaces", "port", "pid", "watch", "root", "goal", "only", "except", "anyway"])]
    plan: Option<PathBuf>,
    /// Write the plan as JSON, to be edited or for apply --plan; - is standard output
    #[arg(long, value_name = "FILE")]
    json: Option<String>,
    /// Show all reasons, masks, commands and sources
    #[arg(long)]
    full: bool,
    #[command(flatten)]
    place: Place,
}

/// What is shown.
struct Shown {
    plan: Plan,
    host: String,
    /// None of a plan that was saved.
    rehearsal: Option<Rehearsal>,
    unseen: Vec<String>,
}

impl Show {
    pub(super) fn run(self) -> Result<ExitCode> {
        let json = Target::wanted(self.json.as_deref())?;
        let Shown { plan, host, rehearsal, unseen } = self.plan()?;
        if let Some(target) = &json {
            target.write(&plan.to_json())?;
        }
        if json != Some(Target::Stdout) {
            let style = Style::stdout();
            let mut text = tune_plan::plan(&plan, &host, self.full, style);
            text.push_str(&tune_plan::afterwards(&plan, rehearsal.as_ref(), self.full, style));
            text.push_str(&tune_plan::unseen(&unseen, style));
            if self.sight.root.is_none() && !(plan.changes.is_empty() && plan.agreements.is_empty()) {
                let apply = self.place.command("apply");
                text.push_str(&format!(
                    "Nothing was changed. To make these changes: {apply} with the same options.\n"
                ));
            }
            output::print(&text)?;
        }
        Ok(ExitCode::SUCCESS)
    }

    fn plan(&self) -> Result<Shown> {
        if let Some(file) = &self.plan {
            let (plan, host) = (planning::saved(file)?, planning::host_name(&Host::live()));
            return Ok(Shown { plan, host, rehearsal: None, unseen: Vec::new() });
        }
        let planner = Planner { sight: self.sight.clone(), profile: self.choice.profile()? };
        let mut planned = planner.plan(&Interrupt::install()?)?;
        let rehearsal = Some(planned.rehearse());
        Ok(Shown { plan: planned.plan, host: planned.host, rehearsal, unseen: planned.unseen })
    }
}
