//! What a server answers when five times its capacity is asked, with the overload policy and without, by where packets are
//! received. And what the policy takes of capacity.

mod placement;

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::{Args, ValueEnum};
use linerate_engine::{Backend as Calls, Echo, Overload as Policy, Pinning, Running, Server, Sockets};
use linerate_lab::Lab;
use linerate_measure::capacity::{self, SearchOptions};
use linerate_measure::generator::{Backend, Builder};
use linerate_measure::{Generator, Mode, Slot, Workload, stats};
use rustix::thread::{CpuSet, sched_setaffinity};

use super::backlog::Backlog;
use placement::Placement;

const PORT: u16 = 7777;

const PAYLOAD: usize = 100;

const FLOWS: usize = 64;

/// How many times its capacity a server is asked.
const FACTOR: f64 = 5.0;

/// How much may be lost at a rate that holds: another tenant of the machine is no limit of the server.
const LOSS: f64 = 0.002;

/// Receive buffer of the server without a policy, bytes: that with one has as much at least.
const BUFFER: usize = 4 << 20;

#[derive(Debug, Args)]
pub(crate) struct Overload {
    /// The longest search for a capacity, s; five times as much is asked for a quarter of that.
    #[arg(long, default_value_t = 6.0)]
    seconds: f64,
    /// Rounds, each without, with, with and without a policy.
    #[arg(long, default_value_t = 2)]
    rounds: usize,
    /// Where packets are received.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "same-cpu,away,threaded,deferred")]
    placements: Vec<Placement>,
    /// What of the policy is compared with nothing.
    #[arg(long, value_enum, default_value_t = Part::Protect)]
    part: Part,
    /// Requests that may wait, if not the default.
    #[arg(long)]
    outstanding: Option<u32>,
    /// The CPU that sends.
    #[arg(long, default_value_t = 0)]
    cpu: u32,
    /// The CPU that serves.
    #[arg(long, default_value_t = 1)]
    server_cpu: u32,
}

/// What of the policy a server has.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Part {
    /// All of it.
    Protect,
    /// Old requests are shed.
    Shed,
    /// The guard alone, without shares.
    Guard,
}

impl Part {
    fn policy(self) -> Policy {
        match self {
            Self::Protect => Policy::protect(),
            Self::Shed => Policy { guard: None, fairness: None, ..Policy::protect() },
            Self::Guard => Policy { guard: Policy::protect().guard, ..Policy::default() },
        }
    }
}

/// What was seen of a server in a turn.
struct Turn {
    /// Transactions a second.
    capacity: f64,
    /// How many times that was offered in the end.
    factor: f64,
    /// Answers a second then.
    goodput: f64,
}

impl Overload {
    pub(crate) fn run(&self) -> anyhow::Result<ExitCode> {
        if cfg!(debug_assertions) {
            return super::run_optimized();
        }
        if !rustix::process::geteuid().is_root() {
            println!("SKIP bench overload: needs root for network namespaces and BPF");
            return Ok(ExitCode::SUCCESS);
        }
        ensure!(self.cpu != self.server_cpu, "CPU {} cannot both serve and ask", self.cpu);
        ensure!(self.rounds > 0 && self.seconds > 0.0, "there is nothing to do");
        let mut own = CpuSet::new();
        own.set(self.cpu as usize);
        sched_setaffinity(None, &own).with_context(|| format!("pinning the bench to CPU {}", self.cpu))?;
        println!("| received | policy | capacity /s | asked, times capacity | answered of capacity |");
        println!("|---|---|---|---|---|");
        for placement in &self.placements {
            if let Err(error) = self.compare(*placement) {
                println!("| {placement} | | not measured: {error:#} | | |");
            }
        }
        Ok(ExitCode::SUCCESS)
    }

    fn compare(&self, placement: Placement) -> anyhow::Result<()> {
        let _backlog = if placement.steers() { Backlog::deepen()? } else { None };
        let lab = Lab::builder().start()?;
        placement.set_up(&lab, self.server_cpu)?;
        let address = SocketAddr::from((lab.links()[0].receiver.ipv4[0], PORT));
        let builder = Builder::default()
            .targets(vec![address])
            .cpus(Some(vec![self.cpu]))
            .flows(FLOWS)
            .workload(Workload::Echo { payload_bytes: PAYLOAD })
            .backend(Backend::Xdp);
        let mut generator = lab.senders()[0].run(|| builder.start())??;
        let (mut without, mut with) = (Vec::new(), Vec::new());
        for _ in 0..self.rounds {
            for protect in [false, true, true, false] {
                let running = self.serve(&lab, address, placement, protect)?;
                placement.arrange(&lab, self.server_cpu)?;
                let turn = self.measure(&mut *generator, if protect { &with } else { &without })?;
                let all = running.stop()?;
                eprintln!(
                    "{placement}, {}: {:.0}/s, {:.0}/s at {:.1} times that{}",
                    if protect { "protect" } else { "none" },
                    turn.capacity,
                    turn.goodput,
                    turn.factor,
                    all.guard.map(|guard| format!(", {:?}", guard.counts)).unwrap_or_default()
                );
                if protect { &mut with } else { &mut without }.push(turn);
            }
        }
        row(placement, "none", &without);
        row(placement, "protect", &with);
        let capacity = |turns: &[Turn]| median(turns, |turn| turn.capacity);
        println!(
            "| {placement} | | with the policy {:.2} of that without | | |",
            capacity(&with) / capacity(&without)
        );
        Ok(())
    }

    fn serve(
        &self,
        lab: &Lab,
        address: SocketAddr,
        placement: Placement,
        protect: bool,
    ) -> anyhow::Result<Running> {
        let mut policy = if protect { self.part.policy() } else { Policy::default() };
        if let (Some(guard), Some(outstanding)) = (&mut policy.guard, self.outstanding) {
            guard.outstanding = outstanding;
        }
        policy.prefer_busy_poll = placement.polls().then_some(64);
        let mut builder = Server::builder()
            .bind(address)
            .workers(1)
            .cpus([self.server_cpu])
            .pinning(Pinning::Own)
            .sockets(Sockets::Reuseport)
            .backend(Calls::default())
            .overload(policy);
        if placement.polls() {
            builder = builder.busy_poll(Some(Duration::from_micros(50)));
        }
        if !protect {
            builder = builder.receive_buffer(BUFFER);
        }
        let running = lab.receiver().run(move || builder.start(|_| Echo))??;
        for fallback in running.fallbacks() {
            eprintln!("{}: {}", fallback.what, fallback.why);
        }
        Ok(running)
    }

    fn measure(&self, generator: &mut dyn Generator, before: &[Turn]) -> anyhow::Result<Turn> {
        let known = before.last().map(|turn| turn.capacity);
        let found = capacity::search(
            generator,
            &SearchOptions {
                max_loss: LOSS,
                slot: Duration::from_secs_f64((self.seconds / 20.0).clamp(0.05, 0.25)),
                drain: Duration::from_millis(60),
                start_per_second: 50e3,
                bracket: known.map(|rate| (rate / 1.2, rate * 1.2)),
                confirm: 1,
                excused: 1,
                budget: Duration::from_secs_f64(self.seconds),
                ..SearchOptions::default()
            },
        )?;
        let capacity = found.transactions_per_second;
        ensure!(capacity > 0.0, "no rate held");
        let mode = Mode::Rate { per_second: capacity * FACTOR };
        let duration = Duration::from_secs_f64(self.seconds / 4.0);
        // The first part is not judged: buffers that are full yet are answered from for a while.
        generator.run(&Slot { drain: Duration::from_millis(1), ..Slot::new(mode, duration / 2) })?;
        let seen = generator.run(&Slot { drain: Duration::from_millis(60), ..Slot::new(mode, duration) })?;
        Ok(Turn { capacity, factor: seen.offered_per_second / capacity, goodput: seen.answered_per_second })
    }
}

fn median(turns: &[Turn], of: impl Fn(&Turn) -> f64) -> f64 {
    stats::median(&turns.iter().map(of).collect::<Vec<_>>()).unwrap_or(0.0)
}

fn row(placement: Placement, policy: &str, turns: &[Turn]) {
    let range = |of: &dyn Fn(&Turn) -> f64| {
        let all = turns.iter().map(of);
        (median(turns, of), all.clone().fold(f64::INFINITY, f64::min), all.fold(0.0, f64::max))
    };
    let (capacity, lowest, highest) = range(&|turn| turn.capacity);
    let (goodput, least, most) = range(&|turn| turn.goodput / turn.capacity);
    println!(
        "| {placement} | {policy} | {:.0}k ({:.0} to {:.0}) | {:.1} | {:.0} % ({:.0} to {:.0}) |",
        capacity / 1e3,
        lowest / 1e3,
        highest / 1e3,
        median(turns, |turn| turn.factor),
        goodput * 100.0,
        least * 100.0,
        most * 100.0
    );
}
