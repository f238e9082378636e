//! Reads interfaces.

use std::collections::{BTreeMap, BTreeSet};

use super::{BridgePort, DeviceKind, LinkDriver, LinkState, SriovState};
use crate::known::{UnknownReason, number};
use crate::{Host, Known, Scope};

const INTERFACES: &str = "/sys/class/net";

/// The interface that is the master of all ports of Open vSwitch (net/openvswitch/vport-netdev.c).
const OPEN_VSWITCH: &str = "ovs-system";

/// The interfaces that the scope names. Otherwise those with a device, or if there are none, all
/// that are up except the loopback.
pub fn observe(host: &Host, scope: &Scope) -> Vec<LinkState> {
    if !scope.interfaces.is_empty() {
        let mut seen_names = BTreeSet::new();
        let names =
            scope.interfaces.iter().filter(|name| is_interface_name(name) && seen_names.insert(*name));
        let is_observed_below = |file: &String| {
            file.strip_prefix("lower_").is_some_and(|below| scope.interfaces.iter().any(|name| name == below))
        };
        let has_links_below =
            |name: &str| host.list(&directory(name)).is_ok_and(|files| files.iter().any(is_observed_below));
        return names
            .map(|name| LinkState { has_links_below: has_links_below(name), ..link(host, name) })
            .collect();
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
pub(crate) fn is_interface_name(name: &str) -> bool {
    !name.is_empty() && name != "." && name != ".." && !name.contains('/') && name != "bonding_masters"
}

fn directory(interface: &str) -> String {
    format!("{INTERFACES}/{interface}")
}

/// These interfaces, each with the devices that carry its packets if it has none itself: the ports
/// of a bond or a bridge, the interface under a VLAN.
pub fn with_devices_below(host: &Host, interfaces: &[String]) -> Vec<String> {
    let (mut names, mut checked) = (interfaces.to_vec(), interfaces.to_vec());
    let mut index = 0;
    while let Some(name) = checked.get(index).cloned() {
        index += 1;
        let files = host.list(&directory(&name)).unwrap_or_default();
        if !files.iter().any(|file| file == "device") {
            add_neighbours(&mut checked, &files, "lower_");
        } else if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// Adds the interfaces directly above (`upper_`) or below (`lower_`) one with these files (Linux
/// 3.14, netdev_adjacent_sysfs_add in net/core/dev.c).
fn add_neighbours(names: &mut Vec<String>, files: &[String], prefix: &str) {
    for name in files.iter().filter_map(|file| file.strip_prefix(prefix)) {
        if is_interface_name(name) && !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
    }
}

fn link(host: &Host, interface: &str) -> LinkState {
    let base = directory(interface);
    let files = Known::from(host.list(&base));
    let device_files = device_files(host, &base, &files).into();
    let driver = driver(host, interface, &base, &device_files);
    let device = Known::from(device(&device_files, &driver));
    let file = |name: &str| format!("{base}/{name}");
    let (receive_queues, transmit_queues) = queues(host, &base);
    LinkState {
        interface: interface.to_owned(),
        index: host.read_known(&file("ifindex"), number),
        up: Known::from(host.read(&file("operstate"))).map(|state| state.trim() != "down"),
        speed_bits_per_second: match &device {
            // The reported speed of veth and tun has no meaning.
            Known::Value(DeviceKind::Software) => Known::Value(None),
            _ => speed(host, &base).into(),
        },
        mtu_bytes: host.read_known(&file("mtu"), number),
        node: node(host, &base, &device_files, &driver).into(),
        receive_queues,
        transmit_queues,
        channels: Known::if_supported(host.channels(interface)),
        rings: Known::if_supported(host.rings(interface)),
        coalesce: Known::if_supported(host.coalesce(interface)),
        features: host.features(interface).into(),
        sriov: sriov(host, &base, &device_files).into(),
        bridge: bridge(host, interface).into(),
        statistics: Known::if_supported(host.statistics(interface)),
        totals: totals(host, interface).into(),
        has_links_below: false,
        driver,
        device,
    }
}

/// `None` without a device.
fn device_files(
    host: &Host,
    base: &str,
    files: &Known<Vec<String>>,
) -> Result<Option<Vec<String>>, UnknownReason> {
    let has_device = files.known()?.iter().any(|file| file == "device");
    Ok(if has_device { Some(host.list(&format!("{base}/device"))?) } else { None })
}

fn device(
    files: &Known<Option<Vec<String>>>,
    driver: &Known<Option<LinkDriver>>,
) -> Result<DeviceKind, UnknownReason> {
    if files.known()?.is_none() {
        return Ok(DeviceKind::Software);
    }
    let is_virtio = driver.known()?.as_ref().is_some_and(|driver| driver.name == "virtio_net");
    Ok(if is_virtio { DeviceKind::Virtio } else { DeviceKind::Hardware })
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
fn speed(host: &Host, base: &str) -> Result<Option<u64>, UnknownReason> {
    const MEGABIT: u64 = 1_000_000;
    let speed = match host.read_parsed(&format!("{base}/speed"), number::<i64>) {
        Err(error) if error.errno() == Some(libc::EINVAL) => return Ok(None),
        speed => speed?,
    };
    match speed {
        i64::MIN..=0 | 65_535 | 4_294_967_295 => Ok(None),
        speed => Ok(u64::try_from(speed).ok().and_then(|speed| speed.checked_mul(MEGABIT))),
    }
}

/// A virtio device has no node, but its PCI device has. The file exists only with CONFIG_NUMA, and
/// is -1 if the firmware did not report a node.
fn node(
    host: &Host,
    base: &str,
    device_files: &Known<Option<Vec<String>>>,
    driver: &Known<Option<LinkDriver>>,
) -> Result<Option<u32>, UnknownReason> {
    let Some(files) = device_files.known()? else { return Ok(None) };
    let path = if files.iter().any(|file| file == "numa_node") {
        format!("{base}/device/numa_node")
    } else {
        let bus = driver.value().and_then(|driver| driver.as_ref()).map(|driver| driver.bus.as_str());
        match bus {
            Some(bus) if is_pci_address(bus) => format!("/sys/bus/pci/devices/{bus}/numa_node"),
            _ => return Ok(None),
        }
    };
    let node = host.read_optional(&path, number::<i64>).into_known()?;
    Ok(node.and_then(|node| u32::try_from(node).ok()))
}

/// Whether the text is like `0000:01:00.0`.
fn is_pci_address(bus: &str) -> bool {
    bus.find(':').is_some_and(|colon| colon > 0)
        && bus.chars().all(|letter| letter.is_ascii_hexdigit() || ":.".contains(letter))
}

/// The queues in use: sysfs has a directory per queue.
fn queues(host: &Host, base: &str) -> (Known<u32>, Known<u32>) {
    let names = Known::from(host.list(&format!("{base}/queues")));
    let count = |prefix: &str, names: Known<Vec<String>>| {
        let count = |names: Vec<String>| names.iter().filter(|name| name.starts_with(prefix)).count();
        names.map(|names| u32::try_from(count(names)).unwrap_or(u32::MAX))
    };
    (count("rx-", names.clone()), count("tx-", names))
}

fn sriov(
    host: &Host,
    base: &str,
    device_files: &Known<Option<Vec<String>>>,
) -> Result<Option<SriovState>, UnknownReason> {
    let Some(files) = device_files.known()? else { return Ok(None) };
    let has_file = |name: &str| files.iter().any(|file| file == name);
    if has_file("physfn") {
        let (total, active) = (None, None);
        return Ok(Some(SriovState { is_virtual_function: true, total, active, interfaces: Vec::new() }));
    }
    if !has_file("sriov_totalvfs") {
        return Ok(None);
    }
    let number = |file: &str| host.read_known(&format!("{base}/device/{file}"), number).into_known();
    let functions = files.iter().filter(|file| file.starts_with("virtfn"));
    // A function assigned to a virtual machine is not an interface of this host, and has no such
    // directory.
    let interfaces = functions
        .flat_map(|function| host.list(&format!("{base}/device/{function}/net")).unwrap_or_default());
    Ok(Some(SriovState {
        is_virtual_function: false,
        total: Some(number("sriov_totalvfs")?),
        active: Some(number("sriov_numvfs")?),
        interfaces: interfaces.collect(),
    }))
}

/// The bridge or Open vSwitch that the interface is a port of, directly, or through bonds and VLANs
/// above it. Ports with `tun_flags` are taps (drivers/net/tun.c).
fn bridge(host: &Host, interface: &str) -> Result<Option<BridgePort>, UnknownReason> {
    let is_tap = |port: &String| {
        let files = host.list(&directory(port));
        files.is_ok_and(|files| files.iter().any(|file| file == "tun_flags"))
    };
    let mut names = vec![interface.to_owned()];
    let mut index = 0;
    while let Some(name) = names.get(index).cloned() {
        index += 1;
        let base = directory(&name);
        let files = host.list(&base)?;
        let (read_from, mut ports) = if name == OPEN_VSWITCH {
            let mut ports = Vec::new();
            add_neighbours(&mut ports, &files, "lower_");
            (base, ports)
        } else if files.iter().any(|file| file == "brport") {
            let path = format!("{base}/brport/bridge/brif");
            let ports = host.list(&path)?;
            (path, ports)
        } else {
            add_neighbours(&mut names, &files, "upper_");
            continue;
        };
        ports.retain(is_tap);
        return Ok(Some(BridgePort { taps: ports, read_from }));
    }
    Ok(None)
}

pub(super) fn totals(host: &Host, interface: &str) -> Result<BTreeMap<String, u64>, UnknownReason> {
    let directory = format!("{}/statistics", directory(interface));
    let mut totals = BTreeMap::new();
    for name in host.list(&directory)? {
        let count = host.read_known(&format!("{directory}/{name}"), number).into_known()?;
        totals.insert(name, count);
    }
    Ok(totals)
}
