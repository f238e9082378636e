//! Creates the links between hosts.

use std::io;
use std::time::{Duration, Instant};

use linerate_host::setting::Offload;
use linerate_host::{Host, Setting, SettingValue};

use crate::error::{LabError, Result, warn};
use crate::host::LabHost;
use crate::rtnetlink::{self, RtnetlinkConnection};
use crate::topology::{LabLink, LinkEnd};

/// Longest wait for a link, which usually takes milliseconds.
const CARRIER_DEADLINE: Duration = Duration::from_secs(5);
const CARRIER_POLL: Duration = Duration::from_millis(1);

/// An error has a description of the request.
pub(crate) type Step<T> = std::result::Result<T, (String, io::Error)>;

pub(crate) fn with_operation(operation: impl Into<String>) -> impl FnOnce(io::Error) -> (String, io::Error) {
    move |error| (operation.into(), error)
}

pub(crate) fn run_in_host<T: Send>(
    host: &LabHost,
    steps: impl FnOnce(&mut RtnetlinkConnection) -> Step<T> + Send,
) -> Result<T> {
    let outcome = host.run(|| {
        let mut route = RtnetlinkConnection::open().map_err(with_operation("open a netlink socket"))?;
        steps(&mut route)
    })?;
    outcome.map_err(|(what, source)| LabError::Netlink { host: host.name().to_owned(), what, source })
}

pub(crate) fn make_pair(receiver: &LabHost, sender: &LabHost, link: &LabLink) -> Result<()> {
    // Both ends are created in their namespaces, so this process's own namespace never has them.
    run_in_host(receiver, |route| {
        let message = rtnetlink::veth_pair(link, sender.namespace());
        route.create(&message).map_err(with_operation(format!(
            "make the veth pair {} to {}",
            link.receiver.interface, link.sender.host
        )))
    })
}

/// Gives one end its addresses and its neighbour, and brings it up.
pub(crate) fn set_up(host: &LabHost, own: &LinkEnd, peer: &LinkEnd, ipv6: bool) -> Result<()> {
    let interface = &own.interface;
    run_in_host(host, |route| {
        if ipv6 {
            route
                .change(&rtnetlink::no_link_local(own.index))
                .map_err(with_operation(format!("switch off link-local addresses of {interface}")))?;
        }
        for (address, prefix) in own.addresses() {
            route
                .create(&rtnetlink::address(own.index, address, prefix))
                .map_err(with_operation(format!("give {interface} the address {address}")))?;
        }
        route
            .change(&rtnetlink::link_up(own.index))
            .map_err(with_operation(format!("bring up {interface}")))?;
        for (address, _) in peer.addresses() {
            route
                .create(&rtnetlink::neighbour(own.index, address, peer.mac))
                .map_err(with_operation(format!("add the neighbour {address} to {interface}")))?;
        }
        Ok(())
    })
}

/// Lets an end receive packets through NAPI, as a NIC does. A veth interface does so while GRO is
/// on (Linux 5.13, `veth_napi_enable_range` in drivers/net/veth.c), and only then accepts frames
/// that an XDP program redirects to its peer. GRO is off on a new interface.
pub(crate) fn receive_by_napi(host: &LabHost, end: &LinkEnd) -> Result<()> {
    let gro = Setting::Offload { interface: end.interface.clone(), offload: Offload::GenericReceive };
    if let Err(error) = host.run(|| gro.write(&Host::live(), &SettingValue::new("on")))? {
        // Packets pass without NAPI, too.
        warn(&format!("the lab's receiver runs without NAPI: {error}"));
    }
    Ok(())
}

/// Waits until an end is up with its queues active, because it drops packets before.
pub(crate) fn await_running(host: &LabHost, end: &LinkEnd) -> Result<()> {
    let is_up = run_in_host(host, |route| {
        let deadline = Instant::now() + CARRIER_DEADLINE;
        loop {
            let is_running = route.is_running(end.index);
            let is_running = is_running.map_err(with_operation(format!("look at {}", end.interface)))?;
            if is_running || Instant::now() >= deadline {
                return Ok(is_running);
            }
            std::thread::sleep(CARRIER_POLL);
        }
    })?;
    if is_up {
        return Ok(());
    }
    Err(LabError::NoCarrier {
        host: host.name().to_owned(),
        interface: end.interface.clone(),
        seconds: CARRIER_DEADLINE.as_secs(),
    })
}

/// Why an interface made now in the calling thread's namespace has no IPv6.
pub(crate) fn why_no_ipv6() -> Option<String> {
    let path = "/proc/sys/net/ipv6/conf/default/disable_ipv6";
    match std::fs::read_to_string(path) {
        Ok(value) if value.trim() == "0" => None,
        Ok(value) => Some(format!("IPv6 is switched off: {path} is {}", value.trim())),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Some("this kernel has no IPv6".to_owned()),
        Err(e) => Some(format!("cannot read {path}: {e}")),
    }
}
