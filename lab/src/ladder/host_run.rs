//! A run on a real interface of this host, from its configuration to its report.

use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use linerate_host::netlink::addresses;
use linerate_host::{Diagnosis, Host, HostView, PacketPath, Scope};
use linerate_load::wire::{IpVersion, LinkSpeed, WireFormat};
use linerate_networks::Net;
use linerate_tune::conflicts::{self, SettingOwners};
use linerate_tune::journal::record::{UndoDeadline, UndoOutcome, UndoReason};
use linerate_tune::journal::{JournalWriter, StateStore};
use linerate_tune::plan::PlannedChange;
use linerate_tune::transaction::{
    ChangeOutcome, ChangeTarget, TuneError, TuneStart, TuneTransaction, UndoReport, undo,
};
use linerate_tune::{TunePlan, TuneProfile, guard};

use crate::ladder::boost_changes;
use crate::ladder::config::LadderConfig;
use crate::ladder::configuration::ServerConfiguration;
use crate::ladder::error::{HostRunError, TestbedError};
use crate::ladder::host_testbed::{HostTestbed, start_server};
use crate::ladder::plan_changes::{self, StepChanges};
use crate::ladder::remote::RemoteGenerators;
use crate::ladder::report::{LadderWarning, SettingsFacts, WarningKind};
use crate::ladder::run::{self, LadderEvent, LadderOutcome};
use crate::ladder::running_program::RunningProgram;
use crate::ladder::saturation::RemoteSenders;
use crate::ladder::server;
use crate::ladder::step::LadderStep;

pub use crate::ladder::running_program::RunningServerConfig;

const DEFAULT_PORT: u16 = 7777;

#[derive(Debug, Clone)]
pub struct HostRunConfig {
    pub run: LadderConfig,
    /// The interface that receives the load.
    pub interface: String,
    /// Address of the server; `None`: the first address of the interface and port 7777.
    pub listen: Option<SocketAddr>,
    pub profile: TuneProfile,
    /// A server that already runs; `None`: linerate starts its own server.
    pub running: Option<RunningServerConfig>,
    /// Networks that the server answers; empty: loopback, private and link-local networks.
    pub allowed: Vec<Net>,
    /// Whether the better settings stay after the run.
    pub keep_better: bool,
}

/// A run that is ready to start. No setting has changed yet.
#[derive(Debug)]
pub struct PreparedRun {
    pub config: HostRunConfig,
    /// The address of the server.
    pub address: SocketAddr,
    /// CPUs of the server's workers, or CPUs that should receive its packets.
    pub server_cpus: Vec<u32>,
    plan: TunePlan,
    pub(crate) host: Host,
    /// A server that already runs; `None`: linerate starts its own server.
    pub(crate) program: Option<RunningProgram>,
    pub(crate) queues: u32,
    pub(crate) numa_nodes: Option<u32>,
    pub(crate) changes: StepChanges,
    pub(crate) wire: WireFormat,
}

/// The journal, and the process that undoes changes if this one dies.
#[derive(Clone, Copy)]
pub struct ChangeRecords<'a> {
    pub store: &'a StateStore,
    /// The command line, for the journal.
    pub argv: &'a [String],
    /// Arguments of this program that make it guard the tune with this number ([`guard::run`]).
    pub guard: &'a dyn Fn(u64) -> Vec<OsString>,
}

/// Reads the host while the server runs, and makes the plan. linerate's own server is stopped
/// afterwards.
///
/// # Errors
/// If interface, address, port, server or CPUs cannot be used.
pub fn prepare(mut config: HostRunConfig) -> Result<PreparedRun, HostRunError> {
    let host = Host::live();
    let addresses = interface_addresses(&host, &config.interface)?;
    config.run.resolve_cpus()?;
    let interface = config.interface.clone();
    let (program, address, path) = match &config.running {
        Some(running) => {
            let (program, address, path) = RunningProgram::find(&host, running, &interface, &addresses)?;
            (Some(program), address, path)
        }
        None => {
            let address = address(&addresses, &config)?;
            let baseline = ServerConfiguration::baseline();
            let mut baseline_server = Some(start_server(&config, address, &config.run.cpus, &baseline)?);
            let scope = Scope { interfaces: vec![interface.clone()], port: Some(address.port()), pid: None };
            let path = PacketPath::observe(&host, &scope);
            server::stop(&mut baseline_server)?;
            (None, address, path)
        }
    };
    config.run.server = program.as_ref().map(|program| program.recipe.clone());
    let view = HostView { now: &path, before: None };
    // linerate's baseline server has one socket, and steps give it one per CPU before they spread
    // packets. A running server may have only one socket; then the run measures the effect of
    // spreading on it.
    let profile = TuneProfile { anyway: true, ..config.profile.clone() };
    let owners = SettingOwners::observe(&host);
    let mut plan = conflicts::resolved_plan(&host, &view, &Diagnosis::of(&view), &profile, &owners);
    let is_usable = |cpu: &u32| config.run.cpus.contains(cpu);
    let server_cpus: Vec<u32> = plan.cpus.iter().copied().filter(is_usable).collect();
    if server_cpus.is_empty() {
        let planned_cpus = plan.cpus.iter().copied().collect();
        return Err(HostRunError::NoCpu { interface, planned: planned_cpus });
    }
    let link = path.link_of(&interface);
    if config.profile.cpus.xps {
        let queues = link.and_then(|link| link.transmit_queues.value().copied()).unwrap_or(0);
        plan_changes::add_transmit_queues(&mut plan, &host, &interface, queues, &server_cpus);
    }
    plan_changes::add_offload(&mut plan, &host, &interface, &config.profile);
    conflicts::resolve(&mut plan, &owners);
    let speed = link.and_then(|link| link.speed_bits_per_second.value().copied().flatten());
    let speed = config.run.link.or_else(|| speed.and_then(LinkSpeed::from_bits_per_second));
    let speed = speed.ok_or(HostRunError::NoSpeed { interface })?;
    let version = if address.is_ipv4() { IpVersion::V4 } else { IpVersion::V6 };
    let mut changes = StepChanges::from_plan(&plan, config.run.host_wide);
    changes.add_smt(&host, config.run.host_wide);
    Ok(PreparedRun {
        wire: config.run.wire(version, speed)?,
        queues: link.and_then(|link| link.receive_queues.value().copied()).unwrap_or(1),
        numa_nodes: path.machine.numa_nodes.value().copied(),
        config,
        address,
        server_cpus,
        plan,
        host,
        program,
        changes,
    })
}

/// At least one address.
fn interface_addresses(host: &Host, interface: &str) -> Result<Vec<IpAddr>, HostRunError> {
    let names = host.list("/sys/class/net")?;
    if !names.iter().any(|name| name == interface) {
        return Err(HostRunError::NoInterface { interface: interface.to_owned(), known: names.join(", ") });
    }
    let ip_addresses = addresses(host, interface)?;
    if ip_addresses.is_empty() {
        return Err(HostRunError::NoAddress { interface: interface.to_owned() });
    }
    Ok(ip_addresses)
}

/// The address of linerate's own server.
fn address(addresses: &[IpAddr], config: &HostRunConfig) -> Result<SocketAddr, HostRunError> {
    match config.listen {
        None => Ok(SocketAddr::new(addresses[0], DEFAULT_PORT)),
        Some(listen) if addresses.contains(&listen.ip()) => Ok(listen),
        Some(listen) => Err(HostRunError::NotItsAddress {
            address: listen.ip(),
            interface: config.interface.clone(),
            known: addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
        }),
    }
}

impl PreparedRun {
    /// Name and process of a server that runs already.
    #[must_use]
    pub fn program(&self) -> Option<(&str, u32)> {
        self.program.as_ref().map(|program| (program.name.as_str(), program.pid))
    }

    /// The steps of the run that change a running server with boost. The changes are planned under load.
    #[must_use]
    pub fn boosted_steps(&self) -> Vec<&'static str> {
        let is_boosted = |step: &&&LadderStep| boost_changes::is_boosted(&step.configuration());
        let steps = self.config.run.steps.iter().filter(is_boosted).map(|step| step.id);
        if self.program.is_some() { steps.collect() } else { Vec::new() }
    }

    /// The steps of the run that change settings, with their changes.
    #[must_use]
    pub fn by_step(&self) -> Vec<(&'static LadderStep, Vec<&PlannedChange>)> {
        let is_run = |id: &str| self.config.run.steps.iter().any(|step| step.id == id);
        self.changes.by_step().into_iter().filter(|(step, _)| is_run(step.id)).collect()
    }

    /// Changes during the run that keep other programs from changing the same settings.
    #[must_use]
    pub fn exclusions(&self) -> &[PlannedChange] {
        if self.by_step().is_empty() { &[] } else { &self.plan.exclusions }
    }

    /// Changes that a tune would make and the run does not, one line each.
    #[must_use]
    pub fn skipped(&self) -> &[String] {
        self.changes.skipped()
    }
}

/// Measures, restores all settings, and reports. If `cancel` is set or a generator is lost, the run
/// ends early and the report has the steps until then.
///
/// # Errors
/// [`HostRunError`], before anything is measured or if the baseline cannot be measured. Settings are restored then, too,
/// except with [`HostRunError::NotUndone`].
pub fn run(
    prepared: &PreparedRun,
    senders: RemoteSenders<RemoteGenerators>,
    records: ChangeRecords<'_>,
    cancel: Arc<AtomicBool>,
    observer: &mut dyn FnMut(&LadderEvent<'_>),
) -> Result<LadderOutcome, HostRunError> {
    let mut writer = records.store.lock()?;
    let tune_start = TuneStart {
        goal: "ladder".to_owned(),
        argv: records.argv.to_vec(),
        devices: prepared.plan.devices.clone(),
        until: Some(UndoDeadline::Maker {}),
        plan: None,
    };
    let host = &prepared.host;
    let transaction = TuneTransaction::begin(&mut writer, host, tune_start)?;
    let tune = transaction.id();
    // Lives until all settings are restored. It waits for the lock, which becomes free when this
    // process ends.
    let guard = guard::start((records.guard)(tune));
    let measurement = match &guard {
        Ok(_) => measure(prepared, transaction, senders, cancel, observer),
        Err(error) => transaction.end(Some(error.to_string())).map_err(HostRunError::from).and_then(|()| {
            Err(HostRunError::Testbed(TestbedError::Server(format!("nothing was changed: {error}"))))
        }),
    };
    let undo_result = undo(&mut writer, host, Some(tune), UndoReason::Finished);
    let (mut outcome, kept_changes) = match measurement {
        Ok(measurement) => measurement,
        Err(error) => return Err(with_undo_failure(error, undo_result, tune)),
    };
    let warnings = &mut outcome.warnings;
    let is_restored = match &undo_result {
        Ok(undo_report) => {
            warnings.extend(restore_warnings(undo_report));
            !undo_report.has_failures() && !undo_report.has_skipped()
        }
        Err(error) => {
            let detail = format!("the settings could not be restored: {error} (linerate tune undo {tune})");
            warnings.push(LadderWarning::new(WarningKind::NotRestored, detail));
            false
        }
    };
    let mut settings = SettingsFacts { tune, restored: is_restored, kept_tune: None };
    if prepared.config.keep_better && is_restored && !is_interrupted(warnings) {
        let mut plan = prepared.changes.kept_plan(&prepared.plan, &outcome.kept);
        plan.changes.extend(kept_changes);
        settings.kept_tune = apply_kept(host, &plan, &mut writer, &records, warnings);
    }
    outcome.report.settings = Some(settings);
    Ok(outcome)
}

fn is_interrupted(warnings: &[LadderWarning]) -> bool {
    warnings.iter().any(|warning| warning.kind == WarningKind::Interrupted)
}

/// Ends the tune. Returns the outcome and the changes of boost to keep, or an error.
fn measure(
    prepared: &PreparedRun,
    transaction: TuneTransaction<'_>,
    senders: RemoteSenders<RemoteGenerators>,
    cancel: Arc<AtomicBool>,
    observer: &mut dyn FnMut(&LadderEvent<'_>),
) -> Result<(LadderOutcome, Vec<PlannedChange>), HostRunError> {
    let config = &prepared.config.run;
    let mut testbed = HostTestbed::new(prepared, cancel, transaction, senders);
    let started = Instant::now();
    let mut measurement = testbed
        .exclude_others(prepared.exclusions())
        .and_then(|()| testbed.begin())
        .and_then(|()| run::run(&mut testbed, config, started, observer));
    let kept_changes =
        measurement.as_ref().map_or_else(|_| Vec::new(), |outcome| testbed.boost_changes(&outcome.kept));
    let interruption = testbed.interruption();
    let end_result = testbed.end(measurement.as_ref().err().map(ToString::to_string));
    if let (Ok(outcome), Some(error)) = (&mut measurement, interruption.or(end_result.err()))
        && !is_interrupted(&outcome.warnings)
    {
        let detail = format!("ended after the last step: {error}");
        outcome.warnings.push(LadderWarning::new(WarningKind::Interrupted, detail));
    }
    Ok((measurement?, kept_changes))
}

fn with_undo_failure(
    error: HostRunError,
    undo_result: Result<UndoReport, TuneError>,
    tune: u64,
) -> HostRunError {
    let undo: Vec<String> = match undo_result {
        Ok(undo_report) => restore_warnings(&undo_report).map(|warning| warning.detail).collect(),
        Err(undo_error) => vec![undo_error.to_string()],
    };
    match undo.is_empty() {
        true => error,
        false => HostRunError::NotUndone { run: error.to_string(), undo: undo.join("; "), tune },
    }
}

fn restore_warnings(undo_report: &UndoReport) -> impl Iterator<Item = LadderWarning> {
    undo_report.settings.iter().filter_map(|item| {
        let why = match &item.outcome {
            UndoOutcome::Restored | UndoOutcome::Already => return None,
            UndoOutcome::Drift { found } => format!("another program changed it to '{found}'"),
            // The setting ended with the server's process.
            UndoOutcome::Gone { .. } if item.setting.is_of_process() => return None,
            UndoOutcome::Gone { why } => format!("it is gone: {why}"),
            UndoOutcome::Failed { why, .. } => why.clone(),
            UndoOutcome::Covered { by } => format!("tune {by} holds it"),
        };
        let detail = format!("{} was '{}' before: {why}", item.name, item.original);
        Some(LadderWarning::new(WarningKind::NotRestored, detail))
    })
}

/// Applies the better settings again as a new tune, and returns its number. What cannot be applied
/// becomes a warning.
fn apply_kept<T: ChangeTarget>(
    target: &T,
    plan: &TunePlan,
    writer: &mut JournalWriter,
    records: &ChangeRecords<'_>,
    warnings: &mut Vec<LadderWarning>,
) -> Option<u64> {
    if plan.changes.is_empty() {
        return None;
    }
    let mut warn = |detail| warnings.push(LadderWarning::new(WarningKind::NotKept, detail));
    let tune_start = TuneStart {
        goal: format!("{}: what a ladder showed to be better", plan.goal),
        argv: records.argv.to_vec(),
        devices: plan.devices.clone(),
        until: None,
        plan: Some(plan),
    };
    let mut transaction = match TuneTransaction::begin(writer, target, tune_start) {
        Ok(transaction) => transaction,
        Err(error) => {
            warn(format!("no setting was kept: {error}"));
            return None;
        }
    };
    let tune = transaction.id();
    let mut abort_reason = None;
    for (index, change) in plan.exclusions.iter().chain(&plan.changes).enumerate() {
        let why = match transaction.change_from(target, &change.setting, &change.from, &change.to) {
            Ok(ChangeOutcome::Made | ChangeOutcome::Already) => continue,
            Ok(ChangeOutcome::Refused { why }) => why,
            Err(error) => error.to_string(),
        };
        warn(format!("{} was not kept: {why}", change.setting));
        abort_reason.get_or_insert(why);
        // Without an exclusion, another program would change the settings again.
        if index < plan.exclusions.len() {
            break;
        }
    }
    if let Err(error) = transaction.end(abort_reason) {
        warn(format!("the end of tune {tune} is not recorded: {error}"));
    }
    Some(tune)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::BTreeMap;

    use linerate_host::{Setting, SettingError, SettingValue};
    use linerate_tune::transaction::UndoneSetting;

    use super::*;
    use crate::ladder::plan_changes::tests::plan;

    /// A host with these settings, which cannot read others.
    struct KeptSettings(Host, RefCell<BTreeMap<Setting, SettingValue>>);

    impl ChangeTarget for KeptSettings {
        fn host(&self) -> &Host {
            &self.0
        }

        fn read(&self, setting: &Setting) -> Result<SettingValue, SettingError> {
            self.1.borrow().get(setting).cloned().map_or_else(|| setting.read(&self.0), Ok)
        }

        fn write(&self, setting: &Setting, value: &SettingValue) -> Result<(), SettingError> {
            self.1.borrow_mut().insert(setting.clone(), value.clone());
            Ok(())
        }
    }

    #[test]
    fn an_error_names_settings_that_were_not_restored() {
        let undone = |outcome| {
            let (setting, name) = (Setting::sysctl("a"), "a".to_owned());
            UndoneSetting { setting, name, renamed_from: None, original: SettingValue::new("1"), outcome }
        };
        let error = |outcomes: Vec<UndoOutcome>| {
            let settings = outcomes.into_iter().map(undone).collect();
            let (why, damaged_lines) = (UndoReason::Finished, Vec::new());
            let undo_report = UndoReport { tune: 3, why, earlier_boot: false, settings, damaged_lines };
            with_undo_failure(TestbedError::Cancelled.into(), Ok(undo_report), 3).to_string()
        };
        assert_eq!(error(vec![UndoOutcome::Restored]), "interrupted");
        let drift = UndoOutcome::Drift { found: SettingValue::new("5") };
        assert_eq!(
            error(vec![UndoOutcome::Restored, drift]),
            "interrupted; then the settings could not be restored: a was '1' before: another program changed it to '5' \
             (linerate tune undo 3)"
        );
    }

    #[test]
    fn settings_that_cannot_be_kept_become_warnings() {
        let directory = tempfile::tempdir().expect("a directory");
        let store = StateStore::at(directory.path());
        let mut writer = store.lock().expect("a journal");
        let value = |text: &str| SettingValue::new(text);
        let found = [("a", "1"), ("changed", "5"), ("z", "1")];
        let found = found.map(|(name, text)| (Setting::sysctl(name), value(text)));
        let host = Host::scripted([("/proc/sys/kernel/random/boot_id", "6c")]);
        let target = KeptSettings(host, RefCell::new(found.into()));
        let change = |name| PlannedChange::new(Setting::sysctl(name), value("1"), value("0"), "");
        let plan = plan(["a", "changed", "missing", "z"].map(change).into());
        let records = ChangeRecords { store: &store, argv: &[], guard: &|_| Vec::new() };
        let mut warnings = Vec::new();
        let tune = apply_kept(&target, &plan, &mut writer, &records, &mut warnings);
        assert!(tune.is_some());
        let details: Vec<&str> = warnings.iter().map(|warning| warning.detail.as_str()).collect();
        assert!(
            details.len() == 2
                && details[0].starts_with("changed was not kept: ")
                && details[1].starts_with("missing was not kept: "),
            "{details:?}"
        );
        let value_of = |name| target.1.borrow()[&Setting::sysctl(name)].to_string();
        assert_eq!(["a", "changed", "z"].map(value_of), ["0", "5", "0"]);
    }
}
