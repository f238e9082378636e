//! Programs at BTF tracepoints: loading, attaching and reading.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::time::Duration;

use aya::maps::{HashMap, Map, MapData, MapError, PerCpuArray};
use aya::programs::tp_btf::BtfTracePointLinkId;
use aya::programs::{
    BtfTracePoint, Program, ProgramError, RawTracePoint, RawTracePointRunOptions, TestRun as _,
};
use aya::{BtfError, Ebpf, EbpfLoader, Pod};

use super::{BpfError, BpfFailure, kernel_btf};

#[derive(Debug, Clone, Copy)]
pub struct ProgramAttachment {
    pub program: &'static str,
    /// As in its `TRACE_EVENT`, such as `napi_poll`.
    pub tracepoint: &'static str,
    /// For the error message: `came with Linux 5.19`.
    pub since: &'static str,
    /// Whether the other programs are useful without this program.
    pub optional: bool,
}

impl ProgramAttachment {
    /// A program at a tracepoint of every kernel that can attach it.
    pub const fn new(program: &'static str, tracepoint: &'static str) -> Self {
        let since = "came with Linux 5.5 and CONFIG_DEBUG_INFO_BTF";
        Self { program, tracepoint, since, optional: false }
    }

    #[must_use]
    pub const fn since(self, since: &'static str) -> Self {
        Self { since, ..self }
    }

    #[must_use]
    pub const fn optional(self) -> Self {
        Self { optional: true, ..self }
    }
}

/// Loaded programs, some attached. They end when this is dropped, or with the process.
#[derive(Debug)]
pub struct BpfPrograms {
    /// For errors.
    pub operation: &'static str,
    /// Optional programs whose tracepoint this kernel lacks.
    pub lacking: Vec<ProgramAttachment>,
    object: Ebpf,
    attached: BTreeMap<&'static str, BtfTracePointLinkId>,
}

impl BpfPrograms {
    /// Loads an object after `prepare` has set its globals and sizes, without attaching its
    /// programs. Calls `pause` between steps, which take up to tens of ms of CPU time.
    pub fn load<'p>(
        operation: &'static str,
        object: &[u8],
        pause: fn(),
        prepare: impl FnOnce(&mut EbpfLoader<'p>),
        programs: &[ProgramAttachment],
    ) -> Result<Self, BpfError> {
        let btf =
            kernel_btf().map_err(|error| BpfError { operation, failure: BpfFailure::KernelTypes(error) })?;
        pause();
        let mut loader = EbpfLoader::new();
        pause();
        prepare(&mut loader);
        let object = loader.load(object).map_err(|error| BpfError::new(operation, error))?;
        let mut loaded = Self { operation, lacking: Vec::new(), object, attached: BTreeMap::new() };
        for attachment in programs {
            pause();
            match loaded.program(attachment)?.load(attachment.tracepoint, &btf) {
                Ok(()) => {}
                Err(ProgramError::Btf(BtfError::UnknownBtfTypeName { .. })) if attachment.optional => {
                    loaded.lacking.push(*attachment);
                }
                Err(ProgramError::Btf(BtfError::UnknownBtfTypeName { .. })) => {
                    return Err(BpfError { operation, failure: BpfFailure::NoTracepoint(*attachment) });
                }
                Err(error) => return Err(loaded.error(error)),
            }
        }
        Ok(loaded)
    }

    /// Attaches programs in order, except attached programs and programs without tracepoint.
    pub fn attach(&mut self, programs: &[ProgramAttachment]) -> Result<(), BpfError> {
        for attachment in programs {
            let is_lacking = self.lacking.iter().any(|lacking| lacking.program == attachment.program);
            if is_lacking || self.attached.contains_key(attachment.program) {
                continue;
            }
            let link = self.program(attachment)?.attach();
            self.attached.insert(attachment.program, link.map_err(|error| self.error(error))?);
        }
        Ok(())
    }

    /// Detaches programs in reverse order. They stay loaded.
    pub fn detach(&mut self, programs: &[ProgramAttachment]) -> Result<(), BpfError> {
        for attachment in programs.iter().rev() {
            let Some(link) = self.attached.remove(attachment.program) else { continue };
            let detached = self.program(attachment)?.detach(link);
            detached.map_err(|error| self.error(error))?;
        }
        Ok(())
    }

    fn program(&mut self, attachment: &ProgramAttachment) -> Result<&mut BtfTracePoint, BpfError> {
        let operation = self.operation;
        let program = self.object.program_mut(attachment.program);
        let program = program.ok_or_else(|| BpfError::missing(operation, attachment.program))?;
        program.try_into().map_err(|error: ProgramError| BpfError::new(operation, error))
    }

    fn error(&self, error: impl Error + 'static) -> BpfError {
        BpfError::new(self.operation, error)
    }

    pub fn map<'a, M>(&'a self, name: &str) -> Result<M, BpfError>
    where
        M: TryFrom<&'a Map, Error = MapError>,
    {
        let map = self.object.map(name).ok_or_else(|| BpfError::missing(self.operation, name))?;
        map.try_into().map_err(|error| self.error(error))
    }

    pub fn map_mut<'a, M>(&'a mut self, name: &str) -> Result<M, BpfError>
    where
        M: TryFrom<&'a mut Map, Error = MapError>,
    {
        let operation = self.operation;
        let map = self.object.map_mut(name).ok_or_else(|| BpfError::missing(operation, name))?;
        map.try_into().map_err(|error| BpfError::new(operation, error))
    }

    pub fn entries<K: Pod + Ord, V: Pod>(&self, name: &str) -> Result<BTreeMap<K, V>, BpfError> {
        let table: HashMap<&MapData, K, V> = self.map(name)?;
        table.iter().collect::<Result<_, _>>().map_err(|error| self.error(error))
    }

    pub fn remove<K: Pod, V: Pod>(&mut self, name: &str, entries: &BTreeMap<K, V>) -> Result<(), BpfError> {
        let operation = self.operation;
        let mut table: HashMap<&mut MapData, K, V> = self.map_mut(name)?;
        entries.keys().try_for_each(|key| table.remove(key)).map_err(|error| BpfError::new(operation, error))
    }

    /// The only item of a per-CPU array, in order of possible CPUs.
    pub fn per_cpu_values<V: Pod>(&self, name: &str) -> Result<Vec<V>, BpfError> {
        let table: PerCpuArray<&MapData, V> = self.map(name)?;
        let values = table.get(&0, 0).map_err(|error| self.error(error))?;
        Ok(values.iter().copied().collect())
    }

    /// Program runs that the kernel skipped because the same program was running on that CPU
    /// (`recursion_misses`, Linux 5.12).
    pub fn skipped_runs(&self) -> Result<u64, BpfError> {
        let mut sum = 0;
        for (_, program) in self.object.programs() {
            let Program::BtfTracePoint(program) = program else { continue };
            // An optional program without its tracepoint is not loaded.
            let Ok(file) = program.fd() else { continue };
            let info = program_info(file.as_fd()).map_err(|error| self.error(error))?;
            sum += info_number(&info, "recursion_misses:");
        }
        Ok(sum)
    }

    /// Loads a program without attaching it, for [`BpfPrograms::run`].
    pub fn load_to_run(&mut self, name: &str) -> Result<(), BpfError> {
        let operation = self.operation;
        let error = |error: ProgramError| BpfError::new(operation, error);
        let program = self.object.program_mut(name).ok_or_else(|| BpfError::missing(operation, name))?;
        let program: &mut RawTracePoint = program.try_into().map_err(error)?;
        program.load().map_err(error)
    }

    /// Runs a program once on a CPU with an argument; returns its result, `None` if the CPU is
    /// offline (`BPF_F_TEST_RUN_ON_CPU`, Linux 5.10). On another CPU it runs in an interrupt.
    pub fn run(&self, name: &str, cpu: u32, argument: u64) -> Result<Option<u32>, BpfError> {
        let program = self.object.program(name);
        let program = program.ok_or_else(|| BpfError::missing(self.operation, name))?;
        let program: &RawTracePoint = program.try_into().map_err(|error: ProgramError| self.error(error))?;
        let mut options = RawTracePointRunOptions::new();
        options.args[0] = argument;
        options.cpu = Some(cpu);
        match program.test_run(options) {
            Ok(result) => Ok(Some(result.return_value)),
            Err(ProgramError::SyscallError(error)) if error.io_error.raw_os_error() == Some(libc::ENXIO) => {
                Ok(None)
            }
            Err(error) => Err(self.error(error)),
        }
    }

    /// Counters of these programs that another thread can read.
    pub fn run_counters(&self, programs: &[ProgramAttachment]) -> Result<RunCounters, BpfError> {
        let mut files = Vec::new();
        for attachment in programs {
            // Not loaded without its tracepoint.
            let Some(Program::BtfTracePoint(program)) = self.object.program(attachment.program) else {
                continue;
            };
            let Ok(file) = program.fd() else { continue };
            let file = file.as_fd().try_clone_to_owned();
            files.push(file.map_err(|error| self.error(error))?);
        }
        Ok(RunCounters { files })
    }

    /// Runs and time of these programs while the kernel timed them (`BPF_ENABLE_STATS`, Linux 5.8).
    pub fn runs(&self, programs: &[ProgramAttachment]) -> Result<ProgramRuns, BpfError> {
        self.run_counters(programs)?.read().map_err(|error| self.error(error))
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProgramRuns {
    pub runs: u64,
    pub time: Duration,
}

#[derive(Debug)]
pub struct RunCounters {
    files: Vec<OwnedFd>,
}

impl RunCounters {
    /// As [`BpfPrograms::runs`].
    pub fn read(&self) -> io::Result<ProgramRuns> {
        let mut sum = ProgramRuns::default();
        for file in &self.files {
            let info = program_info(file.as_fd())?;
            sum.runs += info_number(&info, "run_cnt:");
            sum.time += Duration::from_nanos(info_number(&info, "run_time_ns:"));
        }
        Ok(sum)
    }
}

fn program_info(file: BorrowedFd<'_>) -> io::Result<String> {
    fs::read_to_string(format!("/proc/self/fdinfo/{}", file.as_raw_fd()))
}

/// Zero if this kernel does not report it.
fn info_number(info: &str, name: &str) -> u64 {
    let number = info.lines().find_map(|line| line.strip_prefix(name));
    number.and_then(|number| number.trim().parse().ok()).unwrap_or(0)
}
