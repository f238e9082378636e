//! The readers of a server, merged from successive observations.
//!
//! A short observation may miss a busy thread, and a process that only holds the socket of a dead
//! worker does not read it. Therefore a known reader stays as long as its thread lives. A new thread
//! is a reader if it was seen reading; a guess is accepted only in a few cases.

use std::collections::BTreeSet;

use linerate_host::Known;

use super::sample::ServerSample;
use crate::boost::ObservedServer;
use crate::boost::discovery::{ReaderEvidence, ReaderThread};

#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct ReaderChanges {
    /// Process and thread.
    pub(super) lost: Vec<(u32, u32)>,
    pub(super) found: Vec<(u32, u32)>,
}

impl ReaderChanges {
    pub(super) fn is_empty(&self) -> bool {
        self.lost.is_empty() && self.found.is_empty()
    }
}

/// Removes and returns the readers that are dead.
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
    mut seen: ObservedServer,
    dead: &[ReaderThread],
) -> ObservedServer {
    let members = members(&seen);
    let mut readers: Vec<ReaderThread> = Vec::new();
    let (sure, likely): (Vec<ReaderThread>, Vec<ReaderThread>) = seen.readers.drain(..).partition(is_seen);
    let before = |reader: &ReaderThread| known.readers.iter().find(|other| is_same(other, reader));
    for mut reader in sure {
        // A worker that also holds the socket of a dead worker is often guessed to read it.
        let guessed = std::mem::take(&mut reader.guessed);
        reader.sockets.retain(|cookie| !guessed.contains(cookie));
        readers.push(reader);
    }
    // The known readers keep their sockets unless another thread was seen reading them.
    for old in &known.readers {
        let taken = taken(&readers);
        let kept: Vec<u64> = old
            .sockets
            .iter()
            .copied()
            .filter(|cookie| members.contains(cookie) && !taken.contains(cookie))
            .collect();
        let now = likely.iter().find(|reader| is_same(reader, old)).unwrap_or(old);
        match readers.iter_mut().find(|reader| is_same(reader, old)) {
            Some(reader) => reader.sockets.extend(kept),
            None if kept.is_empty() => {}
            None => readers.push(ReaderThread {
                sockets: kept,
                seen: old.seen,
                guessed: old.guessed.clone(),
                ..now.clone()
            }),
        }
    }
    for reader in likely.into_iter().filter(|reader| before(reader).is_none()) {
        let taken = taken(&readers);
        let free = reader.sockets.iter().all(|cookie| !taken.contains(cookie));
        if free && (succeeds(&reader, dead) || is_new(&reader, known)) {
            readers.push(reader);
        }
    }
    seen.readers = readers;
    if seen.delivery.value().is_none() && known.delivery.value().is_some() {
        seen.delivery = known.delivery.clone();
    }
    for process in &mut seen.processes {
        process.reads = seen.readers.iter().any(|reader| reader.pid == process.pid);
    }
    seen
}

/// The readers that are only in `before`, and the readers that are only in `after`.
pub(super) fn moved(before: &ObservedServer, after: &ObservedServer) -> ReaderChanges {
    let not_in = |one: &ObservedServer, other: &ObservedServer| {
        let missing = |reader: &&ReaderThread| !other.readers.iter().any(|there| is_same(there, reader));
        one.readers.iter().filter(missing).map(|reader| (reader.pid, reader.tid)).collect()
    };
    ReaderChanges { lost: not_in(before, after), found: not_in(after, before) }
}

pub(super) fn members(server: &ObservedServer) -> BTreeSet<u64> {
    server.groups.iter().flat_map(|group| &group.members).map(|member| member.socket.cookie).collect()
}

/// Whether a socket of a reuseport group has no known reader or several, so that datagrams have to be traced.
pub(super) fn is_unclear(server: &ObservedServer) -> bool {
    let groups = server.groups.iter().filter(|group| group.reuseport && group.members.len() > 1);
    groups.flat_map(|group| &group.members).any(|member| server.readers_of(member.socket.cookie).count() != 1)
}

/// Whether the steering program gives packets to a socket without a known reader.
pub(super) fn feeds_unread_sockets(server: &ObservedServer) -> bool {
    let table = |steering: &Known<String>| {
        steering.value().and_then(|text| text.parse::<linerate_host::setting::SteeringTable>().ok())
    };
    let fed = server.groups.iter().filter_map(|group| table(&group.steering));
    let mut fed = fed.flat_map(|table| table.by_cpu.into_values().flatten());
    fed.any(|cookie| server.readers_of(cookie).next().is_none())
}

fn is_same(one: &ReaderThread, other: &ReaderThread) -> bool {
    (one.pid, one.tid, one.started) == (other.pid, other.tid, other.started)
}

/// Whether the thread was seen at a socket, and not only guessed.
fn is_seen(reader: &ReaderThread) -> bool {
    reader.seen < ReaderEvidence::Ring
}

fn taken(readers: &[ReaderThread]) -> BTreeSet<u64> {
    readers.iter().flat_map(|reader| &reader.sockets).copied().collect()
}

/// Whether a thread has exactly the sockets of a dead reader.
fn succeeds(reader: &ReaderThread, dead: &[ReaderThread]) -> bool {
    let own = |reader: &ReaderThread| reader.sockets.iter().copied().collect::<BTreeSet<u64>>();
    // A process that holds the sockets of several dead readers reads none. The start is in ticks: the process that forks
    // the workers often started in the tick of the first one.
    let born_later = |other: &ReaderThread| (other.started, other.tid) < (reader.started, reader.tid);
    dead.iter().any(|other| own(other) == own(reader) && born_later(other))
}

/// Whether all its sockets are new.
fn is_new(reader: &ReaderThread, known: &ObservedServer) -> bool {
    let before = members(known);
    reader.sockets.iter().all(|cookie| !before.contains(cookie))
}

#[cfg(test)]
pub(super) mod tests {
    use linerate_host::setting::SocketAt;
    use linerate_host::stage::socket::SocketProtocol;

    use super::*;
    use crate::boost::discovery::{GroupSocket, ServerGroup};

    pub(crate) fn reader(pid: u32, sockets: &[u64], seen: ReaderEvidence) -> ReaderThread {
        ReaderThread {
            pid,
            tid: pid,
            started: u64::from(pid),
            name: "nsd".into(),
            sockets: sockets.to_vec(),
            seen,
            guessed: if seen < ReaderEvidence::Ring { Vec::new() } else { sockets.to_vec() },
            allowed: Known::Value((0..4).collect()),
            cpuset: None,
        }
    }

    pub(crate) fn server(sockets: &[u64], readers: Vec<ReaderThread>) -> ObservedServer {
        let member = |cookie: &u64| GroupSocket {
            socket: SocketAt { cookie: *cookie, inode: cookie + 1000, pid: 50, descriptor: 3 },
            holders: vec![(50, 3)],
            options: Known::Value(None),
            drops: None,
            receive_buffer_bytes: None,
        };
        ObservedServer {
            name: "nsd".into(),
            product: None,
            processes: Vec::new(),
            namespace: 1,
            groups: vec![ServerGroup {
                protocol: SocketProtocol::Udp,
                local: "127.0.0.1:53".parse().expect("an address"),
                reuseport: true,
                members: sockets.iter().map(member).collect(),
                ordered: true,
                steering: Known::Value("by-cpu 0:1 1:2".into()),
            }],
            readers,
            delivery: Known::unknown("not looked"),
            notes: Vec::new(),
        }
    }

    fn sockets_of(server: &ObservedServer, pid: u32) -> Option<Vec<u64>> {
        let found = server.readers.iter().find(|reader| reader.pid == pid);
        found.map(|reader| reader.sockets.clone())
    }

    fn sample(pids: &[u32]) -> ServerSample {
        ServerSample { threads: pids.iter().map(|pid| (*pid, *pid)).collect(), ..ServerSample::default() }
    }

    #[test]
    fn a_dead_reader_is_removed_and_the_holder_of_its_socket_is_no_reader() {
        let known = server(
            &[1, 2],
            vec![reader(51, &[1], ReaderEvidence::InCall), reader(52, &[2], ReaderEvidence::InCall)],
        );
        let mut now = known.clone();
        let dead = remove_dead(&mut now, &sample(&[50, 52]));
        assert_eq!((dead.len(), sockets_of(&now, 51), sockets_of(&now, 52)), (1, None, Some(vec![2])));
        assert!(feeds_unread_sockets(&now) && is_unclear(&now));
        // The parent, which started in the same tick.
        let parent = ReaderThread { started: 51, ..reader(50, &[1], ReaderEvidence::OnlyThread) };
        let seen = server(&[1, 2], vec![parent, reader(52, &[2], ReaderEvidence::Polling)]);
        let merged = merge(&now, seen, &dead);
        assert_eq!((sockets_of(&merged, 50), sockets_of(&merged, 52)), (None, Some(vec![2])));
        assert_eq!(moved(&known, &merged), ReaderChanges { lost: vec![(51, 51)], found: Vec::new() });
    }

    #[test]
    fn an_observation_that_misses_a_living_reader_keeps_it() {
        let known = server(
            &[1, 2],
            vec![reader(51, &[1], ReaderEvidence::InCall), reader(52, &[2], ReaderEvidence::InCall)],
        );
        let seen = server(
            &[1, 2],
            vec![reader(52, &[2], ReaderEvidence::InCall), reader(51, &[1, 2], ReaderEvidence::Assumed)],
        );
        let merged = merge(&known, seen, &[]);
        assert!(moved(&known, &merged).is_empty() && !is_unclear(&merged) && !feeds_unread_sockets(&merged));
        assert_eq!(sockets_of(&merged, 51), Some(vec![1]));
    }

    #[test]
    fn a_reader_of_one_socket_is_not_guessed_to_read_another() {
        let known = server(&[1, 2], vec![reader(52, &[2], ReaderEvidence::InCall)]);
        let heir = ReaderThread { guessed: vec![1], ..reader(52, &[1, 2], ReaderEvidence::Reading) };
        let merged = merge(&known, server(&[1, 2], vec![heir]), &[reader(51, &[1], ReaderEvidence::InCall)]);
        assert_eq!(sockets_of(&merged, 52), Some(vec![2]));
    }

    #[test]
    fn a_new_worker_reads_the_sockets_it_was_seen_at_or_those_of_a_dead_one() {
        let dead = [reader(51, &[1], ReaderEvidence::InCall), reader(52, &[2], ReaderEvidence::InCall)];
        let known = server(&[1, 2, 3], vec![reader(53, &[3], ReaderEvidence::InCall)]);
        let looks = [
            (reader(60, &[1], ReaderEvidence::Reading), Some(vec![1])),
            (reader(60, &[1], ReaderEvidence::OnlyThread), Some(vec![1])),
            // Both of the dead, of which it can be the successor of one only.
            (reader(60, &[1, 2], ReaderEvidence::Assumed), None),
            // One that was there before they died.
            (reader(40, &[1], ReaderEvidence::OnlyThread), None),
        ];
        for (new, expected) in looks {
            let seen = server(&[1, 2, 3], vec![new.clone(), reader(53, &[3], ReaderEvidence::InCall)]);
            assert_eq!(sockets_of(&merge(&known, seen, &dead), new.pid), expected, "{new:?}");
        }
    }

    #[test]
    fn sockets_that_are_gone_have_no_reader() {
        let known = server(
            &[1, 2],
            vec![reader(51, &[1], ReaderEvidence::InCall), reader(52, &[2], ReaderEvidence::InCall)],
        );
        let merged = merge(&known, server(&[2], vec![reader(52, &[2], ReaderEvidence::InCall)]), &[]);
        assert_eq!(sockets_of(&merged, 51), None);
        let grown = server(&[1, 2, 4], vec![reader(61, &[4], ReaderEvidence::OnlyThread)]);
        assert_eq!(sockets_of(&merge(&known, grown, &[]), 61), Some(vec![4]));
    }
}
