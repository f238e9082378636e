//! The command line of `linerate load`, grouped by subject.

use std::time::Duration;

use clap::Args;
use linerate_host::CpuSet;
use linerate_load::generator::GeneratorBackend;
use linerate_networks::Net;

use super::ranges::{RateRamp, SourcePortRange};
use super::start::StartAt;
use crate::command::results::ResultArgs;
use crate::named_values::{LOAD_BACKENDS, one_of};
use crate::quantity::{self, MOST_SECONDS};

/// Timing of requests: one of these options; by default 10k requests per second.
#[derive(Debug, Args)]
#[command(next_help_heading = "Rate (one of)")]
pub(crate) struct PaceArgs {
    /// Open loop: requests per second over all flows, independent of the replies [default: 10k]
    #[arg(long, value_name = "PER_SECOND", group = "mode", value_parser = quantity::parse_rate)]
    pub(crate) rate: Option<f64>,
    /// Closed loop: requests that each flow keeps outstanding (backend xdp: N per flow, shared by the flows of a
    /// thread). A request without reply is replaced after 200 ms
    #[arg(long, value_name = "N", group = "mode")]
    pub(crate) window: Option<u32>,
    /// Flood: send as fast as possible
    #[arg(long, group = "mode")]
    pub(crate) flood: bool,
    /// Search for the capacity: the highest paced rate within the loss limit
    #[arg(long, group = "mode")]
    pub(crate) search: bool,
    /// Ramp of rates, such as 10k-100k (ten steps), 10k-100k:5k (steps of 5k) or 10k-100k/4 (four
    /// steps)
    #[arg(long, value_name = "LOW-HIGH", group = "mode")]
    pub(crate) ramp: Option<RateRamp>,
    /// Known capacity, requests per second, for --overload without a search
    #[arg(long, value_name = "PER_SECOND", group = "mode", value_parser = quantity::parse_rate, requires = "overload")]
    pub(crate) capacity: Option<f64>,
    /// Take orders from standard input until it ends; `linerate ladder` starts this on other hosts
    #[arg(long, group = "mode", conflicts_with_all = ["duration", "start_at", "live", "json", "json_stream", "html", "max_loss", "max_p99", "min_rate"])]
    pub(crate) on_demand: bool,
    /// Read the workload from standard input, before the orders
    #[arg(long, hide = true, requires = "on_demand")]
    pub(crate) workload_from_stdin: bool,
}

/// Start and duration.
#[derive(Debug, Args)]
#[command(next_help_heading = "Time")]
pub(crate) struct TimeArgs {
    /// Duration, seconds; per step of a ramp or overload [default: 10, or 2 per step]
    #[arg(long, value_name = "S", value_parser = quantity::seconds(0.0..=MOST_SECONDS))]
    pub(crate) duration: Option<Duration>,
    /// Start time, for several generators at once: +5s, 14:30:00 (local time), RFC 3339, or Unix
    /// seconds
    #[arg(long, value_name = "TIME", conflicts_with_all = ["search", "capacity"])]
    pub(crate) start_at: Option<StartAt>,
    /// Wait for replies after the last request, seconds [default: 1, or 0 with --no-reply]
    #[arg(long, value_name = "S", value_parser = quantity::seconds(0.0..=MOST_SECONDS))]
    drain: Option<Duration>,
    /// The service sends no replies: only count sent requests, and end with status 0
    #[arg(long, conflicts_with_all = ["window", "search", "ramp", "capacity", "on_demand", "max_loss", "max_p99", "min_rate"])]
    pub(crate) no_reply: bool,
}

/// Sources and destinations of requests.
#[derive(Debug, Args)]
#[command(next_help_heading = "Flows")]
pub(crate) struct FlowArgs {
    /// File with more destinations, one ADDR:PORT per line; '#' starts a comment
    #[arg(long = "targets", value_name = "FILE")]
    pub(crate) targets_file: Option<String>,
    /// Flows (source ports) over all threads [default: 16, or one per thread and destination]
    #[arg(long, value_name = "N")]
    pub(crate) flows: Option<usize>,
    /// Threads that send and receive [default: one per CPU of --cpus, else 1]
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<usize>,
    /// CPUs to pin the threads to, as a list such as 0-3
    #[arg(long, value_name = "LIST", value_parser = quantity::parse_cpus)]
    pub(crate) cpus: Option<CpuSet>,
    /// Source addresses or networks; the flows use their addresses in turn
    #[arg(long, value_name = "NET,...", value_delimiter = ',')]
    pub(crate) sources: Vec<Net>,
    /// Source ports to use, such as 20000-29999 [default: free ones]
    #[arg(long, value_name = "A-B")]
    pub(crate) source_ports: Option<SourcePortRange>,
    /// Allow this destination address or network, which is neither loopback, lab nor private
    #[arg(long, value_name = "NET")]
    pub(crate) allow_destination: Vec<Net>,
    /// Fail if a request would be fragmented
    #[arg(long)]
    pub(crate) no_fragment: bool,
    /// How requests enter the kernel
    #[arg(long, default_value = "auto", value_parser = one_of(LOAD_BACKENDS))]
    pub(crate) backend: GeneratorBackend,
    /// Send live XDP frames at all paced rates
    #[arg(long, conflicts_with = "no_live_frames")]
    pub(crate) live_frames: bool,
    /// Never send live XDP frames, whose threads keep their CPUs busy
    #[arg(long)]
    pub(crate) no_live_frames: bool,
}

// With one of these there is no search.
const NO_SEARCH: [&str; 8] =
    ["rate", "window", "flood", "ramp", "capacity", "on_demand", "start_at", "no_reply"];

/// Limits of a search, and thresholds.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Search and thresholds")]
pub(crate) struct LimitArgs {
    /// Highest loss at which a rate holds (search: 0.1% if not given); with other modes, more than this ends with exit
    /// status 1
    #[arg(long, value_name = "SHARE", value_parser = quantity::parse_share, conflicts_with = "capacity")]
    pub(crate) max_loss: Option<f64>,
    /// Highest p99 latency at which a rate holds, such as 1ms; in other modes exit status 1 above
    /// it
    #[arg(long, value_name = "TIME", value_parser = quantity::parse_duration, conflicts_with = "capacity")]
    pub(crate) max_p99: Option<Duration>,
    /// Exit status 1 below this many replies per second (ramp: at its best rate), or below this capacity
    #[arg(long, value_name = "PER_SECOND", value_parser = quantity::parse_rate, conflicts_with = "capacity")]
    pub(crate) min_rate: Option<f64>,
    /// Measure goodput at these multiples of the capacity, such as 2,5; requires --search or
    /// --capacity
    #[arg(long, value_name = "FACTOR,...", value_delimiter = ',', value_parser = factor)]
    pub(crate) overload: Vec<f64>,
    /// Number of independent searches; the result is their median
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100), requires = "search", conflicts_with_all = NO_SEARCH)]
    pub(crate) searches: u32,
    /// Precision: distance between the highest good and the lowest bad rate
    #[arg(long, value_name = "SHARE", default_value = "1%", value_parser = resolution, requires = "search", conflicts_with_all = NO_SEARCH)]
    pub(crate) resolution: f64,
    /// Duration per rate, seconds; three times as long for the confirmation
    #[arg(long, value_name = "S", default_value = "0.5", requires = "search", conflicts_with_all = NO_SEARCH, value_parser = quantity::seconds(0.0..=MOST_SECONDS))]
    pub(crate) slot: Duration,
    /// Time limit of all searches, seconds
    #[arg(long, value_name = "S", default_value = "300", requires = "search", conflicts_with_all = NO_SEARCH, value_parser = quantity::seconds(0.0..=MOST_SECONDS))]
    pub(crate) time: Duration,
}

/// Outputs of results.
#[derive(Debug, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct OutputArgs {
    /// Interval of the live output, seconds
    #[arg(long, value_name = "S", default_value = "1", value_parser = quantity::seconds(0.0..=MOST_SECONDS))]
    pub(crate) interval: Duration,
    /// Print intervals even if standard error is not a terminal
    #[arg(long, conflicts_with = "quiet")]
    pub(crate) live: bool,
    /// Do not print intervals
    #[arg(long, short)]
    pub(crate) quiet: bool,
    #[command(flatten)]
    pub(crate) results: ResultArgs,
    /// Write events as they happen, one JSON object per line; - is standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) json_stream: Option<String>,
}

impl TimeArgs {
    /// How long replies are awaited after the last request.
    pub(crate) fn drain(&self) -> Duration {
        let default = if self.no_reply { Duration::ZERO } else { Duration::from_secs(1) };
        self.drain.unwrap_or(default)
    }
}

fn factor(text: &str) -> Result<f64, String> {
    match text.trim().parse::<f64>() {
        Ok(value) if value > 1.0 && value.is_finite() => Ok(value),
        _ => Err(format!("'{text}' is no multiple of capacity over 1, such as 2")),
    }
}

fn resolution(text: &str) -> Result<f64, String> {
    match quantity::parse_share(text) {
        Ok(value) if (0.001..=0.5).contains(&value) => Ok(value),
        _ => Err(format!("'{text}' is no share from 0.1% to 50%")),
    }
}
