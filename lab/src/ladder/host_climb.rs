//! A climb on a real interface of this host, from its options to its report.

use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use linerate_host::netlink::addresses;
use linerate_host::{CpuSet, Diagnosis, Host, HostError, HostView, PacketPath, Scope};
use linerate_load::wire::{IpVersion, LinkSpeed, WireError};
use linerate_networks::Net;
use linerate_tune::conflicts::{self, SettingOwners};
use linerate_tune::journal::record::{UndoDeadline, UndoOutcome, UndoReason};
use linerate_tune::journal::{JournalError, JournalWriter, StateStore};
use linerate_tune::plan::PlannedChange;
use linerate_tune::transaction::{ChangeResult, TuneError, TuneStart, TuneTransaction, UndoReport, undo};
use linerate_tune::{TunePlan, TuneProfile, guard, plan};

use crate::ladder::ascent::{self, LadderConfig, LadderOutcome, RateLink, RunStart};
use crate::ladder::bench::{BenchError, server};
use crate::ladder::climb::LadderEvent;
use crate::ladder::configuration::ServerConfiguration;
use crate::ladder::cpus::{self, LadderCpusError};
use crate::ladder::host_bench::{
    self, HostBench, HostBenchOptions, MeasuredServer, RemoteSenders, StepChanges, supplement,
};
use crate::ladder::report::{LadderReport, LadderWarning, SettingsFacts, WarningKind};
use crate::ladder::step::LadderStep;

/// Port of the server, if none is named.
const PORT: u16 = 7777;

/// What to climb and how.
#[derive(Debug, Clone)]
pub struct HostClimb {
    pub terms: LadderConfig,
    /// The interface that the load comes in by.
    pub interface: String,
    /// Where to serve; the first address of the interface and port 7777 if nothing is named.
    pub listen: Option<SocketAddr>,
    /// What is tuned for.
    pub profile: TuneProfile,
    /// CPUs of the server; those of the plan if none are named.
    pub cpus: Option<CpuSet>,
    /// Whether settings of the whole machine may be changed.
    pub host_wide: bool,
    /// Speed of the link that rates are a share of, where the interface does not tell or tells wrong.
    pub link: Option<LinkSpeed>,
    /// Networks that are answered; loopback, private and link-local ones if none are named.
    pub allowed: Vec<Net>,
    /// Whether what proved better stays in place at the end.
    pub keep_better: bool,
}

/// Why a climb could not be made: one line.
#[derive(Debug, thiserror::Error)]
pub enum HostClimbError {
    /// There is no such interface.
    #[error("no interface '{interface}': there are {known}")]
    NoInterface { interface: String, known: String },
    /// The interface has no address.
    #[error(
        "{interface} has no address that another host could send to: give it one, or name one with --listen"
    )]
    NoAddress { interface: String },
    /// The address is not one of the interface.
    #[error("{address} is not an address of {interface}, which has {known}")]
    NotItsAddress { address: IpAddr, interface: String, known: String },
    /// The interface does not tell its speed.
    #[error("{interface} does not tell its speed: name it, such as --link 10G")]
    NoSpeed { interface: String },
    /// None of the CPUs that packets are spread over may be used.
    #[error("none of the CPUs that packets of {interface} go to ({planned}) is among those to be used")]
    NoCpu {
        interface: String,
        /// The CPUs of the plan.
        planned: CpuSet,
    },
    /// The CPUs cannot be had.
    #[error(transparent)]
    Cpus(#[from] LadderCpusError),
    /// The payload does not fit a datagram.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// The host does not tell what has to be known of it.
    #[error(transparent)]
    Host(#[from] HostError),
    /// Nothing can be written down, so nothing is changed.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// A tune could not be begun or undone.
    #[error(transparent)]
    Tune(#[from] TuneError),
    /// What was changed could not be put back.
    #[error("{climbed}; then the settings could not be put back: {undone} (linerate tune undo {tune})")]
    NotUndone {
        /// How the climb ended.
        climbed: String,
        /// What stood in the way.
        undone: TuneError,
        /// Number of the tune.
        tune: u64,
    },
    /// Server or generator failed.
    #[error(transparent)]
    Bench(#[from] BenchError),
}

/// A climb that can begin: nothing was changed for it.
#[derive(Debug)]
pub struct PreparedRun {
    wanted: HostClimb,
    host: Host,
    plan: TunePlan,
    changes: StepChanges,
    service: MeasuredServer,
    queues: u32,
    link: RateLink,
}

/// Where changes are written down, and who undoes them if this process cannot.
#[derive(Clone, Copy)]
pub struct ChangeRecords<'a> {
    pub store: &'a StateStore,
    /// The command line, for the journal.
    pub argv: &'a [String],
    /// What this program is called with to guard a tune of this number ([`guard::run`]).
    pub guard: &'a dyn Fn(u64) -> Vec<OsString>,
}

/// What a climb came to.
#[derive(Debug)]
pub struct HostRunResult {
    pub report: LadderReport,
    /// What became of each setting that was changed.
    pub undone: UndoReport,
}

/// Reads the host with the server at the foot of the ladder running, and plans.
///
/// # Errors
/// Where interface, address, port or CPUs cannot be had.
pub fn prepare(wanted: HostClimb) -> Result<PreparedRun, HostClimbError> {
    let host = Host::live();
    let address = address(&host, &wanted)?;
    let usable = cpus::usable(wanted.cpus.as_ref())?;
    let mut service = MeasuredServer {
        interface: wanted.interface.clone(),
        address,
        cpus: usable.clone(),
        payload: wanted.terms.payload,
        allowed: wanted.allowed.clone(),
    };
    let mut serving = Some(service.start(&ServerConfiguration::baseline())?);
    let scope = Scope { interfaces: vec![wanted.interface.clone()], port: Some(address.port()), pid: None };
    let path = PacketPath::observe(&host, &scope);
    server::stop(&mut serving)?;
    let view = HostView { now: &path, before: None };
    // The server at the foot of the ladder shares a socket; the steps above give it more before
    // they spread packets.
    let profile = TuneProfile { anyway: true, ..wanted.profile.clone() };
    let mut plan = plan::make(&host, &view, &Diagnosis::of(&view), &profile);
    service.cpus = plan.cpus.iter().copied().filter(|cpu| usable.contains(cpu)).collect();
    if service.cpus.is_empty() {
        let planned = plan.cpus.iter().copied().collect();
        return Err(HostClimbError::NoCpu { interface: wanted.interface, planned });
    }
    let facts = path.link_of(&wanted.interface);
    if wanted.profile.cpus.xps {
        let queues = facts.and_then(|link| link.transmit_queues.value().copied()).unwrap_or(0);
        supplement::transmit(&mut plan, &host, &wanted.interface, queues, &service.cpus);
    }
    supplement::offload(&mut plan, &host, &wanted.interface, &wanted.profile);
    conflicts::resolve(&mut plan, &SettingOwners::observe(&host));
    let speed = facts.and_then(|link| link.speed_bits_per_second.value().copied().flatten());
    let speed = wanted.link.or_else(|| speed.and_then(LinkSpeed::from_bits_per_second));
    let speed = speed.ok_or_else(|| HostClimbError::NoSpeed { interface: wanted.interface.clone() })?;
    let family = if address.is_ipv4() { IpVersion::V4 } else { IpVersion::V6 };
    Ok(PreparedRun {
        link: RateLink::new(&wanted.terms, family, speed)?,
        changes: StepChanges::of(&plan, wanted.host_wide),
        queues: facts.and_then(|link| link.receive_queues.value().copied()).unwrap_or(1),
        host,
        plan,
        service,
        wanted,
    })
}

fn address(host: &Host, wanted: &HostClimb) -> Result<SocketAddr, HostClimbError> {
    let interface = || wanted.interface.clone();
    let names = host.list("/sys/class/net")?;
    if !names.contains(&wanted.interface) {
        return Err(HostClimbError::NoInterface { interface: interface(), known: names.join(", ") });
    }
    let has = addresses(host, &wanted.interface)?;
    let Some(first) = has.first() else {
        return Err(HostClimbError::NoAddress { interface: interface() });
    };
    match wanted.listen {
        None => Ok(SocketAddr::new(*first, PORT)),
        Some(listen) if has.contains(&listen.ip()) => Ok(listen),
        Some(listen) => Err(HostClimbError::NotItsAddress {
            address: listen.ip(),
            interface: interface(),
            known: has.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
        }),
    }
}

impl PreparedRun {
    /// Where the server will be.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.service.address
    }

    /// The CPUs of its workers.
    #[must_use]
    pub fn cpus(&self) -> &[u32] {
        &self.service.cpus
    }

    /// The steps that were asked for and change settings, and what they change.
    #[must_use]
    pub fn by_step(&self) -> Vec<(&'static LadderStep, Vec<&PlannedChange>)> {
        let asked = |id: &str| self.wanted.terms.steps.iter().any(|step| step.id == id);
        self.changes.by_step().into_iter().filter(|(step, _)| asked(step.id)).collect()
    }

    /// Changes that have other programs leave the above, made for as long as the climb lasts; none where nothing of the
    /// host is changed.
    #[must_use]
    pub fn agreements(&self) -> &[PlannedChange] {
        if self.by_step().is_empty() { &[] } else { &self.plan.agreements }
    }

    /// What a tune would set and the climb does not, a line each.
    #[must_use]
    pub fn left(&self) -> &[String] {
        self.changes.left()
    }
}

/// Climbs, puts everything back, and reports. The climb ends early when `cancel` is raised or a generator is lost; what was
/// measured by then is reported.
///
/// # Errors
/// [`HostClimbError`], before anything is measured or where nothing was. Settings are back then, too, but for
/// [`HostClimbError::NotUndone`].
pub fn run(
    prepared: &PreparedRun,
    sending: RemoteSenders,
    records: ChangeRecords<'_>,
    cancel: Arc<AtomicBool>,
    observer: &mut dyn FnMut(&LadderEvent<'_>),
) -> Result<HostRunResult, HostClimbError> {
    let mut writer = records.store.lock()?;
    let begin = TuneStart {
        goal: "ladder".to_owned(),
        argv: records.argv.to_vec(),
        devices: prepared.plan.devices.clone(),
        until: Some(UndoDeadline::Maker {}),
        plan: None,
    };
    let transaction = TuneTransaction::begin(&mut writer, &prepared.host, begin)?;
    let tune = transaction.id();
    // Until all is put back. It needs the lock, and gets it when this process is gone.
    let guard = guard::start((records.guard)(tune));
    let climbed = match &guard {
        Ok(_) => climb(prepared, transaction, sending, cancel, observer),
        Err(error) => transaction.end(Some(error.to_string())).map_err(HostClimbError::from).and_then(|()| {
            Err(HostClimbError::Bench(BenchError::Server(format!("nothing was changed: {error}"))))
        }),
    };
    let undone = undo(&mut writer, &prepared.host, Some(tune), UndoReason::Finished);
    let undone = undone.map_err(|error| HostClimbError::NotUndone {
        climbed: climbed.as_ref().map_or_else(ToString::to_string, |_| "the climb was made".to_owned()),
        undone: error,
        tune,
    })?;
    let LadderOutcome { mut report, kept } = climbed?;
    report.argv = records.argv.to_vec();
    report.warnings.extend(not_restored(&undone));
    let restored = !undone.has_failures() && !undone.has_left();
    let mut settings = SettingsFacts { tune, restored, kept_tune: None };
    let whole = report.warnings.iter().all(|warning| warning.kind != WarningKind::Interrupted);
    if prepared.wanted.keep_better && restored && whole {
        settings.kept_tune = keep(prepared, &kept, &mut writer, &records, &mut report.warnings)?;
    }
    report.settings = Some(settings);
    Ok(HostRunResult { report, undone })
}

/// The climb itself. Whatever comes of it, the tune has ended when it is over.
fn climb(
    prepared: &PreparedRun,
    transaction: TuneTransaction<'_>,
    sending: RemoteSenders,
    cancel: Arc<AtomicBool>,
    observer: &mut dyn FnMut(&LadderEvent<'_>),
) -> Result<LadderOutcome, HostClimbError> {
    let terms = &prepared.wanted.terms;
    let options = HostBenchOptions {
        service: prepared.service.clone(),
        queues: prepared.queues,
        changes: prepared.changes.clone(),
        measuring: terms.measuring(host_bench::DRAIN, host_bench::START, cancel),
    };
    let mut bench = HostBench::new(options, &prepared.host, transaction, sending);
    let started = RunStart::now();
    let climbed = bench
        .agree(prepared.agreements())
        .and_then(|()| bench.begin())
        .and_then(|()| ascent::ascend(&mut bench, terms, &prepared.link, &started, "root", observer));
    let ended = bench.end(climbed.as_ref().err().map(ToString::to_string));
    let climbed = climbed?;
    ended?;
    Ok(climbed)
}

fn not_restored(undone: &UndoReport) -> impl Iterator<Item = LadderWarning> {
    undone.settings.iter().filter_map(|item| {
        let why = match &item.outcome {
            UndoOutcome::Restored | UndoOutcome::Already => return None,
            UndoOutcome::Drift { found } => format!("somebody else changed it meanwhile, it is '{found}'"),
            UndoOutcome::Gone { why } => format!("it is gone: {why}"),
            UndoOutcome::Failed { why, .. } => why.clone(),
            UndoOutcome::Covered { by } => format!("tune {by} holds it"),
        };
        let detail = format!("{} was '{}' before: {why}", item.name, item.first);
        Some(LadderWarning { kind: WarningKind::NotRestored, detail })
    })
}

/// Makes what proved better again, as a tune of its own.
fn keep(
    prepared: &PreparedRun,
    kept: &ServerConfiguration,
    writer: &mut JournalWriter,
    records: &ChangeRecords<'_>,
    warnings: &mut Vec<LadderWarning>,
) -> Result<Option<u64>, HostClimbError> {
    let plan = prepared.changes.kept(&prepared.plan, kept);
    if plan.changes.is_empty() {
        return Ok(None);
    }
    let begin = TuneStart {
        goal: format!("{}: what a ladder showed to be better", plan.goal),
        argv: records.argv.to_vec(),
        devices: plan.devices.clone(),
        until: None,
        plan: Some(&plan),
    };
    let mut transaction = TuneTransaction::begin(writer, &prepared.host, begin)?;
    let tune = transaction.id();
    let mut broke_off = None;
    for change in plan.agreements.iter().chain(&plan.changes) {
        let changed = transaction.change_from(&prepared.host, &change.setting, &change.from, &change.to)?;
        if let ChangeResult::Refused { why } = changed {
            warnings.push(LadderWarning {
                kind: WarningKind::Unknown,
                detail: format!("{} was not kept: {why}", change.setting),
            });
            broke_off = Some(why);
            break;
        }
    }
    transaction.end(broke_off)?;
    Ok(Some(tune))
}
