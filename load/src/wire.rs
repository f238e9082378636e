//! Wire arithmetic: the cost of a UDP payload on an Ethernet link, and the packet rate of a link.

mod delay;
mod speed;

use serde::{Deserialize, Serialize};

pub use delay::{DelayParts, DelayPath};
pub use speed::{LinkSpeed, SpeedError};

/// Bytes that each frame uses on the wire in addition to itself: preamble 7, delimiter 1, gap 12
/// (IEEE 802.3).
pub const FRAME_OVERHEAD_BYTES: u64 = 20;

/// The shortest frame, bytes, frame check sequence included (IEEE 802.3).
pub const SHORTEST_FRAME_BYTES: u64 = 64;

/// The default MTU of Ethernet, bytes.
pub const ETHERNET_MTU_BYTES: u32 = 1_500;

const ETHERNET_BYTES: u64 = 14;
const CHECK_SEQUENCE_BYTES: u64 = 4;
const VLAN_TAG_BYTES: u64 = 4;
const UDP_BYTES: u64 = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IpVersion {
    /// IPv4, header of 20 bytes.
    V4,
    /// IPv6, header of 40 bytes.
    V6,
}

impl IpVersion {
    fn header_bytes(self) -> u64 {
        match self {
            IpVersion::V4 => 20,
            IpVersion::V6 => 40,
        }
    }

    // Bytes of each fragment in addition to the IP header: IPv6 has a fragment header (RFC 8200,
    // 4.5).
    fn fragment_bytes(self) -> u64 {
        match self {
            IpVersion::V4 => 0,
            IpVersion::V6 => 8,
        }
    }

    // The smallest MTU a link may have (RFC 791, RFC 8200).
    fn least_mtu_bytes(self) -> u32 {
        match self {
            IpVersion::V4 => 68,
            IpVersion::V6 => 1_280,
        }
    }
}

/// Why there is no such datagram or link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// More payload than a UDP datagram can hold.
    #[error("payload of {payload} bytes: a UDP datagram of this IP version holds at most {most}")]
    PayloadTooLarge { payload: u32, most: u32 },
    /// An MTU no link of the family may have.
    #[error("MTU of {mtu} bytes: this IP version needs at least {least}")]
    MtuTooSmall { mtu: u32, least: u32 },
    /// More tags than frames carry.
    #[error("{0} VLAN tags: frames carry at most 8 here")]
    TooManyTags(u32),
}

/// A UDP payload on an Ethernet link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WireFormat {
    payload_bytes: u32,
    family: IpVersion,
    vlan_tags: u32,
    link: LinkSpeed,
    mtu_bytes: u32,
}

/// All the figures of a [`WireFormat`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WireFigures {
    pub payload_bytes: u32,
    pub family: IpVersion,
    /// VLAN tags a frame.
    pub vlan_tags: u32,
    /// MTU, IP header included.
    pub mtu_bytes: u32,
    pub link_bits_per_second: u64,
    /// Frames the datagram takes; more than one if it is fragmented.
    pub frames: u64,
    /// Each frame's length, frame check sequence included, in order.
    pub frame_bytes: Vec<u64>,
    /// All frames on the wire, preamble and gap included.
    pub wire_bytes: u64,
    /// The same in bits.
    pub wire_bits: u64,
    /// Datagrams the link carries in one direction, rounded down.
    pub datagrams_per_second: u64,
    /// Frames the link carries then, rounded down.
    pub frames_per_second: u64,
    /// Payload it carries then.
    pub payload_bits_per_second: f64,
    /// Time from one datagram to the next at line rate: the budget to process one.
    pub budget_ns: f64,
}

/// Packets that a link carries, and the time per packet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LinkCapacity {
    #[serde(flatten)]
    pub figures: WireFigures,
    /// Frames of [`SHORTEST_FRAME_BYTES`] that the link carries: no packet rate is higher.
    pub shortest_frames_per_second: u64,
    /// The requested rate; `None` without one.
    pub at_rate: Option<AtRate>,
    /// One-way delay of one packet.
    pub delay: DelayParts,
}

/// A rate of transactions compared with the line rate.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct AtRate {
    pub transactions_per_second: f64,
    /// In one direction.
    pub wire_bits_per_second: f64,
    pub line_rate_ratio: f64,
}

impl WireFormat {
    /// A payload over a link with the usual MTU of 1500 bytes.
    ///
    /// # Errors
    ///
    /// More payload than a datagram holds (65507 bytes over IPv4, 65527 over IPv6), or more than 8
    /// VLAN tags.
    pub fn new(
        payload_bytes: u32,
        family: IpVersion,
        vlan_tags: u32,
        link: LinkSpeed,
    ) -> Result<Self, WireError> {
        let most = match family {
            IpVersion::V4 => 65_507,
            IpVersion::V6 => 65_527,
        };
        if payload_bytes > most {
            return Err(WireError::PayloadTooLarge { payload: payload_bytes, most });
        }
        if vlan_tags > 8 {
            return Err(WireError::TooManyTags(vlan_tags));
        }
        Ok(WireFormat { payload_bytes, family, vlan_tags, link, mtu_bytes: ETHERNET_MTU_BYTES })
    }

    /// The payload over a link with another MTU, IP header included.
    ///
    /// # Errors
    ///
    /// An MTU below the minimum of the IP version.
    pub fn with_mtu(self, mtu_bytes: u32) -> Result<Self, WireError> {
        let least = self.family.least_mtu_bytes();
        if mtu_bytes < least {
            return Err(WireError::MtuTooSmall { mtu: mtu_bytes, least });
        }
        Ok(WireFormat { mtu_bytes, ..self })
    }

    /// The length of each frame, bytes, frame check sequence included: several if the datagram is fragmented.
    pub fn frame_bytes(&self) -> Vec<u64> {
        let data = UDP_BYTES + u64::from(self.payload_bytes);
        let header = self.family.header_bytes();
        let mtu = u64::from(self.mtu_bytes);
        if header + data <= mtu {
            return vec![self.frame(header + data)];
        }
        let header = header + self.family.fragment_bytes();
        // All fragments but the last carry a multiple of 8 bytes (RFC 791, RFC 8200).
        let full_fragment = (mtu - header) / 8 * 8;
        let mut frames = Vec::new();
        let mut remaining = data;
        while remaining > mtu - header {
            frames.push(self.frame(header + full_fragment));
            remaining -= full_fragment;
        }
        frames.push(self.frame(header + remaining));
        frames
    }

    /// Bits that the datagram uses on the wire, all frames with preamble and gap.
    pub fn wire_bits(&self) -> u64 {
        self.frame_bytes().iter().map(|frame| (frame + FRAME_OVERHEAD_BYTES) * 8).sum()
    }

    /// Bits per second on the wire, in one direction.
    pub fn wire_bits_per_second(&self, transactions_per_second: f64) -> f64 {
        self.wire_bits() as f64 * transactions_per_second
    }

    /// The share of the link's line rate at this transaction rate.
    pub fn line_rate_ratio(&self, transactions_per_second: f64) -> f64 {
        self.wire_bits_per_second(transactions_per_second) / self.link.bits_per_second() as f64
    }

    /// Datagrams per second that the link carries in one direction, rounded down.
    pub fn datagrams_per_second(&self) -> u64 {
        self.link.bits_per_second() / self.wire_bits()
    }

    /// The delays of one datagram along `path`.
    pub fn delays(&self, path: &DelayPath) -> DelayParts {
        DelayParts::new(self.wire_bits(), self.link, path)
    }

    /// All the figures at once.
    pub fn figures(&self) -> WireFigures {
        let frame_bytes = self.frame_bytes();
        let wire_bits = self.wire_bits();
        let link = self.link.bits_per_second();
        let frames = frame_bytes.len() as u64;
        let datagrams = link as f64 / wire_bits as f64;
        WireFigures {
            payload_bytes: self.payload_bytes,
            family: self.family,
            vlan_tags: self.vlan_tags,
            mtu_bytes: self.mtu_bytes,
            link_bits_per_second: link,
            frames,
            frame_bytes,
            wire_bytes: wire_bits / 8,
            wire_bits,
            datagrams_per_second: self.datagrams_per_second(),
            frames_per_second: (u128::from(link) * u128::from(frames) / u128::from(wire_bits)) as u64,
            payload_bits_per_second: datagrams * f64::from(self.payload_bytes) * 8.0,
            budget_ns: 1e9 / datagrams,
        }
    }

    fn frame(&self, packet_bytes: u64) -> u64 {
        let tags = u64::from(self.vlan_tags) * VLAN_TAG_BYTES;
        (ETHERNET_BYTES + tags + packet_bytes + CHECK_SEQUENCE_BYTES).max(SHORTEST_FRAME_BYTES)
    }
}

#[cfg(test)]
mod tests;
