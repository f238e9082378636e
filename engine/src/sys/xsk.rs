//! AF_XDP sockets (Documentation/networking/af_xdp.rst of Linux 6.18; net/xdp/xsk.c): the memory they share with the
//! kernel, and their rings.

mod memory;
mod ring;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::net::sockopt;
use rustix::net::xdp::{
    SocketAddrXdp, SocketAddrXdpFlags, SocketAddrXdpWithSharedUmem, XdpOptionsFlags, XdpUmemReg,
    XdpUmemRegFlags,
};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

pub(crate) use memory::Umem;
use ring::SharedRing;
pub(crate) use ring::{ConsumerRing, ProducerRing, XdpDescriptor};

use super::option;

// Linux 6.17 (include/uapi/linux/if_xdp.h): the number of frames that one call sends in copy mode;
// otherwise 32.
const XDP_MAX_TX_SKB_BUDGET: libc::c_int = 9;

/// An AF_XDP socket.
#[derive(Debug)]
pub(crate) struct XskSocket {
    descriptor: OwnedFd,
}

#[derive(Debug)]
pub(crate) struct SocketRings {
    pub(crate) fill: ProducerRing<u64>,
    pub(crate) completion: ConsumerRing<u64>,
    pub(crate) receive: ConsumerRing<XdpDescriptor>,
    pub(crate) transmit: ProducerRing<XdpDescriptor>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct XskBind {
    pub(crate) interface: u32,
    pub(crate) queue: u32,
    // Whether the kernel may share the device's own memory; it does if the driver can.
    pub(crate) zero_copy: bool,
    pub(crate) need_wakeup: bool,
}

impl XskSocket {
    // Opens a socket, which requires CAP_NET_RAW.
    pub(crate) fn new() -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC;
        let descriptor = rustix::net::socket_with(AddressFamily::XDP, SocketType::RAW, flags, None)?;
        Ok(Self { descriptor })
    }

    /// Registers the memory to which this socket's rings refer.
    pub(crate) fn register(&self, umem: &Umem) -> io::Result<()> {
        // The memory stays mapped as long as any socket may use it: sockets are closed before it is
        // dropped, and the kernel holds the pages itself.
        // Each kernel reads the fields that it knows, and zero is valid for the later ones.
        let registration = XdpUmemReg {
            addr: umem.address(),
            len: umem.bytes() as u64,
            chunk_size: umem.frame_bytes(),
            headroom: 0,
            flags: XdpUmemRegFlags::empty(),
            tx_metadata_len: 0,
        };
        Ok(sockopt::set_xdp_umem_reg(self, registration)?)
    }

    /// Makes the rings, each of `size` entries, a power of two.
    pub(crate) fn rings(&self, size: u32) -> io::Result<SocketRings> {
        sockopt::set_xdp_umem_fill_ring_size(self, size)?;
        sockopt::set_xdp_umem_completion_ring_size(self, size)?;
        sockopt::set_xdp_rx_ring_size(self, size)?;
        sockopt::set_xdp_tx_ring_size(self, size)?;
        let offsets = sockopt::xdp_mmap_offsets(self)?;
        let fill = libc::XDP_UMEM_PGOFF_FILL_RING as libc::off_t;
        let completion = libc::XDP_UMEM_PGOFF_COMPLETION_RING as libc::off_t;
        let (receive, transmit) = (libc::XDP_PGOFF_RX_RING, libc::XDP_PGOFF_TX_RING);
        Ok(SocketRings {
            fill: ProducerRing::new(SharedRing::map(self.as_fd(), size, offsets.fr, fill)?),
            completion: ConsumerRing::new(SharedRing::map(self.as_fd(), size, offsets.cr, completion)?),
            receive: ConsumerRing::new(SharedRing::map(self.as_fd(), size, offsets.rx, receive)?),
            transmit: ProducerRing::new(SharedRing::map(self.as_fd(), size, offsets.tx, transmit)?),
        })
    }

    // Makes one call send as many frames as the ring holds, in copy mode. A kernel before 6.17
    // sends 32 and returns EAGAIN.
    pub(crate) fn send_all_at_once(&self, transmit: u32) -> io::Result<()> {
        option::set(self, libc::SOL_XDP, XDP_MAX_TX_SKB_BUDGET, transmit.cast_signed())
    }

    // Makes the kernel poll the device in calls of this socket, and keep interrupts off meanwhile
    // (Linux 5.11).
    pub(crate) fn busy_poll(&self, time: Duration, budget: u16) -> io::Result<()> {
        let microseconds = i32::try_from(time.as_micros()).unwrap_or(i32::MAX);
        option::set(self, libc::SOL_SOCKET, libc::SO_PREFER_BUSY_POLL, 1)?;
        option::set(self, libc::SOL_SOCKET, libc::SO_BUSY_POLL, microseconds)?;
        option::set(self, libc::SOL_SOCKET, libc::SO_BUSY_POLL_BUDGET, i32::from(budget))
    }

    // Enlarges the socket's send buffer, beyond the system's limit if the privilege allows.
    pub(crate) fn enlarge_send_buffer(&self, bytes: i32) -> io::Result<()> {
        option::set(self, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, bytes)
    }

    /// Binds the socket to a queue. With `memory_owner`, it uses the memory of that socket.
    pub(crate) fn bind(&self, options: XskBind, memory_owner: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let address = |flags| SocketAddrXdp::new(flags, options.interface, options.queue);
        let Some(memory_owner) = memory_owner else {
            // Without either flag the kernel tries zero-copy and falls back by itself
            // (xp_assign_dev).
            let mut flags = SocketAddrXdpFlags::empty();
            flags.set(SocketAddrXdpFlags::XDP_COPY, !options.zero_copy);
            flags.set(SocketAddrXdpFlags::XDP_USE_NEED_WAKEUP, options.need_wakeup);
            return Ok(rustix::net::bind(self, &address(flags))?);
        };
        // Accepts no other flag: wake-ups and copying are as for the socket that owns the memory,
        // zero-copy if the driver supports it (net/xdp/xsk.c, xsk_bind; net/xdp/xsk_buff_pool.c,
        // xp_assign_dev_shared).
        let addr = address(SocketAddrXdpFlags::XDP_SHARED_UMEM);
        let shared_address = SocketAddrXdpWithSharedUmem { addr, shared_umem_fd: memory_owner };
        Ok(rustix::net::bind(self, &shared_address)?)
    }

    /// Whether frames are not copied.
    pub(crate) fn is_zero_copy(&self) -> io::Result<bool> {
        Ok(sockopt::xdp_options(self)?.contains(XdpOptionsFlags::XDP_OPTIONS_ZEROCOPY))
    }

    /// Frames that the kernel dropped before they were in the receive ring: full ring, empty fill
    /// ring, or not valid (net/xdp/xsk.c, `xsk_getsockopt`; the ring counters since Linux 5.9).
    pub(crate) fn lost_frames(&self) -> io::Result<u64> {
        let counts = sockopt::xdp_statistics(self)?;
        let of_rings = [counts.rx_ring_full, counts.rx_fill_ring_empty_descs];
        Ok(counts.rx_dropped + of_rings.into_iter().flatten().sum::<u64>())
    }

    // Makes the kernel send the packets in the transmit ring.
    #[inline]
    pub(crate) fn kick_transmit(&self) -> io::Result<()> {
        Ok(rustix::net::send(self, &[], SendFlags::DONTWAIT).map(drop)?)
    }

    // Makes the kernel check the fill ring and, with busy polling, the device.
    pub(crate) fn kick_receive(&self) -> io::Result<()> {
        Ok(rustix::net::recv(self, &mut [0; 0][..], RecvFlags::DONTWAIT).map(drop)?)
    }
}

impl AsFd for XskSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}
