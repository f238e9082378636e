//! A fake host, for tests and rehearsals: writes change what later reads answer.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::recording::Recording;

/// What is read of it, and how it answers writes.
#[derive(Debug, Default)]
pub(super) struct Script {
    recording: Mutex<Recording>,
    answers: BTreeMap<String, Answer>,
}

/// How a path answers writes, where it does not just take them.
#[derive(Debug, Clone, Copy)]
pub(super) enum Answer {
    /// With this error number.
    Refuse(i32),
    /// As if it took them.
    Ignore,
}

impl Script {
    pub(super) fn new(recording: Recording) -> Self {
        Self { recording: Mutex::new(recording), answers: BTreeMap::new() }
    }

    pub(super) fn answering(&mut self, path: impl Into<String>, answer: Answer) {
        self.answers.insert(path.into(), answer);
    }

    pub(super) fn recording(&self) -> MutexGuard<'_, Recording> {
        self.recording.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes a file that is there.
    pub(super) fn write(&self, path: &str, content: &str) -> io::Result<()> {
        self.recording().read(path)?;
        self.answer(path, content)
    }

    /// Writes a file, be it there or not.
    pub(super) fn answer(&self, path: &str, content: &str) -> io::Result<()> {
        match self.answers.get(path) {
            Some(Answer::Refuse(errno)) => return Err(io::Error::from_raw_os_error(*errno)),
            Some(Answer::Ignore) => return Ok(()),
            None => {}
        }
        self.recording().insert_file(path, content);
        Ok(())
    }
}
