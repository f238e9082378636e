//! Steering: selects the socket of an `SO_REUSEPORT` group by the CPU that processes the packet.
//!
//! Usable alone, by servers with their own event loop. Open one socket per thread with
//! `SO_REUSEPORT`, pin each thread to a CPU, and steer the packets of a CPU to the socket of its
//! thread: no two CPUs then contend for a socket, and the data is in the right cache. It works for
//! UDP sockets and for TCP listeners.
//!
//! ```
//! use linerate_engine::steer::{self, CpuTable, SteeringProgram};
//! use socket2::{Domain, Socket, Type};
//!
//! let mut sockets = Vec::new();
//! let mut address: std::net::SocketAddr = "127.0.0.1:0".parse()?;
//! for _ in 0..2 {
//!     let socket = Socket::new(Domain::IPV4, Type::DGRAM, None)?;
//!     socket.set_reuse_port(true)?;
//!     socket.bind(&address.into())?;
//!     address = socket.local_addr()?.as_socket().ok_or("not an IP socket")?;
//!     sockets.push(socket);
//! }
//! // The first socket is for CPUs 1 and 3, the second for 0 and 2.
//! let table = CpuTable::new(&[[1, 3], [0, 2]])?;
//! steer::attach(&sockets, &table, SteeringProgram::Cbpf)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The order of the sockets
//!
//! A classic program names a socket by its position in the kernel's group. UDP sockets enter the
//! group when they are bound, TCP sockets when they start to listen (net/ipv4/udp.c,
//! `udp_lib_get_port`; net/ipv4/inet_hashtables.c, `__inet_hash`). When a socket of the group is
//! closed, the last socket takes its position (net/core/sock_reuseport.c,
//! `__reuseport_detach_sock`), so an earlier table is then wrong. An extended program names sockets
//! by slots of its own map: the order of binding does not matter, and a closed socket leaves its
//! slot empty.
//!
//! All sockets of a group share one program, which can be attached to any of them; the last
//! attached program counts.

mod cbpf;
mod ebpf;
mod error;
mod table;

use std::os::fd::AsFd;

pub use cbpf::program;
pub use error::SteeringError;
pub use table::CpuTable;

use crate::sys::option;

/// The kind of program that picks the socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SteeringProgram {
    /// `SO_ATTACH_REUSEPORT_CBPF`: Linux 4.5 for UDP, 4.6 for TCP. Needs no privilege.
    Cbpf,
    /// `SO_ATTACH_REUSEPORT_EBPF` with a program of type `SK_REUSEPORT`: Linux 4.19. Needs `CAP_BPF` and
    /// `CAP_NET_ADMIN` (before Linux 5.8 `CAP_SYS_ADMIN`).
    Ebpf,
}

/// Steers the group of `sockets` by `table`, whose slots are positions in `sockets`.
///
/// For [`SteeringProgram::Cbpf`], pass all sockets of the group, in the order in which they were
/// bound (TCP: in which they began to listen). For [`SteeringProgram::Ebpf`], the order does not
/// matter, and sockets that you leave out get no packets; all sockets must be bound, and TCP
/// sockets must listen, before. The kernel allows a socket in the map of only one such program: to
/// change the table, [`detach`] first.
///
/// # Errors
/// No socket, a table that names a missing socket, sockets without `SO_REUSEPORT`, a missing
/// privilege, too little room, or a kernel that is older than [`SteeringProgram`] requires.
pub fn attach<S: AsFd>(
    sockets: &[S],
    table: &CpuTable,
    program: SteeringProgram,
) -> Result<(), SteeringError> {
    let first = sockets.first().ok_or(SteeringError::Empty)?;
    if let Some(slot) = table.highest_slot().filter(|slot| *slot >= sockets.len()) {
        return Err(SteeringError::NoSuchSocket { slot, sockets: sockets.len() });
    }
    match program {
        SteeringProgram::Cbpf => cbpf::attach(first, table),
        SteeringProgram::Ebpf => ebpf::attach(sockets, table),
    }
}

/// Detaches the program from the group of `socket`, so that the kernel's hash selects again. Linux
/// 5.3. Does nothing without a program.
///
/// # Errors
/// A socket without `SO_REUSEPORT`, an older kernel.
pub fn detach(socket: &impl AsFd) -> Result<(), SteeringError> {
    let what = "SO_DETACH_REUSEPORT_BPF (Linux 5.3)";
    match option::set(socket, libc::SOL_SOCKET, libc::SO_DETACH_REUSEPORT_BPF, 0) {
        Ok(()) => Ok(()),
        Err(source) => match source.raw_os_error() {
            // The group has no program.
            Some(libc::ENOENT) => Ok(()),
            Some(libc::EINVAL) => Err(SteeringError::NotReuseport),
            _ => Err(SteeringError::Kernel { what, source }),
        },
    }
}
