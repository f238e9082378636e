//! Common options of all servers: addresses, CPUs, system calls, clients and time.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use clap::{Args, ValueEnum};
use linerate_engine::{
    Backend, Counts, GuardReport, OverloadPolicy, PathMtuDiscovery, RunningServer, SendFailures, Server,
    ShedPolicy, SocketMode, SteeringProgram, WorkerPinning, XdpMode, XdpReport,
};
use linerate_host::{CpuSet, Host};
use linerate_networks::Net;
use linerate_services::dns::TcpCounts;
use linerate_services::guarded_service::GuardedService;
use linerate_services::radius::RadiusCounts;
use linerate_services::refusals::{RefusalCounters, RefusalCounts};
use linerate_services::start::StartService;
use serde::Serialize;

use super::advice;
use super::xdp::{self, XdpArguments};
use crate::envelope::Envelope;
use crate::interrupt::InterruptFlag;
use crate::named_values::{NamedValue, one_of};
use crate::origin::{self, HostSummary, Warning};
use crate::output::{self, OutputTarget};
use crate::quantity::{self, MOST_SECONDS};
use crate::render::format;

const DEFAULT_MAX_REQUEST: usize = 2048;
const DEFAULT_BATCH: u16 = 64;

/// Interval between reports of refused requests.
const EVERY: Duration = Duration::from_secs(1);

#[derive(Debug, Args)]
pub(crate) struct ServerArguments {
    /// Address and port to serve; port 0 chooses a free one
    #[arg(long, value_name = "ADDR:PORT", value_parser = quantity::parse_address)]
    pub(crate) bind: SocketAddr,
    /// Worker threads [default: one per CPU]
    #[arg(long, value_name = "N")]
    workers: Option<usize>,
    /// How the workers share the port
    #[arg(long, default_value = "cbpf", value_parser = one_of(SOCKET_MODES))]
    sockets: SocketMode,
    /// System calls of a worker
    #[arg(long, value_enum, default_value_t = ServeBackendArgument::Mmsg)]
    backend: ServeBackendArgument,
    /// Most datagrams in one system call of the mmsg backend [default: 64]
    #[arg(long, value_name = "N")]
    batch: Option<u16>,
    /// Do not pin the workers to CPUs
    #[arg(long)]
    no_pin: bool,
    /// CPUs of the workers, such as 0-3 [default: all allowed CPUs]
    #[arg(long, value_name = "LIST", value_parser = quantity::parse_cpus)]
    cpus: Option<CpuSet>,
    /// SO_BUSY_POLL, microseconds
    #[arg(long, value_name = "US")]
    busy_poll: Option<u64>,
    #[command(flatten)]
    xdp: XdpArguments,
    /// Receive buffer of each socket, bytes
    #[arg(long, value_name = "BYTES")]
    receive_buffer: Option<usize>,
    /// Longest request answered, bytes [default: 2048; radius: 4096; sink: 65535]
    #[arg(long, value_name = "BYTES")]
    pub(crate) max_request: Option<usize>,
    /// Send replies with IP_PMTUDISC_DO: no IP ID, no fragments
    #[arg(long)]
    no_fragment: bool,
    /// On an IPv6 address, do not serve IPv4
    #[arg(long)]
    pub(crate) only_v6: bool,
    /// Answer only this network; repeatable [default: loopback, private, link-local, lab]
    #[arg(long, value_name = "NET")]
    pub(crate) allow: Vec<Net>,
    /// Policy above the server's capacity
    #[arg(long, value_enum, default_value_t = OverloadArgument::None)]
    overload: OverloadArgument,
    /// With --overload: longest wait of a request before it is dropped, microseconds [default:
    /// 250000]
    #[arg(long, value_name = "US")]
    shed_after: Option<u64>,
    /// With --overload protect: how long a request may take until its reply leaves, microseconds; the guard refuses
    /// what would take longer [default: 5000]
    #[arg(long, value_name = "US")]
    guard_wait: Option<u64>,
    /// Stop after this many seconds
    #[arg(long, value_name = "S", value_parser = quantity::seconds(0.0..=MOST_SECONDS))]
    duration: Option<Duration>,
    /// Write the counters at the end as JSON; - is standard output
    #[arg(short = 'j', long, value_name = "FILE")]
    pub(super) json: Option<String>,
    /// The protocol reads its files again on SIGHUP, which is then not an end.
    #[arg(skip)]
    pub(crate) reloads: bool,
}

const SOCKET_MODES: &[NamedValue<SocketMode>] = &[
    ("shared", "One socket, read by all workers", SocketMode::Shared),
    ("reuseport", "SO_REUSEPORT, chosen by flow hash", SocketMode::Reuseport),
    ("cbpf", "SO_REUSEPORT, chosen by CPU, classic BPF", SocketMode::SteeredByCpu(SteeringProgram::Cbpf)),
    (
        "ebpf",
        "SO_REUSEPORT, chosen by CPU, eBPF with a socket map",
        SocketMode::SteeredByCpu(SteeringProgram::Ebpf),
    ),
];

#[derive(Debug, Clone, Copy, ValueEnum)]
enum ServeBackendArgument {
    /// One recvfrom and one sendto a transaction
    Recvfrom,
    /// recvmmsg and sendmmsg
    Mmsg,
    /// AF_XDP, sockets for what that leaves
    Xdp,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum OverloadArgument {
    /// Nothing: the kernel drops what its buffers cannot hold
    None,
    /// Requests that waited too long get no answer
    Shed,
    /// That, and an XDP program that refuses requests early and lets no source have more than its share
    Protect,
}

/// The counters at the end.
#[derive(Serialize)]
struct ServeSummary {
    address: SocketAddr,
    elapsed_seconds: f64,
    total: Counts,
    workers: Vec<Counts>,
    /// Requests without a reply, or with a partial one, by reason. `total` counts those without a
    /// reply as dropped.
    refusals: RefusalCounts,
    /// Counters of the overload guard. `None` without one.
    guard: Option<GuardReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    xdp: Option<XdpReport>,
    #[serde(flatten)]
    protocol: ProtocolCounts,
}

/// Counters of a protocol at the end.
#[derive(Default, Serialize)]
pub(crate) struct ProtocolCounts {
    /// DNS over TCP. `None` for other protocols and with `--no-tcp`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tcp: Option<TcpCounts>,
    /// RADIUS requests by outcome. `None` for other protocols.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) radius: Option<RadiusCounts>,
}

/// The clients that a protocol answers, and its limits.
#[derive(Default)]
pub(crate) struct AdmissionArgs {
    /// Allowed networks if `--allow` names none. Empty: loopback, private, link-local, lab.
    pub(crate) allowed: Vec<Net>,
    // Whether to answer ports of servers, too. Safe if no answer can be mistaken for a request.
    pub(crate) servers: bool,
    // Longest answer, bytes; `None` for the engine's default.
    pub(crate) reply_bytes: Option<usize>,
    /// Handling of replies longer than the path's MTU, without `--no-fragment`.
    pub(crate) path_mtu: PathMtuDiscovery,
    /// Whether the protocol uses the receive time of each request.
    pub(crate) receive_times: bool,
    // Whether the protocol never replies.
    pub(crate) silent: bool,
    /// Whether standard output belongs to a stream, so that the summary goes to standard error.
    pub(crate) streams: bool,
    /// Requests without a reply, or with a partial one.
    pub(crate) refusals: Arc<RefusalCounters>,
    /// Reads the protocol's own counters.
    pub(crate) protocol_counts: Option<Box<dyn Fn() -> ProtocolCounts>>,
}

impl ServerArguments {
    /// `--max-request`, or the usual limit.
    pub(crate) fn request_bytes(&self) -> usize {
        self.max_request.unwrap_or(DEFAULT_MAX_REQUEST)
    }

    /// Whether the counters at the end go to standard output as JSON.
    pub(crate) fn prints_json(&self) -> bool {
        self.json.as_deref() == Some("-")
    }

    /// Serves the clients of `admission` until the requested end or an interrupt, and calls `observe` once per second.
    /// `service` creates the service of each worker.
    pub(crate) fn serve<S: 'static>(
        self,
        protocol: &'static str,
        admission: &AdmissionArgs,
        mut observe: impl FnMut(&RunningServer) -> Result<()>,
        service: impl FnMut(usize) -> S + Send + 'static,
    ) -> Result<ExitCode>
    where
        GuardedService<S>: StartService,
    {
        self.refuse_unused_options()?;
        let json = OutputTarget::from_option(self.json.as_deref())?;
        let interrupt =
            if self.reloads { InterruptFlag::install_ignoring_hangup()? } else { InterruptFlag::install()? };
        let (started, started_unix_seconds) = (std::time::Instant::now(), origin::unix_seconds());
        let server = self.start(admission, service)?;
        let mut warnings: Vec<String> = server.fallbacks().iter().map(ToString::to_string).collect();
        for warning in &warnings {
            status_line!("linerate: {warning}");
        }
        if let Some(guard) = server.guard() {
            status_line!("linerate: {}", guard_line(&guard));
        }
        if let Some(report) = server.xdp() {
            status!("{}", xdp::describe_queues(report));
        }
        let workers = format::count_with_noun(server.counters().len(), "worker");
        status_line!("serving {protocol} on {} with {workers}; end with Ctrl-C", server.local_addr());
        for advice in advice::find(&server, &self.overload()) {
            status_line!("linerate: {advice}");
            warnings.push(advice);
        }
        let mut reported_counts = RefusalCounts::default();
        let mut ended_workers = Vec::new();
        // A failure to print must not cost the counters at the end.
        let mut observed = Ok(());
        while !interrupt.is_raised() && self.duration.is_none_or(|end| started.elapsed() < end) {
            let remaining = self.duration.map_or(EVERY, |end| end.saturating_sub(started.elapsed()));
            interrupt.wait(Some(remaining.min(EVERY)))?;
            let current_counts = admission.refusals.counts();
            if let Some(line) = refusal_line(&current_counts.since(&reported_counts)) {
                status_line!("linerate: {line}");
            }
            reported_counts = current_counts;
            for worker in server.ended_workers() {
                if !ended_workers.contains(&worker) {
                    status_line!(
                        "linerate: worker {worker} ended; the reason is printed when the server stops"
                    );
                    ended_workers.push(worker);
                }
            }
            observed = observe(&server);
            if observed.is_err() {
                break;
            }
        }
        let mut summary = ServeSummary {
            address: server.local_addr(),
            elapsed_seconds: 0.0,
            total: server.total(),
            refusals: RefusalCounts::default(),
            guard: server.guard(),
            workers: server.counters(),
            xdp: server.xdp().cloned(),
            protocol: ProtocolCounts::default(),
        };
        let stopped = server.stop().map(|report| {
            summary.total = report.total();
            (summary.guard, summary.workers, summary.xdp) = (report.guard, report.workers, report.xdp);
        });
        summary.elapsed_seconds = started.elapsed().as_secs_f64();
        summary.refusals = admission.refusals.counts();
        summary.protocol = admission.protocol_counts.as_ref().map(|counts| counts()).unwrap_or_default();
        let written = match &json {
            Some(target) => {
                let host = HostSummary::observe(&Host::live());
                let envelope = Envelope::with_schema("linerate.serve/2", host, started_unix_seconds, summary);
                target.write_json(&envelope.with_warnings(warnings.into_iter().map(Warning::remark)))
            }
            None if admission.streams => {
                output::print_status(&summary_text(&summary, admission.silent));
                Ok(())
            }
            None => output::print(&summary_text(&summary, admission.silent)),
        };
        stopped?;
        written?;
        observed?;
        Ok(ExitCode::SUCCESS)
    }

    /// An option without effect is an error: the user would believe in a protection that is off.
    fn refuse_unused_options(&self) -> Result<()> {
        let protects = matches!(self.overload, OverloadArgument::Protect);
        let sheds = protects || matches!(self.overload, OverloadArgument::Shed);
        let is_mmsg = matches!(self.backend, ServeBackendArgument::Mmsg);
        let is_xdp = matches!(self.backend, ServeBackendArgument::Xdp);
        ensure!(sheds || self.shed_after.is_none(), "--shed-after has no effect without --overload");
        ensure!(
            protects || self.guard_wait.is_none(),
            "--guard-wait has no effect without --overload protect"
        );
        ensure!(is_mmsg || self.batch.is_none(), "--batch has no effect without --backend mmsg");
        ensure!(
            is_xdp || protects || self.xdp.xdp_interface.is_empty(),
            "--xdp-interface has no effect without --backend xdp or --overload protect"
        );
        match self.xdp.used_option().filter(|_| !is_xdp) {
            Some(option) => bail!("{option} has no effect without --backend xdp"),
            None => Ok(()),
        }
    }

    fn overload(&self) -> OverloadPolicy {
        let mut overload = match self.overload {
            OverloadArgument::None => return OverloadPolicy::default(),
            OverloadArgument::Shed => {
                OverloadPolicy { shed: ShedPolicy::Oldest, ..OverloadPolicy::default() }
            }
            OverloadArgument::Protect => OverloadPolicy::protect(),
        };
        if let Some(microseconds) = self.shed_after {
            overload.shed_after = Duration::from_micros(microseconds);
        }
        if let (Some(guard), Some(microseconds)) = (&mut overload.guard, self.guard_wait) {
            guard.wait = Duration::from_micros(microseconds);
        }
        if let Some(guard) = &mut overload.guard {
            guard.interfaces.clone_from(&self.xdp.xdp_interface);
        }
        overload
    }

    fn start<S: 'static>(
        &self,
        admission: &AdmissionArgs,
        mut service: impl FnMut(usize) -> S + Send + 'static,
    ) -> Result<RunningServer>
    where
        GuardedService<S>: StartService,
    {
        let mut builder = Server::builder()
            .bind(self.bind)
            .sockets(self.sockets)
            .backend(match self.backend {
                ServeBackendArgument::Recvfrom => Backend::Recvfrom,
                ServeBackendArgument::Mmsg => Backend::Mmsg { batch: self.batch.unwrap_or(DEFAULT_BATCH) },
                ServeBackendArgument::Xdp => Backend::Xdp(self.xdp.settings()),
            })
            .max_request(self.request_bytes())
            .only_v6(self.only_v6)
            .receive_times(admission.receive_times)
            .path_mtu_discovery(if self.no_fragment { PathMtuDiscovery::Do } else { admission.path_mtu })
            .overload(self.overload())
            .xdp_interfaces(&self.xdp.xdp_interface);
        if let Some(workers) = self.workers {
            builder = builder.workers(workers);
        }
        if let Some(bytes) = admission.reply_bytes {
            builder = builder.max_reply(bytes);
        }
        if let Some(cpus) = &self.cpus {
            builder = builder.cpus(cpus.iter().collect::<Vec<u32>>());
        }
        if !self.no_pin {
            builder = builder.pinning(WorkerPinning::Own);
        }
        if let Some(microseconds) = self.busy_poll {
            builder = builder.busy_poll(Some(Duration::from_micros(microseconds)));
        }
        if let Some(bytes) = self.receive_buffer {
            builder = builder.receive_buffer(bytes);
        }
        let own_port = Arc::new(AtomicU16::new(self.bind.port()));
        let allowed_networks = if self.allow.is_empty() { &admission.allowed } else { &self.allow }.clone();
        let (servers, silent, port) = (admission.servers, admission.silent, Arc::clone(&own_port));
        let refusals = Arc::clone(&admission.refusals);
        let guarded = move |worker| {
            let guarded_service =
                GuardedService::new(service(worker), allowed_networks.clone(), Arc::clone(&port))
                    .with_refusals(Arc::clone(&refusals));
            let guarded_service = if silent { guarded_service.without_replies() } else { guarded_service };
            if servers { guarded_service.with_servers() } else { guarded_service }
        };
        let server = GuardedService::start_server(builder.prepare()?, Box::new(guarded))?;
        own_port.store(server.local_addr().port(), Ordering::Relaxed);
        Ok(server)
    }
}

/// For protocols that decide themselves which sources get an answer.
pub(crate) fn every_network() -> Vec<Net> {
    let networks = [Net::new(Ipv4Addr::UNSPECIFIED.into(), 0), Net::new(Ipv6Addr::UNSPECIFIED.into(), 0)];
    networks.into_iter().flatten().collect()
}

// The refusals of the last second in one line; `None` without refusals.
fn refusal_line(counts: &RefusalCounts) -> Option<String> {
    let parts: Vec<String> =
        counts.iter().map(|(refusal, count)| format!("{count} {}", refusal.text())).collect();
    (!parts.is_empty()).then(|| format!("in the last second: {}", parts.join("; ")))
}

fn guard_line(guard: &GuardReport) -> String {
    let interfaces = format::comma_list(guard.interfaces.iter().map(|interface| match interface.mode {
        XdpMode::Driver => interface.name.clone(),
        XdpMode::Generic => format!("{} (generic XDP, which saves less)", interface.name),
    }));
    format!(
        "an XDP guard on {interfaces} refuses requests that would wait longer than {} ms; no setting of the device is \
         changed, see docs/overload.md",
        guard.wait_seconds * 1e3
    )
}

fn summary_text(summary: &ServeSummary, silent: bool) -> String {
    let total = &summary.total;
    let request_count = if silent { total.received } else { total.answered };
    let rate = format::rate(request_count as f64 / summary.elapsed_seconds.max(f64::MIN_POSITIVE));
    let seconds = summary.elapsed_seconds;
    let mut text = if silent {
        format!("received {request_count} datagrams in {seconds:.1} s ({rate}/s)\n")
    } else {
        format!("answered {request_count} of {} requests in {seconds:.1} s ({rate}/s)\n", total.received)
    };
    if total.restarts > 0 {
        let (restarts, lost_requests) = (total.restarts, total.panicked);
        text.push_str(&format!(
            "{restarts} restarts of workers after a panic, {lost_requests} requests lost by it\n"
        ));
    }
    for (refusal, count) in summary.refusals.iter() {
        text.push_str(&format!("  {count} {}\n", refusal.text()));
    }
    if total.truncated > 0 {
        text.push_str(&format!("  {} longer than --max-request, and got no answer\n", total.truncated));
    }
    for (count, cause) in send_failures(&total.send_failed).into_iter().filter(|(count, _)| *count > 0) {
        text.push_str(&format!("  {count} replies not sent: {cause}\n"));
    }
    if total.receive_errors > 0 {
        text.push_str(&format!("  {} receive calls failed\n", total.receive_errors));
    }
    if let Some(lost) = summary.xdp.as_ref().and_then(|report| report.lost_frames).filter(|lost| *lost > 0) {
        text.push_str(&format!("  {lost} frames lost at the AF_XDP sockets\n"));
    }
    for (worker, counts) in summary.workers.iter().enumerate() {
        let answered_text = if silent { String::new() } else { format!(", {} answered", counts.answered) };
        text.push_str(&format!("  worker {worker}: {} received{answered_text}\n", counts.received));
    }
    if total.shed > 0 {
        text.push_str(&format!(
            "  {} had waited too long or were over their share, and got no answer\n",
            total.shed
        ));
    }
    if let Some(guard) = &summary.guard {
        let counts = &guard.counts;
        text.push_str(&format!(
            "  guard: {} admitted, {} refused ({} of them above the share of their source), {} passed while no worker read\n",
            counts.admitted, counts.refused, counts.over_share, counts.opened
        ));
    }
    if let Some(counts) = &summary.protocol.tcp {
        text.push_str(&format!(
            "over TCP: {} connections, {} refused, {} queries answered\n",
            counts.accepted, counts.refused, counts.answered
        ));
    }
    if let Some(counts) = &summary.protocol.radius {
        text.push_str(&format!("radius: {counts}\n"));
    }
    text
}

fn send_failures(failures: &SendFailures) -> [(u64, &'static str); 8] {
    [
        (failures.would_block, "the send buffer stayed full"),
        (failures.no_buffers, "no memory, or no room in the queue of the interface"),
        (failures.not_permitted, "a filter of this host forbids them"),
        (failures.too_long, "longer than the path MTU or the reply buffer"),
        (failures.refused, "the client had closed its port"),
        (failures.unreachable, "no way to the client"),
        (failures.invalid, "an address that cannot be sent to or from"),
        (failures.other, "the kernel reported another error"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summary_names_the_reasons_for_missing_replies() {
        let mut total = Counts::default();
        (total.received, total.answered, total.truncated) = (10, 5, 3);
        total.send_failed.not_permitted = 2;
        let summary = ServeSummary {
            address: "127.0.0.1:7".parse().expect("an address"),
            elapsed_seconds: 1.0,
            total,
            workers: Vec::new(),
            refusals: RefusalCounts::default(),
            guard: None,
            xdp: None,
            protocol: ProtocolCounts::default(),
        };
        let text = summary_text(&summary, false);
        let lines: Vec<&str> = text.lines().skip(1).collect();
        assert_eq!(
            lines,
            [
                "  3 longer than --max-request, and got no answer",
                "  2 replies not sent: a filter of this host forbids them"
            ]
        );
    }
}
