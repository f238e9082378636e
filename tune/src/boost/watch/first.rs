//! What is made of a server that is looked at for the first time: a worker may have died since the boost, or before the
//! watch of an earlier time ended.

use std::collections::BTreeSet;

use crate::journal::RecordedTune;
use linerate_host::setting::SteeringTable;
use linerate_host::{CpuSet, Known, Setting};

use super::pulse::ServerSample;
use crate::boost::ObservedServer;
use crate::boost::sight::{ReaderEvidence, ReaderThread};

/// A thread that the boost put on CPUs: one that read sockets then.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PinnedThread {
    pid: u32,
    tid: u32,
    started: u64,
    cpus: CpuSet,
}

/// Those of a tune.
pub(super) fn pins(tune: &RecordedTune) -> Vec<PinnedThread> {
    let pin = |held: &crate::journal::tune::TrackedSetting| {
        let Setting::ThreadCpus { pid, tid, started } = held.setting else { return None };
        let cpus = CpuSet::from_list(held.wanted.as_ref()?.as_str()).ok()?;
        Some(PinnedThread { pid, tid, started, cpus })
    };
    tune.held.iter().filter_map(pin).collect()
}

/// Of what readers are only guessed to read, leaves those sockets that get the packets of the CPU that the boost put them on:
/// a master, or another worker, that holds the socket of a dead one does not read it. The dead among the threads that the
/// boost had, as readers of the sockets that nobody reads now.
pub(super) fn adopt(
    server: &mut ObservedServer,
    pins: &[PinnedThread],
    pulse: &ServerSample,
) -> Vec<ReaderThread> {
    if pins.is_empty() {
        return Vec::new();
    }
    let tables = tables(server);
    for reader in &mut server.readers {
        let pin = pins.iter().find(|pin| pin.is_of(reader));
        if pin.is_some() && tables.is_empty() {
            // Nothing was steered, and so nothing tells which sockets were its own.
            continue;
        }
        let own = pin.map(|pin| fed_by(&tables, &pin.cpus)).unwrap_or_default();
        let guessed = std::mem::take(&mut reader.guessed);
        reader.sockets.retain(|cookie| own.contains(cookie) || !guessed.contains(cookie));
    }
    server.readers.retain(|reader| !reader.sockets.is_empty());
    let dead = pins.iter().filter(|pin| !pulse.has(pin.pid, pin.tid));
    let reader = |pin: &PinnedThread| {
        let mut sockets = fed_by(&tables, &pin.cpus);
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
    dead.filter_map(reader).collect()
}

pub(super) fn is_pinned(reader: &ReaderThread, pins: &[PinnedThread]) -> bool {
    pins.iter().any(|pin| pin.is_of(reader))
}

impl PinnedThread {
    fn is_of(&self, reader: &ReaderThread) -> bool {
        (self.pid, self.tid, self.started) == (reader.pid, reader.tid, reader.started)
    }
}

/// The tables of the programs that steer its groups.
fn tables(server: &ObservedServer) -> Vec<SteeringTable> {
    server.groups.iter().filter_map(|group| group.steering.value()?.parse().ok()).collect()
}

/// The sockets that get the packets of these CPUs.
fn fed_by(tables: &[SteeringTable], cpus: &CpuSet) -> BTreeSet<u64> {
    let rows = tables.iter().flat_map(|table| &table.by_cpu).filter(|(cpu, _)| cpus.contains(**cpu));
    rows.flat_map(|(_, row)| row).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::super::picture::tests::{reader, server};
    use super::*;

    #[test]
    fn a_worker_that_died_before_is_missed() {
        let pin = |pid: u32, cpu: u32| PinnedThread {
            pid,
            tid: pid,
            started: pid.into(),
            cpus: [cpu].into_iter().collect(),
        };
        let pulse =
            ServerSample { threads: [50, 51].map(|pid| (pid, pid)).into(), ..ServerSample::default() };
        let mut seen = server(
            &[1, 2],
            vec![reader(51, &[1], ReaderEvidence::InCall), reader(50, &[2], ReaderEvidence::OnlyThread)],
        );
        seen.readers[0] = ReaderThread { guessed: vec![2], ..reader(51, &[1, 2], ReaderEvidence::InCall) };
        let dead = adopt(&mut seen, &[pin(51, 0), pin(52, 1), pin(53, 3)], &pulse);
        assert_eq!((seen.readers.len(), &seen.readers[0].sockets[..]), (1, &[1][..]));
        let dead: Vec<(u32, Vec<u64>)> =
            dead.into_iter().map(|reader| (reader.pid, reader.sockets)).collect();
        assert_eq!(dead, [(52, vec![2])]);
    }

    #[test]
    fn without_pins_what_is_likely_is_believed() {
        let mut seen = server(&[1], vec![reader(50, &[1], ReaderEvidence::OnlyThread)]);
        assert_eq!((adopt(&mut seen, &[], &ServerSample::default()), seen.readers.len()), (Vec::new(), 1));
    }
}
