//! Arguments of `linerate boost`.

use std::time::Duration;

use anyhow::{Result, ensure};
use clap::Args;
use linerate_tune::TunePlan;
use linerate_tune::boost::discovery::{ObservationOptions, ServerQuery};
use linerate_tune::boost::plan::BoostChoice;
use linerate_tune::boost::{ObservedServer, answers};

use crate::command::tune::measure_args::MeasureArgs;
use crate::command::tune::{AutoUndoArgs, ConsentMode, StateDirArgs};
use crate::quantity;

const LOOK: Duration = Duration::from_secs(2);

/// The server, its observation and its changes.
#[derive(Debug, Args)]
pub(super) struct BoostTargetArgs {
    /// The server on this port
    #[arg(short = 'p', long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub(super) port: Option<u16>,
    /// The server that this process belongs to
    #[arg(long, value_name = "P", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) pid: Option<u32>,
    /// Network interface that receives its packets; repeatable [default: all with a device]
    #[arg(short = 'i', long = "interface", value_name = "IF")]
    pub(super) interfaces: Vec<String>,
    /// Observe the server for this many seconds [default: 2]
    #[arg(long, value_name = "SECONDS", value_parser = quantity::seconds(0.1..=3_600.0))]
    look: Option<Duration>,
    /// Do not trace its datagrams: no BPF program runs, and delivery is not verified
    #[arg(long)]
    no_datagrams: bool,
    /// Do not pin its threads
    #[arg(long)]
    no_pin: bool,
    /// Do not steer its sockets
    #[arg(long, conflicts_with = "by_incoming_cpu")]
    no_steer: bool,
    /// Have the kernel choose sockets by SO_INCOMING_CPU instead of a BPF program (Linux 6.2)
    #[arg(long)]
    by_incoming_cpu: bool,
    /// Steer even if the server appears to keep client state in one thread, or too few datagrams
    /// arrive to tell
    #[arg(long, conflicts_with = "no_steer")]
    anyway: bool,
    /// Enlarge receive buffers to at least this many bytes, as the kernel counts them
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(1..=i32::MAX as u64))]
    receive_buffer: Option<u64>,
    /// Send replies without an IP ID if all observed replies fit into the MTU
    #[arg(long)]
    skip_ip_id: bool,
    /// Busy-poll the device for this many microseconds before a thread sleeps (SO_BUSY_POLL); takes
    /// one CPU per thread
    #[arg(long, value_name = "US", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    busy_poll: Option<u32>,
    /// Show all sockets, threads, reasons and sources
    #[arg(long)]
    pub(super) full: bool,
    /// Write the result as JSON; - is standard output
    #[arg(short = 'j', long, value_name = "FILE")]
    pub(super) json: Option<String>,
    #[command(flatten)]
    pub(super) state_dir: StateDirArgs,
}

/// Options of `boost apply`.
#[derive(Debug, Args)]
pub(super) struct BoostApplyArgs {
    #[command(flatten)]
    pub(super) consent: ConsentMode,
    /// apply: keep running and adjust the boost when workers end or start; the boost stays when
    /// this ends
    #[arg(long)]
    pub(super) watch: bool,
    /// apply: continue after a change that the host refuses
    #[arg(long)]
    pub(super) keep_going: bool,
    #[command(flatten)]
    pub(super) lasting: AutoUndoArgs,
    #[command(flatten)]
    pub(super) measuring: MeasureArgs,
}

impl BoostTargetArgs {
    /// The requested server.
    ///
    /// # Errors
    /// If neither --port nor --pid is given.
    pub(super) fn server_query(&self) -> Result<ServerQuery> {
        ensure!(
            self.port.is_some() || self.pid.is_some(),
            "which server? Name it with --port N or --pid P (linerate doctor lists the servers)"
        );
        Ok(ServerQuery { port: self.port, pid: self.pid, interfaces: self.interfaces.clone() })
    }

    /// If the server was named by a process: the process of the restarted server.
    pub(super) fn replace_pid(&mut self, pid: u32) {
        self.pid = self.pid.map(|_| pid);
    }

    pub(super) fn observation_options(&self) -> ObservationOptions {
        ObservationOptions { duration: self.look.unwrap_or(LOOK), datagrams: !self.no_datagrams }
    }

    /// Why apply does not steer the server now, unless --anyway or --no-datagrams is given.
    pub(super) fn steering_refusal(&self, server: &ObservedServer, plan: &TunePlan) -> Option<String> {
        let is_checked = !self.boost_choice().anyway && self.observation_options().datagrams;
        is_checked.then(|| answers::steering_refusal(server, plan)).flatten()
    }

    /// The requested changes.
    pub(super) fn boost_choice(&self) -> BoostChoice {
        BoostChoice {
            busy_poll_us: self.busy_poll,
            receive_buffer_bytes: self.receive_buffer,
            skip_ip_id: self.skip_ip_id,
            no_pin: self.no_pin,
            no_steer: self.no_steer,
            by_incoming_cpu: self.by_incoming_cpu,
            anyway: self.anyway,
            is_steered_by_run: false,
        }
    }
}

impl BoostApplyArgs {
    /// Checks that no option is given that only `boost apply` has, or that `boost undo` lacks.
    pub(super) fn check_no_apply_options(&self, subcommand: &str, target: &BoostTargetArgs) -> Result<()> {
        let is_undo = subcommand == "undo";
        let options = [
            ("--watch", self.watch),
            ("--keep-going", self.keep_going),
            ("--measure, --keep-if-better and --from", self.measuring.is_given()),
            ("--for-duration and --until-confirmed", self.lasting.deadline().is_some()),
            ("--interface", is_undo && !target.interfaces.is_empty()),
            ("--look", is_undo && target.look.is_some()),
            ("--no-datagrams", is_undo && target.no_datagrams),
            ("--no-pin", is_undo && target.no_pin),
            ("--no-steer", is_undo && target.no_steer),
            ("--by-incoming-cpu", is_undo && target.by_incoming_cpu),
            ("--anyway", is_undo && target.anyway),
            ("--receive-buffer", is_undo && target.receive_buffer.is_some()),
            ("--skip-ip-id", is_undo && target.skip_ip_id),
            ("--busy-poll", is_undo && target.busy_poll.is_some()),
        ];
        match options.iter().find(|(_, is_given)| *is_given) {
            Some((option, _)) => {
                anyhow::bail!("boost {subcommand} has no {option}: it goes with boost apply")
            }
            None => Ok(()),
        }
    }
}
