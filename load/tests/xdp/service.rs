//! A UDP service that keeps its own account.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// What the service did.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Account {
    pub(crate) received: u64,
    pub(crate) answered: u64,
    pub(crate) dropped: u64,
    pub(crate) duplicated: u64,
    pub(crate) corrupted: u64,
}

pub(crate) struct Service {
    pub(crate) address: SocketAddr,
    stop: Arc<AtomicBool>,
    handle: Option<JoinHandle<Account>>,
}

impl Service {
    /// Starts a thread that hands each request to `serve` with its socket, the request, its source and the account.
    pub(crate) fn start(
        at: SocketAddr,
        mut serve: impl FnMut(&UdpSocket, &mut [u8], SocketAddr, &mut Account) + Send + 'static,
    ) -> Self {
        let socket = UdpSocket::bind(at).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        // A frame counts as a page in it.
        let _ = rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, 256 << 20);
        let address = socket.local_addr().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let handle = std::thread::spawn(move || {
            let mut buffer = vec![0; 65_536];
            let mut account = Account::default();
            loop {
                match socket.recv_from(&mut buffer) {
                    Ok((length, source)) => {
                        account.received += 1;
                        serve(&socket, &mut buffer[..length], source, &mut account);
                    }
                    // Only when nothing is left, so that the account is complete.
                    Err(_) if stopped.load(Ordering::Relaxed) => return account,
                    Err(_) => {}
                }
            }
        });
        Service { address, stop, handle: Some(handle) }
    }

    /// Answers every request unchanged.
    pub(crate) fn echo(at: SocketAddr) -> Self {
        Service::start(at, |socket, request, source, account| {
            account.answered += 1;
            socket.send_to(request, source).unwrap();
        })
    }

    /// Ends the service once it has taken all that was sent to it.
    pub(crate) fn stop(mut self) -> Account {
        self.stop.store(true, Ordering::Relaxed);
        self.handle.take().unwrap().join().unwrap()
    }
}
