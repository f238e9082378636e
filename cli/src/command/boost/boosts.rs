//! The boosts among the tunes of a journal.

use anyhow::Result;
use linerate_host::setting::SocketKnob;
use linerate_host::{Host, Setting};
use linerate_tune::boost::ObservedServer;
use linerate_tune::boost::discovery::ServerGroup;
use linerate_tune::boost::plan::BoostChoice;
use linerate_tune::journal::record::{UndoDeadline, UndoReason};
use linerate_tune::journal::tune::TrackedSetting;
use linerate_tune::journal::{Journal, JournalWriter, RecordedTune, StateStore};
use linerate_tune::plan::PlannedChange;
use linerate_tune::{TunePlan, transaction};

use super::arguments::BoostTargetArgs;

/// Prefix of the goal of every boost.
const GOAL: &str = "boost";

/// Whether the tune is a boost of the requested server, or of any server if none is requested.
fn matches_target(tune: &RecordedTune, target: &BoostTargetArgs) -> bool {
    let (port, pid) = (target.port, target.pid);
    is_boost_goal(&tune.begun.goal)
        && port.is_none_or(|port| uses_port(tune, port))
        && pid.is_none_or(|pid| {
            names_process(tune, pid)
                || tune.tracked.iter().any(|tracked| belongs_to_process(&tracked.setting, pid))
        })
}

pub(super) fn is_boost_goal(goal: &str) -> bool {
    goal.strip_prefix(GOAL).is_some_and(|suffix| suffix.is_empty() || suffix.starts_with(' '))
}

/// Whether the boost was begun in the network namespace of this thread.
pub(super) fn is_in_own_namespace(tune: &RecordedTune) -> bool {
    let own_namespace = linerate_host::bpf::network_namespace().ok().map(u64::from);
    tune.begun.namespace.is_none() || tune.begun.namespace == own_namespace
}

/// The boosts of the requested server, or of any server if none is requested. Another namespace may
/// have a server on the same port, so its boosts count only if this one has none.
pub(super) fn of_target<'t>(tunes: &'t [RecordedTune], target: &BoostTargetArgs) -> Vec<&'t RecordedTune> {
    let matching: Vec<_> = tunes.iter().filter(|tune| matches_target(tune, target)).collect();
    let names_server = target.port.is_some() || target.pid.is_some();
    let is_here = |tune: &&RecordedTune| tune.is_open() && is_in_own_namespace(tune);
    if names_server && matching.iter().any(is_here) {
        return matching.into_iter().filter(is_here).collect();
    }
    matching
}

/// The number of the latest boost of the requested server that is in effect.
pub(super) fn latest(journal: &Journal, target: &BoostTargetArgs) -> Option<u64> {
    let tunes = journal.tunes();
    let boosts = of_target(&tunes, target);
    boosts.into_iter().rev().find(|tune| tune.is_open()).map(|tune| tune.begun.tune)
}

/// The number of the latest boost of this server that is in effect.
pub(super) fn of_server(
    store: &StateStore,
    host: &Host,
    server: &ObservedServer,
    target: &BoostTargetArgs,
) -> Result<Option<u64>> {
    let tunes = store.read()?.tunes();
    let mut boosts = of_target(&tunes, target).into_iter().rev();
    let is_of_server = |tune: &&RecordedTune| is_in_own_namespace(tune) && !has_ended(tune, host, server);
    let boost = boosts.find(|tune| tune.is_open() && is_of_server(tune));
    Ok(boost.map(|tune| tune.begun.tune))
}

/// Which kinds of changes the boost made: the plan for its server now has no others.
pub(super) fn choice_of(tune: &RecordedTune, choice: &BoostChoice) -> BoostChoice {
    let has = |is_kind: fn(&Setting) -> bool| tune.tracked.iter().any(|tracked| is_kind(&tracked.setting));
    let pins = has(|setting| matches!(setting, Setting::ThreadCpus { .. }));
    let steers = has(|setting| {
        matches!(setting, Setting::Steering { .. } | Setting::Socket { knob: SocketKnob::IncomingCpu, .. })
    });
    BoostChoice { no_pin: choice.no_pin || !pins, no_steer: choice.no_steer || !steers, ..choice.clone() }
}

/// The port of the boosted server: the port of a steered group, otherwise the last word of the
/// goal, because settings of threads contain no port.
pub(super) fn port(tune: &RecordedTune) -> Option<u16> {
    let steered_port = tune.tracked.iter().find_map(|tracked| port_of(&tracked.setting));
    steered_port.or_else(|| tune.begun.goal.rsplit(' ').next()?.parse().ok())
}

/// The boost of a server that is in effect, found by its threads, sockets and groups. `None` if
/// this plan cannot continue it, because another program has changed its settings.
pub(super) fn find_by_server(
    writer: &JournalWriter,
    host: &Host,
    server: &ObservedServer,
    plan: &TunePlan,
) -> Option<u64> {
    let boot = host.read("/proc/sys/kernel/random/boot_id").ok()?;
    let belongs_to_server = |tracked: &TrackedSetting| match &tracked.setting {
        Setting::ThreadCpus { pid, .. } => has_process(server, *pid),
        Setting::Socket { socket, .. } => has_process(server, socket.pid),
        Setting::Steering { namespace, protocol, local } => {
            let is_same_group = |group: &ServerGroup| (group.protocol, group.local) == (*protocol, *local);
            *namespace == server.namespace && server.groups.iter().any(is_same_group)
        }
        _ => false,
    };
    let is_continuable = |tune: &&RecordedTune| {
        let is_unchanged = |change: &PlannedChange| {
            tune.tracked(&change.setting).is_none_or(|tracked| {
                tracked.expects(&change.from) || tracked.is_of_closed_sockets(&change.from, &change.to)
            })
        };
        tune.is_open()
            && tune.undo.is_none()
            && is_boost_goal(&tune.begun.goal)
            && tune.begun.is_of_earlier_boot(boot.trim()) == Some(false)
            && tune.tracked.iter().any(belongs_to_server)
            && plan.changes.iter().all(is_unchanged)
    };
    writer.tunes().iter().rev().find(is_continuable).map(|tune| tune.begun.tune)
}

fn has_process(server: &ObservedServer, pid: u32) -> bool {
    server.processes.iter().any(|process| process.pid == pid)
}

/// Whether none of the settings of a boost on the ports of this server is left.
fn has_ended(tune: &RecordedTune, host: &Host, server: &ObservedServer) -> bool {
    let is_gone = |tracked: &TrackedSetting| match tracked.setting.read(host) {
        Err(error) => error.is_gone(),
        // A restarted server has a group with the same address.
        Ok(current) => matches!(tracked.setting, Setting::Steering { .. }) && !tracked.expects(&current),
    };
    tune.is_open()
        && is_boost_goal(&tune.begun.goal)
        && tune.begun.namespace.is_none_or(|namespace| namespace == server.namespace)
        && port(tune).is_some_and(|port| server.udp_ports().contains(&port))
        && tune.tracked.iter().all(is_gone)
}

/// Closes the boosts of an ended server on the same ports.
pub(super) fn close_ended(writer: &mut JournalWriter, host: &Host, server: &ObservedServer) -> Result<()> {
    let ended_tunes = writer.tunes().iter().filter(|tune| has_ended(tune, host, server));
    let ended_tunes: Vec<u64> = ended_tunes.map(|tune| tune.begun.tune).collect();
    for tune in ended_tunes {
        transaction::undo(writer, host, Some(tune), UndoReason::Finished)?;
        status_line!("tune {tune} is closed: its server has ended");
    }
    Ok(())
}

/// When the boost of a restarted server undoes itself, after `tune` boosted it before. The outer `None`:
/// not again, because the tune was undone or its time was over while the server was down.
pub(super) fn deadline_after_restart(tune: &RecordedTune, boot_seconds: u64) -> Option<Option<UndoDeadline>> {
    let until = tune.begun.until.filter(|until| !(tune.confirmed && until.takes_confirmation()));
    let is_over = until.and_then(UndoDeadline::boot_seconds).is_some_and(|end| end <= boot_seconds);
    // A boost is closed as finished because its server has ended.
    let is_undone = tune.undo.is_some_and(|undo| undo.why != UndoReason::Finished);
    (!is_over && !is_undone).then_some(until)
}

fn port_of(setting: &Setting) -> Option<u16> {
    match setting {
        Setting::Steering { local, .. } => Some(local.port()),
        _ => None,
    }
}

fn uses_port(tune: &RecordedTune, port: u16) -> bool {
    tune.tracked.iter().any(|tracked| port_of(&tracked.setting) == Some(port))
        || self::port(tune) == Some(port)
}

/// Whether the boost's command line named the process, which may hold sockets only.
fn names_process(tune: &RecordedTune, pid: u32) -> bool {
    let (argv, pid) = (&tune.begun.argv, pid.to_string());
    argv.windows(2).any(|words| words == ["--pid", &pid]) || argv.contains(&format!("--pid={pid}"))
}

fn belongs_to_process(setting: &Setting, process: u32) -> bool {
    match setting {
        Setting::ThreadCpus { pid, .. } => *pid == process,
        Setting::Socket { socket, .. } => socket.pid == process,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use linerate_tune::journal::tune::RecordedUndo;

    use super::*;

    #[test]
    fn restarted_server_is_boosted_until_the_first_deadline_unless_the_boost_was_undone() {
        let deadline = UndoDeadline::Confirmed { boot_seconds: 10 };
        for (until, confirmed, undo, now, expected) in [
            (None, false, None, 10, Some(None)),
            (Some(deadline), false, None, 9, Some(Some(deadline))),
            (Some(deadline), true, None, 9, Some(None)),
            (Some(deadline), true, Some(UndoReason::Finished), 11, Some(None)),
            (Some(deadline), false, Some(UndoReason::Finished), 10, None),
            (Some(UndoDeadline::Time { boot_seconds: 10 }), true, None, 10, None),
            (None, false, Some(UndoReason::Asked), 10, None),
        ] {
            let undo = undo.map(|why| RecordedUndo { why, unix_seconds: 1, ended: true });
            let mut tune = RecordedTune { confirmed, undo, ..RecordedTune::default() };
            tune.begun.until = until;
            assert_eq!(deadline_after_restart(&tune, now), expected, "{tune:?} {now}");
        }
    }

    #[test]
    fn boosts_are_recognised_by_the_first_word_of_the_goal() {
        for (goal, expected) in [
            ("boost nsd on port 53", true),
            ("boost", true),
            ("boosted-profile", false),
            ("udp-server", false),
        ] {
            assert_eq!(is_boost_goal(goal), expected, "{goal}");
        }
    }
}
