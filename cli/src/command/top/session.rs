//! A session on a terminal: draws each event until the user quits.

use std::io::Stdout;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use linerate_host::live::{LiveHost, SnapshotRecording, SnapshotSource};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;

use super::TopArgs;
use super::event::{JobResult, SessionEvent};
use super::event_threads::{send_keys, send_stop_signal, watch_host};
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
pub(super) fn run_live(
    arguments: &TopArgs,
    record: Option<RecordFile>,
    interrupt: InterruptFlag,
) -> Result<()> {
    let (sender, events) = channel();
    let source = match arguments.root {
        Some(_) => SnapshotFeed::Capture,
        None => SnapshotFeed::Live { seconds: arguments.interval.as_secs_f64() },
    };
    let mut state = TopState { source, ..TopState::default() };
    let mut jobs =
        JobRunner::new(arguments.subject.port, arguments.subject.interfaces.clone(), sender.clone());
    // Open everything before the screen is taken over, because its errors go to the terminal.
    let live_host = if arguments.root.is_some() { Some(arguments.open()?) } else { None };
    let mut screen = TerminalScreen::take()?;
    send_keys(sender.clone());
    send_stop_signal(interrupt, sender.clone());
    let scope = arguments.subject.scope();
    let open = move || live_host.unwrap_or_else(|| LiveHost::open(SnapshotSource::live(), scope));
    let _watcher = watch_host(open, record, arguments.interval, sender);
    screen.draw(&state)?;
    loop {
        let first_event = events.recv()?;
        // Several waiting events, for example of a key that is held down, are drawn once.
        for event in std::iter::once(first_event).chain(events.try_iter()) {
            if handle_live_event(&mut state, &mut jobs, event)?.is_break() {
                return Ok(());
            }
        }
        screen.draw(&state)?;
    }
}

fn handle_live_event(state: &mut TopState, jobs: &mut JobRunner, session_event: SessionEvent) -> Next {
    match session_event {
        SessionEvent::Snapshot(snapshot) => state.take(*snapshot),
        SessionEvent::Resized => {}
        SessionEvent::Stop => return Ok(END),
        SessionEvent::Failed(error) => return Err(error),
        SessionEvent::Done(job_result) => show_job_result(state, job_result),
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

fn show_job_result(state: &mut TopState, job_result: JobResult) {
    state.busy = None;
    match job_result {
        JobResult::Text(title, lines) => {
            state.scrolled.set(0);
            state.over = Some(TopOverlay::Text(title, lines));
        }
        JobResult::Flame(file) => state.message = Some(format!("flame graph written to {file}")),
        JobResult::Failed(error_text) => state.message = Some(error_text),
    }
}

/// A session on a recording.
pub(super) fn run_replay(
    recording: &SnapshotRecording,
    file: &Path,
    default_interval: Duration,
    interrupt: InterruptFlag,
) -> Result<()> {
    let (sender, events) = channel();
    let mut state = TopState::default();
    let mut position = ReplayPosition::new(recording, default_interval);
    position.show(&mut state, file);
    let mut screen = TerminalScreen::take()?;
    send_keys(sender.clone());
    send_stop_signal(interrupt, sender);
    let mut shown_at = Instant::now();
    loop {
        screen.draw(&state)?;
        let timeout =
            position.next().filter(|_| !state.paused).map(|time| time.saturating_sub(shown_at.elapsed()));
        let Some(session_event) = receive(&events, timeout)? else {
            position.apply_action(TopAction::Step(1));
            position.show(&mut state, file);
            shown_at = Instant::now();
            continue;
        };
        match session_event {
            SessionEvent::Key(key) => match state.press(key) {
                Some(TopAction::Quit) => return Ok(()),
                Some(action) => {
                    position.apply_action(action);
                    position.show(&mut state, file);
                    if matches!(action, TopAction::Step(_)) {
                        state.paused = true;
                        shown_at = Instant::now();
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
fn receive(events: &Receiver<SessionEvent>, timeout: Option<Duration>) -> Result<Option<SessionEvent>> {
    match timeout {
        None => Ok(Some(events.recv()?)),
        Some(time) => match events.recv_timeout(time) {
            Ok(event) => Ok(Some(event)),
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
