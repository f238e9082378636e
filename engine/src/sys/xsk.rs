//! AF_XDP sockets (Documentation/networking/af_xdp.rst of Linux 6.18; net/xdp/xsk.c): the memory they share with the
//! kernel, and their rings.

mod memory;
mod ring;

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

pub(crate) use memory::Umem;
use ring::SharedRing;
pub(crate) use ring::{ConsumerRing, ProducerRing, XdpDescriptor};

use super::option;

// Linux 6.17 (include/uapi/linux/if_xdp.h): the number of frames that one call sends in copy mode;
// otherwise 32.
const XDP_MAX_TX_SKB_BUDGET: libc::c_int = 9;

// Linux 5.11 (include/uapi/asm-generic/socket.h).
const SO_PREFER_BUSY_POLL: libc::c_int = 69;
const SO_BUSY_POLL_BUDGET: libc::c_int = 70;

/// An AF_XDP socket.
#[derive(Debug)]
pub(crate) struct XskSocket {
    descriptor: OwnedFd,
}

/// Sizes of the rings, powers of two.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RingSizes {
    pub(crate) fill: u32,
    pub(crate) completion: u32,
    pub(crate) receive: u32,
    pub(crate) transmit: u32,
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
        // SAFETY: takes no pointer.
        let descriptor = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new, so that nothing else owns it.
        Ok(Self { descriptor: unsafe { OwnedFd::from_raw_fd(descriptor) } })
    }

    /// Registers the memory to which this socket's rings refer.
    pub(crate) fn register(&self, umem: &Umem) -> io::Result<()> {
        // The form before Linux 5.4, which all later kernels accept: neither flags nor metadata.
        let registration = libc::xdp_umem_reg_v1 {
            addr: umem.address(),
            len: umem.bytes() as u64,
            chunk_size: umem.frame_bytes(),
            headroom: 0,
        };
        // SAFETY: all fields are set, and the memory stays mapped as long as any socket may use it: sockets are closed
        // before it is dropped, and the kernel holds the pages itself.
        unsafe { self.set(libc::XDP_UMEM_REG, &registration) }
    }

    pub(crate) fn rings(&self, sizes: RingSizes) -> io::Result<SocketRings> {
        for (option, size) in [
            (libc::XDP_UMEM_FILL_RING, sizes.fill),
            (libc::XDP_UMEM_COMPLETION_RING, sizes.completion),
            (libc::XDP_RX_RING, sizes.receive),
            (libc::XDP_TX_RING, sizes.transmit),
        ] {
            // SAFETY: these options take an int.
            unsafe { self.set(option, &size)? };
        }
        let offsets = self.offsets()?;
        let fill = libc::XDP_UMEM_PGOFF_FILL_RING as libc::off_t;
        let completion = libc::XDP_UMEM_PGOFF_COMPLETION_RING as libc::off_t;
        let (receive, transmit) = (libc::XDP_PGOFF_RX_RING, libc::XDP_PGOFF_TX_RING);
        Ok(SocketRings {
            fill: ProducerRing::new(SharedRing::map(self.as_fd(), sizes.fill, offsets.fr, fill)?),
            completion: ConsumerRing::new(SharedRing::map(
                self.as_fd(),
                sizes.completion,
                offsets.cr,
                completion,
            )?),
            receive: ConsumerRing::new(SharedRing::map(self.as_fd(), sizes.receive, offsets.rx, receive)?),
            transmit: ProducerRing::new(SharedRing::map(self.as_fd(), sizes.transmit, offsets.tx, transmit)?),
        })
    }

    // Makes one call send as many frames as the ring holds, in copy mode. A kernel before 6.17
    // sends 32 and returns EAGAIN.
    pub(crate) fn send_all_at_once(&self, transmit: u32) -> io::Result<()> {
        // SAFETY: the option takes an int.
        unsafe { self.set(XDP_MAX_TX_SKB_BUDGET, &transmit) }
    }

    // Makes the kernel poll the device in calls of this socket, and keep interrupts off meanwhile
    // (Linux 5.11).
    pub(crate) fn busy_poll(&self, time: Duration, budget: u16) -> io::Result<()> {
        let microseconds = i32::try_from(time.as_micros()).unwrap_or(i32::MAX);
        option::set(&self.descriptor, libc::SOL_SOCKET, SO_PREFER_BUSY_POLL, 1)?;
        option::set(&self.descriptor, libc::SOL_SOCKET, libc::SO_BUSY_POLL, microseconds)?;
        option::set(&self.descriptor, libc::SOL_SOCKET, SO_BUSY_POLL_BUDGET, i32::from(budget))
    }

    // Enlarges the socket's send buffer, beyond the system's limit if the privilege allows.
    pub(crate) fn enlarge_send_buffer(&self, bytes: i32) -> io::Result<()> {
        option::set(&self.descriptor, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, bytes)
    }

    /// Binds the socket to a queue. With `memory_owner`, it uses the memory of that socket.
    pub(crate) fn bind(&self, options: XskBind, memory_owner: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let mut flags = 0;
        let mut owner = 0;
        match memory_owner {
            // Accepts no other flag: wake-ups and copying are as for the socket that owns the
            // memory, zero-copy if the driver supports it (net/xdp/xsk.c, xsk_bind;
            // net/xdp/xsk_buff_pool.c, xp_assign_dev_shared).
            Some(socket) => {
                flags |= libc::XDP_SHARED_UMEM;
                owner = socket.as_raw_fd().cast_unsigned();
            }
            None => {
                // Without either flag the kernel tries zero-copy and falls back by itself (xp_assign_dev).
                flags |= if options.zero_copy { 0 } else { libc::XDP_COPY };
                flags |= if options.need_wakeup { libc::XDP_USE_NEED_WAKEUP } else { 0 };
            }
        }
        let address = libc::sockaddr_xdp {
            sxdp_family: libc::AF_XDP as u16,
            sxdp_flags: flags,
            sxdp_ifindex: options.interface,
            sxdp_queue_id: options.queue,
            sxdp_shared_umem_fd: owner,
        };
        // SAFETY: the address is complete, and its length is given.
        let result = unsafe {
            libc::bind(
                self.descriptor.as_raw_fd(),
                (&raw const address).cast(),
                size_of::<libc::sockaddr_xdp>() as libc::socklen_t,
            )
        };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Whether frames are not copied.
    pub(crate) fn is_zero_copy(&self) -> io::Result<bool> {
        // SAFETY: all-zero bytes are valid for a struct of integers, and XDP_OPTIONS writes no other.
        let options: libc::xdp_options = unsafe { self.get(libc::XDP_OPTIONS)? };
        Ok(options.flags & libc::XDP_OPTIONS_ZEROCOPY != 0)
    }

    /// Frames that the kernel dropped before they were in the receive ring: full ring, empty fill
    /// ring, or not valid (net/xdp/xsk.c, `xsk_getsockopt`; the ring counters since Linux 5.9).
    pub(crate) fn lost_frames(&self) -> io::Result<u64> {
        // SAFETY: all-zero bytes are valid for a struct of integers, and XDP_STATISTICS writes no
        // other.
        match unsafe { self.get::<libc::xdp_statistics>(libc::XDP_STATISTICS) } {
            Ok(counts) => Ok(counts.rx_dropped + counts.rx_ring_full + counts.rx_fill_ring_empty_descs),
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
                // SAFETY: as above.
                let counts: libc::xdp_statistics_v1 = unsafe { self.get(libc::XDP_STATISTICS)? };
                Ok(counts.rx_dropped)
            }
            Err(error) => Err(error),
        }
    }

    // Makes the kernel send the packets in the transmit ring.
    #[inline]
    pub(crate) fn kick_transmit(&self) -> io::Result<()> {
        // SAFETY: no buffer and no address.
        let result = unsafe {
            libc::syscall(
                libc::SYS_sendto,
                self.descriptor.as_raw_fd(),
                std::ptr::null::<u8>(),
                0usize,
                libc::MSG_DONTWAIT,
                std::ptr::null::<u8>(),
                0usize,
            )
        };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    // Makes the kernel check the fill ring and, with busy polling, the device.
    pub(crate) fn kick_receive(&self) -> io::Result<()> {
        // SAFETY: no buffer and no address.
        let result = unsafe {
            libc::syscall(
                libc::SYS_recvfrom,
                self.descriptor.as_raw_fd(),
                std::ptr::null_mut::<u8>(),
                0usize,
                libc::MSG_DONTWAIT,
                std::ptr::null_mut::<u8>(),
                std::ptr::null_mut::<u8>(),
            )
        };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    fn offsets(&self) -> io::Result<libc::xdp_mmap_offsets> {
        // SAFETY: all-zero bytes are valid for a struct of integers, and XDP_MMAP_OFFSETS writes no other.
        unsafe { self.get(libc::XDP_MMAP_OFFSETS) }
    }

    /// # Safety
    ///
    /// `T` must be the type that the option requires, and addresses in it must be valid for the
    /// kernel's use.
    unsafe fn set<T>(&self, option: libc::c_int, value: &T) -> io::Result<()> {
        // SAFETY: pointer and size describe `value`; the rest is the caller's promise.
        let result = unsafe {
            libc::setsockopt(
                self.descriptor.as_raw_fd(),
                libc::SOL_XDP,
                option,
                std::ptr::from_ref(value).cast(),
                size_of::<T>() as libc::socklen_t,
            )
        };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// # Safety
    ///
    /// `T` must be the type that the option returns, and all-zero bytes valid for it.
    unsafe fn get<T>(&self, option: libc::c_int) -> io::Result<T> {
        // SAFETY: the caller's promise.
        let mut value: T = unsafe { std::mem::zeroed() };
        let mut length = size_of::<T>() as libc::socklen_t;
        // SAFETY: pointer and length describe `value`.
        let result = unsafe {
            libc::getsockopt(
                self.descriptor.as_raw_fd(),
                libc::SOL_XDP,
                option,
                (&raw mut value).cast(),
                &raw mut length,
            )
        };
        match result {
            0 if length as usize == size_of::<T>() => Ok(value),
            // An older kernel has a shorter structure.
            0 => Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP)),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl AsFd for XskSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl AsRawFd for XskSocket {
    fn as_raw_fd(&self) -> i32 {
        self.descriptor.as_raw_fd()
    }
}
