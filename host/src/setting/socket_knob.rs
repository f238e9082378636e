//! Options of a socket of a running process, set on a copy of its descriptor (`pidfd_getfd`, Linux 5.6).
//!
//! They end with the socket. A socket is known by its cookie: a copy of another one is never set. Of a TCP listener the
//! receive buffer is handed on to its connections, which then do not grow theirs (`sk_userlocks` in `tcp_rcv_space_adjust` of
//! net/ipv4/tcp_input.c, Linux 6.18).

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

/// A socket, and who holds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SocketAt {
    /// Its cookie (SO_COOKIE): no other socket of this boot has it.
    pub cookie: u64,
    /// Its inode, by which `/proc/PID/fd` names it.
    pub inode: u64,
    /// A process that held it; another may when this one is gone, as of forked workers.
    pub pid: u32,
    /// Its descriptor there.
    pub descriptor: u32,
}

/// An option of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SocketKnob {
    /// SO_INCOMING_CPU: a CPU, or `none`. A reuseport group goes by it since Linux 6.2. On a connected socket the kernel
    /// records the CPU by itself.
    IncomingCpu,
    /// SO_BUSY_POLL in microseconds. To raise it takes CAP_NET_ADMIN in the initial user namespace (`sk_setsockopt` of
    /// net/core/sock.c, Linux 6.18).
    BusyPoll,
    /// The receive buffer in bytes as the kernel counts it, twice what was asked for, and ` by default` where the process
    /// asked for none (SO_RCVBUFFORCE, SO_BUF_LOCK). Before Linux 5.14 it is not told who asked, and never ` by default`. The
    /// kernel takes even numbers only, and rounds up to some 2300. More than `net.core.rmem_max`, which is counted in what is
    /// asked for, takes CAP_NET_ADMIN in the initial user namespace.
    ReceiveBuffer,
    /// IP_MTU_DISCOVER, or of a socket for IPv6 alone IPV6_MTU_DISCOVER: `want`, `dont`, `do`, `probe`, `interface` or
    /// `omit`. Of one for both it is that of IPv4, and what it sends by IPv6 stays as it is: only IPv4 has an ID in each
    /// packet. With `do` the kernel makes no IP ID (`__ip_select_ident`), and refuses to send what is larger than the path
    /// takes.
    PathMtu,
}

impl SocketKnob {
    /// All of them.
    pub(crate) const ALL: [Self; 4] =
        [SocketKnob::IncomingCpu, SocketKnob::BusyPoll, SocketKnob::ReceiveBuffer, SocketKnob::PathMtu];

    /// What a person calls it.
    fn name(self) -> &'static str {
        match self {
            SocketKnob::IncomingCpu => "incoming CPU",
            SocketKnob::BusyPoll => "busy polling",
            SocketKnob::ReceiveBuffer => "receive buffer",
            SocketKnob::PathMtu => "path MTU discovery",
        }
    }

    /// What a capture calls it.
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

/// What an option of a socket reads, as its knob has it.
pub(crate) fn words(knob: SocketKnob, socket: &impl AsFd) -> io::Result<String> {
    Ok(OptionValue::read(knob, socket)?.to_string())
}

pub(super) struct OnSocket<'s> {
    pub(super) socket: &'s SocketAt,
    pub(super) knob: SocketKnob,
}

impl OnSocket<'_> {
    /// Where a capture has it.
    fn key(&self) -> String {
        format!("socket/{}/{}", self.socket.cookie, self.knob.key())
    }

    /// A copy of the very socket.
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

/// What is not permitted says what it takes.
fn explained(error: io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(errno @ libc::EPERM) => {
            let words = "it takes CAP_NET_ADMIN, and not that of a container's user namespace".to_owned();
            ExplainedErrno { errno, words }.into()
        }
        _ => error,
    }
}
