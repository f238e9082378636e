//! The engine's mmsg backend compared with the same loop in C.
//!
//! A queue of requests is served by a thread whose instructions are counted from birth to end. The
//! difference between a long queue and a short one, divided by the requests between them, is the
//! cost of a transaction: the cost of starting and ending cancels out. Kernel instructions are not
//! counted.

use std::process::ExitCode;

use anyhow::ensure;
use clap::Args;

use super::meter;
use super::subject::{BenchSubject, SubjectSide};
use crate::machine;

#[derive(Debug, Args)]
pub(crate) struct EngineBench {
    /// Messages per system call; several sizes are measured one after the other.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 64], value_parser = clap::value_parser!(u16).range(1..=64))]
    batch: Vec<u16>,
    /// Bytes per request.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(0..=1400))]
    payload: u16,
    /// Number of measurements per figure.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..))]
    repeats: u8,
}

impl EngineBench {
    pub(crate) fn run(&self) -> anyhow::Result<ExitCode> {
        let side = SubjectSide::C;
        let probe = BenchSubject { side, requests: 1, batch: 1, payload: 1, wildcard: false };
        if let Err(reason) = meter::count(&probe) {
            println!("SKIP bench engine: ptrace does not work here: {reason:#}");
            return Ok(ExitCode::SUCCESS);
        }
        println!(
            "user-space instructions a transaction (echo of {} bytes, by single steps, {} repeats; median, lowest and highest):",
            self.payload, self.repeats
        );
        let mut is_cheaper = true;
        for batch in &self.batch {
            for wildcard in [false, true] {
                let (engine_median, engine_text) = self.measure(SubjectSide::Engine, *batch, wildcard)?;
                let (c_median, c_text) = self.measure(SubjectSide::C, *batch, wildcard)?;
                println!(
                    "  batch {batch:2}, {:16}  engine {engine_text}  C {c_text}  ratio {:.3}",
                    if wildcard { "wildcard address" } else { "one address" },
                    engine_median / c_median
                );
                is_cheaper &= engine_median <= c_median;
            }
        }
        let verdict = match is_cheaper {
            true => "ok: the engine costs no more than C",
            false => "FAILED: the engine costs more than C",
        };
        println!("{verdict}");
        Ok(machine::exit_code(is_cheaper))
    }

    /// Instructions per transaction: the median of the repeats, and a text of it and the extremes.
    fn measure(&self, side: SubjectSide, batch: u16, wildcard: bool) -> anyhow::Result<(f64, String)> {
        // Both queues are whole batches. The long queue fits the receive buffer of any user.
        let short_queue = u64::from(batch);
        let long_queue = short_queue * (256 / short_queue).max(2);
        let mut slopes = Vec::new();
        for _ in 0..self.repeats {
            let count = |requests| {
                let payload = usize::from(self.payload);
                meter::count(&BenchSubject { side, requests, batch, payload, wildcard })
            };
            let (short_count, long_count) = (count(short_queue)?, count(long_queue)?);
            ensure!(
                long_count > short_count,
                "{long_queue} requests took no more instructions than {short_queue}"
            );
            slopes.push((long_count - short_count) as f64 / (long_queue - short_queue) as f64);
        }
        slopes.sort_by(f64::total_cmp);
        let (median, low, high) = (slopes[slopes.len() / 2], slopes[0], slopes[slopes.len() - 1]);
        Ok((median, format!("{median:7.2} ({low:.2} to {high:.2})")))
    }
}
