//! Reads all settings of a server that a boost may change: from `/proc`, with `getsockopt` on
//! copies of its sockets, and from `linerate doctor`, which reports how a socket group is steered.

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::{AsFd, OwnedFd};

use linerate_host::Setting;
use linerate_host::setting::{SocketAt, SocketKnob};
use rustix::net::sockopt;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use super::scene::BoostServersTestHost;
use crate::support::document_of;

/// The values of a server's settings, by name.
pub(crate) type ServerSettingValues = BTreeMap<String, String>;

/// A process and all its descendants.
pub(super) fn family(pid: u32) -> Vec<u32> {
    let mut family = vec![pid];
    let mut next = 0;
    while let Some(parent) = family.get(next).copied() {
        next += 1;
        for thread in threads(parent) {
            let children = fs::read_to_string(format!("/proc/{parent}/task/{thread}/children"));
            let children = children.unwrap_or_default();
            family.extend(children.split_ascii_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
        }
    }
    family
}

/// The name of a process (`comm`).
pub(super) fn name(pid: u32) -> String {
    fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim().to_owned()
}

/// CPUs on which a thread may run, as a list such as `0-1`.
pub(crate) fn allowed_cpus(pid: u32, thread: u32) -> String {
    let status = fs::read_to_string(format!("/proc/{pid}/task/{thread}/status")).expect("a thread");
    let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    line.expect("a list").trim().to_owned()
}

pub(super) fn threads(pid: u32) -> Vec<u32> {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let mut threads: Vec<u32> =
        tasks.filter_map(|task| task.ok()?.file_name().to_str()?.parse().ok()).collect();
    threads.sort_unstable();
    threads
}

/// Reads all settings of a server.
pub(crate) fn traces(host: &BoostServersTestHost, pid: u32, port: u16) -> ServerSettingValues {
    let mut traces = ServerSettingValues::new();
    for process in family(pid) {
        for thread in threads(process) {
            traces.insert(format!("CPUs of thread {thread}"), allowed_cpus(process, thread));
        }
        for (descriptor, socket) in sockets(process) {
            let linerate_options = linerate_options(process, descriptor, &socket);
            traces.insert(format!("socket {descriptor} of {process}"), options(&socket) + &linerate_options);
        }
    }
    for (group, steering) in steering(host, port) {
        traces.insert(format!("steering of {group}"), steering);
    }
    traces
}

/// How the kernel chooses among the sockets of each UDP group of the port.
pub(super) fn steering(host: &BoostServersTestHost, port: u16) -> Vec<(String, String)> {
    let document = document_of(&host.doctor(port, &[]));
    let services = document["result"]["stages"]["socket"]["services"].as_array().expect("services").clone();
    let udp = services.into_iter().filter(|service| service["protocol"] == "udp");
    udp.map(|service| (service["local"].to_string(), service["steering"].to_string())).collect()
}

/// Copies of a process's IPv4 and IPv6 sockets, by descriptor.
fn sockets(pid: u32) -> Vec<(u32, OwnedFd)> {
    let process = Pid::from_raw(pid.cast_signed()).expect("a process id");
    let process = pidfd_open(process, PidfdFlags::empty()).expect("a process");
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).expect("descriptors");
    let mut descriptors: Vec<u32> =
        descriptors.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect();
    descriptors.sort_unstable();
    let copy = |descriptor: u32| {
        let flags = PidfdGetfdFlags::empty();
        let copy = pidfd_getfd(&process, descriptor.cast_signed(), flags).ok()?;
        let domain = sockopt::socket_domain(&copy).ok()?;
        let internet = [rustix::net::AddressFamily::INET, rustix::net::AddressFamily::INET6];
        internet.contains(&domain).then_some((descriptor, copy))
    };
    descriptors.into_iter().filter_map(copy).collect()
}

/// Busy poll and receive buffer, read by the same code that sets them.
fn linerate_options(pid: u32, descriptor: u32, socket: &OwnedFd) -> String {
    let cookie = sockopt::socket_cookie(socket).expect("a cookie");
    let inode = rustix::fs::fstat(socket).expect("an inode").st_ino;
    let socket = SocketAt { cookie, inode, pid, descriptor };
    let read = |knob| Setting::Socket { socket, knob }.read(&linerate_host::Host::live());
    format!(", busy poll {:?}, {:?}", read(SocketKnob::BusyPoll), read(SocketKnob::ReceiveBuffer))
}

fn options(socket: &OwnedFd) -> String {
    let socket = socket.as_fd();
    // On an IPv4 socket the IPv6 option is an error, and the same error before and after.
    format!(
        "cookie {:?}, receive buffer {:?}, send buffer {:?}, incoming CPU {:?}, reuseport {:?}, path MTU {:?} {:?}",
        sockopt::socket_cookie(socket),
        sockopt::socket_recv_buffer_size(socket),
        sockopt::socket_send_buffer_size(socket),
        sockopt::socket_incoming_cpu(socket),
        sockopt::socket_reuseport(socket),
        sockopt::ip_mtu_discover(socket),
        sockopt::ipv6_mtu_discover(socket),
    )
}
