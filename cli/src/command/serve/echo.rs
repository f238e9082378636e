//! `linerate serve echo`: each datagram comes back as it was.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use anyhow::Result;
use clap::Args;
use linerate_engine::{Echo as EchoService, LoopBreaker};

use super::arguments::ServerArguments;

/// A source that sends back what it was sent, 256 times in a row, is taken for another echo: one of those gets no answer, so
/// that two of them, whom a forged datagram made begin, do not go on for ever.
#[derive(Debug, Args)]
pub(crate) struct Echo {
    #[command(flatten)]
    server: ServerArguments,
    /// Answer also who sends the same over and over; two echoes may then answer each other for ever
    #[arg(long)]
    allow_loops: bool,
}

impl Echo {
    pub(crate) fn run(self) -> Result<ExitCode> {
        if self.allow_loops {
            return self.server.serve("echo", |_| EchoService);
        }
        let broken = Arc::default();
        let count = Arc::clone(&broken);
        let code = self.server.serve("echo", move |_| LoopBreaker::new(EchoService, Arc::clone(&count)))?;
        match broken.load(Relaxed) {
            0 => {}
            loops => eprintln!("{loops} requests got no answer: their sources sent back what they were sent"),
        }
        Ok(code)
    }
}
