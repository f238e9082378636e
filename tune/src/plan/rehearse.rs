//! What doctor would say once a plan is carried out: on a fake host of what was recorded.

use linerate_host::{Diagnosis, Host, HostRecording, HostView, PacketPath, Scope, Setting};

use super::TunePlan;

/// A plan carried out on a fake host.
#[derive(Debug)]
pub struct PlanRehearsal {
    /// The fake host, as it is then.
    pub host: Host,
    /// Its state; with two readings that of the earlier one first. Counters are those that were recorded: what the host
    /// would lose or spread then, only the host can tell.
    pub readings: Vec<PacketPath>,
    /// What doctor would say.
    pub diagnosis: Diagnosis,
    /// What could not be rehearsed, and why.
    pub unrehearsed: Vec<(Setting, String)>,
}

/// Applies a plan to a recording of a host (one reading, or two with time between them), and runs the rules on the result.
#[must_use]
pub fn rehearse(readings: Vec<HostRecording>, scope: &Scope, plan: &TunePlan) -> PlanRehearsal {
    let mut hosts: Vec<Host> = readings.into_iter().map(Host::rehearsal).collect();
    let mut unrehearsed = Vec::new();
    // Agreements are with programs, which a fake host does not have, and doctor sees nothing of them.
    for change in &plan.changes {
        if matches!(change.setting, Setting::Channels { .. } | Setting::VirtualFunctions { .. }) {
            let why = "the interface creates its queues again, which only the driver can do";
            unrehearsed.push((change.setting.clone(), why.to_owned()));
            continue;
        }
        let failures = hosts.iter().filter_map(|host| change.setting.write(host, &change.to).err());
        if let Some(error) = failures.last() {
            let why = error.to_string();
            let why = why.strip_prefix(&format!("{}: ", change.setting)).unwrap_or(&why);
            unrehearsed.push((change.setting.clone(), why.to_owned()));
        }
    }
    let states: Vec<PacketPath> = hosts.iter().map(|host| PacketPath::observe(host, scope)).collect();
    let host = hosts.pop().unwrap_or_else(|| Host::rehearsal(HostRecording::new()));
    let diagnosis = match states.as_slice() {
        [] => Diagnosis { findings: Vec::new(), unknown: Vec::new() },
        [only] => Diagnosis::of(&HostView::once(only)),
        [before, .., now] => Diagnosis::of(&HostView::twice(before, now)),
    };
    PlanRehearsal { host, readings: states, diagnosis, unrehearsed }
}
