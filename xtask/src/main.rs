//! Build chores: benches and fuzzing. `cargo xtask --help` lists them.

mod bench;
mod fuzz;
mod sys;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Chores of linerate's developers.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Debug, Subcommand)]
enum Chore {
    /// Measure, and fail where a promise is not kept.
    #[command(subcommand)]
    Bench(bench::Bench),
    /// Run a fuzz target for a while, on the stable toolchain.
    Fuzz(fuzz::Fuzz),
}

fn main() -> anyhow::Result<ExitCode> {
    match Arguments::parse().chore {
        Chore::Bench(bench) => bench.run(),
        Chore::Fuzz(fuzz) => fuzz.run(),
    }
}
