//! Goodput and latency of a server below and above its capacity, with and without the overload
//! policy, for each placement of packet processing; and the loss of capacity by the policy.

mod placement;

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::ensure;
use clap::{Args, ValueEnum};
use linerate_engine::{
    Action, Backend as Calls, Echo, OverloadPolicy as Policy, Request, RunningServer, Server, Service,
    SocketMode, WorkerPinning,
};
use linerate_lab::Lab;
use linerate_load::capacity::{self, SearchOptions};
use linerate_load::generator::LiveFrames;
use linerate_load::{Generator, LoadSlot, PacingMode, stats};

use super::placement::LongBacklog;
use crate::machine;
use placement::SoftirqPlacement;

const PORT: u16 = 7777;

const PAYLOAD: usize = 100;

const FLOWS: usize = 64;

// Offered load as multiples of the capacity without a policy.
const FACTORS: [f64; 4] = [0.5, 1.0, 2.0, 5.0];

// Loss that is allowed at a rate that holds, because another tenant of the machine is no limit of
// the server.
const LOSS: f64 = 0.002;

/// Receive buffer of the server without a policy, bytes. A server with a policy has at least as
/// much.
const BUFFER: usize = 4 << 20;

#[derive(Debug, Args)]
pub(crate) struct OverloadBench {
    /// Seconds per search for a capacity; each multiple of it is measured for a quarter of that.
    #[arg(long, default_value_t = 6.0)]
    seconds: f64,
    /// Rounds of four turns: without, with, with and without the policy.
    #[arg(long, default_value_t = 2)]
    rounds: usize,
    /// Where the server's packets are processed.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "same-cpu,away,threaded,deferred")]
    placements: Vec<SoftirqPlacement>,
    /// The part of the policy that is compared with no policy.
    #[arg(long, value_enum, default_value_t = PolicyPart::Protect)]
    part: PolicyPart,
    /// The longest wait that the guard allows, in ms, instead of the default
    #[arg(long)]
    guard_wait: Option<f64>,
    /// CPU time of the service per request, in us
    #[arg(long, default_value_t = 0)]
    work_us: u32,
    /// The CPU that sends.
    #[arg(long, default_value_t = 0)]
    cpu: u32,
    /// The CPU that serves.
    #[arg(long, default_value_t = 1)]
    server_cpu: u32,
}

/// The part of the policy that a server has.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum PolicyPart {
    /// The whole policy.
    Protect,
    /// Only shedding of old requests.
    Shed,
    /// Only the guard, without fair shares.
    Guard,
}

impl PolicyPart {
    fn policy(self) -> Policy {
        match self {
            Self::Protect => Policy::protect(),
            Self::Shed => Policy { guard: None, fairness: None, ..Policy::protect() },
            Self::Guard => Policy { guard: Policy::protect().guard, ..Policy::default() },
        }
    }
}

struct OverloadTurn {
    /// Transactions per second.
    capacity: f64,
    /// The measurement at each of [`FACTORS`].
    points: Vec<OverloadPoint>,
}

struct OverloadPoint {
    /// The multiple that was actually offered.
    factor: f64,
    /// Answers per second, as a share of the capacity.
    goodput: f64,
    median_ms: f64,
    p99_ms: f64,
}

impl OverloadBench {
    pub(crate) fn run(&self) -> anyhow::Result<ExitCode> {
        if cfg!(debug_assertions) {
            return super::run_optimized();
        }
        if let Some(skipped) = machine::skip_unless_root("bench overload") {
            return Ok(skipped);
        }
        ensure!(self.cpu != self.server_cpu, "CPU {} cannot both serve and ask", self.cpu);
        ensure!(self.rounds > 0 && self.seconds > 0.0, "there is nothing to do");
        machine::pin(None, self.cpu)?;
        println!("| received | policy | asked, times capacity | answered of capacity | median ms | p99 ms |");
        println!("|---|---|---|---|---|---|");
        for placement in &self.placements {
            if let Err(error) = self.compare(*placement) {
                println!("| {placement} | | not measured: {error:#} | | | |");
            }
        }
        Ok(ExitCode::SUCCESS)
    }

    fn compare(&self, placement: SoftirqPlacement) -> anyhow::Result<()> {
        let _backlog = if placement.steers() { LongBacklog::set()? } else { None };
        let lab = Lab::builder().start()?;
        placement.set_up(&lab, self.server_cpu)?;
        let address = SocketAddr::from((lab.links()[0].receiver.ipv4[0], PORT));
        let builder = super::echo_load(address, self.cpu, FLOWS, PAYLOAD).live_frames(LiveFrames::Never);
        let mut generator = lab.senders()[0].run(|| builder.start())??;
        let (mut unprotected_turns, mut protected_turns): (Vec<OverloadTurn>, Vec<OverloadTurn>) =
            (Vec::new(), Vec::new());
        for _ in 0..self.rounds {
            for is_protected in [false, true, true, false] {
                let server = self.serve(&lab, address, placement, is_protected)?;
                placement.set_for_server(&lab, self.server_cpu)?;
                let known_capacity = if is_protected { &protected_turns } else { &unprotected_turns }
                    .last()
                    .map(|turn| turn.capacity);
                let capacity = self.capacity(&mut *generator, known_capacity)?;
                let reference = unprotected_turns.first().map_or(capacity, |turn| turn.capacity);
                let points = self.points(&mut *generator, reference)?;
                let server_report = server.stop()?;
                eprintln!(
                    "{placement}, {}: {capacity:.0}/s{}",
                    if is_protected { "protect" } else { "none" },
                    server_report.guard.map(|guard| format!(", {guard:?}")).unwrap_or_default()
                );
                if is_protected { &mut protected_turns } else { &mut unprotected_turns }
                    .push(OverloadTurn { capacity, points });
            }
        }
        rows(placement, "none", &unprotected_turns);
        rows(placement, "protect", &protected_turns);
        let capacity = |turns: &[OverloadTurn]| {
            let capacities: Vec<f64> = turns.iter().map(|turn| turn.capacity).collect();
            stats::median(&capacities).unwrap_or(0.0)
        };
        let (unprotected_turns, protected_turns) = (capacity(&unprotected_turns), capacity(&protected_turns));
        println!(
            "| {placement} | | capacity {:.0}k/s without, {:.0}k/s with: {:.2} | | | |",
            unprotected_turns / 1e3,
            protected_turns / 1e3,
            protected_turns / unprotected_turns
        );
        Ok(())
    }

    fn serve(
        &self,
        lab: &Lab,
        address: SocketAddr,
        placement: SoftirqPlacement,
        is_protected: bool,
    ) -> anyhow::Result<RunningServer> {
        let mut policy = if is_protected { self.part.policy() } else { Policy::default() };
        if let (Some(guard), Some(milliseconds)) = (&mut policy.guard, self.guard_wait) {
            guard.wait = Duration::from_secs_f64(milliseconds / 1e3);
        }
        policy.prefer_busy_poll = placement.polls().then_some(64);
        let mut builder = Server::builder()
            .bind(address)
            .workers(1)
            .cpus([self.server_cpu])
            .pinning(WorkerPinning::Own)
            .sockets(SocketMode::Reuseport)
            .backend(Calls::default())
            .overload(policy);
        if placement.polls() {
            builder = builder.busy_poll(Some(Duration::from_micros(50)));
        }
        if !is_protected {
            builder = builder.receive_buffer(BUFFER);
        }
        let work = Duration::from_micros(self.work_us.into());
        let server = lab.receiver().run(move || builder.start(move |_| WorkingEcho(work)))??;
        for fallback in server.fallbacks() {
            eprintln!("{fallback}");
        }
        Ok(server)
    }

    fn capacity(&self, generator: &mut dyn Generator, known_capacity: Option<f64>) -> anyhow::Result<f64> {
        let search_result = capacity::search(
            generator,
            &SearchOptions {
                max_loss: LOSS,
                slot: Duration::from_secs_f64((self.seconds / 20.0).clamp(0.05, 0.25)),
                drain: Duration::from_millis(60),
                start_per_second: 10e3,
                bracket: known_capacity.map(|rate| (rate / 1.2, rate * 1.2)),
                confirm: 1,
                excused: 1,
                budget: Duration::from_secs_f64(self.seconds),
                ..SearchOptions::default()
            },
        )?;
        ensure!(search_result.transactions_per_second > 0.0, "no rate held");
        if let Some(reason) = search_result.bound_because.last() {
            eprintln!("the capacity is a lower bound: {reason}");
        }
        Ok(search_result.transactions_per_second)
    }

    fn points(&self, generator: &mut dyn Generator, capacity: f64) -> anyhow::Result<Vec<OverloadPoint>> {
        let duration = Duration::from_secs_f64(self.seconds / 4.0);
        let max_rate = FACTORS.iter().copied().fold(0.0, f64::max) * capacity;
        FACTORS
            .iter()
            .map(|factor| {
                let mode = PacingMode::Rate { per_second: capacity * factor };
                let slot = LoadSlot::new(mode, duration).permit_live_frames(max_rate, 1);
                // The first part is not judged, because the server still answers from full buffers
                // for a while.
                generator.run(&LoadSlot {
                    drain: Duration::from_millis(1),
                    duration: duration / 2,
                    ..slot
                })?;
                let slot = LoadSlot { drain: Duration::from_millis(300), ..slot };
                let outcome = generator.run(&slot)?;
                let quantile = |quantile_share: f64| {
                    outcome.latency_ns.quantile(quantile_share).unwrap_or(0) as f64 / 1e6
                };
                Ok(OverloadPoint {
                    factor: outcome.offered_per_second / capacity,
                    goodput: outcome.answered_per_second / capacity,
                    median_ms: quantile(0.5),
                    p99_ms: quantile(0.99),
                })
            })
            .collect()
    }
}

/// An echo that works for this time per request before it answers.
struct WorkingEcho(Duration);

impl Service for WorkingEcho {
    fn answer(&mut self, request: &Request<'_>, reply: &mut [u8]) -> Action {
        let begin = Instant::now();
        while begin.elapsed() < self.0 {
            std::hint::spin_loop();
        }
        Echo.answer(request, reply)
    }
}

// Median and range of a figure over all turns.
fn spread(turns: &[OverloadTurn], index: usize, value_of: fn(&OverloadPoint) -> f64) -> (f64, f64, f64) {
    let values: Vec<f64> = turns.iter().filter_map(|turn| turn.points.get(index)).map(value_of).collect();
    let extremes =
        (values.iter().copied().fold(f64::INFINITY, f64::min), values.iter().copied().fold(0.0, f64::max));
    (stats::median(&values).unwrap_or(0.0), extremes.0, extremes.1)
}

fn rows(placement: SoftirqPlacement, policy: &str, turns: &[OverloadTurn]) {
    for index in 0..FACTORS.len() {
        let (factor, ..) = spread(turns, index, |point| point.factor);
        let (goodput, min_goodput, max_goodput) = spread(turns, index, |point| point.goodput * 100.0);
        let (median, min_median, max_median) = spread(turns, index, |point| point.median_ms);
        let (p99, ..) = spread(turns, index, |point| point.p99_ms);
        println!(
            "| {placement} | {policy} | {factor:.1} | {goodput:.0} % ({min_goodput:.0} to {max_goodput:.0}) \
             | {median:.2} ({min_median:.2} to {max_median:.2}) | {p99:.1} |"
        );
    }
}
