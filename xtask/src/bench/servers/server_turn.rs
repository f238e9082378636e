//! One turn: capacity, the cost of a transaction, and goodput at five times the capacity.

use std::fmt;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{anyhow, bail, ensure};
use linerate_lab::Lab;
use linerate_lab::program::{RecipeValues, ServerProgram};
use linerate_load::capacity::{self, SearchEnd, SearchOptions};
use linerate_load::generator::{GeneratorOptions, LiveFrames};
use linerate_load::{Generator, LoadSlot, LoadWorkload, PacingMode};
use linerate_testkit::reflector::XdpService;

use super::candidate::ServerCandidate;
use super::{PORT, ServersBench};
use crate::bench::echo_load;

/// Bytes of UDP payload of an echo request.
const PAYLOAD: usize = 100;

const FLOWS: usize = 64;

// Time for a server to answer after its start.
const PATIENCE: Duration = Duration::from_secs(10);

/// Start of the first search, transactions per second.
const START: f64 = 50e3;

// Offered load of the overload measurement, as a multiple of capacity.
const OVERLOAD: f64 = 5.0;

// Share of capacity at which the cost of a transaction is measured: without losses.
const AT_EASE: f64 = 0.9;

/// The bracket of a search around the result of the previous one.
const NEIGHBOURHOOD: f64 = 1.15;

// Loss that is allowed at a rate that holds. A moment in which another tenant of the machine has
// the CPU is no limit of a server.
const LOSS: f64 = 0.002;

/// Texts of fallbacks of `linerate serve`. The server would be measured under a wrong name.
const FALLBACKS: [&str; 2] = ["mmsg is used instead", "guard against overload; none is used"];

pub(super) struct TurnSample {
    /// Transactions per second at the highest rate that held.
    pub(super) capacity: f64,
    /// Whether the generator was the limit, so that the result is a lower bound.
    pub(super) generator_bound: bool,
    /// Whether the search ended before a rate was confirmed.
    unconfirmed: bool,
    /// Load that was really offered under overload, as a multiple of the capacity.
    pub(super) overload_factor: f64,
    /// Answers per second under that load, as a share of the capacity.
    pub(super) goodput_ratio: f64,
    /// CPU time of the server's processes per transaction, ns; `None` if it runs in the kernel.
    pub(super) cpu_ns: Option<f64>,
}

/// What the turns of one placement have in common.
pub(super) struct TurnSetup<'a> {
    pub(super) settings: &'a ServersBench,
    pub(super) linerate: &'a Path,
    pub(super) lab: Lab,
}

/// A running server.
enum CandidateRun {
    Program(ServerProgram),
    // A program that runs only in the kernel.
    Kernel(#[expect(dead_code, reason = "held for its drop")] XdpService),
}

impl TurnSetup<'_> {
    fn address(&self) -> SocketAddr {
        (self.lab.links()[0].receiver.ipv4[0], PORT).into()
    }

    /// Starts a server, waits until it answers, and measures.
    pub(super) fn sample(
        &self,
        candidate: &ServerCandidate,
        hint: Option<f64>,
    ) -> anyhow::Result<TurnSample> {
        let directory = tempfile::tempdir()?;
        let host = self.lab.receiver();
        let recipe = candidate.recipe(self.linerate, &self.settings.cpu_list(), directory.path())?;
        let (mut server, workload) = match recipe {
            Some(recipe) => {
                let workers = self.settings.workers as usize;
                let values = RecipeValues { address: self.address(), workers, directory: directory.path() };
                let program = ServerProgram::start(host, &recipe, &values, None)?;
                (CandidateRun::Program(program), recipe.requests(directory.path())?)
            }
            None => {
                let interface = &self.lab.links()[0].receiver.interface;
                let service = host.run(|| XdpService::reflector().port(PORT).attach(interface))??;
                (CandidateRun::Kernel(service), LoadWorkload::Echo { payload_bytes: PAYLOAD })
            }
        };
        let sample = self.measure(candidate, &mut server, (&workload, directory.path()), hint);
        if let CandidateRun::Program(program) = server {
            program.stop(host);
        }
        sample
    }

    fn measure(
        &self,
        candidate: &ServerCandidate,
        server: &mut CandidateRun,
        (workload, directory): (&LoadWorkload, &Path),
        hint: Option<f64>,
    ) -> anyhow::Result<TurnSample> {
        // If a network stack receives requests, above all after RPS, fewer live frames than clones
        // arrive per second.
        let live_frames = if candidate.takes_frames { LiveFrames::Always } else { LiveFrames::Floods };
        let mut generator = self.generator(workload, live_frames)?;
        let begin = Instant::now();
        while !answers(&mut *generator)? {
            server.check()?;
            ensure!(begin.elapsed() < PATIENCE, "it answered nothing within {PATIENCE:?}");
        }
        check_fallbacks(directory)?;
        let search_result = capacity::search(&mut *generator, &self.search(hint))?;
        let capacity = search_result.transactions_per_second;
        ensure!(capacity > 0.0, "no rate held");
        let before = server.cpu_time();
        let outcome = generator.run(&LoadSlot::rate(capacity * AT_EASE, self.long_slot_duration()))?;
        let cpu_time = before.zip(server.cpu_time()).map(|(before, after)| after.saturating_sub(before));
        // Only one generator at a time can have the interface.
        drop(generator);
        let mut generator = self.generator(workload, LiveFrames::Always)?;
        let (overload_factor, goodput_ratio) = self.overload(&mut *generator, capacity)?;
        server.check()?;
        // A worker may answer a moment before the server prints its fallbacks.
        check_fallbacks(directory)?;
        Ok(TurnSample {
            capacity,
            generator_bound: search_result.generator_bound,
            unconfirmed: search_result.ended != SearchEnd::Confirmed,
            overload_factor,
            goodput_ratio,
            cpu_ns: cpu_time.map(|time| time as f64 / outcome.answered.max(1) as f64),
        })
    }

    fn generator(
        &self,
        workload: &LoadWorkload,
        live_frames: LiveFrames,
    ) -> anyhow::Result<Box<dyn Generator>> {
        let options = GeneratorOptions {
            workload: workload.clone(),
            live_frames,
            ..echo_load(self.address(), self.settings.generator_cpu, FLOWS, PAYLOAD)
        };
        Ok(self.lab.senders()[0].run(|| options.start())??)
    }

    fn search(&self, hint: Option<f64>) -> SearchOptions<'static> {
        SearchOptions {
            max_loss: LOSS,
            slot: Duration::from_secs_f64((self.settings.seconds / 16.0).clamp(0.05, 0.25)),
            drain: Duration::from_millis(60),
            start_per_second: START,
            bracket: hint.map(|rate| (rate / NEIGHBOURHOOD, rate * NEIGHBOURHOOD)),
            confirm: 1,
            budget: Duration::from_secs_f64(self.settings.seconds),
            ..SearchOptions::default()
        }
    }

    /// A quarter of the time of a search.
    fn long_slot_duration(&self) -> Duration {
        Duration::from_secs_f64(self.settings.seconds / 4.0)
    }

    // The offered multiple of the capacity, and the share of the capacity that was answered. The
    // first part does not count, because the server answers from full buffers then.
    fn overload(&self, generator: &mut dyn Generator, capacity: f64) -> anyhow::Result<(f64, f64)> {
        let mode = PacingMode::Rate { per_second: capacity * OVERLOAD };
        let slot = |drain| LoadSlot {
            drain: Duration::from_millis(drain),
            ..LoadSlot::new(mode, self.long_slot_duration())
        };
        generator.run(&slot(1))?;
        let outcome = generator.run(&slot(60))?;
        Ok((outcome.offered_per_second / capacity, outcome.answered_per_second / capacity))
    }
}

impl CandidateRun {
    // Fails with the last output of the server if it has ended.
    fn check(&mut self) -> anyhow::Result<()> {
        if let Self::Program(program) = self {
            program.check()?;
        }
        Ok(())
    }

    fn cpu_time(&self) -> Option<u64> {
        match self {
            Self::Program(program) => cpu_time(program.id()),
            Self::Kernel(_) => None,
        }
    }
}

// CPU time of a process, its threads and descendants so far, ns (`/proc/PID/task/TID/schedstat`).
// Includes softirqs on top of them, unless the kernel accounts these separately
// (CONFIG_IRQ_TIME_ACCOUNTING).
fn cpu_time(process: u32) -> Option<u64> {
    let mut nanoseconds = 0;
    for task in std::fs::read_dir(format!("/proc/{process}/task")).ok()?.flatten() {
        let read = |file: &str| std::fs::read_to_string(task.path().join(file)).unwrap_or_default();
        // A thread that has just ended is left out: its time is too short to matter in a
        // measurement.
        nanoseconds += read("schedstat").split(' ').next()?.parse().unwrap_or(0);
        let children = read("children");
        for child in children.split_whitespace().filter_map(|child| child.parse().ok()) {
            nanoseconds += cpu_time(child).unwrap_or(0);
        }
    }
    Some(nanoseconds)
}

/// Fails with the fallback that the server printed.
fn check_fallbacks(directory: &Path) -> anyhow::Result<()> {
    let output = std::fs::read_to_string(directory.join("linerate-output")).unwrap_or_default();
    let is_fallback = |line: &&str| FALLBACKS.iter().any(|text| line.contains(text));
    output.lines().find(is_fallback).map_or(Ok(()), |fallback| Err(anyhow!("{fallback}")))
}

/// Whether a server answers a low rate of requests correctly. A name server may answer before it
/// has read its zones.
fn answers(generator: &mut dyn Generator) -> anyhow::Result<bool> {
    let low_rate_slot =
        LoadSlot { drain: Duration::from_millis(100), ..LoadSlot::rate(2_000.0, Duration::from_millis(50)) };
    let outcome = generator.run(&low_rate_slot)?;
    if outcome.corrupt > 0 {
        bail!("{} of its answers were wrong", outcome.corrupt);
    }
    Ok(outcome.lost == 0 && outcome.codes.iter().all(|code| code.code == 0 || code.count == 0))
}

impl fmt::Display for TurnSample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:.0}/s{}{}, {:.1} % of it at {:.1} times",
            self.capacity,
            if self.generator_bound { " (the generator's limit)" } else { "" },
            if self.unconfirmed { " (unconfirmed)" } else { "" },
            self.goodput_ratio * 100.0,
            self.overload_factor
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_that_fell_back_is_not_measured() -> anyhow::Result<()> {
        let directory = tempfile::tempdir()?;
        // A reference server writes no output.
        check_fallbacks(directory.path())?;
        for (output, fallback) in [
            ("", None),
            ("serving echo on 192.0.2.1:7\n", None),
            (
                "linerate: AF_XDP, mmsg is used instead: no memory\nserving\n",
                Some("linerate: AF_XDP, mmsg is used instead: no memory"),
            ),
            (
                "a guard against overload; none is used: why\n",
                Some("a guard against overload; none is used: why"),
            ),
        ] {
            std::fs::write(directory.path().join("linerate-output"), output)?;
            let error = check_fallbacks(directory.path()).err().map(|error| error.to_string());
            assert_eq!(error.as_deref(), fallback);
        }
        Ok(())
    }
}
