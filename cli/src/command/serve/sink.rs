//! `linerate serve sink`: counts datagrams and sends nothing.

use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use anyhow::Result;
use clap::Args;
use linerate_engine::RunningServer;
use linerate_host::process::allowed_cpus;
use linerate_host::stage::socket::udp_socket_drops;
use linerate_host::{CpuSet, Host};
use linerate_services::sink::{SinkBytes, SinkService};
use serde::Serialize;

use super::arguments::{AdmissionArgs, ServerArguments, every_network};
use crate::command::load::EventStream;
use crate::output;
use crate::render::format;

/// The schema of the lines of `--json-stream`.
const STREAM_SCHEMA: &str = "linerate.sink-stream/1";

/// Receives and counts datagrams from any source, and sends nothing. Prints the rates of each second.
#[derive(Debug, Args)]
pub(crate) struct SinkServeArgs {
    #[command(flatten)]
    server: ServerArguments,
    /// Write the rates of each second as one line of JSON; - is standard output
    #[arg(long, value_name = "FILE")]
    json_stream: Option<String>,
}

/// The counts of a sink so far.
#[derive(Debug, Clone, Default)]
struct SinkCounts {
    /// Datagrams per worker.
    received: Vec<u64>,
    payload_bytes: u64,
    wire_bytes: u64,
    /// Datagrams lost because a receive buffer was full, or at AF_XDP sockets; `None` if the kernel
    /// does not report them.
    lost: Option<u64>,
}

/// The rates of one second.
#[derive(Debug, Serialize)]
struct SinkRates {
    elapsed_seconds: f64,
    packets_per_second: f64,
    payload_bits_per_second: f64,
    /// With Ethernet header, checksum, preamble and gap.
    wire_bits_per_second: f64,
    /// Lost at full receive buffers and at AF_XDP sockets.
    lost_per_second: Option<f64>,
    workers: Vec<SinkWorker>,
}

#[derive(Debug, Serialize)]
struct SinkWorker {
    /// CPUs on which the worker may run, as a list such as `0` or `0-3`.
    cpus: String,
    packets_per_second: f64,
}

impl SinkServeArgs {
    pub(crate) fn run(mut self) -> Result<ExitCode> {
        // Each datagram counts with all its bytes.
        self.server.max_request.get_or_insert(65_535);
        let streams = self.json_stream.as_deref() == Some("-");
        let json = self.server.json.as_deref();
        output::check_distinct(&[("--json", json), ("--json-stream", self.json_stream.as_deref())])?;
        // Nothing is sent, so every source is allowed.
        let admission = AdmissionArgs {
            allowed: every_network(),
            servers: true,
            silent: true,
            streams,
            ..AdmissionArgs::default()
        };
        let mut stream = self.json_stream.as_deref().map(EventStream::open).transpose()?;
        if let Some(stream) = &mut stream {
            stream.start(STREAM_SCHEMA)?;
        }
        let prints_text = !streams && !self.server.prints_json();
        let workers: Arc<Mutex<Vec<Arc<SinkBytes>>>> = Arc::default();
        let worker_bytes = Arc::clone(&workers);
        // Sockets of other programs at this port may have lost datagrams before.
        let lost = match self.server.bind.port() {
            0 => Some(0),
            port => udp_socket_drops(&Host::live(), port).ok(),
        };
        let (mut last_counts, mut last_read) = (SinkCounts { lost, ..SinkCounts::default() }, Instant::now());
        let start_time = last_read;
        let observe = move |server: &RunningServer| -> Result<()> {
            let (counts, read_time) = (
                SinkCounts::read(server, &worker_bytes.lock().unwrap_or_else(PoisonError::into_inner)),
                Instant::now(),
            );
            let rates = SinkRates {
                elapsed_seconds: (read_time - start_time).as_secs_f64(),
                ..counts.rates_since(&last_counts, (read_time - last_read).as_secs_f64(), server)
            };
            (last_counts, last_read) = (counts, read_time);
            if let Some(stream) = &mut stream {
                stream.event("second", &rates)?;
            }
            if prints_text { output::print_live(&rates.line()) } else { Ok(()) }
        };
        self.server.serve("sink", &admission, observe, move |_| {
            let bytes = Arc::<SinkBytes>::default();
            workers.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&bytes));
            SinkService::new(bytes)
        })
    }
}

impl SinkCounts {
    fn read(server: &RunningServer, workers: &[Arc<SinkBytes>]) -> Self {
        Self {
            received: server.counters().iter().map(|counts| counts.received).collect(),
            payload_bytes: workers.iter().map(|bytes| bytes.payload()).sum(),
            wire_bytes: workers.iter().map(|bytes| bytes.wire()).sum(),
            lost: udp_socket_drops(&Host::live(), server.local_addr().port()).ok().and_then(|drops| {
                let lost_frames = if server.xdp().is_some() { server.lost_frames()? } else { 0 };
                Some(drops + lost_frames)
            }),
        }
    }

    fn rates_since(&self, before: &Self, seconds: f64, server: &RunningServer) -> SinkRates {
        let rate = |current: u64, previous: u64| {
            current.saturating_sub(previous) as f64 / seconds.max(f64::MIN_POSITIVE)
        };
        let workers: Vec<SinkWorker> = (self.received.iter().zip(server.thread_ids()).enumerate())
            .map(|(worker, (&received, &thread))| SinkWorker {
                cpus: format::known_text(
                    allowed_cpus(&Host::live(), thread.cast_unsigned()).value(),
                    CpuSet::to_string,
                ),
                packets_per_second: rate(received, before.received.get(worker).copied().unwrap_or(0)),
            })
            .collect();
        SinkRates {
            elapsed_seconds: 0.0,
            packets_per_second: workers.iter().map(|worker| worker.packets_per_second).sum(),
            payload_bits_per_second: rate(self.payload_bytes, before.payload_bytes) * 8.0,
            wire_bits_per_second: rate(self.wire_bytes, before.wire_bytes) * 8.0,
            lost_per_second: self.lost.zip(before.lost).map(|(lost, before)| rate(lost, before)),
            workers,
        }
    }
}

impl SinkRates {
    fn line(&self) -> String {
        let loss_text = format::known_text(self.lost_per_second, format::rate);
        let workers = self.workers.iter();
        let workers =
            workers.map(|worker| format!("CPU {} {}", worker.cpus, format::rate(worker.packets_per_second)));
        format!(
            "{:>4.0} s  {:>8} packets/s  {:>6} Mbit/s payload  {:>6} Mbit/s on the wire  {loss_text} lost/s  {}\n",
            self.elapsed_seconds,
            format::rate(self.packets_per_second),
            format::megabits(self.payload_bits_per_second),
            format::megabits(self.wire_bits_per_second),
            format::comma_list(workers)
        )
    }
}
