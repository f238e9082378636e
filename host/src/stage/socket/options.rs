//! Socket options that a process set, read from a copy of its descriptor.
//!
//! Only `getsockopt` is called, nothing is received or set, and the copy is closed before the next
//! one is made. If the process closes the socket at that moment, the socket exists some
//! microseconds longer.

use std::collections::BTreeMap;
use std::io;

use serde::{Deserialize, Serialize};
use strum::VariantArray as _;

use crate::process::copy::copy;
use crate::setting::{SocketKnob, socket_option_text};
use crate::sys::sockopt::{SOL_UDP, word};
use crate::{Host, HostError};

/// `UDP_GRO` of linux/udp.h (Linux 5.0).
const UDP_GRO: libc::c_int = 104;

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SocketOptions {
    pub reuseport: bool,
    /// The CPU of SO_INCOMING_CPU. The kernel sets it itself only on connected sockets
    /// (`__udp_queue_rcv_skb` in net/ipv4/udp.c, `tcp_v4_rcv` in net/ipv4/tcp_ipv4.c), so that on
    /// others it is the process's choice.
    pub incoming_cpu: Option<u32>,
    /// UDP_GRO: whether it accepts merged datagrams; off if the kernel has no such option.
    pub gro: bool,
    /// SO_RCVBUF in bytes as the kernel counts it, twice the requested size.
    pub receive_buffer_bytes: Option<u64>,
    /// Values of the options that can be set, as in [`crate::Setting::Socket`], without those that
    /// the kernel does not report.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub knobs: BTreeMap<SocketKnob, String>,
}

/// The options of this descriptor of a process. Requires permission to trace the process, and Linux
/// 5.6.
pub(crate) fn options(
    host: &Host,
    inode: u64,
    (pid, descriptor): (u32, u32),
) -> Result<SocketOptions, HostError> {
    let action = format!("reading the options of descriptor {descriptor} of process {pid}");
    host.call(&format!("socket/{inode}/options"), &action, || read(inode, pid, descriptor))
}

fn read(inode: u64, pid: u32, descriptor: u32) -> io::Result<SocketOptions> {
    let socket = copy(inode, (pid, descriptor))?;
    let option = |option| word(&socket, libc::SOL_SOCKET, option);
    Ok(SocketOptions {
        reuseport: option(libc::SO_REUSEPORT)? != 0,
        incoming_cpu: u32::try_from(option(libc::SO_INCOMING_CPU)?).ok(),
        gro: word(&socket, SOL_UDP, UDP_GRO).is_ok_and(|value| value != 0),
        receive_buffer_bytes: u64::try_from(option(libc::SO_RCVBUF)?).ok(),
        knobs: SocketKnob::VARIANTS
            .iter()
            .filter_map(|knob| Some((*knob, socket_option_text(*knob, &socket).ok()?)))
            .collect(),
    })
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn socket_options_are_read_through_the_owning_process() {
        let test = "socket_options_are_read_through_the_owning_process";
        let socket = UdpSocket::bind("127.0.0.1:0").expect("bound");
        let inode = rustix::fs::fstat(&socket).expect("an inode").st_ino;
        let at = (std::process::id(), u32::try_from(socket.as_raw_fd()).expect("a descriptor"));
        match options(&Host::live(), inode, at) {
            Ok(options) => {
                assert_eq!((options.reuseport, options.incoming_cpu, options.gro), (false, None, false));
                assert!(options.receive_buffer_bytes.is_some_and(|bytes| bytes > 2000));
                let knob = |knob| options.knobs.get(&knob).map(String::as_str);
                assert_eq!(knob(SocketKnob::IncomingCpu), Some("none"));
                assert!(knob(SocketKnob::PathMtu).is_some() && knob(SocketKnob::BusyPoll).is_some());
                let error = error_for_another_socket(inode, at);
                assert!(error.contains("descriptor"), "{error}");
            }
            Err(error) => linerate_testkit::skip(test, error),
        }
    }

    fn error_for_another_socket(inode: u64, at: (u32, u32)) -> String {
        options(&Host::live(), inode + 1, at).expect_err("another socket").to_string()
    }
}
