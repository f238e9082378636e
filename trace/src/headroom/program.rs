//! Loads the BPF programs and reads their counters.

use std::collections::BTreeMap;
use std::time::Instant;

use linerate_host::Known;
use linerate_host::bpf::{self, BpfError, BpfPrograms, ProgramAttachment};

use super::WHAT;
use super::batch::BatchClasses;
use crate::TraceError;
use crate::call::{CallOverhead, EMPTY_PROGRAM, time_runs};
use crate::error::SINCE_6_3;
use crate::sys::{KernelName, kernel_layout};

static OBJECT: &[u8] =
    aya::include_bytes_aligned!(concat!(env!("CARGO_MANIFEST_DIR"), "/../bpf/headroom.bpf.o"));

const PROGRAMS: [ProgramAttachment; 5] = [
    ProgramAttachment::new("reads", "sock_recv_length").since(SINCE_6_3),
    ProgramAttachment::new("arrives", "sk_data_ready").since(SINCE_6_3),
    ProgramAttachment::new("softirq_ends", "softirq_exit").since(SINCE_6_3),
    ProgramAttachment::new("softirq_begins", "softirq_entry").since(SINCE_6_3),
    ProgramAttachment::new("turn_changes", "sched_switch").since(SINCE_6_3),
];

/// Counts until it is dropped.
#[derive(Debug)]
pub(super) struct HeadroomProgram {
    programs: BpfPrograms,
    overhead: CallOverhead,
}

#[derive(Debug, Clone)]
pub(super) struct HeadroomCounters {
    pub(super) at: Instant,
    /// In order of number.
    pub(super) cpus: Vec<CpuCounters>,
    /// By id.
    pub(super) threads: BTreeMap<u32, ThreadCounters>,
}

/// `struct cpu` of bpf/headroom.bpf.c.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
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
    /// Before GRO merged them.
    pub(super) segments: u64,
    /// The last receive buffer; zero if unknown.
    pub(super) buffer: u64,
    pub(super) softirq: BatchClasses,
    pub(super) service: BatchClasses,
    pub(super) _period: [u64; 13],
}

/// `struct thread`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(super) struct ThreadCounters {
    pub(super) pid: u32,
    pub(super) _unused: u32,
    pub(super) comm: KernelName,
    pub(super) reads: u64,
    /// Reads that found no datagram.
    pub(super) empty_reads: u64,
    /// Since its last sleep.
    pub(super) _batch: [u64; 3],
    pub(super) batches: BatchClasses,
}

kernel_layout!(CpuCounters: 3768, ThreadCounters: 1856);

impl HeadroomProgram {
    pub(super) fn start(port: u16) -> Result<Self, TraceError> {
        let source = |source| TraceError::Kernel { what: WHAT, source };
        let network = bpf::network_namespace().map_err(source)?;
        let mut programs = BpfPrograms::load(
            WHAT,
            OBJECT,
            || {},
            |loader| {
                loader.override_global("network", &network, true).override_global("port", &port, true);
            },
            &[&PROGRAMS[..], &EMPTY_PROGRAM].concat(),
        )?;
        let overhead = CallOverhead::measure(&mut programs)?;
        programs.attach(&PROGRAMS)?;
        Ok(Self { programs, overhead })
    }

    pub(super) fn read(&self) -> Result<HeadroomCounters, BpfError> {
        let cpus = self.programs.per_cpu_values("cpus")?;
        let threads = self.programs.entries("threads")?;
        Ok(HeadroomCounters { at: Instant::now(), cpus, threads })
    }

    /// Time of a run, ns, measured during `wait`, in which runs take longer; unknown if the kernel
    /// refuses to time programs.
    pub(super) fn run_ns(&self, wait: &dyn Fn()) -> Result<Known<f64>, BpfError> {
        let counters = self.programs.run_counters(&PROGRAMS)?;
        Ok(Known::from(time_runs(&counters, WHAT, wait)).map(|(runs, _)| self.overhead.run_ns(runs)))
    }
}
