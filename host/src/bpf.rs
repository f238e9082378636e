//! BPF objects: programs at BTF tracepoints, their tables and errors.

mod error;
mod programs;

use std::cell::RefCell;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::rc::{Rc, Weak};

use aya::Btf;

pub use error::{BpfError, BpfFailure};
pub(crate) use error::{error, missing};
pub use programs::{BpfPrograms, ProgramAttachment, ProgramRuns, RunCounters};

/// The kernel's type information (BTF, Linux 5.4 with CONFIG_DEBUG_INFO_BTF).
pub const KERNEL_TYPES: &str = "/sys/kernel/btf/vmlinux";

/// The types of the kernel ([`KERNEL_TYPES`]). All holders on this thread share them, because
/// parsing takes 10 ms of CPU time.
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
