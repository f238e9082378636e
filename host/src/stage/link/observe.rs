//! Reads interfaces.

use std::collections::BTreeMap;

use super::{BridgePort, DeviceKind, LinkDriver, LinkState, SriovState};
use crate::Scope;
use crate::{Host, HostError, Known};

const INTERFACES: &str = "/sys/class/net";

/// The interfaces that the scope names. Otherwise those with a device, or if there are none, all
/// that are up except the loopback.
pub fn observe(host: &Host, scope: &Scope) -> Vec<LinkState> {
    if !scope.interfaces.is_empty() {
        let mut names: Vec<&String> =
            scope.interfaces.iter().filter(|name| is_interface_name(name)).collect();
        names.dedup();
        return names.into_iter().map(|name| link(host, name)).collect();
    }
    let names = host.list(INTERFACES).unwrap_or_default();
    let (devices, software): (Vec<String>, Vec<String>) =
        names.into_iter().filter(|name| is_interface_name(name)).partition(|name| {
            host.list(&directory(name)).is_ok_and(|files| files.iter().any(|file| file == "device"))
        });
    if devices.is_empty() {
        let software = software.into_iter().filter(|name| name != "lo");
        software.map(|name| link(host, &name)).filter(|link| link.up.value() != Some(&false)).collect()
    } else {
        devices.iter().map(|name| link(host, name)).collect()
    }
}

/// Whether the text can be the name of an interface, not a path. `bonding_masters` is a file in the
/// same directory.
fn is_interface_name(name: &str) -> bool {
    !name.is_empty() && name != "." && name != ".." && !name.contains('/') && name != "bonding_masters"
}

fn directory(interface: &str) -> String {
    format!("{INTERFACES}/{interface}")
}

fn link(host: &Host, interface: &str) -> LinkState {
    let base = directory(interface);
    let files = host.list(&base);
    let device_files = device_files(host, &base, &files);
    let driver = driver(host, interface, &base, &device_files);
    let device = device(&device_files, &driver);
    let (receive_queues, transmit_queues) = queues(host, &base);
    LinkState {
        interface: interface.to_owned(),
        index: read_value(host, &format!("{base}/ifindex"), "an index"),
        up: Known::from(host.read(&format!("{base}/operstate"))).map(|state| state.trim() != "down"),
        speed_bits_per_second: match &device {
            // The reported speed of veth and tun has no meaning.
            Known::Value(DeviceKind::Software) => Known::Value(None),
            _ => speed(host, &base),
        },
        mtu_bytes: read_value(host, &format!("{base}/mtu"), "a number of bytes"),
        node: node(host, &base, &device_files, &driver),
        receive_queues,
        transmit_queues,
        channels: Known::if_supported(host.channels(interface)),
        rings: Known::if_supported(host.rings(interface)),
        coalesce: Known::if_supported(host.coalesce(interface)),
        features: host.features(interface).into(),
        sriov: sriov(host, &base, &device_files),
        bridge: bridge(host, &base, &files),
        statistics: Known::if_supported(host.statistics(interface)),
        totals: totals(host, interface),
        driver,
        device,
    }
}

/// `None` without a device.
fn device_files(
    host: &Host,
    base: &str,
    files: &Result<Vec<String>, HostError>,
) -> Known<Option<Vec<String>>> {
    match files {
        Ok(files) if files.iter().any(|file| file == "device") => {
            Known::from(host.list(&format!("{base}/device"))).map(Some)
        }
        Ok(_) => Known::Value(None),
        Err(error) => Known::unknown(error.to_string()),
    }
}

fn device(files: &Known<Option<Vec<String>>>, driver: &Known<Option<LinkDriver>>) -> Known<DeviceKind> {
    match (files, driver) {
        (Known::Unknown { why }, _) => Known::unknown(why.clone()),
        (Known::Value(None), _) => Known::Value(DeviceKind::Software),
        (Known::Value(Some(_)), Known::Unknown { why }) => Known::unknown(why.clone()),
        (Known::Value(Some(_)), Known::Value(driver)) => {
            let is_virtio = driver.as_ref().is_some_and(|driver| driver.name == "virtio_net");
            Known::Value(if is_virtio { DeviceKind::Virtio } else { DeviceKind::Hardware })
        }
    }
}

/// The driver as ethtool reports it. Before Linux 5.17 a driver could omit its name; sysfs has it.
fn driver(
    host: &Host,
    interface: &str,
    base: &str,
    device_files: &Known<Option<Vec<String>>>,
) -> Known<Option<LinkDriver>> {
    let driver = Known::if_supported(host.driver(interface));
    let has_device = matches!(device_files, Known::Value(Some(_)));
    if !has_device || matches!(driver, Known::Value(Some(_))) {
        return driver;
    }
    match host.read_link(&format!("{base}/device/driver")) {
        Ok(target) => {
            let name = target.rsplit('/').next().unwrap_or(&target).to_owned();
            let (version, firmware, bus) = Default::default();
            Known::Value(Some(LinkDriver { name, version, firmware, bus }))
        }
        Err(_) => driver,
    }
}

/// For an interface that is down, the kernel returns EINVAL. If the driver does not know the speed,
/// it reports -1 (net/core/net-sysfs.c), and older kernels report -1 as an unsigned number of 32 or
/// 16 bits.
fn speed(host: &Host, base: &str) -> Known<Option<u64>> {
    const MEGABIT: u64 = 1_000_000;
    let path = format!("{base}/speed");
    match host.read(&path) {
        Ok(text) => match text.trim().parse::<i64>() {
            Ok(i64::MIN..=0 | 65_535 | 4_294_967_295) => Known::Value(None),
            Ok(speed) => Known::Value(u64::try_from(speed).ok().and_then(|speed| speed.checked_mul(MEGABIT))),
            Err(_) => Known::unknown(format!("{path}: '{}' is no rate in Mbit/s", shorten(&text))),
        },
        Err(HostError::Read { source, .. }) if source.raw_os_error() == Some(libc::EINVAL) => {
            Known::Value(None)
        }
        Err(error) => Known::unknown(error.to_string()),
    }
}

/// A virtio device has no node, but its PCI device has. The file exists only with CONFIG_NUMA, and
/// is -1 if the firmware did not report a node.
fn node(
    host: &Host,
    base: &str,
    device_files: &Known<Option<Vec<String>>>,
    driver: &Known<Option<LinkDriver>>,
) -> Known<Option<u32>> {
    let files = match device_files {
        Known::Value(Some(files)) => files,
        Known::Value(None) => return Known::Value(None),
        Known::Unknown { why } => return Known::unknown(why.clone()),
    };
    let path = if files.iter().any(|file| file == "numa_node") {
        format!("{base}/device/numa_node")
    } else {
        let bus = driver.value().and_then(|driver| driver.as_ref()).map(|driver| driver.bus.as_str());
        match bus {
            Some(bus) if is_pci_address(bus) => format!("/sys/bus/pci/devices/{bus}/numa_node"),
            _ => return Known::Value(None),
        }
    };
    match host.read(&path) {
        Ok(text) => match text.trim().parse::<i64>() {
            Ok(node) => Known::Value(u32::try_from(node).ok()),
            Err(_) => Known::unknown(format!("{path}: '{}' is no number of a node", shorten(&text))),
        },
        Err(error) if error.is_missing() => Known::Value(None),
        Err(error) => Known::unknown(error.to_string()),
    }
}

/// Whether the text is like `0000:01:00.0`.
fn is_pci_address(bus: &str) -> bool {
    bus.split_once(':').is_some_and(|(domain, address)| {
        !domain.is_empty()
            && address.chars().all(|letter| letter.is_ascii_hexdigit() || ":.".contains(letter))
    }) && bus.chars().all(|letter| letter.is_ascii_hexdigit() || ":.".contains(letter))
}

/// The queues in use: sysfs has a directory per queue.
fn queues(host: &Host, base: &str) -> (Known<u32>, Known<u32>) {
    match host.list(&format!("{base}/queues")) {
        Ok(names) => {
            let count = |prefix: &str| {
                let count = names.iter().filter(|name| name.starts_with(prefix)).count();
                Known::Value(u32::try_from(count).unwrap_or(u32::MAX))
            };
            (count("rx-"), count("tx-"))
        }
        Err(error) => (Known::unknown(error.to_string()), Known::unknown(error.to_string())),
    }
}

fn sriov(host: &Host, base: &str, device_files: &Known<Option<Vec<String>>>) -> Known<Option<SriovState>> {
    let files = match device_files {
        Known::Value(Some(files)) => files,
        Known::Value(None) => return Known::Value(None),
        Known::Unknown { why } => return Known::unknown(why.clone()),
    };
    let has_file = |name: &str| files.iter().any(|file| file == name);
    if has_file("physfn") {
        let (total, active) = (None, None);
        return Known::Value(Some(SriovState {
            is_virtual_function: true,
            total,
            active,
            interfaces: Vec::new(),
        }));
    }
    if !has_file("sriov_totalvfs") {
        return Known::Value(None);
    }
    let number =
        |file: &str| read_value(host, &format!("{base}/device/{file}"), "a number of virtual functions");
    match (number("sriov_totalvfs"), number("sriov_numvfs")) {
        (Known::Value(total), Known::Value(active)) => {
            let functions = files.iter().filter(|file| file.starts_with("virtfn"));
            // A function assigned to a virtual machine is not an interface of this host, and has no
            // such directory.
            let interfaces = functions
                .flat_map(|function| host.list(&format!("{base}/device/{function}/net")).unwrap_or_default());
            Known::Value(Some(SriovState {
                is_virtual_function: false,
                total: Some(total),
                active: Some(active),
                interfaces: interfaces.collect(),
            }))
        }
        (Known::Unknown { why }, _) | (_, Known::Unknown { why }) => Known::unknown(why),
    }
}

/// Ports with `tun_flags` are taps (drivers/net/tun.c).
fn bridge(host: &Host, base: &str, files: &Result<Vec<String>, HostError>) -> Known<Option<BridgePort>> {
    match files {
        Ok(files) if files.iter().any(|file| file == "brport") => {
            let is_tap = |port: &String| {
                let files = host.list(&directory(port));
                files.is_ok_and(|files| files.iter().any(|file| file == "tun_flags"))
            };
            Known::from(host.list(&format!("{base}/brport/bridge/brif")))
                .map(|ports| Some(BridgePort { taps: ports.into_iter().filter(is_tap).collect() }))
        }
        Ok(_) => Known::Value(None),
        Err(error) => Known::unknown(error.to_string()),
    }
}

pub(super) fn totals(host: &Host, interface: &str) -> Known<BTreeMap<String, u64>> {
    let directory = format!("{}/statistics", directory(interface));
    let names = match host.list(&directory) {
        Ok(names) => names,
        Err(error) => return Known::unknown(error.to_string()),
    };
    let mut totals = BTreeMap::new();
    for name in names {
        match read_value(host, &format!("{directory}/{name}"), "a count") {
            Known::Value(count) => drop(totals.insert(name, count)),
            Known::Unknown { why } => return Known::unknown(why),
        }
    }
    Known::Value(totals)
}

fn read_value<T: std::str::FromStr>(host: &Host, path: &str, expected: &str) -> Known<T> {
    match host.read(path) {
        Ok(text) => match text.trim().parse() {
            Ok(number) => Known::Value(number),
            Err(_) => Known::unknown(format!("{path}: '{}' is not {expected}", shorten(&text))),
        },
        Err(error) => Known::unknown(error.to_string()),
    }
}

/// The beginning of a text, short enough for a line.
fn shorten(text: &str) -> String {
    text.trim().chars().take(40).collect()
}
