//! BPF objects: programs at BTF tracepoints, their tables and errors.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::fs::MetadataExt as _;
use std::rc::{Rc, Weak};

use aya::maps::HashMap;
use aya::programs::{BtfTracePoint, Program, ProgramError};
use aya::{Btf, BtfError, Ebpf, EbpfLoader, Pod};

use crate::background::pause_after_burst;

/// Loads an object after `prepare` has set its globals, and attaches its programs in order.
pub(crate) fn load_and_attach<'p>(
    object: &[u8],
    prepare: impl FnOnce(&mut EbpfLoader<'p>),
    programs: &[(&str, &str)],
) -> io::Result<Ebpf> {
    let mut object = load_object(object, prepare, programs)?;
    for (name, _) in programs {
        program(&mut object, name)?.attach().map_err(error)?;
    }
    Ok(object)
}

/// Loads an object like [`load_and_attach`], without attaching its programs.
pub(crate) fn load_object<'p>(
    object: &[u8],
    prepare: impl FnOnce(&mut EbpfLoader<'p>),
    programs: &[(&str, &str)],
) -> io::Result<Ebpf> {
    let btf = kernel_btf()?;
    pause_after_burst();
    let mut loader = EbpfLoader::new();
    pause_after_burst();
    prepare(&mut loader);
    let mut object = loader.load(object).map_err(error)?;
    for (name, tracepoint) in programs {
        pause_after_burst();
        program(&mut object, name)?.load(tracepoint, &btf).map_err(|error| load_error(tracepoint, error))?;
    }
    Ok(object)
}

/// The types of the kernel (/sys/kernel/btf/vmlinux, Linux 5.4). All holders on this thread share
/// them, because parsing takes 10 ms of CPU time.
///
/// # Errors
/// A kernel without CONFIG_DEBUG_INFO_BTF.
pub fn kernel_btf() -> io::Result<Rc<Btf>> {
    thread_local! {
        static PARSED: RefCell<Weak<Btf>> = const { RefCell::new(Weak::new()) };
    }
    PARSED.with_borrow_mut(|cache| match cache.upgrade() {
        Some(btf) => Ok(btf),
        None => {
            let btf = Rc::new(Btf::from_sys_fs().map_err(error)?);
            *cache = Rc::downgrade(&btf);
            Ok(btf)
        }
    })
}

pub(crate) fn program<'o>(object: &'o mut Ebpf, name: &str) -> io::Result<&'o mut BtfTracePoint> {
    object.program_mut(name).ok_or_else(|| missing(name))?.try_into().map_err(error)
}

fn load_error(tracepoint: &str, source: ProgramError) -> io::Error {
    if let ProgramError::Btf(BtfError::UnknownBtfTypeName { .. }) = source {
        let message = format!("the kernel has no tracepoint {tracepoint}: it requires Linux 6.3 or later");
        return io::Error::new(io::ErrorKind::Unsupported, message);
    }
    error(source)
}

pub(crate) fn missing(name: &str) -> io::Error {
    io::Error::other(format!("the BPF object lacks {name}: rebuild it with cargo xtask bpf"))
}

pub(crate) fn entries<K: Pod + Ord, V: Pod>(object: &Ebpf, name: &str) -> io::Result<BTreeMap<K, V>> {
    let Some(map) = object.map(name) else { return Err(missing(name)) };
    let table: HashMap<_, K, V> = map.try_into().map_err(error)?;
    table.iter().collect::<Result<_, _>>().map_err(error)
}

/// Program runs that the kernel skipped because the same program was running on that CPU
/// (`recursion_misses`, Linux 5.12).
pub fn skipped_runs(object: &Ebpf) -> io::Result<u64> {
    let mut sum = 0;
    for (_, program) in object.programs() {
        let Program::BtfTracePoint(program) = program else { continue };
        // An optional program without its tracepoint is not loaded.
        let Ok(descriptor) = program.fd() else { continue };
        let text = fs::read_to_string(format!("/proc/self/fdinfo/{}", descriptor.as_fd().as_raw_fd()))?;
        let count = text.lines().find_map(|line| line.strip_prefix("recursion_misses:"));
        sum += count.and_then(|count| count.trim().parse::<u64>().ok()).unwrap_or(0);
    }
    Ok(sum)
}

/// Inode of the calling thread's network namespace.
pub fn network_namespace() -> io::Result<u32> {
    u32::try_from(fs::metadata("/proc/thread-self/ns/net")?.ino()).map_err(io::Error::other)
}

/// A bit set of this many bits; larger numbers are left out.
pub fn bit_set(numbers: impl IntoIterator<Item = u32>, bits: usize) -> Vec<u8> {
    let mut set = vec![0; bits / 8];
    for number in numbers {
        if let Some(byte) = set.get_mut((number >> 3) as usize) {
            *byte |= 1 << (number & 7);
        }
    }
    set
}

/// A bit set of ports.
pub fn port_set(ports: &[u16]) -> Vec<u8> {
    bit_set(ports.iter().copied().map(u32::from), 1 << 16)
}

/// The two halves of a word in memory order.
pub fn halves(word: u64) -> (u32, u32) {
    let bytes = word.to_ne_bytes();
    let half = |offset: usize| bytes[offset..].first_chunk().map_or(0, |half| u32::from_ne_bytes(*half));
    (half(0), half(4))
}

// The system error if there is one, because captures store its number; otherwise all messages.
pub(crate) fn error(error: impl std::error::Error) -> io::Error {
    let mut message = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        if let Some(errno) = error.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error) {
            return io::Error::from_raw_os_error(errno);
        }
        // Some of the library's errors include the message of their cause.
        let text = error.to_string();
        if !message.contains(&text) {
            message = format!("{message}: {text}");
        }
        cause = error.source();
    }
    io::Error::other(message.lines().next().unwrap_or_default().to_owned())
}
