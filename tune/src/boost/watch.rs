//! Keeping a boosted server right: workers that die, are forked anew or added.

mod agenda;
mod first;
mod fix;
mod force;
mod picture;
mod pulse;
mod wake;
mod words;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::journal::StateStore;
use crate::transaction::TuneError;
use linerate_host::{Host, PacketPath, Setting};
use serde::Serialize;

use crate::boost::ObservedServer;
use crate::boost::plan::{self, BoostChoice};
use crate::boost::sight::{ObservationOptions, ReaderThread, ServerQuery};
use agenda::LookSchedule;
use first::PinnedThread;
use fix::FixOutcome;
use force::JournaledTune;
use pulse::ServerSample;
use wake::ProcessWaiter;

/// How often it is asked what takes no more than a few files. The end of a process is not waited for: it wakes.
const PERIOD: Duration = Duration::from_millis(200);

/// How long the calls of its threads are looked at when something changed.
const GLANCE: Duration = Duration::from_millis(150);

/// How long datagrams are looked at where calls do not tell who reads a socket.
const STARE: Duration = Duration::from_millis(500);

/// What happened, and what was done about it.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "event")]
pub enum WatchEvent {
    /// A thread that read sockets is gone; its CPU's packets go to others.
    Lost {
        pid: u32,
        tid: u32,
        /// What was changed, in words.
        done: Vec<String>,
    },
    /// A thread reads sockets that did not before.
    Found {
        pid: u32,
        tid: u32,
        /// What was changed, in words.
        done: Vec<String>,
    },
    /// Something should be changed and is not, as a setting that was refused, or a server whose readers are all gone.
    NotDone {
        /// What, and why: one line.
        why: String,
    },
    /// The server is gone.
    Ended,
    /// Somebody undid the boost.
    Undone,
}

/// Watches a server that tune `tune` boosted, until it is gone, undone, or `stop` says so.
///
/// A thread that dies has its CPU's packets given to others at once; who is new is given a CPU when it was seen which socket
/// it reads. Nothing is changed as long as the same threads read the same sockets. The journal is locked only while something
/// is changed, so that the tune may be looked at and undone meanwhile.
///
/// # Errors
/// [`TuneError`] where a change cannot be journalled.
pub fn watch(
    host: &Host,
    store: &StateStore,
    tune: u64,
    (wanted, choice): (&ServerQuery, &BoostChoice),
    stop: &dyn Fn() -> bool,
    tell: &mut dyn FnMut(WatchEvent),
) -> Result<(), TuneError> {
    let mut force = JournaledTune::of(store, tune);
    let tunes = store.read()?.tunes();
    let pins = tunes.iter().find(|found| found.begun.tune == tune).map(first::pins).unwrap_or_default();
    let mut wake = ProcessWaiter::default();
    let mut watch = BoostWatch {
        host,
        store,
        tune,
        wanted,
        choice,
        pins: &pins,
        stop,
        tell,
        known: None,
        pulse: ServerSample::default(),
        dead: Vec::new(),
        agenda: LookSchedule::default(),
        unmended: false,
        waiting: Vec::new(),
        complaint: None,
    };
    while !stop() {
        let goes_on = if force.lasts()? { watch.turn()? } else { WatchTurn::Over(WatchEvent::Undone) };
        if let WatchTurn::Over(event) = goes_on {
            (watch.tell)(event);
            return Ok(());
        }
        wake.attend(watch.pulse.processes.keys());
        wake.sleep(PERIOD);
    }
    Ok(())
}

/// Whether it goes on.
enum WatchTurn {
    On,
    Over(WatchEvent),
}

fn lost(reader: &ReaderThread) -> WatchEvent {
    WatchEvent::Lost { pid: reader.pid, tid: reader.tid, done: Vec::new() }
}

struct BoostWatch<'w> {
    host: &'w Host,
    store: &'w StateStore,
    tune: u64,
    wanted: &'w ServerQuery,
    choice: &'w BoostChoice,
    /// The threads that the boost put on CPUs before.
    pins: &'w [PinnedThread],
    stop: &'w dyn Fn() -> bool,
    tell: &'w mut dyn FnMut(WatchEvent),
    /// The server as far as it is known, and the path to it; none until it was seen.
    known: Option<(ObservedServer, PacketPath)>,
    pulse: ServerSample,
    /// Readers that died, of which nobody is the successor yet.
    dead: Vec<ReaderThread>,
    agenda: LookSchedule,
    /// Whether the server has changed and nothing could be done about it yet.
    unmended: bool,
    /// What is told when that was done.
    waiting: Vec<WatchEvent>,
    /// What was told last of what is not done, so that it is told once.
    complaint: Option<String>,
}

impl BoostWatch<'_> {
    fn turn(&mut self) -> Result<WatchTurn, TuneError> {
        if self.known.is_some() {
            let pulse = self.feel();
            if pulse.processes.is_empty() {
                return Ok(WatchTurn::Over(WatchEvent::Ended));
            }
            if pulse != self.pulse {
                self.agenda.begin(Instant::now());
                self.pulse = pulse;
            }
            self.bury();
            if let Some(over) = self.fix()? {
                return Ok(WatchTurn::Over(over));
            }
        }
        if self.agenda.take(Instant::now()) {
            self.look();
            if let Some(over) = self.fix()? {
                return Ok(WatchTurn::Over(over));
            }
        }
        Ok(WatchTurn::On)
    }

    fn feel(&self) -> ServerSample {
        let server = self.known.as_ref().map(|(server, _)| server);
        let listed = server.into_iter().flat_map(|server| &server.processes);
        let mut known: BTreeMap<u32, u64> = listed.map(|process| (process.pid, process.started)).collect();
        known.extend(&self.pulse.processes);
        let ports = server.map(ObservedServer::udp_ports).unwrap_or_default();
        ServerSample::of(self.host, &known, &ports)
    }

    /// What a thread that is gone had is another's at once, before anything else is looked at.
    fn bury(&mut self) {
        let Some((server, _)) = &mut self.known else { return };
        let dead = picture::bury(server, &self.pulse);
        if dead.is_empty() {
            return;
        }
        fix::refresh(self.host, server);
        self.waiting.extend(dead.iter().map(lost));
        self.dead.extend(dead);
        self.unmended = true;
    }

    /// Looks at all of it anew.
    fn look(&mut self) {
        // What the boost knew is known of a server that is seen first: soon is better than sure then.
        let ambiguous = self.known.as_ref().is_some_and(|(server, _)| picture::is_unclear(server));
        let look = if ambiguous && !self.agenda.is_first() {
            ObservationOptions { duration: STARE, datagrams: true }
        } else {
            ObservationOptions { duration: GLANCE, datagrams: false }
        };
        let (seen, path) = match ObservedServer::observe(self.host, &self.who(), look, self.stop) {
            Ok(seen) => seen,
            Err(error) => {
                // Workers that are about to go, or to come, are no news.
                if self.agenda.is_last() {
                    self.complain(error.to_string());
                }
                return;
            }
        };
        let Some((known, _)) = &self.known else {
            return self.begin(seen, path);
        };
        let mut now = picture::merge(known, seen, &self.dead);
        let moved = picture::moved(known, &now);
        let changed = !moved.is_empty() || picture::members(known) != picture::members(&now);
        // Who died while it was looked at is seen to be dead by the next turn, which comes at once.
        for (pid, tid) in moved.found {
            let new = now.readers.iter().find(|reader| (reader.pid, reader.tid) == (pid, tid));
            let taken = |reader: &ReaderThread| {
                new.is_some_and(|new| reader.sockets.iter().any(|cookie| new.sockets.contains(cookie)))
            };
            self.dead.retain(|reader| !taken(reader));
            self.waiting.push(WatchEvent::Found { pid, tid, done: Vec::new() });
        }
        for (pid, tid) in moved.lost {
            self.waiting.push(WatchEvent::Lost { pid, tid, done: Vec::new() });
        }
        fix::refresh(self.host, &mut now);
        self.known = Some((now, path));
        self.unmended |= changed;
    }

    /// Takes up what is seen first. It is as the boost left it, but for workers that died or came since.
    fn begin(&mut self, mut seen: ObservedServer, path: PacketPath) {
        let pins = self.pins;
        let processes = seen.processes.iter().map(|process| (process.pid, process.started)).collect();
        self.pulse = ServerSample::of(self.host, &processes, &seen.udp_ports());
        self.dead = first::adopt(&mut seen, pins, &self.pulse);
        self.waiting.extend(self.dead.iter().map(lost));
        let planned = plan::make(&seen, &path, self.choice).plan;
        let to_pin = |reader: &&ReaderThread| {
            let is_it =
                |setting: &Setting| matches!(setting, Setting::ThreadCpus { tid, .. } if *tid == reader.tid);
            let planned = planned.changes.iter().any(|change| is_it(&change.setting));
            !pins.is_empty() && planned && !first::is_pinned(reader, pins)
        };
        let new = seen.readers.iter().filter(to_pin);
        self.waiting.extend(new.map(|reader| WatchEvent::Found {
            pid: reader.pid,
            tid: reader.tid,
            done: Vec::new(),
        }));
        self.unmended = !self.waiting.is_empty() || picture::feeds_the_dead(&seen);
        if self.unmended {
            self.agenda.begin(Instant::now());
        }
        self.known = Some((seen, path));
    }

    /// The server, by a process of it that lives.
    fn who(&self) -> ServerQuery {
        let pid = self.wanted.pid.map(|pid| {
            let alive = self.pulse.processes.is_empty() || self.pulse.processes.contains_key(&pid);
            let other = self.pulse.processes.keys().next().copied();
            if alive { pid } else { other.unwrap_or(pid) }
        });
        ServerQuery { pid, ..self.wanted.clone() }
    }

    /// Carries out what the server needs as it is now. An event where the watch is over.
    fn fix(&mut self) -> Result<Option<WatchEvent>, TuneError> {
        if !self.unmended {
            return Ok(None);
        }
        let Some((server, path)) = &mut self.known else { return Ok(None) };
        if server.readers.is_empty() {
            self.unmended = false;
            self.say(Vec::new());
            self.complain("no thread reads its sockets any more: all is left as it is".into());
            return Ok(None);
        }
        let plan = fix::without_what_is(plan::make(server, path, self.choice).plan);
        let fixed = if plan.changes.is_empty() {
            FixOutcome::Done { done: Vec::new(), refused: Vec::new() }
        } else {
            fix::fix(self.host, self.store, self.tune, &plan)?
        };
        match fixed {
            FixOutcome::Busy => self.complain("another process holds the journal: waiting for it".into()),
            FixOutcome::Undone => return Ok(Some(WatchEvent::Undone)),
            FixOutcome::Done { done, refused } => {
                self.unmended = false;
                if refused.is_empty() {
                    fix::note(server, &plan);
                }
                self.complaint = None;
                self.say(done);
                refused.into_iter().for_each(|why| self.complain(why));
            }
        }
        Ok(None)
    }

    /// Tells what happened; what was done about it with the last of it.
    fn say(&mut self, what: Vec<String>) {
        let mut waiting = std::mem::take(&mut self.waiting);
        if let Some(WatchEvent::Lost { done, .. } | WatchEvent::Found { done, .. }) = waiting.last_mut() {
            *done = what;
        }
        waiting.into_iter().for_each(&mut *self.tell);
    }

    /// Tells once what is not done.
    fn complain(&mut self, why: String) {
        if self.complaint.as_ref() != Some(&why) {
            self.complaint = Some(why.clone());
            (self.tell)(WatchEvent::NotDone { why });
        }
    }
}
