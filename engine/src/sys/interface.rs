//! Network interfaces of the calling thread's network namespace: `getifaddrs`, ioctl and ethtool.

use std::ffi::{CStr, CString};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsRawFd;

// include/uapi/linux/sockios.h and ethtool.h.
const SIOCETHTOOL: libc::Ioctl = 0x8946;
const ETHTOOL_GDRVINFO: u32 = 0x03;
const ETHTOOL_GCHANNELS: u32 = 0x3c;

/// The driver of VLAN interfaces (net/8021q/vlan_dev.c).
pub(crate) const VLAN_DRIVER: &str = "802.1Q VLAN Support";

/// Drivers of interfaces that receive all frames of their ports (net/bridge, drivers/net/bonding,
/// drivers/net/team).
pub(crate) const DRIVERS_WITH_PORTS: [&str; 3] = ["bridge", "bonding", "team"];

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NetDevice {
    pub(crate) name: String,
    pub(crate) index: u32,
    pub(crate) up: bool,
    pub(crate) loopback: bool,
    pub(crate) addresses: Vec<IpAddr>,
    /// As ethtool reports it: the kind of link for most virtual interfaces (net/ethtool/ioctl.c,
    /// `ethtool_get_drvinfo`). `None` if it reports none.
    pub(crate) driver: Option<String>,
    /// Names of the interfaces below it: a bond's or bridge's members, a VLAN's device.
    pub(crate) lower: Vec<String>,
}

/// Whether a server on the bound address gets the packets to `address`.
pub(crate) fn is_served(bound: IpAddr, only_v6: bool, address: IpAddr) -> bool {
    match bound.to_canonical() {
        IpAddr::V4(wildcard) if wildcard.is_unspecified() => address.is_ipv4(),
        IpAddr::V6(wildcard) if wildcard.is_unspecified() => address.is_ipv6() || !only_v6,
        bound => address.to_canonical() == bound,
    }
}

/// All interfaces, sorted by index.
pub(crate) fn interfaces() -> io::Result<Vec<NetDevice>> {
    let mut first: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: writes the head of a list to `first`, which is freed below.
    if unsafe { libc::getifaddrs(&raw mut first) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut devices: Vec<NetDevice> = Vec::new();
    let mut entry_pointer = first;
    while !entry_pointer.is_null() {
        // SAFETY: an entry of the list, which lives until it is freed; the name is a C string of it.
        let (entry, name) = unsafe { (&*entry_pointer, CStr::from_ptr((*entry_pointer).ifa_name)) };
        entry_pointer = entry.ifa_next;
        // Fails if the interface was removed in the meantime.
        let Ok(index) = index_of(name) else { continue };
        let flags = entry.ifa_flags.cast_signed();
        let device_index = match devices.iter().position(|device| device.index == index) {
            Some(device_index) => device_index,
            None => {
                devices.push(NetDevice {
                    name: name.to_string_lossy().into_owned(),
                    index,
                    up: flags & libc::IFF_UP != 0,
                    loopback: flags & libc::IFF_LOOPBACK != 0,
                    addresses: Vec::new(),
                    driver: None,
                    lower: lower_interfaces(&name.to_string_lossy()),
                });
                devices.len() - 1
            }
        };
        // SAFETY: null, or an address of the length of its family.
        if let Some(address) = unsafe { address(entry.ifa_addr) } {
            devices[device_index].addresses.push(address);
        }
    }
    // SAFETY: the list that getifaddrs made, freed once; nothing refers to it now.
    unsafe { libc::freeifaddrs(first) };
    devices.sort_by_key(|device| device.index);
    for device in &mut devices {
        device.driver = device.read_driver().ok();
    }
    Ok(devices)
}

/// From `/sys/class/net/NAME/lower_*` (Documentation/ABI/testing/sysfs-class-net).
fn lower_interfaces(name: &str) -> Vec<String> {
    let entries = std::fs::read_dir(format!("/sys/class/net/{name}")).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter_map(|name| name.strip_prefix("lower_").map(str::to_owned)).collect()
}

pub(crate) fn index(name: &str) -> io::Result<u32> {
    index_of(&CString::new(name).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?)
}

fn index_of(name: &CStr) -> io::Result<u32> {
    // SAFETY: a C string that outlives the call.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => Err(io::Error::last_os_error()),
        index => Ok(index),
    }
}

/// # Safety
///
/// Null, or a socket address of the length of its family.
unsafe fn address(pointer: *const libc::sockaddr) -> Option<IpAddr> {
    if pointer.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    unsafe {
        match i32::from((*pointer).sa_family) {
            libc::AF_INET => {
                let v4 = pointer.cast::<libc::sockaddr_in>().read_unaligned();
                Some(Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr)).into())
            }
            libc::AF_INET6 => {
                let v6 = pointer.cast::<libc::sockaddr_in6>().read_unaligned();
                Some(Ipv6Addr::from(v6.sin6_addr.s6_addr).into())
            }
            _ => None,
        }
    }
}

/// `struct ethtool_drvinfo`.
#[repr(C)]
struct DriverInfo {
    command: u32,
    driver: [u8; 32],
    rest: [u8; 160],
}

/// `struct ethtool_channels`.
#[derive(Default)]
#[repr(C)]
struct EthtoolChannels {
    command: u32,
    most: [u32; 4],
    receive: u32,
    transmit: u32,
    other: u32,
    combined: u32,
}

impl NetDevice {
    /// An interface that is up, for tests: its name, driver, addresses and the interfaces below it.
    #[cfg(test)]
    pub(crate) fn sample(name: &str, driver: &str, addresses: &[&str], lower: &[&str]) -> Self {
        Self {
            name: name.to_owned(),
            index: 1,
            up: true,
            loopback: name == "lo",
            addresses: addresses.iter().map(|address| address.parse().expect("an address")).collect(),
            driver: Some(driver.to_owned()),
            lower: lower.iter().map(|name| (*name).to_owned()).collect(),
        }
    }

    pub(crate) fn has_driver(&self, drivers: &[&str]) -> bool {
        self.driver.as_deref().is_some_and(|driver| drivers.contains(&driver))
    }

    /// Whether one of `devices` is a bridge, bond or team that receives all frames of this
    /// interface.
    pub(crate) fn is_port(&self, devices: &[&NetDevice]) -> bool {
        devices.iter().any(|upper| upper.has_driver(&DRIVERS_WITH_PORTS) && upper.lower.contains(&self.name))
    }

    /// Whether requests to the bound address arrive at `address` of this interface. A wildcard
    /// address leaves out the automatic link-local addresses of veths, of which each container has
    /// one.
    pub(crate) fn gets_requests_at(&self, address: IpAddr, bound: IpAddr, only_v6: bool) -> bool {
        let is_link_local = matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local());
        let is_left_out =
            is_link_local && bound.to_canonical().is_unspecified() && self.has_driver(&["veth"]);
        is_served(bound, only_v6, address) && !is_left_out
    }

    /// Whether requests to the bound address arrive at any address of this interface.
    pub(crate) fn gets_requests(&self, bound: IpAddr, only_v6: bool) -> bool {
        self.addresses.iter().any(|address| self.gets_requests_at(*address, bound, only_v6))
    }

    fn read_driver(&self) -> io::Result<String> {
        let mut info = DriverInfo { command: ETHTOOL_GDRVINFO, driver: [0; 32], rest: [0; 160] };
        // SAFETY: ETHTOOL_GDRVINFO fills a `struct ethtool_drvinfo`, 196 bytes.
        unsafe { self.ethtool(&mut info)? };
        let end = info.driver.iter().position(|byte| *byte == 0).unwrap_or(info.driver.len());
        Ok(String::from_utf8_lossy(&info.driver[..end]).into_owned())
    }

    pub(crate) fn receive_queues(&self) -> io::Result<u32> {
        let mut channels = EthtoolChannels { command: ETHTOOL_GCHANNELS, ..EthtoolChannels::default() };
        // SAFETY: ETHTOOL_GCHANNELS fills a `struct ethtool_channels`.
        unsafe { self.ethtool(&mut channels)? };
        Ok(channels.receive + channels.combined)
    }

    /// Bytes of the largest IP packet.
    pub(crate) fn mtu(&self) -> io::Result<u32> {
        let mut request = self.request()?;
        // SAFETY: SIOCGIFMTU fills the integer of a `struct ifreq`.
        unsafe { control(libc::SIOCGIFMTU, &mut request)? };
        // SAFETY: it did.
        Ok(unsafe { request.ifr_ifru.ifru_mtu }.cast_unsigned())
    }

    /// The hardware address, if it is Ethernet's.
    pub(crate) fn mac(&self) -> io::Result<[u8; 6]> {
        let mut request = self.request()?;
        // SAFETY: SIOCGIFHWADDR fills the address of a `struct ifreq`.
        unsafe { control(libc::SIOCGIFHWADDR, &mut request)? };
        // SAFETY: it did.
        let address = unsafe { request.ifr_ifru.ifru_hwaddr };
        if address.sa_family != libc::ARPHRD_ETHER {
            return Err(io::Error::from_raw_os_error(libc::EAFNOSUPPORT));
        }
        let mut mac = [0; 6];
        for (target, byte) in mac.iter_mut().zip(address.sa_data) {
            *target = byte as u8;
        }
        Ok(mac)
    }

    /// # Safety
    ///
    /// `T` must be the type that its command fills.
    unsafe fn ethtool<T>(&self, command: &mut T) -> io::Result<()> {
        let mut request = self.request()?;
        request.ifr_ifru.ifru_data = std::ptr::from_mut(command).cast();
        // SAFETY: SIOCETHTOOL follows the pointer; the rest is the caller's promise.
        unsafe { control(SIOCETHTOOL, &mut request) }
    }

    fn request(&self) -> io::Result<libc::ifreq> {
        // SAFETY: all-zero bytes are a valid ifreq.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        let name = self.name.as_bytes();
        if name.len() >= request.ifr_name.len() {
            return Err(io::Error::from_raw_os_error(libc::ENAMETOOLONG));
        }
        for (target, byte) in request.ifr_name.iter_mut().zip(name) {
            *target = *byte as libc::c_char;
        }
        Ok(request)
    }
}

/// # Safety
///
/// `request` must be the argument that ioctl `number` requires on a socket.
unsafe fn control(number: libc::Ioctl, request: &mut libc::ifreq) -> io::Result<()> {
    let socket = std::net::UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    // SAFETY: the caller's promise.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), number, std::ptr::from_mut(request)) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
