//! The commands, one file each.

pub(crate) mod boost;
pub(crate) mod calc;
mod compare;
pub(crate) mod completions;
pub(crate) mod cost;
mod cpus;
mod delay;
pub(crate) mod doctor;
pub(crate) mod drops;
mod export;
pub(crate) mod flame;
mod headroom;
mod lab;
mod ladder;
mod ladder_args;
pub(crate) mod load;
mod man;
mod netns;
mod remote_args;
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
    /// Measure the steps of the ladder between two temporary hosts on this machine
    Lab(Box<lab::LabArgs>),
    /// Measure the steps of the ladder on a real interface, with generators on other hosts over ssh
    Ladder(Box<ladder::LadderArgs>),
    /// Run a server on the engine
    #[command(subcommand)]
    Serve(serve::ServeArgs),
    /// Send requests to a server, match and time every reply, or search for its capacity
    Load(Box<load::LoadArgs>),
    /// Find problems along the packet path; changes nothing
    Doctor(Box<doctor::DoctorArgs>),
    /// Fix the findings of doctor: shows and journals every change, and undoes it on request
    Tune(Box<tune::TuneArgs>),
    /// Steer, pin and tune a running UDP server without changing it; undo on request
    Boost(Box<boost::BoostArgs>),
    /// Measure the CPU time that packets take from each CPU, process, thread and container
    Cost(Box<cost::CostArgs>),
    /// Time each stage of a port's requests, and find why the slowest 1 % are slow
    Delay(Box<delay::DelayArgs>),
    /// Count every packet of a port or host: answered, or lost where and why
    Drops(Box<drops::DropsArgs>),
    /// Find hot functions of the packet path and lock contention, with a flame graph and fixes
    Flame(Box<flame::FlameArgs>),
    /// Estimate how much more a UDP service can take, and what will end it; sends nothing
    Headroom(Box<headroom::HeadroomArgs>),
    /// Watch the packet path live, stage by stage; changes nothing
    Top(Box<top::TopArgs>),
    /// Export metrics of the packet path to Prometheus or node_exporter
    Export(Box<export::ExportArgs>),
    /// Join results of other commands into one page
    Report(report::ReportArgs),
    /// Calculate the packets and bits per second that a link can carry
    Calc(calc::CalcArgs),
    /// Print shell completions
    Completions(completions::CompletionsArgs),
    /// Write the manual pages
    #[command(hide = true)]
    Man(man::ManArgs),
}

impl Command {
    /// The namespace options of commands that read or change this host.
    fn netns(&self) -> Option<&netns::NetnsArgs> {
        match self {
            Command::Ladder(ladder) => Some(&ladder.netns),
            Command::Load(load) => Some(&load.netns),
            Command::Doctor(doctor) => Some(&doctor.netns),
            Command::Tune(tune) => Some(&tune.netns),
            Command::Boost(boost) => Some(&boost.netns),
            Command::Cost(cost) => Some(&cost.netns),
            Command::Delay(delay) => Some(&delay.netns),
            Command::Drops(drops) => Some(&drops.netns),
            Command::Headroom(headroom) => Some(&headroom.netns),
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
            Command::Delay(delay) => delay.run(),
            Command::Drops(drops) => drops.run(),
            Command::Flame(flame) => flame.run(),
            Command::Headroom(headroom) => headroom.run(),
            Command::Top(top) => top.run(),
            Command::Export(export) => export.run(),
            Command::Report(report) => report.run(),
            Command::Calc(calc) => calc.run(),
            Command::Completions(completions) => completions.run(),
            Command::Man(man) => man.run(),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use crate::CliArgs;

    #[test]
    fn ladder_enters_its_network_namespace() {
        let arguments = CliArgs::try_parse_from(["linerate", "ladder", "--list", "--netns", "nosuch"]);
        let error = arguments.expect("arguments").command.run().expect_err("no namespace");
        assert!(error.to_string().starts_with("no network namespace 'nosuch'"), "{error:#}");
    }
}
