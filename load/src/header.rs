//! The payload of a request: a fixed header, then a deterministic fill.
//!
//! An echo service returns the payload unchanged, so one layout serves requests and replies. `linerate serve echo`
//! returns it with [`REPLY`] in place of [`MAGIC`], which the checksum does not see. All fields are big endian:
//!
//! | bytes | field |
//! |---|---|
//! | 0..4 | magic and version, [`MAGIC`] |
//! | 4..8 | checksum over the length, the body and the rest of the header |
//! | 8..16 | run id: one generator's life |
//! | 16..20 | epoch: one slot of that run |
//! | 20..24 | flow: one source port of that run |
//! | 24..32 | sequence: counts up from 0 in each flow and epoch |
//! | 32..40 | intended send time, ns of `CLOCK_MONOTONIC` on the sending host |
//!
//! The checksum chains 32-bit words: each step is a bijection of the state for a given word and of
//! the word for a given state, so a change within one aligned word (for example a single byte)
//! always changes the result; wider damage is not detected once in 2^32. The body comes first in
//! the chain. It is the same for all requests of one size, so [`RequestCodec`] computes its part
//! once, and a request costs nine steps at any length.

use crate::error::GeneratorError;

/// Longest payload of a UDP datagram over IPv4: 65535 less 20 (IPv4) less 8 (UDP).
pub const MAX_PAYLOAD_BYTES: usize = 65_507;

pub use linerate_networks::echo::{HEADER_BYTES, REPLY, REQUEST as MAGIC};

/// The fields of a request that differ between requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestHeader {
    /// Identifies a generator's lifetime; random.
    pub run: u64,
    /// A slot of the run.
    pub epoch: u32,
    /// A source port of the run.
    pub flow: u32,
    /// Counts up from 0 in each flow and epoch.
    pub sequence: u64,
    /// The intended send time, ns of `CLOCK_MONOTONIC`.
    pub intended_ns: u64,
}

/// Writes and reads requests of one payload size.
#[derive(Debug, Clone)]
pub struct RequestCodec {
    /// A whole payload: a zeroed header, then the fill.
    pattern: Vec<u8>,
    /// The chain after length and fill.
    body_state: u32,
}

impl RequestCodec {
    /// `None` if `payload` is less than [`HEADER_BYTES`] or more than [`MAX_PAYLOAD_BYTES`].
    pub fn new(payload: usize) -> Option<Self> {
        if !(HEADER_BYTES..=MAX_PAYLOAD_BYTES).contains(&payload) {
            return None;
        }
        let mut pattern = vec![0; payload];
        for (offset, byte) in pattern.iter_mut().enumerate().skip(HEADER_BYTES) {
            *byte = fill_byte(offset);
        }
        let body_state = body_state(&pattern);
        Some(RequestCodec { pattern, body_state })
    }

    pub(crate) fn for_payload(payload: usize) -> Result<Self, GeneratorError> {
        RequestCodec::new(payload).ok_or_else(|| payload_too_large(payload))
    }

    pub fn payload_bytes(&self) -> usize {
        self.pattern.len()
    }

    /// A payload with its fill in place, ready for [`RequestCodec::write`].
    pub fn blank(&self) -> Vec<u8> {
        self.pattern.clone()
    }

    /// The chain after length and fill.
    pub(crate) fn body_state(&self) -> u32 {
        self.body_state
    }

    /// The chain up to the flow; sequence and intended time are added later.
    pub(crate) fn state_of_flow(&self, run: u64, epoch: u32, flow: u32) -> u32 {
        let words = [u32::from_be_bytes(MAGIC), (run >> 32) as u32, run as u32, epoch, flow];
        words.into_iter().fold(self.body_state, step)
    }

    /// Writes the header into a buffer that has the fill already. A buffer shorter than the header
    /// stays unchanged.
    #[inline]
    pub fn write(&self, header: &RequestHeader, payload: &mut [u8]) {
        let Some(bytes) = payload.first_chunk_mut::<HEADER_BYTES>() else { return };
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[8..16].copy_from_slice(&header.run.to_be_bytes());
        bytes[16..20].copy_from_slice(&header.epoch.to_be_bytes());
        bytes[20..24].copy_from_slice(&header.flow.to_be_bytes());
        bytes[24..32].copy_from_slice(&header.sequence.to_be_bytes());
        bytes[32..40].copy_from_slice(&header.intended_ns.to_be_bytes());
        let checksum = header_state(self.body_state, bytes);
        bytes[4..8].copy_from_slice(&checksum.to_be_bytes());
    }

    /// Reads an intact request of any size back; `None` if the bytes are not one.
    ///
    /// For this codec's own size the fill is compared, which is quick and detects every changed
    /// byte; for another size (of a foreign sender) it is summed.
    #[inline]
    pub fn read(&self, payload: &[u8]) -> Option<RequestHeader> {
        let bytes = payload.first_chunk::<HEADER_BYTES>()?;
        if bytes[..4] != MAGIC && bytes[..4] != REPLY {
            return None;
        }
        let body_state = if payload.len() != self.pattern.len() {
            body_state(payload)
        } else if payload[HEADER_BYTES..] == self.pattern[HEADER_BYTES..] {
            self.body_state
        } else {
            return None;
        };
        if header_state(body_state, bytes).to_be_bytes() != bytes[4..8] {
            return None;
        }
        let (words, _) = bytes.as_chunks::<8>();
        let [run, epoch_and_flow, sequence, intended_ns] =
            [1, 2, 3, 4].map(|word| u64::from_be_bytes(words[word]));
        let (epoch, flow) = ((epoch_and_flow >> 32) as u32, epoch_and_flow as u32);
        Some(RequestHeader { run, epoch, flow, sequence, intended_ns })
    }
}

pub(crate) fn payload_too_large(payload: usize) -> GeneratorError {
    GeneratorError::Invalid(format!(
        "payload of {payload} bytes is larger than a UDP datagram holds ({MAX_PAYLOAD_BYTES} bytes)"
    ))
}

// The fill at an offset. No run of equal bytes, so that a shifted body is detected.
pub(crate) fn fill_byte(offset: usize) -> u8 {
    let mixed = (offset as u32).wrapping_mul(0x9E37_79B1);
    (mixed >> 24) as u8
}

/// One step of the chain.
#[inline]
fn step(state: u32, word: u32) -> u32 {
    // Odd multiplier and rotation: both are bijections of 32 bits.
    (state ^ word).wrapping_mul(0x85EB_CA6B).rotate_left(15)
}

/// The chain over the length and everything behind the header.
fn body_state(payload: &[u8]) -> u32 {
    let mut state = step(0x4C4E_5200, payload.len() as u32);
    let body = payload.get(HEADER_BYTES..).unwrap_or_default();
    let (words, tail) = body.as_chunks::<4>();
    for word in words {
        state = step(state, u32::from_be_bytes(*word));
    }
    // The length is in the chain, so a zero-filled last word is not ambiguous.
    let mut last_word = [0; 4];
    last_word[..tail.len()].copy_from_slice(tail);
    step(state, u32::from_be_bytes(last_word))
}

/// Finishes the chain with the header, without the checksum's own place. A reply has the checksum
/// of its request.
#[inline]
fn header_state(mut state: u32, bytes: &[u8; HEADER_BYTES]) -> u32 {
    let (words, _) = bytes.as_chunks::<4>();
    state = step(state, u32::from_be_bytes(MAGIC));
    for word in &words[2..] {
        state = step(state, u32::from_be_bytes(*word));
    }
    state
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn headers() -> impl Strategy<Value = RequestHeader> {
        (any::<u64>(), any::<u32>(), any::<u32>(), any::<u64>(), any::<u64>()).prop_map(
            |(run, epoch, flow, sequence, intended_ns)| RequestHeader {
                run,
                epoch,
                flow,
                sequence,
                intended_ns,
            },
        )
    }

    proptest! {
        #[test]
        fn written_headers_parse_to_the_same_value(header in headers(), payload in HEADER_BYTES..600) {
            let codec = RequestCodec::new(payload).unwrap();
            let mut bytes = codec.blank();
            codec.write(&header, &mut bytes);
            prop_assert_eq!(codec.read(&bytes), Some(header));
            bytes[..4].copy_from_slice(&REPLY);
            prop_assert_eq!(codec.read(&bytes), Some(header), "as a reply");
            // A codec of another size reads it, too, so unsolicited replies do not count as corrupt.
            prop_assert_eq!(RequestCodec::new(HEADER_BYTES + 600).unwrap().read(&bytes), Some(header));
        }

        #[test]
        fn a_payload_with_a_changed_byte_is_refused(
            header in headers(), payload in HEADER_BYTES..200, flip in 1..=255u8,
        ) {
            let codec = RequestCodec::new(payload).unwrap();
            let other_size = RequestCodec::new(HEADER_BYTES + 200).unwrap();
            let mut bytes = codec.blank();
            codec.write(&header, &mut bytes);
            for at in 0..payload {
                bytes[at] ^= flip;
                prop_assert!(codec.read(&bytes).is_none(), "byte {}", at);
                prop_assert!(other_size.read(&bytes).is_none(), "byte {}, codec of another size", at);
                bytes[at] ^= flip;
            }
        }

        #[test]
        fn a_payload_with_a_changed_length_is_refused(header in headers(), payload in HEADER_BYTES..200) {
            let codec = RequestCodec::new(payload).unwrap();
            let mut bytes = codec.blank();
            codec.write(&header, &mut bytes);
            prop_assert!(codec.read(&bytes[..payload - 1]).is_none());
            bytes.push(0);
            prop_assert!(codec.read(&bytes).is_none());
        }
    }

    #[test]
    fn header_checksum_can_continue_from_the_flow_state() {
        let codec = RequestCodec::new(77).unwrap();
        let header = RequestHeader {
            run: 0x0123_4567_89ab_cdef,
            epoch: 7,
            flow: 9,
            sequence: 1 << 40,
            intended_ns: 1 << 50,
        };
        let mut bytes = codec.blank();
        codec.write(&header, &mut bytes);
        let words = [1 << 8, 0, 1 << 18, 0];
        let state = words.into_iter().fold(codec.state_of_flow(header.run, 7, 9), step);
        assert_eq!(bytes[4..8], state.to_be_bytes());
    }

    #[test]
    fn payload_sizes_out_of_range_are_refused() {
        assert!(RequestCodec::new(HEADER_BYTES - 1).is_none());
        assert!(RequestCodec::new(HEADER_BYTES).is_some());
        assert!(RequestCodec::new(MAX_PAYLOAD_BYTES).is_some());
        assert!(RequestCodec::new(MAX_PAYLOAD_BYTES + 1).is_none());
    }
}
