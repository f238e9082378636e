//! Servers compared on one CPU: capacity, and goodput under overload.
//!
//! The servers are processes that take turns A B C, C B A, ... in one lab. One generator sends
//! requests and checks every reply.

mod candidate;
mod cpu_time;
mod dns;
mod placement;
mod program;
mod report;
mod server_turn;
mod testbed;
mod threshold;
mod workload;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, ensure};
use clap::Args;

use candidate::ServerCandidate;
use placement::ReceivePlacement;
pub(crate) use program::ServerProgram;
use report::{PlacementReport, ServersReport};
use server_turn::{TurnMethod, TurnSample};
use testbed::ServersTestbed;

use crate::machine;

#[derive(Debug, Args)]
pub(crate) struct ServersBench {
    /// Seconds per search for a capacity; measurements at the capacity take three quarters of that
    #[arg(long, default_value_t = 4.0)]
    seconds: f64,
    /// Number of turns of each server.
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Measure only these servers, by name.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Worker threads, or processes, of each server.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    workers: u32,
    /// The CPUs that the servers run on.
    #[arg(long, value_delimiter = ',', default_values_t = [1])]
    server_cpus: Vec<u32>,
    /// The CPU that sends.
    #[arg(long, default_value_t = 0)]
    generator_cpu: u32,
    /// Where packets are received; several placements are measured one after the other.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [ReceivePlacement::Rps, ReceivePlacement::Sent])]
    placement: Vec<ReceivePlacement>,
    /// Settings of the AF_XDP backend as JSON, such as {"batch":256}, for `xdp-set`, which is
    /// compared with the defaults.
    #[arg(long, value_name = "JSON")]
    xdp_settings: Option<String>,
    /// Report ratios without judging them, for a short run
    #[arg(long)]
    no_verdict: bool,
    /// Also write the result to this file, as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

struct MeasuredServerRun {
    candidate: ServerCandidate,
    samples: Vec<TurnSample>,
    /// The reason why the server does not take part; `None` if it does.
    out: Option<String>,
}

impl ServersBench {
    pub(crate) fn run(&self) -> anyhow::Result<ExitCode> {
        if cfg!(debug_assertions) {
            return super::run_optimized();
        }
        ensure!(self.seconds >= 0.2, "--seconds {}: give 0.2 or more", self.seconds);
        if let Some(skipped) = machine::skip_unless_root("bench servers") {
            return Ok(skipped);
        }
        self.select_candidates()?;
        placement::pin_to(self.generator_cpu, &self.server_cpus)?;
        let mut report = ServersReport::new(self);
        for placement in &self.placement {
            report.add(self.part(*placement)?);
        }
        println!("{}", machine::kernel_and_cpu());
        print!("{report}");
        if let Some(file) = &self.json {
            let text = serde_json::to_string_pretty(&report.document())?;
            std::fs::write(file, text + "\n").with_context(|| format!("writing {}", file.display()))?;
        }
        Ok(machine::exit_code(report.passes()))
    }

    /// Measures all turns of all servers with one placement.
    fn part(&self, placement: ReceivePlacement) -> anyhow::Result<PlacementReport> {
        let mut measured_servers = self.select_candidates()?;
        let mut testbed = ServersTestbed::new(self, placement)?;
        let method = TurnMethod::new(self.seconds);
        for round in 0..self.rounds {
            for index in super::alternated(measured_servers.len(), round) {
                let server_run = &mut measured_servers[index];
                if server_run.out.is_some() {
                    continue;
                }
                let hint = server_run.samples.last().map(|sample| sample.capacity);
                match method.sample(&mut testbed, &server_run.candidate, hint) {
                    Ok(sample) => {
                        eprintln!("{}: {sample}", server_run.candidate.name);
                        server_run.samples.push(sample);
                    }
                    Err(reason) => {
                        eprintln!("{}: not here: {reason:#}", server_run.candidate.name);
                        server_run.out = Some(format!("{reason:#}"));
                    }
                }
            }
        }
        Ok(PlacementReport::new(placement, measured_servers, !self.no_verdict))
    }

    fn select_candidates(&self) -> anyhow::Result<Vec<MeasuredServerRun>> {
        let candidates = candidate::all();
        for name in &self.only {
            let names: Vec<&str> = candidates.iter().map(|candidate| candidate.name).collect();
            ensure!(names.contains(&name.as_str()), "--only {name}: there are {}", names.join(", "));
        }
        let is_selected = |candidate: &ServerCandidate| {
            (self.only.is_empty() || self.only.iter().any(|name| name == candidate.name))
                && (candidate.name != candidate::XDP_SET || self.xdp_settings.is_some())
        };
        Ok(candidates
            .into_iter()
            .filter(is_selected)
            .map(|candidate| MeasuredServerRun { candidate, samples: Vec::new(), out: None })
            .collect())
    }
}
