//! One connection: reads queries and writes replies, in order and without blocking.

use std::io::{ErrorKind, Read as _, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use rustix::event::epoll::EventFlags;
use socket2::Socket;

use super::super::{DnsAnswerer, QueryTransport};

// Longest message with its length field.
const LONGEST: usize = 2 + u16::MAX as usize;
// Bytes per read call, so that an idle connection needs little memory.
const STEP: usize = 4096;
/// Unsent bytes above which no more queries are read.
const MOST_WAITING: usize = 2 * LONGEST;

// Reads before other connections have a turn.
const TURN: usize = 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConnectionWait {
    Read,
    Write,
    End,
}

pub(super) struct TcpAnswering<'a> {
    pub(super) answerer: &'a mut DnsAnswerer,
    // Room for the longest message.
    pub(super) reply: &'a mut [u8],
    pub(super) answered: &'a AtomicU64,
}

#[derive(Debug)]
pub(super) struct TcpConnection {
    pub(super) socket: Socket,
    /// The events for which epoll waits.
    pub(super) events: EventFlags,
    /// Time of the last complete query, or of the last bytes sent.
    pub(super) last: Instant,
    input: Vec<u8>,
    output: Vec<u8>,
    /// Bytes of the output that were sent.
    sent: usize,
    /// The client closed its side.
    ended: bool,
}

impl TcpConnection {
    pub(super) fn new(socket: Socket, now: Instant) -> Self {
        let (input, output) = (Vec::new(), Vec::new());
        Self { socket, events: EventFlags::IN, last: now, input, output, sent: 0, ended: false }
    }

    // Reads, answers and writes until it would block.
    pub(super) fn process(&mut self, answering: &mut TcpAnswering<'_>, now: Instant) -> ConnectionWait {
        for _ in 0..TURN {
            match self.flush(now) {
                Ok(true) => {}
                Ok(false) => return ConnectionWait::Write,
                Err(()) => return ConnectionWait::End,
            }
            if self.answer(answering, now) {
                continue;
            }
            if self.ended {
                return ConnectionWait::End;
            }
            match self.read() {
                Ok(0) => self.ended = true,
                Ok(_) => {}
                Err(ErrorKind::WouldBlock) => return ConnectionWait::Read,
                Err(ErrorKind::Interrupted) => {}
                Err(_) => return ConnectionWait::End,
            }
        }
        // Epoll reports unread bytes after the turns of other connections, but not a query that the
        // last read has completed.
        self.answer(answering, now);
        if self.output.is_empty() { ConnectionWait::Read } else { ConnectionWait::Write }
    }

    fn read(&mut self) -> Result<usize, ErrorKind> {
        let length = self.input.len();
        self.input.resize(length + STEP, 0);
        let result = (&self.socket).read(&mut self.input[length..]);
        self.input.truncate(length + *result.as_ref().unwrap_or(&0));
        result.map_err(|error| error.kind())
    }

    // Answers complete queries, up to a limit. Returns whether there are replies to send.
    fn answer(&mut self, answering: &mut TcpAnswering<'_>, now: Instant) -> bool {
        let mut offset = 0;
        while self.output.len() < MOST_WAITING - LONGEST
            && let Some(length) = self.input.get(offset..offset + 2)
            && let length = usize::from(u16::from_be_bytes([length[0], length[1]]))
            && let Some(query) = self.input.get(offset + 2..offset + 2 + length)
        {
            offset += 2 + length;
            self.last = now;
            if let Some(length) = answering.answerer.answer(query, answering.reply, QueryTransport::Tcp) {
                self.output.extend_from_slice(&(length as u16).to_be_bytes());
                self.output.extend_from_slice(&answering.reply[..length]);
                answering.answered.fetch_add(1, Ordering::Relaxed);
            }
        }
        self.input.drain(..offset);
        !self.output.is_empty()
    }

    /// Returns whether everything was sent.
    fn flush(&mut self, now: Instant) -> Result<bool, ()> {
        while self.sent < self.output.len() {
            match (&self.socket).write(&self.output[self.sent..]) {
                Ok(0) => return Err(()),
                Ok(length) => {
                    self.sent += length;
                    self.last = now;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Err(()),
            }
        }
        self.sent = 0;
        // Frees the memory of long replies.
        self.output = Vec::new();
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;
    use crate::dns::{ServedZones, Zones};

    #[test]
    fn a_query_that_fills_all_reads_of_a_turn_is_answered() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let mut client = TcpStream::connect(listener.local_addr().expect("its address")).expect("connected");
        let server = listener.accept().expect("a connection").0;
        server.set_nonblocking(true).expect("set");
        // A query with an EDNS option as long as needed (RFC 6891).
        let total = TURN * STEP;
        let question = b"\x02ns\x07example\x04test\0\0\x01\0\x01";
        let option = total - 2 - 12 - question.len() - 11 - 4;
        let mut framed = ((total - 2) as u16).to_be_bytes().to_vec();
        framed.extend_from_slice(b"\0\x07\0\0\0\x01\0\0\0\0\0\x01");
        framed.extend_from_slice(question);
        framed.extend_from_slice(b"\0\0\x29\x04\xd0\0\0\0\0");
        framed.extend_from_slice(&(option as u16 + 4).to_be_bytes());
        framed.extend_from_slice(b"\0\x0c");
        framed.extend_from_slice(&(option as u16).to_be_bytes());
        framed.resize(total, 0);
        client.write_all(&framed).expect("room for it");

        let zone = "$TTL 60\n@ IN SOA ns hostmaster 1 2 3 4 5\n@ IN NS ns\nns IN A 192.0.2.1\n";
        let zones = Zones::parse("example.test", zone).expect("a zone");
        let mut answerer = DnsAnswerer::new(ServedZones::new(zones));
        let (mut reply, answered) = (vec![0; usize::from(u16::MAX)], AtomicU64::new(0));
        let mut answering = TcpAnswering { answerer: &mut answerer, reply: &mut reply, answered: &answered };
        let mut connection = TcpConnection::new(Socket::from(server), Instant::now());
        assert_eq!(connection.process(&mut answering, Instant::now()), ConnectionWait::Write);
        assert_eq!(answered.load(Ordering::Relaxed), 1);
    }
}
