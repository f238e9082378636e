//! `linerate serve radius`: users of a file are let in.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use linerate_services::radius::{
    DetailFile, MOST_BYTES, PortRole, RadiusCounts, RadiusServer, SyncMode, UserDatabase,
};
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
    /// Answer accounting there, commonly on port 1813
    #[arg(long, value_name = "ADDR:PORT")]
    #[arg(requires = "accounting_file")]
    accounting: Option<SocketAddr>,
    /// Append what accounting tells to this file, a line of JSON a record, before it is answered; SIGHUP opens it anew.
    /// /dev/null keeps nothing
    #[arg(long, value_name = "FILE", requires = "accounting")]
    accounting_file: Option<PathBuf>,
    /// When records are on disk
    #[arg(long, value_enum, default_value_t = SyncArgument::Second, requires = "accounting")]
    accounting_sync: SyncArgument,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum SyncArgument {
    /// Before each is answered; a worker waits for the disk
    Each,
    /// A second after, at most; that is lost if the machine loses power
    Second,
    /// When the kernel sees fit
    Never,
}

impl RadiusServeArgs {
    pub(crate) fn run(mut self) -> Result<ExitCode> {
        let users = Arc::new(UserDatabase::read(&self.users)?);
        let admission = AdmissionArgs {
            // Who asks is known by the file, and proxies ask from the port on which they serve.
            allowed: users.clients().iter().map(|client| client.network).collect(),
            servers: true,
            reply_bytes: Some(MOST_BYTES),
            ..AdmissionArgs::default()
        };
        let authentication = RadiusServer::new(PortRole::Authentication, Arc::clone(&users));
        let mut accounting = RadiusServer::new(PortRole::Accounting, users);
        if let Some(path) = &self.accounting_file {
            let detail = self.detail(path)?;
            reopen_on_signal(Arc::clone(&detail), path.clone())?;
            self.server.reloads = true;
            accounting = accounting.detail(detail);
        }
        let mut beside = Vec::new();
        if let Some(address) = self.accounting {
            let service = accounting.clone();
            let running = self.server.start(address, &admission, move |_| service.worker());
            beside.push(("radius-accounting", running.context("--accounting")?));
        }
        let service = authentication.clone();
        let ended = self.server.serve_beside("radius", &admission, beside, move |_| service.worker())?;
        eprintln!("radius: {}", told(&authentication.counts()));
        if self.accounting.is_some() {
            eprintln!("radius-accounting: {}", told(&accounting.counts()));
        }
        Ok(ended)
    }

    fn detail(&self, path: &Path) -> Result<Arc<DetailFile>> {
        let sync = match self.accounting_sync {
            SyncArgument::Each => SyncMode::Each,
            SyncArgument::Second => SyncMode::EachSecond,
            SyncArgument::Never => SyncMode::Never,
        };
        let tell = Box::new(|line: &str| eprintln!("linerate: {line}"));
        DetailFile::open(path, sync, tell).with_context(|| format!("--accounting-file {}", path.display()))
    }
}

/// Opens the file anew when SIGHUP comes, for as long as the process lives.
fn reopen_on_signal(detail: Arc<DetailFile>, path: PathBuf) -> Result<()> {
    let mut signals = Signals::new([SIGHUP]).context("cannot take over SIGHUP")?;
    let reopen = move || {
        for _ in signals.forever() {
            let path = path.display();
            match detail.reopen() {
                Ok(()) => eprintln!("{path} opened anew"),
                Err(error) => eprintln!("linerate: {path}: {error}; what was opened before is used on"),
            }
        }
    };
    thread::Builder::new().name("radius-reopen".into()).spawn(reopen).context("cannot start a thread")?;
    Ok(())
}

/// What there was, and nothing of what was not.
fn told(counts: &RadiusCounts) -> String {
    let told: Vec<String> = [
        (counts.accepted, "accepted"),
        (counts.rejected, "rejected"),
        (counts.accounted, "accounted"),
        (counts.status, "asked whether the server is there"),
        (counts.repeated, "came again"),
        (counts.malformed, "unanswered: not RADIUS"),
        (counts.wrong_type, "unanswered: not for this port"),
        (counts.unknown_client, "unanswered: from no client of the file"),
        (counts.unsigned, "unanswered: without Message-Authenticator"),
        (counts.wrong_secret, "unanswered: signed wrong, commonly with another secret"),
        (counts.unrecorded, "unanswered: could not be recorded"),
        (counts.incomplete, "unanswered: incomplete, or without room for an answer"),
    ]
    .into_iter()
    .filter(|(count, _)| *count > 0)
    .map(|(count, what)| format!("{count} {what}"))
    .collect();
    if told.is_empty() { "nothing asked".to_owned() } else { told.join(", ") }
}
