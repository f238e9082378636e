//! `linerate serve echo`: each datagram comes back as it was.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use linerate_engine::{Backend, Counts, Echo as EchoService, Pinning, Program, Running, Server, Sockets};
use linerate_host::CpuSet;
use linerate_measure::destination::Net;
use serde::Serialize;

use super::guard::Guarded;
use crate::interrupt::Interrupt;
use crate::output::{self, Target};
use crate::render::format;

#[derive(Debug, Args)]
pub(crate) struct Echo {
    /// Address and port to serve; port 0 takes a free one
    #[arg(long, value_name = "ADDR:PORT")]
    bind: SocketAddr,
    /// Worker threads [default: as many as CPUs]
    #[arg(long, value_name = "N")]
    workers: Option<usize>,
    /// How the workers share the port
    #[arg(long, value_enum, default_value_t = SocketsArgument::Cbpf)]
    sockets: SocketsArgument,
    /// System calls of a worker
    #[arg(long, value_enum, default_value_t = BackendArgument::Mmsg)]
    backend: BackendArgument,
    /// Most datagrams in one system call of the mmsg backend
    #[arg(long, value_name = "N", default_value_t = 64)]
    batch: u16,
    /// Leave the workers where the scheduler puts them
    #[arg(long)]
    no_pin: bool,
    /// CPUs of the workers, as a list such as 0-3 [default: all the process may run on]
    #[arg(long, value_name = "LIST")]
    cpus: Option<String>,
    /// SO_BUSY_POLL, microseconds
    #[arg(long, value_name = "US")]
    busy_poll: Option<u64>,
    /// Receive buffer of each socket, bytes
    #[arg(long, value_name = "BYTES")]
    receive_buffer: Option<usize>,
    /// Longest request answered, bytes
    #[arg(long, value_name = "BYTES", default_value_t = 2048)]
    max_request: usize,
    /// Send replies with IP_PMTUDISC_DO: no IP ID, no fragments
    #[arg(long)]
    no_fragment: bool,
    /// On an IPv6 address, do not serve IPv4
    #[arg(long)]
    only_v6: bool,
    /// Answer this network only; can be given again [default: loopback, private, link-local, lab]
    #[arg(long, value_name = "NET")]
    allow: Vec<Net>,
    /// End after so many seconds
    #[arg(long, value_name = "S")]
    duration: Option<f64>,
    /// At the end, write the counters as JSON; '-' for standard output instead of the table
    #[arg(long, value_name = "FILE")]
    json: Option<String>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum SocketsArgument {
    /// One socket, read by all workers
    Shared,
    /// SO_REUSEPORT, chosen by flow hash
    Reuseport,
    /// SO_REUSEPORT, chosen by CPU, classic BPF
    Cbpf,
    /// SO_REUSEPORT, chosen by CPU, eBPF with a socket map
    Ebpf,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum BackendArgument {
    /// One recvfrom and one sendto a transaction
    Recvfrom,
    /// recvmmsg and sendmmsg
    Mmsg,
}

/// The counters at the end: schema `linerate.serve/1`.
#[derive(Serialize)]
struct Summary {
    schema: &'static str,
    argv: Vec<String>,
    address: SocketAddr,
    elapsed_seconds: f64,
    total: Counts,
    workers: Vec<Counts>,
    warnings: Vec<String>,
}

impl Echo {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let json = Target::wanted(self.json.as_deref())?;
        let end = match self.duration.map(Duration::try_from_secs_f64) {
            Some(duration) => Some(duration.context("--duration")?),
            None => None,
        };
        let interrupt = Interrupt::install()?;
        let started = std::time::Instant::now();
        let running = self.start()?;
        let warnings: Vec<String> = running
            .fallbacks()
            .iter()
            .map(|fallback| format!("{}: {}", fallback.what, fallback.why))
            .collect();
        for warning in &warnings {
            eprintln!("linerate: {warning}");
        }
        eprintln!(
            "serving echo on {} with {} workers; end with Ctrl-C",
            running.local_addr(),
            running.counters().len()
        );
        while !interrupt.raised() && end.is_none_or(|end| started.elapsed() < end) {
            interrupt.wait(end.map(|end| end.saturating_sub(started.elapsed())))?;
        }
        let address = running.local_addr();
        let report = running.stop()?;
        let summary = Summary {
            schema: "linerate.serve/1",
            argv: output::argv(),
            address,
            elapsed_seconds: started.elapsed().as_secs_f64(),
            total: report.total(),
            workers: report.workers,
            warnings,
        };
        match &json {
            Some(target) => target.json(&summary)?,
            None => output::print(&text(&summary))?,
        }
        Ok(ExitCode::SUCCESS)
    }

    fn start(&self) -> Result<Running> {
        let mut builder = Server::builder()
            .bind(self.bind)
            .sockets(match self.sockets {
                SocketsArgument::Shared => Sockets::Shared,
                SocketsArgument::Reuseport => Sockets::Reuseport,
                SocketsArgument::Cbpf => Sockets::SteeredByCpu(Program::Cbpf),
                SocketsArgument::Ebpf => Sockets::SteeredByCpu(Program::Ebpf),
            })
            .backend(match self.backend {
                BackendArgument::Recvfrom => Backend::Recvfrom,
                BackendArgument::Mmsg => Backend::Mmsg { batch: self.batch },
            })
            .max_request(self.max_request)
            .only_v6(self.only_v6);
        if let Some(workers) = self.workers {
            builder = builder.workers(workers);
        }
        let cpus = match &self.cpus {
            Some(list) => Some(CpuSet::from_list(list).context("--cpus")?.iter().collect::<Vec<u32>>()),
            None => None,
        };
        if let Some(cpus) = cpus {
            builder = builder.cpus(cpus);
        }
        if !self.no_pin {
            builder = builder.pinning(Pinning::Own);
        }
        if let Some(microseconds) = self.busy_poll {
            builder = builder.busy_poll(Some(Duration::from_micros(microseconds)));
        }
        if let Some(bytes) = self.receive_buffer {
            builder = builder.receive_buffer(bytes);
        }
        if self.no_fragment {
            builder = builder.path_mtu_discovery(linerate_engine::PathMtuDiscovery::Do);
        }
        let own_port = Arc::new(AtomicU16::new(self.bind.port()));
        let (allowed, port) = (self.allow.clone(), Arc::clone(&own_port));
        let running =
            builder.start(move |_| Guarded::new(EchoService, allowed.clone(), Arc::clone(&port)))?;
        own_port.store(running.local_addr().port(), Ordering::Relaxed);
        Ok(running)
    }
}

fn text(summary: &Summary) -> String {
    let total = &summary.total;
    let rate = total.answered as f64 / summary.elapsed_seconds.max(f64::MIN_POSITIVE);
    let mut text = format!(
        "answered {} of {} requests in {:.1} s ({}/s)\n",
        total.answered,
        total.received,
        summary.elapsed_seconds,
        format::rate(rate)
    );
    for (worker, counts) in summary.workers.iter().enumerate() {
        text.push_str(&format!(
            "  worker {worker}: {} received, {} answered\n",
            counts.received, counts.answered
        ));
    }
    text
}
