//! Links, addresses and neighbours through rtnetlink.
//!
//! The functions that make messages are pure; a [`RtnetlinkConnection`] sends one and waits for the answer.

use std::io;

use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE, NLM_F_REQUEST, NLMSG_ERROR, NetlinkBuffer,
    NetlinkMessage,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

mod message;

pub(crate) use message::{
    Mac, NewEnd, address, delete_pairs, get_link, link_up, neighbour, no_link_local, veth_pair,
};

/// Index of `lo` in every namespace (`LOOPBACK_IFINDEX` of net/flow.h).
pub(crate) const LOOPBACK: u32 = 1;

/// `RTMGRP_LINK` of linux/rtnetlink.h: changes of links.
const GROUP_LINK: u32 = 1;
/// `NLMSGERR_ATTR_MSG` of linux/netlink.h (since Linux 4.12).
const ERROR_ATTRIBUTE_MESSAGE: u16 = 1;
/// `NLM_F_ACK_TLVS` of linux/netlink.h: the answer carries attributes.
const ANSWER_HAS_ATTRIBUTES: u16 = 0x200;
/// `NLM_F_CAPPED` of linux/netlink.h: the answer repeats the request's header only.
const ANSWER_IS_CAPPED: u16 = 0x100;
/// `IFF_RUNNING` of linux/if.h: up, with carrier, and its queues active.
const FLAG_RUNNING: u32 = 0x40;
/// No answer to a request takes longer than this unless the kernel lost it.
const ANSWER_DEADLINE: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(crate) struct RtnetlinkRefusal {
    pub source: io::Error,
    /// The kernel's message.
    pub detail: Option<String>,
}

impl From<io::Error> for RtnetlinkRefusal {
    fn from(source: io::Error) -> Self {
        Self { source, detail: None }
    }
}

/// A netlink socket. It belongs to the network namespace of the thread that opened it.
pub(crate) struct RtnetlinkConnection {
    socket: Socket,
    sequence: u32,
}

impl RtnetlinkConnection {
    pub(crate) fn open() -> io::Result<Self> {
        Self::open_groups(0)
    }

    /// Opens a connection that receives changes of links.
    pub(crate) fn open_watch() -> io::Result<Self> {
        Self::open_groups(GROUP_LINK)
    }

    fn open_groups(groups: u32) -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind(&SocketAddr::new(0, groups))?;
        // Both options only add detail to errors.
        let _ = socket.set_ext_ack(true);
        let _ = socket.set_cap_ack(true);
        Ok(Self { socket, sequence: 0 })
    }

    pub(crate) fn create(&mut self, message: RouteNetlinkMessage) -> Result<(), RtnetlinkRefusal> {
        self.request(message, NLM_F_CREATE | NLM_F_EXCL).map(drop)
    }

    /// Creates an object; an existing one stays.
    pub(crate) fn replace(&mut self, message: RouteNetlinkMessage) -> Result<(), RtnetlinkRefusal> {
        self.request(message, NLM_F_CREATE | NLM_F_REPLACE).map(drop)
    }

    /// Changes or removes an existing object.
    pub(crate) fn change(&mut self, message: RouteNetlinkMessage) -> Result<(), RtnetlinkRefusal> {
        self.request(message, 0).map(drop)
    }

    /// Whether a link is up with carrier and its queues are active.
    pub(crate) fn is_running(&mut self, index: u32) -> Result<bool, RtnetlinkRefusal> {
        let answer = self.request(get_link(index), 0)?;
        // struct ifinfomsg: flags at 8. Nothing else of the answer is needed.
        let flags = answer.as_deref().and_then(|body| read_u32(body, 8));
        match flags {
            Some(flags) => Ok(flags & FLAG_RUNNING != 0),
            None => Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
        }
    }

    /// Waits for any change of links; `false` if there was none in time.
    pub(crate) fn wait_for_change(&self, max_wait: Duration) -> io::Result<bool> {
        let has_change = wait_readable(self.fd(), max_wait)?;
        if has_change {
            // The content does not matter, because the caller queries again.
            match self.socket.recv_from_full() {
                Err(e) if e.raw_os_error() != Some(libc::ENOBUFS) => return Err(e),
                _ => {}
            }
        }
        Ok(has_change)
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Sends a request and reads until its acknowledgement. Returns the body of the last answer
    /// before the acknowledgement.
    fn request(
        &mut self,
        message: RouteNetlinkMessage,
        flags: u16,
    ) -> Result<Option<Vec<u8>>, RtnetlinkRefusal> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut packet = NetlinkMessage::from(message);
        packet.header.flags = NLM_F_REQUEST | NLM_F_ACK | flags;
        packet.header.sequence_number = self.sequence;
        packet.finalize();
        let mut bytes = vec![0; packet.buffer_len()];
        packet.serialize(&mut bytes);
        self.socket.send(&bytes, 0)?;

        let deadline = Instant::now() + ANSWER_DEADLINE;
        let mut answer = None;
        loop {
            let remaining = deadline.saturating_duration_since(Instant::now());
            if !wait_readable(self.fd(), remaining)? {
                return Err(io::Error::from(io::ErrorKind::TimedOut).into());
            }
            let (datagram, _) = self.socket.recv_from_full()?;
            for part in parts(&datagram) {
                if part.sequence != self.sequence {
                    continue;
                }
                if part.kind != NLMSG_ERROR {
                    answer = Some(part.body.to_vec());
                    continue;
                }
                return match acknowledgement(part.flags, part.body) {
                    Ok(()) => Ok(answer),
                    Err(refusal) => Err(refusal),
                };
            }
        }
    }
}

struct MessagePart<'a> {
    kind: u16,
    flags: u16,
    sequence: u32,
    body: &'a [u8],
}

/// The messages of a datagram, up to the first that is malformed.
fn parts(mut datagram: &[u8]) -> impl Iterator<Item = MessagePart<'_>> {
    std::iter::from_fn(move || {
        let buffer = NetlinkBuffer::new_checked(datagram).ok()?;
        let length = buffer.length() as usize;
        let part = MessagePart {
            kind: buffer.message_type(),
            flags: buffer.flags(),
            sequence: buffer.sequence_number(),
            body: datagram.get(16..length)?,
        };
        datagram = datagram.get(length.next_multiple_of(4)..).unwrap_or(&[]);
        Some(part)
    })
}

/// Reads the body of an `NLMSG_ERROR`: struct nlmsgerr, possibly followed by attributes.
fn acknowledgement(flags: u16, body: &[u8]) -> Result<(), RtnetlinkRefusal> {
    let code = match read_u32(body, 0) {
        Some(code) => code.cast_signed(),
        None => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
    };
    if code == 0 {
        return Ok(());
    }
    Err(RtnetlinkRefusal {
        source: io::Error::from_raw_os_error(code.saturating_neg()),
        detail: kernel_message(flags, body),
    })
}

fn kernel_message(flags: u16, body: &[u8]) -> Option<String> {
    if flags & ANSWER_HAS_ATTRIBUTES == 0 {
        return None;
    }
    let request =
        if flags & ANSWER_IS_CAPPED != 0 { 16 } else { (read_u32(body, 4)? as usize).next_multiple_of(4) };
    let mut attributes = body.get(4usize.checked_add(request)?..)?;
    while let (Some(length), Some(kind)) = (read_u16(attributes, 0), read_u16(attributes, 2)) {
        let length = usize::from(length);
        let value = attributes.get(4..length)?;
        if kind == ERROR_ATTRIBUTE_MESSAGE {
            let message = String::from_utf8_lossy(value);
            return Some(message.trim_end_matches('\0').to_owned());
        }
        attributes = attributes.get(length.next_multiple_of(4)..)?;
    }
    None
}

fn read_u32(bytes: &[u8], offset: usize) -> Option<u32> {
    let field = bytes.get(offset..offset.checked_add(4)?)?;
    Some(u32::from_ne_bytes(field.try_into().ok()?))
}

fn read_u16(bytes: &[u8], offset: usize) -> Option<u16> {
    let field = bytes.get(offset..offset.checked_add(2)?)?;
    Some(u16::from_ne_bytes(field.try_into().ok()?))
}

/// Waits until something can be read; `false` when the time is over.
pub(crate) fn wait_readable(fd: BorrowedFd<'_>, max_wait: Duration) -> io::Result<bool> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let deadline = Instant::now() + max_wait;
    loop {
        let remaining = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec {
            tv_sec: i64::try_from(remaining.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: remaining.subsec_nanos().into(),
        };
        let mut poll_fds = [PollFd::new(&fd, PollFlags::IN)];
        match poll(&mut poll_fds, Some(&timeout)) {
            Ok(ready) => return Ok(ready > 0),
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

#[cfg(test)]
mod tests;
