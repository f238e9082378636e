//! Choices of a builder: sockets, system calls, CPUs.

use crate::steer::SteeringProgram;
use crate::sys::bpf::XdpMode;

/// How workers share sockets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backend {
    /// One `recvfrom` and one `sendto` per transaction (`recvmsg` and `sendmsg` on a wildcard address).
    Recvfrom,
    /// `recvmmsg` (Linux 2.6.33) and `sendmmsg` (3.0), up to `batch` transactions per call.
    Mmsg {
        /// Most messages per call, 1 to 1024.
        batch: u16,
    },
    /// AF_XDP (Linux 5.10): workers take requests from the device's queues before the network stack, and answer in place. They
    /// serve the rest as with [`Mmsg`](Self::Mmsg), and all requests if AF_XDP cannot run;
    /// [`Server::fallbacks`](crate::Server::fallbacks) has the reason.
    Xdp(AfXdpSettings),
}

impl Backend {
    pub(crate) fn messages(self) -> usize {
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
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum WorkerPinning {
    /// Chosen by the scheduler.
    #[default]
    None,
    /// Worker `i` on its CPU of [`Builder::cpus`](crate::Builder::cpus).
    Own,
    /// Worker `i` on CPU `cpus[i % cpus.len()]`.
    Cpus(Vec<u32>),
}

/// Settings of the AF_XDP backend.
///
/// Requires Linux 5.10, `CAP_NET_RAW` for the sockets, `CAP_BPF` and `CAP_NET_ADMIN` for the redirecting program, and locked
/// memory for the frames (`RLIMIT_MEMLOCK`, or `CAP_IPC_LOCK`). An interface with another XDP program is not served.
/// [`Server::xdp`](crate::Server::xdp) reports the interfaces served, [`Server::fallbacks`](crate::Server::fallbacks) the
/// reasons for others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AfXdpSettings {
    /// Frames per queue, a power of two from 128 to 65,536: half for packets to come, half for replies. A frame has 2048 bytes,
    /// or 4096 if the interface's MTU is above 1500.
    pub frames: u32,
    /// Most requests per batch of a queue, 1 to 1024.
    pub batch: u16,
    /// Where the redirecting program runs.
    pub mode: XdpMode,
    /// Whether the device writes to the memory of the process, if its driver can.
    pub zero_copy: bool,
    /// Whether the kernel signals when it needs a call. If false, a zero-copy driver polls the rings.
    pub need_wakeup: bool,
    /// Whether to check the IP and UDP checksums of requests. Wrong ones are counted
    /// ([`Counts::checksum_errors`](crate::Counts::checksum_errors)) and get no reply, as with the
    /// stack. On a veth, unfinished ones are accepted, because senders on this machine leave them
    /// so (drivers/net/veth.c, `veth_xdp_rcv_skb`).
    pub verify_checksums: bool,
    /// Microseconds that a call polls the device with interrupts off (`SO_PREFER_BUSY_POLL`, Linux 5.11); 0 for no busy
    /// polling. Set `napi_defer_hard_irqs` and `gro_flush_timeout` of the interface to keep interrupts off between calls.
    pub busy_poll_us: u32,
    /// Most packets per busy poll (`SO_BUSY_POLL_BUDGET`).
    pub busy_poll_budget: u16,
}

impl Default for AfXdpSettings {
    fn default() -> Self {
        Self {
            frames: 4096,
            batch: 64,
            mode: XdpMode::Driver,
            zero_copy: true,
            need_wakeup: true,
            verify_checksums: false,
            busy_poll_us: 0,
            busy_poll_budget: 64,
        }
    }
}
