//! Errors of steering.

use std::io;

/// Why sockets could not be steered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SteeringError {
    /// A CPU was given to two sockets.
    #[error("CPU {cpu} is given to both socket {first} and socket {second}: a CPU feeds one socket")]
    Twice {
        /// The CPU's number.
        cpu: u32,
        /// The first socket that the CPU was given to.
        first: usize,
        /// The second socket.
        second: usize,
    },
    /// The table has no entry.
    #[error("no CPU is given to any socket: nothing to steer")]
    Empty,
    /// The table names a socket that was not given.
    #[error("the table gives a CPU to socket {slot}, but there are only {sockets}, counted from 0")]
    NoSuchSocket {
        /// The socket's position.
        slot: usize,
        /// The number of sockets.
        sockets: usize,
    },
    /// The table does not fit a classic program.
    #[error(
        "a table of {cpus} CPUs needs {instructions} instructions, the kernel accepts at most 4096 (BPF_MAXINSNS): \
             use SteeringProgram::Ebpf (`serve --sockets ebpf`)"
    )]
    TooLong {
        /// CPUs in the table.
        cpus: usize,
        /// Instructions that the table requires.
        instructions: usize,
    },
    /// The kernel has no room for the classic program.
    #[error(
        "the program for {cpus} CPUs does not fit the kernel's memory for socket options: raise \
             net.core.optmem_max, or use SteeringProgram::Ebpf (`serve --sockets ebpf`)"
    )]
    NoRoom {
        /// CPUs in the table.
        cpus: usize,
    },
    /// The sockets do not share a port.
    #[error("not a socket that can be steered, it has no SO_REUSEPORT: set that before bind")]
    NotReuseport,
    /// Loading an eBPF program is not allowed here.
    #[error(
        "not permitted to load an eBPF program: it needs CAP_BPF and CAP_NET_ADMIN (CAP_SYS_ADMIN before Linux \
             5.8, and before 5.11 room in RLIMIT_MEMLOCK) in the initial user namespace; SteeringProgram::Cbpf needs neither"
    )]
    NotPermitted,
    /// The kernel refused the eBPF program or its maps.
    #[error("the kernel refused the eBPF program: {why}; SteeringProgram::Cbpf does the same")]
    Refused {
        /// The kernel's reason.
        why: String,
    },
    /// A socket cannot be put into the eBPF program's map.
    #[error("socket {slot} cannot be steered to: {why} ({source})")]
    Member {
        /// The socket's position.
        slot: usize,
        /// The obstacle.
        why: &'static str,
        /// The error of the system call.
        source: io::Error,
    },
    /// A system call failed.
    #[error("{what} failed: {source}")]
    Kernel {
        /// The operation that failed.
        what: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
}
