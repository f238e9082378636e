//! The generators of a climb, and more of them where they turn out to be the limit.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use linerate_load::{Generator, GeneratorDescription, GeneratorError};

use crate::ladder::bench::BenchError;
use crate::ladder::remote::{self, RaiseError, RaiseOptions, RemoteError, SenderCounts};
use crate::ladder::report::LadderWarning;

/// Makes so many senders.
pub type Start = Box<dyn FnMut(SenderCounts) -> Result<Box<dyn Generator>, RemoteError> + Send>;

/// Generators that can be made more.
pub struct RemoteSenders {
    start: Start,
    steps: Vec<SenderCounts>,
    /// Which of the steps sends now.
    at: usize,
    generator: Option<Box<dyn Generator>>,
    described: Option<GeneratorDescription>,
    /// Names of the hosts, in the order in which they are taken.
    hosts: Vec<String>,
    warning: Option<LadderWarning>,
    /// What the last ones had answered, a second.
    answered_per_second: f64,
    cancel: Arc<AtomicBool>,
}

impl RemoteSenders {
    /// Senders on `hosts` to be made by `start`, as few as the first of `steps` and as many as the last.
    #[must_use]
    pub fn new(start: Start, hosts: Vec<String>, steps: Vec<SenderCounts>, cancel: Arc<AtomicBool>) -> Self {
        Self {
            start,
            steps,
            at: 0,
            generator: None,
            described: None,
            hosts,
            warning: None,
            answered_per_second: 0.0,
            cancel,
        }
    }

    /// What sends now.
    ///
    /// # Errors
    /// Where it was lost.
    pub(super) fn generator(&mut self) -> Result<&mut dyn Generator, BenchError> {
        match &mut self.generator {
            Some(generator) => Ok(&mut **generator),
            None => Err(BenchError::GeneratorLost("none is running".to_owned())),
        }
    }

    /// What the last ones were made of; none before there were any.
    pub(super) fn described(&self) -> Option<&GeneratorDescription> {
        self.described.as_ref()
    }

    /// The hosts that send.
    pub(super) fn hosts(&self) -> &[String] {
        let count = self.steps.get(self.at).map_or(0, |senders| senders.hosts);
        self.hosts.get(..count).unwrap_or(&self.hosts)
    }

    /// Whether anything was answered when they were last made.
    pub(super) fn is_answered(&self) -> bool {
        self.answered_per_second > 0.0
    }

    /// What a reader has to know, where there were too few to be had.
    pub(super) fn warning(&self) -> Option<&LadderWarning> {
        self.warning.as_ref()
    }

    /// Whether there are more to be had.
    pub(super) fn can_raise(&self) -> bool {
        self.generator.is_none() || self.at + 1 < self.steps.len()
    }

    /// Adds senders until what is answered no longer rises.
    ///
    /// # Errors
    /// Where they cannot be started or fail, or it is told to stop.
    pub(super) fn raise(&mut self) -> Result<(), BenchError> {
        // Their ports are wanted by the next.
        self.generator = None;
        let steps = self.steps.get(self.at..).unwrap_or_default();
        let options = RaiseOptions { cancel: Some(&self.cancel), ..RaiseOptions::default() };
        let raised = remote::raise(steps, &options, &mut self.start).map_err(lost)?;
        self.warning = raised.warning();
        self.answered_per_second = raised.steps.last().map_or(0.0, |step| step.answered_per_second);
        self.at += raised.steps.len().saturating_sub(1);
        self.described = Some(raised.generator.describe());
        self.generator = Some(raised.generator);
        Ok(())
    }
}

fn lost(error: RaiseError) -> BenchError {
    match error {
        RaiseError::Slot(GeneratorError::Cancelled) => BenchError::Cancelled,
        error => BenchError::GeneratorLost(error.to_string()),
    }
}
