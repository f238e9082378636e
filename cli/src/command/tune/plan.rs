//! `linerate tune plan`: what would be changed. Changes nothing.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use linerate_host::Host;
use linerate_tune::TunePlan;
use linerate_tune::plan::PlanRehearsal;

use super::arguments::StateDirArgs;
use super::choice::ProfileArgs;
use super::planning::{self, TunePlanner};
use crate::command::doctor::arguments::HostScopeArgs;
use crate::interrupt::InterruptFlag;
use crate::output::{self, OutputTarget};
use crate::render::style::TextStyle;
use crate::render::tune_plan;

/// Arguments of `tune plan`.
#[derive(Debug, Args)]
pub(super) struct TunePlanArgs {
    #[command(flatten)]
    sight: HostScopeArgs,
    #[command(flatten)]
    choice: ProfileArgs,
    /// Print this plan, written by --json, instead of a new one
    #[arg(long, value_name = "FILE", conflicts_with_all = ["interfaces", "port", "pid", "watch", "root", "goal", "only", "except", "anyway"])]
    plan: Option<PathBuf>,
    /// Write the plan as JSON, to be edited or for apply --plan; - is standard output
    #[arg(short = 'j', long, value_name = "FILE")]
    json: Option<String>,
    /// Show all reasons, masks, commands and sources
    #[arg(long)]
    full: bool,
    #[command(flatten)]
    place: StateDirArgs,
}

/// What is shown.
struct PlanDetail {
    plan: TunePlan,
    host: String,
    /// None of a plan that was saved.
    rehearsal: Option<PlanRehearsal>,
    unseen: Vec<String>,
}

impl TunePlanArgs {
    pub(super) fn run(self) -> Result<ExitCode> {
        let json = OutputTarget::from_option(self.json.as_deref())?;
        let PlanDetail { plan, host, rehearsal, unseen } = self.plan()?;
        if let Some(target) = &json {
            target.write(&plan.to_json())?;
        }
        if json != Some(OutputTarget::Stdout) {
            let style = TextStyle::stdout();
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

    fn plan(&self) -> Result<PlanDetail> {
        if let Some(file) = &self.plan {
            let (plan, host) = (planning::saved(file)?, planning::host_name(&Host::live()));
            return Ok(PlanDetail { plan, host, rehearsal: None, unseen: Vec::new() });
        }
        let planner = TunePlanner { sight: self.sight.clone(), profile: self.choice.profile()? };
        let mut planned = planner.plan(&InterruptFlag::install()?)?;
        let rehearsal = Some(planned.rehearse());
        Ok(PlanDetail { plan: planned.plan, host: planned.host, rehearsal, unseen: planned.unseen })
    }
}
