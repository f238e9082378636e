//! `linerate serve echo`: returns each request, marked as a reply.

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Result;
use clap::Args;
use linerate_services::echo::RequestEcho;

use super::arguments::{AdmissionArgs, ServerArguments};

/// Answers requests of `linerate load`, which it knows by their header, and marks its replies. So two echoes that a forged
/// datagram made begin do not answer each other. Ports below 1024 and its own are never answered.
#[derive(Debug, Args)]
pub(crate) struct EchoServeArgs {
    #[command(flatten)]
    server: ServerArguments,
    /// Answer any payload, also of other generators and shorter than the header of 40 bytes; two echoes may then answer
    /// each other for ever
    #[arg(long)]
    any: bool,
}

impl EchoServeArgs {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let admission =
            AdmissionArgs { reply_bytes: Some(self.server.request_bytes()), ..AdmissionArgs::default() };
        let (allow_any, refusals) = (self.any, Arc::clone(&admission.refusals));
        self.server.serve(
            "echo",
            &admission,
            |_| Ok(()),
            move |_| RequestEcho::new(allow_any, Arc::clone(&refusals)),
        )
    }
}
