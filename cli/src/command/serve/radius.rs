//! `linerate serve radius`: access for the users of a file.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Result;
use clap::Args;
use linerate_services::radius::{MOST_BYTES, RadiusServer, UserDatabase};

use super::arguments::{AdmissionArgs, ProtocolCounts, ServerArguments, every_network};

#[derive(Debug, Args)]
pub(crate) struct RadiusServeArgs {
    #[command(flatten)]
    server: ServerArguments,
    /// TOML file of clients (network, secret) and users (name, password, reply); docs/serve.md has the format
    #[arg(long, value_name = "FILE")]
    users: PathBuf,
}

impl RadiusServeArgs {
    pub(crate) fn run(mut self) -> Result<ExitCode> {
        self.server.max_request.get_or_insert(MOST_BYTES);
        let users = Arc::new(UserDatabase::read(&self.users)?);
        let server = RadiusServer::new(users);
        let workers = server.clone();
        let counts = move || ProtocolCounts { radius: Some(server.counts()), ..ProtocolCounts::default() };
        let admission = AdmissionArgs {
            // The server answers the clients of the file only, and counts others. Proxies send from
            // the port on which they serve.
            allowed: every_network(),
            servers: true,
            reply_bytes: Some(MOST_BYTES),
            protocol_counts: Some(Box::new(counts)),
            ..AdmissionArgs::default()
        };
        self.server.serve("radius", &admission, |_| Ok(()), move |_| workers.clone())
    }
}
