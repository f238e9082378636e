//! `cargo xtask bench`: promises about cost, kept by counting instructions.

mod engine;
mod meter;
mod subject;

use std::process::ExitCode;

use clap::Subcommand;

#[cfg(test)]
pub(crate) use subject::Side;
pub(crate) use subject::Subject;

#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    /// User-space instructions a transaction: the engine's mmsg echo beside the same loop in C.
    Engine(engine::Engine),
    /// What `engine` measures: one server, one queue of requests.
    #[command(hide = true)]
    Subject(Subject),
}

impl Bench {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        match self {
            Self::Engine(engine) => engine.run(),
            Self::Subject(subject) => subject.run().map(|()| ExitCode::SUCCESS),
        }
    }
}
