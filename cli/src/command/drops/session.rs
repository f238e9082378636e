//! The arguments of `linerate drops`, and the counting of packets.

use std::ffi::OsString;
use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use linerate_host::Host;
use linerate_trace::drops::packet_counts::PortSubject;
use linerate_trace::drops::{DropsWatch, GeneratorSaid, PacketAccounting};

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
}

pub(super) struct DropsSession {
    host: Host,
    watch: DropsWatch,
}

impl DropsSession {
    pub(super) fn start(args: &DropsTargetArgs) -> Result<Self> {
        let host = Host::live();
        for interface in &args.interfaces {
            let index = format!("/sys/class/net/{interface}/ifindex");
            host.read(&index).with_context(|| format!("there is no interface {interface} here"))?;
        }
        let port_subject = PortSubject { ports: args.ports.clone(), peer: args.peer };
        let mut watch = DropsWatch::start(&host, &port_subject, &args.interfaces)?;
        // To compare with a generator or a command, every packet must be counted.
        if args.load.is_some() || !args.command.is_empty() {
            watch = watch.exact();
        }
        Ok(Self { host, watch })
    }

    // Times the programs; pauses or resumes a sampled count. Returns the time until the next call.
    pub(super) fn turn(&mut self) -> Result<Duration> {
        Ok(self.watch.turn(&self.host)?)
    }

    /// Ends the counting, then reads the generator's counts with `read_generator`.
    pub(super) fn end(
        self,
        read_generator: impl FnOnce() -> Result<Option<GeneratorSaid>>,
    ) -> Result<PacketAccounting> {
        let mut evidence = self.watch.total(&self.host)?;
        evidence.generator = read_generator()?;
        Ok(PacketAccounting::make(&evidence))
    }

    // The packets since the last call; `None` if no window was counted since.
    pub(super) fn lap(&mut self) -> Result<Option<PacketAccounting>> {
        let evidence = self.watch.lap(&self.host)?;
        Ok(evidence.map(|evidence| PacketAccounting::make(&evidence)))
    }
}
