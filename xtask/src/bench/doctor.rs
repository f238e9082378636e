//! Time and memory of doctor on a host of 128 CPUs with four NICs of 64 queues each.

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use clap::Args;

use crate::machine;
use crate::programs::{self, BuildProfile};
use crate::sys::usage;

#[derive(Debug, Args)]
pub(crate) struct DoctorBench {
    /// Number of runs, of which the median counts
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u8).range(1..))]
    repeats: u8,
}

const MOST_TIME: Duration = Duration::from_millis(200);
const MOST_BYTES: u64 = 64 << 20;

impl DoctorBench {
    pub(crate) fn run(&self) -> anyhow::Result<ExitCode> {
        if cfg!(debug_assertions) {
            return super::run_optimized();
        }
        let program = programs::build(BuildProfile::Release, "linerate")?;
        let directory = tempfile::tempdir().context("a directory for the tree")?;
        let fixture = linerate_testkit::fixture::fixture("many").context("the fixture of many queues")?;
        fixture.first.write(directory.path()).context("writing the tree")?;
        let mut is_within_limits = true;
        for (name, options) in [("text", &[][..]), ("JSON", &["--json", "-"][..])] {
            let (time, bytes) = self.measure(&program, directory.path(), options)?;
            let is_within_limit = time <= MOST_TIME && bytes <= MOST_BYTES;
            is_within_limits &= is_within_limit;
            println!(
                "doctor, 128 CPUs, 4 NICs of 64 queues, {name}: {:.0} ms (at most {} ms), {:.1} MiB (at most {} MiB): {}",
                time.as_secs_f64() * 1e3,
                MOST_TIME.as_millis(),
                bytes as f64 / f64::from(1 << 20),
                MOST_BYTES >> 20,
                if is_within_limit { "kept" } else { "MISSED" }
            );
        }
        Ok(machine::exit_code(is_within_limits))
    }

    // The median time, and the greatest memory.
    fn measure(&self, program: &Path, tree: &Path, options: &[&str]) -> anyhow::Result<(Duration, u64)> {
        let mut times = Vec::new();
        let mut peak_bytes = 0;
        for _ in 0..self.repeats {
            let begin = Instant::now();
            let child = Command::new(program)
                .args(["doctor", "--fail-on", "high", "--root"])
                .arg(tree)
                .args(options)
                .stdout(Stdio::null())
                .spawn()
                .context("starting doctor")?;
            let usage = usage::wait(child).context("waiting for doctor")?;
            times.push(begin.elapsed());
            ensure!(matches!(usage.code, Some(0 | 1)), "doctor ended with {:?}", usage.code);
            peak_bytes = peak_bytes.max(usage.peak_bytes);
        }
        times.sort();
        let median_time = times.get(times.len() / 2).copied().unwrap_or_default();
        Ok((median_time, peak_bytes))
    }
}
