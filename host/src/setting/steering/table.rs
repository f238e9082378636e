//! A reuseport group, the table that steers it, and its counts.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::netlink::sock_diag::SocketProtocol;

/// The sockets (cookies) for the packets of each CPU. Several sockets of one CPU share its flows by
/// hash. The kernel's hash decides for CPUs that are not in the table or whose sockets are closed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SteeringTable {
    pub by_cpu: BTreeMap<u32, Vec<u64>>,
    /// Whether a QUIC client stays with its socket when its address changes: known connection IDs
    /// decide the socket of a packet.
    pub follows_quic_ids: bool,
}

impl SteeringTable {
    /// Sockets of several CPUs occur several times.
    pub fn cookies(&self) -> impl Iterator<Item = u64> {
        self.by_cpu.values().flatten().copied()
    }

    /// The table with the sockets of each CPU in ascending order.
    pub(super) fn sorted(mut self) -> Self {
        self.by_cpu.values_mut().for_each(|cookies| cookies.sort_unstable());
        self
    }
}

impl fmt::Display for SteeringTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.follows_quic_ids { "by-quic-id" } else { "by-cpu" })?;
        for (cpu, cookies) in &self.by_cpu {
            let cookies: Vec<String> = cookies.iter().map(u64::to_string).collect();
            write!(f, " {cpu}:{}", cookies.join("+"))?;
        }
        Ok(())
    }
}

impl FromStr for SteeringTable {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const EXPECTED: &str =
            "'by-cpu' and the cookies of each CPU's sockets, such as 'by-cpu 0:41 1:42+43'";
        let item = |word: &str| {
            let (cpu, cookies) = word.split_once(':')?;
            let cookies: Vec<u64> = cookies.split('+').map(str::parse).collect::<Result<_, _>>().ok()?;
            Some((cpu.parse().ok()?, cookies))
        };
        let mut words = text.split_ascii_whitespace();
        let follows_quic_ids = match words.next() {
            Some("by-cpu") => false,
            Some("by-quic-id") => true,
            _ => return Err(EXPECTED),
        };
        let mut by_cpu = BTreeMap::new();
        for word in words {
            let (cpu, cookies) = item(word).ok_or(EXPECTED)?;
            if by_cpu.insert(cpu, cookies).is_some() {
                return Err(EXPECTED);
            }
        }
        if by_cpu.is_empty() { Err(EXPECTED) } else { Ok(Self { by_cpu, follows_quic_ids }) }
    }
}

pub(in crate::setting) struct ReuseportGroup {
    pub(in crate::setting) namespace: u64,
    pub(in crate::setting) protocol: SocketProtocol,
    pub(in crate::setting) local: SocketAddr,
}

impl ReuseportGroup {
    pub(super) fn address(&self) -> String {
        format!("{} {}", self.protocol.name(), self.local)
    }

    pub(super) fn call_key(&self) -> String {
        format!("steering/{}/{}", self.protocol.name(), self.local)
    }
}

/// Counts of the steering program of a group.
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
