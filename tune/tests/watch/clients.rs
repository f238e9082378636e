//! Clients that each send requests from one CPU, and record which worker answered and when.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use linerate_lab::LabHost;
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::scene::eventually;

const PACE: Duration = Duration::from_millis(2);

#[derive(Debug, Clone, Copy)]
pub(crate) struct Request {
    pub(crate) sent: Instant,
    /// The worker that answered, and the time; `None` without an answer.
    pub(crate) answer: Option<(u32, Instant)>,
}

/// A client that sends requests from one CPU until it is dropped.
pub(crate) struct Client {
    requests: Arc<Mutex<Vec<Request>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Client {
    /// Starts to send from this CPU. In a veth pair, a packet arrives on the CPU that sent it.
    pub(crate) fn start(host: &LabHost, cpu: usize, server: SocketAddr) -> Self {
        let requests = Arc::new(Mutex::new(Vec::new()));
        let stop = Arc::new(AtomicBool::new(false));
        let (log, until) = (Arc::clone(&requests), Arc::clone(&stop));
        let thread =
            host.run(move || std::thread::spawn(move || send_requests(cpu, server, &log, &until))).unwrap();
        Self { requests, stop, thread: Some(thread) }
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }

    /// The requests that were sent after `after`, once `count` of them were answered.
    pub(crate) fn answered_after(&self, after: Instant, count: usize) -> Vec<Request> {
        let sent_after = || self.requests().into_iter().filter(|request| request.sent > after);
        eventually(&format!("{count} answers"), || {
            sent_after().filter(|request| request.answer.is_some()).count() >= count
        });
        sent_after().collect()
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().map(JoinHandle::join);
    }
}

/// The workers that answered, each once.
pub(crate) fn workers(requests: &[Request]) -> Vec<u32> {
    let mut workers: Vec<u32> = requests.iter().filter_map(|request| Some(request.answer?.0)).collect();
    workers.sort_unstable();
    workers.dedup();
    workers
}

fn send_requests(cpu: usize, server: SocketAddr, requests: &Mutex<Vec<Request>>, stop: &AtomicBool) {
    let mut only = CpuSet::new();
    only.set(cpu);
    sched_setaffinity(None, &only).unwrap();
    // Several flows, which the kernel's hash would spread over several sockets.
    let sockets: Vec<UdpSocket> = (0..4).map(|_| UdpSocket::bind("0.0.0.0:0").unwrap()).collect();
    for socket in &sockets {
        socket.connect(server).unwrap();
        socket.set_nonblocking(true).unwrap();
    }
    for number in 0u32.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let sent = Instant::now();
        requests.lock().unwrap().push(Request { sent, answer: None });
        // Refused if no process listens any more. The request then counts as unanswered.
        let _ = sockets[number as usize % sockets.len()].send(&number.to_be_bytes());
        while sent.elapsed() < PACE {
            std::thread::sleep(PACE / 8);
            sockets.iter().for_each(|socket| receive_answers(socket, requests));
        }
    }
}

fn receive_answers(socket: &UdpSocket, requests: &Mutex<Vec<Request>>) {
    let mut bytes = [0; 64];
    while let Ok(length) = socket.recv(&mut bytes) {
        let [a, b, c, d, e, f, g, h] = bytes[..length] else { panic!("{length} bytes") };
        let number = u32::from_be_bytes([a, b, c, d]);
        let worker = u32::from_be_bytes([e, f, g, h]);
        requests.lock().unwrap()[number as usize].answer = Some((worker, Instant::now()));
    }
}
