//! NAPI instances from the netdev family.

use super::NapiInstance;
use crate::netlink::napi;
use crate::{Host, Known};

impl NapiInstance {
    /// All instances of the network namespace; `None` if the kernel does not report them.
    pub(in crate::stage) fn all(host: &Host) -> Known<Option<Vec<NapiInstance>>> {
        Known::if_supported(host.call("netdev/napi", "listing NAPI instances", napi::instances))
    }
}
