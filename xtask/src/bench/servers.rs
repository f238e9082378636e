//! Servers compared on one CPU: capacity, and goodput under overload.
//!
//! The servers are processes that take turns A B C, C B A, ... in one lab. One generator sends
//! requests and checks every reply.

mod candidate;
mod placement;
mod reference;
mod server_turn;
mod threshold;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::ensure;
use clap::Args;
use linerate_lab::Lab;
use linerate_load::stats;

use candidate::{CANDIDATES, ServerCandidate};
use placement::ReceivePlacement;
pub(crate) use reference::ReferenceServer;
use server_turn::{TurnSample, TurnSetup};

use super::placement::LongBacklog;
use super::threshold::{interval_text, none_missed};
use crate::{machine, programs};

// Receive buffer of every server's socket, bytes: a moment without CPU then causes no loss.
const BUFFER: usize = 4 << 20;

const PORT: u16 = 7777;

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
    /// The program whose `serve` is measured, instead of a release build.
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// Report ratios without judging them, for a short run
    #[arg(long)]
    no_verdict: bool,
}

struct MeasuredServerRun {
    candidate: ServerCandidate,
    samples: Vec<TurnSample>,
    /// The reason why the server does not take part; `None` if it does.
    out: Option<String>,
}

impl ServersBench {
    pub(crate) fn run(&self) -> anyhow::Result<ExitCode> {
        ensure!(self.seconds >= 0.2, "--seconds {}: give 0.2 or more", self.seconds);
        super::check_selection(&self.only, CANDIDATES.iter().map(|candidate| candidate.name))?;
        if let Some(skipped) = machine::skip_unless_root("bench servers") {
            return Ok(skipped);
        }
        let linerate = programs::given_or_release(self.program.as_deref())?;
        placement::pin_to(self.generator_cpu, &self.server_cpus)?;
        let load = machine::load_average();
        println!("{}", machine::kernel_and_cpu());
        println!(
            "{} worker(s) on CPU {}, generator on CPU {}; {} turns of {} s; load average before {:.1}\n\
             median and 95 % interval; goodput is what is answered of capacity when 'offered' times that is asked",
            self.workers,
            self.cpu_list(),
            self.generator_cpu,
            self.rounds,
            self.seconds,
            load.unwrap_or(f64::NAN)
        );
        let mut passes = true;
        for placement in &self.placement {
            let servers = self.part(*placement, &linerate)?;
            println!("\n{}", placement.describe());
            print_table(&servers);
            let thresholds = threshold::judge(&servers, !self.no_verdict);
            thresholds.iter().for_each(|threshold| println!("{threshold}"));
            passes &= none_missed(&thresholds);
        }
        println!();
        for candidate in self.candidates() {
            println!("{:12} {}", candidate.name, candidate.about);
        }
        Ok(machine::exit_code(passes))
    }

    /// Measures all turns of all servers with one placement.
    fn part(&self, placement: ReceivePlacement, linerate: &Path) -> anyhow::Result<Vec<MeasuredServerRun>> {
        let is_steered = placement == ReceivePlacement::Rps;
        let _backlog = if is_steered { LongBacklog::set()? } else { None };
        let setup = TurnSetup { settings: self, linerate, lab: Lab::builder().queues(self.workers).start()? };
        let interface = &setup.lab.links()[0].receiver.interface;
        placement.set(setup.lab.receiver(), interface, self.workers, &self.server_cpus)?;
        let mut servers: Vec<MeasuredServerRun> = self
            .candidates()
            .map(|candidate| MeasuredServerRun { candidate, samples: Vec::new(), out: None })
            .collect();
        for round in 0..self.rounds {
            for index in super::alternated(servers.len(), round) {
                let server = &mut servers[index];
                if server.out.is_some() {
                    continue;
                }
                let hint = server.samples.last().map(|sample| sample.capacity);
                match setup.sample(&server.candidate, hint) {
                    Ok(sample) => {
                        eprintln!("{}: {sample}", server.candidate.name);
                        server.samples.push(sample);
                    }
                    Err(reason) => {
                        eprintln!("{}: not here: {reason:#}", server.candidate.name);
                        server.out = Some(format!("{reason:#}"));
                    }
                }
            }
        }
        Ok(servers)
    }

    fn candidates(&self) -> impl Iterator<Item = ServerCandidate> {
        CANDIDATES.into_iter().filter(|candidate| super::is_selected(&self.only, candidate.name))
    }

    fn cpu_list(&self) -> String {
        self.server_cpus.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
    }
}

fn print_table(servers: &[MeasuredServerRun]) {
    println!("{:12} {:>28} {:>24} {:>8} {:>8}", "server", "capacity/s", "goodput", "offered", "CPU ns");
    for MeasuredServerRun { candidate, samples, out } in servers {
        let values = |figure: fn(&TurnSample) -> f64| samples.iter().map(figure).collect::<Vec<_>>();
        let (Ok(capacity), Ok(goodput), Some(factor)) = (
            stats::interval(&values(|sample| sample.capacity)),
            stats::interval(&values(|sample| sample.goodput_ratio)),
            stats::median(&values(|sample| sample.overload_factor)),
        ) else {
            println!("{:12} not here: {}", candidate.name, out.as_deref().unwrap_or("it was not measured"));
            continue;
        };
        let cpu_times: Vec<f64> = samples.iter().filter_map(|sample| sample.cpu_ns).collect();
        let bound = if samples.iter().any(|sample| sample.generator_bound) { ">" } else { "" };
        println!(
            "{:12} {:>28} {:>24} {:>8} {:>8}{}",
            candidate.name,
            format!("{bound}{}", interval_text(&capacity, 1.0, 0)),
            interval_text(&goodput, 100.0, 0) + " %",
            format!("{factor:.1} x"),
            stats::median(&cpu_times).map_or_else(|| "-".to_owned(), |time| format!("{time:.0}")),
            out.as_ref()
                .map(|reason| format!("  ({} turns, then: {reason})", samples.len()))
                .unwrap_or_default()
        );
    }
}
