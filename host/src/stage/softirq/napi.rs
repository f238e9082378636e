//! NAPI instances, as the netdev family of generic netlink tells (Linux 6.8, Documentation/netlink/specs/netdev.yaml).

use super::Napi;
use crate::{Host, Known};

impl Napi {
    /// All of the network namespace; none where the kernel does not tell.
    pub(in crate::stage) fn all(host: &Host) -> Known<Option<Vec<Napi>>> {
        Known::offered(host.call("netdev/napi", "listing NAPI instances", || {
            Err(std::io::Error::from_raw_os_error(libc::EOPNOTSUPP))
        }))
    }
}
