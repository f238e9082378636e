//! Playing a recording.

use std::path::Path;
use std::time::Duration;

use linerate_host::live::{Snapshot, SnapshotHistory, SnapshotRecording};

use crate::top::state::{SnapshotFeed, TopAction, TopState};

/// The playback speeds.
const SPEEDS: [f64; 8] = [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0];
const USUAL: usize = 2;

/// The longest wait for a snapshot of a recording, at normal speed.
const LONGEST: Duration = Duration::from_secs(5);

/// Position and speed in a recording.
pub(super) struct ReplayPosition<'a> {
    recording: &'a SnapshotRecording,
    at: usize,
    speed: usize,
    usual: Duration,
}

impl<'a> ReplayPosition<'a> {
    pub(super) fn new(recording: &'a SnapshotRecording, default_interval: Duration) -> Self {
        Self { recording, at: 0, speed: USUAL, usual: default_interval }
    }

    /// Shows the snapshot at the position.
    pub(super) fn show(&self, state: &mut TopState, file: &Path) {
        // After a step back, the curves must not contain later snapshots.
        state.history = SnapshotHistory::default();
        let first = self.at.saturating_sub(120);
        for snapshot in self.recording.snapshots().get(first..self.at).into_iter().flatten() {
            state.history.add(snapshot);
        }
        if let Some(snapshot) = self.snapshot() {
            state.take(snapshot.clone());
        }
        state.source = SnapshotFeed::Replay {
            at: self.at,
            of: self.recording.snapshots().len(),
            speed: self.speed(),
            file: file.to_owned(),
        };
    }

    /// The time until the next snapshot; `None` at the end.
    pub(super) fn next(&self) -> Option<Duration> {
        let snapshots = self.recording.snapshots();
        let (current, next) = (snapshots.get(self.at)?, snapshots.get(self.at + 1)?);
        let recorded_interval = next
            .unix_seconds
            .zip(current.unix_seconds)
            .map(|(next_seconds, current_seconds)| next_seconds - current_seconds);
        let time = recorded_interval
            .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
            .filter(|time| !time.is_zero())
            .unwrap_or(self.usual);
        Some(time.min(LONGEST).div_f64(self.speed()))
    }

    /// Changes the position or the speed.
    pub(super) fn apply_action(&mut self, action: TopAction) {
        let last = self.recording.snapshots().len() - 1;
        match action {
            TopAction::Step(offset) => self.at = self.at.saturating_add_signed(offset).min(last),
            TopAction::Faster => self.speed = (self.speed + 1).min(SPEEDS.len() - 1),
            TopAction::Slower => self.speed = self.speed.saturating_sub(1),
            TopAction::Quit | TopAction::Drops | TopAction::Flame | TopAction::Headroom => {}
        }
    }

    fn snapshot(&self) -> Option<&Snapshot> {
        self.recording.snapshots().get(self.at)
    }

    fn speed(&self) -> f64 {
        SPEEDS.get(self.speed).copied().unwrap_or(1.0)
    }
}
