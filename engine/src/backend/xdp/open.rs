//! Setup of AF_XDP: interfaces and their programs, and the sockets and memory of workers.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use super::program::{self, TARGETS, XskProgram};
use super::queue::{FramePool, WorkerQueues, XskQueue};
use super::report::{self, XdpInterface, XdpQueue, XdpReport};
use crate::choices::AfXdpSettings;
use crate::socket::Fallback;
use crate::sys::bpf::XdpMode;
use crate::sys::interface::{self, NetDevice, VLAN_DRIVER, is_served};
use crate::sys::thread::pin;
use crate::sys::xsk::{self, Umem, XskBind, XskSocket};

// Bytes that the kernel keeps free in front of a packet in a frame (`XDP_PACKET_HEADROOM`, include/uapi/linux/bpf.h).
const HEADROOM: u32 = 256;
/// Interfaces whose members receive the frames (drivers/net/bonding, drivers/net/team).
const DRIVERS_WITHOUT_QUEUES: [&str; 2] = ["bonding", "team"];
/// Why AF_XDP serves no VLAN interface.
const LACKS_TAG: &str = "replies would lack the tag of the VLAN";
/// An Ethernet header with two tags.
const LINK_HEADER: u32 = 22;

#[derive(Debug)]
pub(crate) struct XdpServeOptions<'a> {
    pub(crate) settings: AfXdpSettings,
    pub(crate) address: SocketAddr,
    pub(crate) only_v6: bool,
    /// Names of interfaces; if empty, those with the address.
    pub(crate) interfaces: &'a [String],
    /// The CPU of each worker, if pinned.
    pub(crate) placement: &'a [Option<u32>],
}

#[derive(Debug)]
pub(crate) struct OpenedXdp {
    pub(crate) report: XdpReport,
    // By worker; `None` for a worker without queues.
    pub(crate) shares: Vec<Option<WorkerQueues>>,
    /// The sockets of all queues.
    pub(crate) sockets: Vec<Weak<XskSocket>>,
}

/// An interface with its program, before its queues have sockets.
struct AttachedInterface {
    queues: u32,
    program: XskProgram,
    report: XdpInterface,
}

// Sets up all interfaces that it can, and adds the reasons for other interfaces to `fallbacks`.
// `None` if there is no interface.
pub(crate) fn open(options: &XdpServeOptions<'_>, fallbacks: &mut Vec<Fallback>) -> Option<OpenedXdp> {
    let backend_fallback = |why| Fallback { what: "AF_XDP, mmsg is used instead".to_owned(), why };
    let selection = interface::interfaces()
        .map_err(|error| format!("cannot list the interfaces: {error}"))
        .and_then(|devices| Ok((choose_interfaces(options, &devices, fallbacks)?, devices)));
    let ((selected_devices, targets), devices) = match selection {
        Ok(selection) => selection,
        Err(why) => {
            fallbacks.push(backend_fallback(why));
            return None;
        }
    };
    let frame_bytes = frame_bytes(&selected_devices);
    let mut attached_interfaces = Vec::new();
    for device in &selected_devices {
        let (targets, why) = targets_on(device, &devices, &selected_devices, &targets);
        match why {
            Some(why) if targets.is_empty() => {
                fallbacks.push(xdp_fallback(&device.name, why));
                continue;
            }
            Some(why) => {
                let what = format!("AF_XDP on {} at all addresses; the sockets serve others", device.name);
                fallbacks.push(Fallback { what, why });
            }
            None => {}
        }
        match attach(options, device, &targets, frame_bytes) {
            Ok(attached_interface) => attached_interfaces.push(attached_interface),
            Err(why) => fallbacks.push(xdp_fallback(&device.name, why)),
        }
    }
    let deadline = Instant::now() + BUSY;
    let mut parts: Vec<Option<(Vec<XskQueue>, FramePool)>> = Vec::new();
    for worker in 0..options.placement.len() {
        let interfaces = &mut attached_interfaces;
        parts.push(open_worker_queues(options, worker, frame_bytes, deadline, interfaces, fallbacks));
    }
    let (mut interfaces, programs): (Vec<XdpInterface>, Vec<XskProgram>) =
        attached_interfaces.into_iter().map(|interface| (interface.report, interface.program)).unzip();
    interfaces.retain(|interface| !interface.queues.is_empty());
    if interfaces.is_empty() {
        // Each interface has its fallback already.
        fallbacks.push(backend_fallback("no interface could be served".to_owned()));
        return None;
    }
    let programs = Arc::new(programs);
    let all_queues = parts.iter().flatten().flat_map(|(queues, _)| queues);
    let sockets = all_queues.map(|queue| Arc::downgrade(&queue.socket)).collect();
    let shares = parts.into_iter().map(|part| {
        part.map(|(queues, frames)| WorkerQueues {
            queues,
            frames,
            batch: u32::from(options.settings.batch.max(1)),
            verify_checksums: options.settings.verify_checksums,
            busy_poll: options.settings.busy_poll_us > 0,
            _programs: Arc::clone(&programs),
        })
    });
    let shares = shares.collect();
    let warnings = report::warnings(options.settings.verify_checksums);
    Some(OpenedXdp { report: XdpReport { interfaces, warnings, lost_frames: None }, shares, sockets })
}

fn xdp_fallback(interface: &str, why: String) -> Fallback {
    Fallback { what: format!("AF_XDP on {interface}; what arrives there comes by the sockets"), why }
}

/// The interfaces and addresses to serve.
///
/// For a wildcard address, all addresses of this host, on every interface, as the stack does.
fn choose_interfaces(
    options: &XdpServeOptions<'_>,
    devices: &[NetDevice],
    fallbacks: &mut Vec<Fallback>,
) -> Result<(Vec<NetDevice>, Vec<SocketAddr>), String> {
    let scope = match options.address {
        SocketAddr::V6(v6) => v6.scope_id(),
        SocketAddr::V4(_) => 0,
    };
    let is_served = |address: &IpAddr| is_served(options.address.ip(), options.only_v6, *address);
    // Most devices take the tag of a VLAN out of the frame before XDP, so a reply would have none.
    let is_vlan = |device: &&NetDevice| device.driver.as_deref() == Some(VLAN_DRIVER);
    let is_candidate = |device: &&NetDevice| {
        let in_scope = scope == 0 || device.index == scope;
        let gets_requests = device.gets_requests(options.address.ip(), options.only_v6);
        device.up && !device.loopback && !is_vlan(device) && in_scope && gets_requests
    };
    let selected_devices: Vec<NetDevice> = if options.interfaces.is_empty() {
        let candidates: Vec<&NetDevice> = devices.iter().filter(is_candidate).collect();
        candidates
            .iter()
            // A bridge itself has no XDP in the driver, so its NIC stays.
            .filter(|device| !(device.has_driver(&["tun", "veth"]) && device.is_port(&candidates)))
            .map(|device| (*device).clone())
            .collect()
    } else {
        let mut selected_devices = Vec::new();
        for name in options.interfaces {
            match devices.iter().find(|device| device.name == *name) {
                Some(device) if device.loopback => {
                    fallbacks.push(xdp_fallback(name, "the loopback interface has no queues".to_owned()));
                }
                Some(device) => selected_devices.push(device.clone()),
                None => fallbacks.push(xdp_fallback(name, "there is no such interface here".to_owned())),
            }
        }
        selected_devices
    };
    let (vlans, served_devices): (Vec<&NetDevice>, Vec<&NetDevice>) = devices.iter().partition(is_vlan);
    let mut served_vlans = vlans.into_iter().filter(|vlan| vlan.addresses.iter().any(is_served)).peekable();
    if selected_devices.is_empty() {
        return Err(match (options.interfaces, served_vlans.peek()) {
            ([], Some(vlan)) => format!("{}: {LACKS_TAG}", vlan.name),
            ([], None) => format!("no interface that is up and not loopback has {}", options.address.ip()),
            _ => "none of the interfaces named can be served".to_owned(),
        });
    }
    fallbacks.extend(served_vlans.map(|vlan| xdp_fallback(&vlan.name, LACKS_TAG.to_owned())));
    // Addresses of the loopback interface, except its own, also get packets from outside.
    let bound = options.address.ip();
    let mut targets = Vec::new();
    for device in served_devices {
        let is_selected = selected_devices.iter().any(|selected| selected.index == device.index);
        let addresses = device.addresses.iter().filter(|address| {
            let gets_requests = device.gets_requests_at(**address, bound, options.only_v6);
            gets_requests || (is_selected && is_served(address))
        });
        let outer_addresses = addresses.filter(|address| !address.to_canonical().is_loopback());
        targets.extend(outer_addresses.map(|address| SocketAddr::new(*address, options.address.port())));
    }
    targets.sort_unstable();
    targets.dedup();
    if targets.is_empty() {
        return Err(format!("AF_XDP cannot serve {}", options.address.ip()));
    }
    if targets.len() > TARGETS {
        let what =
            format!("AF_XDP at all {} addresses; the sockets serve those after {TARGETS}", targets.len());
        fallbacks.push(Fallback { what, why: "the redirect program knows no more".to_owned() });
        targets.truncate(TARGETS);
    }
    Ok((selected_devices, targets))
}

// The targets that AF_XDP serves on an interface: below a VLAN its own and those of a bridge or bond whose port it is,
// because requests to other addresses may come through the VLAN. Also the reason, if unselected interfaces have others or
// no target is left.
fn targets_on(
    device: &NetDevice,
    devices: &[NetDevice],
    selected_devices: &[NetDevice],
    targets: &[SocketAddr],
) -> (Vec<SocketAddr>, Option<String>) {
    let (mut own_devices, mut vlan, mut index) = (vec![device], None, 0);
    while let Some(lower) = own_devices.get(index) {
        let uppers = devices.iter().filter(|upper| upper.lower.contains(&lower.name));
        let (vlans, others): (Vec<_>, Vec<_>) = uppers.partition(|upper| upper.has_driver(&[VLAN_DRIVER]));
        vlan = vlan.or(vlans.first().copied());
        own_devices.extend(others);
        index += 1;
    }
    let Some(vlan) = vlan else { return (targets.to_vec(), None) };
    let (own_targets, others): (Vec<_>, Vec<_>) =
        targets.iter().partition(|target| own_devices.iter().any(|own| own.addresses.contains(&target.ip())));
    let is_unselected = |target: &SocketAddr| {
        selected_devices.iter().all(|selected| !selected.addresses.contains(&target.ip()))
    };
    let is_reported = own_targets.is_empty() || others.iter().any(is_unselected);
    (own_targets, is_reported.then(|| format!("{LACKS_TAG} {}", vlan.name)))
}

/// Bytes of a frame that fits the packets of all interfaces if possible.
fn frame_bytes(devices: &[NetDevice]) -> u32 {
    let longest = devices.iter().filter_map(|device| device.mtu().ok()).max().unwrap_or(1500);
    if longest + LINK_HEADER + HEADROOM <= 2048 { 2048 } else { 4096 }
}

fn attach(
    options: &XdpServeOptions<'_>,
    device: &NetDevice,
    targets: &[SocketAddr],
    frame_bytes: u32,
) -> Result<AttachedInterface, String> {
    let name = &device.name;
    let read_error = |what: &str, error: io::Error| format!("cannot read {what} of {name}: {error}");
    if !device.up {
        return Err(format!("{name} is down when the server starts"));
    }
    let driver = device.driver.clone();
    // A frame has the queue of the member, and the kernel drops it if the socket has another device
    // (net/xdp/xsk.c, `xsk_rcv_check`).
    if driver.as_deref().is_some_and(|driver| DRIVERS_WITHOUT_QUEUES.contains(&driver)) {
        return Err(format!("{name} has no queues of its own: name its members instead"));
    }
    let mac = device.mac().map_err(|error| match error.raw_os_error() {
        Some(libc::EAFNOSUPPORT) => format!("{name} has no Ethernet frames"),
        _ => read_error("the hardware address", error),
    })?;
    let mtu = device.mtu().map_err(|error| read_error("the MTU", error))?;
    // Drivers without this request usually have one queue; the stack serves other queues.
    let queues = device.receive_queues().unwrap_or(1).max(1);
    let redirect_rule = program::RedirectRule { targets, mac, longest_frame: frame_bytes - HEADROOM, queues };
    let program = XskProgram::attach(&redirect_rule, name, device.index, options.settings.mode)?;
    let report = XdpInterface {
        name: name.clone(),
        index: device.index,
        driver,
        mode: options.settings.mode,
        mtu_bytes: mtu,
        queues: Vec::new(),
    };
    Ok(AttachedInterface { queues, program, report })
}

/// The queues of a worker: those whose number modulo the number of workers is the worker's.
fn open_worker_queues(
    options: &XdpServeOptions<'_>,
    worker: usize,
    frame_bytes: u32,
    deadline: Instant,
    interfaces: &mut [AttachedInterface],
    fallbacks: &mut Vec<Fallback>,
) -> Option<(Vec<XskQueue>, FramePool)> {
    let workers = options.placement.len();
    let own_queues: Vec<(usize, u32)> = interfaces
        .iter()
        .enumerate()
        .flat_map(|(index, interface)| (0..interface.queues).map(move |queue| (index, queue)))
        .filter(|(_, queue)| *queue as usize % workers == worker)
        .collect();
    if own_queues.is_empty() {
        return None;
    }
    let frames = options.settings.frames;
    let umem = match allocate_umem(frames as usize * own_queues.len(), frame_bytes, options.placement[worker])
    {
        Ok(umem) => umem,
        Err(error) => {
            let what = format!("AF_XDP for worker {worker}; its socket serves");
            fallbacks.push(Fallback { what, why: format!("no memory for frames: {error}") });
            return None;
        }
    };
    let mut queues: Vec<XskQueue> = Vec::new();
    for (interface_index, number) in own_queues {
        let AttachedInterface { program, report, .. } = &mut interfaces[interface_index];
        let owner = queues.first().map(|queue| &*queue.socket);
        let opened = open_socket(options.settings, &umem, report.index, number, owner, deadline)
            .and_then(|(socket, rings)| program.serve(number, &socket).map(|()| (socket, rings)));
        let (socket, rings) = match opened {
            Ok(opened) => opened,
            Err(why) => {
                fallbacks.push(xdp_fallback(&format!("queue {number} of {}", report.name), why));
                continue;
            }
        };
        report.queues.push(XdpQueue {
            queue: number,
            worker,
            zero_copy: socket.is_zero_copy().unwrap_or(false),
            need_wakeup: options.settings.need_wakeup,
            frames,
            frame_bytes,
            busy_poll_us: options.settings.busy_poll_us,
        });
        queues.push(XskQueue {
            socket: Arc::new(socket),
            rings,
            interface: report.index,
            mtu: report.mtu_bytes as usize,
            unfinished_checksums: report.driver.as_deref() == Some("veth"),
            need_wakeup: options.settings.need_wakeup,
            waiting: 0,
            wanted: frames / 2,
            in_hand: None,
            gone: false,
        });
    }
    let mut frames = FramePool::new(umem);
    for queue in &mut queues {
        queue.restock(&mut frames);
        queue.wake_receive();
    }
    (!queues.is_empty()).then_some((queues, frames))
}

/// Memory on the NUMA node of the worker's CPU.
fn allocate_umem(frames: usize, frame_bytes: u32, cpu: Option<u32>) -> io::Result<Umem> {
    let Some(cpu) = cpu else { return Umem::new(frames, frame_bytes) };
    let allocate_pinned = || {
        pin(cpu)?;
        Umem::new(frames, frame_bytes)
    };
    thread::scope(|scope| scope.spawn(allocate_pinned).join())
        .unwrap_or_else(|_| Err(io::Error::other("the thread that maps it ended")))
}

// Longest wait for queues that other sockets use. The kernel releases the queue of a closed socket
// later, from a work queue (net/xdp/xsk_buff_pool.c, xp_put_pool), and a server may restart
// immediately.
const BUSY: Duration = Duration::from_secs(1);

/// Binds a socket to a queue, and waits for it until `deadline` if another socket has it.
fn open_socket(
    settings: AfXdpSettings,
    umem: &Umem,
    interface: u32,
    queue: u32,
    owner: Option<&XskSocket>,
    deadline: Instant,
) -> Result<(XskSocket, xsk::SocketRings), String> {
    loop {
        match bind(settings, umem, interface, queue, owner) {
            Ok(opened) => return Ok(opened),
            Err((_, error)) if error.raw_os_error() == Some(libc::EBUSY) && Instant::now() < deadline => {
                thread::sleep(Duration::from_millis(5));
            }
            Err((step, error)) => return Err(describe_xsk_error(step, &error)),
        }
    }
}

/// The first socket of a worker registers the memory; the others share it. An error names its step.
fn bind(
    settings: AfXdpSettings,
    umem: &Umem,
    interface: u32,
    queue: u32,
    owner: Option<&XskSocket>,
) -> Result<(XskSocket, xsk::SocketRings), (&'static str, io::Error)> {
    let step_error = |step: &'static str| move |error: io::Error| (step, error);
    let socket = XskSocket::new().map_err(step_error("open an AF_XDP socket"))?;
    if owner.is_none() {
        socket.register(umem).map_err(step_error("register memory for frames"))?;
    }
    let rings = socket.rings(settings.frames).map_err(step_error("make the rings"))?;
    if settings.busy_poll_us > 0 {
        let time = std::time::Duration::from_micros(settings.busy_poll_us.into());
        socket.busy_poll(time, settings.busy_poll_budget).map_err(step_error("turn busy polling on"))?;
    }
    // Both calls only affect speed.
    let _ = socket.send_all_at_once(settings.frames);
    let _ = socket.enlarge_send_buffer(SEND_BUFFER);
    let zero_copy = settings.zero_copy && settings.mode == XdpMode::Driver;
    let bind_options = XskBind { interface, queue, zero_copy, need_wakeup: settings.need_wakeup };
    socket
        .bind(bind_options, owner.map(std::os::fd::AsFd::as_fd))
        .map_err(step_error("bind an AF_XDP socket"))?;
    Ok((socket, rings))
}

// Bytes of socket buffers for sending in copy mode. The system's default allows about two hundred frames per call; ring and
// frames limit them, too.
const SEND_BUFFER: i32 = 16 << 20;

fn describe_xsk_error(what: &str, error: &io::Error) -> String {
    let hint = match error.raw_os_error() {
        Some(libc::EBUSY) => ": another AF_XDP socket has the queue",
        Some(libc::ENOBUFS | libc::ENOMEM) => {
            ": the frames are locked memory, raise RLIMIT_MEMLOCK or have CAP_IPC_LOCK"
        }
        Some(libc::EPERM) => ": it needs CAP_NET_RAW and, for busy polling, CAP_NET_ADMIN",
        Some(libc::EOPNOTSUPP) => ": the driver does not have it as it is set up",
        _ => "",
    };
    format!("cannot {what}: {error}{hint}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options<'a>(
        address: &str,
        interfaces: &'a [String],
    ) -> Result<XdpServeOptions<'a>, std::net::AddrParseError> {
        let settings = AfXdpSettings::default();
        let address = address.parse()?;
        Ok(XdpServeOptions { settings, address, only_v6: false, interfaces, placement: &[] })
    }

    #[test]
    fn ports_of_bridges_and_link_local_veths_are_not_served_by_default()
    -> Result<(), Box<dyn std::error::Error>> {
        let mut devices = vec![
            NetDevice::sample("eth0", "ixgbe", &["2001:db8::1"], &[]),
            NetDevice::sample("eth1", "ixgbe", &["fe80::2"], &[]),
            NetDevice::sample("docker0", "bridge", &["fd00::1"], &["tap1"]),
            NetDevice::sample("tap1", "tun", &["fe80::3"], &[]),
            NetDevice::sample("veth1", "veth", &["fe80::4"], &[]),
            NetDevice::sample("veth2", "veth", &["fd01::1"], &[]),
        ];
        devices.iter_mut().zip(2..).for_each(|(device, index)| device.index = index);
        let named = ["veth1".to_owned()];
        for (interfaces, expected, target_count) in
            [(&[][..], &["eth0", "eth1", "docker0", "veth2"][..], 5), (&named[..], &["veth1"], 6)]
        {
            let options = XdpServeOptions { only_v6: true, ..options("[::]:7", interfaces)? };
            let (selected, targets) = choose_interfaces(&options, &devices, &mut Vec::new())?;
            assert_eq!(targets.len(), target_count, "{targets:?}");
            assert_eq!(selected.iter().map(|device| device.name.as_str()).collect::<Vec<_>>(), expected);
        }
        Ok(())
    }

    #[test]
    fn below_a_vlan_only_addresses_of_the_interface_are_served() {
        let device = NetDevice::sample;
        let devices = [
            device("lo", "", &["198.51.100.1"], &[]),
            device("eth0", "ixgbe", &["192.0.2.1"], &[]),
            device("eth1", "ixgbe", &["192.0.2.2"], &[]),
            device("bond0", "bonding", &["192.0.2.3"], &["eth1"]),
            device("bond0.5", VLAN_DRIVER, &[], &["bond0"]),
            device("br5", "bridge", &["192.0.2.4"], &["bond0.5"]),
        ];
        let selected = [devices[1].clone(), devices[2].clone(), devices[5].clone()];
        let reason = "replies would lack the tag of the VLAN bond0.5";
        for (index, addresses, served_count, expected_reason) in [
            (1, &["192.0.2.2:7", "192.0.2.3:7", "192.0.2.4:7", "198.51.100.1:7"][..], 4, None),
            (2, &["192.0.2.2:7", "192.0.2.3:7", "192.0.2.1:7", "192.0.2.4:7"], 2, None),
            (2, &["192.0.2.2:7", "198.51.100.1:7"], 1, Some(reason)),
            (2, &["192.0.2.1:7"], 0, Some(reason)),
        ] {
            let targets: Vec<SocketAddr> =
                addresses.iter().map(|address| address.parse().expect("an address")).collect();
            let (served, why) = targets_on(&devices[index], &devices, &selected, &targets);
            assert_eq!((&served[..], why.as_deref()), (&targets[..served_count], expected_reason));
        }
    }

    #[test]
    fn reason_names_the_vlan_that_has_the_address() -> Result<(), Box<dyn std::error::Error>> {
        let devices = [
            NetDevice::sample("lo", "", &["127.0.0.1"], &[]),
            NetDevice::sample("eth0", "ixgbe", &["192.0.2.1"], &[]),
            NetDevice::sample("eth0.100", VLAN_DRIVER, &["10.0.0.1"], &[]),
        ];
        let named = ["lo".to_owned()];
        for (address, interfaces, served, fallbacks, reason) in [
            ("192.0.2.1:7", &[][..], Some("192.0.2.1:7"), 0, ""),
            ("0.0.0.0:7", &[], Some("192.0.2.1:7"), 1, ""),
            ("10.0.0.1:7", &[], None, 0, "eth0.100: replies would lack the tag of the VLAN"),
            ("10.0.0.9:7", &[], None, 0, "no interface that is up and not loopback has 10.0.0.9"),
            ("10.0.0.1:7", &named, None, 1, "none of the interfaces named can be served"),
        ] {
            let options = options(address, interfaces)?;
            let mut found = Vec::new();
            let choice = choose_interfaces(&options, &devices, &mut found).map(|(_, targets)| targets);
            let expected = served.map(str::parse).transpose()?.map(|target| vec![target]);
            assert_eq!(choice, expected.ok_or_else(|| reason.to_owned()), "{address}");
            assert_eq!(found.len(), fallbacks, "{address}: {found:?}");
        }
        Ok(())
    }
}
