//! `linerate serve radius`: access for the users of a file, and accounting.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;

use anyhow::{Context, Result};
use clap::Args;
use linerate_services::radius::{AccountingFile, MOST_BYTES, PortRole, RadiusServer, UserDatabase};
use signal_hook::consts::SIGHUP;
use signal_hook::iterator::Signals;

use super::arguments::{AdmissionArgs, ServerArguments};

#[derive(Debug, Args)]
pub(crate) struct RadiusServeArgs {
    #[command(flatten)]
    server: ServerArguments,
    /// TOML file of clients (network, secret) and users (name, password, reply); docs/serve.md has the format
    #[arg(long, value_name = "FILE")]
    users: PathBuf,
    /// Answer accounting on this address, usually with port 1813
    #[arg(long, value_name = "ADDR:PORT")]
    #[arg(requires = "accounting_file")]
    accounting: Option<SocketAddr>,
    /// Append accounting records to this file before they are answered, one line of JSON per record; SIGHUP opens it
    /// again. /dev/null keeps nothing
    #[arg(long, value_name = "FILE", requires = "accounting")]
    accounting_file: Option<PathBuf>,
}

impl RadiusServeArgs {
    pub(crate) fn run(mut self) -> Result<ExitCode> {
        let users = Arc::new(UserDatabase::read(&self.users)?);
        let admission = AdmissionArgs {
            // The file has the clients, and proxies send from the port on which they serve.
            allowed: users.clients().iter().map(|client| client.network).collect(),
            servers: true,
            reply_bytes: Some(MOST_BYTES),
            ..AdmissionArgs::default()
        };
        let authentication = RadiusServer::new(PortRole::Authentication, Arc::clone(&users));
        let mut accounting = RadiusServer::new(PortRole::Accounting, users);
        if let Some(path) = &self.accounting_file {
            let notify = Box::new(|line: &str| eprintln!("linerate: {line}"));
            let file = AccountingFile::open(path, notify)
                .with_context(|| format!("--accounting-file {}", path.display()))?;
            reopen_on_signal(Arc::clone(&file), path.clone())?;
            self.server.reloads = true;
            accounting = accounting.accounting_file(file);
        }
        let mut beside = Vec::new();
        if let Some(address) = self.accounting {
            let service = accounting.clone();
            let running = self.server.start(address, &admission, move |_| service.worker());
            beside.push(("radius-accounting", running.context("--accounting")?));
        }
        let service = authentication.clone();
        let ended = self.server.serve_beside("radius", &admission, beside, move |_| service.worker())?;
        eprintln!("radius: {}", authentication.counts());
        if self.accounting.is_some() {
            eprintln!("radius-accounting: {}", accounting.counts());
        }
        Ok(ended)
    }
}

fn reopen_on_signal(file: Arc<AccountingFile>, path: PathBuf) -> Result<()> {
    let mut signals = Signals::new([SIGHUP]).context("cannot take over SIGHUP")?;
    let reopen = move || {
        for _ in signals.forever() {
            let path = path.display();
            match file.reopen() {
                Ok(()) => eprintln!("{path} opened anew"),
                Err(error) => eprintln!("linerate: {path}: {error}; what was opened before is used on"),
            }
        }
    };
    thread::Builder::new().name("radius-reopen".into()).spawn(reopen).context("cannot start a thread")?;
    Ok(())
}
