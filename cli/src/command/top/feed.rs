//! The threads that send events to a session: the host's snapshots, the keyboard, signals.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Error;
use linerate_host::live::LiveHost;
use ratatui::crossterm::event::{self, Event, KeyEventKind};

use super::event::SessionEvent;
use super::record::RecordFile;
use crate::interrupt::InterruptFlag;

/// Reads a host at intervals until it is dropped.
pub(super) struct HostWatcher {
    stop: Option<Sender<()>>,
}

impl HostWatcher {
    pub(super) fn start(
        open: impl FnOnce() -> anyhow::Result<LiveHost> + Send + 'static,
        mut record: Option<RecordFile>,
        interval: Duration,
        tell: Sender<SessionEvent>,
    ) -> Self {
        let (stop, stopped) = channel();
        thread::spawn(move || {
            // Reports a panic, because the receiver of snapshots would wait forever otherwise.
            let ended = WatcherEnd(tell.clone());
            let looked =
                open().and_then(|mut live| look(&mut live, record.as_mut(), interval, &stopped, &tell));
            if let Err(error) = looked {
                // The session may have ended already.
                let _ = tell.send(SessionEvent::Failed(error));
            }
            drop(ended);
        });
        Self { stop: Some(stop) }
    }
}

impl Drop for HostWatcher {
    fn drop(&mut self) {
        drop(self.stop.take());
    }
}

/// Reports that a panic has ended the watcher.
struct WatcherEnd(Sender<SessionEvent>);

impl Drop for WatcherEnd {
    fn drop(&mut self) {
        if thread::panicking() {
            let _ =
                self.0.send(SessionEvent::Failed(anyhow::anyhow!("the thread that looks at the host ended")));
        }
    }
}

fn look(
    live: &mut LiveHost,
    mut record: Option<&mut RecordFile>,
    interval: Duration,
    stopped: &Receiver<()>,
    tell: &Sender<SessionEvent>,
) -> anyhow::Result<()> {
    // The second snapshot is the first with rates, so it comes early.
    let mut next = interval.min(Duration::from_millis(500));
    loop {
        let begun = Instant::now();
        let snapshot = live.refresh();
        if let Some(record) = &mut record {
            record.write(&snapshot)?;
        }
        if tell.send(SessionEvent::Snapshot(Box::new(snapshot))).is_err() {
            return Ok(());
        }
        match stopped.recv_timeout(next.saturating_sub(begun.elapsed())) {
            Err(RecvTimeoutError::Timeout) => next = interval,
            _ => return Ok(()),
        }
    }
}

// Sends keys and size changes of the screen. The thread is never joined, because a read from a
// terminal cannot be cancelled.
pub(super) fn listen(tell: Sender<SessionEvent>) {
    thread::spawn(move || {
        loop {
            let heard = match event::read() {
                Ok(Event::Key(key)) if key.kind != KeyEventKind::Release => SessionEvent::Key(key),
                Ok(Event::Resize(..)) => SessionEvent::Resized,
                Ok(_) => continue,
                Err(error) => SessionEvent::Failed(Error::new(error).context("cannot read the terminal")),
            };
            let is_end = matches!(heard, SessionEvent::Failed(_));
            if tell.send(heard).is_err() || is_end {
                return;
            }
        }
    });
}

/// Reports a signal to the session.
pub(super) fn heed(interrupt: InterruptFlag, tell: Sender<SessionEvent>) {
    thread::spawn(move || {
        while !interrupt.is_raised() {
            if let Err(error) = interrupt.wait(None) {
                let _ = tell.send(SessionEvent::Failed(error));
                return;
            }
        }
        let _ = tell.send(SessionEvent::Stop);
    });
}
