//! A short window as a timeline in the Trace Event Format, which ui.perfetto.dev and
//! chrome://tracing open: slices per CPU, datagrams in sockets, and an arrow per request.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::time::Duration;

use linerate_host::Host;
use serde::Serialize;
use serde_json::{Value, json};

use super::WHAT;
use super::cause::softirq_name;
use super::event::{EventKind, RecordedWindow};
use super::program::{DelayTracer, EVENT_BYTES, possible_cpus};
use super::record::DelayRecord;
use super::requests::{RequestCounts, match_requests};
use crate::TraceError;

// Length of the window in which the rate of events is measured.
const PROBE: Duration = Duration::from_millis(20);
const PROBE_EVENTS: u64 = 16 * 1024;
// Room for a burst of events, and the part of the available memory that a trace may use.
const BURST: f64 = 2.0;
const MEMORY_PART: f64 = 0.25;
// Bytes of an event in this process and in the document.
const DECODED_BYTES: f64 = 320.0;
const FEWEST_EVENTS: f64 = 4096.0;

const CPUS: u32 = 1;
const SOCKETS: u32 = 2;

/// All events of a short window.
#[derive(Debug)]
pub struct DelayTrace {
    port: u16,
    window: RecordedWindow,
    records: Vec<DelayRecord>,
}

impl DelayTrace {
    /// Records a window of this length.
    ///
    /// # Errors
    /// [`TraceError::TooLarge`] if the events of such a window do not fit into a quarter of the
    /// available memory at the present rate, and the errors of [`super::DelaySession::start`].
    pub fn record(host: &Host, port: u16, duration: Duration) -> Result<Self, TraceError> {
        let probe = {
            let mut tracer = DelayTracer::load(port, PROBE_EVENTS)?;
            tracer.attach()?;
            tracer.record(PROBE)?
        };
        let length_ratio = duration.as_secs_f64() / PROBE.as_secs_f64();
        let events_per_cpu = probe.most_on_a_cpu as f64 * BURST * length_ratio + FEWEST_EVENTS;
        let total_events = (probe.events.len() as f64 + probe.lost as f64) * BURST * length_ratio;
        let needed_bytes =
            events_per_cpu * EVENT_BYTES as f64 * possible_cpus()? as f64 + total_events * DECODED_BYTES;
        let available = available_bytes(host)? * MEMORY_PART;
        if needed_bytes > available {
            let longest = duration.mul_f64(available / needed_bytes);
            return Err(TraceError::TooLarge { what: WHAT, asked: duration, needed: needed_bytes, longest });
        }
        let mut tracer = DelayTracer::load(port, events_per_cpu as u64)?;
        tracer.attach()?;
        let window = tracer.record(duration)?;
        drop(tracer);
        Ok(Self::from_window(port, window))
    }

    pub(super) fn from_window(port: u16, window: RecordedWindow) -> Self {
        let records = match_requests(&window, &mut RequestCounts::default());
        Self { port, window, records }
    }

    pub fn requests(&self) -> usize {
        self.records.len()
    }

    pub fn events(&self) -> usize {
        self.window.events.len()
    }

    /// Shorter than the requested time if the tables were full.
    pub fn recorded(&self) -> Duration {
        Duration::from_nanos(self.window.end.saturating_sub(self.window.begin))
    }

    /// Events for which the tables had no room.
    pub fn lost_events(&self) -> u64 {
        self.window.lost
    }

    /// Writes the JSON document.
    ///
    /// # Errors
    /// Errors of the writer.
    pub fn write(&self, output: &mut dyn Write) -> io::Result<()> {
        let mut writer = ChromeWriter { to: output, begin: self.window.begin, written: 0 };
        writer.to.write_all(b"{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n")?;
        let names = self.name_tracks(&mut writer)?;
        self.write_slices(&mut writer, &names)?;
        self.write_requests(&mut writer)?;
        writer.to.write_all(b"\n]}\n")
    }

    fn name_tracks(&self, writer: &mut ChromeWriter<'_>) -> io::Result<BTreeMap<u32, String>> {
        let mut names = BTreeMap::new();
        let mut cpus = BTreeSet::new();
        for event in &self.window.events {
            cpus.insert(event.cpu);
            if let EventKind::Switch { next, name, .. } = event.kind {
                names.entry(next).or_insert_with(|| name.to_string());
            }
        }
        writer.name("process_name", CPUS, 0, "CPUs")?;
        writer.name("process_name", SOCKETS, 0, &format!("Sockets of port {}", self.port))?;
        for cpu in cpus {
            for (layer, name) in CpuLayer::ALL {
                writer.name("thread_name", CPUS, layer.track(cpu), &format!("CPU {cpu} {name}"))?;
            }
        }
        for (number, _) in self.sockets() {
            writer.name("thread_name", SOCKETS, number, &format!("socket {number}"))?;
        }
        Ok(names)
    }

    fn sockets(&self) -> Vec<(u32, u64)> {
        let sockets: BTreeSet<u64> = self.records.iter().map(|record| record.socket).collect();
        (1..).zip(sockets).collect()
    }

    fn write_slices(&self, writer: &mut ChromeWriter<'_>, names: &BTreeMap<u32, String>) -> io::Result<()> {
        let mut open_slices: BTreeMap<u32, (u64, Cow<'_, str>)> = BTreeMap::new();
        for event in &self.window.events {
            let (layer, begin_name) = match event.kind {
                EventKind::IrqBegin => (CpuLayer::Irq, Some(Cow::Borrowed("interrupt"))),
                EventKind::IrqEnd => (CpuLayer::Irq, None),
                EventKind::SoftirqBegin { vector } => {
                    (CpuLayer::Softirq, Some(Cow::Borrowed(softirq_name(vector))))
                }
                EventKind::SoftirqEnd { .. } => (CpuLayer::Softirq, None),
                EventKind::Switch { next: 0, .. } => (CpuLayer::Task, None),
                EventKind::Switch { next, .. } => {
                    let name = names.get(&next).map_or("?", String::as_str);
                    (CpuLayer::Task, Some(Cow::Owned(format!("{name} ({next})"))))
                }
                _ => continue,
            };
            let track = layer.track(event.cpu);
            if let Some((at, name)) = open_slices.remove(&track) {
                writer.slice(CPUS, track, &name, at, event.at)?;
            }
            if let Some(name) = begin_name {
                open_slices.insert(track, (event.at, name));
            }
        }
        for (track, (at, name)) in open_slices {
            writer.slice(CPUS, track, &name, at, self.window.end)?;
        }
        Ok(())
    }

    /// Datagrams that wait in sockets, and the arrows.
    fn write_requests(&self, writer: &mut ChromeWriter<'_>) -> io::Result<()> {
        let numbers: BTreeMap<u64, u32> =
            self.sockets().into_iter().map(|(number, socket)| (socket, number)).collect();
        for (id, record) in (1_u64..).zip(&self.records) {
            let socket = numbers.get(&record.socket).copied().unwrap_or(0);
            let name = format!("waits in socket {socket}");
            let stages = json!({
                "end_to_end_us": micros(record.end_to_end_ns()),
                "points_us": record.points.map(|at| micros(at.saturating_sub(self.window.begin))),
            });
            for (phase, at, args) in [("b", record.points[3], Some(stages)), ("e", record.points[5], None)] {
                let event = ChromeEvent { id: Some(id), args, ..writer.event(phase, SOCKETS, socket, at) };
                writer.write(&ChromeEvent { name: &name, cat: "socket", ..event })?;
            }
            // An arrow binds to the slice that encloses it on its track.
            let arrows = [
                ("s", CpuLayer::Softirq.track(record.receive_cpu), record.points[2], None),
                ("t", CpuLayer::Task.track(record.read_cpu), record.points[5], None),
                ("f", CpuLayer::Task.track(record.transmit_cpu), record.points[6], Some("e")),
            ];
            for (phase, track, at, bp) in arrows {
                let event = ChromeEvent { id: Some(id), bp, ..writer.event(phase, CPUS, track, at) };
                writer.write(&ChromeEvent { name: "request", cat: "request", ..event })?;
            }
        }
        Ok(())
    }
}

#[derive(Debug, Clone, Copy)]
enum CpuLayer {
    Irq,
    Softirq,
    Task,
}

impl CpuLayer {
    const ALL: [(Self, &'static str); 3] =
        [(Self::Irq, "interrupts"), (Self::Softirq, "softirqs"), (Self::Task, "threads")];

    fn track(self, cpu: u32) -> u32 {
        cpu * 3 + self as u32 + 1
    }
}

/// An event of the format; times are in us.
#[derive(Debug, Serialize)]
struct ChromeEvent<'e> {
    name: &'e str,
    cat: &'e str,
    ph: &'e str,
    ts: f64,
    pid: u32,
    tid: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    dur: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bp: Option<&'e str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    args: Option<Value>,
}

struct ChromeWriter<'w> {
    to: &'w mut dyn Write,
    begin: u64,
    written: u64,
}

impl ChromeWriter<'_> {
    fn event<'e>(&self, ph: &'e str, pid: u32, tid: u32, at: u64) -> ChromeEvent<'e> {
        let ts = micros(at.saturating_sub(self.begin));
        ChromeEvent { name: "", cat: "cpu", ph, ts, pid, tid, dur: None, id: None, bp: None, args: None }
    }

    fn slice(&mut self, pid: u32, tid: u32, name: &str, from: u64, to: u64) -> io::Result<()> {
        let dur = Some(micros(to.saturating_sub(from)));
        let event = ChromeEvent { dur, ..self.event("X", pid, tid, from) };
        self.write(&ChromeEvent { name, ..event })
    }

    fn name(&mut self, kind: &str, pid: u32, tid: u32, name: &str) -> io::Result<()> {
        let event = self.event("M", pid, tid, self.begin);
        self.write(&ChromeEvent { name: kind, args: Some(json!({ "name": name })), ..event })
    }

    fn write(&mut self, event: &ChromeEvent<'_>) -> io::Result<()> {
        if self.written > 0 {
            self.to.write_all(b",\n")?;
        }
        self.written += 1;
        serde_json::to_writer(&mut *self.to, event).map_err(io::Error::from)
    }
}

fn micros(ns: u64) -> f64 {
    ns as f64 / 1e3
}

fn available_bytes(host: &Host) -> Result<f64, TraceError> {
    let text = host.read("/proc/meminfo")?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    let missing_error = || io::Error::other("/proc/meminfo: it has no MemAvailable");
    kilobytes
        .map(|kilobytes| kilobytes * 1024.0)
        .ok_or_else(|| TraceError::Kernel { what: WHAT, source: missing_error() })
}
