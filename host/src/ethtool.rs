//! Values that drivers report through ethtool.

pub(crate) mod feature_names;

use serde::{Deserialize, Serialize};

/// `ethtool -i`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkDriver {
    pub name: String,
    /// In-tree drivers report the kernel's version.
    #[serde(default)]
    pub version: String,
    #[serde(default)]
    pub firmware: String,
    /// Such as `0000:01:00.0`.
    #[serde(default)]
    pub bus: String,
}

/// Interrupts with their queues, by kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ChannelCounts {
    pub rx: u32,
    pub tx: u32,
    /// Receive and transmit.
    pub combined: u32,
    /// The limits of the device.
    pub rx_max: u32,
    pub tx_max: u32,
    pub combined_max: u32,
}

/// In descriptors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RingLengths {
    pub rx: u32,
    pub tx: u32,
    /// The limits of the device.
    pub rx_max: u32,
    pub tx_max: u32,
}

/// `None` if the driver does not report a parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct CoalesceSettings {
    /// Microseconds until an interrupt after a received packet.
    pub rx_usecs: Option<u32>,
    /// Packets until an interrupt.
    pub rx_frames: Option<u32>,
    /// Microseconds until an interrupt after a sent packet.
    pub tx_usecs: Option<u32>,
    /// Packets until an interrupt.
    pub tx_frames: Option<u32>,
    /// Whether the driver adapts the receive side to load.
    pub adaptive_rx: Option<bool>,
    pub adaptive_tx: Option<bool>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HashFunction {
    /// `toeplitz`, `xor`, `crc32`.
    pub function: String,
    /// Hexadecimal.
    #[serde(default)]
    pub key: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct HashFields {
    pub source_address: bool,
    pub destination_address: bool,
    /// Bytes 0 and 1 of the layer 4 header.
    pub source_port: bool,
    /// Bytes 2 and 3.
    pub destination_port: bool,
    /// Other bits of `RXH_...` in linux/ethtool.h, such as the VLAN.
    #[serde(skip_serializing_if = "is_zero")]
    pub others: u32,
}

/// The driver's answer about table and hash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndirectionInfo {
    /// The queue of each entry; empty without a table.
    pub table: Vec<u32>,
    #[serde(default)]
    pub hash: Option<HashFunction>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NtupleRule {
    /// Index in the driver's table.
    pub location: u32,
    /// `udp4`, `ether`, ...
    pub flow: String,
    /// `None` if it drops, goes to a virtual function, or uses an RSS context.
    pub queue: Option<u32>,
    /// Whether it uses a further table, an RSS context (Linux 4.18).
    #[serde(default)]
    pub rss_context: bool,
    /// The destination port; `None` for any.
    #[serde(default)]
    pub destination_port: Option<u16>,
}

/// Bits of linux/ethtool.h for the named fields.
const SOURCE_ADDRESS: u32 = 1 << 4;

const DESTINATION_ADDRESS: u32 = 1 << 5;

const SOURCE_PORT: u32 = 1 << 6;

const DESTINATION_PORT: u32 = 1 << 7;

/// The letters of `ethtool -N IF rx-flow-hash FLOW LETTERS`.
const LETTERS: [(char, u32); 10] = [
    ('m', 1 << 1),
    ('v', 1 << 2),
    ('t', 1 << 3),
    ('s', SOURCE_ADDRESS),
    ('d', DESTINATION_ADDRESS),
    ('f', SOURCE_PORT),
    ('n', DESTINATION_PORT),
    ('e', 1 << 8),
    ('l', 1 << 9),
    ('r', 1 << 31),
];

impl HashFields {
    /// From `RXH_...` bits.
    pub fn from_bits(bits: u32) -> Self {
        Self {
            source_address: bits & SOURCE_ADDRESS != 0,
            destination_address: bits & DESTINATION_ADDRESS != 0,
            source_port: bits & SOURCE_PORT != 0,
            destination_port: bits & DESTINATION_PORT != 0,
            others: bits & !(SOURCE_ADDRESS | DESTINATION_ADDRESS | SOURCE_PORT | DESTINATION_PORT),
        }
    }

    /// As `RXH_...` bits.
    pub fn bits(self) -> u32 {
        let bit = |set: bool, bit: u32| if set { bit } else { 0 };
        bit(self.source_address, SOURCE_ADDRESS)
            | bit(self.destination_address, DESTINATION_ADDRESS)
            | bit(self.source_port, SOURCE_PORT)
            | bit(self.destination_port, DESTINATION_PORT)
            | self.others
    }

    /// From letters of ethtool(8); `None` for an unknown letter.
    pub fn from_letters(letters: &str) -> Option<Self> {
        let bit = |letter| LETTERS.iter().find(|(known, _)| *known == letter).map(|(_, bit)| *bit);
        letters.chars().try_fold(0, |bits, letter| Some(bits | bit(letter)?)).map(Self::from_bits)
    }

    /// As letters. Bits without a letter are left out.
    pub fn letters(self) -> String {
        LETTERS.iter().filter(|(_, bit)| self.bits() & bit != 0).map(|(letter, _)| letter).collect()
    }

    pub fn has_addresses(self) -> bool {
        self.source_address || self.destination_address
    }

    pub fn has_ports(self) -> bool {
        self.source_port || self.destination_port
    }
}

fn is_zero(value: &u32) -> bool {
    *value == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_fields_convert_from_and_to_ethtool_letters() {
        let fields = HashFields::from_letters("sdfn").expect("letters");
        assert!(fields.has_addresses() && fields.has_ports());
        assert_eq!((fields.bits(), fields.letters().as_str()), (0xf0, "sdfn"));
        let with_vlan = HashFields::from_letters("dsv").expect("letters");
        assert_eq!((with_vlan.others, with_vlan.letters().as_str()), (4, "vsd"));
        assert!(!with_vlan.has_ports());
        for (fields, has_others) in [(fields, false), (with_vlan, true)] {
            let json = serde_json::to_string(&fields).expect("written");
            assert_eq!(json.contains("others"), has_others, "{json}");
            assert_eq!(serde_json::from_str::<HashFields>(&json).expect("read"), fields);
        }
        assert_eq!(HashFields::from_letters("sdx"), None);
        assert_eq!(HashFields::from_bits(u32::MAX).bits(), u32::MAX);
    }
}
