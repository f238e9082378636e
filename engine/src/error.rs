//! Why a server could not be built, started or stopped cleanly.

use std::io;
use std::net::{IpAddr, SocketAddr};

use crate::steer;

/// Why a server could not be built, started or stopped cleanly.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// A setting is out of its range, contradicts another, or is missing.
    #[error("{0}")]
    Setting(String),
    /// A socket given by [`Builder::adopt`](crate::Builder::adopt) cannot be served on.
    #[error("the socket given by Builder::adopt cannot be used: {why}")]
    Adopted {
        /// The reason it is invalid.
        why: &'static str,
    },
    /// A multicast group cannot be joined.
    #[error("cannot join the multicast group {group}: {why}")]
    Group {
        /// The group.
        group: IpAddr,
        /// The obstacle.
        why: String,
    },
    /// The CPUs of this process are not known.
    #[error("reading the CPUs this process may run on: {source}")]
    AllowedCpus {
        /// The kernel's error.
        source: io::Error,
    },
    /// A CPU for a worker is not available.
    #[error("CPU {cpu} cannot be used: it does not exist, is offline, or is outside the cpuset of this process \
             (allowed here: {})", CpuRanges(.allowed))]
    Cpu {
        /// The CPU's number.
        cpu: u32,
        /// The CPUs this process may run on.
        allowed: Vec<u32>,
    },
    /// Another socket uses the port.
    #[error("{address} is in use: `ss -ulpn 'sport = :{}'` shows the process{}", .address.port(),
            if *.shareable { "; it allows others to share the port, which would split the traffic" } else { "" })]
    InUse {
        /// The requested address.
        address: SocketAddr,
        /// Whether the present owner allows others to bind the port too
        /// ([`Builder::join`](crate::Builder::join)).
        shareable: bool,
    },
    /// The port requires a privilege.
    #[error(
        "not permitted to bind {address}: ports below net.ipv4.ip_unprivileged_port_start (1024) need \
             CAP_NET_BIND_SERVICE; grant it (`setcap cap_net_bind_service=ep` on the program, or AmbientCapabilities= \
             of its unit), or take a higher port"
    )]
    BindNotPermitted {
        /// The requested address.
        address: SocketAddr,
    },
    /// The address is not one of this host's.
    #[error(
        "{address} is not an address of this host: `ip address` lists them; Builder::bind accepts one of those or \
             a wildcard"
    )]
    NotLocal {
        /// The requested address.
        address: SocketAddr,
    },
    /// A system call on a socket failed.
    #[error("{what} failed on the socket for {address}: {source}")]
    Socket {
        /// The operation that failed.
        what: &'static str,
        /// The address the socket is for.
        address: SocketAddr,
        /// The kernel's error.
        source: io::Error,
    },
    /// The sockets could not be steered.
    #[error(transparent)]
    Steer(#[from] steer::SteeringError),
    /// A worker thread could not be started.
    #[error("worker {worker} could not {what}: {source}")]
    Worker {
        /// The worker's number.
        worker: usize,
        /// The operation that failed.
        what: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
    /// A worker's service panicked. The other workers continued, or were stopped in order.
    #[error("worker {worker} panicked: {message}")]
    Panicked {
        /// The worker's number.
        worker: usize,
        /// The panic's message.
        message: String,
    },
}

// Shows a sorted list of CPUs the way the kernel does: `0-3,8`.
struct CpuRanges<'a>(&'a [u32]);

impl std::fmt::Display for CpuRanges<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut separator = "";
        for run in self.0.chunk_by(|a, b| a + 1 == *b) {
            match run {
                [single] => write!(f, "{separator}{single}")?,
                [first, .., last] => write!(f, "{separator}{first}-{last}")?,
                [] => {}
            }
            separator = ",";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_lists_are_printed_as_ranges() {
        let ranges = |cpus: &[u32]| CpuRanges(cpus).to_string();
        assert_eq!(ranges(&[]), "");
        assert_eq!(ranges(&[3]), "3");
        assert_eq!(ranges(&[0, 1, 2, 8, 10, 11]), "0-2,8,10-11");
    }
}
