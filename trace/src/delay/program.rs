//! Loads the BPF programs and reads the recorded events.

use std::time::{Duration, Instant};

use aya::maps::{Array, MapData, PerCpuArray, PerCpuValues};
use aya::util::nr_cpus;
use linerate_host::bpf::{self, BpfError, BpfPrograms, ProgramAttachment, ProgramRuns};
use rustix::time::ClockId;

use super::WHAT;
use super::event::{EVENT_WORDS, RecordedWindow, TraceEvent};
use crate::TraceError;
use crate::call::{CallOverhead, EMPTY_PROGRAM};
use crate::error::SINCE_6_3;
use crate::window;

static OBJECT: &[u8] =
    aya::include_bytes_aligned!(concat!(env!("CARGO_MANIFEST_DIR"), "/../bpf/delay.bpf.o"));

/// `CHUNK_EVENTS` in bpf/delay.bpf.c.
pub(super) const CHUNK_EVENTS: u64 = 1024;
const CHUNK_WORDS: usize = 1024 * EVENT_WORDS;
/// Interval at which the free room is checked.
const PATIENCE: Duration = Duration::from_millis(10);
pub(super) const EVENT_BYTES: u64 = 32;

const PROGRAMS: [ProgramAttachment; 13] = [
    ProgramAttachment::new("queued", "sk_data_ready").since(SINCE_6_3),
    ProgramAttachment::new("reads", "sock_recv_length").since(SINCE_6_3),
    ProgramAttachment::new("received", "netif_receive_skb"),
    ProgramAttachment::new("reply_queued", "net_dev_queue"),
    ProgramAttachment::new("starts_transmit", "net_dev_start_xmit"),
    ProgramAttachment::new("irq_begins", "irq_handler_entry"),
    ProgramAttachment::new("irq_ends", "irq_handler_exit"),
    ProgramAttachment::new("softirq_raised", "softirq_raise"),
    ProgramAttachment::new("softirq_begins", "softirq_entry"),
    ProgramAttachment::new("softirq_ends", "softirq_exit"),
    ProgramAttachment::new("poll_ends", "napi_poll"),
    ProgramAttachment::new("switches", "sched_switch"),
    ProgramAttachment::new("wakes", "sched_waking"),
];

/// Loaded programs, attached while windows are open.
#[derive(Debug)]
pub(super) struct DelayTracer {
    programs: BpfPrograms,
    pub(super) events_per_cpu: u64,
    pub(super) overhead: CallOverhead,
}

impl DelayTracer {
    /// `events_per_cpu` is rounded up to full chunks.
    pub(super) fn load(port: u16, events_per_cpu: u64) -> Result<Self, TraceError> {
        let network = bpf::network_namespace().map_err(|source| TraceError::Kernel { what: WHAT, source })?;
        let chunks = events_per_cpu.div_ceil(CHUNK_EVENTS).max(1);
        let events_per_cpu = chunks * CHUNK_EVENTS;
        let entries = u32::try_from(chunks * possible_cpus()?).unwrap_or(u32::MAX);
        let port = port.to_be();
        let mut programs = BpfPrograms::load(
            WHAT,
            OBJECT,
            || {},
            |loader| {
                loader
                    .override_global("network", &network, true)
                    .override_global("port", &port, true)
                    .override_global("events_per_cpu", &events_per_cpu, true)
                    .map_max_entries("chunks", entries);
            },
            &[&PROGRAMS[..], &EMPTY_PROGRAM].concat(),
        )?;
        let overhead = CallOverhead::measure(&mut programs)?;
        Ok(Self { programs, events_per_cpu, overhead })
    }

    pub(super) fn attach(&mut self) -> Result<(), BpfError> {
        self.programs.attach(&PROGRAMS)
    }

    pub(super) fn detach(&mut self) -> Result<(), BpfError> {
        self.programs.detach(&PROGRAMS)
    }

    /// Records for a time, or until a CPU's room is nearly used up, while the programs are attached.
    pub(super) fn record(&mut self, duration: Duration) -> Result<RecordedWindow, BpfError> {
        self.empty()?;
        let begin = window::clock_ns(ClockId::Monotonic);
        let deadline = begin + u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX / 2);
        self.set_recording(deadline)?;
        let limit = self.events_per_cpu / 10 * 9;
        let start = Instant::now();
        while start.elapsed() < duration {
            std::thread::sleep(duration.saturating_sub(start.elapsed()).min(PATIENCE));
            if self.programs.per_cpu_values::<u64>("positions")?.iter().any(|written| *written > limit) {
                break;
            }
        }
        self.set_recording(0)?;
        let end = window::clock_ns(ClockId::Monotonic).min(deadline);
        // Until programs that saw an open window have written their event.
        std::thread::sleep(Duration::from_micros(200));
        self.read(begin, end)
    }

    // Runs and time while the kernel timed them.
    pub(super) fn runs(&self) -> Result<ProgramRuns, BpfError> {
        self.programs.runs(&PROGRAMS)
    }

    fn empty(&mut self) -> Result<(), BpfError> {
        let mut table: PerCpuArray<&mut MapData, u64> = self.programs.map_mut("positions")?;
        let zeros = vec![0_u64; usize::try_from(possible_cpus()?).unwrap_or(1)];
        let zeros = PerCpuValues::try_from(zeros).map_err(|error| BpfError::new(WHAT, error))?;
        table.set(0, zeros, 0).map_err(|error| BpfError::new(WHAT, error))
    }

    /// Opens a window until this time (CLOCK_MONOTONIC, ns), or closes it with 0.
    fn set_recording(&mut self, end: u64) -> Result<(), BpfError> {
        let mut table: Array<&mut MapData, u64> = self.programs.map_mut("recording")?;
        table.set(0, end, 0).map_err(|error| BpfError::new(WHAT, error))
    }

    fn read(&self, begin: u64, end: u64) -> Result<RecordedWindow, BpfError> {
        let chunks: Array<&MapData, [u64; CHUNK_WORDS]> = self.programs.map("chunks")?;
        let written = self.programs.per_cpu_values::<u64>("positions")?;
        let mut window = RecordedWindow { begin, end, ..RecordedWindow::default() };
        for (cpu, written) in (0_u32..).zip(written) {
            let kept_events = written.min(self.events_per_cpu);
            window.lost += written - kept_events;
            window.most_on_a_cpu = window.most_on_a_cpu.max(written);
            let first = u64::from(cpu) * (self.events_per_cpu / CHUNK_EVENTS);
            for chunk in 0..kept_events.div_ceil(CHUNK_EVENTS) {
                let key = u32::try_from(first + chunk).unwrap_or(u32::MAX);
                let words = chunks.get(&key, 0).map_err(|error| BpfError::new(WHAT, error))?;
                let chunk_events =
                    usize::try_from((kept_events - chunk * CHUNK_EVENTS).min(CHUNK_EVENTS)).unwrap_or(0);
                let (events, _) = words.as_chunks::<EVENT_WORDS>();
                let events =
                    events.iter().take(chunk_events).filter_map(|words| TraceEvent::decode(cpu, *words));
                // A slot that was reserved but not written yet contains an event of an earlier
                // window.
                window.events.extend(events.filter(|event| event.at >= begin));
            }
            // Later events of other CPUs cannot be understood without the events of this CPU.
            if let (true, Some(last)) = (written > kept_events, window.events.last()) {
                window.end = window.end.min(last.at);
            }
        }
        let end = window.end;
        window.events.retain(|event| event.at <= end);
        // Each CPU's events are a sorted run already.
        window.events.sort_by_key(|event| event.at);
        Ok(window)
    }
}

pub(super) fn possible_cpus() -> Result<u64, BpfError> {
    let cpus = nr_cpus().map_err(|(_, error)| BpfError::new(WHAT, error))?;
    Ok(u64::try_from(cpus).unwrap_or(1))
}
