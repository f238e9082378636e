//! `cargo xtask soak`: a server at four fifths of its capacity, while its interface goes down and up, the MTU changes, a worker
//! panics, and ports come and go. At the end its memory is as it was, every worker answers, and every request has a fate.

mod books;
mod counted;
mod event;
mod server;

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use clap::Args;
use linerate_lab::Lab;
use linerate_measure::capacity::{self, SearchOptions};
use linerate_measure::generator::{Backend, Builder};
use linerate_measure::{Generator, Slot, Workload, stats};
use rustix::thread::{CpuSet, sched_setaffinity};

use books::{Books, Load};
use counted::Counted;
use event::Event;
use server::{Calls, Process};

const PORT: u16 = 7777;

const PAYLOAD: usize = 100;

/// Flows enough for the kernel's hash to reach every worker.
const FLOWS: usize = 64;

/// The share of its capacity that a server is asked.
const LOAD: f64 = 0.8;

/// How often a capacity is looked for.
const SEARCHES: u32 = 3;

/// How long a server may take to answer all again after an event.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long answers may take at the end of a round. It is over sooner when there were none for a tenth to a quarter of that.
const DRAIN: Duration = Duration::from_secs(5);

/// How much more memory it may have in the last quarter than in the first: what an allocator keeps back in one thread or another.
const ALLOWED_GROWTH: f64 = 1.05;

/// And so much more whatever it had, bytes.
const ALLOWED_BYTES: f64 = 512e3;

#[derive(Debug, Args)]
pub(crate) struct Soak {
    /// How long, minutes.
    #[arg(long, default_value_t = 10.0)]
    minutes: f64,
    /// From one event to the next, s.
    #[arg(long, default_value_t = 2.0)]
    period: f64,
    /// How the server calls the kernel.
    #[arg(long, value_enum, default_value_t = Calls::Mmsg)]
    backend: Calls,
    /// Worker threads, all on the server's CPU.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
    workers: u32,
    /// The CPU that serves.
    #[arg(long, default_value_t = 1)]
    server_cpu: u32,
    /// The CPU that sends.
    #[arg(long, default_value_t = 0)]
    cpu: u32,
    /// Be the server: what this starts.
    #[arg(long, hide = true)]
    serve: bool,
}

/// What there was to see.
struct Seen {
    /// Resident memory after each round, bytes.
    memory: Vec<f64>,
    events: [u32; Event::ALL.len()],
    books: Books,
    /// Requests of ours that made a worker panic.
    poison: u64,
}

impl Soak {
    pub(crate) fn run(&self) -> anyhow::Result<ExitCode> {
        if self.serve {
            return server::serve(self.backend, self.workers, self.server_cpu).map(|()| ExitCode::SUCCESS);
        }
        if cfg!(debug_assertions) {
            return crate::bench::run_optimized();
        }
        ensure!(
            self.minutes > 0.0 && self.period >= 0.5,
            "give some --minutes, and a --period of 0.5 or more"
        );
        if !rustix::process::geteuid().is_root() {
            println!("SKIP soak: needs root for network namespaces and BPF");
            return Ok(ExitCode::SUCCESS);
        }
        pin(self.cpu)?;
        let lab = Lab::builder().queues(1).start()?;
        let address = SocketAddr::from((lab.links()[0].receiver.ipv4[0], PORT));
        let mut server = Process::start(&lab, self.backend, self.workers, self.server_cpu)?;
        for fallback in server.open(address)? {
            println!("the server fell back: {fallback}");
        }
        let builder = Builder::default()
            .targets(vec![address])
            .cpus(Some(vec![self.cpu]))
            .flows(FLOWS)
            .workload(Workload::Echo { payload_bytes: PAYLOAD })
            .backend(Backend::Xdp);
        let mut generator = lab.senders()[0].run(|| builder.start())??;
        answers_all(&mut *generator).context("before anything happened")?;
        let capacity = find_capacity(&mut *generator)?;
        println!("capacity {capacity:.0}/s, offered {:.0}/s, {} minutes", capacity * LOAD, self.minutes);
        let seen = self.rounds(&lab, address, &mut server, &mut *generator, capacity * LOAD)?;
        self.judge(&seen, &mut server)
    }

    /// Goes on until the time is over.
    fn rounds(
        &self,
        lab: &Lab,
        address: SocketAddr,
        server: &mut Process,
        generator: &mut dyn Generator,
        per_second: f64,
    ) -> anyhow::Result<Seen> {
        let mut seen = Seen {
            memory: Vec::new(),
            events: [0; Event::ALL.len()],
            books: Books::new(self.workers),
            poison: 0,
        };
        let (begun, time) = (Instant::now(), Duration::from_secs_f64(self.minutes * 60.0));
        let mut before = Counted::settled(lab, server)?;
        let period = Duration::from_secs_f64(self.period);
        for event in Event::ALL.into_iter().cycle() {
            if begun.elapsed() >= time {
                break;
            }
            let slot = Slot { drain: DRAIN, ..Slot::rate(per_second, period) };
            let (outcome, happened) = std::thread::scope(|scope| {
                let happening = scope.spawn(|| {
                    std::thread::sleep(period / 2);
                    event.happen(lab, address, server)
                });
                (generator.run(&slot), happening.join())
            });
            let asked = match happened {
                Ok(asked) => asked.with_context(|| format!("{event}"))?,
                Err(_) => bail!("{event}: the thread that does it panicked"),
            };
            let outcome = outcome.with_context(|| format!("{event}: the load"))?;
            let mut load = Load::of(&outcome);
            load += answers_all(generator).with_context(|| format!("after {event}"))?;
            let after = Counted::settled(lab, server)?;
            seen.books.add(event, load, asked, &before, &after);
            before = after;
            seen.events[event as usize] += 1;
            seen.poison += u64::from(event == Event::Panic);
            let memory = server.resident_bytes()?;
            eprintln!("{:4.0} s: {event}; {:.2} MB resident", begun.elapsed().as_secs_f64(), memory / 1e6);
            seen.memory.push(memory);
        }
        Ok(seen)
    }

    fn judge(&self, seen: &Seen, server: &mut Process) -> anyhow::Result<ExitCode> {
        for (event, count) in Event::ALL.into_iter().zip(seen.events) {
            println!("{count:4} times: {event}");
        }
        print!("{}", seen.books);
        let counts = server.counts()?;
        let panics = counts.restarts == seen.poison && counts.panicked >= seen.poison;
        println!(
            "{}: {} panics, {} restarts, {} requests lost with them",
            word(panics),
            seen.poison,
            counts.restarts,
            counts.panicked
        );
        let balanced = seen.books.balanced();
        println!("{}: every request has a fate", word(balanced));
        let flat = is_flat(&seen.memory);
        println!("ok: all flows were answered after each event");
        Ok(if panics && balanced && flat { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// Whether memory stayed as it was once everything had happened once: the first panic and the first port take what is
/// then kept for the next.
fn is_flat(memory: &[f64]) -> bool {
    let settled = memory.get(Event::ALL.len()..).unwrap_or_default();
    let quarter = (settled.len() / 4).max(1).min(settled.len());
    let (first, last) =
        (stats::median(&settled[..quarter]), stats::median(&settled[settled.len() - quarter..]));
    let (Some(first), Some(last)) = (first, last) else {
        println!("FAILED: resident memory: too short a time to see, give more --minutes");
        return false;
    };
    let flat = last <= (first * ALLOWED_GROWTH).max(first + ALLOWED_BYTES);
    println!(
        "{}: resident memory {:.2} MB in the first quarter, {:.2} MB in the last, of {} rounds",
        word(flat),
        first / 1e6,
        last / 1e6,
        settled.len()
    );
    flat
}

fn word(kept: bool) -> &'static str {
    if kept { "ok" } else { "FAILED" }
}

/// Waits until every flow is answered all it asks, which no worker that is stuck lets happen. Since sockets are queues, all that
/// was asked before is then behind. What was asked and answered meanwhile.
fn answers_all(generator: &mut dyn Generator) -> anyhow::Result<Load> {
    let begun = Instant::now();
    let leisurely =
        Slot { drain: Duration::from_millis(200), ..Slot::rate(10_000.0, Duration::from_millis(50)) };
    let mut load = Load::default();
    loop {
        let outcome = generator.run(&leisurely)?;
        ensure!(outcome.corrupt == 0, "{} answers were wrong", outcome.corrupt);
        load += Load::of(&outcome);
        if outcome.lost == 0 {
            return Ok(load);
        }
        let (lost, sent) = (outcome.lost, outcome.sent);
        ensure!(begun.elapsed() < PATIENCE, "{lost} of {sent} requests lost, still, {PATIENCE:?}");
    }
}

/// The server's capacity, transactions a second.
fn find_capacity(generator: &mut dyn Generator) -> anyhow::Result<f64> {
    let search = SearchOptions {
        max_loss: 0.002,
        start_per_second: 20e3,
        budget: Duration::from_secs(8),
        confirm: 1,
        ..SearchOptions::default()
    };
    // While others keep the machine's CPUs no rate holds; that passes.
    for _ in 0..SEARCHES {
        let capacity = capacity::search(generator, &search)?.transactions_per_second;
        if capacity > 0.0 {
            return Ok(capacity);
        }
    }
    bail!("no rate held in {SEARCHES} searches: is the machine busy with something else?")
}

/// Puts the calling thread on one CPU.
fn pin(cpu: u32) -> anyhow::Result<()> {
    let mut set = CpuSet::new();
    ensure!((cpu as usize) < CpuSet::MAX_CPU, "there is no CPU {cpu}");
    set.set(cpu as usize);
    sched_setaffinity(None, &set).with_context(|| format!("pinning to CPU {cpu}: two CPUs are needed"))
}
