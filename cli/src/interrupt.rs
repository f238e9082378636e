//! SIGINT and SIGTERM: the first ends the work cleanly, a second SIGINT ends it at once.

use std::fs;
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// A flag that the first signal raises.
#[derive(Debug)]
pub(crate) struct InterruptFlag {
    flag: Arc<AtomicBool>,
    /// Receives one byte per signal.
    woken: UnixStream,
}

impl InterruptFlag {
    /// Takes over the signals.
    pub(crate) fn install() -> Result<Self> {
        // `nohup` and `trap '' HUP` have the signal ignored, and a handler would end that.
        match ignores_hangup(&fs::read_to_string("/proc/self/status").unwrap_or_default()) {
            true => Self::for_signals(&[SIGINT, SIGTERM]),
            false => Self::for_signals(&[SIGINT, SIGTERM, SIGHUP]),
        }
    }

    // For commands that change a host: the terminal may disappear with a link that is reset, and a
    // change that has begun should be completed.
    pub(crate) fn install_ignoring_hangup() -> Result<Self> {
        signal_hook::flag::register(SIGHUP, Arc::default()).context("cannot take over signals")?;
        Self::for_signals(&[SIGINT, SIGTERM])
    }

    fn for_signals(signals: &[i32]) -> Result<Self> {
        let [flag, is_repeated] = [false; 2].map(|value| Arc::new(AtomicBool::new(value)));
        let (receiver, sender) = UnixStream::pair().context("cannot make a socket pair")?;
        for &signal in signals {
            let sender = sender.try_clone().context("cannot copy a socket")?;
            // The flag first: the kernel delivers signals from the first registration on. The actions run
            // in this order, so a second signal ends the process.
            signal_hook::flag::register(signal, Arc::clone(&flag))
                .and_then(|_| {
                    signal_hook::flag::register_conditional_default(signal, Arc::clone(&is_repeated))
                })
                .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&is_repeated)))
                .and_then(|_| signal_hook::low_level::pipe::register(signal, sender))
                .context("cannot take over signals")?;
        }
        Ok(Self { flag, woken: receiver })
    }

    /// Whether a signal has arrived.
    pub(crate) fn is_raised(&self) -> bool {
        self.flag.load(Ordering::Relaxed)
    }

    /// The flag, for libraries that check it.
    pub(crate) fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.flag)
    }

    /// Sleeps until a signal arrives, or for `limit`; not at all after a signal.
    pub(crate) fn wait(&self, limit: Option<Duration>) -> Result<()> {
        // An earlier wait has read the byte.
        if self.is_raised() {
            return Ok(());
        }
        // A timeout of zero is an error.
        let limit = limit.map(|time| time.max(Duration::from_millis(1)));
        self.woken.set_read_timeout(limit).context("cannot set a timeout")?;
        // A byte, a timeout and an interruption are all reasons to check the flag.
        let _ = (&self.woken).read(&mut [0]);
        Ok(())
    }

    /// Sleeps until `input` is readable or ended, a signal arrives, or for `limit`. Returns
    /// whether the input was the reason.
    pub(crate) fn wait_for(&self, input: impl AsFd, limit: Option<Duration>) -> Result<bool> {
        if self.is_raised() {
            return Ok(false);
        }
        let limit = limit.map(Timespec::try_from).transpose().context("too long a wait")?;
        let events = PollFlags::IN;
        let mut fds = [PollFd::new(&input, events), PollFd::new(&self.woken, events)];
        match poll(&mut fds, limit.as_ref()) {
            // A signal without a handler here also interrupts the call.
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error).context("cannot wait for input"),
        }
        let [input, _] = fds;
        Ok(!input.revents().is_empty() && !self.is_raised())
    }
}

/// Whether this process ignores SIGHUP, by its `/proc/PID/status`.
fn ignores_hangup(status: &str) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & 1 << (SIGHUP - 1) != 0)
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use signal_hook::consts::SIGUSR1;

    use super::*;

    #[test]
    fn all_waits_after_a_signal_end_at_once() {
        let interrupt = InterruptFlag::for_signals(&[SIGUSR1]).expect("installed");
        signal_hook::low_level::raise(SIGUSR1).expect("raised");
        let long = Duration::from_secs(20);
        let begin = Instant::now();
        for _ in 0..2 {
            interrupt.wait(Some(long)).expect("waited");
        }
        let (quiet, _writer) = UnixStream::pair().expect("a pair");
        assert!(!interrupt.wait_for(&quiet, Some(long)).expect("waited"));
        assert!(begin.elapsed() < long);
    }

    #[test]
    fn an_ignored_hangup_is_read_from_the_status() {
        for (status, expected) in [
            ("Name:\tx\nSigIgn:\t0000000000001001\n", true),
            ("SigIgn:\t0000000000001000\n", false),
            ("SigBlk:\t0000000000000001\n", false),
            ("", false),
        ] {
            assert_eq!(ignores_hangup(status), expected, "{status}");
        }
    }
}
