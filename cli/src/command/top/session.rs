//! A session on a terminal: what is heard is drawn, until somebody ends it.

use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::Result;
use linerate_host::live::Tape;

use super::Top;
use super::feed::{Heard, Looking, heed, listen};
use super::jobs::{Done, Jobs};
use super::record::Record;
use super::replay::Replay;
use super::state::{Action, Feed, Over, State};
use super::terminal::Screen;
use crate::interrupt::Interrupt;

/// What goes on, with the end of it.
type Next = Result<std::ops::ControlFlow<()>>;
const ON: std::ops::ControlFlow<()> = std::ops::ControlFlow::Continue(());
const END: std::ops::ControlFlow<()> = std::ops::ControlFlow::Break(());

/// A host as it runs, or a capture.
pub(super) fn live(top: &Top, record: Option<Record>, interrupt: Interrupt) -> Result<()> {
    let (tell, heard) = channel();
    let source = match top.root {
        Some(_) => Feed::Capture,
        None => Feed::Live { seconds: top.interval.as_secs_f64() },
    };
    let mut state = State { source, ..State::default() };
    let mut jobs = Jobs::new(top.port, top.interfaces.clone(), tell.clone());
    // What cannot be opened is told before the screen is taken over.
    let live = if top.root.is_some() { Some(top.open()?) } else { None };
    let mut screen = Screen::take()?;
    listen(tell.clone());
    heed(interrupt, tell.clone());
    let _looking = looking(top, live, record, tell);
    screen.draw(&state)?;
    loop {
        let first = heard.recv()?;
        if live_heard(&mut state, &mut jobs, first)?.is_break() {
            return Ok(());
        }
        // Several at once, as of a key that is held, are drawn once.
        while let Ok(more) = heard.try_recv() {
            if live_heard(&mut state, &mut jobs, more)?.is_break() {
                return Ok(());
            }
        }
        screen.draw(&state)?;
    }
}

fn looking(
    top: &Top,
    live: Option<linerate_host::live::Live>,
    record: Option<Record>,
    tell: Sender<Heard>,
) -> Looking {
    let scope = linerate_host::Scope { interfaces: top.interfaces.clone(), port: top.port, pid: top.pid };
    let open = move || {
        Ok(live
            .unwrap_or_else(|| linerate_host::live::Live::open(linerate_host::live::Source::here(), scope)))
    };
    Looking::start(open, record, top.interval, tell)
}

fn live_heard(state: &mut State, jobs: &mut Jobs, heard: Heard) -> Next {
    match heard {
        Heard::Picture(picture) => state.take(*picture),
        Heard::Resized => {}
        Heard::Stop => return Ok(END),
        Heard::Failed(error) => return Err(error),
        Heard::Done(done) => told(state, done),
        Heard::Key(key) => match state.press(key) {
            Some(Action::Quit) => return Ok(END),
            Some(action @ (Action::Drops | Action::Flame)) => state.busy = jobs.begin(action, state),
            _ => {}
        },
    }
    Ok(ON)
}

fn told(state: &mut State, done: Done) {
    state.busy = None;
    match done {
        Done::Drops(lines) => {
            state.scrolled = 0;
            state.over = Some(Over::Text("drops", lines));
        }
        Done::Flame(file) => state.message = Some(format!("flame graph written to {file}")),
        Done::Failed(what) => state.message = Some(what),
    }
}

/// A recording.
pub(super) fn replay(tape: &Tape, file: &Path, usual: Duration, interrupt: Interrupt) -> Result<()> {
    let (tell, heard) = channel();
    let mut state = State::default();
    let mut replay = Replay::new(tape, usual);
    replay.show(&mut state, file);
    let mut screen = Screen::take()?;
    listen(tell.clone());
    heed(interrupt, tell);
    let mut shown = Instant::now();
    loop {
        screen.draw(&state)?;
        let next = replay.next().filter(|_| !state.paused).map(|time| time.saturating_sub(shown.elapsed()));
        let Some(one) = receive(&heard, next)? else {
            replay.act(Action::Step(1));
            replay.show(&mut state, file);
            shown = Instant::now();
            continue;
        };
        match one {
            Heard::Key(key) => match state.press(key) {
                Some(Action::Quit) => return Ok(()),
                Some(action) => {
                    replay.act(action);
                    replay.show(&mut state, file);
                    if matches!(action, Action::Step(_)) {
                        state.paused = true;
                        shown = Instant::now();
                    }
                }
                None => {}
            },
            Heard::Stop => return Ok(()),
            Heard::Failed(error) => return Err(error),
            Heard::Resized | Heard::Picture(_) | Heard::Done(_) => {}
        }
    }
}

/// What is heard; none when the time is over.
fn receive(heard: &Receiver<Heard>, at_most: Option<Duration>) -> Result<Option<Heard>> {
    match at_most {
        None => Ok(Some(heard.recv()?)),
        Some(time) => match heard.recv_timeout(time) {
            Ok(heard) => Ok(Some(heard)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(error) => Err(error.into()),
        },
    }
}
