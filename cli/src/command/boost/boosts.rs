//! The boosts among the tunes of a journal.

use linerate_host::Setting;
use linerate_tune::journal::{Journal, Tune};

use super::arguments::Asked;

/// What the goal of each begins with.
const GOAL: &str = "boost";

/// Whether it is a boost of the server that is asked for; of any, where none is.
pub(super) fn is_meant(tune: &Tune, asked: &Asked) -> bool {
    let (port, pid) = (asked.port, asked.pid);
    is_boost(&tune.begun.goal)
        && port.is_none_or(|port| is_on(tune, port))
        && pid.is_none_or(|pid| {
            was_asked_for(tune, pid) || tune.held.iter().any(|held| is_of(&held.setting, pid))
        })
}

/// Whether that is the goal of a boost.
pub(super) fn is_boost(goal: &str) -> bool {
    goal.strip_prefix(GOAL).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
}

/// The number of the latest that is in force.
pub(super) fn latest(journal: &Journal, asked: &Asked) -> Option<u64> {
    let tunes = journal.tunes();
    tunes.iter().rev().find(|tune| tune.is_open() && is_meant(tune, asked)).map(|tune| tune.begun.tune)
}

/// The port of the server it is of: that of a group it steers, else the one its goal ends with, since threads tell of none.
pub(super) fn port(tune: &Tune) -> Option<u16> {
    let steered = tune.held.iter().find_map(|held| port_of(&held.setting));
    steered.or_else(|| tune.begun.goal.rsplit(' ').next()?.parse().ok())
}

fn port_of(setting: &Setting) -> Option<u16> {
    match setting {
        Setting::Steering { local, .. } => Some(local.port()),
        _ => None,
    }
}

fn is_on(tune: &Tune, port: u16) -> bool {
    tune.held.iter().any(|held| port_of(&held.setting) == Some(port)) || self::port(tune) == Some(port)
}

/// Whether its command line named that process, which may hold sockets only.
fn was_asked_for(tune: &Tune, pid: u32) -> bool {
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
