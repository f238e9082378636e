//! A reflector and its thread.

use std::net::{SocketAddr, UdpSocket};
use std::num::NonZeroU64;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use rustix::net::sockopt;
use rustix::thread::{CpuSet, sched_setaffinity, set_current_timer_slack};

use crate::reflector::account::ReflectorAccount;
use crate::reflector::builder::ReflectorBuilder;
use crate::reflector::error::ReflectorError;
use crate::reflector::service::{self, ReflectorService};
use crate::reflector::sys;

// Requested receive buffer, bytes: at a high rate, a freeze must not cause losses.
const RECEIVE_BUFFER_BYTES: usize = 64 << 20;

impl ReflectorBuilder {
    /// Opens the socket and starts the thread, in the calling thread's network namespace.
    ///
    /// # Errors
    ///
    /// The address is not available, or a system call failed. Each error is one line.
    pub fn start(self) -> Result<RunningReflector, ReflectorError> {
        let socket = open(self.address)?;
        let address =
            socket.local_addr().map_err(|e| ReflectorError::new("cannot read the reflector's address", e))?;
        let account = Arc::new(Mutex::new(ReflectorAccount::new()));
        let stop = Arc::new(AtomicBool::new(false));
        let (ready_sender, ready_receiver) = sync_channel(1);
        let shared = (Arc::clone(&account), Arc::clone(&stop));
        let handle = thread::Builder::new()
            .name("reflector".to_owned())
            .spawn(move || {
                let (account, stop) = shared;
                let prepared = prepare(self.cpu);
                let is_prepared = prepared.is_ok();
                // The caller may have stopped waiting.
                let _ = ready_sender.send(prepared);
                if is_prepared {
                    ReflectorService::new(&self, socket, account, stop).run();
                }
            })
            .map_err(|e| ReflectorError::new("cannot start the reflector's thread", e))?;
        let running = RunningReflector { address, account, stop, handle: Some(handle) };
        // The thread closes its end only after it has sent its result.
        ready_receiver.recv().unwrap_or(Ok(()))?;
        Ok(running)
    }
}

/// A running reflector. It stops when this is dropped.
#[derive(Debug)]
pub struct RunningReflector {
    address: SocketAddr,
    account: Arc<Mutex<ReflectorAccount>>,
    stop: Arc<AtomicBool>,
    handle: Option<JoinHandle<()>>,
}

impl RunningReflector {
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Counters so far. They include every reply that a client has received.
    pub fn account(&self) -> ReflectorAccount {
        service::lock(&self.account).clone()
    }

    /// Answers the requests that were sent until now, stops, and returns the counters.
    pub fn stop(mut self) -> ReflectorAccount {
        self.stop_thread();
        service::lock(&self.account).clone()
    }

    fn stop_thread(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(handle) = self.handle.take() {
            // The runtime has printed the thread's panic, and the account shows the missing
            // requests.
            let _ = handle.join();
        }
    }
}

impl Drop for RunningReflector {
    fn drop(&mut self) {
        self.stop_thread();
    }
}

fn open(address: SocketAddr) -> Result<UdpSocket, ReflectorError> {
    let socket = UdpSocket::bind(address).map_err(|error| {
        ReflectorError(format!(
            "cannot serve {address}: {error}; choose an address of this host and a free port"
        ))
    })?;
    // A buffer above net.core.rmem_max requires CAP_NET_ADMIN. Without it, the kernel limits the
    // size.
    if sockopt::set_socket_recv_buffer_size_force(&socket, RECEIVE_BUFFER_BYTES).is_err() {
        sockopt::set_socket_recv_buffer_size(&socket, RECEIVE_BUFFER_BYTES)
            .map_err(|e| ReflectorError::new("cannot set the reflector's receive buffer", e))?;
    }
    sys::request_receive_stamps(socket.as_fd())
        .map_err(|e| ReflectorError::new("cannot ask for receive stamps", e))?;
    Ok(socket)
}

/// Pins the calling thread to its CPU and makes its waits precise.
fn prepare(cpu: Option<usize>) -> Result<(), ReflectorError> {
    // In a sandbox that forbids this call, waits are 50 us less precise.
    let _ = set_current_timer_slack(NonZeroU64::new(1));
    let Some(cpu) = cpu else { return Ok(()) };
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).map_err(|e| ReflectorError::new("cannot pin the reflector's thread", e))
}
