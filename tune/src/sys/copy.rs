//! Starting a process in a control group, on one CPU if the group has it.

use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// Makes the new process enter the control group of this `cgroup.procs`, and pins it, before its
/// program runs. The process has all CPUs of the group if this one is offline or not in its cpuset.
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
        let error = io::Error::last_os_error();
        if pinned == -1 && error.raw_os_error() != Some(libc::EINVAL) { Err(error) } else { Ok(()) }
    };
    // SAFETY: the closure runs between fork and exec and makes async-signal-safe system calls only.
    unsafe { command.pre_exec(in_child) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_starts_without_a_cpu_that_does_not_exist() {
        let mut command = Command::new("true");
        place(&mut command, tempfile::tempfile().expect("a file"), 9000);
        assert!(command.status().expect("started").success());
    }
}
