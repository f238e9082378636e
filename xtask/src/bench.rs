//! `cargo xtask bench`: benchmarks and their thresholds.

mod cost;
mod doctor;
mod engine;
mod generators;
mod headroom;
mod meter;
mod overload;
mod placement;
mod servers;
mod subject;
mod threshold;
mod top;

use std::net::SocketAddr;
use std::process::{Command, ExitCode};

use anyhow::Context;
use clap::Subcommand;
use linerate_load::LoadWorkload;
use linerate_load::generator::{GeneratorBackend, GeneratorBuilder};

use crate::machine;
use crate::programs::{self, BuildProfile};

pub(crate) use subject::BenchSubject;
#[cfg(test)]
pub(crate) use subject::SubjectSide;

#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Goodput at saturation with and without `linerate cost`.
    Cost(cost::CostBench),
    /// Time and memory of doctor on a host with many CPUs, NICs and queues.
    Doctor(doctor::DoctorBench),
    /// User-space instructions per transaction: the engine's mmsg echo and the same loop in C.
    Engine(engine::EngineBench),
    /// Packets per second from one core: our generators, others, and a bare loop.
    Generators(generators::GeneratorsBench),
    /// Capacities that `linerate headroom` estimates, and those that a search finds.
    Headroom(headroom::HeadroomBench),
    /// Goodput at up to five times capacity, with and without the overload policy.
    Overload(overload::OverloadBench),
    /// Capacity, and goodput under overload, of our servers and others.
    Servers(servers::ServersBench),
    /// One of the servers that `servers` measures.
    #[command(hide = true)]
    Server(servers::ServerProgram),
    /// The process that `engine` measures: one server, one queue of requests.
    #[command(hide = true)]
    Subject(BenchSubject),
    /// CPU time of top on a host with many CPUs, NICs and queues.
    Top(top::TopBench),
}

impl BenchCommand {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        match self {
            Self::Cost(cost) => cost.run(),
            Self::Doctor(doctor) => doctor.run(),
            Self::Engine(engine) => engine.run(),
            Self::Generators(generators) => generators.run(),
            Self::Headroom(headroom) => headroom.run(),
            Self::Overload(overload) => overload.run(),
            Self::Servers(servers) => servers.run(),
            Self::Server(server) => server.run().map(|()| ExitCode::SUCCESS),
            Self::Subject(subject) => subject.run().map(|()| ExitCode::SUCCESS),
            Self::Top(top) => top.run(),
        }
    }
}

// Runs the same command in the release build, because figures of an unoptimized build are
// meaningless.
pub(crate) fn run_optimized() -> anyhow::Result<ExitCode> {
    let program = programs::build(BuildProfile::Release, "xtask")?;
    let status = Command::new(&program)
        .args(std::env::args_os().skip(1))
        .status()
        .with_context(|| format!("starting {}", program.display()))?;
    Ok(machine::exit_code(status.success()))
}

// A generator of echo requests in the kernel, on one CPU.
pub(crate) fn echo_load(
    target: SocketAddr,
    cpu: u32,
    flows: usize,
    payload_bytes: usize,
) -> GeneratorBuilder {
    GeneratorBuilder::default()
        .targets(vec![target])
        .cpus(Some(vec![cpu]))
        .flows(flows)
        .workload(LoadWorkload::Echo { payload_bytes })
        .backend(GeneratorBackend::Xdp)
}

/// The order 0 1 2 in even rounds, 2 1 0 in odd ones.
fn alternated(count: usize, round: u32) -> Box<dyn Iterator<Item = usize>> {
    if round.is_multiple_of(2) { Box::new(0..count) } else { Box::new((0..count).rev()) }
}
