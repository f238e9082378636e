//! A process that undoes a tune when its time is over, or when the program that makes it is gone.
//!
//! The maker starts it before the first change. It learns from the end of a pipe that the maker is
//! gone, from the journal that the tune was confirmed or undone, and from a timer that its time is
//! over. It has a session of its own and is in the namespaces of the maker. If it is killed, too,
//! the next `tune` command finds the tune overdue.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use linerate_host::Host;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify;
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};

use crate::journal::{JournalError, RecordedTune, StateStore};
use crate::transaction::{TuneError, UndoReport, boot_id, boot_seconds, due, is_pending, undo};

// Written by a guard once it watches.
const READY: &str = "ready";

/// A guard starts within milliseconds; on an overloaded machine it takes longer.
const LONGEST_START: Duration = Duration::from_secs(30);

/// A guard that watches. Dropping it reports that the maker has finished: a tune that has ended
/// then waits for its time or its confirmation, any other tune is undone at once.
#[derive(Debug)]
pub struct TuneGuard {
    /// Not waited for: it outlives the maker.
    child: Child,
    _maker: ChildStdin,
}

/// Starts a guard and waits until it watches. The guard is this program with these arguments, which
/// must make it call [`run`].
///
/// # Errors
/// [`TuneError::NoGuard`]: then do not make the changes that the guard should undo.
pub fn start(arguments: impl IntoIterator<Item = OsString>) -> Result<TuneGuard, TuneError> {
    let no_guard = |error: io::Error| TuneError::NoGuard { why: error.to_string() };
    let mut command = Command::new("/proc/self/exe");
    if let Some(name) = std::env::args_os().next() {
        command.arg0(name);
    }
    command.args(arguments).current_dir("/");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    crate::sys::detach::detach(&mut command);
    let mut child = command.spawn().map_err(no_guard)?;
    let (Some(maker), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
        return Err(TuneError::NoGuard { why: "it has no pipe".to_owned() });
    };
    match first_line(OwnedFd::from(output)) {
        Ok(line) if line == READY => Ok(TuneGuard { child, _maker: maker }),
        answer => {
            // The guard does not watch yet, and its state is unknown.
            let _ = child.kill();
            let _ = child.wait();
            Err(TuneError::NoGuard {
                why: match answer {
                    Ok(line) if line.is_empty() => "it ended at once".to_owned(),
                    Ok(line) => line,
                    Err(error) => error.to_string(),
                },
            })
        }
    }
}

impl TuneGuard {
    pub fn id(&self) -> u32 {
        self.child.id()
    }
}

/// Runs a guard: the whole life of a process that [`start`] started. Returns the undone settings,
/// or `None` if no undo was necessary.
///
/// # Errors
///
/// [`TuneError`]; errors before the guard watches are passed to [`start`].
pub fn run(store: &StateStore, tune: u64, host: &Host) -> Result<Option<UndoReport>, TuneError> {
    let maker = io::stdin();
    let watch = GuardWatch::begin(store, tune, maker.as_fd());
    let mut output = io::stdout();
    let line = match &watch {
        Ok(_) => READY.to_owned(),
        Err(error) => error.to_string(),
    };
    // If the maker is gone already, the pipe from it shows that.
    // In one write, because the maker waits for the start of the line only.
    let _ = output.write_all(format!("{line}\n").as_bytes()).and_then(|()| output.flush());
    watch?.run_until_done(host)
}

struct GuardWatch<'a> {
    store: &'a StateStore,
    tune: u64,
    maker: BorrowedFd<'a>,
    maker_is_gone: bool,
    timer: OwnedFd,
    journal: OwnedFd,
}

impl<'a> GuardWatch<'a> {
    fn begin(store: &'a StateStore, tune: u64, maker: BorrowedFd<'a>) -> Result<Self, TuneError> {
        let no_guard = |errno: Errno| TuneError::NoGuard { why: io::Error::from(errno).to_string() };
        let journal = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK)
            .and_then(|watch| {
                inotify::add_watch(&watch, store.journal_path(), inotify::WatchFlags::MODIFY).map(|_| watch)
            })
            .map_err(no_guard)?;
        // CLOCK_BOOTTIME counts the machine's sleep, so ten minutes stay ten minutes on the wall
        // clock.
        let timer = timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)
            .map_err(no_guard)?;
        let watch = Self { store, tune, maker, maker_is_gone: false, timer, journal };
        let begun = watch.read_tune()?.begun;
        if let Some(deadline) = begun.until.and_then(crate::journal::record::UndoDeadline::boot_seconds) {
            // Zero would disarm it.
            let seconds = i64::try_from(deadline.max(1)).unwrap_or(i64::MAX);
            let expiry = Itimerspec {
                it_interval: Timespec { tv_sec: 0, tv_nsec: 0 },
                it_value: Timespec { tv_sec: seconds, tv_nsec: 0 },
            };
            timerfd_settime(&watch.timer, TimerfdTimerFlags::ABSTIME, &expiry).map_err(no_guard)?;
        }
        Ok(watch)
    }

    fn run_until_done(mut self, host: &Host) -> Result<Option<UndoReport>, TuneError> {
        let boot = boot_id(host)?;
        loop {
            let tune = self.read_tune()?;
            if !is_pending(&tune) && (self.maker_is_gone || tune.ended.is_some() || tune.confirmed) {
                return Ok(None);
            }
            if due(&tune, &boot, boot_seconds(), !self.maker_is_gone).is_some() {
                let mut writer = self.store.lock_waiting()?;
                // While this waited for the lock, another process may have confirmed or undone it,
                // or ended it.
                let reason = writer.tune(self.tune).and_then(|tune| due(tune, &boot, boot_seconds(), false));
                if let Some(reason) = reason {
                    return undo(&mut writer, host, Some(self.tune), reason).map(Some);
                }
                continue;
            }
            self.wait()?;
        }
    }

    fn read_tune(&self) -> Result<RecordedTune, TuneError> {
        self.store.read()?.tune(self.tune).ok_or(TuneError::NoSuchTune { tune: self.tune })
    }

    fn wait(&mut self) -> Result<(), JournalError> {
        let watch_error = |errno: Errno| JournalError::File {
            path: self.store.journal_path().display().to_string(),
            what: "watch",
            source: errno.into(),
        };
        let mut poll_fds =
            vec![PollFd::new(&self.timer, PollFlags::IN), PollFd::new(&self.journal, PollFlags::IN)];
        if !self.maker_is_gone {
            poll_fds.push(PollFd::new(&self.maker, PollFlags::IN));
        }
        match poll(&mut poll_fds, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(watch_error(errno)),
        }
        let has_maker_event = poll_fds.get(2).is_some_and(|maker| !maker.revents().is_empty());
        drop(poll_fds);
        let mut buffer = [0; 4096];
        for descriptor in [&self.timer, &self.journal] {
            match rustix::io::read(descriptor, &mut buffer) {
                Ok(_) | Err(Errno::AGAIN | Errno::INTR) => {}
                Err(errno) => return Err(watch_error(errno)),
            }
        }
        // The maker never writes, so any event means that its end of the pipe is closed.
        self.maker_is_gone |=
            has_maker_event && !matches!(rustix::io::read(self.maker, &mut buffer), Ok(1..));
        Ok(())
    }
}

/// The first line, or all there is.
fn first_line(pipe: OwnedFd) -> io::Result<String> {
    let limit = Timespec { tv_sec: LONGEST_START.as_secs().cast_signed(), tv_nsec: 0 };
    let mut poll_fds = [PollFd::new(&pipe, PollFlags::IN)];
    if rustix::io::retry_on_intr(|| poll(&mut poll_fds, Some(&limit)))? == 0 {
        return Err(io::Error::new(io::ErrorKind::TimedOut, "it does not report that it watches"));
    }
    // The guard writes the line at once.
    let mut line = String::new();
    BufReader::new(File::from(pipe)).read_line(&mut line)?;
    Ok(line.trim().to_owned())
}
