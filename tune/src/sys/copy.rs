//! Starting a process in a control group, on one CPU.

use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// Makes the new process enter the control group of this `cgroup.procs`, and pins it, before its
/// program runs.
pub(crate) fn place(command: &mut Command, cgroup_procs: File, cpu: u32) {
    let word = (cpu / usize::BITS) as usize;
    let mut mask = vec![0_usize; word + 1];
    mask[word] = 1 << (cpu % usize::BITS);
    let in_child = move || {
        // Zero stands for the process that writes.
        rustix::io::write(&cgroup_procs, b"0")?;
        // SAFETY: a plain system call; pointer and length in bytes describe `mask`, which it only reads.
        let pinned =
            unsafe { libc::sched_setaffinity(0, size_of_val(mask.as_slice()), mask.as_ptr().cast()) };
        if pinned == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
    };
    // SAFETY: the closure runs between fork and exec and makes async-signal-safe system calls only.
    unsafe { command.pre_exec(in_child) };
}
