//! Options of a socket of a running process, set on a copy of its descriptor (`pidfd_getfd`, Linux
//! 5.6).
//!
//! They end with the socket. A socket is identified by its cookie, so that never another one is
//! set. The receive buffer of a TCP listener is inherited by its connections, whose buffers then do
//! not grow (`sk_userlocks` in `tcp_rcv_space_adjust` of net/ipv4/tcp_input.c, Linux 6.18).

mod option;
#[cfg(test)]
mod tests;

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::net::sockopt::socket_cookie;
use serde::{Deserialize, Serialize};

use super::SettingValue;
use super::knob::{Knob, WriteRefusal};
use crate::root::ExplainedErrno;
use crate::stage::socket::copy_of_any;
use crate::{Host, HostError};
use option::OptionValue;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SocketAt {
    /// SO_COOKIE, unique since boot.
    pub cookie: u64,
    /// As in `/proc/PID/fd`.
    pub inode: u64,
    /// A process that held it; another one may when this has ended, for example a forked worker.
    pub pid: u32,
    /// The descriptor in that process.
    pub descriptor: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SocketKnob {
    /// SO_INCOMING_CPU: a CPU, or `none`. Reuseport groups use it since Linux 6.2. The kernel sets
    /// it itself on a connected socket.
    IncomingCpu,
    /// SO_BUSY_POLL in microseconds. Raising it requires CAP_NET_ADMIN in the initial user
    /// namespace (`sk_setsockopt` of net/core/sock.c, Linux 6.18).
    BusyPoll,
    /// The receive buffer in bytes as the kernel counts it, twice the requested size, and ` by
    /// default` if the process requested none (SO_RCVBUFFORCE, SO_BUF_LOCK). Before Linux 5.14 the
    /// kernel does not report that, so never ` by default`. The kernel accepts only even numbers,
    /// and rounds up to about 2300. More than `net.core.rmem_max`, which is in requested bytes,
    /// requires CAP_NET_ADMIN in the initial user namespace.
    ReceiveBuffer,
    /// IP_MTU_DISCOVER, or IPV6_MTU_DISCOVER for a socket for IPv6 only: `want`, `dont`, `do`,
    /// `probe`, `interface` or `omit`. For a dual-stack socket it is that of IPv4, and IPv6 stays
    /// as it is, because only IPv4 has an ID in each packet. With `do` the kernel creates no IP ID
    /// (`__ip_select_ident`), and refuses packets larger than the path MTU.
    PathMtu,
}

impl SocketKnob {
    pub(crate) const ALL: [Self; 4] =
        [SocketKnob::IncomingCpu, SocketKnob::BusyPoll, SocketKnob::ReceiveBuffer, SocketKnob::PathMtu];

    /// For people.
    fn name(self) -> &'static str {
        match self {
            SocketKnob::IncomingCpu => "incoming CPU",
            SocketKnob::BusyPoll => "busy polling",
            SocketKnob::ReceiveBuffer => "receive buffer",
            SocketKnob::PathMtu => "path MTU discovery",
        }
    }

    /// For captures.
    fn key(self) -> &'static str {
        match self {
            SocketKnob::IncomingCpu => "incoming_cpu",
            SocketKnob::BusyPoll => "busy_poll",
            SocketKnob::ReceiveBuffer => "receive_buffer",
            SocketKnob::PathMtu => "path_mtu",
        }
    }

    fn parse(self, value: &SettingValue) -> Result<OptionValue, &'static str> {
        OptionValue::parse(self, value.as_str())
    }
}

/// The value of a socket's option as text.
pub(crate) fn words(knob: SocketKnob, socket: &impl AsFd) -> io::Result<String> {
    Ok(OptionValue::read(knob, socket)?.to_string())
}

pub(super) struct OnSocket<'s> {
    pub(super) socket: &'s SocketAt,
    pub(super) knob: SocketKnob,
}

impl OnSocket<'_> {
    fn key(&self) -> String {
        format!("socket/{}/{}", self.socket.cookie, self.knob.key())
    }

    /// A copy of exactly this socket.
    fn copy(&self, host: &Host) -> io::Result<OwnedFd> {
        let SocketAt { cookie, inode, pid, descriptor } = *self.socket;
        let copy = copy_of_any(host, inode, (pid, descriptor))?;
        if socket_cookie(&copy)? == cookie {
            return Ok(copy);
        }
        let words = "that socket was closed, and another has its inode".to_owned();
        Err(ExplainedErrno { errno: libc::ENOENT, words }.into())
    }

    fn two(&self, one: &SettingValue, other: &SettingValue) -> Option<(OptionValue, OptionValue)> {
        Some((self.knob.parse(one).ok()?, self.knob.parse(other).ok()?))
    }
}

impl Knob for OnSocket<'_> {
    fn name(&self) -> String {
        let SocketAt { cookie, pid, descriptor, .. } = self.socket;
        format!("{} of socket {cookie} (descriptor {descriptor} of process {pid})", self.knob.name())
    }

    fn read(&self, host: &Host) -> Result<SettingValue, HostError> {
        let ask = || Ok(OptionValue::read(self.knob, &self.copy(host)?)?.to_string());
        host.call::<String>(&self.key(), "reading it", ask).map(SettingValue::new)
    }

    fn check(&self, value: &SettingValue) -> Result<(), &'static str> {
        self.knob.parse(value).map(|_| ())
    }

    fn write(&self, host: &Host, value: &SettingValue) -> Result<(), WriteRefusal> {
        let wanted = self.knob.parse(value).map_err(WriteRefusal::BadValue)?;
        let largest = || host.read("/proc/sys/net/core/rmem_max").ok()?.trim().parse().ok();
        let act = || {
            let copy = self.copy(host)?;
            wanted.write(&copy, largest()).map_err(explained)
        };
        let rehearse = |answer: &mut String| *answer = wanted.rounded().to_string();
        Ok(host.act(&self.key(), "setting it", act, rehearse)?)
    }

    fn same(&self, one: &SettingValue, other: &SettingValue) -> bool {
        self.two(one, other).is_some_and(|(one, other)| one == other)
    }

    fn took(&self, wanted: &SettingValue, found: &SettingValue) -> bool {
        self.two(wanted, found).is_some_and(|(wanted, found)| wanted.took(found))
    }

    fn passes(&self, to: &SettingValue, found: &SettingValue) -> bool {
        self.two(to, found).is_some_and(|(to, found)| to.passes(found))
    }

    fn command(&self, _value: &SettingValue) -> Option<String> {
        None
    }
}

/// Adds the required privilege to a refusal.
fn explained(error: io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(errno @ libc::EPERM) => {
            let words = "it takes CAP_NET_ADMIN, and not that of a container's user namespace".to_owned();
            ExplainedErrno { errno, words }.into()
        }
        _ => error,
    }
}
