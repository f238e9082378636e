//! The parts of `ptrace(2)` that are required to count the instructions of one thread.

use std::io;
use std::ptr;

/// The reason why a traced thread stopped or ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TraceEvent {
    /// The thread ended with this exit code.
    Exited(i32),
    /// A signal ended the thread.
    Killed(i32),
    /// The thread stopped for this signal: `SIGTRAP` for a step or a new thread, `SIGSTOP` for a
    /// thread's birth.
    Stopped(i32),
}

fn ptrace(request: libc::c_uint, thread: i32, data: usize) -> io::Result<()> {
    // SAFETY: none of the requests made here takes an address of ours: `addr` is null, `data` a
    // number.
    let result = unsafe {
        libc::ptrace(request as _, thread, ptr::null_mut::<libc::c_void>(), data as *mut libc::c_void)
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Makes the parent process trace this one, and waits until the parent is ready.
pub(crate) fn trace_me() -> io::Result<()> {
    ptrace(libc::PTRACE_TRACEME, 0, 0)?;
    // SAFETY: takes no pointers.
    if unsafe { libc::raise(libc::SIGSTOP) } == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

// Traces the threads that `process` starts too, and kills all of them if this process ends.
pub(crate) fn follow_threads(process: i32) -> io::Result<()> {
    let options = libc::PTRACE_O_TRACECLONE | libc::PTRACE_O_EXITKILL;
    ptrace(libc::PTRACE_SETOPTIONS, process, options as usize)
}

/// Continues a stopped thread, with a signal to handle or 0.
pub(crate) fn continue_thread(thread: i32, signal: i32) -> io::Result<()> {
    ptrace(libc::PTRACE_CONT, thread, signal as usize)
}

/// Lets a stopped thread run for one instruction.
pub(crate) fn step(thread: i32, signal: i32) -> io::Result<()> {
    ptrace(libc::PTRACE_SINGLESTEP, thread, signal as usize)
}

/// Waits until any traced thread stops or ends.
pub(crate) fn wait() -> io::Result<(i32, TraceEvent)> {
    let mut status = 0;
    loop {
        // SAFETY: `status` outlives the call.
        let thread = unsafe { libc::waitpid(-1, &raw mut status, libc::__WALL) };
        if thread < 0 {
            let error = io::Error::last_os_error();
            if error.kind() == io::ErrorKind::Interrupted {
                continue;
            }
            return Err(error);
        }
        let event = if libc::WIFEXITED(status) {
            TraceEvent::Exited(libc::WEXITSTATUS(status))
        } else if libc::WIFSIGNALED(status) {
            TraceEvent::Killed(libc::WTERMSIG(status))
        } else {
            TraceEvent::Stopped(libc::WSTOPSIG(status))
        };
        return Ok((thread, event));
    }
}
