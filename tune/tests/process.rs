//! Settings of another running process: its sockets, and the CPUs of its threads.
//!
//! These tests have a program of their own and run one after the other. Until a child calls
//! execve(2), it holds all descriptors of its parent, including that of a locked journal.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::UdpSocket;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use linerate_host::setting::{SocketAt, SocketKnob};
use linerate_host::{CpuSet, Host, Setting, SettingValue};
use linerate_tune::journal::record::UndoOutcome;
use linerate_tune::journal::record::UndoReason::Asked;
use linerate_tune::journal::{JournalWriter, StateStore};
use linerate_tune::status::{JournalStatus, SettingState};
use linerate_tune::transaction::{ChangeOutcome, TuneStart, TuneTransaction, UndoReport, undo};

/// Held by the running test.
static ALONE: Mutex<()> = Mutex::new(());

/// A directory for a journal, and the lock of the running test.
struct Scratch {
    directory: tempfile::TempDir,
    _turn: MutexGuard<'static, ()>,
}

impl Scratch {
    fn new() -> Self {
        let turn = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        Self { directory: tempfile::tempdir().expect("a directory"), _turn: turn }
    }

    fn store(&self) -> StateStore {
        StateStore::at(self.directory.path().join("state"))
    }

    fn lock(&self) -> JournalWriter {
        self.store().lock().expect("locked")
    }
}

/// A process that holds a socket as its descriptor 0 and sleeps.
struct Server {
    child: Child,
    socket: SocketAt,
}

impl Server {
    fn start() -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("bound");
        let inode = rustix::fs::fstat(&socket).expect("an inode").st_ino;
        let cookie = rustix::net::sockopt::socket_cookie(&socket).expect("a cookie");
        let mut sleep = Command::new("sleep");
        let child = sleep.arg("600").stdin(Stdio::from(OwnedFd::from(socket))).spawn().expect("running");
        let socket = SocketAt { cookie, inode, pid: child.id(), descriptor: 0 };
        Self { child, socket }
    }

    fn cpus(&self) -> Setting {
        Setting::thread_cpus(&Host::live(), self.child.id(), self.child.id()).expect("running")
    }

    fn option(&self, knob: SocketKnob) -> Setting {
        Setting::Socket { socket: self.socket, knob }
    }

    fn end(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

/// The changes of a boost. `None`, after printing SKIP, with one CPU or if sockets cannot be
/// copied.
fn changes(test: &str, server: &Server) -> Option<[(Setting, SettingValue); 3]> {
    let host = Host::live();
    let cpus = CpuSet::from_list(server.cpus().read(&host).expect("read").as_str()).expect("a list");
    let path = server.option(SocketKnob::PathMtu);
    let why = match path.read(&host) {
        Err(error) if error.is_denied() => error.to_string(),
        _ if cpus.len() < 2 => "only one CPU".to_owned(),
        _ => {
            let last = SettingValue::new(cpus.iter().last().unwrap_or(0).to_string());
            let cpu = server.option(SocketKnob::IncomingCpu);
            return Some([(server.cpus(), last.clone()), (cpu, last), (path, SettingValue::new("do"))]);
        }
    };
    linerate_testkit::skip(test, why);
    None
}

fn make(scratch: &Scratch, changes: &[(Setting, SettingValue)]) {
    let (host, mut writer) = (Host::live(), scratch.lock());
    let begin = TuneStart::new("test", Vec::new());
    let mut transaction = TuneTransaction::begin(&mut writer, &host, begin).expect("begun");
    for (setting, to) in changes {
        let result = transaction.change(&host, setting, to).expect("journalled");
        assert!(matches!(result, ChangeOutcome::Made), "{setting}: {result:?}");
    }
    transaction.end(None).expect("ended");
}

fn states(scratch: &Scratch) -> Vec<SettingState> {
    let status = JournalStatus::of(&scratch.store().read().expect("read"), &Host::live());
    status.tunes.into_iter().flat_map(|tune| tune.settings).map(|setting| setting.state).collect()
}

fn undo_all(scratch: &Scratch) -> UndoReport {
    let report = undo(&mut scratch.lock(), &Host::live(), None, Asked).expect("journalled");
    assert!(!report.has_failures(), "{report:?}");
    report
}

#[test]
fn undo_reports_and_keeps_process_settings_changed_by_others() {
    let scratch = Scratch::new();
    let server = Server::start();
    let test = "undo_reports_and_keeps_process_settings_changed_by_others";
    let Some(changes) = changes(test, &server) else { return };
    make(&scratch, &changes);
    let foreign_value = SettingValue::new("0");
    server.cpus().write(&Host::live(), &foreign_value).expect("written");
    let report = undo_all(&scratch);
    let cpus = report.settings.iter().find(|undo| undo.setting == server.cpus()).expect("reported");
    assert_eq!(cpus.outcome, UndoOutcome::Drift { found: foreign_value.clone() });
    assert_eq!(cpus.name, format!("CPUs of the main thread of process {}", server.child.id()));
    assert_eq!(server.cpus().read(&Host::live()).expect("read"), foreign_value);
    assert_eq!(server.option(SocketKnob::PathMtu).read(&Host::live()).expect("read").as_str(), "want");
}

#[test]
fn settings_of_an_ended_process_are_gone_without_failure() {
    let scratch = Scratch::new();
    let mut server = Server::start();
    let test = "settings_of_an_ended_process_are_gone_without_failure";
    if !rustix::process::geteuid().is_root() {
        // An ordinary user cannot see the sockets of all processes, so the socket may still exist.
        linerate_testkit::skip(test, "requires root");
        return;
    }
    let Some(changes) = changes(test, &server) else { return };
    make(&scratch, &changes);
    server.end();
    let states = states(&scratch);
    assert!(states.iter().all(|state| matches!(state, SettingState::Gone { .. })), "{states:?}");
    let report = undo_all(&scratch);
    assert_eq!(report.settings.len(), 3);
    for setting in &report.settings {
        let UndoOutcome::Gone { why } = &setting.outcome else { panic!("{setting:?}") };
        assert!(why.contains("ended") || why.contains("no process has that socket"), "{why}");
    }
    assert!(!report.has_skipped(), "{report:?}");
}

#[test]
fn undo_restores_children_started_by_a_pinned_process() {
    let test = "undo_restores_children_started_by_a_pinned_process";
    let scratch = Scratch::new();
    let host = Host::live();
    let mut shell = Command::new("sh");
    let mut shell = shell
        .args(["-c", "read line; sleep 600 & echo $!; wait"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("running");
    let cpus = |pid: u32| Setting::thread_cpus(&host, pid, pid).expect("running");
    let original = cpus(shell.id()).read(&host).expect("read");
    let all = CpuSet::from_list(original.as_str()).expect("a list");
    if all.len() < 2 {
        let _ = shell.kill();
        let _ = shell.wait();
        linerate_testkit::skip(test, "only one CPU");
        return;
    }
    let last_cpu = SettingValue::new(all.iter().last().unwrap_or(0).to_string());
    make(&scratch, &[(cpus(shell.id()), last_cpu.clone())]);
    shell.stdin.take().expect("piped").write_all(b"go\n").expect("written");
    let mut line = String::new();
    BufReader::new(shell.stdout.take().expect("piped")).read_line(&mut line).expect("read");
    let child: u32 = line.trim().parse().expect("a process");
    assert_eq!(cpus(child).read(&host).expect("read"), last_cpu, "the child inherits the CPUs");
    let report = undo_all(&scratch);
    let child_cpus = cpus(child).read(&host).expect("read");
    let _ = Command::new("kill").arg(child.to_string()).status();
    let _ = shell.wait();
    assert_eq!(child_cpus, original);
    assert_eq!(report.settings.len(), 2, "{report:?}");
}
