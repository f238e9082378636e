//! One turn: capacity, the cost of a transaction, and goodput at five times the capacity.

use std::fmt;
use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use linerate_host::Known;
use linerate_load::capacity::{self, SearchEnd, SearchOptions};
use linerate_load::generator::LiveFrames;
use linerate_load::perf::MachineCounters;
use linerate_load::{Generator, LoadSlot, PacingMode};
use serde::Serialize;

use super::candidate::{CandidateRun, ServerCandidate};
use super::cpu_time;
use super::testbed::{GeneratorPurpose, ServersTestbed};
use super::workload::ServerProtocol;

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

/// The method of a turn.
pub(super) struct TurnMethod {
    seconds: f64,
}

#[derive(Debug, Clone, Serialize)]
pub(super) struct TurnSample {
    /// Transactions per second at the highest rate that held.
    #[serde(rename = "capacity_per_second")]
    pub(super) capacity: f64,
    /// Whether the generator was the limit, so that the result is a lower bound.
    pub(super) generator_bound: bool,
    /// Whether the search ended before a rate was confirmed.
    pub(super) unconfirmed: bool,
    /// Load that was really offered under overload, as a multiple of the capacity.
    pub(super) overload_factor: f64,
    /// Answers per second under that load, as a share of the capacity.
    pub(super) goodput_ratio: f64,
    /// Cycles of the whole machine per transaction, including the generator's.
    pub(super) cycles_per_transaction: Known<f64>,
    /// Instructions of the whole machine per transaction, including the generator's.
    pub(super) instructions_per_transaction: Known<f64>,
    /// CPU time of the server's processes per transaction, ns.
    pub(super) cpu_ns_per_transaction: Known<f64>,
}

impl TurnMethod {
    pub(super) fn new(seconds: f64) -> Self {
        Self { seconds }
    }

    /// Starts a server, waits until it answers, and measures.
    pub(super) fn sample(
        &self,
        testbed: &mut ServersTestbed,
        candidate: &ServerCandidate,
        hint: Option<f64>,
    ) -> anyhow::Result<TurnSample> {
        testbed.wait_until_free()?;
        testbed.clear_programs()?;
        let mut candidate_run = candidate.start(testbed)?;
        let log = testbed.log();
        let live_frames = if candidate.takes_frames() { LiveFrames::Always } else { LiveFrames::Floods };
        let generator = testbed.generator(GeneratorPurpose { protocol: candidate.protocol, live_frames })?;
        let begin = Instant::now();
        while !answers(generator, candidate.protocol)? {
            candidate_run.check(&log)?;
            ensure!(begin.elapsed() < PATIENCE, "it answered nothing within {PATIENCE:?}");
        }
        let search_result = capacity::search(generator, &self.search(hint))?;
        let capacity = search_result.transactions_per_second;
        ensure!(capacity > 0.0, "no rate held");
        let cost = self.cost(generator, capacity, &candidate_run)?;
        let generator = testbed
            .generator(GeneratorPurpose { protocol: candidate.protocol, live_frames: LiveFrames::Always })?;
        let (overload_factor, goodput_ratio) = self.overload(generator, capacity)?;
        candidate_run.check(&log)?;
        Ok(TurnSample {
            capacity,
            generator_bound: search_result.generator_bound,
            unconfirmed: search_result.ended != SearchEnd::Confirmed,
            overload_factor,
            goodput_ratio,
            ..cost
        })
    }

    fn search(&self, hint: Option<f64>) -> SearchOptions<'static> {
        SearchOptions {
            max_loss: LOSS,
            slot: self.slot(),
            drain: Duration::from_millis(60),
            start_per_second: START,
            bracket: hint.map(|rate| (rate / NEIGHBOURHOOD, rate * NEIGHBOURHOOD)),
            confirm: 1,
            budget: Duration::from_secs_f64(self.seconds),
            ..SearchOptions::default()
        }
    }

    fn slot(&self) -> Duration {
        Duration::from_secs_f64((self.seconds / 16.0).clamp(0.05, 0.25))
    }

    /// A quarter of the time of a search.
    fn long_slot_duration(&self) -> Duration {
        Duration::from_secs_f64(self.seconds / 4.0)
    }

    /// Measures the cost of a transaction. The other fields of the sample are empty.
    fn cost(
        &self,
        generator: &mut dyn Generator,
        capacity: f64,
        candidate_run: &CandidateRun,
    ) -> anyhow::Result<TurnSample> {
        let mut counters =
            MachineCounters::open().and_then(|mut counters| counters.start().map(|()| counters));
        let before = cpu_time::of_process(candidate_run.process());
        let outcome = generator.run(&LoadSlot::rate(capacity * AT_EASE, self.long_slot_duration()))?;
        let after = cpu_time::of_process(candidate_run.process());
        let per_request = |count: u64| count as f64 / outcome.answered.max(1) as f64;
        let (cycles, instructions) = match &mut counters {
            Ok(counters) => {
                let counts = counters.stop();
                (counts.cycles.map(per_request), counts.instructions.map(per_request))
            }
            Err(reason) => (Known::unknown(reason.clone()), Known::unknown(reason.clone())),
        };
        let cpu = match (before, after) {
            (Known::Value(before), Known::Value(after)) => {
                Known::Value(per_request(after.saturating_sub(before)))
            }
            (Known::Unknown { why }, _) | (_, Known::Unknown { why }) => Known::Unknown { why },
        };
        Ok(TurnSample {
            capacity,
            generator_bound: false,
            unconfirmed: false,
            overload_factor: 0.0,
            goodput_ratio: 0.0,
            cycles_per_transaction: cycles,
            instructions_per_transaction: instructions,
            cpu_ns_per_transaction: cpu,
        })
    }

    // The offered multiple of the capacity, and the share of the capacity that was answered. The
    // first part does not count, because the server answers from full buffers then.
    fn overload(&self, generator: &mut dyn Generator, capacity: f64) -> anyhow::Result<(f64, f64)> {
        let mode = PacingMode::Rate { per_second: capacity * OVERLOAD };
        generator.run(&LoadSlot {
            drain: Duration::from_millis(1),
            ..LoadSlot::new(mode, self.long_slot_duration())
        })?;
        let outcome = generator.run(&LoadSlot {
            drain: Duration::from_millis(60),
            ..LoadSlot::new(mode, self.long_slot_duration())
        })?;
        Ok((outcome.offered_per_second / capacity, outcome.answered_per_second / capacity))
    }
}

/// Whether a server answers a low rate of requests correctly.
fn answers(generator: &mut dyn Generator, protocol: ServerProtocol) -> anyhow::Result<bool> {
    let low_rate_slot =
        LoadSlot { drain: Duration::from_millis(100), ..LoadSlot::rate(2_000.0, Duration::from_millis(50)) };
    let outcome = generator.run(&low_rate_slot)?;
    if outcome.corrupt > 0 {
        bail!("{} of its answers were wrong", outcome.corrupt);
    }
    if protocol == ServerProtocol::Dns && outcome.answered > 0 {
        let correct_replies =
            outcome.codes.iter().filter(|code| code.code == 0).map(|code| code.count).sum::<u64>();
        // Not ready: a server may answer before it has read its zones.
        return Ok(outcome.lost == 0 && correct_replies == outcome.answered);
    }
    Ok(outcome.lost == 0)
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
