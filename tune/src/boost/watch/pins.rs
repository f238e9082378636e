//! The threads that a boost pinned, compared with the first observation of a watch: workers may have
//! died since the boost.

use std::collections::BTreeSet;

use crate::journal::RecordedTune;
use linerate_host::setting::SteeringTable;
use linerate_host::stage::thread::TaskStat;
use linerate_host::{CpuSet, Host, Known, Setting};

use super::sample::ServerSample;
use crate::boost::ObservedServer;
use crate::boost::discovery::{ReaderEvidence, ReaderThread, ServerGroup};

/// A thread that the boost pinned because it read sockets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PinnedThread {
    pid: u32,
    tid: u32,
    started: u64,
    cpus: CpuSet,
}

pub(super) fn pinned_threads(tune: &RecordedTune) -> Vec<PinnedThread> {
    let pin = |tracked: &crate::journal::tune::TrackedSetting| {
        let Setting::ThreadCpus { pid, tid, started } = tracked.setting else { return None };
        let cpus = CpuSet::from_list(tracked.wanted.as_ref()?.as_str()).ok()?;
        Some(PinnedThread { pid, tid, started, cpus })
    };
    tune.tracked.iter().filter_map(pin).collect()
}

/// Whether threads were pinned, and none of them lives.
pub(super) fn have_ended(host: &Host, pins: &[PinnedThread]) -> bool {
    let has_ended = |pin: &PinnedThread| match TaskStat::of_thread(host, pin.pid, pin.tid) {
        Ok(task) => task.ended || task.started != Some(pin.started),
        Err(error) => error.is_gone(),
    };
    !pins.is_empty() && pins.iter().all(has_ended)
}

/// Whether all processes of the server started after the pinned threads. A server that replaced its
/// workers has an older parent.
pub(super) fn precede(pins: &[PinnedThread], server: &ObservedServer) -> bool {
    let is_later = |started: u64| pins.iter().all(|pin| pin.started < started);
    server.processes.iter().all(|process| is_later(process.started))
}

/// Keeps only those guessed sockets of a reader that receive the packets of its CPU: a master or
/// another worker that holds the socket of a dead worker does not read it. Returns the dead pinned
/// threads as readers of the sockets that have no reader now.
pub(super) fn adopt(
    server: &mut ObservedServer,
    pins: &[PinnedThread],
    sample: &ServerSample,
) -> Vec<ReaderThread> {
    if pins.is_empty() {
        return Vec::new();
    }
    let tables: Vec<SteeringTable> = server.groups.iter().filter_map(ServerGroup::table).collect();
    for reader in &mut server.readers {
        let pin = pins.iter().find(|pin| pin.is_of(reader));
        if pin.is_some() && tables.is_empty() {
            // Without steering the sockets of a thread are unknown.
            continue;
        }
        let own_sockets = pin.map(|pin| sockets_fed_by(&tables, &pin.cpus)).unwrap_or_default();
        let guessed = std::mem::take(&mut reader.guessed);
        reader.sockets.retain(|cookie| own_sockets.contains(cookie) || !guessed.contains(cookie));
    }
    server.readers.retain(|reader| !reader.sockets.is_empty());
    let dead_pins = pins.iter().filter(|pin| !sample.has(pin.pid, pin.tid));
    let reader = |pin: &PinnedThread| {
        let mut sockets = sockets_fed_by(&tables, &pin.cpus);
        sockets.retain(|cookie| server.readers_of(*cookie).next().is_none());
        (!sockets.is_empty()).then(|| ReaderThread {
            pid: pin.pid,
            tid: pin.tid,
            started: pin.started,
            name: server.name.clone(),
            sockets: sockets.into_iter().collect(),
            seen: ReaderEvidence::Assumed,
            guessed: Vec::new(),
            allowed: Known::Value(pin.cpus.clone()),
            cpuset: None,
        })
    };
    dead_pins.filter_map(reader).collect()
}

impl PinnedThread {
    pub(super) fn is_of(&self, reader: &ReaderThread) -> bool {
        (self.pid, self.tid, self.started) == (reader.pid, reader.tid, reader.started)
    }
}

fn sockets_fed_by(tables: &[SteeringTable], cpus: &CpuSet) -> BTreeSet<u64> {
    let rows = tables.iter().flat_map(|table| &table.by_cpu).filter(|(cpu, _)| cpus.contains(**cpu));
    rows.flat_map(|(_, row)| row).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::super::snapshot::tests::{reader, server};
    use super::*;

    fn pin(pid: u32, cpu: u32) -> PinnedThread {
        PinnedThread { pid, tid: pid, started: pid.into(), cpus: [cpu].into_iter().collect() }
    }

    #[test]
    fn pinned_threads_have_ended_when_none_lives_or_other_threads_have_their_ids() {
        let stat = |pid: u32, state: &str, started: u64| {
            let line = format!("{pid} (nsd) {state} 1 1 1 0 -1 0 1 0 0 0 5 3 0 0 20 0 2 0 {started} 8 9\n");
            (format!("/proc/{pid}/task/{pid}/stat"), line)
        };
        for (threads, expected) in [
            (vec![], true),
            (vec![stat(51, "S", 99), stat(52, "Z", 52)], true),
            (vec![stat(51, "S", 99), stat(52, "S", 52)], false),
        ] {
            let host = Host::scripted(threads.clone());
            assert_eq!(have_ended(&host, &[pin(51, 0), pin(52, 1)]), expected, "{threads:?}");
            assert!(!have_ended(&host, &[]));
        }
    }

    #[test]
    fn adopt_returns_workers_that_died_before_the_watch() {
        let sample =
            ServerSample { threads: [50, 51].map(|pid| (pid, pid)).into(), ..ServerSample::default() };
        let mut observation = server(
            &[1, 2],
            vec![reader(51, &[1], ReaderEvidence::InCall), reader(50, &[2], ReaderEvidence::OnlyThread)],
        );
        observation.readers[0] =
            ReaderThread { guessed: vec![2], ..reader(51, &[1, 2], ReaderEvidence::InCall) };
        // Without pins, guessed readers stay.
        assert_eq!((adopt(&mut observation, &[], &sample), observation.readers.len()), (Vec::new(), 2));
        let dead = adopt(&mut observation, &[pin(51, 0), pin(52, 1), pin(53, 3)], &sample);
        assert_eq!((observation.readers.len(), &observation.readers[0].sockets[..]), (1, &[1][..]));
        let dead: Vec<(u32, Vec<u64>)> =
            dead.into_iter().map(|reader| (reader.pid, reader.sockets)).collect();
        assert_eq!(dead, [(52, vec![2])]);
    }
}
