//! Applies a new plan for a changed server within the tune that boosted it.

use crate::TunePlan;
use crate::journal::{JournalError, StateStore};
use crate::transaction::{ChangeResult, TuneError, TuneTransaction};
use linerate_host::setting::SteeringTable;
use linerate_host::{CpuSet, Host, Known, Setting, SettingValue};

use super::words;
use crate::boost::ObservedServer;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum FixOutcome {
    /// All changes were tried: those made and those refused, in words.
    Done { done: Vec<String>, refused: Vec<String> },
    /// Another process holds the journal: try again.
    Busy,
    /// The tune was undone.
    Undone,
}

/// Makes the changes of a plan. The journal is locked only during that time, so that the tune can be
/// undone at any other.
pub(super) fn fix(
    host: &Host,
    store: &StateStore,
    tune: u64,
    plan: &TunePlan,
) -> Result<FixOutcome, TuneError> {
    let mut writer = match store.lock() {
        Ok(writer) => writer,
        Err(JournalError::Busy { .. }) => return Ok(FixOutcome::Busy),
        Err(error) => return Err(error.into()),
    };
    let mut transaction = match TuneTransaction::reopen(&mut writer, host, tune, plan) {
        Ok(transaction) => transaction,
        Err(TuneError::UndoneAlready { .. }) => return Ok(FixOutcome::Undone),
        Err(error) => return Err(error),
    };
    let (mut done, mut refused) = (Vec::new(), Vec::new());
    for change in &plan.changes {
        match transaction.change(host, &change.setting, &change.to) {
            Ok(ChangeResult::Made { from }) => done.extend(words::of(&change.setting, &from, &change.to)),
            Ok(ChangeResult::Already) => {}
            Ok(ChangeResult::Refused { why }) => refused.push(why),
            // A setting that another program changed is left alone.
            Err(error @ TuneError::ChangedSince { .. }) => refused.push(error.to_string()),
            Err(error) => return Err(error),
        }
    }
    transaction.end(None)?;
    Ok(FixOutcome::Done { done, refused })
}

/// Reads the steering of each group again, so that a plan starts from the present values.
pub(super) fn refresh(host: &Host, server: &mut ObservedServer) {
    let namespace = server.namespace;
    for group in server.groups.iter_mut().filter(|group| group.reuseport) {
        let setting = Setting::Steering { namespace, protocol: group.protocol, local: group.local };
        // If it cannot be read now, the last value stays.
        if let Ok(value) = setting.read(host) {
            group.steering = Known::Value(value.to_string());
        }
    }
}

/// Updates the known server with the values of a plan.
pub(super) fn note(server: &mut ObservedServer, plan: &TunePlan) {
    for change in &plan.changes {
        match &change.setting {
            Setting::Steering { protocol, local, .. } => {
                let group = server
                    .groups
                    .iter_mut()
                    .find(|group| group.protocol == *protocol && group.local == *local);
                if let (Some(group), Ok(table)) = (group, change.to.as_str().parse::<SteeringTable>()) {
                    group.steering = Known::Value(table.to_string());
                }
            }
            Setting::ThreadCpus { pid, tid, .. } => {
                let reader =
                    server.readers.iter_mut().find(|reader| (reader.pid, reader.tid) == (*pid, *tid));
                if let (Some(reader), Ok(cpus)) = (reader, CpuSet::from_list(change.to.as_str())) {
                    reader.allowed = Known::Value(cpus);
                }
            }
            _ => {}
        }
    }
}

/// A plan without the changes that are in effect.
pub(super) fn without_effective_changes(mut plan: TunePlan) -> TunePlan {
    let differs = |from: &SettingValue, to: &SettingValue, setting: &Setting| !setting.same(from, to);
    plan.changes.retain(|change| differs(&change.from, &change.to, &change.setting));
    plan
}
