//! Build chores: benches and fuzzing. `cargo xtask --help` lists them.

mod bench;
mod bpf;
mod deb;
mod findings;
mod fixture;
mod fuzz;
mod guest;
mod image;
mod machine;
mod programs;
mod schemas;
mod soak;
mod sys;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Chores of linerate's developers.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask")]
struct XtaskArgs {
    #[command(subcommand)]
    chore: XtaskCommand,
}

#[derive(Debug, Subcommand)]
enum XtaskCommand {
    /// Run a benchmark and compare the result with its thresholds.
    #[command(subcommand)]
    Bench(bench::BenchCommand),
    /// Build the BPF objects, or check that they match their sources.
    Bpf(bpf::BpfCommand),
    /// Build the Debian package, and try it in a throw-away installation.
    Deb(deb::DebCommand),
    /// Write docs/findings.md from the rules of doctor.
    Findings,
    /// Run a fuzz target for a while, on the stable toolchain.
    Fuzz(fuzz::Fuzz),
    /// Boot a guest with many CPUs and NUMA nodes, and run a command or tests in it.
    #[command(subcommand)]
    Guest(guest::GuestChore),
    /// Build the container image, and try it.
    Image(image::ImageCommand),
    /// Write share/schemas, a JSON Schema for each document.
    Schemas,
    /// Load a server while interface, MTU, workers and ports change; requires root.
    Soak(soak::SoakCommand),
    /// Write a host with known faults into a directory, for `linerate doctor --root`.
    Fixture(fixture::Fixture),
}

fn main() -> anyhow::Result<ExitCode> {
    match XtaskArgs::parse().chore {
        XtaskCommand::Bench(bench) => bench.run(),
        XtaskCommand::Bpf(bpf) => bpf.run(),
        XtaskCommand::Deb(deb) => deb.run(),
        XtaskCommand::Findings => findings::run(),
        XtaskCommand::Fuzz(fuzz) => fuzz.run(),
        XtaskCommand::Guest(guest) => guest.run(),
        XtaskCommand::Image(image) => image.run(),
        XtaskCommand::Schemas => schemas::run(),
        XtaskCommand::Soak(soak) => soak.run(),
        XtaskCommand::Fixture(fixture) => fixture.run(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        XtaskArgs::command().debug_assert();
    }
}
