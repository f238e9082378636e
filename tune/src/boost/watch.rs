//! Adapts a boost when workers of the server die or start.

mod fix;
mod journaled_tune;
mod pins;
mod process_waiter;
mod sample;
mod schedule;
mod snapshot;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::journal::StateStore;
use crate::plan::PlannedChange;
use crate::transaction::TuneError;
use linerate_host::{Host, PacketPath, Setting};
use serde::Serialize;

use crate::boost::ObservedServer;
use crate::boost::discovery::{ObservationOptions, ReaderThread, ServerQuery};
use crate::boost::plan::{self, BoostChoice};
use fix::FixOutcome;
use journaled_tune::JournaledTune;
use pins::PinnedThread;
use sample::ServerSample;
use schedule::LookSchedule;

/// Interval of samples, which read a few files. The end of a process wakes earlier.
const PERIOD: Duration = Duration::from_millis(200);

/// Duration of an observation of system calls after a change.
const SHORT_LOOK: Duration = Duration::from_millis(150);

/// Duration of an observation of datagrams if system calls do not show who reads a socket.
const LONG_LOOK: Duration = Duration::from_millis(500);

/// A change of the server, and the reaction.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "event")]
pub enum WatchEvent {
    /// A reading thread is gone. The packets of its CPU go to other threads.
    Lost {
        pid: u32,
        tid: u32,
        /// The changes in words.
        done: Vec<String>,
    },
    /// A new thread reads sockets.
    Found {
        pid: u32,
        tid: u32,
        /// The changes in words.
        done: Vec<String>,
    },
    /// A change was not possible, for example because the host refused a setting.
    NotDone {
        /// Change and reason in one line.
        why: String,
    },
    /// The server is gone.
    Ended,
    /// The boost was undone.
    Undone,
}

/// Watches a server that tune `tune` boosted until the server ends, the tune is undone or `stop`
/// returns true.
///
/// When a thread dies, other threads get the packets of its CPU at once. A new thread gets a CPU as
/// soon as its socket is known. Nothing changes while the same threads read the same sockets. The
/// journal is locked only during changes, so that the tune can be undone in the meantime.
pub fn watch(
    host: &Host,
    store: &StateStore,
    tune: u64,
    (query, choice): (&ServerQuery, &BoostChoice),
    stop: &dyn Fn() -> bool,
    report: &mut dyn FnMut(WatchEvent),
) -> Result<(), TuneError> {
    let recorded = store.read()?.tune(tune);
    let pins = recorded.as_ref().map(pins::pinned_threads).unwrap_or_default();
    let mut watch = BoostWatch {
        host,
        tune: JournaledTune::of(store, tune),
        wanted: query,
        choice,
        pins: &pins,
        stop,
        tell: report,
        known: None,
        sample: ServerSample::default(),
        dead: Vec::new(),
        looks: LookSchedule::default(),
        // Changes that were refused are tried again.
        needs_fix: recorded.is_some_and(|tune| tune.is_unfinished()),
        waiting: Vec::new(),
        last_warning: None,
    };
    while !stop() {
        let end_event = if watch.tune.is_in_effect()? { watch.turn()? } else { Some(WatchEvent::Undone) };
        if let Some(event) = end_event {
            (watch.tell)(event);
            return Ok(());
        }
        process_waiter::sleep(watch.sample.processes.keys(), PERIOD);
    }
    Ok(())
}

fn lost_event(reader: &ReaderThread) -> WatchEvent {
    WatchEvent::Lost { pid: reader.pid, tid: reader.tid, done: Vec::new() }
}

fn found_event(reader: &ReaderThread) -> WatchEvent {
    WatchEvent::Found { pid: reader.pid, tid: reader.tid, done: Vec::new() }
}

struct BoostWatch<'w> {
    host: &'w Host,
    tune: JournaledTune<'w>,
    wanted: &'w ServerQuery,
    choice: &'w BoostChoice,
    pins: &'w [PinnedThread],
    stop: &'w dyn Fn() -> bool,
    tell: &'w mut dyn FnMut(WatchEvent),
    /// The server and its packet path; `None` before the first observation.
    known: Option<(ObservedServer, PacketPath)>,
    sample: ServerSample,
    /// Readers that died and have no successor yet.
    dead: Vec<ReaderThread>,
    looks: LookSchedule,
    /// Whether the server has changed and the boost does not fit it yet.
    needs_fix: bool,
    /// Events that are reported after the fix.
    waiting: Vec<WatchEvent>,
    /// The last warning, so that it is reported once.
    last_warning: Option<String>,
}

impl BoostWatch<'_> {
    /// Returns an event if the watch is over.
    fn turn(&mut self) -> Result<Option<WatchEvent>, TuneError> {
        if self.known.is_some() {
            let sample = self.take_sample();
            if sample.processes.is_empty() {
                return Ok(Some(WatchEvent::Ended));
            }
            if sample != self.sample {
                self.looks.begin(Instant::now());
                self.sample = sample;
            }
            self.remove_dead();
            if let Some(end_event) = self.fix()? {
                return Ok(Some(end_event));
            }
        }
        let (is_first, is_due) = (self.known.is_none(), self.looks.take(Instant::now()));
        if is_due {
            self.observe();
        }
        // The boosted server may have ended before, and another be there now.
        let is_another = |(server, _): &(ObservedServer, PacketPath)| pins::precede(self.pins, server);
        if is_first && pins::have_ended(self.host, self.pins) && self.known.as_ref().is_none_or(is_another) {
            return Ok(Some(WatchEvent::Ended));
        }
        if is_due { self.fix() } else { Ok(None) }
    }

    fn take_sample(&self) -> ServerSample {
        let server = self.known.as_ref().map(|(server, _)| server);
        let processes = server.into_iter().flat_map(|server| &server.processes);
        let mut start_times: BTreeMap<u32, u64> =
            processes.map(|process| (process.pid, process.started)).collect();
        start_times.extend(&self.sample.processes);
        let ports = server.map(ObservedServer::udp_ports).unwrap_or_default();
        ServerSample::of(self.host, &start_times, &ports)
    }

    /// Removes readers that died since the last sample.
    fn remove_dead(&mut self) {
        let Some((server, _)) = &mut self.known else { return };
        let dead = snapshot::remove_dead(server, &self.sample);
        if dead.is_empty() {
            return;
        }
        fix::refresh_server(self.host, server);
        self.waiting.extend(dead.iter().map(lost_event));
        self.dead.extend(dead);
        self.needs_fix = true;
    }

    fn observe(&mut self) {
        // For the first observation the pins of the boost are known, so that a short look is enough.
        let is_ambiguous = self.known.as_ref().is_some_and(|(server, _)| snapshot::is_unclear(server));
        let options = if is_ambiguous && !self.looks.is_first() {
            ObservationOptions { duration: LONG_LOOK, datagrams: true }
        } else {
            ObservationOptions { duration: SHORT_LOOK, datagrams: false }
        };
        let (server, path) =
            match ObservedServer::observe(self.host, &self.current_query(), options, self.stop) {
                Ok(server) => server,
                Err(error) => {
                    // Workers that start or end may cause this for a moment.
                    if self.looks.is_last() {
                        self.warn(error.to_string());
                    }
                    return;
                }
            };
        let Some((known, _)) = &self.known else {
            return self.begin(server, path);
        };
        let mut merged = snapshot::merge(known, server, &self.dead);
        let lost = snapshot::missing_readers(known, &merged);
        let found = snapshot::missing_readers(&merged, known);
        let has_changed =
            !lost.is_empty() || !found.is_empty() || snapshot::members(known) != snapshot::members(&merged);
        // The next turn finds readers that died during the observation.
        for new_reader in &found {
            let is_replaced = |reader: &ReaderThread| {
                reader.sockets.iter().any(|cookie| new_reader.sockets.contains(cookie))
            };
            self.dead.retain(|reader| !is_replaced(reader));
        }
        self.waiting.extend(found.into_iter().map(found_event));
        self.waiting.extend(lost.into_iter().map(lost_event));
        fix::refresh_server(self.host, &mut merged);
        self.known = Some((merged, path));
        self.needs_fix |= has_changed;
    }

    /// Compares the first observation with the pins of the boost: workers may have changed since.
    fn begin(&mut self, mut server: ObservedServer, path: PacketPath) {
        let pins = self.pins;
        let processes = server.processes.iter().map(|process| (process.pid, process.started)).collect();
        self.sample = ServerSample::of(self.host, &processes, &server.udp_ports());
        self.dead = pins::adopt(&mut server, pins, &self.sample);
        self.waiting.extend(self.dead.iter().map(lost_event));
        let plan = plan::make(&server, &path, self.choice).plan;
        let to_pin = |reader: &&ReaderThread| {
            let is_its_pin =
                |setting: &Setting| matches!(setting, Setting::ThreadCpus { tid, .. } if *tid == reader.tid);
            let is_planned = plan.changes.iter().any(|change| is_its_pin(&change.setting));
            !pins.is_empty() && is_planned && !pins.iter().any(|pin| pin.is_of(reader))
        };
        let new_readers = server.readers.iter().filter(to_pin);
        self.waiting.extend(new_readers.map(found_event));
        // The sockets may have been replaced since the boost.
        let is_unsteered = |change: &PlannedChange| {
            matches!(change.setting, Setting::Steering { .. }) && change.from.as_str() == "none"
        };
        self.needs_fix |= !self.waiting.is_empty()
            || plan.changes.iter().any(is_unsteered)
            || snapshot::feeds_unread_sockets(&server);
        if self.needs_fix {
            self.looks.begin(Instant::now());
        }
        self.known = Some((server, path));
    }

    /// A query that names a living process of the server.
    fn current_query(&self) -> ServerQuery {
        let pid = self.wanted.pid.map(|pid| {
            let is_alive = self.sample.processes.is_empty() || self.sample.processes.contains_key(&pid);
            let other_pid = self.sample.processes.keys().next().copied();
            if is_alive { pid } else { other_pid.unwrap_or(pid) }
        });
        ServerQuery { pid, ..self.wanted.clone() }
    }

    /// Applies a new plan. Returns an event if the watch is over.
    fn fix(&mut self) -> Result<Option<WatchEvent>, TuneError> {
        if !self.needs_fix {
            return Ok(None);
        }
        let Some((server, path)) = &mut self.known else { return Ok(None) };
        if server.readers.is_empty() {
            self.needs_fix = false;
            self.report_events(Vec::new());
            self.warn("no thread reads its sockets any more: all is left as it is".into());
            return Ok(None);
        }
        let plan = fix::without_effective_changes(plan::make(server, path, self.choice).plan);
        match fix::fix(self.host, &self.tune, &plan) {
            Err(error) if error.is_passing() => self.warn(format!("{error} (it is tried again)")),
            Err(error) => return Err(error),
            Ok(FixOutcome::Undone) => return Ok(Some(WatchEvent::Undone)),
            Ok(FixOutcome::Done { done, refused }) => {
                self.needs_fix = false;
                fix::refresh_server(self.host, server);
                self.last_warning = None;
                self.report_events(done);
                refused.into_iter().for_each(|warning| self.warn(warning));
            }
        }
        Ok(None)
    }

    /// Reports the waiting events; the last one has the changes.
    fn report_events(&mut self, changes: Vec<String>) {
        let mut waiting = std::mem::take(&mut self.waiting);
        if let Some(WatchEvent::Lost { done, .. } | WatchEvent::Found { done, .. }) = waiting.last_mut() {
            *done = changes;
        }
        waiting.into_iter().for_each(&mut *self.tell);
    }

    fn warn(&mut self, why: String) {
        if self.last_warning.as_ref() != Some(&why) {
            self.last_warning = Some(why.clone());
            (self.tell)(WatchEvent::NotDone { why });
        }
    }
}

#[cfg(test)]
mod tests {
    use linerate_host::Scope;

    use super::*;
    use crate::transaction::{TuneStart, TuneTransaction};

    #[test]
    fn watch_tries_again_after_the_journal_could_not_be_written() {
        let directory = tempfile::tempdir().expect("a directory");
        let store = StateStore::at(directory.path());
        let host = Host::scripted(
            [("/proc/sys/kernel/random/boot_id", "boot-1\n"), ("/sys/devices/system/cpu/online", "0-1\n")]
                .map(|(path, text)| (path.to_owned(), text.to_owned())),
        );
        let mut writer = store.lock().expect("locked");
        let tune = TuneTransaction::begin(&mut writer, &host, TuneStart::new("boost", Vec::new()));
        tune.and_then(|tune| tune.end(None)).expect("made");
        drop(writer);
        let mut events = Vec::new();
        let mut watch = BoostWatch {
            host: &host,
            tune: JournaledTune::of(&store, 1),
            wanted: &ServerQuery { port: Some(7), pid: None, interfaces: Vec::new() },
            choice: &BoostChoice::default(),
            pins: &[],
            stop: &|| false,
            tell: &mut |event| events.push(event),
            known: Some((plan::sample::echo(2, "0-1"), PacketPath::observe(&host, &Scope::default()))),
            sample: ServerSample::default(),
            dead: Vec::new(),
            looks: LookSchedule::default(),
            needs_fix: true,
            waiting: Vec::new(),
            last_warning: None,
        };
        // Like a full disk: the plan of the changes cannot be saved.
        let plans = directory.path().join("plans");
        std::fs::write(&plans, "").expect("written");
        for _ in 0..2 {
            assert!(matches!(watch.fix(), Ok(None)) && watch.needs_fix);
        }
        std::fs::remove_file(&plans).expect("removed");
        assert!(matches!(watch.fix(), Ok(None)) && !watch.needs_fix);
        let warnings = events.iter().filter(|event| {
            matches!(event, WatchEvent::NotDone { why } if why.contains("plans") && why.contains("again"))
        });
        assert_eq!(warnings.count(), 1, "{events:?}");
    }
}
