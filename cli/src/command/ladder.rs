//! `linerate ladder`: the ladder on a real interface, with generators on other hosts.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use clap::Args;
use linerate_host::Host;
use linerate_lab::ladder::climb::KeepPolicy;
use linerate_lab::ladder::host_bench::RemoteSenders;
use linerate_lab::ladder::host_climb::{self, ChangeRecords, HostClimb, HostRunResult, PreparedRun};
use linerate_lab::ladder::remote::{self, RemoteGenerators, SenderCounts, SshHost};
use linerate_load::Generator;
use linerate_load::wire::LinkSpeed;
use linerate_networks::Net;
use linerate_tune::journal::StateStore;

use crate::backend::LoadBackendArgument;
use crate::command::climbing::{LadderOutputs, LadderRunArgs, OVER_SSH, PolicyArgument};
use crate::command::tune::{ConsentMode, StateDirArgs, host_name, profile_named};
use crate::interrupt::InterruptFlag;
use crate::output;
use crate::progress::RunProgress;
use crate::render::ladder_changes;
use crate::render::style::TextStyle;

/// Climb the ladder on a real interface of this host, with generators on other hosts, and report.
///
/// A climb takes about a minute a step, 24 seconds with --quick.
#[derive(Debug, Args)]
pub(crate) struct LadderArgs {
    /// Interface that receives the load
    #[arg(short = 'i', long, value_name = "IF", required_unless_present = "list")]
    interface: Option<String>,
    /// Comma-separated hosts that generate load; reached by ssh, with linerate installed
    #[arg(long, value_name = "ssh://HOST,..", value_delimiter = ',', required_unless_present = "list")]
    from: Vec<SshHost>,
    /// Where to serve [default: the first address of the interface, port 7777]
    #[arg(long, value_name = "ADDR:PORT")]
    listen: Option<SocketAddr>,
    /// Profile: a name (`tune profiles` lists them) or a file such as ./mine.toml
    #[arg(long = "for", value_name = "NAME|FILE.toml", default_value = "udp-server")]
    goal: String,
    #[command(flatten)]
    climbing: LadderRunArgs,
    /// Which settings stay for the following steps
    #[arg(long, value_enum, default_value_t = PolicyArgument::KeepAll)]
    policy: PolicyArgument,
    /// Keep the settings that proved better, as a tune that you can undo
    #[arg(long, conflicts_with = "policy")]
    keep_better: bool,
    /// How the generators' requests enter their kernels
    #[arg(long, value_enum, default_value_t = LoadBackendArgument::Auto)]
    backend: LoadBackendArgument,
    /// Fail if a request would be fragmented
    #[arg(long)]
    no_fragment: bool,
    /// Link speed for the line-rate share [default: the interface's speed]
    #[arg(long, value_name = "SPEED")]
    link: Option<LinkSpeed>,
    /// ssh with its arguments, as in "ssh -F FILE -i KEY"
    #[arg(long, value_name = "COMMAND", default_value = "ssh")]
    ssh: String,
    /// Path of linerate on the other hosts
    #[arg(long, value_name = "PATH", default_value = "linerate")]
    remote_program: String,
    /// Allow this network, which is neither private nor link-local; repeatable
    #[arg(long, value_name = "NET")]
    allow: Vec<Net>,
    #[command(flatten)]
    place: StateDirArgs,
    #[command(flatten)]
    agreement: ConsentMode,
}

impl LadderArgs {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let outputs = self.climbing.outputs()?;
        if let Some(listed) = self.climbing.listed(&outputs)? {
            return Ok(listed);
        }
        ensure!(
            rustix::process::geteuid().is_root(),
            "ladder changes settings of the host, which takes root: run it with sudo (lab takes no privilege)"
        );
        self.agreement.check()?;
        let climb = self.host_climb()?;
        let budget = climb.terms.budget;
        let store = self.place.store();
        // Another that changes settings is told before anything is read or connected.
        drop(store.lock()?);
        let interrupt = InterruptFlag::install()?;
        let prepared = host_climb::prepare(climb)?;
        let mut options = self.remote_options(&prepared)?;
        options.cancel = interrupt.flag();
        let cpus = self.reach(&options)?;
        eprint!(
            "{}",
            ladder_changes::before(&prepared, &host_name(&Host::live()), &self.names(), TextStyle::stderr())
        );
        if !self.agreement.given("climb?", &interrupt)? {
            eprintln!("nothing was changed");
            return Ok(ExitCode::from(1));
        }
        let mut progress = RunProgress::new(budget, self.climbing.quiet);
        let finished =
            climb_it(&prepared, self.sending(options, cpus, &interrupt), &store, &interrupt, &mut progress);
        progress.finish();
        self.tell(&outputs, &finished?)
    }

    fn host_climb(&self) -> Result<HostClimb> {
        let policy = if self.keep_better { KeepPolicy::KeepBetter } else { self.policy.into() };
        Ok(HostClimb {
            terms: self.climbing.terms(policy, &OVER_SSH)?,
            interface: self.interface.clone().context("--interface is missing")?,
            listen: self.listen,
            profile: profile_named(&self.goal)?,
            cpus: self.climbing.cpus()?,
            host_wide: self.climbing.host_wide,
            link: self.link,
            allowed: self.allow.clone(),
            keep_better: self.keep_better,
        })
    }

    fn remote_options(&self, prepared: &PreparedRun) -> Result<remote::RemoteOptions> {
        let ssh = shlex::split(&self.ssh).unwrap_or_default();
        ensure!(!ssh.is_empty(), "--ssh: '{}' is no command, or a quote in it does not end", self.ssh);
        let load = remote::RemoteLoad {
            targets: vec![prepared.address()],
            payload_bytes: Some(self.climbing.payload as usize),
            flows: Some(self.climbing.flows as usize),
            backend: self.backend.into(),
            no_fragment: self.no_fragment,
            allow: self.allow.clone(),
            ..remote::RemoteLoad::default()
        };
        let (hosts, program) = (self.from.clone(), self.remote_program.clone());
        Ok(remote::RemoteOptions { hosts, ssh, program, load, ..remote::RemoteOptions::default() })
    }

    /// Sees that all hosts can be reached, before anybody is asked; how many CPUs the smallest has.
    fn reach(&self, options: &remote::RemoteOptions) -> Result<usize> {
        let generators = RemoteGenerators::start(options.clone())?;
        for warning in generators.warnings() {
            eprintln!("linerate: {warning}");
        }
        Ok(generators.fewest_cpus())
    }

    fn sending(
        &self,
        options: remote::RemoteOptions,
        cpus: usize,
        interrupt: &InterruptFlag,
    ) -> RemoteSenders {
        let most = (self.climbing.flows as usize).max(1);
        let steps = remote::steps(options.hosts.len(), cpus.min(most));
        let start = move |senders: SenderCounts| {
            let mut options = options.clone();
            options.hosts.truncate(senders.hosts);
            options.load.threads = Some(senders.threads);
            Ok(Box::new(RemoteGenerators::start(options)?) as Box<dyn Generator>)
        };
        RemoteSenders::new(Box::new(start), self.names(), steps, interrupt.flag())
    }

    fn names(&self) -> Vec<String> {
        self.from.iter().map(ToString::to_string).collect()
    }

    /// The report, and where the settings stand.
    fn tell(&self, outputs: &LadderOutputs, finished: &HostRunResult) -> Result<ExitCode> {
        let code = outputs.write(&finished.report)?;
        let style = TextStyle::stderr();
        let command = |verb: &str| self.place.command(verb);
        eprint!("{}", ladder_changes::after(finished, &command, style));
        Ok(code)
    }
}

fn climb_it(
    prepared: &PreparedRun,
    sending: RemoteSenders,
    store: &StateStore,
    interrupt: &InterruptFlag,
    progress: &mut RunProgress,
) -> Result<HostRunResult> {
    // The guard leaves this directory.
    let directory = store.directory().canonicalize().context("the journal's directory is gone")?;
    let guard = |tune: u64| -> Vec<OsString> {
        let words = ["tune", "guard", &tune.to_string(), "--state-dir"].map(OsString::from);
        words.into_iter().chain([directory.clone().into_os_string()]).collect()
    };
    let argv = output::argv();
    let records = ChangeRecords { store, argv: &argv, guard: &guard };
    Ok(host_climb::run(prepared, sending, records, interrupt.flag(), &mut |event| progress.event(event))?)
}
