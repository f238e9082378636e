//! `cargo xtask bench`: benchmarks and their thresholds.

mod cost;
mod engine;
mod generators;
mod headroom;
mod large_host;
mod meter;
mod placement;
mod servers;
mod subject;
mod threshold;

use std::net::SocketAddr;
use std::process::{Command, ExitCode};

use anyhow::{Context, ensure};
use clap::Subcommand;
use linerate_load::LoadWorkload;
use linerate_load::generator::{GeneratorBackend, GeneratorOptions};

use crate::machine;
use crate::programs::{self, BuildProfile};

pub(crate) use subject::BenchSubject;

#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// The shortest generator that `generators` measures.
    #[command(hide = true)]
    BareLoop(generators::BareLoop),
    /// Goodput at saturation with and without `linerate cost`.
    Cost(cost::CostBench),
    /// Time and memory of doctor on a host with many CPUs, NICs and queues.
    Doctor(large_host::DoctorBench),
    /// User-space instructions per transaction: the engine's mmsg echo and the same loop in C.
    Engine(engine::EngineBench),
    /// Packets per second from one core: our generators, others, and a bare loop.
    Generators(generators::GeneratorsBench),
    /// Capacities that `linerate headroom` estimates, and those that a search finds.
    Headroom(headroom::HeadroomBench),
    /// Capacity, and goodput under overload, of our servers and others.
    Servers(servers::ServersBench),
    /// One of the servers without linerate that `servers` measures.
    #[command(hide = true)]
    Server(servers::ReferenceServer),
    /// The process that `engine` measures: one server, one queue of requests.
    #[command(hide = true)]
    Subject(BenchSubject),
    /// CPU time of top on a host with many CPUs, NICs and queues.
    Top(large_host::TopBench),
}

impl BenchCommand {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let runs_here =
            matches!(self, Self::Cost(_) | Self::Engine(_) | Self::Generators(_) | Self::Servers(_));
        if cfg!(debug_assertions) && runs_here {
            return run_optimized();
        }
        match self {
            Self::BareLoop(bare_loop) => bare_loop.run().map(|()| ExitCode::SUCCESS),
            Self::Cost(cost) => cost.run(),
            Self::Doctor(doctor) => doctor.run(),
            Self::Engine(engine) => engine.run(),
            Self::Generators(generators) => generators.run(),
            Self::Headroom(headroom) => headroom.run(),
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
) -> GeneratorOptions {
    GeneratorOptions {
        cpus: Some(vec![cpu]),
        flows,
        workload: LoadWorkload::Echo { payload_bytes },
        backend: GeneratorBackend::Xdp,
        ..GeneratorOptions::new(vec![target])
    }
}

/// The order 0 1 2 in even rounds, 2 1 0 in odd ones.
fn alternated(count: usize, round: u32) -> Box<dyn Iterator<Item = usize>> {
    if round.is_multiple_of(2) { Box::new(0..count) } else { Box::new((0..count).rev()) }
}

/// Fails if `--only` has a name that does not exist, so that no run measures nothing.
fn check_selection<'a>(only: &[String], names: impl IntoIterator<Item = &'a str>) -> anyhow::Result<()> {
    let names: Vec<&str> = names.into_iter().collect();
    let unknown = only.iter().find(|name| !names.contains(&name.as_str()));
    ensure!(unknown.is_none(), "--only {}: there are {}", unknown.map_or("", |name| name), names.join(", "));
    Ok(())
}

fn is_selected(only: &[String], name: &str) -> bool {
    only.is_empty() || only.iter().any(|selected_name| selected_name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_names_after_only_are_an_error() {
        let check = |name: &str| check_selection(&[name.to_owned()], ["c", "mmsg"]);
        check("mmsg").expect("a name");
        assert_eq!(check("mmgs").expect_err("no name").to_string(), "--only mmgs: there are c, mmsg");
        assert!(is_selected(&[], "c") && !is_selected(&["mmsg".to_owned()], "c"));
    }
}
