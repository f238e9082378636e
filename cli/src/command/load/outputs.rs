//! Outputs of a run: live lines, a stream of events, and the result.

use std::fs::OpenOptions;
use std::io::{self, IsTerminal, Write};

use anyhow::Result;
use linerate_load::{GeneratorDescription, SlotInterval};
use serde::Serialize;

use super::arguments::OutputArgs;
use crate::command::results::ResultTargets;
use crate::envelope::{CommandResult, Envelope};
use crate::output::{self, OutputTarget};
use crate::view::load::live::LiveIntervals;

/// The schema of the lines of `--json-stream`.
const STREAM_SCHEMA: &str = "linerate.load-stream/2";

/// Live lines, a stream, and the result as text, JSON and HTML.
pub(crate) struct LoadOutputs {
    pub(crate) live: LiveIntervals,
    stream: Option<EventStream>,
    results: ResultTargets,
}

/// One line of a stream.
#[derive(Serialize)]
struct StreamEvent<'a, T: Serialize> {
    event: &'a str,
    #[serde(flatten)]
    body: &'a T,
}

/// The first line of a stream.
#[derive(Serialize)]
struct StreamStart {
    schema: &'static str,
    version: &'static str,
    argv: Vec<String>,
}

/// The first line of a stream.
#[derive(Serialize)]
struct LoadStreamStart<'a> {
    #[serde(flatten)]
    start: StreamStart,
    generator: &'a GeneratorDescription,
}

/// A file of events, one line each, written when they happen.
pub(crate) struct EventStream {
    file: Box<dyn Write + Send>,
    name: String,
    // The first failure. It is reported at the end, because a run does not end when its log fails.
    failed: Option<anyhow::Error>,
}

impl LoadOutputs {
    // Opens all outputs before anything is sent, so that a wrong path fails at once.
    pub(crate) fn open(output: &OutputArgs) -> Result<Self> {
        let mut results = output.results.targets()?;
        let stream = output.json_stream.as_deref();
        output::check_distinct(&[&output.results.named()[..], &[("--json-stream", stream)]].concat())?;
        results.text &= stream != Some("-");
        let stream = stream.map(EventStream::open).transpose()?;
        let is_live = !output.quiet && (output.live || io::stderr().is_terminal());
        Ok(Self { live: LiveIntervals::new(is_live), stream, results })
    }

    /// Reports that the generator is ready.
    pub(crate) fn write_start(&mut self, generator: &GeneratorDescription) -> Result<()> {
        let start = StreamStart::new(STREAM_SCHEMA);
        let first_line = LoadStreamStart { start, generator };
        self.stream.as_mut().map_or(Ok(()), |stream| stream.event("start", &first_line))
    }

    /// Reports the end of an interval.
    pub(crate) fn interval(&mut self, interval: &SlotInterval) {
        self.live.interval(interval);
        self.event("interval", interval);
    }

    /// Adds a line to the stream.
    pub(crate) fn event(&mut self, event: &str, body: &impl Serialize) {
        if let Some(stream) = &mut self.stream {
            stream.line(&StreamEvent { event, body });
        }
    }

    /// Writes the result.
    pub(crate) fn write_result<T: CommandResult>(&mut self, envelope: &Envelope<T>) -> Result<()> {
        self.event("end", envelope);
        self.results.write(envelope)?;
        output::if_read(self.stream.as_mut().map_or(Ok(()), EventStream::check))
    }
}

impl StreamStart {
    fn new(schema: &'static str) -> Self {
        Self { schema, version: env!("CARGO_PKG_VERSION"), argv: output::argv() }
    }
}

impl EventStream {
    pub(crate) fn open(name: &str) -> Result<Self> {
        let file: Box<dyn Write + Send> = match OutputTarget::from(name) {
            OutputTarget::Stdout => Box::new(io::stdout()),
            OutputTarget::File(path) => {
                let mut options = OpenOptions::new();
                Box::new(output::open_in_place(&path, options.write(true).create(true).truncate(true))?)
            }
        };
        Ok(Self { file, name: name.to_owned(), failed: None })
    }

    /// Writes the first line.
    pub(crate) fn start(&mut self, schema: &'static str) -> Result<()> {
        self.event("start", &StreamStart::new(schema))
    }

    /// Writes one line.
    pub(crate) fn event(&mut self, event: &str, body: &impl Serialize) -> Result<()> {
        self.line(&StreamEvent { event, body });
        self.check()
    }

    fn check(&mut self) -> Result<()> {
        self.failed.take().map_or(Ok(()), Err)
    }

    fn line(&mut self, line: &impl Serialize) {
        if self.failed.is_some() {
            return;
        }
        let write_result = serde_json::to_vec(line).map_err(io::Error::from).and_then(|mut text| {
            text.push(b'\n');
            self.file.write_all(&text).and_then(|()| self.file.flush())
        });
        self.failed = write_result
            .err()
            .map(|error| anyhow::Error::new(error).context(format!("cannot write {}", self.name)));
    }
}
