//! A service whose replies come later: threads that may block look the answers up.
//!
//! `cargo run -p linerate-engine --example deferred -- 127.0.0.1:7010`, then `echo hello | nc -u 127.0.0.1 7010`. Enter ends it.

use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use linerate_engine::{Action, DeferredReply, Request, RunningServer, Server, ServerError, Service};

/// Requests that may wait for a thread, in all. More are dropped: their clients ask again.
const QUEUE: usize = 1000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:7010".to_owned());
    let server = start(address.parse()?)?;
    println!("serving on {}; Enter ends it", server.running.local_addr());
    std::io::stdin().read_line(&mut String::new())?;
    println!("{:?}", server.running.stop()?.total());
    // The workers have ended, and with them the channels on which the threads wait.
    server.threads.into_iter().for_each(|thread| thread.join().expect("a thread does not panic"));
    Ok(())
}

/// A request, and the way to reply to it.
type QueuedRequest = (Vec<u8>, DeferredReply);

/// A server, and the threads that reply.
pub struct DeferredServer {
    pub running: RunningServer,
    /// They end when it has stopped.
    pub threads: Vec<JoinHandle<()>>,
}

/// Serves until it is stopped.
pub fn start(address: SocketAddr) -> Result<DeferredServer, ServerError> {
    let (sender, receiver) = sync_channel(QUEUE);
    let receiver = Arc::new(Mutex::new(receiver));
    let threads = (0..4).map(|_| {
        let receiver = Arc::clone(&receiver);
        thread::spawn(move || answer_jobs(&receiver))
    });
    let threads = threads.collect();
    let running = Server::builder().bind(address).start(move |_worker| ForwardingService(sender.clone()))?;
    Ok(DeferredServer { running, threads })
}

/// Decides at once, so that a worker never waits.
struct ForwardingService(SyncSender<QueuedRequest>);

impl Service for ForwardingService {
    fn answer(&mut self, request: &Request<'_>, _reply: &mut [u8]) -> Action {
        match self.0.try_send((request.payload().to_vec(), request.defer())) {
            Ok(()) => Action::Defer,
            Err(_) => Action::Drop,
        }
    }
}

fn answer_jobs(jobs: &Mutex<Receiver<QueuedRequest>>) {
    loop {
        let Ok(job) = jobs.lock().map(|jobs| jobs.recv()) else { return };
        let Ok((request, reply)) = job else { return };
        // Yours would be here: a database, another server, a file.
        thread::sleep(Duration::from_millis(10));
        if let Err(error) = reply.send(&request.to_ascii_uppercase()) {
            eprintln!("no reply to {}: {error}", reply.destination());
        }
    }
}
