//! `linerate serve`: servers on the engine.

mod arguments;
mod dns;
mod echo;
mod ntp;
mod radius;
mod xdp;

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub(crate) enum Serve {
    /// Answer each datagram with itself
    Echo(Box<echo::Echo>),
    /// Tell the time of this machine's clock by NTP
    Ntp(Box<ntp::Ntp>),
    /// Answer DNS queries from zone files
    Dns(Box<dns::Dns>),
    /// Let users in by RADIUS, as a file says
    Radius(Box<radius::Radius>),
}

impl Serve {
    pub(crate) fn run(self) -> Result<ExitCode> {
        match self {
            Serve::Echo(echo) => echo.run(),
            Serve::Ntp(ntp) => ntp.run(),
            Serve::Dns(dns) => dns.run(),
            Serve::Radius(radius) => radius.run(),
        }
    }
}
