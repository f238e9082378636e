//! The boosts among the tunes of a journal.

use anyhow::Result;
use linerate_host::{Host, Setting};
use linerate_tune::boost::ObservedServer;
use linerate_tune::boost::discovery::ServerGroup;
use linerate_tune::journal::record::UndoReason;
use linerate_tune::journal::tune::TrackedSetting;
use linerate_tune::journal::{Journal, JournalWriter, RecordedTune};
use linerate_tune::plan::PlannedChange;
use linerate_tune::{TunePlan, transaction};

use super::arguments::BoostTargetArgs;
use crate::command::tune::apply::runner::tell;

/// Prefix of the goal of every boost.
const GOAL: &str = "boost";

/// Whether the tune is a boost of the requested server, or of any server if none is requested.
pub(super) fn is_meant(tune: &RecordedTune, target: &BoostTargetArgs) -> bool {
    let (port, pid) = (target.port, target.pid);
    is_boost(&tune.begun.goal)
        && port.is_none_or(|port| is_on(tune, port))
        && pid.is_none_or(|pid| {
            was_asked_for(tune, pid) || tune.tracked.iter().any(|held| is_of(&held.setting, pid))
        })
}

/// Whether the goal is that of a boost.
pub(super) fn is_boost(goal: &str) -> bool {
    goal.strip_prefix(GOAL).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
}

/// The number of the latest boost of the requested server that is in effect.
pub(super) fn latest(journal: &Journal, target: &BoostTargetArgs) -> Option<u64> {
    let tunes = journal.tunes();
    tunes.iter().rev().find(|tune| tune.is_open() && is_meant(tune, target)).map(|tune| tune.begun.tune)
}

/// The port of the boosted server: the port of a steered group, otherwise the last word of the
/// goal, because settings of threads contain no port.
pub(super) fn port(tune: &RecordedTune) -> Option<u16> {
    let steered = tune.tracked.iter().find_map(|held| port_of(&held.setting));
    steered.or_else(|| tune.begun.goal.rsplit(' ').next()?.parse().ok())
}

/// The boost of a server that is in effect, found by its threads, sockets and groups. `None` if
/// this plan cannot continue it, because another program has changed its settings.
pub(super) fn of_server(
    writer: &JournalWriter,
    host: &Host,
    server: &ObservedServer,
    plan: &TunePlan,
) -> Option<u64> {
    let boot = host.read("/proc/sys/kernel/random/boot_id").ok()?;
    let is_own = |held: &TrackedSetting| match &held.setting {
        Setting::ThreadCpus { pid, .. } => has_process(server, *pid),
        Setting::Socket { socket, .. } => has_process(server, socket.pid),
        Setting::Steering { namespace, protocol, local } => {
            let is_it = |group: &ServerGroup| (group.protocol, group.local) == (*protocol, *local);
            *namespace == server.namespace && server.groups.iter().any(is_it)
        }
        _ => false,
    };
    let is_meant = |tune: &&RecordedTune| {
        let is_as_left = |change: &PlannedChange| {
            tune.tracked(&change.setting).is_none_or(|held| held.expects(&change.from))
        };
        tune.is_open()
            && tune.undo.is_none()
            && is_boost(&tune.begun.goal)
            && tune.begun.is_of_earlier_boot(boot.trim()) == Some(false)
            && tune.tracked.iter().any(is_own)
            && plan.changes.iter().all(is_as_left)
    };
    writer.tunes().iter().rev().find(is_meant).map(|tune| tune.begun.tune)
}

fn has_process(server: &ObservedServer, pid: u32) -> bool {
    server.processes.iter().any(|process| process.pid == pid)
}

/// Closes the boosts of an ended server on the same ports, because none of their settings is left.
pub(super) fn close_ended(writer: &mut JournalWriter, host: &Host, server: &ObservedServer) -> Result<()> {
    let has_ended = |held: &TrackedSetting| match held.setting.read(host) {
        Err(error) => error.is_gone(),
        // A restarted server has a group with the same address.
        Ok(now) => matches!(held.setting, Setting::Steering { .. }) && !held.expects(&now),
    };
    let is_over = |tune: &&RecordedTune| {
        tune.is_open()
            && is_boost(&tune.begun.goal)
            && tune.begun.namespace.is_none_or(|namespace| namespace == server.namespace)
            && port(tune).is_some_and(|port| server.udp_ports().contains(&port))
            && tune.tracked.iter().all(has_ended)
    };
    let over: Vec<u64> = writer.tunes().iter().filter(is_over).map(|tune| tune.begun.tune).collect();
    for tune in over {
        transaction::undo(writer, host, Some(tune), UndoReason::Finished)?;
        tell(&format!("tune {tune} is closed: its server has ended\n"));
    }
    Ok(())
}

fn port_of(setting: &Setting) -> Option<u16> {
    match setting {
        Setting::Steering { local, .. } => Some(local.port()),
        _ => None,
    }
}

fn is_on(tune: &RecordedTune, port: u16) -> bool {
    tune.tracked.iter().any(|held| port_of(&held.setting) == Some(port)) || self::port(tune) == Some(port)
}

/// Whether the boost's command line named the process, which may hold sockets only.
fn was_asked_for(tune: &RecordedTune, pid: u32) -> bool {
    let (argv, pid) = (&tune.begun.argv, pid.to_string());
    argv.windows(2).any(|words| words == ["--pid", &pid]) || argv.contains(&format!("--pid={pid}"))
}

fn is_of(setting: &Setting, process: u32) -> bool {
    match setting {
        Setting::ThreadCpus { pid, .. } => *pid == process,
        Setting::Socket { socket, .. } => socket.pid == process,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_boost_is_known_by_its_goal() {
        for (goal, expected) in [
            ("boost nsd on port 53", true),
            ("boost", true),
            ("boosted-profile", false),
            ("udp-server", false),
        ] {
            assert_eq!(is_boost(goal), expected, "{goal}");
        }
    }
}
