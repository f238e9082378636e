//! `linerate serve radius`: access for the users of a file.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Result;
use clap::Args;
use linerate_services::radius::{MOST_BYTES, RadiusServer, UserDatabase};

use super::arguments::{AdmissionArgs, ServerArguments};

#[derive(Debug, Args)]
pub(crate) struct RadiusServeArgs {
    #[command(flatten)]
    server: ServerArguments,
    /// TOML file of clients (network, secret) and users (name, password, reply); docs/serve.md has the format
    #[arg(long, value_name = "FILE")]
    users: PathBuf,
}

impl RadiusServeArgs {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let users = Arc::new(UserDatabase::read(&self.users)?);
        let admission = AdmissionArgs {
            // The file lists the clients, and proxies send from the port on which they serve.
            allowed: users.clients().iter().map(|client| client.network).collect(),
            servers: true,
            reply_bytes: Some(MOST_BYTES),
            ..AdmissionArgs::default()
        };
        let server = RadiusServer::new(users);
        let workers = server.clone();
        let exit_code = self.server.serve("radius", &admission, move |_| workers.worker())?;
        status_line!("radius: {}", server.counts());
        Ok(exit_code)
    }
}
