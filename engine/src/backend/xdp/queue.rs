//! One queue's socket and rings, and what a worker has of them.

use std::io;
use std::sync::Arc;

use super::program::XskProgram;
use crate::sys::xsk::{SocketRings, Umem, XdpDescriptor, XskSocket};

/// What a worker serves by AF_XDP. Sockets close before the memory goes and the programs are taken off, so that what
/// arrives meanwhile passes to the stack.
#[derive(Debug)]
pub(crate) struct WorkerQueues {
    pub(super) queues: Vec<XskQueue>,
    pub(super) frames: FramePool,
    pub(super) batch: u32,
    pub(super) verify_checksums: bool,
    pub(super) busy_poll: bool,
    pub(super) _programs: Arc<Vec<XskProgram>>,
}

/// The memory of frames, and those that neither ring nor device has.
#[derive(Debug)]
pub(super) struct FramePool {
    pub(super) umem: Umem,
    pub(super) free: Vec<u64>,
}

impl FramePool {
    /// All of them free; the lowest is taken first.
    pub(super) fn new(umem: Umem) -> Self {
        let step = u64::from(umem.frame_bytes());
        let count = umem.bytes() as u64 / step;
        Self { free: (0..count).rev().map(|index| index * step).collect(), umem }
    }

    /// Takes a frame back, by any address in it.
    #[inline]
    pub(super) fn recycle(&mut self, address: u64) {
        self.free.push(address & !(u64::from(self.umem.frame_bytes()) - 1));
    }
}

/// A device queue.
#[derive(Debug)]
pub(super) struct XskQueue {
    pub(super) socket: XskSocket,
    pub(super) rings: SocketRings,
    /// Index of the interface.
    pub(super) interface: u32,
    /// Bytes of the largest IP packet it sends.
    pub(super) mtu: usize,
    /// Whether senders on this machine leave checksums unfinished here.
    pub(super) unfinished_checksums: bool,
    pub(super) need_wakeup: bool,
    /// Frames that the kernel has for packets to come, and packets we have not taken.
    pub(super) waiting: u32,
    /// How many of them there should be.
    pub(super) wanted: u32,
    /// The packet that the service is asked about.
    pub(super) in_hand: Option<u64>,
    /// Whether the interface has gone: the socket is of no more use.
    pub(super) gone: bool,
}

impl XskQueue {
    /// Takes sent frames back, and gives the kernel frames for packets to come.
    #[inline]
    pub(super) fn restock(&mut self, frames: &mut FramePool) {
        let completion = &mut self.rings.completion;
        if completion.available() > 0 {
            while let Some(address) = completion.take() {
                frames.recycle(address);
            }
            completion.release();
        }
        if self.waiting >= self.wanted {
            return;
        }
        while self.waiting < self.wanted {
            let Some(address) = frames.free.pop() else { break };
            if !self.rings.fill.push(address) {
                frames.free.push(address);
                break;
            }
            self.waiting += 1;
        }
        self.rings.fill.submit();
    }

    /// The next packet of those that the ring was seen to have, and has the CPU fetch one that comes soon after.
    #[inline]
    pub(super) fn take(&mut self, frames: &FramePool) -> Option<XdpDescriptor> {
        if let Some(soon) = self.rings.receive.peek(AHEAD) {
            frames.umem.prefetch(soon.address);
        }
        let taken = self.rings.receive.take()?;
        self.waiting = self.waiting.saturating_sub(1);
        Some(taken)
    }

    /// Has the kernel send what is in the ring, in as many calls as it takes; returns how many were made.
    #[inline]
    pub(super) fn send(&mut self) -> u64 {
        let mut calls = 0;
        let mut left = self.rings.transmit.pending();
        while left > 0 && (!self.need_wakeup || self.rings.transmit.needs_wakeup()) {
            calls += 1;
            let outcome = self.socket.kick_transmit();
            let before = std::mem::replace(&mut left, self.rings.transmit.pending());
            match outcome {
                Ok(()) => break,
                Err(error) => match error.raw_os_error() {
                    Some(libc::EINTR) => {}
                    // EAGAIN: that many were enough for a call. EBUSY: the device dropped one (net/xdp/xsk.c,
                    // __xsk_generic_xmit). Without progress the rest waits for the next time.
                    Some(libc::EAGAIN | libc::EBUSY | libc::ENOBUFS) if left < before => {}
                    Some(libc::ENXIO | libc::EBADF) => {
                        self.gone = true;
                        break;
                    }
                    _ => break,
                },
            }
        }
        calls
    }

    /// Has the kernel look at the fill ring where it asks for that.
    #[inline]
    pub(super) fn wake_receive(&mut self) -> u64 {
        if !self.need_wakeup || !self.rings.fill.needs_wakeup() {
            return 0;
        }
        self.poll_device()
    }

    /// Has the kernel poll the device, where busy polling is on.
    pub(super) fn poll_device(&mut self) -> u64 {
        // An interface that is down says so (ENETDOWN), and is asked again the next time.
        let gone = |error: io::Error| error.raw_os_error() == Some(libc::ENXIO);
        self.gone |= self.socket.kick_receive().is_err_and(gone);
        1
    }
}

/// How many packets ahead the CPU fetches.
const AHEAD: u32 = 3;
