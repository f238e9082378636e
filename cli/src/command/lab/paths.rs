//! `linerate lab paths`: network paths compared, and the processes that some paths have.

use std::net::SocketAddr;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use linerate_lab::paths::report::PathsConfig;
use linerate_lab::paths::{self, NetworkPath, PATHS, PathsEvent, relay};

use crate::command::results::ResultArgs;
use crate::output;
use crate::render::format;
use crate::suggestion::SuggestedValues;

/// Measure the same service and load through different network paths, each against the host's own network.
#[derive(Debug, Args)]
#[command(after_help = "Example: linerate lab paths --paths bridge,bridge-nat,vxlan --html paths.html")]
pub(super) struct LabPathsArgs {
    /// Measure only these paths (and host): comma-separated names
    #[arg(long, value_name = "A,B,C", value_delimiter = ',', value_parser = SuggestedValues::paths(), hide_possible_values = true)]
    paths: Vec<String>,
    /// Print the commands that make each path, and end
    #[arg(long, conflicts_with_all = ["json", "html"])]
    show_commands: bool,
    /// Capacity samples per path, an even number from 4; each has one of host next to it
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = clap::value_parser!(u32).range(4..=100))]
    samples: u32,
    /// UDP payload of a request, bytes
    #[arg(long, value_name = "BYTES", default_value_t = 100)]
    payload: u32,
    /// Source ports of the client
    #[arg(long, value_name = "N", default_value_t = 64)]
    flows: u32,
    /// Show no progress
    #[arg(long, short)]
    quiet: bool,
    #[command(flatten)]
    results: ResultArgs,
}

/// A process on a path; it goes on until it is ended.
#[derive(Debug, Subcommand)]
pub(super) enum LabRelayArgs {
    /// Copy datagrams to a server, and its replies back, as docker-proxy does
    Udp { listen: SocketAddr, to: SocketAddr },
    /// Copy frames between two tap devices, as QEMU without vhost does
    Tap { one: String, other: String },
}

impl LabPathsArgs {
    pub(super) fn run(self) -> Result<ExitCode> {
        let targets = self.results.targets()?;
        let paths = self.selected_paths()?;
        if self.show_commands {
            let text = paths
                .iter()
                .map(|path| format!("# {}: {}\n{}\n", path.name, path.about, path.recipe().join("\n")));
            output::print(&text.collect::<Vec<_>>().join("\n"))?;
            return Ok(ExitCode::SUCCESS);
        }
        let config = PathsConfig {
            paths: paths.iter().skip(1).map(|path| path.name.to_owned()).collect(),
            payload_bytes: self.payload,
            flows: self.flows,
            samples: self.samples,
        };
        let program = std::env::current_exe().context("cannot tell where this program is")?;
        super::compare("paths", self.samples, &targets, |cancel| {
            Ok(paths::run(&config, &program, cancel, &mut |event: &PathsEvent<'_>| {
                if !self.quiet {
                    print_event(event);
                }
            })?)
        })
    }

    /// The first path `host`, then the requested paths in the order of the list; without any, all
    /// paths.
    fn selected_paths(&self) -> Result<Vec<&'static NetworkPath>> {
        if let Some(unknown_name) = self.paths.iter().find(|name| NetworkPath::find(name).is_none()) {
            let names = format::comma_list(PATHS.iter().map(|path| path.name));
            bail!("there is no path {unknown_name}; the paths are {names}");
        }
        let is_selected = |(index, path): &(usize, &'static NetworkPath)| {
            *index == 0 || self.paths.is_empty() || self.paths.iter().any(|name| name == path.name)
        };
        Ok(PATHS.iter().enumerate().filter(is_selected).map(|(_, path)| path).collect())
    }
}

impl LabRelayArgs {
    pub(super) fn run(self) -> Result<ExitCode> {
        // The program that started the relay waits for this line.
        let ready = || drop(output::print("ready\n"));
        match self {
            Self::Udp { listen, to } => {
                relay::proxy(listen, to, ready).with_context(|| format!("relay from {listen} to {to}"))?;
            }
            Self::Tap { one, other } => {
                relay::switch(&one, &other, ready)
                    .with_context(|| format!("relay between {one} and {other}"))?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn print_event(event: &PathsEvent<'_>) {
    match event {
        PathsEvent::Path { name, at_rate: Some(rate) } => {
            status_line!("{name:<15} CPU time at {}/s", format::rate(*rate));
        }
        PathsEvent::Done(path) => match (&path.skipped_because, &path.transactions_per_second) {
            (Some(reason), _) => status_line!("{:<15} skipped: {reason}", path.name),
            (None, Some(rate)) => {
                let host_ratio = path.versus_host.as_ref();
                let ratio_text = host_ratio.map_or_else(String::new, |comparison| {
                    format!("  {} of host", format::ratio(comparison.ratio.median))
                });
                status_line!("{:<15} {:>8}/s{ratio_text}", path.name, format::rate(rate.median));
            }
            (None, None) => {}
        },
        PathsEvent::Path { .. } | PathsEvent::Probe { .. } => {}
    }
}
