//! What `linerate drops` is asked for.

use std::ffi::OsString;
use std::net::IpAddr;
use std::time::Duration;

use clap::Args;

/// Whose packets, for how long, and what is done meanwhile.
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
    #[arg(long, value_name = "S", value_parser = seconds, conflicts_with = "command")]
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
    /// Whether every packet counts: of a command's run, or beside a generator's account. Else counting may be sampled.
    pub(super) fn counts_all(&self) -> bool {
        self.load.is_some() || !self.command.is_empty()
    }

    /// For how long to count where no command says so; none for until it is stopped.
    pub(super) fn time(&self) -> Option<Duration> {
        const USUAL: Duration = Duration::from_secs(10);
        self.duration.or((!self.watch).then_some(USUAL))
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| (0.1..=86_400.0).contains(seconds));
    seconds
        .map(Duration::from_secs_f64)
        .ok_or_else(|| format!("'{text}' is no number of seconds from 0.1 to 86400"))
}
