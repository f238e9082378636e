//! A request and its answers.

use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use netlink_packet_core::{NLM_F_ACK, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR, NetlinkBuffer};
use netlink_sys::{Socket, SocketAddr};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// No answer takes longer than this unless the kernel lost it.
const ANSWER_DEADLINE: Duration = Duration::from_secs(5);

/// Bytes of struct nlmsghdr (linux/netlink.h).
const HEADER_BYTES: usize = 16;

/// `NLM_F_DUMP_INTR`: what is listed changed while it was, so that the list may lack something or have it twice.
const INTERRUPTED: u16 = 0x10;

/// A netlink socket of one protocol.
pub(crate) struct Connection {
    socket: Socket,
    sequence: u32,
}

/// One answer: its type and what follows its header.
pub(crate) struct Answer {
    pub(crate) kind: u16,
    pub(crate) body: Vec<u8>,
}

#[derive(Default)]
struct Answers {
    received: Vec<Answer>,
    interrupted: bool,
}

impl Connection {
    /// Opens a socket in the calling thread's network namespace.
    pub(crate) fn open(protocol: isize) -> io::Result<Self> {
        let mut socket = Socket::new(protocol)?;
        socket.bind(&SocketAddr::new(0, 0))?;
        Ok(Self { socket, sequence: 0 })
    }

    /// Sends a request of this type and reads its answers up to the acknowledgement, or of a dump up to its end.
    /// `Interrupted` where a dump is not of one moment.
    pub(crate) fn request(&mut self, kind: u16, flags: u16, body: &[u8]) -> io::Result<Vec<Answer>> {
        self.sequence = self.sequence.wrapping_add(1);
        self.socket.send(&message(kind, NLM_F_REQUEST | NLM_F_ACK | flags, self.sequence, body), 0)?;
        let deadline = Instant::now() + ANSWER_DEADLINE;
        let mut answers = Answers::default();
        loop {
            self.wait(deadline)?;
            let (datagram, _) = self.socket.recv_from_full()?;
            if self.take(&datagram, &mut answers)? {
                return if answers.interrupted {
                    Err(io::ErrorKind::Interrupted.into())
                } else {
                    Ok(answers.received)
                };
            }
        }
    }

    /// Takes the answers to the last request out of a datagram; tells whether its end was among them.
    fn take(&self, mut datagram: &[u8], answers: &mut Answers) -> io::Result<bool> {
        while let Ok(part) = NetlinkBuffer::new_checked(datagram) {
            let length = part.length() as usize;
            let body = datagram.get(HEADER_BYTES..length).unwrap_or_default();
            if part.sequence_number() == self.sequence {
                answers.interrupted |= part.flags() & INTERRUPTED != 0;
                match part.message_type() {
                    // The end of a dump carries an error as an acknowledgement does.
                    NLMSG_ERROR | NLMSG_DONE => return acknowledgement(body).map(|()| true),
                    kind => answers.received.push(Answer { kind, body: body.to_vec() }),
                }
            }
            datagram = datagram.get(length.next_multiple_of(4)..).unwrap_or_default();
        }
        Ok(false)
    }

    fn wait(&self, deadline: Instant) -> io::Result<()> {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let timeout = Timespec { tv_sec: left.as_secs() as _, tv_nsec: left.subsec_nanos() as _ };
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

/// Reads the body of an `NLMSG_ERROR`: struct nlmsgerr, whose error is 0 where it only acknowledges.
fn acknowledgement(body: &[u8]) -> io::Result<()> {
    let code = body.first_chunk::<4>().ok_or(io::ErrorKind::UnexpectedEof)?;
    match i32::from_ne_bytes(*code) {
        0 => Ok(()),
        code => Err(io::Error::from_raw_os_error(code.saturating_neg())),
    }
}
