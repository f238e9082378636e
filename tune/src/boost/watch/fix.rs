//! Applies a new plan for a changed server within the tune that boosted it.

use std::collections::BTreeMap;

use crate::TunePlan;
use crate::transaction::{ChangeOutcome, TuneError, TuneTransaction};
use linerate_host::setting::SteeringTable;
use linerate_host::{CpuSet, Host, Known, Setting, SettingValue};

use super::journaled_tune::JournaledTune;
use crate::boost::ObservedServer;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum FixOutcome {
    /// All changes were tried: those made and those refused, in words.
    Done { done: Vec<String>, refused: Vec<String> },
    /// The tune was undone.
    Undone,
}

/// Makes the changes of a plan. The journal is locked only during that time, so that the tune can be
/// undone at any other.
pub(super) fn fix(host: &Host, tune: &JournaledTune<'_>, plan: &TunePlan) -> Result<FixOutcome, TuneError> {
    let (mut done, mut refused) = (Vec::new(), Vec::new());
    if plan.changes.is_empty() {
        return Ok(FixOutcome::Done { done, refused });
    }
    let mut writer = tune.store.lock()?;
    let mut transaction = match TuneTransaction::reopen(&mut writer, host, tune.tune, plan) {
        Ok(transaction) => transaction,
        Err(TuneError::UndoneAlready { .. }) => return Ok(FixOutcome::Undone),
        Err(error) => return Err(error),
    };
    for change in &plan.changes {
        match transaction.change(host, &change.setting, &change.to) {
            Ok(ChangeOutcome::Made) => {
                done.extend(describe_change(&change.setting, &change.from, &change.to));
            }
            Ok(ChangeOutcome::Already) => {}
            Ok(ChangeOutcome::Refused { why }) => refused.push(why),
            // A setting that another program changed is left alone.
            Err(error @ TuneError::ChangedSince { .. }) => refused.push(error.to_string()),
            Err(error) => return Err(error),
        }
    }
    transaction.end(None)?;
    Ok(FixOutcome::Done { done, refused })
}

/// Reads the steering of each group and the CPUs of each reader again, so that a plan starts from the
/// current values. A value that cannot be read now stays.
pub(super) fn refresh_server(host: &Host, server: &mut ObservedServer) {
    let namespace = server.namespace;
    for group in server.groups.iter_mut().filter(|group| group.reuseport) {
        let setting = Setting::Steering { namespace, protocol: group.protocol, local: group.local };
        if let Ok(value) = setting.read(host) {
            group.steering = Known::Value(value.to_string());
        }
    }
    for reader in &mut server.readers {
        let setting = Setting::ThreadCpus { pid: reader.pid, tid: reader.tid, started: reader.started };
        if let Some(cpus) = setting.read(host).ok().and_then(|now| CpuSet::from_list(now.as_str()).ok()) {
            reader.allowed = Known::Value(cpus);
        }
    }
}

/// A plan without the changes that are in effect.
pub(super) fn without_effective_changes(mut plan: TunePlan) -> TunePlan {
    plan.changes.retain(|change| !change.setting.same(&change.from, &change.to));
    plan
}

fn describe_change(setting: &Setting, from: &SettingValue, to: &SettingValue) -> Vec<String> {
    match (setting, to.as_str().parse::<SteeringTable>()) {
        (Setting::ThreadCpus { pid, tid, .. }, _) => {
            let thread =
                if pid == tid { format!("process {pid}") } else { format!("thread {tid} of process {pid}") };
            vec![format!("{thread} runs on CPU {to}")]
        }
        (Setting::Steering { protocol, local, .. }, Ok(table)) => {
            let before = from.as_str().parse::<SteeringTable>().unwrap_or_default();
            let address = format!("{} {local}", protocol.name());
            rows(&before, &table).into_iter().map(|row| format!("{address}: {row}")).collect()
        }
        _ => vec![format!("{setting}: {to}")],
    }
}

/// One line per set of sockets that receives the packets of other CPUs than before.
fn rows(before: &SteeringTable, now: &SteeringTable) -> Vec<String> {
    let mut cpus_by_sockets: BTreeMap<&[u64], Vec<u32>> = BTreeMap::new();
    for (cpu, sockets) in &now.by_cpu {
        if before.by_cpu.get(cpu) != Some(sockets) {
            cpus_by_sockets.entry(sockets).or_default().push(*cpu);
        }
    }
    let row = |(sockets, cpus): (&[u64], Vec<u32>)| {
        let word = if cpus.len() == 1 { "CPU" } else { "CPUs" };
        let cpus: CpuSet = cpus.into_iter().collect();
        let sockets: Vec<String> = sockets.iter().map(u64::to_string).collect();
        format!("packets of {word} {cpus} go to socket {}", sockets.join(" or "))
    };
    cpus_by_sockets.into_iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use linerate_host::stage::socket::SocketProtocol;

    use super::*;

    #[test]
    fn descriptions_name_the_pinned_thread_and_the_cpus_with_a_new_socket() {
        let local = "127.0.0.1:53".parse().expect("an address");
        let setting = Setting::Steering { namespace: 1, protocol: SocketProtocol::Udp, local };
        let (from, to) = (
            SettingValue::new("by-cpu 0:41 1:42 2:42 3:43"),
            SettingValue::new("by-cpu 0:41 1:43 2:43 3:43+44"),
        );
        let expected = [
            "udp 127.0.0.1:53: packets of CPUs 1-2 go to socket 43",
            "udp 127.0.0.1:53: packets of CPU 3 go to socket 43 or 44",
        ];
        assert_eq!(describe_change(&setting, &from, &to), expected);
        for (tid, thread) in [(7, "process 7"), (8, "thread 8 of process 7")] {
            let pin = Setting::ThreadCpus { pid: 7, tid, started: 1 };
            let lines = describe_change(&pin, &SettingValue::new("0-3"), &SettingValue::new("2"));
            assert_eq!(lines, [format!("{thread} runs on CPU 2")]);
        }
    }
}
