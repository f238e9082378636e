//! `linerate ladder`: the ladder on a real interface, with generators on other hosts.

use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;
use linerate_host::Host;
use linerate_lab::ladder::config::{KeepPolicy, RunTiming};
use linerate_lab::ladder::host_run::{self, ChangeRecords, HostRunConfig, PreparedRun, RunningServerConfig};
use linerate_lab::ladder::remote::{self, RemoteGenerators, SshHost};
use linerate_lab::ladder::run::LadderOutcome;
use linerate_lab::ladder::saturation::{self, RemoteSenders, SenderCounts};
use linerate_load::Generator;
use linerate_load::workload::{WorkloadOptions, WorkloadSource};
use linerate_tune::journal::StateStore;

use crate::command::ladder_args::{LadderRunArgs, write_report};
use crate::command::netns::NetnsArgs;
use crate::command::remote_args::RemoteArgs;
use crate::command::results::ResultTargets;
use crate::command::tune::confirm::{guard_arguments, guard_directory};
use crate::command::tune::{ConsentMode, StateDirArgs, host_name, profile_named};
use crate::interrupt::InterruptFlag;
use crate::origin;
use crate::output;
use crate::progress::RunProgress;
use crate::quantity;
use crate::render::ladder_changes;
use crate::render::style::TextStyle;
use crate::suggestion::SuggestedValues;

/// Run the ladder on a real interface of this host, with generators on other hosts, and report.
///
/// Measures linerate's own server, or with --port the server that runs already. A run takes about a minute per step,
/// 24 seconds with --quick.
#[derive(Debug, Args)]
pub(crate) struct LadderArgs {
    /// Interface that receives the load
    #[arg(short = 'i', long, value_name = "IF", required_unless_present_any = ["list", "compare"])]
    interface: Option<String>,
    /// Comma-separated hosts that generate load; reached by ssh, with linerate installed
    #[arg(long, value_name = "ssh://HOST,..", value_delimiter = ',', required_unless_present_any = ["list", "compare"])]
    from: Vec<SshHost>,
    /// Where to serve [default: the first address of the interface, port 7777]
    #[arg(long, value_name = "ADDR:PORT", conflicts_with_all = ["port", "workload", "guard_loss", "guard_p99"])]
    listen: Option<SocketAddr>,
    /// Measure the server that runs on this UDP port, which is never restarted, instead of linerate's own
    #[arg(short = 'p', long, value_name = "PORT", requires = "workload", value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,
    /// Requests for the running server: dns:FILE, ntp, radius:FILE, raw:FILE or echo
    #[arg(long, value_name = "PROTOCOL[:FILE]", requires = "port")]
    workload: Option<WorkloadSource>,
    /// Offer at most this many requests per second, such as 20k
    #[arg(long, value_name = "RATE", value_parser = quantity::parse_rate)]
    max_rate: Option<f64>,
    /// End the run and restore everything once real clients lose more than this share of their requests
    #[arg(long, value_name = "RATIO", requires = "port", value_parser = quantity::parse_share)]
    guard_loss: Option<f64>,
    /// End the run and restore everything once more than 1 % of the replies to real clients take longer, such as 5ms
    #[arg(long, value_name = "TIME", requires = "port", value_parser = quantity::parse_duration)]
    guard_p99: Option<Duration>,
    /// Profile: a name (`tune profiles` lists them) or a file such as ./mine.toml
    #[arg(long = "for", value_name = "NAME|FILE.toml", default_value = "udp-server", value_parser = SuggestedValues::profiles(), hide_possible_values = true)]
    goal: String,
    #[command(flatten)]
    running: LadderRunArgs,
    /// Keep the settings that proved better, as a tune that you can undo
    #[arg(long, conflicts_with = "policy")]
    keep_better: bool,
    #[command(flatten)]
    reaching: RemoteArgs,
    #[command(flatten)]
    pub(super) netns: NetnsArgs,
    #[command(flatten)]
    state_dir: StateDirArgs,
    #[command(flatten)]
    consent: ConsentMode,
}

/// Facts about the generators, known before the run.
struct ReachedHosts {
    /// CPUs of the smallest host.
    fewest_cpus: usize,
    /// Source addresses of the generators.
    sources: Vec<IpAddr>,
}

impl LadderArgs {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let targets = self.running.results.targets()?;
        if let Some(status) = self.running.run_without_measuring(&targets)? {
            return Ok(status);
        }
        ensure!(
            rustix::process::geteuid().is_root(),
            "ladder changes settings of the host, which requires root: run it with sudo (lab requires no privilege)"
        );
        self.consent.check()?;
        let config = self.config()?;
        let duration = config.run.duration;
        let store = self.state_dir.store();
        // If another process holds the lock, fails before anything is read or connected.
        drop(store.lock()?);
        let interrupt = InterruptFlag::install()?;
        let prepared_run = host_run::prepare(config)?;
        let mut options = self.remote_options(&prepared_run)?;
        options.cancel = interrupt.flag();
        let reached_hosts = self.connect_generators(&options)?;
        status!(
            "{}",
            ladder_changes::before(
                &prepared_run,
                &host_name(&Host::live()),
                &self.names(),
                TextStyle::stderr()
            )
        );
        if !self.consent.confirm("run it?", &interrupt)? {
            status_line!("nothing was changed");
            return Ok(ExitCode::from(1));
        }
        let mut progress = RunProgress::new(duration, self.running.quiet);
        let senders = self.senders(options, reached_hosts);
        let started_unix_seconds = origin::unix_seconds();
        let run_result = run_prepared(&prepared_run, senders, &store, &interrupt, &mut progress);
        progress.finish();
        self.report(&targets, started_unix_seconds, run_result?)
    }

    fn config(&self) -> Result<HostRunConfig> {
        let server_program = self.running_server()?;
        let mut run =
            self.running.config(RunTiming::REMOTE_QUICK, RunTiming::REMOTE, server_program.is_some())?;
        if let Some(server_program) = &server_program {
            run.payload_bytes = server_program.workload.requests(&WorkloadOptions::default())?.mean_bytes();
        }
        run.max_rate_per_second = self.max_rate;
        run.guard_loss_ratio = self.guard_loss;
        run.guard_p99_ns = self.guard_p99.map(|limit| u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX));
        if self.keep_better {
            run.policy = KeepPolicy::KeepBetter;
        }
        Ok(HostRunConfig {
            run,
            interface: self.interface.clone().context("--interface is missing")?,
            listen: self.listen,
            profile: profile_named(&self.goal)?,
            running: server_program,
            allowed: self.reaching.allow.clone(),
            keep_better: self.keep_better,
        })
    }

    /// The running server, if one is measured. Reports a mistake in the workload before anything is
    /// connected.
    fn running_server(&self) -> Result<Option<RunningServerConfig>> {
        let Some((port, workload)) = self.port.zip(self.workload.as_ref()) else { return Ok(None) };
        Ok(Some(RunningServerConfig { port, workload: workload.contents()? }))
    }

    fn remote_options(&self, prepared_run: &PreparedRun) -> Result<remote::RemoteOptions> {
        let config = &prepared_run.config;
        let workload = config.running.as_ref().map(|running| running.workload.clone());
        let load = remote::RemoteLoad {
            targets: vec![prepared_run.address],
            payload_bytes: workload.is_none().then_some(config.run.payload_bytes as usize),
            workload,
            flows: Some(self.running.flows as usize),
            backend: self.running.backend,
            no_fragment: self.running.no_fragment,
            ..remote::RemoteLoad::default()
        };
        self.reaching.options(&self.from, load)
    }

    /// Connects to all hosts before the prompt.
    fn connect_generators(&self, options: &remote::RemoteOptions) -> Result<ReachedHosts> {
        let generators = RemoteGenerators::start(options.clone())?;
        for warning in generators.warnings() {
            status_line!("linerate: {warning}");
        }
        Ok(ReachedHosts { fewest_cpus: generators.fewest_cpus(), sources: generators.describe().sources })
    }

    fn senders(
        &self,
        options: remote::RemoteOptions,
        reached_hosts: ReachedHosts,
    ) -> RemoteSenders<RemoteGenerators> {
        let max_threads = (self.running.flows as usize).max(1);
        let counts =
            saturation::sender_counts(options.hosts.len(), reached_hosts.fewest_cpus.min(max_threads));
        let start = move |senders: SenderCounts| {
            let mut options = options.clone();
            options.hosts.truncate(senders.hosts);
            options.load.threads = Some(senders.threads);
            RemoteGenerators::start(options)
        };
        RemoteSenders::new(Box::new(start), self.names(), counts, reached_hosts.sources)
    }

    fn names(&self) -> Vec<String> {
        self.from.iter().map(ToString::to_string).collect()
    }

    fn report(
        &self,
        targets: &ResultTargets,
        started_unix_seconds: Option<u64>,
        run_result: LadderOutcome,
    ) -> Result<ExitCode> {
        let command = |subcommand: &str| self.state_dir.command(subcommand);
        let after = ladder_changes::after(&run_result, &command, TextStyle::stderr());
        let code = write_report(targets, started_unix_seconds, run_result.report, &run_result.warnings)?;
        status!("{after}");
        Ok(code)
    }
}

fn run_prepared(
    prepared_run: &PreparedRun,
    senders: RemoteSenders<RemoteGenerators>,
    store: &StateStore,
    interrupt: &InterruptFlag,
    progress: &mut RunProgress,
) -> Result<LadderOutcome> {
    let directory = guard_directory(store)?;
    let guard = |tune: u64| guard_arguments(&directory, tune);
    let argv = output::argv();
    let records = ChangeRecords { store, argv: &argv, guard: &guard };
    Ok(host_run::run(prepared_run, senders, records, interrupt.flag(), &mut |event| progress.event(event))?)
}
