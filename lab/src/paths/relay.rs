//! Processes on a path that copy datagrams or frames: a user-space proxy, and a switch between two tap devices.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::thread;

use crate::sys::tap;

/// The largest frame or datagram.
const LARGEST: usize = 65_536;
/// Most clients of a proxy. Each has a socket and a thread, as docker-proxy gives each a socket and
/// a goroutine.
pub(super) const MOST_CLIENTS: usize = 1024;

/// Copies datagrams from `listen` to `to`, and replies back to each client. Calls `ready` once it
/// listens. Returns only with an error.
pub fn proxy(listen: SocketAddr, to: SocketAddr, ready: impl FnOnce()) -> io::Result<()> {
    let listener = Arc::new(UdpSocket::bind(listen)?);
    ready();
    let mut clients: HashMap<SocketAddr, Arc<UdpSocket>> = HashMap::new();
    let mut datagram = vec![0; LARGEST];
    loop {
        let (length, client) = match listener.recv_from(&mut datagram) {
            Err(error) if is_transient(&error) => continue,
            result => result?,
        };
        let upstream = match clients.get(&client) {
            Some(upstream) => upstream,
            None if clients.len() >= MOST_CLIENTS => continue,
            None => {
                let upstream = Arc::new(UdpSocket::bind(if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" })?);
                upstream.connect(to)?;
                let (reply_socket, listener) = (Arc::clone(&upstream), Arc::clone(&listener));
                thread::Builder::new()
                    .name("relay".to_owned())
                    .spawn(move || copy_replies(&reply_socket, &listener, client))?;
                clients.entry(client).or_insert(upstream)
            }
        };
        // A datagram that cannot be sent is lost, as on any path.
        let _ = upstream.send(&datagram[..length]);
    }
}

fn copy_replies(upstream: &UdpSocket, listener: &UdpSocket, client: SocketAddr) {
    let mut datagram = vec![0; LARGEST];
    loop {
        match upstream.recv(&mut datagram) {
            Ok(length) => drop(listener.send_to(&datagram[..length], client)),
            Err(error) if is_transient(&error) => {}
            Err(_) => return,
        }
    }
}

/// Whether the error belongs to a datagram sent before, or to a signal.
fn is_transient(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::Interrupted)
}

/// Copies frames between two tap devices, one system call each, with a thread per direction. Calls
/// `ready` once both are open. Returns only with an error.
pub fn switch(first: &str, second: &str, ready: impl FnOnce()) -> io::Result<()> {
    let (first, second) = (tap::open(first)?, tap::open(second)?);
    let (first_clone, second_clone) = (first.try_clone()?, second.try_clone()?);
    ready();
    let back_thread =
        thread::Builder::new().name("relay".to_owned()).spawn(move || copy(second_clone, first_clone))?;
    copy(first, second)?;
    back_thread.join().map_err(|_| io::Error::other("a thread of the switch panicked"))?
}

fn copy(mut from: File, mut to: File) -> io::Result<()> {
    let mut frame = vec![0; LARGEST];
    loop {
        let length = from.read(&mut frame)?;
        // A device that is down refuses frames.
        let _ = to.write(&frame[..length]);
    }
}
