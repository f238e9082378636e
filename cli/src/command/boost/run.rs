//! `linerate boost run` and `replace`: copies of an unmodified server that share its port.

use std::ffi::OsString;
use std::io::{BufRead as _, Read as _, Write as _};
use std::net::SocketAddr;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Args;
use linerate_host::CpuSet;
use linerate_load::LoadSlot;
use linerate_load::generator::GeneratorOptions;
use linerate_load::workload::{WorkloadOptions, WorkloadSource};
use linerate_tune::boost::replicas::{ReplicaConfig, ReplicaProbe, ReplicaSet, ReplicaSteering};
use rustix::process::Signal;

use super::apply::must_be_root;
use crate::named_values::{NamedValue, one_of};
use crate::output::print_status;
use crate::quantity;
use crate::view;

#[derive(Debug, Args)]
pub(super) struct BoostRunArgs {
    /// Share this UDP and TCP port only [default: every port that the server binds]
    #[arg(short = 'p', long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,
    /// Number of copies
    #[arg(short = 'n', long, value_name = "N", value_parser = copies())]
    replicas: u32,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, Args)]
pub(super) struct BoostReplaceArgs {
    /// The UDP port of the old and the new server
    #[arg(short = 'p', long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,
    /// A process of the old server, if several servers have the port
    #[arg(long, value_name = "P", value_parser = clap::value_parser!(u32).range(1..))]
    pid: Option<u32>,
    /// Number of copies of the new server
    #[arg(short = 'n', long, value_name = "N", default_value = "1", value_parser = copies())]
    replicas: u32,
    /// Time for the last replies of the old server, after it has read its last datagram
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = quantity::seconds(0.0..=3_600.0))]
    drain: Duration,
    /// Requests that each new copy has to answer before it takes the port over: echo, ntp, dns:FILE,
    /// radius:FILE or raw:FILE, as linerate load sends them
    #[arg(long, value_name = "PROTOCOL[:FILE]")]
    probe: Option<WorkloadSource>,
    #[command(flatten)]
    server: ServerArgs,
}

/// Requests of a probe, and the time over which they are sent.
const PROBE_RATE: f64 = 100.0;
const PROBE_DURATION: Duration = Duration::from_millis(50);

pub(super) fn copies() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..=4096)
}

/// The copies.
#[derive(Debug, Args)]
struct ServerArgs {
    /// CPUs of the copies, such as 0-3,8 [default: the CPUs on which packets arrive]
    #[arg(long, value_name = "LIST", value_parser = quantity::parse_cpus)]
    cpus: Option<CpuSet>,
    /// Which copy gets a datagram
    #[arg(long, default_value = "cpu", value_parser = one_of(STEERINGS))]
    steer: ReplicaSteering,
    /// Environment variable of the copies; {replica} is the number of the copy, also in COMMAND;
    /// repeatable
    #[arg(long, value_name = "NAME=VALUE", value_parser = variable)]
    env: Vec<(OsString, OsString)>,
    /// The server, in the foreground, with its arguments
    #[arg(value_name = "COMMAND", last = true, required = true)]
    command: Vec<OsString>,
}

const STEERINGS: &[NamedValue<ReplicaSteering>] = &[
    ("cpu", "The copy on the CPU where it arrives: for servers without client state", ReplicaSteering::Cpu),
    ("flow", "Always the same copy for a client's address and port", ReplicaSteering::Flow),
    (
        "quic-cid",
        "Always the same copy for a QUIC connection, also when the client's address changes",
        ReplicaSteering::QuicId,
    ),
];

fn variable(text: &str) -> Result<(OsString, OsString), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.into(), value.into())),
        _ => Err("expected NAME=VALUE".to_owned()),
    }
}

impl BoostRunArgs {
    pub(super) fn run(self) -> Result<ExitCode> {
        must_be_root("run")?;
        run(self.server.config(self.port, self.replicas, None)?)
    }
}

impl BoostReplaceArgs {
    pub(super) fn run(self) -> Result<ExitCode> {
        must_be_root("replace")?;
        let probe = self.probe.as_ref().map(probe).transpose()?;
        let config = self.server.config(Some(self.port), self.replicas, Some(self.drain))?;
        run(ReplicaConfig { probe, takeover_pid: self.pid, ..config })
    }
}

fn probe(source: &WorkloadSource) -> Result<ReplicaProbe> {
    let workload = source.read(&WorkloadOptions::default())?;
    let run_probe = move |target: SocketAddr, port: u16| {
        let options = GeneratorOptions {
            workload: workload.clone(),
            flows: 1,
            // Only datagrams from this address and port reach the copy.
            sources: vec![target.ip()],
            source_ports: Some(port..=port),
            allowed: vec![target.ip().into()],
            ..GeneratorOptions::new(vec![target])
        };
        let mut generator = options.start_socket()?;
        let slot = LoadSlot { drain: PROBE_DURATION * 4, ..LoadSlot::rate(PROBE_RATE, PROBE_DURATION) };
        generator.run(&slot)
    };
    let probe = move |target: SocketAddr, port: u16| match run_probe(target, port) {
        Ok(outcome) if outcome.answered > 0 => Ok(()),
        Ok(outcome) => Err(format!("no valid reply to {} requests", outcome.sent)),
        Err(error) => Err(error.to_string()),
    };
    Ok(Box::new(probe))
}

fn run(config: ReplicaConfig) -> Result<ExitCode> {
    // Before the copies start, so that no signal is lost.
    let signals = PassedSignals::install()?;
    let mut replicas = ReplicaSet::start(config)?;
    let supervision = supervise(&mut replicas, &signals);
    print_events(&mut replicas);
    supervision?;
    Ok(ExitCode::SUCCESS)
}

impl ServerArgs {
    fn config(self, port: Option<u16>, replicas: u32, takeover: Option<Duration>) -> Result<ReplicaConfig> {
        Ok(ReplicaConfig {
            command: self.command,
            environment: self.env,
            replicas,
            port,
            cpus: self.cpus,
            steering: self.steer,
            takeover,
            takeover_pid: None,
            probe: None,
            prefix_lines: vec!["boost".into(), "prefix-lines".into(), "--".into()],
        })
    }
}

fn supervise(set: &mut ReplicaSet, signals: &PassedSignals) -> Result<()> {
    while !set.has_ended() {
        print_events(set);
        set.wait(signals.wake.as_fd())?;
        for (signal, ends_set) in signals.take_raised() {
            if ends_set { set.end(signal)? } else { set.signal(signal) }
        }
    }
    Ok(set.finish()?)
}

fn print_events(set: &mut ReplicaSet) {
    for event in set.take_events() {
        print_status(&view::boost::replicas::event(&event));
    }
}

/// Signals for the copies.
struct PassedSignals {
    /// Each signal, whether it ends the copies, and whether it has arrived.
    flags: Vec<(Signal, bool, Arc<AtomicBool>)>,
    /// Receives one byte per signal.
    wake: UnixStream,
}

impl PassedSignals {
    fn install() -> Result<Self> {
        let (wake, waker) = UnixStream::pair().context("cannot make a socket pair")?;
        wake.set_nonblocking(true).context("cannot set up a socket")?;
        let mut flags = Vec::new();
        for (signal, ends_set) in [
            (Signal::INT, true),
            (Signal::TERM, true),
            (Signal::QUIT, true),
            (Signal::HUP, false),
            (Signal::USR1, false),
            (Signal::USR2, false),
        ] {
            let raised_flag = Arc::new(AtomicBool::new(false));
            let waker = waker.try_clone().context("cannot copy a socket")?;
            signal_hook::flag::register(signal.as_raw(), Arc::clone(&raised_flag))
                .and_then(|_| signal_hook::low_level::pipe::register(signal.as_raw(), waker))
                .context("cannot take over signals")?;
            flags.push((signal, ends_set, raised_flag));
        }
        Ok(Self { flags, wake })
    }

    fn take_raised(&self) -> Vec<(Signal, bool)> {
        // One more byte only means one more look at the flags.
        let _ = (&self.wake).read(&mut [0; 64]);
        let raised = self.flags.iter().filter(|(_, _, raised)| raised.swap(false, Ordering::Relaxed));
        raised.map(|(signal, ends_set, _)| (*signal, *ends_set)).collect()
    }
}

#[derive(Debug, Args)]
pub(super) struct PrefixLinesArgs {
    prefix: String,
}

impl PrefixLinesArgs {
    /// Prints standard input until its end and ignores errors of the output, because a copy must
    /// not wait for a reader.
    pub(super) fn run(self) -> Result<ExitCode> {
        // The copy still prints lines after a signal to its whole control group, and the pipe ends with
        // it.
        for signal in [Signal::INT, Signal::TERM, Signal::QUIT, Signal::HUP] {
            signal_hook::flag::register(signal.as_raw(), Arc::default()).context("cannot ignore signals")?;
        }
        let (mut input, mut line) = (std::io::stdin().lock(), Vec::new());
        loop {
            line.clear();
            line.extend_from_slice(self.prefix.as_bytes());
            if input.read_until(b'\n', &mut line)? == 0 {
                return Ok(ExitCode::SUCCESS);
            }
            if line.last() != Some(&b'\n') {
                line.push(b'\n');
            }
            let mut output = std::io::stdout();
            let _ = output.write_all(&line).and_then(|()| output.flush());
        }
    }
}
