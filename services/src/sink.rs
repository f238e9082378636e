//! The sink: counts datagrams and sends nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use linerate_engine::{Action, Request, Service};

// Ethernet header 14, checksum 4, and the UDP header 8.
const FRAME_AND_UDP_BYTES: usize = 26;
// The shortest frame, checksum included (IEEE 802.3).
const SHORTEST_FRAME_BYTES: usize = 64;
// Preamble, delimiter and gap of each frame (IEEE 802.3).
const BETWEEN_FRAMES_BYTES: usize = 20;

/// Bytes that one worker's sink received. Aligned to 128 bytes, because some CPUs fetch cache lines in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct SinkBytes {
    payload: AtomicU64,
    wire: AtomicU64,
}

impl SinkBytes {
    /// UDP payload.
    #[must_use]
    pub fn payload(&self) -> u64 {
        self.payload.load(Relaxed)
    }

    /// Bytes on an Ethernet wire, with preamble and gap. Every datagram counts as one frame without VLAN tag.
    #[must_use]
    pub fn wire(&self) -> u64 {
        self.wire.load(Relaxed)
    }
}

/// Counts the bytes of every datagram in `bytes`, and answers none.
#[derive(Debug, Clone, Default)]
pub struct SinkService {
    bytes: Arc<SinkBytes>,
}

impl SinkService {
    #[must_use]
    pub fn new(bytes: Arc<SinkBytes>) -> Self {
        Self { bytes }
    }
}

impl Service for SinkService {
    #[inline]
    fn answer(&mut self, request: &Request<'_>, _reply: &mut [u8]) -> Action {
        let payload = request.payload().len();
        let ip_header = if request.source().is_ipv4() { 20 } else { 40 };
        let frame = (payload + ip_header + FRAME_AND_UDP_BYTES).max(SHORTEST_FRAME_BYTES);
        // One worker writes, so a load and a store suffice.
        let add =
            |counter: &AtomicU64, bytes: usize| counter.store(counter.load(Relaxed) + bytes as u64, Relaxed);
        add(&self.bytes.payload, payload);
        add(&self.bytes.wire, frame + BETWEEN_FRAMES_BYTES);
        Action::Drop
    }
}
