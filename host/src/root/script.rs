//! A fake host for tests and rehearsals: writes change the results of later reads.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::recording::HostRecording;

#[derive(Debug, Default)]
pub(super) struct HostScript {
    recording: Mutex<HostRecording>,
    answers: BTreeMap<String, ScriptedAnswer>,
}

/// How a path responds to writes, if it does not simply accept them.
#[derive(Debug)]
pub(super) enum ScriptedAnswer {
    /// With this error number.
    Refuse(i32),
    /// Accepts the write without effect.
    Ignore,
    /// Accepts the write after this many reads; the reads left and the value written, if any.
    Delay(u32, Mutex<Option<(u32, String)>>),
}

impl HostScript {
    pub(super) fn new(recording: HostRecording) -> Self {
        Self { recording: Mutex::new(recording), ..Self::default() }
    }

    pub(super) fn set_response(&mut self, path: impl Into<String>, answer: ScriptedAnswer) {
        self.answers.insert(path.into(), answer);
    }

    pub(super) fn recording(&self) -> MutexGuard<'_, HostRecording> {
        self.recording.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn read(&self, path: &str) -> io::Result<Vec<u8>> {
        if let Some(ScriptedAnswer::Delay(_, delayed_write)) = self.answers.get(path) {
            let mut delayed_write = delayed_write.lock().unwrap_or_else(PoisonError::into_inner);
            *delayed_write = match delayed_write.take() {
                Some((0, content)) => {
                    self.recording().insert_file(path, content);
                    None
                }
                pending => pending.map(|(reads, content)| (reads - 1, content)),
            };
        }
        self.recording().read(path)
    }

    /// Writes an existing file.
    pub(super) fn write(&self, path: &str, content: &str) -> io::Result<()> {
        self.recording().read(path)?;
        self.store(path, content)
    }

    /// Writes a file, existing or not.
    pub(super) fn store(&self, path: &str, content: &str) -> io::Result<()> {
        match self.answers.get(path) {
            Some(ScriptedAnswer::Refuse(errno)) => return Err(io::Error::from_raw_os_error(*errno)),
            Some(ScriptedAnswer::Ignore) => return Ok(()),
            Some(ScriptedAnswer::Delay(reads, delayed_write)) => {
                let mut delayed_write = delayed_write.lock().unwrap_or_else(PoisonError::into_inner);
                *delayed_write = Some((*reads, content.to_owned()));
                return Ok(());
            }
            None => {}
        }
        self.recording().insert_file(path, content);
        Ok(())
    }
}
