//! Counts of the steering program of a group.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SteeredSockets {
    /// Cookies of the intended sockets, by CPU.
    pub by_cpu: BTreeMap<u32, Vec<u64>>,
    pub sockets: Vec<SteeredSocket>,
    /// Packets by arrival CPU that were left to the kernel's hash, because the CPU has no open
    /// socket in the table.
    pub hashed_by_cpu: BTreeMap<u32, u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SteeredSocket {
    pub cookie: u64,
    /// Whether it is open. Packets for a closed one go to others.
    pub present: bool,
    /// Packets sent to it by the program, by arrival CPU, without zeros. For TCP, connections.
    pub packets_by_cpu: BTreeMap<u32, u64>,
}
