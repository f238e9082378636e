//! The error of `linerate load --search` for a service with a known capacity.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, ensure};
use clap::Args;
use linerate_lab::{Lab, LabHost};
use linerate_load::stats;
use linerate_testkit::reflector::Reflector;

use crate::machine;
use crate::programs::{self, BuildProfile};

/// The largest error of a result.
const ALLOWED: f64 = 0.02;

/// The largest range of the results.
const ALLOWED_SPREAD: f64 = 0.03;

/// The depth of the token bucket: ten milliseconds of its rate.
const DEPTH_SECONDS: f64 = 0.01;

const PORT: u16 = 7777;

#[derive(Debug, Args)]
pub(crate) struct SearchBench {
    /// The service's capacity, transactions per second
    #[arg(long, default_value_t = 50_000.0)]
    capacity: f64,
    /// How often it is searched for.
    #[arg(long, default_value_t = 10)]
    runs: usize,
    /// More arguments for `linerate load`.
    #[arg(last = true)]
    arguments: Vec<String>,
}

impl SearchBench {
    pub(crate) fn run(&self) -> anyhow::Result<ExitCode> {
        if cfg!(debug_assertions) {
            return super::run_optimized();
        }
        ensure!(self.runs > 0, "--runs 0: give at least 1");
        if let Some(skipped) = machine::skip_unless_root("bench search") {
            return Ok(skipped);
        }
        let linerate = programs::build(BuildProfile::Release, "linerate")?;
        let lab = Lab::builder().start()?;
        let address = SocketAddr::from((lab.links()[0].receiver.ipv4[0], PORT));
        let depth = (self.capacity * DEPTH_SECONDS) as u32;
        let service = lab
            .receiver()
            .run(|| Reflector::builder().address(address).token_bucket(self.capacity, depth).start())??;
        println!(
            "linerate load {address} --search {} against a token bucket of {}/s, {depth} deep:",
            self.arguments.join(" "),
            self.capacity
        );
        let mut found = Vec::new();
        for _ in 0..self.runs {
            let (rate, lower_bound) = search(&lab.senders()[0], &linerate, &address, &self.arguments)?;
            let bound = if lower_bound { ">= " } else { "" };
            println!("  {bound}{rate:.0}/s ({:+.2} %)", (rate / self.capacity - 1.0) * 100.0);
            found.push(rate);
        }
        drop(service);
        Ok(self.judge(&found))
    }

    fn judge(&self, found: &[f64]) -> ExitCode {
        let highest = found.iter().copied().fold(0.0, f64::max);
        let lowest = found.iter().copied().fold(f64::INFINITY, f64::min);
        let median = stats::median(found).unwrap_or(0.0);
        let spread = (highest - lowest) / self.capacity;
        let off = found.iter().map(|rate| (rate / self.capacity - 1.0).abs()).fold(0.0, f64::max);
        let kept = off <= ALLOWED && spread <= ALLOWED_SPREAD;
        println!(
            "{}: median {median:.0}/s, farthest off {:.2} % (allowed {:.0} %), spread {:.2} % (allowed {:.0} %)",
            if kept { "ok" } else { "FAILED" },
            off * 100.0,
            ALLOWED * 100.0,
            spread * 100.0,
            ALLOWED_SPREAD * 100.0
        );
        machine::exit_code(kept)
    }
}

// Runs one search as a user would, and returns the capacity and whether it is a lower bound.
fn search(
    sender: &LabHost,
    linerate: &PathBuf,
    address: &SocketAddr,
    arguments: &[String],
) -> anyhow::Result<(f64, bool)> {
    let result = tempfile::NamedTempFile::new()?;
    let mut command = Command::new(linerate);
    command.arg("load").arg(address.to_string()).args(["--search", "--quiet", "--json"]);
    command.arg(result.path()).args(arguments).stdout(Stdio::null());
    let status = sender.spawn(command)?.wait()?;
    ensure!(status.success(), "linerate load ended with {status}");
    let document: serde_json::Value = serde_json::from_slice(&std::fs::read(result.path())?)?;
    let document = &document["result"];
    let rate = document["transactions_per_second"]["median"].as_f64();
    Ok((rate.context("the document tells no capacity")?, document["generator_bound"] == true))
}
