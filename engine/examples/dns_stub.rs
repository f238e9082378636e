//! An example service: DNS that answers every name with the same address.
//!
//! `cargo run -p linerate-engine --example dns_stub -- 127.0.0.1:5300`, then `kdig @127.0.0.1 -p 5300 any.name`. Enter ends it.
//!
//! It shows the form of a service: a value with state, one for each worker, that reads a request and writes an answer. A DNS
//! server that does all of it is `linerate serve dns`.

use std::net::{Ipv4Addr, SocketAddr};

use linerate_engine::{Action, Request, RunningServer, Server, ServerError, Service};

// The address that every name has. 192.0.2.0/24 is for examples.
const ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const HEADER: usize = 12;
/// A pointer to the name in the question, type A, class IN, a minute to live, four bytes.
const RECORD: [u8; 12] = [0xc0, HEADER as u8, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:5300".to_owned());
    let running = start(address.parse()?)?;
    println!("serving on {}; Enter ends it", running.local_addr());
    std::io::stdin().read_line(&mut String::new())?;
    println!("{:?}", running.stop()?.total());
    Ok(())
}

/// Serves until the returned server is dropped or stopped.
pub fn start(address: SocketAddr) -> Result<RunningServer, ServerError> {
    // One for each worker: nothing is shared, nothing is locked.
    Server::builder().bind(address).max_request(512).max_reply(512).start(|_worker| StubResolver)
}

struct StubResolver;

impl Service for StubResolver {
    fn answer(&mut self, request: &Request<'_>, reply: &mut [u8]) -> Action {
        match respond(request.payload(), reply) {
            Some(length) => Action::Reply(length),
            // Drop messages that are not queries, above all answers: two servers that answer
            // answers never stop.
            None => Action::Drop,
        }
    }
}

fn respond(query: &[u8], reply: &mut [u8]) -> Option<usize> {
    let question = question(query)?;
    let end = HEADER + question.len();
    let (kind, class) = (&question[question.len() - 4..question.len() - 2], &question[question.len() - 2..]);
    let is_found = kind == [0, 1] && class == [0, 1];
    // The buffer still holds earlier answers, so every byte that is sent is written here.
    reply.get_mut(..2)?.copy_from_slice(&query[..2]);
    // An authoritative answer, with the opcode and the RD bit of the query.
    reply.get_mut(2..4)?.copy_from_slice(&[0x84 | query[2] & 0x79, 0]);
    reply.get_mut(4..HEADER)?.copy_from_slice(&[0, 1, 0, u8::from(is_found), 0, 0, 0, 0]);
    reply.get_mut(HEADER..end)?.copy_from_slice(question);
    if !is_found {
        return Some(end);
    }
    let record = [&RECORD[..], &ADDRESS.octets()].concat();
    reply.get_mut(end..end + record.len())?.copy_from_slice(&record);
    Some(end + record.len())
}

/// Name, type and class of a query that has one question.
fn question(query: &[u8]) -> Option<&[u8]> {
    let header = query.first_chunk::<HEADER>()?;
    let (answer, opcode, questions) = (header[2] & 0x80, header[2] & 0x78, &header[4..6]);
    if answer != 0 || opcode != 0 || questions != [0, 1] {
        return None;
    }
    let mut end = HEADER;
    loop {
        match usize::from(*query.get(end)?) {
            0 => return query.get(HEADER..end + 5),
            // No pointers in a question.
            label @ 1..=63 => end += 1 + label,
            _ => return None,
        }
    }
}
