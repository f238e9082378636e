//! Which thread reads which socket, from the observations of both.

use std::collections::{BTreeMap, BTreeSet};

use linerate_host::delivery::DeliveryReport;
use linerate_host::stage::thread::{TaskStat, ThreadSightings};

use super::{GroupSocket, ReaderEvidence, ServerGroup};

/// A process and one of its threads.
pub(super) type Thread = (u32, u32);

/// The sockets that a thread reads, by cookie, with the evidence.
pub(super) type Claims = BTreeMap<Thread, BTreeMap<u64, ReaderEvidence>>;

/// The threads that read these sockets.
///
/// Observations take precedence over guesses: if a thread was seen to read, call or wait for a
/// socket, no thread that was not seen counts as its reader.
pub(super) fn find_claims(
    groups: &[ServerGroup],
    sightings: &[ThreadSightings],
    delivery: Option<&DeliveryReport>,
) -> Claims {
    let sockets = MemberSockets::of(groups);
    let mut claims = observed_claims(&sockets, sightings, delivery);
    drop_idle_polls(&sockets, &mut claims);
    for (cookie, (guess, threads)) in guesses(&sockets, sightings, &claims) {
        for thread in threads {
            claims.entry(thread).or_default().insert(cookie, guess.evidence());
        }
    }
    claims.retain(|_, sockets| !sockets.is_empty());
    claims
}

/// The members of all groups. A server may have hundreds of sockets and threads.
struct MemberSockets {
    cookies_by_inode: BTreeMap<u64, u64>,
    /// The index of the group of each cookie.
    groups: BTreeMap<u64, usize>,
    /// The cookies that each process holds, in the order of the groups.
    held_by: BTreeMap<u32, Vec<u64>>,
}

impl MemberSockets {
    fn of(groups: &[ServerGroup]) -> Self {
        let mut sockets =
            Self { cookies_by_inode: BTreeMap::new(), groups: BTreeMap::new(), held_by: BTreeMap::new() };
        for (index, group) in groups.iter().enumerate() {
            for GroupSocket { socket, holders, .. } in &group.members {
                sockets.cookies_by_inode.insert(socket.inode, socket.cookie);
                sockets.groups.insert(socket.cookie, index);
                let pids: BTreeSet<u32> = holders.iter().map(|(pid, _)| *pid).collect();
                pids.iter().for_each(|pid| sockets.held_by.entry(*pid).or_default().push(socket.cookie));
            }
        }
        sockets
    }

    fn cookie(&self, inode: u64) -> Option<u64> {
        self.cookies_by_inode.get(&inode).copied()
    }

    fn group(&self, cookie: u64) -> Option<usize> {
        self.groups.get(&cookie).copied()
    }

    fn held_by(&self, pid: u32) -> impl Iterator<Item = u64> + '_ {
        self.held_by.get(&pid).into_iter().flatten().copied()
    }
}

fn observed_claims(
    sockets: &MemberSockets,
    sightings: &[ThreadSightings],
    delivery: Option<&DeliveryReport>,
) -> Claims {
    let mut claims = Claims::new();
    let mut claim = |thread: Thread, cookie: u64, evidence: ReaderEvidence| {
        let best = claims.entry(thread).or_default().entry(cookie).or_insert(evidence);
        *best = evidence.min(*best);
    };
    let sampled_threads: BTreeSet<Thread> =
        sightings.iter().map(|sighting| (sighting.pid, sighting.tid)).collect();
    for item in delivery.into_iter().flat_map(|delivery| &delivery.read) {
        let thread = (item.pid, item.tid);
        if sampled_threads.contains(&thread) && sockets.group(item.cookie).is_some() {
            claim(thread, item.cookie, ReaderEvidence::Reading);
        }
    }
    for sighting in sightings {
        let ring_sockets = sighting.ring.iter().flatten();
        let evidence_by_inode = (sighting.in_call.iter().map(|inode| (inode, ReaderEvidence::InCall)))
            .chain(sighting.polling.iter().map(|inode| (inode, ReaderEvidence::Polling)))
            .chain(ring_sockets.map(|inode| (inode, ReaderEvidence::Ring)));
        for (inode, evidence) in evidence_by_inode {
            if let Some(cookie) = sockets.cookie(*inode) {
                claim((sighting.pid, sighting.tid), cookie, evidence);
            }
        }
    }
    claims
}

/// If a thread waits for every socket of a group and was seen to read some of them, it does not
/// read the sockets that only other threads were seen to read.
fn drop_idle_polls(sockets: &MemberSockets, claims: &mut Claims) {
    let read_cookies = |claims: &BTreeMap<u64, ReaderEvidence>| -> BTreeSet<u64> {
        claims
            .iter()
            .filter(|(_, evidence)| **evidence == ReaderEvidence::Reading)
            .map(|(cookie, _)| *cookie)
            .collect()
    };
    let all_read_cookies: BTreeSet<u64> = claims.values().flat_map(&read_cookies).collect();
    for own_claims in claims.values_mut() {
        let groups: BTreeSet<usize> =
            read_cookies(own_claims).iter().filter_map(|cookie| sockets.group(*cookie)).collect();
        own_claims.retain(|cookie, evidence| {
            let is_of_others = *evidence != ReaderEvidence::Reading && all_read_cookies.contains(cookie);
            !(is_of_others && sockets.group(*cookie).is_some_and(|group| groups.contains(&group)))
        });
    }
}

/// The most likely readers of each socket at which no thread was seen.
fn guesses(
    sockets: &MemberSockets,
    sightings: &[ThreadSightings],
    claims: &Claims,
) -> BTreeMap<u64, (ReaderGuess, Vec<Thread>)> {
    let claimed_cookies: BTreeSet<u64> = claims.values().flat_map(BTreeMap::keys).copied().collect();
    let mut guesses: BTreeMap<u64, (ReaderGuess, Vec<Thread>)> = BTreeMap::new();
    let own_threads = || sightings.iter().filter(|sighting| !is_kernel_thread(sighting));
    let mut thread_counts: BTreeMap<u32, usize> = BTreeMap::new();
    own_threads().for_each(|sighting| *thread_counts.entry(sighting.pid).or_default() += 1);
    let mut claimants: BTreeMap<usize, BTreeSet<Thread>> = BTreeMap::new();
    for (thread, claims) in claims {
        for group in claims.keys().filter_map(|cookie| sockets.group(*cookie)) {
            claimants.entry(group).or_default().insert(*thread);
        }
    }
    let none = BTreeSet::new();
    for sighting in own_threads() {
        let thread = (sighting.pid, sighting.tid);
        let is_only_thread = thread_counts.get(&sighting.pid) == Some(&1);
        for cookie in sockets.held_by(sighting.pid).filter(|cookie| !claimed_cookies.contains(cookie)) {
            let group = sockets.group(cookie);
            let group_claimants = group.and_then(|group| claimants.get(&group)).unwrap_or(&none);
            let of_others = group_claimants.iter().any(|claimant| *claimant != thread);
            let mates = GroupMates::of(sockets, group, claims.get(&thread), of_others);
            let Some(guess) = ReaderGuess::of(sighting, is_only_thread, &mates) else { continue };
            let best = guesses.entry(cookie).or_insert((guess, Vec::new()));
            if guess > best.0 {
                *best = (guess, Vec::new());
            }
            if guess == best.0 {
                best.1.push(thread);
            }
        }
    }
    guesses
}

/// Whether the kernel created the thread for the process's io_uring (io_uring/io-wq.c and
/// sqpoll.c).
fn is_kernel_thread(sighting: &ThreadSightings) -> bool {
    sighting
        .task
        .value()
        .is_some_and(|task| task.name.starts_with("iou-wrk-") || task.name.starts_with("iou-sqp-"))
}

/// The evidence for the other sockets in the group of a socket.
#[derive(Debug, Clone, Copy)]
struct GroupMates {
    /// The thread waits for one of these sockets.
    awaited: bool,
    /// The thread was seen to read one of these sockets.
    read: bool,
    /// Another thread has one of these sockets.
    of_others: bool,
}

impl GroupMates {
    /// The evidence of a thread with these claims.
    fn of(
        sockets: &MemberSockets,
        group: Option<usize>,
        own_claims: Option<&BTreeMap<u64, ReaderEvidence>>,
        of_others: bool,
    ) -> Self {
        let mut mates = GroupMates { awaited: false, read: false, of_others };
        let Some(claims) = own_claims else { return mates };
        for (_, evidence) in claims.iter().filter(|(cookie, _)| sockets.group(**cookie) == group) {
            mates.read |= *evidence == ReaderEvidence::Reading;
            mates.awaited |= matches!(evidence, ReaderEvidence::InCall | ReaderEvidence::Polling);
        }
        // A thread that was seen to wait, and not to read, was seen to wait for all sockets that it
        // reads.
        mates.awaited |=
            !claims.is_empty() && !claims.values().any(|evidence| *evidence == ReaderEvidence::Reading);
        mates
    }
}

/// A thread that may read a socket at which no thread was seen, the most likely case last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum ReaderGuess {
    /// The only thread of its process, which always waited for something else, such as for child
    /// processes.
    Alone,
    /// It reads other sockets of the group, and no other thread does.
    ReadsOthers,
    /// It runs, or waits for something unknown.
    Runs,
    /// It runs or waits for something unknown, and is the only thread of its process.
    RunsAlone,
    /// It waits for an io_uring.
    Ring,
}

impl ReaderGuess {
    fn of(sighting: &ThreadSightings, is_only_thread: bool, mates: &GroupMates) -> Option<Self> {
        if sighting.ring.is_some() {
            return Some(ReaderGuess::Ring);
        }
        // If a reader died, its master and other workers, which read their own sockets, still hold
        // its socket. The socket has no reader now.
        if (mates.awaited && sighting.selecting == 0) || (mates.read && mates.of_others) {
            return None;
        }
        let has_run = || sighting.task.value().is_none_or(TaskStat::has_run);
        let may_read =
            sighting.running > 0 || sighting.selecting > 0 || (sighting.untold.is_some() && has_run());
        match (is_only_thread, may_read || mates.read) {
            (true, true) => Some(ReaderGuess::RunsAlone),
            (true, false) => (!mates.of_others).then_some(ReaderGuess::Alone),
            (false, true) if mates.read => Some(ReaderGuess::ReadsOthers),
            (false, true) => Some(ReaderGuess::Runs),
            (false, false) => None,
        }
    }

    fn evidence(self) -> ReaderEvidence {
        match self {
            ReaderGuess::Alone | ReaderGuess::RunsAlone => ReaderEvidence::OnlyThread,
            ReaderGuess::Runs | ReaderGuess::ReadsOthers => ReaderEvidence::Assumed,
            ReaderGuess::Ring => ReaderEvidence::Ring,
        }
    }
}
