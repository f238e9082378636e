//! The server under test: a process that opens and closes ports by commands on its standard input.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, bail, ensure};
use clap::ValueEnum;
use linerate_engine::{
    Action, AfXdpSettings, Backend, Counts, Request, RunningServer, Server, WorkerPinning,
};
use linerate_lab::{Lab, LabChild};

use super::SoakCommand;

// A payload that makes a worker panic.
pub(super) const POISON: &[u8] = b"cannot swallow this";

// Receive buffer of a socket, bytes. Requests wait there while a worker restarts.
const BUFFER: usize = 4 << 20;

/// Backend of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum SoakBackend {
    Mmsg,
    Xdp,
}

impl SoakBackend {
    fn backend(self) -> Backend {
        match self {
            Self::Mmsg => Backend::default(),
            Self::Xdp => Backend::Xdp(AfXdpSettings::default()),
        }
    }
}

/// The client's side of the server.
pub(super) struct SoakServer {
    child: LabChild,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl SoakServer {
    /// Starts the server without ports, with the options of this command.
    pub(super) fn start(lab: &Lab) -> anyhow::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(std::env::args_os().skip(1)).arg("--serve");
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = lab.receiver().spawn(command)?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let (Some(input), Some(output)) = (input, output) else { bail!("the server has no pipes") };
        Ok(Self { child, input, output: BufReader::new(output) })
    }

    /// Opens another port and returns the server's fallbacks.
    pub(super) fn open(&mut self, address: SocketAddr) -> anyhow::Result<Vec<String>> {
        Ok(serde_json::from_str(&self.request(&format!("open {address}"))?)?)
    }

    pub(super) fn close(&mut self, address: SocketAddr) -> anyhow::Result<()> {
        self.request(&format!("close {address}")).map(drop)
    }

    /// Counts of all workers, on all ports so far.
    pub(super) fn counts(&mut self) -> anyhow::Result<Counts> {
        Ok(serde_json::from_str(&self.request("counts")?)?)
    }

    /// Resident memory of the server.
    pub(super) fn resident_bytes(&self) -> anyhow::Result<f64> {
        let file = format!("/proc/{}/statm", self.child.id());
        let text = std::fs::read_to_string(&file).with_context(|| file.clone())?;
        let pages = text.split(' ').nth(1).and_then(|pages| pages.parse::<f64>().ok());
        Ok(pages.with_context(|| file)? * rustix::param::page_size() as f64)
    }

    fn request(&mut self, line: &str) -> anyhow::Result<String> {
        writeln!(self.input, "{line}").context("telling the server")?;
        let mut answer = String::new();
        self.output.read_line(&mut answer)?;
        ensure!(!answer.is_empty(), "the server ended");
        match answer.trim().strip_prefix("failed: ") {
            Some(reason) => bail!("{line}: {reason}"),
            None => Ok(answer),
        }
    }
}

// The server process: executes each line of the standard input and answers with a line, until the
// input ends.
pub(super) fn serve(options: &SoakCommand) -> anyhow::Result<()> {
    // Panics are part of the plan.
    std::panic::set_hook(Box::new(|_| ()));
    let mut ports = BTreeMap::new();
    let mut closed_counts = Counts::default();
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let reply = match line.split_once(' ') {
            Some(("open", address)) => open(options, address, &mut ports),
            Some(("close", address)) => close(address, &mut ports, &mut closed_counts),
            _ => counts(&ports, closed_counts),
        };
        println!("{}", reply.unwrap_or_else(|reason| format!("failed: {reason:#}")));
    }
    Ok(())
}

fn open(
    options: &SoakCommand,
    address: &str,
    ports: &mut BTreeMap<SocketAddr, RunningServer>,
) -> anyhow::Result<String> {
    let address = address.parse()?;
    let server = Server::builder()
        .bind(address)
        .workers(options.workers as usize)
        .pinning(WorkerPinning::Cpus(vec![options.server_cpu]))
        .backend(options.backend.backend())
        .receive_buffer(BUFFER)
        .start(|_| {
            |request: &Request<'_>, _: &mut [u8]| {
                assert_ne!(request.payload(), POISON);
                Action::Echo
            }
        })?;
    let fallbacks: Vec<String> = server.fallbacks().iter().map(ToString::to_string).collect();
    ports.insert(address, server);
    Ok(serde_json::to_string(&fallbacks)?)
}

fn close(
    address: &str,
    ports: &mut BTreeMap<SocketAddr, RunningServer>,
    closed_counts: &mut Counts,
) -> anyhow::Result<String> {
    let server = ports.remove(&address.parse()?).context("no such port")?;
    *closed_counts += server.stop()?.total();
    Ok("{}".to_owned())
}

fn counts(ports: &BTreeMap<SocketAddr, RunningServer>, closed_counts: Counts) -> anyhow::Result<String> {
    let mut total = closed_counts;
    for server in ports.values() {
        total += server.total();
    }
    Ok(serde_json::to_string(&total)?)
}
