//! Counts of the steering program of a group.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::{ReuseportGroup, live};
use crate::stage::socket::SocketProtocol;
use crate::{Host, HostError};

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

/// Counts of linerate's program since it was attached, and per socket since it was added; `None` if
/// it is not attached.
///
/// # Errors
/// As for reading [`crate::Setting::Steering`]: [`HostError::is_gone`] if no socket is bound to the
/// address, and another error if the calling thread is in another network namespace.
pub fn steered(
    host: &Host,
    namespace: u64,
    protocol: SocketProtocol,
    local: SocketAddr,
) -> Result<Option<SteeredSockets>, HostError> {
    let group = ReuseportGroup { namespace, protocol, local };
    let what = format!("reading what the steering program of {} did", group.address());
    host.call(&format!("steered/{}/{local}", protocol.name()), &what, || live::steered(&group))
}
