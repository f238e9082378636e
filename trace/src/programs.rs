//! BPF programs at BTF tracepoints: loading, attaching and reading.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::time::Duration;

use aya::maps::{HashMap, Map, MapData, MapError, PerCpuArray};
use aya::programs::tp_btf::BtfTracePointLinkId;
use aya::programs::{
    BtfTracePoint, Program, ProgramError, RawTracePoint, RawTracePointRunOptions, TestRun as _,
};
use aya::sys::{Stats, enable_stats};
use aya::{Btf, BtfError, Ebpf, EbpfLoader, Pod};
use linerate_host::bpf;

use crate::TraceError;

const TYPES: &str = "/sys/kernel/btf/vmlinux";

/// Required to load BPF programs.
const CAPABILITIES: &str = "CAP_BPF and CAP_PERFMON";

#[derive(Debug, Clone, Copy)]
pub(crate) struct ProgramAttachment {
    pub(crate) program: &'static str,
    /// As in its `TRACE_EVENT`, such as `napi_poll`.
    pub(crate) tracepoint: &'static str,
    // For the error message: `came with Linux 5.19`.
    pub(crate) since: &'static str,
    /// Whether the other programs are useful without this program.
    pub(crate) optional: bool,
}

impl ProgramAttachment {
    /// A program at a tracepoint of every kernel that can attach it.
    pub(crate) const fn new(program: &'static str, tracepoint: &'static str) -> Self {
        let since = "came with Linux 5.5 and CONFIG_DEBUG_INFO_BTF";
        Self { program, tracepoint, since, optional: false }
    }

    pub(crate) const fn since(self, since: &'static str) -> Self {
        Self { since, ..self }
    }

    pub(crate) const fn optional(self) -> Self {
        Self { optional: true, ..self }
    }
}

/// Why a kernel before 6.3 lacks a tracepoint.
pub(crate) const SINCE_6_3: &str = "came with Linux 6.3";

/// The empty program, for the call overhead.
pub(crate) const EMPTY_PROGRAM: [ProgramAttachment; 1] =
    [ProgramAttachment::new("nothing", "task_rename").since("came with Linux 3.4").optional()];

/// Loaded programs, some attached. They end when this is dropped, or with the process.
#[derive(Debug)]
pub(crate) struct TracePrograms {
    // For errors.
    pub(crate) operation: &'static str,
    pub(crate) object: Ebpf,
    // Optional programs whose tracepoint this kernel lacks.
    pub(crate) lacking: Vec<ProgramAttachment>,
    attached: BTreeMap<&'static str, BtfTracePointLinkId>,
}

impl TracePrograms {
    /// Loads an object, after `prepare` has set its globals and sizes, and attaches its programs in
    /// order.
    pub(crate) fn start<'p>(
        operation: &'static str,
        object: &[u8],
        prepare: impl FnOnce(&mut EbpfLoader<'p>),
        programs: &[ProgramAttachment],
    ) -> Result<Self, TraceError> {
        let mut loaded = Self::load(operation, object, prepare, programs)?;
        loaded.attach(programs)?;
        Ok(loaded)
    }

    /// Like [`TracePrograms::start`], without attaching.
    pub(crate) fn load<'p>(
        operation: &'static str,
        object: &[u8],
        prepare: impl FnOnce(&mut EbpfLoader<'p>),
        programs: &[ProgramAttachment],
    ) -> Result<Self, TraceError> {
        let btf = Btf::from_sys_fs().map_err(|error| match error {
            BtfError::FileError { error, .. } => types_error(operation, &error),
            error => kernel_error(operation, error),
        })?;
        let mut loader = EbpfLoader::new();
        prepare(&mut loader);
        let object = loader.load(object).map_err(|error| kernel_error(operation, error))?;
        let mut loaded = Self { operation, object, lacking: Vec::new(), attached: BTreeMap::new() };
        for attachment in programs {
            match loaded.program(attachment)?.load(attachment.tracepoint, &btf) {
                Ok(()) => {}
                Err(ProgramError::Btf(BtfError::UnknownBtfTypeName { .. })) if attachment.optional => {
                    loaded.lacking.push(*attachment);
                }
                Err(ProgramError::Btf(BtfError::UnknownBtfTypeName { .. })) => {
                    let feature = format!("tracepoint {}", attachment.tracepoint);
                    return Err(TraceError::NotHere { what: operation, feature, since: attachment.since });
                }
                Err(error) => return Err(kernel_error(operation, error)),
            }
        }
        Ok(loaded)
    }

    /// Attaches programs in order, except attached programs and programs without tracepoint.
    pub(crate) fn attach(&mut self, programs: &[ProgramAttachment]) -> Result<(), TraceError> {
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
    pub(crate) fn detach(&mut self, programs: &[ProgramAttachment]) -> Result<(), TraceError> {
        for attachment in programs.iter().rev() {
            let Some(link) = self.attached.remove(attachment.program) else { continue };
            let detached = self.program(attachment)?.detach(link);
            detached.map_err(|error| self.error(error))?;
        }
        Ok(())
    }

    fn program(&mut self, attachment: &ProgramAttachment) -> Result<&mut BtfTracePoint, TraceError> {
        let operation = self.operation;
        let program = self.object.program_mut(attachment.program);
        let program = program.ok_or_else(|| missing_in_object(operation, attachment.program))?;
        program.try_into().map_err(|error: ProgramError| kernel_error(operation, error))
    }

    pub(crate) fn error(&self, error: impl Error) -> TraceError {
        kernel_error(self.operation, error)
    }

    pub(crate) fn map<'a, M>(&'a self, name: &str) -> Result<M, TraceError>
    where
        M: TryFrom<&'a Map, Error = MapError>,
    {
        let map = self.object.map(name).ok_or_else(|| missing_in_object(self.operation, name))?;
        map.try_into().map_err(|error| self.error(error))
    }

    pub(crate) fn map_mut<'a, M>(&'a mut self, name: &str) -> Result<M, TraceError>
    where
        M: TryFrom<&'a mut Map, Error = MapError>,
    {
        let operation = self.operation;
        let map = self.object.map_mut(name).ok_or_else(|| missing_in_object(operation, name))?;
        map.try_into().map_err(|error| kernel_error(operation, error))
    }

    pub(crate) fn entries<K: Pod + Ord, V: Pod>(&self, name: &str) -> Result<BTreeMap<K, V>, TraceError> {
        let table: HashMap<&MapData, K, V> = self.map(name)?;
        table.iter().collect::<Result<_, _>>().map_err(|error| self.error(error))
    }

    pub(crate) fn remove<K: Pod, V: Pod>(
        &mut self,
        name: &str,
        entries: &BTreeMap<K, V>,
    ) -> Result<(), TraceError> {
        let operation = self.operation;
        let mut table: HashMap<&mut MapData, K, V> = self.map_mut(name)?;
        entries.keys().try_for_each(|key| table.remove(key)).map_err(|error| kernel_error(operation, error))
    }

    pub(crate) fn skipped_runs(&self) -> Result<u64, TraceError> {
        bpf::skipped_runs(&self.object).map_err(|error| self.error(error))
    }

    /// The only item of a per-CPU array, in order of possible CPUs.
    pub(crate) fn per_cpu_values<V: Pod>(&self, name: &str) -> Result<Vec<V>, TraceError> {
        let table: PerCpuArray<&MapData, V> = self.map(name)?;
        let values = table.get(&0, 0).map_err(|error| self.error(error))?;
        Ok(values.iter().copied().collect())
    }

    /// Loads a program without attaching it, for [`TracePrograms::run`].
    pub(crate) fn load_to_run(&mut self, name: &str) -> Result<(), TraceError> {
        let operation = self.operation;
        let error = |error: ProgramError| kernel_error(operation, error);
        let program = self.object.program_mut(name).ok_or_else(|| missing_in_object(operation, name))?;
        let program: &mut RawTracePoint = program.try_into().map_err(error)?;
        program.load().map_err(error)
    }

    // Runs a program once on a CPU with an argument; returns its result, `None` if the CPU is
    // offline (`BPF_F_TEST_RUN_ON_CPU`, Linux 5.10). On another CPU it runs in an interrupt.
    pub(crate) fn run(&self, name: &str, cpu: u32, argument: u64) -> Result<Option<u32>, TraceError> {
        let program = self.object.program(name).ok_or_else(|| missing_in_object(self.operation, name))?;
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
    pub(crate) fn run_counters(&self, programs: &[ProgramAttachment]) -> Result<RunCounters, TraceError> {
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

    // Runs and time of these programs while the kernel timed them (`BPF_ENABLE_STATS`, Linux 5.8).
    pub(crate) fn runs(&self, programs: &[ProgramAttachment]) -> Result<ProgramRuns, TraceError> {
        self.run_counters(programs)?.read().map_err(|error| self.error(error))
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ProgramRuns {
    pub(crate) runs: u64,
    pub(crate) time: Duration,
}

#[derive(Debug)]
pub(crate) struct RunCounters {
    files: Vec<OwnedFd>,
}

impl RunCounters {
    /// As [`TracePrograms::runs`].
    pub(crate) fn read(&self) -> io::Result<ProgramRuns> {
        let mut sum = ProgramRuns::default();
        for file in &self.files {
            let text = fs::read_to_string(format!("/proc/self/fdinfo/{}", file.as_raw_fd()))?;
            let number = |name| {
                let number = text.lines().find_map(|line| line.strip_prefix(name));
                number.and_then(|number| number.trim().parse().ok()).unwrap_or(0)
            };
            sum.runs += number("run_cnt:");
            sum.time += Duration::from_nanos(number("run_time_ns:"));
        }
        Ok(sum)
    }
}

// Lets the kernel time all BPF programs until this is dropped.
#[derive(Debug)]
pub(crate) struct RunCounting {
    _descriptor: OwnedFd,
}

impl RunCounting {
    /// Each run then takes two clock reads longer.
    pub(crate) fn start(operation: &'static str) -> Result<Self, TraceError> {
        let timing = "timing BPF programs (BPF_ENABLE_STATS)";
        let descriptor =
            enable_stats(Stats::RunTime).map_err(|error| match kernel_error(operation, error) {
                TraceError::NotPermitted { .. } => {
                    TraceError::NotPermitted { what: timing, capabilities: "CAP_SYS_ADMIN" }
                }
                other => other,
            })?;
        Ok(Self { _descriptor: descriptor })
    }
}

pub(crate) fn missing_in_object(operation: &'static str, name: &str) -> TraceError {
    let source = io::Error::other(format!("the BPF object lacks {name}: rebuild it with cargo xtask bpf"));
    TraceError::Kernel { what: operation, source }
}

/// The kernel's type information (BTF).
pub(crate) fn kernel_types(operation: &'static str) -> Result<Vec<u8>, TraceError> {
    fs::read(TYPES).map_err(|error| types_error(operation, &error))
}

fn types_error(operation: &'static str, error: &io::Error) -> TraceError {
    const SINCE: &str = "comes with CONFIG_DEBUG_INFO_BTF (Linux 5.4)";
    if error.kind() == io::ErrorKind::NotFound {
        return TraceError::NotHere { what: operation, feature: TYPES.to_owned(), since: SINCE };
    }
    let source = io::Error::new(error.kind(), format!("{TYPES}: {error}"));
    TraceError::Kernel { what: operation, source }
}

/// An error with its causes, which aya keeps apart. Missing privileges are reported as such.
pub(crate) fn kernel_error(operation: &'static str, error: impl Error) -> TraceError {
    let mut causes: Vec<String> = vec![error.to_string()];
    let mut cause = error.source();
    while let Some(error) = cause {
        let errno = error.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error);
        // The verifier's refusal is EACCES, which is not about privileges.
        if errno == Some(libc::EPERM) {
            return TraceError::NotPermitted { what: operation, capabilities: CAPABILITIES };
        }
        let text = error.to_string();
        if !causes.iter().any(|cause| cause.contains(&text)) {
            causes.push(text);
        }
        cause = error.source();
    }
    let text = causes.join(": ");
    match unknown_helper(&text) {
        Some(feature) => TraceError::NotHere { what: operation, feature, since: "came with Linux 5.11" },
        None => TraceError::Kernel { what: operation, source: io::Error::other(without_log(&text)) },
    }
}

// A helper function with a number above those of this kernel (check_helper_call,
// kernel/bpf/verifier.c, Linux 5.10). The newest that programs here call is
// bpf_get_current_task_btf.
fn unknown_helper(text: &str) -> Option<String> {
    let (_, number) = text.split_once("invalid func unknown#")?;
    let number = number.split(|character: char| !character.is_ascii_digit()).next()?;
    Some(format!("BPF helper function {number}"))
}

// The first line, and the last line of the verifier's log before its statistics.
fn without_log(text: &str) -> String {
    let mut lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with("processed "));
    match (lines.next(), lines.next_back()) {
        (Some(first), Some(last)) => format!("{first} [...] {last}"),
        (first, _) => first.unwrap_or_default().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_programs_are_reported_in_one_line() {
        let refusal = |log: &str| {
            let text = format!("the BPF_PROG_LOAD syscall returned EINVAL. Verifier output: {log}");
            kernel_error("cost", io::Error::other(text)).to_string()
        };
        assert_eq!(
            refusal(
                "0: (bf) r6 = r1\n1: (85) call unknown#158\ninvalid func unknown#158\nprocessed 2 insns\n"
            ),
            "cost: this kernel has no BPF helper function 158, which came with Linux 5.11"
        );
        assert_eq!(
            refusal(
                "0: (bf) r6 = r1\n1: (b7) r0 = 0\nR0 invalid mem access\nprocessed 2 insns limit 1000000\n"
            ),
            "cost: the BPF_PROG_LOAD syscall returned EINVAL. Verifier output: 0: (bf) r6 = r1 [...] R0 invalid mem access"
        );
    }

    #[test]
    fn missing_type_information_is_named_with_its_option() {
        assert_eq!(
            types_error("cost", &io::ErrorKind::NotFound.into()).to_string(),
            "cost: this kernel has no /sys/kernel/btf/vmlinux, which comes with CONFIG_DEBUG_INFO_BTF (Linux 5.4)"
        );
    }
}
