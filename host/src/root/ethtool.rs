//! Driver settings of an interface: through generic netlink, or by ioctl on older kernels.

use std::collections::BTreeMap;
use std::io;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::{ExplainedErrno, Host, HostError};
use crate::ethtool::{ChannelCounts, CoalesceSettings, RingLengths, feature_names};
use crate::netlink::ethtool as netlink;
use crate::setting::Offload;
use crate::sys::ethtool::{self as ioctl, CHANNELS, COALESCE, RINGS, WordParameter, WordStructure};

impl Host {
    /// The values of `ethtool -l`.
    pub fn channels(&self, interface: &str) -> Result<ChannelCounts, HostError> {
        self.read_words(interface, &CHANNELS)
    }

    /// The values of `ethtool -g`.
    pub fn rings(&self, interface: &str) -> Result<RingLengths, HostError> {
        self.read_words(interface, &RINGS)
    }

    /// The values of `ethtool -c`.
    pub fn coalesce(&self, interface: &str) -> Result<CoalesceSettings, HostError> {
        self.read_words(interface, &COALESCE)
    }

    /// Keyed by the names of `ethtool -k`.
    pub fn features(&self, interface: &str) -> Result<BTreeMap<String, bool>, HostError> {
        self.call_ethtool(interface, "features", || {
            ioctl::features(interface).map(feature_names::with_ethtool_names)
        })
    }

    /// `EOPNOTSUPP` if the kernel has no such offload.
    pub fn offload(&self, interface: &str, offload: Offload) -> Result<bool, HostError> {
        let on = self.features(interface)?.get(offload.name()).copied();
        on.ok_or_else(|| unknown_offload(interface, offload))
    }

    /// Whether the device supports changing an offload: not `[fixed]` in `ethtool -k`
    /// (`ETHTOOL_GFEATURES`, Linux 2.6.39).
    pub fn is_offload_changeable(&self, interface: &str, offload: Offload) -> Result<bool, HostError> {
        let operation = format!("reading whether {offload} of {interface} can be changed");
        let read = || {
            ioctl::is_feature_changeable(interface, |name| {
                feature_names::covers_kernel_name(offload.name(), name)
            })
        };
        self.call(&format!("ethtool/{interface}/changeable/{}", offload.name()), &operation, read)
    }

    /// Sets an offload (`ETHTOOL_SFEATURES`, Linux 2.6.39). `EOPNOTSUPP` if the kernel has no such
    /// offload or the device has it fixed. Requires `CAP_NET_ADMIN` in the network namespace.
    pub fn set_offload(&self, interface: &str, offload: Offload, on: bool) -> Result<(), HostError> {
        let operation = format!("switching {offload} of {interface} {}", if on { "on" } else { "off" });
        self.offload(interface, offload)?;
        let change = || {
            ioctl::set_feature(interface, |name| feature_names::covers_kernel_name(offload.name(), name), on)
        };
        let rehearse = |answer: &mut BTreeMap<String, bool>| {
            answer.insert(offload.name().to_owned(), on);
        };
        self.apply_change(&format!("ethtool/{interface}/features"), &operation, change, rehearse)
    }

    /// The values of `ethtool -S`.
    pub fn statistics(&self, interface: &str) -> Result<BTreeMap<String, u64>, HostError> {
        self.call_ethtool(interface, "statistics", || ioctl::statistics(interface))
    }

    pub(crate) fn read_words<T: Serialize + DeserializeOwned>(
        &self,
        interface: &str,
        structure: &WordStructure,
    ) -> Result<T, HostError> {
        // If netlink fails for any reason, the error of the ioctl is the driver's, not that of a
        // kernel without the netlink family or command.
        self.call_ethtool(interface, structure.name, || {
            let words = netlink::read(structure, interface).or_else(|_| structure.read(interface))?;
            Ok(serde_json::from_value(structure.answer(&words))?)
        })
    }

    /// Changes parameters through netlink, which returns error texts, or by ioctl if the kernel is
    /// too old for the family or the command. `EOPNOTSUPP` if the driver does not have one of them.
    /// Requires `CAP_NET_ADMIN` in the network namespace.
    pub(crate) fn set_words(
        &self,
        interface: &str,
        name: &str,
        structure: &WordStructure,
        changes: &[(&WordParameter, u32)],
    ) -> Result<(), HostError> {
        let change = || match netlink::change(structure, interface, changes) {
            // The family or its command does not exist; a driver without the setting returns a
            // text, or fails twice.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EOPNOTSUPP)) => {
                structure.change(interface, changes)
            }
            result => result,
        };
        let rehearse = |answer: &mut Map<String, Value>| {
            for (parameter, value) in changes {
                answer.insert(parameter.field(), parameter.json(*value));
            }
        };
        let operation = format!("setting the {name} of {interface}");
        self.apply_change(&format!("ethtool/{interface}/{}", structure.name), &operation, change, rehearse)
    }

    fn call_ethtool<T: Serialize + DeserializeOwned>(
        &self,
        interface: &str,
        item: &str,
        perform: impl FnOnce() -> io::Result<T>,
    ) -> Result<T, HostError> {
        let operation = format!("reading the {item} of {interface}");
        self.call(&format!("ethtool/{interface}/{item}"), &operation, perform)
    }
}

fn unknown_offload(interface: &str, offload: Offload) -> HostError {
    HostError::Call {
        what: format!("reading {offload} of {interface}"),
        source: ExplainedErrno::error(libc::EOPNOTSUPP, "this kernel has no such offload"),
    }
}
