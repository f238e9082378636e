//! Facts of the host that several measurements require.

use std::collections::BTreeMap;

use linerate_host::{CpuSet, Host, HostError};

pub(crate) const ONLINE: &str = "/sys/devices/system/cpu/online";

pub(crate) fn online_cpus(host: &Host) -> Result<CpuSet, HostError> {
    let garbled_error = |reason: String| HostError::Garbled { path: ONLINE.to_owned(), reason };
    CpuSet::from_list(host.read(ONLINE)?.trim()).map_err(|error| garbled_error(error.to_string()))
}

/// Readable interfaces of the host's network namespace by index.
pub(crate) fn interface_names(host: &Host) -> BTreeMap<u32, String> {
    const DEVICES: &str = "/sys/class/net";
    let names = host.list(DEVICES).unwrap_or_default();
    let indexes = names.into_iter().filter_map(|name| {
        let index = host.read(&format!("{DEVICES}/{name}/ifindex")).ok()?;
        Some((index.trim().parse().ok()?, name))
    });
    indexes.collect()
}
