//! RPS and XPS: the CPUs a queue of an interface is bound to.
//!
//! `rps_cpus` (Linux 2.6.35) names the CPUs that process what a receive queue took in; `xps_cpus`
//! (2.6.38) the CPUs whose packets leave by a transmit queue. Documentation/networking/scaling.rst.
//! Both need `CAP_NET_ADMIN` in the initial user namespace.

use serde::{Deserialize, Serialize};

use super::Value;
use crate::{CpuSet, Host, HostError};

/// Which way a queue carries packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QueueDirection {
    /// A receive queue, `rx-N`.
    Receive,
    /// A transmit queue, `tx-N`.
    Transmit,
}

pub(super) fn file(direction: QueueDirection, queue: u32) -> String {
    match direction {
        QueueDirection::Receive => format!("rx-{queue}/rps_cpus"),
        QueueDirection::Transmit => format!("tx-{queue}/xps_cpus"),
    }
}

pub(super) fn read(
    host: &Host,
    interface: &str,
    direction: QueueDirection,
    queue: u32,
) -> Result<Value, HostError> {
    host.read(&path(interface, direction, queue)).map(Value::new)
}

pub(super) fn write(
    host: &Host,
    interface: &str,
    direction: QueueDirection,
    queue: u32,
    cpus: &CpuSet,
) -> Result<(), HostError> {
    host.write(&path(interface, direction, queue), &cpus.to_mask())
}

pub(super) fn path(interface: &str, direction: QueueDirection, queue: u32) -> String {
    format!("/sys/class/net/{interface}/queues/{}", file(direction, queue))
}
