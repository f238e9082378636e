//! Socket options: their values as text, and the calls that read and set them.

use std::fmt;
use std::io;
use std::os::fd::AsFd;

use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantArray};

use crate::root::ExplainedErrno;
use crate::sys::sockopt::{set_word, word};

// Options of asm-generic/socket.h that libc does not define.
const SO_BUSY_POLL: libc::c_int = 46;
// Linux 5.14.
const SO_BUF_LOCK: libc::c_int = 72;
// `SOCK_RCVBUF_LOCK` of linux/socket.h: the process requested its buffer size.
const RECEIVE_LOCK: libc::c_int = 2;

// `IP_PMTUDISC_*` of linux/in.h by number; `IPV6_PMTUDISC_*` of linux/in6.h are equal.
const PATH_MTU: [&str; 6] = ["dont", "want", "do", "probe", "interface", "omit"];

// The kernel rounds up to `SOCK_MIN_RCVBUF` (net/sock.h, Linux 6.18), which depends on the size of
// its structures and has never been larger than this.
const LARGEST_MINIMUM: u32 = 8192;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[derive(IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
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
    /// The name in messages.
    pub(super) fn name(self) -> &'static str {
        match self {
            SocketKnob::IncomingCpu => "incoming CPU",
            SocketKnob::BusyPoll => "busy polling",
            SocketKnob::ReceiveBuffer => "receive buffer",
            SocketKnob::PathMtu => "path MTU discovery",
        }
    }

    /// The name in captures.
    pub(super) fn key(self) -> &'static str {
        self.into()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OptionValue {
    Cpu(Option<u32>),
    Microseconds(u32),
    // Bytes as the kernel counts them, and whether the process requested them.
    Buffer {
        bytes: u32,
        asked: bool,
    },
    /// An index into [`PATH_MTU`].
    PathMtu(u32),
}

impl OptionValue {
    /// The error describes the valid values.
    pub(super) fn parse(knob: SocketKnob, text: &str) -> Result<Self, &'static str> {
        // The kernel reads an int.
        let number = |text: &str| text.parse::<u32>().ok().filter(|number| i32::try_from(*number).is_ok());
        match knob {
            SocketKnob::IncomingCpu if text == "none" => Ok(OptionValue::Cpu(None)),
            SocketKnob::IncomingCpu => {
                number(text).map(|cpu| OptionValue::Cpu(Some(cpu))).ok_or("a CPU, or 'none'")
            }
            SocketKnob::BusyPoll => {
                number(text).map(OptionValue::Microseconds).ok_or("a number of microseconds, 0 for none")
            }
            SocketKnob::ReceiveBuffer => {
                let by_default = text.strip_suffix(" by default");
                let buffer = |bytes| OptionValue::Buffer { bytes, asked: by_default.is_none() };
                number(by_default.unwrap_or(text))
                    .filter(|bytes| *bytes > 0)
                    .map(buffer)
                    .ok_or("a number of bytes, with ' by default' behind it where the process asked for none")
            }
            SocketKnob::PathMtu => PATH_MTU
                .iter()
                .position(|word| *word == text)
                .and_then(|index| u32::try_from(index).ok())
                .map(OptionValue::PathMtu)
                .ok_or("one of want, dont, do, probe, interface, omit"),
        }
    }

    // Rounds as the kernel does: it doubles half of a buffer's size (`__sock_set_rcvbuf` of
    // net/core/sock.c).
    pub(super) fn rounded(self) -> Self {
        match self {
            OptionValue::Buffer { bytes, asked } => OptionValue::Buffer { bytes: bytes & !1, asked },
            value => value,
        }
    }

    /// Whether a write of this value succeeded if `actual` is read after it.
    pub(super) fn is_applied(self, actual: Self) -> bool {
        match (self, actual) {
            (
                OptionValue::Buffer { bytes, asked },
                OptionValue::Buffer { bytes: actual, asked: actual_asked },
            ) if asked == actual_asked && bytes < LARGEST_MINIMUM => {
                (bytes & !1..=LARGEST_MINIMUM).contains(&actual)
            }
            _ => self.rounded() == actual,
        }
    }

    /// Whether an interrupted write of this value may have left `actual`: the lock is removed last.
    pub(super) fn can_leave(self, actual: Self) -> bool {
        let OptionValue::Buffer { bytes, .. } = self else { return false };
        OptionValue::Buffer { bytes, asked: true }.is_applied(actual)
    }

    pub(super) fn read(knob: SocketKnob, socket: &impl AsFd) -> io::Result<Self> {
        let option = |option| word(socket, libc::SOL_SOCKET, option);
        let unsigned = |value: libc::c_int| {
            u32::try_from(value).map_err(|_| io::Error::from(io::ErrorKind::InvalidData))
        };
        match knob {
            SocketKnob::IncomingCpu => {
                option(libc::SO_INCOMING_CPU).map(|cpu| OptionValue::Cpu(u32::try_from(cpu).ok()))
            }
            SocketKnob::BusyPoll => option(SO_BUSY_POLL).and_then(unsigned).map(OptionValue::Microseconds),
            SocketKnob::ReceiveBuffer => Ok(OptionValue::Buffer {
                bytes: unsigned(option(libc::SO_RCVBUF)?)?,
                asked: buffer_lock(socket)?.is_none_or(|lock| lock & RECEIVE_LOCK != 0),
            }),
            SocketKnob::PathMtu => {
                let (level, option) = path_mtu(socket)?;
                let number = unsigned(word(socket, level, option)?)?;
                match PATH_MTU.get(number as usize) {
                    Some(_) => Ok(OptionValue::PathMtu(number)),
                    None => Err(io::Error::other(format!(
                        "the kernel reports {number}, which is not a known value"
                    ))),
                }
            }
        }
    }

    /// `max_bytes` is `net.core.rmem_max` in bytes, if known.
    pub(super) fn write(self, socket: &impl AsFd, max_bytes: Option<u32>) -> io::Result<()> {
        let option = |option, value| set_word(socket, libc::SOL_SOCKET, option, value);
        let int = |value: u32| {
            libc::c_int::try_from(value).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))
        };
        match self {
            // Any negative number means none (`reuseport_update_incoming_cpu` of
            // net/core/sock_reuseport.c, Linux 6.18).
            OptionValue::Cpu(cpu) => option(libc::SO_INCOMING_CPU, cpu.map_or(Ok(-1), int)?),
            OptionValue::Microseconds(time) => option(SO_BUSY_POLL, int(time)?),
            OptionValue::Buffer { bytes, asked } => write_buffer(socket, bytes, asked, max_bytes),
            OptionValue::PathMtu(number) => {
                let (level, option) = path_mtu(socket)?;
                set_word(socket, level, option, int(number)?)
            }
        }
    }
}

impl fmt::Display for OptionValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OptionValue::Cpu(None) => f.write_str("none"),
            OptionValue::Cpu(Some(number)) | OptionValue::Microseconds(number) => write!(f, "{number}"),
            OptionValue::Buffer { bytes, asked: true } => write!(f, "{bytes}"),
            OptionValue::Buffer { bytes, asked: false } => write!(f, "{bytes} by default"),
            OptionValue::PathMtu(number) => f.write_str(PATH_MTU.get(*number as usize).unwrap_or(&"?")),
        }
    }
}

// The buffers whose size the process requested; `None` before Linux 5.14.
fn buffer_lock(socket: &impl AsFd) -> io::Result<Option<libc::c_int>> {
    match word(socket, libc::SOL_SOCKET, SO_BUF_LOCK) {
        Ok(lock) => Ok(Some(lock)),
        Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => Ok(None),
        Err(error) => Err(error),
    }
}

fn write_buffer(
    socket: &impl AsFd,
    bytes: u32,
    is_requested: bool,
    max_bytes: Option<u32>,
) -> io::Result<()> {
    let half = libc::c_int::try_from(bytes / 2).map_err(|_| io::ErrorKind::InvalidInput)?;
    // A default buffer can be restored only if the lock can be removed.
    let before = buffer_lock(socket)?;
    if before.is_none() && !is_requested {
        let words = "that it was not asked for cannot be set before Linux 5.14 (SO_BUF_LOCK)";
        return Err(ExplainedErrno::error(libc::EOPNOTSUPP, words));
    }
    let result = set_word(socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, half);
    match result {
        // Without the privilege, sizes up to the limit for all processes are possible.
        Err(error)
            if error.raw_os_error() == Some(libc::EPERM)
                && max_bytes.is_some_and(|max_bytes| bytes / 2 <= max_bytes) =>
        {
            set_word(socket, libc::SOL_SOCKET, libc::SO_RCVBUF, half)?;
        }
        outcome => outcome?,
    }
    match before {
        Some(lock) if !is_requested => {
            // The send buffer's lock is in the same word, and stays.
            set_word(socket, libc::SOL_SOCKET, SO_BUF_LOCK, lock & !RECEIVE_LOCK)
        }
        _ => Ok(()),
    }
}

/// The option of path MTU discovery. A dual-stack socket uses the IPv4 option, because only IPv4
/// has an ID in every packet; its IPv6 option stays unchanged.
fn path_mtu(socket: &impl AsFd) -> io::Result<(libc::c_int, libc::c_int)> {
    let v4 = (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER);
    match word(socket, libc::SOL_SOCKET, libc::SO_DOMAIN)? {
        libc::AF_INET => Ok(v4),
        libc::AF_INET6 if word(socket, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY)? == 0 => Ok(v4),
        libc::AF_INET6 => Ok((libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER)),
        _ => Err(ExplainedErrno::error(libc::EOPNOTSUPP, "it is no socket of IPv4 or IPv6")),
    }
}
