//! Options of a socket of a running process, set on a copy of its descriptor (`pidfd_getfd`, Linux
//! 5.6).
//!
//! Options end with the socket. A socket is identified by its cookie, so that no other socket is
//! changed. The connections of a TCP listener inherit its receive buffer, and then their buffers do
//! not grow (`sk_userlocks` in `tcp_rcv_space_adjust` of net/ipv4/tcp_input.c, Linux 6.18).

mod option;
#[cfg(test)]
mod tests;

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::net::sockopt::socket_cookie;
use serde::{Deserialize, Serialize};

use super::knob::{Knob, WriteRefusal};
use super::value::SettingValue;
use crate::process::copy::copy_of_any;
use crate::root::ExplainedErrno;
use crate::{Host, HostError};
use option::OptionValue;
pub use option::SocketKnob;

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

impl SocketAt {
    /// A copy of the descriptor of exactly this socket, which stays open until the copy is closed.
    ///
    /// # Errors
    /// `ENOENT` if the socket was closed; `EPERM` names the capability.
    pub fn copy(&self, host: &Host) -> io::Result<OwnedFd> {
        let copy = copy_of_any(host, self.inode, (self.pid, self.descriptor))?;
        if socket_cookie(&copy)? == self.cookie {
            return Ok(copy);
        }
        let words = "that socket was closed, and another has its inode";
        Err(ExplainedErrno::error(libc::ENOENT, words))
    }
}

/// The value of a socket's option as text.
pub(crate) fn option_text(knob: SocketKnob, socket: &impl AsFd) -> io::Result<String> {
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

    fn parse_both(&self, left: &SettingValue, right: &SettingValue) -> Option<(OptionValue, OptionValue)> {
        Some((
            OptionValue::parse(self.knob, left.as_str()).ok()?,
            OptionValue::parse(self.knob, right.as_str()).ok()?,
        ))
    }
}

impl Knob for OnSocket<'_> {
    fn name(&self) -> String {
        let SocketAt { cookie, pid, descriptor, .. } = self.socket;
        format!("{} of socket {cookie} (descriptor {descriptor} of process {pid})", self.knob.name())
    }

    fn read(&self, host: &Host) -> Result<SettingValue, HostError> {
        let read = || Ok(OptionValue::read(self.knob, &self.socket.copy(host)?)?.to_string());
        host.call::<String>(&self.key(), "reading it", read).map(SettingValue::new)
    }

    fn canonical(&self, value: &SettingValue) -> Result<String, &'static str> {
        OptionValue::parse(self.knob, value.as_str()).map(|value| value.to_string())
    }

    fn write(&self, host: &Host, value: &SettingValue) -> Result<(), WriteRefusal> {
        let requested = OptionValue::parse(self.knob, value.as_str())?;
        let max_buffer = || host.read("/proc/sys/net/core/rmem_max").ok()?.trim().parse().ok();
        let change = || {
            let copy = self.socket.copy(host)?;
            requested.write(&copy, max_buffer()).map_err(explain_error)
        };
        let rehearse = |answer: &mut String| *answer = requested.rounded().to_string();
        Ok(host.apply_change(&self.key(), "setting it", change, rehearse)?)
    }

    fn is_applied(&self, requested: &SettingValue, actual: &SettingValue) -> bool {
        self.parse_both(requested, actual).is_some_and(|(requested, actual)| requested.is_applied(actual))
    }

    fn can_leave(&self, requested: &SettingValue, actual: &SettingValue) -> bool {
        self.parse_both(requested, actual).is_some_and(|(requested, actual)| requested.can_leave(actual))
    }
}

/// Adds the required privilege to an error.
fn explain_error(error: io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(errno @ libc::EPERM) => {
            let words =
                "this requires CAP_NET_ADMIN in the initial user namespace, not in that of a container";
            ExplainedErrno::error(errno, words)
        }
        _ => error,
    }
}
