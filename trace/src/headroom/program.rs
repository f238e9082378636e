//! Loads the BPF programs and reads their counters.

use std::collections::BTreeMap;
use std::time::Instant;

use linerate_host::{Known, bpf};

use super::WHAT;
use super::batch::{BatchClass, CLASSES};
use crate::TraceError;
use crate::call::CallOverhead;
use crate::programs::{ProgramAttachment, ProgramRuns, RunCounting, TracePrograms};

static OBJECT: &[u8] =
    aya::include_bytes_aligned!(concat!(env!("CARGO_MANIFEST_DIR"), "/../bpf/headroom.bpf.o"));

// Words of `struct cpu` and `struct thread` of bpf/headroom.bpf.c, and of the parts before their classes.
const CPU_HEAD: usize = 9;
const CPU_WORDS: usize = CPU_HEAD + 2 * CLASSES * CLASS_WORDS + 13;
const THREAD_HEAD: usize = 8;
const THREAD_WORDS: usize = THREAD_HEAD + CLASSES * CLASS_WORDS;
const CLASS_WORDS: usize = 4;

const PROGRAMS: [ProgramAttachment; 5] = [
    attachment("reads", "sock_recv_length"),
    attachment("arrives", "sk_data_ready"),
    attachment("softirq_ends", "softirq_exit"),
    attachment("softirq_begins", "softirq_entry"),
    attachment("turn_changes", "sched_switch"),
];
const NOTHING: [ProgramAttachment; 1] = [attachment("nothing", "task_rename")];

const fn attachment(program: &'static str, tracepoint: &'static str) -> ProgramAttachment {
    ProgramAttachment { program, tracepoint, since: "came with Linux 6.3", optional: false }
}

/// Counts until it is dropped.
#[derive(Debug)]
pub(super) struct HeadroomProgram {
    programs: TracePrograms,
    /// Call and return of a program, ns.
    way_ns: f64,
}

/// Counters since the start.
#[derive(Debug, Clone)]
pub(super) struct HeadroomCounters {
    pub(super) at: Instant,
    /// In order of number.
    pub(super) cpus: Vec<CpuCounters>,
    /// By id.
    pub(super) threads: BTreeMap<u32, ThreadCounters>,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct CpuCounters {
    pub(super) softirq_ns: u64,
    pub(super) service_ns: u64,
    pub(super) other_ns: u64,
    pub(super) yielding_ns: u64,
    pub(super) arrivals: u64,
    pub(super) reads: u64,
    /// Datagrams whose memory is in `truesize`.
    pub(super) sized: u64,
    pub(super) truesize: u64,
    /// The smallest receive buffer; zero if unknown.
    pub(super) buffer: u64,
    pub(super) softirq: Vec<BatchClass>,
    pub(super) service: Vec<BatchClass>,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct ThreadCounters {
    pub(super) pid: u32,
    pub(super) comm: String,
    pub(super) ns: u64,
    pub(super) reads: u64,
    pub(super) batches: Vec<BatchClass>,
}

impl HeadroomProgram {
    pub(super) fn start(port: u16) -> Result<Self, TraceError> {
        let source = |source| TraceError::Kernel { what: WHAT, source };
        let network = bpf::network_namespace().map_err(source)?;
        let mut programs = TracePrograms::load(
            WHAT,
            OBJECT,
            |loader| {
                loader.override_global("network", &network, true).override_global("port", &port, true);
            },
            &[&PROGRAMS[..], &NOTHING].concat(),
        )?;
        let way_ns = programs.way_ns(WHAT, &NOTHING)?;
        programs.attach(WHAT, &PROGRAMS)?;
        Ok(Self { programs, way_ns })
    }

    pub(super) fn read(&self) -> Result<HeadroomCounters, TraceError> {
        let cpus = self.programs.per_cpu_values::<[u64; CPU_WORDS]>(WHAT, "cpus")?;
        let threads = self.programs.entries::<u32, [u64; THREAD_WORDS]>(WHAT, "threads")?;
        Ok(HeadroomCounters {
            at: Instant::now(),
            cpus: cpus.iter().map(CpuCounters::from_words).collect(),
            threads: threads.iter().map(|(tid, words)| (*tid, ThreadCounters::from_words(words))).collect(),
        })
    }

    /// Time of a run, ns, measured during `wait`, in which runs take longer; unknown if the kernel
    /// refuses to time programs.
    pub(super) fn run_ns(&mut self, wait: &dyn Fn()) -> Result<Known<f64>, TraceError> {
        let counting = match RunCounting::start(WHAT) {
            Ok(counting) => counting,
            Err(why) => return Ok(Known::unknown(why.to_string())),
        };
        let before = self.programs.runs(WHAT, &PROGRAMS)?;
        wait();
        let after = self.programs.runs(WHAT, &PROGRAMS)?;
        let clock_ns = self.programs.clock_ns(WHAT, &NOTHING)?.unwrap_or(0.0);
        drop(counting);
        let program_runs =
            ProgramRuns { runs: after.runs - before.runs, time: after.time.saturating_sub(before.time) };
        Ok(Known::Value(CallOverhead { way_ns: self.way_ns, clock_ns }.run_ns(program_runs)))
    }
}

impl CpuCounters {
    fn from_words(words: &[u64; CPU_WORDS]) -> Self {
        let [softirq_ns, service_ns, other_ns, yielding_ns, arrivals, reads, sized, truesize, buffer] =
            *words.first_chunk().unwrap_or(&[0; CPU_HEAD]);
        let classes = |index: usize| classes(&words[CPU_HEAD + index * CLASSES * CLASS_WORDS..]);
        let (softirq, service) = (classes(0), classes(1));
        Self {
            softirq_ns,
            service_ns,
            other_ns,
            yielding_ns,
            arrivals,
            reads,
            sized,
            truesize,
            buffer,
            softirq,
            service,
        }
    }
}

impl ThreadCounters {
    fn from_words(words: &[u64; THREAD_WORDS]) -> Self {
        let (pid, _) = bpf::halves(words[0]);
        let name: Vec<u8> = words[1..3].iter().flat_map(|word| word.to_ne_bytes()).collect();
        let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
        Self {
            pid,
            comm: String::from_utf8_lossy(name).into_owned(),
            ns: words[3],
            reads: words[4],
            batches: classes(&words[THREAD_HEAD..]),
        }
    }
}

fn classes(words: &[u64]) -> Vec<BatchClass> {
    let chunks = words.chunks_exact(CLASS_WORDS).take(CLASSES);
    chunks
        .map(|words| BatchClass { batches: words[0], packets: words[1], ns: words[2], runs: words[3] })
        .collect()
}
