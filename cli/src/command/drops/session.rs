//! The arguments of `linerate drops`, and the start of the counting.

use std::ffi::OsString;
use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use linerate_host::Host;
use linerate_trace::drops::DropsWatch;
use linerate_trace::drops::packet_counts::PortSubject;

use crate::quantity;

#[derive(Debug, Args)]
pub(super) struct DropsTargetArgs {
    /// Only packets to this UDP port, and replies from it; repeatable [default: the whole host]
    #[arg(short = 'p', long = "port", value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub(super) ports: Vec<u16>,
    /// Only packets from and to this address
    #[arg(long, value_name = "ADDRESS")]
    pub(super) peer: Option<IpAddr>,
    /// Interface whose counters are read; repeatable [default: all with a device]
    #[arg(short = 'i', long = "interface", value_name = "IF")]
    pub(super) interfaces: Vec<String>,
    /// Duration, seconds [default: 10; with --watch until Ctrl-C]
    #[arg(long, value_name = "S", value_parser = quantity::seconds(0.1..=86_400.0), conflicts_with = "command")]
    pub(super) duration: Option<Duration>,
    /// Print the losses of each second
    #[arg(long)]
    pub(super) watch: bool,
    /// File that `linerate load --json` writes meanwhile; its sent and answered requests are
    /// included
    #[arg(long, value_name = "FILE")]
    pub(super) load: Option<String>,
    /// Print all stages, also those without losses
    #[arg(long)]
    pub(super) full: bool,
    /// Count every packet while this command runs; its output goes to standard error
    #[arg(last = true, value_name = "COMMAND")]
    pub(super) command: Vec<OsString>,
}

impl DropsTargetArgs {
    /// Counting time without a command; `None` counts until Ctrl-C.
    pub(super) fn time(&self) -> Option<Duration> {
        const DEFAULT: Duration = Duration::from_secs(10);
        self.duration.or((!self.watch).then_some(DEFAULT))
    }

    /// Starts to count.
    pub(super) fn start(&self, host: &Host) -> Result<DropsWatch> {
        for interface in &self.interfaces {
            let index = format!("/sys/class/net/{interface}/ifindex");
            host.read(&index).with_context(|| format!("there is no interface {interface} here"))?;
        }
        let port_subject = PortSubject { ports: self.ports.clone(), peer: self.peer };
        let watch = DropsWatch::start(host, &port_subject, &self.interfaces)?;
        // To compare with a generator or a command, every packet must be counted.
        Ok(if self.load.is_some() || !self.command.is_empty() { watch.exact() } else { watch })
    }
}
