//! What a server's builder lets choose: sockets, calls, CPUs.

use serde::{Deserialize, Serialize};

use crate::backend::AfXdpSettings;
#[cfg(doc)]
use crate::server::{Builder, Server};
use crate::steer::SteeringProgram;

/// How workers get at the port's requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SocketMode {
    /// One socket that all workers read. They, and the softirqs that fill it, contend for its lock.
    Shared,
    /// A socket for each worker (`SO_REUSEPORT`, Linux 3.9); the kernel picks one by a hash of the addresses and
    /// ports of a request.
    #[default]
    Reuseport,
    /// A socket for each worker, picked by the CPU on which the kernel processes the request.
    SteeredByCpu(SteeringProgram),
}

/// How workers call the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Backend {
    /// One `recvfrom` and one `sendto` a transaction (`recvmsg` and `sendmsg` on a wildcard address). Any kernel has them.
    Recvfrom,
    /// `recvmmsg` (Linux 2.6.33) and `sendmmsg` (3.0), up to `batch` transactions a call, 1 to 1024.
    Mmsg {
        /// Most messages a call.
        batch: u16,
    },
    /// AF_XDP (Linux 5.10): requests are taken from the device's queues before the network stack sees them, and answered in place.
    /// What that leaves to the stack, and all of it where AF_XDP cannot run, is served as by [`Mmsg`](Self::Mmsg), which
    /// [`Server::fallbacks`] then tells.
    Xdp(AfXdpSettings),
}

impl Backend {
    /// Messages that a batch of buffers holds.
    pub(super) fn messages(self) -> usize {
        match self {
            Self::Recvfrom => 1,
            Self::Mmsg { batch } => usize::from(batch),
            Self::Xdp(_) => usize::from(BATCH),
        }
    }
}

/// Messages a call where nothing else is said.
const BATCH: u16 = 64;

impl Default for Backend {
    fn default() -> Self {
        Self::Mmsg { batch: BATCH }
    }
}

/// On which CPU a worker runs.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WorkerPinning {
    /// Wherever the scheduler puts it.
    #[default]
    None,
    /// Each on its own CPU of [`Builder::cpus`].
    Own,
    /// Worker `i` on CPU `cpus[i % cpus.len()]`.
    Cpus(Vec<u32>),
}

/// Where requests go that were processed on a CPU not in [`Builder::cpus`]. Only of use with steering.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StrayRequests {
    /// To a worker chosen by the kernel's hash of addresses and ports.
    #[default]
    Hash,
    /// All to one worker.
    Worker(usize),
    /// By CPU: pairs of a CPU and the worker that serves it. The kernel's hash for those not listed either.
    Map(Vec<(u32, usize)>),
}
