//! What the program of a steered group did.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::{ReuseportGroup, live};
use crate::stage::socket::SocketProtocol;
use crate::{Host, HostError};

/// A group that linerate's program steers.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SteeredSockets {
    /// Cookies of the sockets that are meant to get the packets of each CPU.
    pub by_cpu: BTreeMap<u32, Vec<u64>>,
    /// Those sockets.
    pub sockets: Vec<SteeredSocket>,
    /// Packets by the CPU they came by that were left to the kernel's hash, since none of the CPU's sockets is there or the CPU
    /// has none.
    pub hashed_by_cpu: BTreeMap<u32, u64>,
}

/// A socket of a table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SteeredSocket {
    /// Its cookie.
    pub cookie: u64,
    /// Whether it is there. One that was closed is not; packets that were for it go to others.
    pub present: bool,
    /// Packets it got by the program's choice, by the CPU they came by; CPUs without any are left out. For TCP, connections.
    pub packets_by_cpu: BTreeMap<u32, u64>,
}

/// What linerate's program did in a group since it was attached, a socket since it was taken in; none where it is not there.
///
/// # Errors
/// As of reading [`crate::Setting::Steering`]: [`HostError::is_gone`] where no socket is bound to the address, and another where the
/// calling thread is in another network namespace than this.
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
