//! The commands, one file each.

pub(crate) mod boost;
pub(crate) mod calc;
mod climbing;
mod completions;
pub(crate) mod cost;
pub(crate) mod doctor;
pub(crate) mod drops;
mod export;
pub(crate) mod flame;
mod lab;
mod ladder;
pub(crate) mod load;
mod man;
mod netns;
pub(crate) mod report;
mod results;
mod serve;
pub(crate) mod top;
pub(crate) mod tune;

use std::process::ExitCode;

use clap::Subcommand;

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Climb the ladder between two throw-away hosts on this machine, and report
    Lab(Box<lab::LabArgs>),
    /// Climb the ladder on a real interface, with generators on other hosts over ssh, and report
    Ladder(Box<ladder::LadderArgs>),
    /// Run a server on the engine
    #[command(subcommand)]
    Serve(serve::ServeArgs),
    /// Generate, match and time transactions with a server
    Load(Box<load::LoadArgs>),
    /// Find what is wrong along the packet path; changes nothing
    Doctor(Box<doctor::DoctorArgs>),
    /// Set a packet path right: every change shown, journalled, verified, and undone on request
    Tune(Box<tune::TuneArgs>),
    /// Steer, pin and tune a UDP server that is running, unmodified: every change shown, journalled and undone on request
    Boost(Box<boost::BoostArgs>),
    /// What packet processing takes from each CPU, and from each process, thread and container
    Cost(Box<cost::CostArgs>),
    /// Account for every packet of a port or host: answered, or lost where and why
    Drops(Box<drops::DropsArgs>),
    /// What burns along the packet path: flame graph, hot spots with their remedy, lock contention
    Flame(Box<flame::FlameArgs>),
    /// The packet path as it runs, stage by stage, once a second; changes nothing
    Top(Box<top::TopArgs>),
    /// Serve what the packet path counts as OpenMetrics, for Prometheus; or write it for node_exporter
    Export(Box<export::ExportArgs>),
    /// Join results of other commands into one page, the path first
    Report(report::ReportArgs),
    /// Wire arithmetic: what a link can carry
    Calc(calc::CalcArgs),
    /// Print what a shell needs to complete command lines of linerate
    Completions(completions::CompletionsArgs),
    /// Write the manual pages
    #[command(hide = true)]
    Man(man::ManArgs),
}

impl Command {
    /// The network namespace to look at, of commands that look at this host.
    fn netns(&self) -> Option<&netns::NetnsArgs> {
        match self {
            Command::Load(load) => Some(&load.netns),
            Command::Doctor(doctor) => Some(&doctor.netns),
            Command::Tune(tune) => Some(&tune.netns),
            Command::Boost(boost) => Some(&boost.netns),
            Command::Cost(cost) => Some(&cost.netns),
            Command::Drops(drops) => Some(&drops.netns),
            Command::Top(top) => Some(&top.netns),
            Command::Export(export) => Some(&export.netns),
            _ => None,
        }
    }

    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        if let Some(netns) = self.netns() {
            netns.enter()?;
        }
        match self {
            Command::Lab(lab) => lab.run(),
            Command::Ladder(ladder) => ladder.run(),
            Command::Serve(serve) => serve.run(),
            Command::Load(load) => load.run(),
            Command::Doctor(doctor) => doctor.run(),
            Command::Tune(tune) => tune.run(),
            Command::Boost(boost) => boost.run(),
            Command::Cost(cost) => cost.run(),
            Command::Drops(drops) => drops.run(),
            Command::Flame(flame) => flame.run(),
            Command::Top(top) => top.run(),
            Command::Export(export) => export.run(),
            Command::Report(report) => report.run(),
            Command::Calc(calc) => calc.run(),
            Command::Completions(completions) => completions.run(),
            Command::Man(man) => man.run(),
        }
    }
}
