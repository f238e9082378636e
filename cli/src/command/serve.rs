//! `linerate serve`: servers on the engine.

mod advice;
mod arguments;
mod dns;
mod echo;
mod ntp;
mod radius;
mod sink;
mod xdp;

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub(crate) enum ServeArgs {
    /// Answer requests of `linerate load` with their own payload
    Echo(Box<echo::EchoServeArgs>),
    /// Tell the time of this machine's clock by NTP
    Ntp(Box<ntp::NtpServeArgs>),
    /// Answer DNS queries from zone files
    Dns(Box<dns::DnsServeArgs>),
    /// Let users in by RADIUS, as a file says
    Radius(Box<radius::RadiusServeArgs>),
    /// Receive and count datagrams, and send nothing
    Sink(Box<sink::SinkServeArgs>),
}

impl ServeArgs {
    pub(crate) fn run(self) -> Result<ExitCode> {
        match self {
            ServeArgs::Echo(echo) => echo.run(),
            ServeArgs::Ntp(ntp) => ntp.run(),
            ServeArgs::Dns(dns) => dns.run(),
            ServeArgs::Radius(radius) => radius.run(),
            ServeArgs::Sink(sink) => sink.run(),
        }
    }
}
