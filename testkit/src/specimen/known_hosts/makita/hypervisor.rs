//! The machine of 2016 after every step, with virtual machines on its bridge and its hardware threads switched off. Made up.

use super::{NIC, Specimen, Way, load, machine};
use crate::specimen::Kernel;

/// The first kernel that tells whether hardware threads are switched off.
const LATER: Kernel = Kernel { major: 4, minor: 19, release: "4.19.0-26-amd64" };

pub(in crate::specimen::known_hosts) fn hypervisor() -> Specimen {
    let way = Way::fixed();
    let mut first = machine(&way);
    first.kernel = LATER;
    for (name, value) in [("net.core.netdev_budget_usecs", "2000"), ("net.ipv4.udp_early_demux", "0")] {
        first.sysctls.insert(name.to_owned(), value.to_owned());
    }
    first.also.line("/sys/devices/system/cpu/smt/control", "off");
    let bridge = format!("/sys/class/net/{NIC}/brport/bridge/brif");
    for (number, port) in [NIC, "tap0", "tap1"].iter().enumerate() {
        first.also.line(format!("{bridge}/{port}/port_no"), format!("{:#x}", number + 1));
    }
    for tap in ["tap0", "tap1"] {
        // IFF_TAP, IFF_NO_PI and IFF_VNET_HDR.
        first.also.line(format!("/sys/class/net/{tap}/tun_flags"), "0x5002");
    }
    let later = load(&first, &way, 5_860_000);
    Specimen {
        name: "hypervisor",
        about: "the machine of 2016 after every step, made up: two virtual machines on its bridge, hardware threads switched off",
        first,
        later: Some(later),
    }
}
