//! Capacities that `headroom` estimates from a part of the load, compared with capacities that a
//! search finds.
//!
//! Servers run on one CPU of a lab, to which RPS steers their packets. The generator runs on
//! another CPU. No code of this program is measured, so it need not be optimized.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::Args;
use linerate_host::{Host, stats};
use linerate_lab::program::{RecipeValues, ServerProgram, ServerRecipe};
use linerate_lab::{Lab, LabHost};
use linerate_load::capacity::{self, SearchOptions};
use linerate_load::generator::GeneratorOptions;
use linerate_load::{Generator, LoadSlot};
use linerate_trace::headroom::{CapacityLimit, HeadroomReport, HeadroomSession, LimitingResource};
use rustix::process::Pid;

use super::placement::{LongBacklog, steer_by_rps};
use crate::machine;
use crate::programs;

/// Parts of the capacity that are offered during the estimates.
const SHARES: [f64; 3] = [0.2, 0.4, 0.6];
/// The largest allowed median of the errors, and the least share of intervals that contain the
/// capacity.
const ALLOWED_ERROR: f64 = 0.1;
const LEAST_HELD: f64 = 13.0 / 15.0;

const PORT: u16 = 5300;
const FLOWS: usize = 64;
const PAYLOAD: usize = 100;
const GENERATOR_CPU: u32 = 0;
const SERVER_CPU: u32 = 1;
/// Time before the estimate, so that the load is steady.
const LEAD_IN: Duration = Duration::from_millis(500);

/// The servers: their names and numbers of workers.
const SERVERS: [(&str, usize); 6] =
    [("echo", 1), ("echo-2", 2), ("nsd", 1), ("knot", 1), ("unbound", 1), ("go", 1)];

#[derive(Debug, Args)]
pub(crate) struct HeadroomBench {
    /// Measure only these servers, by name.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Seconds per estimate.
    #[arg(long, default_value_t = 4.0)]
    seconds: f64,
    /// Seconds for all searches for the capacity of a server.
    #[arg(long, default_value_t = 20.0)]
    search_seconds: f64,
    /// The program whose `serve echo` is measured, instead of a release build.
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
}

/// An estimate at a part of the load, and the capacity that a search found.
struct CheckedEstimate {
    server: &'static str,
    offered: f64,
    estimate: Option<CapacityLimit>,
    next: Option<CapacityLimit>,
    why: String,
    capacity: stats::ConfidenceInterval,
    /// Whether the generator was the limit of the search.
    bound: bool,
}

/// Pins the threads of all other processes of this network namespace, because some servers choose
/// CPUs for their workers, and Knot chooses the generator's CPU.
fn pin_servers() -> anyhow::Result<()> {
    let namespace = fs::read_link("/proc/thread-self/ns/net")?;
    for entry in fs::read_dir("/proc")?.flatten() {
        let path = entry.path();
        let number = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok());
        let is_server = |pid: u32| pid != std::process::id();
        if !number.is_some_and(is_server)
            || fs::read_link(path.join("ns/net")).ok().as_ref() != Some(&namespace)
        {
            continue;
        }
        for task in fs::read_dir(path.join("task"))?.flatten() {
            let thread = task.file_name().to_str().and_then(|name| name.parse().ok());
            // A thread may have ended meanwhile.
            if let Some(thread) = thread.and_then(Pid::from_raw) {
                let _ = machine::pin(Some(thread), SERVER_CPU);
            }
        }
    }
    Ok(())
}

impl HeadroomBench {
    pub(crate) fn run(&self) -> anyhow::Result<ExitCode> {
        if let Some(exit_code) = machine::skip_unless_root("bench headroom") {
            return Ok(exit_code);
        }
        super::check_selection(&self.only, SERVERS.map(|(name, _)| name))?;
        let program = programs::given_or_release(self.program.as_deref())?;
        machine::pin(None, GENERATOR_CPU)?;
        let _backlog = LongBacklog::set()?;
        let lab = Lab::builder().queues(1).start()?;
        steer_by_rps(lab.receiver(), &lab.links()[0].receiver.interface, 1, &[SERVER_CPU])?;
        let mut all_estimates = Vec::new();
        println!("{}", machine::kernel_and_cpu());
        println!(
            "| server | load | datagrams/s | estimate | 90 % interval | search | error | holds | limit |"
        );
        println!("|---|---|---|---|---|---|---|---|---|");
        for (name, workers) in SERVERS {
            if !super::is_selected(&self.only, name) {
                continue;
            }
            match self.server(&lab, name, workers, &program) {
                Ok(estimates) => all_estimates.extend(estimates),
                Err(reason) => eprintln!("{name}: not here: {reason:#}"),
            }
        }
        Ok(machine::exit_code(print_verdict(&all_estimates)))
    }

    fn server(
        &self,
        lab: &Lab,
        name: &'static str,
        workers: usize,
        program: &Path,
    ) -> anyhow::Result<Vec<CheckedEstimate>> {
        let directory = tempfile::tempdir()?;
        let address = SocketAddr::from((lab.links()[0].receiver.ipv4[0], PORT));
        let recipe = recipe(name, program, directory.path())?;
        let values = RecipeValues { address, workers, directory: directory.path() };
        // A program may use the CPU of the thread that starts it.
        machine::pin(None, SERVER_CPU)?;
        // With the priority of ksoftirqd, even if this program has a higher priority.
        let server = ServerProgram::start(lab.receiver(), &recipe, &values, Some(0));
        machine::pin(None, GENERATOR_CPU)?;
        let server = server?;
        lab.receiver().run(pin_servers)??;
        let workload = recipe.requests(directory.path())?;
        let options = super::echo_load(address, GENERATOR_CPU, FLOWS, PAYLOAD);
        let options = GeneratorOptions { workload, ..options };
        let mut generator = lab.senders()[0].run(|| options.start())??;
        let estimates = self.estimates(lab.receiver(), name, &mut *generator);
        drop(generator);
        server.stop(lab.receiver());
        estimates
    }

    fn estimates(
        &self,
        receiver: &LabHost,
        server: &'static str,
        generator: &mut dyn Generator,
    ) -> anyhow::Result<Vec<CheckedEstimate>> {
        let slot = Duration::from_millis(400);
        let options = SearchOptions {
            growth: 0.01,
            slot,
            lead_in: slot / 2,
            confirm_stretch: 3,
            excused: 5,
            resolution: 1.02,
            budget: Duration::from_secs_f64(self.search_seconds),
            ..SearchOptions::default()
        };
        let search_result = capacity::search_repeatedly(generator, &options, 3)?;
        let capacity = search_result.transactions_per_second;
        ensure!(capacity.median > 0.0, "no rate held");
        let check = |share: f64| {
            let report = self.estimate(receiver, generator, capacity.median * share)?;
            let checked_estimate = CheckedEstimate {
                server,
                offered: report.demand.read_per_second,
                next: report.limits.into_iter().nth(1),
                why: report.capacity.why().unwrap_or_default().to_owned(),
                estimate: report.capacity.into_value(),
                capacity,
                bound: search_result.generator_bound,
            };
            println!("{}", checked_estimate.row());
            Ok(checked_estimate)
        };
        SHARES.into_iter().map(check).collect()
    }

    fn estimate(
        &self,
        receiver: &LabHost,
        generator: &mut dyn Generator,
        per_second: f64,
    ) -> anyhow::Result<HeadroomReport> {
        let duration = Duration::from_secs_f64(self.seconds);
        let load = LoadSlot::rate(per_second, duration + 3 * LEAD_IN);
        std::thread::scope(|scope| {
            let generator_run = scope.spawn(|| generator.run(&load));
            let host = Host::live();
            std::thread::sleep(LEAD_IN);
            let report = receiver
                .run(|| HeadroomSession::start(&host, PORT)?.measure(duration, &std::thread::sleep))??;
            generator_run.join().ok().context("the generator panicked")??;
            Ok(report)
        })
    }
}

fn recipe(name: &str, program: &Path, directory: &Path) -> anyhow::Result<ServerRecipe> {
    let command = match name {
        "go" => {
            let (source, program_file) = (directory.join("echo.go"), directory.join("echo"));
            std::fs::write(&source, include_str!("headroom.go"))?;
            let go = ["go", "/usr/local/go/bin/go"].into_iter().find_map(|go| {
                Command::new(go).arg("build").arg("-o").arg(&program_file).arg(&source).status().ok()
            });
            ensure!(go.context("there is no Go compiler")?.success(), "the Go server does not build");
            format!("{} {{address}}:{{port}}", program_file.display())
        }
        name if name.starts_with("echo") => format!(
            "{} serve echo --bind {{address}}:{{port}} --workers {{workers}} --no-pin --sockets reuseport \
             --receive-buffer 4194304",
            program.display()
        ),
        server_name => return Ok(ServerRecipe::find(server_name, None, Some(PORT))?),
    };
    Ok(ServerRecipe::find(&command, Some("echo"), Some(PORT))?)
}

impl CheckedEstimate {
    fn relative_error(&self) -> Option<f64> {
        self.estimate.as_ref().map(|estimate| estimate.per_second / self.capacity.median - 1.0)
    }

    fn contains_capacity(&self) -> bool {
        let capacity = self.capacity.median;
        let is_within = |estimate: &CapacityLimit| {
            (estimate.low_per_second..=estimate.high_per_second).contains(&capacity)
        };
        self.estimate.as_ref().is_some_and(is_within)
    }

    /// Whether the limit is the server's CPU, which also processes the packets. If the next limit
    /// may come first as well, either limit may be the CPU.
    fn has_right_limit(&self) -> bool {
        let is_cpu = |limit: &&CapacityLimit| limit.resource == LimitingResource::Cpu { cpu: SERVER_CPU };
        self.estimate.as_ref().is_some_and(|first_limit| {
            let close_limit = self
                .next
                .as_ref()
                .filter(|next_limit| next_limit.low_per_second < first_limit.high_per_second);
            [Some(first_limit), close_limit].into_iter().flatten().any(|limit| is_cpu(&limit))
        })
    }

    fn row(&self) -> String {
        let thousands = |per_second: f64| format!("{:.1}k", per_second / 1e3);
        let load = self.offered / self.capacity.median * 100.0;
        let bound_sign = if self.bound { ">= " } else { "" };
        let first_cells = format!("| {} | {load:.0} % | {} |", self.server, thousands(self.offered));
        let (Some(estimate), Some(error)) = (&self.estimate, self.relative_error()) else {
            return format!(
                "{first_cells} {} | | {bound_sign}{} | | | |",
                self.why,
                thousands(self.capacity.median)
            );
        };
        format!(
            "{first_cells} {} | {} to {} | {bound_sign}{} | {:+.1} % | {} | {} |",
            thousands(estimate.per_second),
            thousands(estimate.low_per_second),
            thousands(estimate.high_per_second),
            thousands(self.capacity.median),
            error * 100.0,
            if self.contains_capacity() { "yes" } else { "no" },
            limit(estimate)
        )
    }
}

fn limit(estimate: &CapacityLimit) -> String {
    let name = match &estimate.resource {
        LimitingResource::Thread { comm, .. } => format!("thread {comm}"),
        LimitingResource::Cpu { cpu } => format!("CPU {cpu}"),
        LimitingResource::Softirq { cpu } => format!("softirqs of CPU {cpu}"),
        resource => format!("{resource:?}"),
    };
    if estimate.parts.is_empty() { name } else { format!("{name}: {}", estimate.parts) }
}

fn print_verdict(estimates: &[CheckedEstimate]) -> bool {
    let errors: Vec<f64> =
        estimates.iter().filter_map(CheckedEstimate::relative_error).map(f64::abs).collect();
    let median = stats::median(&errors).unwrap_or(f64::INFINITY);
    let held_count = estimates.iter().filter(|estimate| estimate.contains_capacity()).count();
    let right_count = estimates.iter().filter(|estimate| estimate.has_right_limit()).count();
    let total = estimates.len();
    let is_passed = median <= ALLOWED_ERROR
        && held_count as f64 >= LEAST_HELD * total as f64
        && right_count == total
        && total > 0;
    println!(
        "{}: median error {:.1} % (allowed {:.0} %), {held_count} of {total} intervals hold, {right_count} of {total} limits are right",
        if is_passed { "ok" } else { "FAILED" },
        median * 100.0,
        ALLOWED_ERROR * 100.0
    );
    is_passed
}
