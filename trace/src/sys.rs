//! Kernel calls that no crate wraps safely, and structs that BPF programs share.

use std::io;

/// Sets or ends real-time priority of this thread (`SCHED_FIFO`).
pub(crate) fn set_real_time(is_real_time: bool) -> io::Result<()> {
    let (policy, priority) =
        if is_real_time { (libc::SCHED_FIFO, FIRST_PRIORITY) } else { (libc::SCHED_OTHER, 0) };
    let parameters = libc::sched_param { sched_priority: priority };
    // SAFETY: the structure lives until the call returns, which only reads it.
    if unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) } == 0 {
        return Ok(());
    }
    Err(io::Error::last_os_error())
}

/// Above threads with the lowest real-time priority.
const FIRST_PRIORITY: i32 = 2;

/// A name of the kernel, up to its first NUL.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct KernelName(pub(crate) [u8; 16]);

impl KernelName {
    /// From memory of the kernel that was copied as words.
    pub(crate) fn from_words(words: [u64; 2]) -> Self {
        let mut bytes = [0; 16];
        bytes.as_chunks_mut().0.iter_mut().zip(words).for_each(|(chunk, word)| *chunk = word.to_ne_bytes());
        Self(bytes)
    }
}

impl std::fmt::Display for KernelName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = self.0.split(|byte| *byte == 0).next().unwrap_or_default();
        f.write_str(&String::from_utf8_lossy(name))
    }
}

impl std::fmt::Debug for KernelName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.to_string())
    }
}

/// Lets types with the layout of a struct of a BPF program, and its size in bytes, be read from maps.
macro_rules! kernel_layout {
    ($($type:ty: $bytes:literal),*) => {$(
        const _: () = assert!(size_of::<$type>() == $bytes);

        // SAFETY: the type is `repr(C)`, consists of integers, for which all bytes are valid, and
        // has no padding.
        unsafe impl aya::Pod for $type {}
    )*};
}

pub(crate) use kernel_layout;

#[cfg(test)]
mod tests {
    use super::KernelName;

    #[test]
    fn kernel_names_end_at_the_first_nul_byte() {
        for (bytes, name) in [
            (*b"openssl\0\xff\xff\xff\xff\xff\xff\xff\xff", "openssl"),
            (*b"\0bcdefghijklmnop", ""),
            (*b"abcdefghijklmnop", "abcdefghijklmnop"),
        ] {
            assert_eq!(KernelName(bytes).to_string(), name);
        }
    }
}
