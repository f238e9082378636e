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

use std::process::{Command, ExitCode};

use anyhow::Context;
use clap::Subcommand;

use crate::programs::{self, Profile};

#[cfg(test)]
pub(crate) use subject::Side;
pub(crate) use subject::Subject;

#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    /// Goodput at saturation while `linerate cost` looks, beside that while nobody does.
    Cost(cost::Cost),
    /// Time and memory that doctor takes of a host with many CPUs, NICs and queues.
    Doctor(doctor::Doctor),
    /// User-space instructions a transaction: the engine's mmsg echo beside the same loop in C.
    Engine(engine::Engine),
    /// Packets a second from one core: our generators beside others, and beside the least that sends.
    Generators(generators::Generators),
    /// What is answered at five times capacity, with the overload policy and without.
    Overload(overload::Overload),
    /// Whether the rates asked for are those that leave.
    Pacing(pacing::Pacing),
    /// Whether a search finds a capacity that is known.
    Search(search::Search),
    /// Capacity, and goodput under overload, of our servers beside others.
    Servers(servers::Servers),
    /// One of those that `servers` measures.
    #[command(hide = true)]
    Server(servers::Program),
    /// What `engine` measures: one server, one queue of requests.
    #[command(hide = true)]
    Subject(Subject),
    /// What top takes of a CPU, of a host with many CPUs, NICs and queues.
    Top(top::Top),
}

impl Bench {
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
    let program = programs::build(Profile::Release, "xtask")?;
    let status = Command::new(&program)
        .args(std::env::args_os().skip(1))
        .status()
        .with_context(|| format!("starting {}", program.display()))?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
