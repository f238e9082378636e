//! The findings of doctor after a plan is applied, on a fake host made from recordings.

use linerate_host::{Diagnosis, Host, HostRecording, HostView, PacketPath, Scope, Setting};

use super::TunePlan;

/// A plan that was applied to a fake host.
#[derive(Debug)]
pub struct PlanRehearsal {
    /// The fake host after the changes.
    pub host: Host,
    /// Its state; with two readings, the state of the earlier reading first. Counters have their
    /// recorded values, because only the real host can show its losses and its spread after the
    /// changes.
    pub readings: Vec<PacketPath>,
    /// The findings of doctor after the changes.
    pub diagnosis: Diagnosis,
    /// Changes that could not be rehearsed, with the reason.
    pub unrehearsed: Vec<(Setting, String)>,
}

/// Applies a plan to a recording of a host (one reading, or two with time between them), and runs the rules on the result.
pub fn rehearse(readings: Vec<HostRecording>, scope: &Scope, plan: &TunePlan) -> PlanRehearsal {
    let mut hosts: Vec<Host> = readings.into_iter().map(Host::rehearsal).collect();
    let mut unrehearsed = Vec::new();
    // Agreements are with programs, which a fake host does not have and doctor does not see.
    for change in &plan.changes {
        if matches!(change.setting, Setting::Channels { .. } | Setting::VirtualFunctions { .. }) {
            let reason = "the interface creates its queues again, which only the driver can do";
            unrehearsed.push((change.setting.clone(), reason.to_owned()));
            continue;
        }
        let failures = hosts.iter().filter_map(|host| change.setting.write(host, &change.to).err());
        if let Some(error) = failures.last() {
            unrehearsed.push((change.setting.clone(), error.reason()));
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
