//! `linerate serve dns`: authoritative DNS from zone files.

use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;
use linerate_engine::PathMtuDiscovery;
use linerate_services::dns::{
    ConnectionFilter, DnsRateLimit, DnsService, ServedZones, TcpServer, TcpSettings, UDP_SIZE, Zones,
};
use signal_hook::consts::SIGHUP;
use signal_hook::iterator::Signals;

use super::arguments::{AdmissionArgs, ProtocolCounts, ServerArguments};
use crate::quantity::{self, MOST_SECONDS};

/// Queries from ports below 1024 are not answered over UDP: resolvers ask from high ports, and what comes from a server's
/// port may be an answer. On SIGHUP the zone files are read again; one that is broken leaves all zones as they were.
#[derive(Debug, Args)]
pub(crate) struct DnsServeArgs {
    #[command(flatten)]
    server: ServerArguments,
    /// Zone and its file; repeatable
    #[arg(long, value_name = "NAME=FILE", required = true)]
    zone: Vec<ZoneFile>,
    /// Largest UDP answer, bytes
    #[arg(long, value_name = "BYTES", default_value_t = UDP_SIZE, value_parser = clap::value_parser!(u16).range(512..=4096))]
    udp_size: u16,
    /// Equal answers per second per network (/24, /56) and worker, except loopback; 0: no limit
    #[arg(long, value_name = "N", default_value_t = DnsRateLimit::default().per_second)]
    rate_limit: u32,
    /// Above the rate limit, truncate every Nth answer instead of dropping it, so that clients
    /// retry over TCP; 0: none [default: 2]
    #[arg(long, value_name = "N")]
    slip: Option<u32>,
    /// Bytes per second and worker that may be sent to such a network beyond the bytes that came from it; further answers are
    /// truncated, so that clients use TCP; 0: any number
    #[arg(long, value_name = "BYTES", default_value_t = DnsRateLimit::default().surplus_bytes)]
    surplus: u32,
    /// Do not serve over TCP
    #[arg(long)]
    no_tcp: bool,
    /// Threads that serve over TCP
    #[arg(long, value_name = "N", default_value_t = 2, conflicts_with = "no_tcp", value_parser = clap::value_parser!(u16).range(1..=256))]
    tcp_threads: u16,
    /// TCP connections at a time
    #[arg(long, value_name = "N", default_value_t = 256, conflicts_with = "no_tcp")]
    tcp_connections: usize,
    /// Close idle TCP connections after this many seconds
    #[arg(long, value_name = "S", default_value = "10", conflicts_with = "no_tcp", value_parser = quantity::seconds(0.0..=MOST_SECONDS))]
    tcp_idle: Duration,
}

/// A zone's name and its file.
#[derive(Debug, Clone)]
struct ZoneFile {
    name: String,
    file: PathBuf,
}

impl FromStr for ZoneFile {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once('=') {
            Some((name, file)) if !name.is_empty() && !file.is_empty() => {
                Ok(Self { name: name.to_owned(), file: file.into() })
            }
            _ => Err("a zone's name, '=' and its file are needed, as in example.com=/etc/zones/example.com"),
        }
    }
}

impl DnsServeArgs {
    pub(crate) fn run(mut self) -> Result<ExitCode> {
        ensure!(self.rate_limit > 0 || self.slip.is_none(), "--slip has no effect with --rate-limit 0");
        let served_zones = ServedZones::new(load(&self.zone)?);
        reload_on_signal(self.zone.clone(), Arc::clone(&served_zones))?;
        self.server.reloads = true;
        let tcp = if self.no_tcp { None } else { Some(self.tcp(&served_zones)?) };
        if let Some(tcp) = &tcp {
            // UDP uses the port of TCP, also if the kernel chose it.
            self.server.bind.set_port(tcp.local_addr().port());
        }
        let udp_size = self.udp_size;
        let limit = DnsRateLimit {
            per_second: self.rate_limit,
            slip: self.slip.unwrap_or(DnsRateLimit::default().slip),
            surplus_bytes: self.surplus,
            ..DnsRateLimit::default()
        };
        let limit = (limit.per_second > 0 || limit.surplus_bytes > 0).then_some(limit);
        // The reply buffer limits answers, too.
        let counts =
            move || ProtocolCounts { tcp: tcp.as_ref().map(TcpServer::counts), ..ProtocolCounts::default() };
        // A forged ICMP message lowers the path's MTU, so that IPv4 replies are fragmented (RFC 9715). Replies up to this size
        // fit the smallest MTU of IPv6. Longer ones need the path's MTU, because IPv6 routers do not fragment.
        let path_mtu = if udp_size <= UDP_SIZE { PathMtuDiscovery::Omit } else { PathMtuDiscovery::System };
        let admission = AdmissionArgs {
            reply_bytes: Some(usize::from(udp_size).max(2048)),
            protocol_counts: Some(Box::new(counts)),
            path_mtu,
            ..AdmissionArgs::default()
        };
        let refusals = Arc::clone(&admission.refusals);
        let service = move |_| {
            let service = DnsService::new(Arc::clone(&served_zones)).refusals(Arc::clone(&refusals));
            service.udp_size(udp_size).rate_limit(limit)
        };
        if let Some(limit) = limit {
            status_line!(
                "linerate: a network that is not loopback gets at most {} like answers and {} bytes more than it sent per second \
                 and worker (0: any number); to measure, give --rate-limit 0 --surplus 0",
                limit.per_second,
                limit.surplus_bytes
            );
        }
        self.server.serve("dns", &admission, |_| Ok(()), service)
    }

    fn tcp(&self, served_zones: &Arc<ServedZones>) -> Result<TcpServer> {
        let settings = TcpSettings {
            threads: usize::from(self.tcp_threads),
            connections: self.tcp_connections,
            idle: self.tcp_idle,
            only_v6: self.server.only_v6,
            ..TcpSettings::new(self.server.bind)
        };
        let allowed_networks = self.server.allow.clone();
        let filter: ConnectionFilter = Arc::new(move |source| match &allowed_networks[..] {
            [] => linerate_networks::is_near(source),
            nets => nets.iter().any(|net| net.contains(source)),
        });
        let tcp = TcpServer::start(&settings, served_zones, &filter)?;
        status_line!("serving dns over TCP on {}", tcp.local_addr());
        Ok(tcp)
    }
}

// Reads the zone files again after each SIGHUP, until the process ends.
fn reload_on_signal(files: Vec<ZoneFile>, served_zones: Arc<ServedZones>) -> Result<()> {
    let mut signals = Signals::new([SIGHUP]).context("cannot take over SIGHUP")?;
    let reload = move || {
        for _ in signals.forever() {
            match load(&files) {
                Ok(zones) => {
                    let records = zones.record_count();
                    served_zones.exchange(zones);
                    status_line!("zones read again: {records} records");
                }
                Err(error) => status_line!("linerate: {error:#}; the server keeps the zones that it has"),
            }
        }
    };
    thread::Builder::new().name("dns-reload".into()).spawn(reload).context("cannot start a thread")?;
    Ok(())
}

/// Reads all zones, and prints notes for the operator.
fn load(files: &[ZoneFile]) -> Result<Zones> {
    let files: Vec<(&str, &PathBuf)> = files.iter().map(|zone| (zone.name.as_str(), &zone.file)).collect();
    let zones = Zones::load(&files)?;
    for note in zones.notes() {
        status_line!("linerate: {note}");
    }
    Ok(zones)
}
