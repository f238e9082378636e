//! CPU time of top on a host of 128 CPUs with four NICs of 64 queues each, at one refresh per
//! second.

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, ensure};
use clap::Args;

use crate::machine;
use crate::programs::{self, BuildProfile};
use crate::sys::usage;

#[derive(Debug, Args)]
pub(crate) struct TopBench {
    /// Seconds of the longer of two runs, whose difference counts.
    #[arg(long, default_value_t = 12, value_parser = clap::value_parser!(u8).range(4..))]
    seconds: u8,
}

// The limit, as a share of one CPU.
const MOST: f64 = 0.02;

// Seconds between full readings of the host, which may use half a per cent of a CPU.
const WHOLE_EACH: f64 = 10.0;
const WHOLE_MOST: f64 = 0.005;

impl TopBench {
    pub(crate) fn run(&self) -> anyhow::Result<ExitCode> {
        if cfg!(debug_assertions) {
            return super::run_optimized();
        }
        let program = programs::build(BuildProfile::Release, "linerate")?;
        let directory = tempfile::tempdir().context("a directory for the tree")?;
        let fixture = linerate_testkit::fixture::fixture("many").context("the fixture of many queues")?;
        fixture.write(directory.path()).context("writing the tree")?;
        let mut is_within_limits = true;
        for (name, is_drawn) in [("recorded", false), ("recorded and drawn on 200x60", true)] {
            let short_run = run(&program, directory.path(), self.seconds / 3, is_drawn)?;
            let long_run = run(&program, directory.path(), self.seconds, is_drawn)?;
            let refreshes = long_run.refreshes.saturating_sub(short_run.refreshes);
            ensure!(
                refreshes > 0,
                "no more refreshes in the longer run: {} and {}",
                short_run.refreshes,
                long_run.refreshes
            );
            let refresh_seconds = (long_run.cpu_seconds - short_run.cpu_seconds) / refreshes as f64;
            let full_reading_share = (long_run.whole_seconds / WHOLE_EACH).min(WHOLE_MOST);
            let total_share = refresh_seconds + full_reading_share;
            let is_within_limit = total_share <= MOST;
            is_within_limits &= is_within_limit;
            println!(
                "top, 128 CPUs, 4 NICs of 64 queues, {name}: {:.1} ms of CPU a refresh (over {refreshes}), {:.0} ms a whole reading: \
                 {:.2} % of one CPU at one a second (at most {:.0} %): {}",
                refresh_seconds * 1e3,
                long_run.whole_seconds * 1e3,
                total_share * 100.0,
                MOST * 100.0,
                if is_within_limit { "kept" } else { "MISSED" }
            );
        }
        Ok(machine::exit_code(is_within_limits))
    }
}

struct TopRun {
    cpu_seconds: f64,
    refreshes: usize,
    /// Wall-clock time of the full reading at the start.
    whole_seconds: f64,
}

fn run(program: &Path, tree: &Path, seconds: u8, is_drawn: bool) -> anyhow::Result<TopRun> {
    let directory = tempfile::tempdir().context("a directory for the recording")?;
    let recording = directory.path().join("top.jsonl");
    let top_command = format!(
        "timeout --signal TERM {seconds} {} top --interval 0.2 --root {} --record {}",
        program.display(),
        tree.display(),
        recording.display()
    );
    let mut command = if is_drawn {
        let mut command = Command::new("script");
        // `script` gives the program a terminal and discards its output.
        command.args([
            "--quiet",
            "--command",
            &format!("stty cols 200 rows 60; exec {top_command}"),
            "/dev/null",
        ]);
        command
    } else {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("exec {top_command}")]);
        command
    };
    command.env("TERM", "xterm-256color").stdin(Stdio::piped()).stdout(Stdio::null());
    let mut child = command.spawn().context("starting top")?;
    // Open until the program ends, because it ends early if the other side of its terminal closes.
    let stdin = child.stdin.take();
    let usage = usage::wait(child).context("waiting for top")?;
    drop(stdin);
    let text = std::fs::read_to_string(&recording).context("reading the recording")?;
    let last_line = text.lines().last().context("nothing was recorded")?;
    let last_record: serde_json::Value = serde_json::from_str(last_line).context("reading the recording")?;
    let whole_seconds = last_record["result"]["cost"]["whole_reading_seconds"]
        .as_f64()
        .context("the recording has no cost")?;
    Ok(TopRun { cpu_seconds: usage.cpu_seconds, refreshes: text.lines().count(), whole_seconds })
}
