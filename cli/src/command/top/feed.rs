//! The threads that a session hears from: the host, the keyboard, signals.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Error;
use linerate_host::live::{Live, Picture};
use ratatui::crossterm::event::{self, Event, KeyEvent, KeyEventKind};

use super::jobs::Done;
use super::record::Record;
use crate::interrupt::Interrupt;

/// What a session hears.
pub(super) enum Heard {
    Picture(Box<Picture>),
    Key(KeyEvent),
    /// The screen has another size.
    Resized,
    /// A signal asks to end.
    Stop,
    /// The terminal cannot be read any more, the host is not looked at any more, or recording failed.
    Failed(Error),
    Done(Done),
}

/// Looks at a host again and again until it is dropped.
pub(super) struct Looking {
    stop: Option<Sender<()>>,
}

impl Looking {
    pub(super) fn start(
        open: impl FnOnce() -> anyhow::Result<Live> + Send + 'static,
        mut record: Option<Record>,
        interval: Duration,
        tell: Sender<Heard>,
    ) -> Self {
        let (stop, stopped) = channel();
        thread::spawn(move || {
            // Also where it panics: who waits for pictures has to know.
            let ended = Ended(tell.clone());
            let looked =
                open().and_then(|mut live| look(&mut live, record.as_mut(), interval, &stopped, &tell));
            if let Err(error) = looked {
                let _ = tell.send(Heard::Failed(error));
            }
            drop(ended);
        });
        Self { stop: Some(stop) }
    }
}

impl Drop for Looking {
    fn drop(&mut self) {
        drop(self.stop.take());
    }
}

/// Says that nobody looks any more, where a panic ended it.
struct Ended(Sender<Heard>);

impl Drop for Ended {
    fn drop(&mut self) {
        if thread::panicking() {
            let _ = self.0.send(Heard::Failed(anyhow::anyhow!("the thread that looks at the host ended")));
        }
    }
}

fn look(
    live: &mut Live,
    mut record: Option<&mut Record>,
    interval: Duration,
    stopped: &Receiver<()>,
    tell: &Sender<Heard>,
) -> anyhow::Result<()> {
    // The second picture is the first with rates, and nobody likes to wait for it.
    let mut next = interval.min(Duration::from_millis(500));
    loop {
        let begun = Instant::now();
        let picture = live.refresh();
        if let Some(record) = &mut record {
            record.write(&picture)?;
        }
        if tell.send(Heard::Picture(Box::new(picture))).is_err() {
            return Ok(());
        }
        match stopped.recv_timeout(next.saturating_sub(begun.elapsed())) {
            Err(RecvTimeoutError::Timeout) => next = interval,
            _ => return Ok(()),
        }
    }
}

/// Tells of keys and of the screen's size, for as long as the program runs.
pub(super) fn listen(tell: Sender<Heard>) {
    thread::spawn(move || {
        loop {
            let heard = match event::read() {
                Ok(Event::Key(key)) if key.kind != KeyEventKind::Release => Heard::Key(key),
                Ok(Event::Resize(..)) => Heard::Resized,
                Ok(_) => continue,
                Err(error) => Heard::Failed(Error::new(error).context("cannot read the terminal")),
            };
            let is_end = matches!(heard, Heard::Failed(_));
            if tell.send(heard).is_err() || is_end {
                return;
            }
        }
    });
}

/// Tells of a signal.
pub(super) fn heed(interrupt: Interrupt, tell: Sender<Heard>) {
    thread::spawn(move || {
        while !interrupt.raised() {
            if let Err(error) = interrupt.wait(None) {
                let _ = tell.send(Heard::Failed(error));
                return;
            }
        }
        let _ = tell.send(Heard::Stop);
    });
}
