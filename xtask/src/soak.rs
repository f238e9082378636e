//! `cargo xtask soak`: runs a server at four fifths of its capacity, while its interface goes down
//! and up, the MTU changes, a worker panics, and ports open and close. At the end its memory is as
//! before, every worker answers, and every request has a fate.

mod accounting;
mod counters;
mod event;
mod report;
mod server;

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use clap::Args;
use linerate_engine::Counts;
use linerate_lab::Lab;
use linerate_load::capacity::{self, SearchOptions};
use linerate_load::{Generator, LoadSlot};

use accounting::{RoundLoad, SoakAccounting};
use counters::PathCounters;
use event::SoakEvent;
use server::{SoakBackend, SoakServer};

use crate::machine;

const PORT: u16 = 7777;

const PAYLOAD: usize = 100;

// Enough flows for the kernel's hash to reach every worker.
const FLOWS: usize = 64;

// Load as a share of the server's capacity.
const LOAD: f64 = 0.8;

/// Maximum number of searches for a capacity.
const SEARCHES: u32 = 3;

// Time for a server to answer all flows after an event.
const PATIENCE: Duration = Duration::from_secs(10);

/// The longest wait for answers at the end of a round. The wait ends earlier when no answer arrives
/// for a tenth to a quarter of this time.
const DRAIN: Duration = Duration::from_secs(5);

#[derive(Debug, Args)]
pub(crate) struct SoakCommand {
    /// Duration, in minutes.
    #[arg(long, default_value_t = 10.0)]
    minutes: f64,
    /// Time from one event to the next, in seconds.
    #[arg(long, default_value_t = 2.0)]
    period: f64,
    /// Backend of the server.
    #[arg(long, value_enum, default_value_t = SoakBackend::Mmsg)]
    backend: SoakBackend,
    /// Worker threads, all on the server's CPU.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
    workers: u32,
    /// The CPU that serves.
    #[arg(long, default_value_t = 1)]
    server_cpu: u32,
    /// The CPU that sends.
    #[arg(long, default_value_t = 0)]
    cpu: u32,
    /// Run as the server; only the soak itself uses this.
    #[arg(long, hide = true)]
    serve: bool,
}

/// What the soak saw. It ends early, and prints nothing, if a flow is not answered again after an event.
struct SoakObservation {
    /// Transactions per second.
    capacity: f64,
    /// Resident memory after each round, bytes.
    memory: Vec<f64>,
    events: [u32; SoakEvent::ALL.len()],
    accounting: SoakAccounting,
    /// Requests of this chore that made a worker panic.
    poison: u64,
    total: Counts,
}

impl SoakCommand {
    pub(crate) fn run(&self) -> anyhow::Result<ExitCode> {
        if self.serve {
            return server::serve(self).map(|()| ExitCode::SUCCESS);
        }
        if cfg!(debug_assertions) {
            return crate::bench::run_optimized();
        }
        ensure!(
            self.minutes > 0.0 && self.period >= 0.5,
            "give some --minutes, and a --period of 0.5 or more"
        );
        if let Some(exit_code) = machine::skip_unless_root("soak") {
            return Ok(exit_code);
        }
        machine::pin(None, self.cpu)?;
        let lab = Lab::builder().queues(1).start()?;
        let address = SocketAddr::from((lab.links()[0].receiver.ipv4[0], PORT));
        let mut server = SoakServer::start(&lab)?;
        for fallback in server.open(address)? {
            println!("the server fell back: {fallback}");
        }
        let options = crate::bench::echo_load(address, self.cpu, FLOWS, PAYLOAD);
        let mut generator = lab.senders()[0].run(|| options.start())??;
        await_all_answered(&mut *generator).context("before anything happened")?;
        let capacity = find_capacity(&mut *generator)?;
        println!("capacity {capacity:.0}/s, offered {:.0}/s, {} minutes", capacity * LOAD, self.minutes);
        let mut observation = SoakObservation {
            capacity,
            memory: Vec::new(),
            events: [0; SoakEvent::ALL.len()],
            accounting: SoakAccounting::new(self.workers),
            poison: 0,
            total: Counts::default(),
        };
        self.rounds(&lab, address, &mut server, &mut *generator, &mut observation)?;
        print!("{observation}");
        Ok(machine::exit_code(observation.passes()))
    }

    /// Runs rounds until the time is over.
    fn rounds(
        &self,
        lab: &Lab,
        address: SocketAddr,
        server: &mut SoakServer,
        generator: &mut dyn Generator,
        observation: &mut SoakObservation,
    ) -> anyhow::Result<()> {
        let (begin, time) = (Instant::now(), Duration::from_secs_f64(self.minutes * 60.0));
        let mut before = PathCounters::read_settled(lab, server)?;
        let period = Duration::from_secs_f64(self.period);
        for event in SoakEvent::ALL.into_iter().cycle() {
            if begin.elapsed() >= time {
                break;
            }
            let slot = LoadSlot { drain: DRAIN, ..LoadSlot::rate(observation.capacity * LOAD, period) };
            let (outcome, event_result) = std::thread::scope(|scope| {
                let event_thread = scope.spawn(|| {
                    std::thread::sleep(period / 2);
                    event.cause(lab, address, server)
                });
                (generator.run(&slot), event_thread.join())
            });
            let extra_requests = match event_result {
                Ok(extra_requests) => extra_requests.with_context(|| format!("{event}"))?,
                Err(_) => bail!("{event}: the thread that does it panicked"),
            };
            let outcome = outcome.with_context(|| format!("{event}: the load"))?;
            let mut load = RoundLoad::from_outcome(&outcome);
            load += await_all_answered(generator).with_context(|| format!("after {event}"))?;
            let after = PathCounters::read_settled(lab, server)?;
            observation.accounting.add(event, load, extra_requests, &before, &after);
            before = after;
            observation.events[event as usize] += 1;
            observation.poison += u64::from(event == SoakEvent::Panic);
            let memory = server.resident_bytes()?;
            eprintln!("{:4.0} s: {event}; {:.2} MB resident", begin.elapsed().as_secs_f64(), memory / 1e6);
            observation.memory.push(memory);
        }
        observation.total = server.counts()?;
        Ok(())
    }
}

// Waits until every flow has all answers, which a stuck worker would prevent. A socket is a queue,
// so all earlier requests are then processed. Returns the requests and answers of this wait.
fn await_all_answered(generator: &mut dyn Generator) -> anyhow::Result<RoundLoad> {
    let begin = Instant::now();
    let low_rate_slot =
        LoadSlot { drain: Duration::from_millis(200), ..LoadSlot::rate(10_000.0, Duration::from_millis(50)) };
    let mut load = RoundLoad::default();
    loop {
        let outcome = generator.run(&low_rate_slot)?;
        ensure!(outcome.corrupt == 0, "{} answers were wrong", outcome.corrupt);
        load += RoundLoad::from_outcome(&outcome);
        if outcome.lost == 0 {
            return Ok(load);
        }
        let (lost_count, sent_count) = (outcome.lost, outcome.sent);
        ensure!(
            begin.elapsed() < PATIENCE,
            "{lost_count} of {sent_count} requests lost, still, {PATIENCE:?}"
        );
    }
}

/// The server's capacity, transactions per second.
fn find_capacity(generator: &mut dyn Generator) -> anyhow::Result<f64> {
    let search = SearchOptions {
        max_loss: 0.002,
        start_per_second: 20e3,
        budget: Duration::from_secs(8),
        confirm: 1,
        ..SearchOptions::default()
    };
    // While other programs use the machine's CPUs, no rate holds. This passes.
    for _ in 0..SEARCHES {
        let capacity = capacity::search(generator, &search)?.transactions_per_second;
        if capacity > 0.0 {
            return Ok(capacity);
        }
    }
    bail!("no rate held in {SEARCHES} searches: is the machine busy with something else?")
}
