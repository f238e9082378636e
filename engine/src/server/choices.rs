//! Choices of a builder: sockets, system calls, CPUs.

use serde::{Deserialize, Serialize};

use crate::backend::AfXdpSettings;
#[cfg(doc)]
use crate::server::{Builder, Server};
use crate::steer::SteeringProgram;

/// How workers share sockets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SocketMode {
    /// One socket for all workers, which contend with each other and with softirqs for its lock.
    Shared,
    /// One socket per worker (`SO_REUSEPORT`, Linux 3.9); the kernel selects one by a hash of addresses and ports.
    #[default]
    Reuseport,
    /// One socket per worker, selected by the CPU on which the kernel processes the request.
    SteeredByCpu(SteeringProgram),
}

/// How workers call the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Backend {
    /// One `recvfrom` and one `sendto` per transaction (`recvmsg` and `sendmsg` on a wildcard address).
    Recvfrom,
    /// `recvmmsg` (Linux 2.6.33) and `sendmmsg` (3.0), up to `batch` transactions per call.
    Mmsg {
        /// Most messages per call, 1 to 1024.
        batch: u16,
    },
    /// AF_XDP (Linux 5.10): workers take requests from the device's queues before the network stack, and answer in place. They
    /// serve the rest as with [`Mmsg`](Self::Mmsg), and all requests if AF_XDP cannot run; [`Server::fallbacks`] has the
    /// reason.
    Xdp(AfXdpSettings),
}

impl Backend {
    pub(super) fn messages(self) -> usize {
        match self {
            Self::Recvfrom => 1,
            Self::Mmsg { batch } => usize::from(batch),
            Self::Xdp(_) => usize::from(BATCH),
        }
    }
}

// Default number of messages per call.
const BATCH: u16 = 64;

impl Default for Backend {
    fn default() -> Self {
        Self::Mmsg { batch: BATCH }
    }
}

/// The CPUs of workers.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WorkerPinning {
    /// Chosen by the scheduler.
    #[default]
    None,
    /// Worker `i` on its CPU of [`Builder::cpus`].
    Own,
    /// Worker `i` on CPU `cpus[i % cpus.len()]`.
    Cpus(Vec<u32>),
}

/// The worker for requests that were processed on a CPU outside [`Builder::cpus`]. Requires steering.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StrayRequests {
    /// Selected by the kernel's hash of addresses and ports.
    #[default]
    Hash,
    /// One worker for all.
    Worker(usize),
    /// Pairs of a CPU and its worker. The kernel's hash for other CPUs.
    Map(Vec<(u32, usize)>),
}
