//! The readers of a server, merged from successive observations.
//!
//! A short observation may miss a busy thread, and a process that only holds the socket of a dead
//! worker does not read it. Therefore a known reader stays as long as its thread lives. A new thread
//! is a reader if it was seen reading; a guess is accepted only in a few cases.

use std::collections::BTreeSet;

use super::sample::ServerSample;
use crate::boost::ObservedServer;
use crate::boost::discovery::{ReaderEvidence, ReaderThread, ServerGroup};

pub(super) fn remove_dead(server: &mut ObservedServer, sample: &ServerSample) -> Vec<ReaderThread> {
    let (living, dead) = std::mem::take(&mut server.readers)
        .into_iter()
        .partition(|reader: &ReaderThread| sample.has(reader.pid, reader.tid));
    server.readers = living;
    dead
}

/// Merges a new observation into the `known` server, of which `dead` readers have ended since.
pub(super) fn merge(
    known: &ObservedServer,
    mut observation: ObservedServer,
    dead: &[ReaderThread],
) -> ObservedServer {
    let members = members(&observation);
    let mut readers: Vec<ReaderThread> = Vec::new();
    let (seen_readers, guessed_readers): (Vec<ReaderThread>, Vec<ReaderThread>) =
        observation.readers.drain(..).partition(is_seen);
    let find_known = |reader: &ReaderThread| known.readers.iter().find(|other| is_same(other, reader));
    for mut reader in seen_readers {
        // A worker that also holds the socket of a dead worker is often guessed to read it.
        let guessed = std::mem::take(&mut reader.guessed);
        reader.sockets.retain(|cookie| !guessed.contains(cookie));
        readers.push(reader);
    }
    // The known readers keep their sockets unless another thread was seen reading them.
    for known_reader in &known.readers {
        let taken_sockets = taken_sockets(&readers);
        let kept: Vec<u64> = known_reader
            .sockets
            .iter()
            .copied()
            .filter(|cookie| members.contains(cookie) && !taken_sockets.contains(cookie))
            .collect();
        let current =
            guessed_readers.iter().find(|reader| is_same(reader, known_reader)).unwrap_or(known_reader);
        match readers.iter_mut().find(|reader| is_same(reader, known_reader)) {
            Some(reader) => reader.sockets.extend(kept),
            None if kept.is_empty() => {}
            None => readers.push(ReaderThread {
                sockets: kept,
                seen: known_reader.seen,
                guessed: known_reader.guessed.clone(),
                ..current.clone()
            }),
        }
    }
    for reader in guessed_readers.into_iter().filter(|reader| find_known(reader).is_none()) {
        let taken_sockets = taken_sockets(&readers);
        let is_free = reader.sockets.iter().all(|cookie| !taken_sockets.contains(cookie));
        if is_free && (is_successor(&reader, dead) || is_new(&reader, known)) {
            readers.push(reader);
        }
    }
    observation.readers = readers;
    if observation.delivery.value().is_none() && known.delivery.value().is_some() {
        observation.delivery = known.delivery.clone();
    }
    for process in &mut observation.processes {
        process.reads = observation.readers.iter().any(|reader| reader.pid == process.pid);
    }
    observation
}

pub(super) fn missing_readers<'s>(
    server: &'s ObservedServer,
    other: &ObservedServer,
) -> Vec<&'s ReaderThread> {
    let is_missing = |reader: &&ReaderThread| !other.readers.iter().any(|present| is_same(present, reader));
    server.readers.iter().filter(is_missing).collect()
}

pub(super) fn members(server: &ObservedServer) -> BTreeSet<u64> {
    server.groups.iter().flat_map(ServerGroup::cookies).collect()
}

/// Whether a socket of a reuseport group has no known reader or several, so that datagrams have to be traced.
pub(super) fn is_unclear(server: &ObservedServer) -> bool {
    let groups = server.groups.iter().filter(|group| group.reuseport && group.members.len() > 1);
    groups.flat_map(ServerGroup::cookies).any(|cookie| server.readers_of(cookie).count() != 1)
}

/// Whether the steering program gives packets to a socket without a known reader.
pub(super) fn feeds_unread_sockets(server: &ObservedServer) -> bool {
    let tables = server.groups.iter().filter_map(ServerGroup::table);
    let mut fed_sockets = tables.flat_map(|table| table.by_cpu.into_values().flatten());
    fed_sockets.any(|cookie| server.readers_of(cookie).next().is_none())
}

fn is_same(reader: &ReaderThread, other: &ReaderThread) -> bool {
    (reader.pid, reader.tid, reader.started) == (other.pid, other.tid, other.started)
}

/// Whether the thread was seen at a socket, and not only guessed.
fn is_seen(reader: &ReaderThread) -> bool {
    reader.seen < ReaderEvidence::Ring
}

fn taken_sockets(readers: &[ReaderThread]) -> BTreeSet<u64> {
    readers.iter().flat_map(|reader| &reader.sockets).copied().collect()
}

/// Whether a thread has exactly the sockets of a dead reader.
fn is_successor(reader: &ReaderThread, dead: &[ReaderThread]) -> bool {
    let sockets_of = |reader: &ReaderThread| reader.sockets.iter().copied().collect::<BTreeSet<u64>>();
    // A process that holds the sockets of several dead readers reads none. The start is in ticks: the process that forks
    // the workers often started in the tick of the first one.
    let born_later = |other: &ReaderThread| (other.started, other.tid) < (reader.started, reader.tid);
    dead.iter().any(|other| sockets_of(other) == sockets_of(reader) && born_later(other))
}

fn is_new(reader: &ReaderThread, known: &ObservedServer) -> bool {
    let known_cookies = members(known);
    reader.sockets.iter().all(|cookie| !known_cookies.contains(cookie))
}

#[cfg(test)]
pub(super) mod tests {
    use linerate_host::Known;

    use super::*;
    use crate::boost::plan::sample;

    pub(crate) fn reader(pid: u32, sockets: &[u64], seen: ReaderEvidence) -> ReaderThread {
        let guessed = if seen < ReaderEvidence::Ring { Vec::new() } else { sockets.to_vec() };
        ReaderThread { seen, guessed, ..sample::reader("nsd", pid, sockets.to_vec(), "0-3") }
    }

    pub(crate) fn server(sockets: &[u64], readers: Vec<ReaderThread>) -> ObservedServer {
        let mut server = sample::echo(2, "0-3");
        server.groups[0].members = sockets.iter().map(|cookie| sample::member(*cookie, 50)).collect();
        server.groups[0].steering = Known::Value("by-cpu 0:1 1:2".into());
        ObservedServer { readers, ..server }
    }

    /// Two workers, each with a socket of its own.
    fn workers() -> ObservedServer {
        let readers = [(51, 1), (52, 2)].map(|(pid, socket)| reader(pid, &[socket], ReaderEvidence::InCall));
        server(&[1, 2], readers.into())
    }

    fn sockets_of(server: &ObservedServer, pid: u32) -> Option<Vec<u64>> {
        let found = server.readers.iter().find(|reader| reader.pid == pid);
        found.map(|reader| reader.sockets.clone())
    }

    fn sample(pids: &[u32]) -> ServerSample {
        ServerSample { threads: pids.iter().map(|pid| (*pid, *pid)).collect(), ..ServerSample::default() }
    }

    #[test]
    fn dead_reader_is_removed_and_its_parent_does_not_replace_it() {
        let known = workers();
        let mut remaining = known.clone();
        let dead = remove_dead(&mut remaining, &sample(&[50, 52]));
        assert_eq!(
            (dead.len(), sockets_of(&remaining, 51), sockets_of(&remaining, 52)),
            (1, None, Some(vec![2]))
        );
        assert!(feeds_unread_sockets(&remaining) && is_unclear(&remaining));
        // The parent, which started in the same tick.
        let parent = ReaderThread { started: 51, ..reader(50, &[1], ReaderEvidence::OnlyThread) };
        let observation = server(&[1, 2], vec![parent, reader(52, &[2], ReaderEvidence::Polling)]);
        let result = merge(&remaining, observation, &dead);
        assert_eq!((sockets_of(&result, 50), sockets_of(&result, 52)), (None, Some(vec![2])));
        let lost: Vec<u32> = missing_readers(&known, &result).iter().map(|reader| reader.pid).collect();
        assert_eq!((lost, missing_readers(&result, &known).len()), (vec![51], 0));
    }

    #[test]
    fn merge_keeps_living_readers_over_assumed_observations() {
        let known = workers();
        let observation = server(
            &[1, 2],
            vec![reader(52, &[2], ReaderEvidence::InCall), reader(51, &[1, 2], ReaderEvidence::Assumed)],
        );
        let result = merge(&known, observation, &[]);
        assert!(
            missing_readers(&known, &result).is_empty()
                && missing_readers(&result, &known).is_empty()
                && !is_unclear(&result)
                && !feeds_unread_sockets(&result)
        );
        assert_eq!(sockets_of(&result, 51), Some(vec![1]));
        let without_51 = server(&[1, 2], vec![reader(52, &[2], ReaderEvidence::InCall)]);
        assert_eq!(sockets_of(&merge(&known, without_51, &[]), 51), Some(vec![1]), "51 was missed");
    }

    #[test]
    fn merge_ignores_guessed_sockets_of_a_known_reader() {
        let known = server(&[1, 2], vec![reader(52, &[2], ReaderEvidence::InCall)]);
        let heir = ReaderThread { guessed: vec![1], ..reader(52, &[1, 2], ReaderEvidence::Reading) };
        let result = merge(&known, server(&[1, 2], vec![heir]), &[reader(51, &[1], ReaderEvidence::InCall)]);
        assert_eq!(sockets_of(&result, 52), Some(vec![2]));
    }

    #[test]
    fn new_worker_gets_observed_sockets_or_replaces_one_dead_worker() {
        let dead = [reader(51, &[1], ReaderEvidence::InCall), reader(52, &[2], ReaderEvidence::InCall)];
        let known = server(&[1, 2, 3], vec![reader(53, &[3], ReaderEvidence::InCall)]);
        let cases = [
            (reader(60, &[1], ReaderEvidence::Reading), Some(vec![1])),
            (reader(60, &[1], ReaderEvidence::OnlyThread), Some(vec![1])),
            // Both of the dead, of which it can be the successor of one only.
            (reader(60, &[1, 2], ReaderEvidence::Assumed), None),
            // One that was there before they died.
            (reader(40, &[1], ReaderEvidence::OnlyThread), None),
        ];
        for (new, expected) in cases {
            let observation = server(&[1, 2, 3], vec![new.clone(), reader(53, &[3], ReaderEvidence::InCall)]);
            assert_eq!(sockets_of(&merge(&known, observation, &dead), new.pid), expected, "{new:?}");
        }
    }

    #[test]
    fn merge_drops_readers_of_closed_sockets_and_adds_new_readers() {
        let known = workers();
        let result = merge(&known, server(&[2], vec![reader(52, &[2], ReaderEvidence::InCall)]), &[]);
        assert_eq!(sockets_of(&result, 51), None);
        let larger_group = server(&[1, 2, 4], vec![reader(61, &[4], ReaderEvidence::OnlyThread)]);
        assert_eq!(sockets_of(&merge(&known, larger_group, &[]), 61), Some(vec![4]));
    }
}
