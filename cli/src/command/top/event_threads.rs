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

/// Reads a host at intervals until the returned sender is dropped.
#[must_use]
pub(super) fn watch_host(
    open: impl FnOnce() -> LiveHost + Send + 'static,
    mut record: Option<RecordFile>,
    interval: Duration,
    events: Sender<SessionEvent>,
) -> Sender<()> {
    let (stop, stop_signal) = channel();
    thread::spawn(move || {
        // Reports a panic, because the receiver of snapshots would wait forever otherwise.
        let watcher_end = WatcherEnd(events.clone());
        let watch_result = send_snapshots(&mut open(), record.as_mut(), interval, &stop_signal, &events);
        if let Err(error) = watch_result {
            // The session may have ended already.
            let _ = events.send(SessionEvent::Failed(error));
        }
        drop(watcher_end);
    });
    stop
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

fn send_snapshots(
    live_host: &mut LiveHost,
    mut record: Option<&mut RecordFile>,
    interval: Duration,
    stop_signal: &Receiver<()>,
    events: &Sender<SessionEvent>,
) -> anyhow::Result<()> {
    // The second snapshot is the first with rates, so it comes early.
    let mut timeout = interval.min(Duration::from_millis(500));
    loop {
        let begin = Instant::now();
        let snapshot = live_host.refresh();
        if let Some(record) = &mut record {
            record.write(&snapshot)?;
        }
        if events.send(SessionEvent::Snapshot(Box::new(snapshot))).is_err() {
            return Ok(());
        }
        match stop_signal.recv_timeout(timeout.saturating_sub(begin.elapsed())) {
            Err(RecvTimeoutError::Timeout) => timeout = interval,
            _ => return Ok(()),
        }
    }
}

// Sends keys and size changes of the screen. The thread is never joined, because a read from a
// terminal cannot be cancelled.
pub(super) fn send_keys(events: Sender<SessionEvent>) {
    thread::spawn(move || {
        loop {
            let session_event = match event::read() {
                Ok(Event::Key(key)) if key.kind != KeyEventKind::Release => SessionEvent::Key(key),
                Ok(Event::Resize(..)) => SessionEvent::Resized,
                Ok(_) => continue,
                Err(error) => SessionEvent::Failed(Error::new(error).context("cannot read the terminal")),
            };
            let is_end = matches!(session_event, SessionEvent::Failed(_));
            if events.send(session_event).is_err() || is_end {
                return;
            }
        }
    });
}

/// Reports a signal to the session.
pub(super) fn send_stop_signal(interrupt: InterruptFlag, events: Sender<SessionEvent>) {
    thread::spawn(move || {
        while !interrupt.is_raised() {
            if let Err(error) = interrupt.wait(None) {
                let _ = events.send(SessionEvent::Failed(error));
                return;
            }
        }
        let _ = events.send(SessionEvent::Stop);
    });
}
