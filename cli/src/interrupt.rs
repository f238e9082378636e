//! SIGINT and SIGTERM: the first asks the work to end cleanly, a second SIGINT ends it at once.

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// A flag that is raised when the user asks to stop.
#[derive(Debug)]
pub(crate) struct Interrupt {
    flag: Arc<AtomicBool>,
    /// Gets a byte with each signal.
    woken: UnixStream,
}

impl Interrupt {
    /// Takes over the signals.
    pub(crate) fn install() -> Result<Self> {
        let flag = Arc::new(AtomicBool::new(false));
        let (woken, wake) = UnixStream::pair().context("cannot make a socket pair")?;
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            let wake = wake.try_clone().context("cannot copy a socket")?;
            // Registered first, so that it acts only on a signal after the flag was raised.
            signal_hook::flag::register_conditional_default(signal, Arc::clone(&flag))
                .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&flag)))
                .and_then(|_| signal_hook::low_level::pipe::register(signal, wake))
                .context("cannot take over signals")?;
        }
        Ok(Self { flag, woken })
    }

    /// Whether a signal came.
    pub(crate) fn raised(&self) -> bool {
        self.flag.load(Ordering::Relaxed)
    }

    /// The flag itself, for libraries that watch it.
    pub(crate) fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.flag)
    }

    /// Sleeps until a signal comes, or for `at_most`.
    pub(crate) fn wait(&self, at_most: Option<Duration>) -> Result<()> {
        // A timeout of zero would mean none.
        let at_most = at_most.map(|time| time.max(Duration::from_millis(1)));
        self.woken.set_read_timeout(at_most).context("cannot set a timeout")?;
        // A byte, a timeout and an interruption are all reasons to look at the flag.
        let _ = (&self.woken).read(&mut [0]);
        Ok(())
    }
}
