//! `linerate lab` without a subcommand: the climb.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use linerate_lab::ladder::lab_climb::{self, LabClimb};
use linerate_lab::userns::LabPrivilege;
use linerate_load::wire;

use crate::backend::LoadBackendArgument;
use crate::command::climbing::{IN_A_LAB, LadderRunArgs, PolicyArgument};
use crate::interrupt::InterruptFlag;
use crate::output;
use crate::progress::RunProgress;

#[derive(Debug, Args)]
pub(crate) struct LabRunArgs {
    #[command(flatten)]
    climbing: LadderRunArgs,
    /// Which settings stay for the following steps
    #[arg(long, value_enum, default_value_t = PolicyArgument::KeepAll)]
    policy: PolicyArgument,
    /// How the generator's requests enter the kernel
    #[arg(long, value_enum, default_value_t = LoadBackendArgument::Auto)]
    backend: LoadBackendArgument,
    /// Fail if a request would be fragmented
    #[arg(long)]
    no_fragment: bool,
    /// Link speed for the line-rate share
    #[arg(long, value_name = "SPEED", default_value = "10G")]
    link: wire::LinkSpeed,
    /// Transmit and receive queues of the receiver, 1 to 64 [default: as many as CPUs, 2 to 16]
    #[arg(long, value_name = "N")]
    queues: Option<u32>,
}

impl LabRunArgs {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let outputs = self.climbing.outputs()?;
        if let Some(listed) = self.climbing.listed(&outputs)? {
            return Ok(listed);
        }
        let climb = self.lab_climb()?;
        let privilege = super::enter()?;
        let interrupt = InterruptFlag::install()?;
        let mut progress = RunProgress::new(climb.terms.budget, self.climbing.quiet);
        super::hosts::clean_before()?;
        let report = lab_climb::run(&climb, &privilege_name(&privilege), interrupt.flag(), &mut |event| {
            progress.event(event);
        });
        progress.finish();
        let mut report = report?;
        report.argv = output::argv();
        outputs.write(&report)
    }

    fn lab_climb(&self) -> Result<LabClimb> {
        Ok(LabClimb {
            terms: self.climbing.terms(self.policy.into(), &IN_A_LAB)?,
            host_wide: self.climbing.host_wide,
            backend: self.backend.into(),
            no_fragment: self.no_fragment,
            link: self.link,
            cpus: self.climbing.cpus()?,
            queues: self.queues,
        })
    }
}

fn privilege_name(privilege: &LabPrivilege) -> String {
    match privilege {
        LabPrivilege::Root => "root".to_owned(),
        _ => "user-namespace".to_owned(),
    }
}
