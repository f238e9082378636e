//! A session on a terminal: draws each event until the user quits.

use std::io::Stdout;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use linerate_host::live::SnapshotRecording;
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;

use super::TopArgs;
use super::event::{JobResult, SessionEvent};
use super::feed::{HostWatcher, heed, listen};
use super::jobs::JobRunner;
use super::record::RecordFile;
use super::replay::ReplayPosition;
use crate::interrupt::InterruptFlag;
use crate::render::style::TextStyle;
use crate::top;
use crate::top::screen::{self, ScreenTheme};
use crate::top::state::{SnapshotFeed, TopAction, TopOverlay, TopState};

type Next = Result<std::ops::ControlFlow<()>>;
const ON: std::ops::ControlFlow<()> = std::ops::ControlFlow::Continue(());
const END: std::ops::ControlFlow<()> = std::ops::ControlFlow::Break(());

/// A session on a live host or a capture.
pub(super) fn live(arguments: &TopArgs, record: Option<RecordFile>, interrupt: InterruptFlag) -> Result<()> {
    let (tell, heard) = channel();
    let source = match arguments.root {
        Some(_) => SnapshotFeed::Capture,
        None => SnapshotFeed::Live { seconds: arguments.interval.as_secs_f64() },
    };
    let mut state = TopState { source, ..TopState::default() };
    let mut jobs = JobRunner::new(arguments.port, arguments.interfaces.clone(), tell.clone());
    // Open everything before the screen is taken over, because its errors go to the terminal.
    let live = if arguments.root.is_some() { Some(arguments.open()?) } else { None };
    let mut screen = TerminalScreen::take()?;
    listen(tell.clone());
    heed(interrupt, tell.clone());
    let _looking = looking(arguments, live, record, tell);
    screen.draw(&state)?;
    loop {
        let first = heard.recv()?;
        if live_heard(&mut state, &mut jobs, first)?.is_break() {
            return Ok(());
        }
        // Several waiting events, for example of a key that is held down, are drawn once.
        while let Ok(more) = heard.try_recv() {
            if live_heard(&mut state, &mut jobs, more)?.is_break() {
                return Ok(());
            }
        }
        screen.draw(&state)?;
    }
}

fn looking(
    arguments: &TopArgs,
    live: Option<linerate_host::live::LiveHost>,
    record: Option<RecordFile>,
    tell: Sender<SessionEvent>,
) -> HostWatcher {
    let scope = linerate_host::Scope {
        interfaces: arguments.interfaces.clone(),
        port: arguments.port,
        pid: arguments.pid,
    };
    let open = move || {
        Ok(live.unwrap_or_else(|| {
            linerate_host::live::LiveHost::open(linerate_host::live::SnapshotSource::here(), scope)
        }))
    };
    HostWatcher::start(open, record, arguments.interval, tell)
}

fn live_heard(state: &mut TopState, jobs: &mut JobRunner, heard: SessionEvent) -> Next {
    match heard {
        SessionEvent::Snapshot(snapshot) => state.take(*snapshot),
        SessionEvent::Resized => {}
        SessionEvent::Stop => return Ok(END),
        SessionEvent::Failed(error) => return Err(error),
        SessionEvent::Done(done) => told(state, done),
        SessionEvent::Key(key) => match state.press(key) {
            Some(TopAction::Quit) => return Ok(END),
            Some(action @ (TopAction::Drops | TopAction::Flame | TopAction::Headroom)) => {
                state.busy = jobs.begin(action, state);
            }
            _ => {}
        },
    }
    Ok(ON)
}

fn told(state: &mut TopState, done: JobResult) {
    state.busy = None;
    match done {
        JobResult::Text(title, lines) => {
            state.scrolled = 0;
            state.over = Some(TopOverlay::Text(title, lines));
        }
        JobResult::Flame(file) => state.message = Some(format!("flame graph written to {file}")),
        JobResult::Failed(what) => state.message = Some(what),
    }
}

/// A session on a recording.
pub(super) fn replay(
    recording: &SnapshotRecording,
    file: &Path,
    usual: Duration,
    interrupt: InterruptFlag,
) -> Result<()> {
    let (tell, heard) = channel();
    let mut state = TopState::default();
    let mut replay = ReplayPosition::new(recording, usual);
    replay.show(&mut state, file);
    let mut screen = TerminalScreen::take()?;
    listen(tell.clone());
    heed(interrupt, tell);
    let mut shown = Instant::now();
    loop {
        screen.draw(&state)?;
        let next = replay.next().filter(|_| !state.paused).map(|time| time.saturating_sub(shown.elapsed()));
        let Some(one) = receive(&heard, next)? else {
            replay.act(TopAction::Step(1));
            replay.show(&mut state, file);
            shown = Instant::now();
            continue;
        };
        match one {
            SessionEvent::Key(key) => match state.press(key) {
                Some(TopAction::Quit) => return Ok(()),
                Some(action) => {
                    replay.act(action);
                    replay.show(&mut state, file);
                    if matches!(action, TopAction::Step(_)) {
                        state.paused = true;
                        shown = Instant::now();
                    }
                }
                None => {}
            },
            SessionEvent::Stop => return Ok(()),
            SessionEvent::Failed(error) => return Err(error),
            SessionEvent::Resized | SessionEvent::Snapshot(_) | SessionEvent::Done(_) => {}
        }
    }
}

// The next event; `None` when the time is over.
fn receive(heard: &Receiver<SessionEvent>, at_most: Option<Duration>) -> Result<Option<SessionEvent>> {
    match at_most {
        None => Ok(Some(heard.recv()?)),
        Some(time) => match heard.recv_timeout(time) {
            Ok(heard) => Ok(Some(heard)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(error) => Err(error.into()),
        },
    }
}

// The whole screen. It is restored on drop; a panic restores it before its message is written.
struct TerminalScreen {
    terminal: Terminal<CrosstermBackend<Stdout>>,
    theme: ScreenTheme,
}

impl TerminalScreen {
    fn take() -> Result<Self> {
        let theme = ScreenTheme { colour: TextStyle::stdout().colour, ascii: top::is_ascii_only() };
        let terminal = ratatui::try_init().context("cannot take over the terminal")?;
        Ok(Self { terminal, theme })
    }

    fn draw(&mut self, state: &TopState) -> Result<()> {
        let theme = self.theme;
        self.terminal
            .draw(|frame| screen::draw(frame, state, theme))
            .map(|_| ())
            .context("cannot draw on the terminal")
    }
}

impl Drop for TerminalScreen {
    fn drop(&mut self) {
        // Without a terminal there is no reader, so a failed write does not matter.
        let _ = ratatui::try_restore();
    }
}
