//! Loads and attaches the BPF programs.

use std::collections::BTreeMap;

use aya::maps::{MapData, StackTraceMap};
use linerate_host::bpf::{BpfError, BpfPrograms, ProgramAttachment};

use super::WHAT;

static OBJECT: &[u8] =
    aya::include_bytes_aligned!(concat!(env!("CARGO_MANIFEST_DIR"), "/../bpf/contention.bpf.o"));

const SINCE: &str = "came with Linux 5.19";

// The begin comes first: an end without a begin does not count.
const PROGRAMS: [ProgramAttachment; 2] = [
    ProgramAttachment::new("begins", "contention_begin").since(SINCE),
    ProgramAttachment::new("ends", "contention_end").since(SINCE),
];

#[derive(Debug)]
pub(super) struct ContentionProgram {
    programs: BpfPrograms,
}

#[derive(Debug, Default)]
pub(super) struct ContentionCounts {
    pub(super) places: Vec<WaitPlace>,
    /// Addresses of the stacks in `places`, innermost first.
    pub(super) stacks: BTreeMap<u32, Vec<u64>>,
    pub(super) missed: u64,
}

/// `struct place` and `struct waited` of bpf/contention.bpf.c.
#[derive(Debug, Clone, Copy)]
pub(super) struct WaitPlace {
    // `None` if the kernel had no room.
    pub(super) stack: Option<u32>,
    pub(super) flags: u32,
    pub(super) cpu: u32,
    pub(super) waits: u64,
    pub(super) waited_ns: u64,
    pub(super) longest_ns: u64,
}

impl ContentionProgram {
    pub(super) fn start() -> Result<Self, BpfError> {
        let mut programs = BpfPrograms::load(WHAT, OBJECT, || {}, |_| {}, &PROGRAMS)?;
        programs.attach(&PROGRAMS)?;
        Ok(Self { programs })
    }

    pub(super) fn read(&self) -> Result<ContentionCounts, BpfError> {
        let places = self.programs.entries::<[u32; 4], [u64; 3]>("places")?;
        let places: Vec<WaitPlace> = places.into_iter().map(WaitPlace::from_entry).collect();
        let mut stacks = BTreeMap::new();
        for stack in places.iter().filter_map(|place| place.stack) {
            if let std::collections::btree_map::Entry::Vacant(entry) = stacks.entry(stack) {
                entry.insert(self.stack(stack)?);
            }
        }
        Ok(ContentionCounts { places, stacks, missed: self.missed()? })
    }

    fn stack(&self, id: u32) -> Result<Vec<u64>, BpfError> {
        let map: StackTraceMap<&MapData> = self.programs.map("stacks")?;
        let trace = map.get(&id, 0).map_err(|error| BpfError::new(WHAT, error))?;
        Ok(trace.frames().iter().map(|frame| frame.ip).collect())
    }

    // Losses of full tables, and runs that the kernel skipped.
    fn missed(&self) -> Result<u64, BpfError> {
        let counts: Vec<u64> = self.programs.per_cpu_values("missed")?;
        Ok(counts.iter().sum::<u64>() + self.programs.skipped_runs()?)
    }
}

impl WaitPlace {
    fn from_entry(([stack, flags, cpu, _], [waits, waited_ns, longest_ns]): ([u32; 4], [u64; 3])) -> Self {
        // Negative without a stack.
        let stack = Some(stack).filter(|stack| !stack.cast_signed().is_negative());
        Self { stack, flags, cpu, waits, waited_ns, longest_ns }
    }
}
