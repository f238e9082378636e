//! The socket and rings of a queue, and the queues of a worker.

use std::io;
use std::sync::Arc;

use super::program::XskProgram;
use crate::sys::xsk::{SocketRings, Umem, XdpDescriptor, XskSocket};

// The queues of a worker. The sockets are closed before the memory is unmapped and the programs are detached, so packets
// that arrive in the meantime pass to the stack.
#[derive(Debug)]
pub(crate) struct WorkerQueues {
    pub(super) queues: Vec<XskQueue>,
    pub(super) frames: FramePool,
    pub(super) batch: u32,
    pub(super) verify_checksums: bool,
    pub(super) busy_poll: bool,
    pub(super) _programs: Arc<Vec<XskProgram>>,
}

/// The memory of frames, and the frames that neither ring nor device has.
#[derive(Debug)]
pub(super) struct FramePool {
    pub(super) umem: Umem,
    pub(super) free: Vec<u64>,
}

impl FramePool {
    /// All frames are free; the lowest is taken first.
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

#[derive(Debug)]
pub(super) struct XskQueue {
    // The only strong reference: the server reads its counters while the worker runs.
    pub(super) socket: Arc<XskSocket>,
    pub(super) rings: SocketRings,
    pub(super) interface: u32,
    /// Bytes of the largest IP packet it sends.
    pub(super) mtu: usize,
    /// Whether senders on this host leave checksums unfinished on this interface.
    pub(super) unfinished_checksums: bool,
    pub(super) need_wakeup: bool,
    // Frames that the kernel holds for packets, and received packets that are not yet taken.
    pub(super) waiting: u32,
    /// Target of `waiting`.
    pub(super) wanted: u32,
    /// The packet at the service.
    pub(super) in_hand: Option<u64>,
    /// Whether the interface was removed.
    pub(super) gone: bool,
}

impl XskQueue {
    // Takes sent frames back, and gives the kernel frames for packets to come.
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

    /// Takes the next available packet, and prefetches a later one.
    #[inline]
    pub(super) fn take(&mut self, frames: &FramePool) -> Option<XdpDescriptor> {
        if let Some(next_descriptor) = self.rings.receive.peek(AHEAD) {
            frames.umem.prefetch(next_descriptor.address);
        }
        let descriptor = self.rings.receive.take()?;
        self.waiting = self.waiting.saturating_sub(1);
        Some(descriptor)
    }

    // Makes the kernel send all frames in the ring; returns the number of calls.
    #[inline]
    pub(super) fn send(&mut self) -> u64 {
        let mut calls = 0;
        let mut unsent = self.rings.transmit.pending();
        while unsent > 0 && (!self.need_wakeup || self.rings.transmit.needs_wakeup()) {
            calls += 1;
            let outcome = self.socket.kick_transmit();
            let unsent_before = std::mem::replace(&mut unsent, self.rings.transmit.pending());
            match outcome {
                Ok(()) => break,
                Err(error) => match error.raw_os_error() {
                    Some(libc::EINTR) => {}
                    // EAGAIN: the call sent as many frames as it may. EBUSY: the device dropped a
                    // frame (net/xdp/xsk.c, __xsk_generic_xmit). Without progress the other frames
                    // wait for the next time.
                    Some(libc::EAGAIN | libc::EBUSY | libc::ENOBUFS) if unsent < unsent_before => {}
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

    // Makes the kernel read the fill ring if it needs a call; returns the number of calls.
    #[inline]
    pub(super) fn wake_receive(&mut self) -> u64 {
        if !self.need_wakeup || !self.rings.fill.needs_wakeup() {
            return 0;
        }
        self.poll_device()
    }

    // Makes the kernel poll the device, with busy polling.
    pub(super) fn poll_device(&mut self) -> u64 {
        // An interface that is down (ENETDOWN) may come back.
        let is_gone = |error: io::Error| error.raw_os_error() == Some(libc::ENXIO);
        self.gone |= self.socket.kick_receive().is_err_and(is_gone);
        1
    }
}

/// Distance of prefetched packets.
const AHEAD: u32 = 3;
