//! `cargo xtask bench`: promises about cost and speed.

mod backlog;
mod cost;
mod doctor;
mod engine;
mod generators;
mod meter;
mod overload;
mod pacing;
mod search;
mod servers;
mod subject;
mod top;
mod verdict;

use std::process::{Command, ExitCode};

use anyhow::Context;
use clap::Subcommand;

use crate::programs::{self, BuildProfile};

pub(crate) use subject::BenchSubject;
#[cfg(test)]
pub(crate) use subject::SubjectSide;

#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Goodput at saturation while `linerate cost` looks, beside that while nobody does.
    Cost(cost::CostBench),
    /// Time and memory that doctor takes of a host with many CPUs, NICs and queues.
    Doctor(doctor::DoctorBench),
    /// User-space instructions a transaction: the engine's mmsg echo beside the same loop in C.
    Engine(engine::EngineBench),
    /// Packets a second from one core: our generators beside others, and beside the least that sends.
    Generators(generators::GeneratorsBench),
    /// What is answered at five times capacity, with the overload policy and without.
    Overload(overload::OverloadBench),
    /// Whether the rates asked for are those that leave.
    Pacing(pacing::PacingBench),
    /// Whether a search finds a capacity that is known.
    Search(search::SearchBench),
    /// Capacity, and goodput under overload, of our servers beside others.
    Servers(servers::ServersBench),
    /// One of those that `servers` measures.
    #[command(hide = true)]
    Server(servers::ServerProgram),
    /// What `engine` measures: one server, one queue of requests.
    #[command(hide = true)]
    Subject(BenchSubject),
    /// What top takes of a CPU, of a host with many CPUs, NICs and queues.
    Top(top::TopBench),
}

impl BenchCommand {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        match self {
            Self::Cost(cost) => cost.run(),
            Self::Doctor(doctor) => doctor.run(),
            Self::Engine(engine) => engine.run(),
            Self::Generators(generators) => generators.run(),
            Self::Overload(overload) => overload.run(),
            Self::Pacing(pacing) => pacing.run(),
            Self::Search(search) => search.run(),
            Self::Servers(servers) => servers.run(),
            Self::Server(server) => server.run().map(|()| ExitCode::SUCCESS),
            Self::Subject(subject) => subject.run().map(|()| ExitCode::SUCCESS),
            Self::Top(top) => top.run(),
        }
    }
}

/// The same again, built as it is shipped: without optimization, figures say nothing.
pub(crate) fn run_optimized() -> anyhow::Result<ExitCode> {
    let program = programs::build(BuildProfile::Release, "xtask")?;
    let status = Command::new(&program)
        .args(std::env::args_os().skip(1))
        .status()
        .with_context(|| format!("starting {}", program.display()))?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
