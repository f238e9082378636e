//! A netlink socket for requests and answers.

use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use super::attribute::{attribute, text};
use crate::root::ExplainedErrno;
use netlink_packet_core::{NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR, NetlinkBuffer};
use netlink_sys::{Socket, SocketAddr};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

// The kernel answers sooner unless it lost the answer.
const ANSWER_DEADLINE: Duration = Duration::from_secs(10);

// Attempts for a dump that the kernel interrupts because the listed objects change.
const DUMP_ATTEMPTS: u32 = 3;

// Bytes of struct nlmsghdr (linux/netlink.h).
const HEADER_BYTES: usize = 16;

// `NLM_F_DUMP_INTR`: the listed objects changed during the dump, so that entries may be missing or
// repeated.
const INTERRUPTED: u16 = 0x10;

#[derive(Debug)]
pub struct NetlinkConnection {
    socket: Socket,
    sequence: u32,
}

/// Message type and the bytes after the header.
#[derive(Debug)]
pub struct NetlinkAnswer {
    pub kind: u16,
    pub body: Vec<u8>,
}

/// `NLM_F_CAPPED` and `NLM_F_ACK_TLVS` of an acknowledgement, and the attribute with the message.
const CAPPED: u16 = 0x100;
const HAS_ATTRIBUTES: u16 = 0x200;
const MESSAGE: u16 = 1;

#[derive(Default)]
struct NetlinkAnswers {
    received: Vec<NetlinkAnswer>,
    interrupted: bool,
}

impl NetlinkConnection {
    /// Opens a socket in the calling thread's network namespace.
    ///
    /// # Errors
    /// The error of the system call.
    pub fn open(protocol: isize) -> io::Result<Self> {
        let mut socket = Socket::new(protocol)?;
        socket.bind(&SocketAddr::new(0, 0))?;
        Ok(Self { socket, sequence: 0 })
    }

    /// Requests error messages as text (`NETLINK_EXT_ACK`, Linux 4.12) without a copy of the
    /// request. Older kernels return only the error number.
    pub fn request_error_texts(&mut self) {
        let _ = self.socket.set_cap_ack(true).and_then(|()| self.socket.set_ext_ack(true));
    }

    /// Sends a request and reads its answers up to the acknowledgement or the end of the dump.
    ///
    /// # Errors
    /// The error of the answer; `Interrupted` if a dump is inconsistent.
    pub fn request(&mut self, kind: u16, flags: u16, body: &[u8]) -> io::Result<Vec<NetlinkAnswer>> {
        self.exchange(kind, NLM_F_ACK | flags, body, |_| false)
    }

    /// Sends a request without acknowledgement, and reads its answers until they are complete or a
    /// message marks their end.
    pub(crate) fn ask(
        &mut self,
        kind: u16,
        is_complete: impl Fn(&[NetlinkAnswer]) -> bool,
    ) -> io::Result<Vec<NetlinkAnswer>> {
        self.exchange(kind, 0, &[], is_complete)
    }

    fn exchange(
        &mut self,
        kind: u16,
        flags: u16,
        body: &[u8],
        is_complete: impl Fn(&[NetlinkAnswer]) -> bool,
    ) -> io::Result<Vec<NetlinkAnswer>> {
        self.sequence = self.sequence.wrapping_add(1);
        self.socket.send(&message(kind, NLM_F_REQUEST | flags, self.sequence, body), 0)?;
        let deadline = Instant::now() + ANSWER_DEADLINE;
        let mut answers = NetlinkAnswers::default();
        loop {
            self.wait(deadline)?;
            let (datagram, _) = self.socket.recv_from_full()?;
            if self.read_datagram(&datagram, &mut answers)? || is_complete(&answers.received) {
                return if answers.interrupted {
                    Err(io::ErrorKind::Interrupted.into())
                } else {
                    Ok(answers.received)
                };
            }
        }
    }

    /// Sends a dump request, and repeats it if the dump is inconsistent.
    pub(crate) fn dump(&mut self, kind: u16, body: &[u8]) -> io::Result<Vec<NetlinkAnswer>> {
        let mut attempts = 1;
        loop {
            match self.request(kind, NLM_F_DUMP, body) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted && attempts < DUMP_ATTEMPTS => {
                    attempts += 1;
                }
                result => return result,
            }
        }
    }

    /// Reads the answers in a datagram. Returns whether the end was among them.
    fn read_datagram(&self, mut datagram: &[u8], answers: &mut NetlinkAnswers) -> io::Result<bool> {
        while let Ok(packet) = NetlinkBuffer::new_checked(datagram) {
            let length = packet.length() as usize;
            let body = datagram.get(HEADER_BYTES..length).unwrap_or_default();
            if packet.sequence_number() == self.sequence {
                answers.interrupted |= packet.flags() & INTERRUPTED != 0;
                match packet.message_type() {
                    // The end of a list of audit rules.
                    NLMSG_DONE if body.is_empty() => return Ok(true),
                    // The end of a dump contains an error like an acknowledgement.
                    NLMSG_ERROR | NLMSG_DONE => {
                        return check_acknowledgement(body, packet.flags()).map(|()| true);
                    }
                    kind => answers.received.push(NetlinkAnswer { kind, body: body.to_vec() }),
                }
            }
            datagram = datagram.get(length.next_multiple_of(4)..).unwrap_or_default();
        }
        Ok(false)
    }

    fn wait(&self, deadline: Instant) -> io::Result<()> {
        loop {
            let remaining = deadline.saturating_duration_since(Instant::now());
            let timeout =
                Timespec { tv_sec: remaining.as_secs() as _, tv_nsec: remaining.subsec_nanos() as _ };
            let fd = self.socket.as_fd();
            match poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&timeout)) {
                Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
                Ok(_) => return Ok(()),
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

fn message(kind: u16, flags: u16, sequence: u32, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER_BYTES + body.len());
    let length = u32::try_from(HEADER_BYTES + body.len()).unwrap_or(u32::MAX);
    bytes.extend(length.to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(flags.to_ne_bytes());
    bytes.extend(sequence.to_ne_bytes());
    bytes.extend(0_u32.to_ne_bytes());
    bytes.extend(body);
    bytes
}

// Reads an `NLMSG_ERROR`: struct nlmsgerr, whose error is 0 for success. Depending on the flags,
// the request or only its header follows, then attributes.
fn check_acknowledgement(body: &[u8], flags: u16) -> io::Result<()> {
    let code = body.first_chunk::<4>().ok_or(io::ErrorKind::UnexpectedEof)?;
    let errno = match i32::from_ne_bytes(*code) {
        0 => return Ok(()),
        code => code.saturating_neg(),
    };
    Err(match error_text(body, flags) {
        Some(text) => ExplainedErrno::error(errno, text),
        None => io::Error::from_raw_os_error(errno),
    })
}

// The message text (`NLMSGERR_ATTR_MSG`).
fn error_text(body: &[u8], flags: u16) -> Option<String> {
    const CODE_BYTES: usize = 4;
    let request = body.get(CODE_BYTES..)?;
    if flags & HAS_ATTRIBUTES == 0 {
        return None;
    }
    let length = if flags & CAPPED == 0 {
        let length = u32::from_ne_bytes(*request.first_chunk()?);
        usize::try_from(length).ok()?.next_multiple_of(4)
    } else {
        HEADER_BYTES
    };
    let message = attribute(request.get(length..)?, MESSAGE).map(text)?;
    (!message.is_empty()).then_some(message)
}

/// The error number of an answer, with or without a message.
#[must_use]
pub fn errno(error: &io::Error) -> Option<i32> {
    ExplainedErrno::of(error).map_or(error.raw_os_error(), |explained| Some(explained.errno))
}

/// Fuzzer entry.
pub(crate) fn any_acknowledgement(bytes: &[u8]) {
    let flags = bytes.first_chunk().copied().map_or(0, u16::from_ne_bytes);
    let _ = check_acknowledgement(bytes.get(2..).unwrap_or_default(), flags);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The answer of Linux 6.18 to 9 receive channels for a veth with up to 8, without the request.
    fn refusal(capped: bool) -> Vec<u8> {
        let text = b"requested channel count exceeds maximum\0";
        let request = message(20, 5, 1, if capped { &[] } else { &[1, 2, 3, 4, 5, 6] });
        let mut body = (-libc::EINVAL).to_ne_bytes().to_vec();
        body.extend(&request);
        body.resize(body.len().next_multiple_of(4), 0);
        body.extend(u16::try_from(4 + text.len()).expect("short").to_ne_bytes());
        body.extend(MESSAGE.to_ne_bytes());
        body.extend(text);
        body
    }

    #[test]
    fn extended_ack_errors_have_errno_and_kernel_message() {
        for (capped, flags) in [(true, CAPPED | HAS_ATTRIBUTES), (false, HAS_ATTRIBUTES)] {
            let error = check_acknowledgement(&refusal(capped), flags).expect_err("refused");
            let explained = ExplainedErrno::of(&error).expect("an extended ack");
            assert_eq!(explained.errno, libc::EINVAL);
            assert!(error.to_string().ends_with(": requested channel count exceeds maximum"), "{error}");
        }
    }

    #[test]
    fn ack_without_message_has_errno_and_truncated_ack_never_panics() {
        let error = check_acknowledgement(&refusal(true), CAPPED).expect_err("refused");
        assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
        assert!(check_acknowledgement(&[0; 20], HAS_ATTRIBUTES).is_ok());
        for length in 0..refusal(true).len() {
            any_acknowledgement(&[&[0, 3], &refusal(true)[..length]].concat());
        }
    }

    #[test]
    fn a_list_of_audit_rules_ends_with_an_empty_message() {
        let connection = NetlinkConnection::open(netlink_sys::protocols::NETLINK_ROUTE).expect("a socket");
        let mut answers = NetlinkAnswers::default();
        let rule = message(1013, 0, connection.sequence, &[4, 0, 0, 0]);
        assert!(!connection.read_datagram(&rule, &mut answers).expect("a rule"));
        let end = message(NLMSG_DONE, 0, connection.sequence, &[]);
        assert!(connection.read_datagram(&end, &mut answers).expect("the end"));
        assert_eq!(answers.received.len(), 1);
    }
}
