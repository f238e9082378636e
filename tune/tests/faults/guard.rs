//! Guards of tunes, and the processes that make tunes ("makers"), which are killed.

use std::io::{BufRead, BufReader, Lines, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::ChildStdout;
use std::time::{Duration, Instant};

use linerate_lab::LabChild;
use linerate_tune::journal::record::UndoReason;
use linerate_tune::transaction::{confirm, undo_overdue};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::TrialResult;
use crate::scene::Scene;

/// A process that makes a tune, and its guard.
struct GuardedTune {
    maker: LabChild,
    lines: Lines<BufReader<ChildStdout>>,
    guard: OwnedFd,
    pid: u32,
}

impl GuardedTune {
    /// Starts a maker and reads the process id of its guard.
    fn start(scene: &Scene, pace: &str) -> Self {
        let mut maker = scene.start(&[], &["guarded", &scene.directory(), pace]);
        let mut lines = BufReader::new(maker.stdout.take().expect("piped")).lines();
        let line = lines.next().expect("a line").expect("read");
        let pid: u32 = line.strip_prefix("guard ").expect("a guard").parse().expect("a number");
        let raw = Pid::from_raw(pid.cast_signed()).expect("a process");
        let guard = pidfd_open(raw, PidfdFlags::empty()).expect("running");
        Self { maker, lines, guard, pid }
    }

    fn wait_until_ended(&mut self) {
        let line = self.lines.next().expect("a line").expect("read");
        assert_eq!(line, "ended");
    }

    fn steps(&mut self, steps: usize) {
        for _ in 0..steps {
            assert_eq!(self.lines.next().expect("a line").expect("read"), "step");
            self.maker.stdin.as_mut().expect("piped").write_all(b"\n").expect("written");
        }
    }

    fn guard_ends_within(&self, limit: Duration) -> bool {
        let limit = Timespec { tv_sec: limit.as_secs().cast_signed(), tv_nsec: 0 };
        poll(&mut [PollFd::new(&self.guard, PollFlags::IN)], Some(&limit)).expect("waited") == 1
    }
}

const LONG: Duration = Duration::from_secs(30);

pub(crate) fn confirmed_tune_stays_in_effect() -> TrialResult {
    let scene = Scene::new()?;
    let before = scene.values();
    let mut tune = GuardedTune::start(&scene, "fast");
    tune.wait_until_ended();
    let tuned = scene.values();
    scene.inside(|| confirm(&mut scene.lock(), &scene.host, None).expect("in time"));
    // The guard reads the confirmation in the journal.
    assert!(tune.guard_ends_within(LONG));
    assert_eq!(scene.values(), tuned);
    scene.undo();
    assert_eq!(scene.values(), before);
    Ok(())
}

pub(crate) fn guard_inherits_no_descriptor_session_or_directory() -> TrialResult {
    let scene = Scene::new()?;
    // A descriptor that the maker inherits, like one that a shell redirects.
    let inherited = rustix::fs::open("/dev/null", rustix::fs::OFlags::RDONLY, rustix::fs::Mode::empty());
    let inherited = inherited.expect("opened");
    let mut tune = GuardedTune::start(&scene, "fast");
    tune.wait_until_ended();
    let proc = |file: &str| format!("/proc/{}/{file}", tune.pid);
    let descriptor = inherited.as_raw_fd();
    let descriptor_path = format!("/proc/{}/fd/{descriptor}", tune.maker.id());
    assert_eq!(std::fs::read_link(descriptor_path).expect("inherited").to_str(), Some("/dev/null"));
    let open_paths = || -> Vec<String> {
        std::fs::read_dir(proc("fd"))
            .expect("listed")
            .filter_map(|entry| std::fs::read_link(entry.expect("an entry").path()).ok())
            .map(|target| target.to_string_lossy().into_owned())
            .filter(|name| !name.starts_with("pipe:") && !name.starts_with("anon_inode:"))
            .collect()
    };
    // After each change, the guard opens the journal for a moment.
    let start = Instant::now();
    while open_paths() != ["/dev/null"] {
        assert!(start.elapsed() < LONG, "more than its standard error: {:?}", open_paths());
        std::thread::yield_now();
    }
    let status = std::fs::read_to_string(proc("stat")).expect("read");
    let session = status.rsplit(") ").next().and_then(|rest| rest.split(' ').nth(3)).map(str::to_owned);
    assert_eq!(session, Some(tune.pid.to_string()));
    assert_eq!(std::fs::read_link(proc("cwd")).expect("read").to_str(), Some("/"));
    drop(inherited);
    scene.undo();
    assert!(tune.guard_ends_within(LONG), "the guard has nothing to do any more");
    Ok(())
}

pub(crate) fn a_killed_guard_leaves_an_overdue_tune() -> TrialResult {
    let scene = Scene::new()?;
    let before = scene.values();
    let mut tune = GuardedTune::start(&scene, "stepping");
    tune.steps(12);
    pidfd_send_signal(&tune.guard, Signal::KILL).expect("killed");
    tune.maker.kill().expect("killed");
    assert_eq!(scene.status().tunes[0].overdue, Some(UndoReason::Died));
    let reports = scene.inside(|| undo_overdue(&mut scene.lock(), &scene.host).expect("undone"));
    assert_eq!(reports.len(), 1);
    assert_eq!(scene.values(), before);
    Ok(())
}
