//! Cost of doctor and top on a host of 128 CPUs with four NICs of 64 queues each.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use clap::Args;
use tempfile::TempDir;

use crate::machine;
use crate::programs;
use crate::sys::usage::{self, ChildUsage};

const MOST_TIME: Duration = Duration::from_millis(200);
const MOST_BYTES: u64 = 64 << 20;

// The limit of top at one refresh per second, as a share of one CPU.
const MOST_SHARE: f64 = 0.02;

// Seconds between full readings of the host by top, which may use half a per cent of a CPU.
const WHOLE_EACH: f64 = 10.0;
const WHOLE_MOST: f64 = 0.005;

#[derive(Debug, Args)]
pub(crate) struct DoctorBench {
    /// Number of runs, of which the median counts
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u8).range(1..))]
    repeats: u8,
    /// The program to measure, instead of a release build.
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct TopBench {
    /// Seconds of the longer of two runs, whose difference counts.
    #[arg(long, default_value_t = 12, value_parser = clap::value_parser!(u8).range(4..))]
    seconds: u8,
    /// The program to measure, instead of a release build.
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
}

/// A release build of `linerate`, and the files of the host.
struct LargeHost {
    program: PathBuf,
    tree: TempDir,
}

impl LargeHost {
    /// With one reading of the host, or two.
    fn prepare(program: Option<&Path>, has_second_reading: bool) -> anyhow::Result<Self> {
        let program = programs::given_or_release(program)?;
        let tree = tempfile::tempdir().context("a directory for the tree")?;
        let fixture = linerate_testkit::fixture::fixture("many").context("the fixture of many queues")?;
        let written =
            if has_second_reading { fixture.write(tree.path()) } else { fixture.first.write(tree.path()) };
        written.context("writing the tree")?;
        Ok(Self { program, tree })
    }
}

fn run(command: &mut Command) -> anyhow::Result<ChildUsage> {
    let child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().context("starting linerate")?;
    usage::wait(child).context("waiting for linerate")
}

fn judge(what: &str, is_within_limit: bool) -> bool {
    println!("{what}: {}", if is_within_limit { "kept" } else { "MISSED" });
    is_within_limit
}

impl DoctorBench {
    pub(crate) fn run(&self) -> anyhow::Result<ExitCode> {
        let host = LargeHost::prepare(self.program.as_deref(), false)?;
        let mut is_within_limits = true;
        for (name, options) in [("text", &[][..]), ("JSON", &["--json", "-"][..])] {
            let (mut times, mut peak_bytes) = (Vec::new(), 0);
            for _ in 0..self.repeats {
                let begin = Instant::now();
                let mut command = Command::new(&host.program);
                command.args(["doctor", "--fail-on", "high", "--root"]).arg(host.tree.path());
                let usage = run(command.args(options))?;
                times.push(begin.elapsed());
                ensure!(matches!(usage.code, Some(0 | 1)), "doctor ended with {:?}", usage.code);
                peak_bytes = peak_bytes.max(usage.peak_bytes);
            }
            times.sort();
            let time = times[times.len() / 2];
            let what = format!(
                "doctor, {name}: {:.0} ms (at most {} ms), {:.1} MiB (at most {} MiB)",
                time.as_secs_f64() * 1e3,
                MOST_TIME.as_millis(),
                peak_bytes as f64 / f64::from(1 << 20),
                MOST_BYTES >> 20
            );
            is_within_limits &= judge(&what, time <= MOST_TIME && peak_bytes <= MOST_BYTES);
        }
        Ok(machine::exit_code(is_within_limits))
    }
}

impl TopBench {
    pub(crate) fn run(&self) -> anyhow::Result<ExitCode> {
        let host = LargeHost::prepare(self.program.as_deref(), true)?;
        let mut is_within_limits = true;
        for (name, is_drawn) in [("recorded", false), ("recorded and drawn on 200x60", true)] {
            let (short_seconds, short_refreshes, _) = host.run_top(self.seconds / 3, is_drawn)?;
            let (long_seconds, long_refreshes, whole_seconds) = host.run_top(self.seconds, is_drawn)?;
            let refreshes = long_refreshes.saturating_sub(short_refreshes);
            ensure!(
                refreshes > 0,
                "no more refreshes in the longer run: {short_refreshes}, {long_refreshes}"
            );
            let refresh_seconds = (long_seconds - short_seconds) / refreshes as f64;
            let total_share = refresh_seconds + (whole_seconds / WHOLE_EACH).min(WHOLE_MOST);
            let what = format!(
                "top, {name}: {:.1} ms of CPU a refresh (over {refreshes}), {:.0} ms a whole reading: \
                 {:.2} % of one CPU at one a second (at most {:.0} %)",
                refresh_seconds * 1e3,
                whole_seconds * 1e3,
                total_share * 100.0,
                MOST_SHARE * 100.0
            );
            is_within_limits &= judge(&what, total_share <= MOST_SHARE);
        }
        Ok(machine::exit_code(is_within_limits))
    }
}

impl LargeHost {
    /// CPU seconds, refreshes, and the wall-clock seconds of the full reading at the start.
    fn run_top(&self, seconds: u8, is_drawn: bool) -> anyhow::Result<(f64, usize, f64)> {
        let directory = tempfile::tempdir().context("a directory for the recording")?;
        let recording = directory.path().join("top.jsonl");
        let top_command = format!(
            "exec timeout --signal TERM {seconds} {} top --interval 0.2 --root {} --record {}",
            self.program.display(),
            self.tree.path().display(),
            recording.display()
        );
        // `script` gives the program a terminal and discards its output.
        let mut command = Command::new(if is_drawn { "script" } else { "sh" });
        if is_drawn {
            command.args([
                "--quiet",
                "--command",
                &format!("stty cols 200 rows 60; {top_command}"),
                "/dev/null",
            ]);
        } else {
            command.args(["-c", &top_command]);
        }
        let usage = run(command.env("TERM", "xterm-256color"))?;
        let text = std::fs::read_to_string(&recording).context("reading the recording")?;
        Ok((usage.cpu_seconds, text.lines().count(), whole_reading_seconds(&text)?))
    }
}

fn whole_reading_seconds(recording: &str) -> anyhow::Result<f64> {
    let last_line = recording.lines().last().context("nothing was recorded")?;
    let last_record: serde_json::Value = serde_json::from_str(last_line).context("reading the recording")?;
    let seconds = &last_record["result"]["cost"]["whole_reading_seconds"];
    seconds.as_f64().context("the recording has no cost")
}
