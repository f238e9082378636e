//! NSD and Knot DNS on loopback, and clients that query them.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use linerate_services::dns::UDP_SIZE;
use linerate_testkit::reflector::installed::InstalledNsd;

/// The number of NSD processes. Each sends at most 200 error responses per second and drops the
/// others. Several processes, queried from many sockets, send more.
const PROCESSES: u32 = 8;
const SOCKETS: usize = 512;
/// Time to wait for answers in the first round and in each repeated round. One missing answer
/// delays its whole batch.
const PATIENCE: [Duration; 5] = [
    Duration::from_millis(150),
    Duration::from_millis(400),
    Duration::from_millis(800),
    Duration::from_millis(800),
    Duration::from_millis(800),
];
const LAST: Duration = PATIENCE[PATIENCE.len() - 1];

pub(crate) struct ReferenceServer {
    process: Child,
    sockets: Vec<UdpSocket>,
}

impl ReferenceServer {
    /// Starts NSD with these zones, and waits until it answers for each of them.
    pub(crate) fn nsd(program: &Path, directory: &Path, zones: &[(&'static str, PathBuf)]) -> Self {
        let free = free_address();
        let edns = format!("ipv4-edns-size: {UDP_SIZE}");
        let options = ["hide-version: yes", "hide-identity: yes", "minimal-responses: no", &edns];
        let config = InstalledNsd {
            directory,
            addresses: &[free],
            servers: PROCESSES,
            reuseport: true,
            zones,
            options: &options.map(str::to_owned),
        }
        .write()
        .expect("NSD's file");
        Self::start(Command::new(program).args(["-d", "-c"]).arg(&config), directory, free, zones)
    }

    /// Like [`Self::nsd`], with Knot DNS.
    pub(crate) fn knot(program: &Path, directory: &Path, zones: &[(&'static str, PathBuf)]) -> Self {
        let (free, dir) = (free_address(), directory.display());
        let mut text = format!(
            "server:
  listen: {}@{}
  rundir: \"{dir}\"
  udp-max-payload: {UDP_SIZE}
log:
  - target: stderr
    any: info
database:
  storage: \"{dir}/knot\"
template:
  - id: default
    zonefile-sync: -1
    journal-content: none
zone:
",
            free.ip(),
            free.port(),
        );
        for (name, file) in zones {
            text.push_str(&format!("  - domain: {name}\n    file: \"{}\"\n", file.display()));
        }
        let config = directory.join("knot.conf");
        std::fs::write(&config, text).expect("Knot's file");
        Self::start(Command::new(program).arg("-c").arg(&config), directory, free, zones)
    }

    fn start(
        command: &mut Command,
        directory: &Path,
        at: SocketAddr,
        zones: &[(&'static str, PathBuf)],
    ) -> Self {
        let log = directory.join(format!("log-{}", at.port()));
        let output = File::create(&log).expect("a log");
        let process = command
            .stdin(Stdio::null())
            .stdout(output.try_clone().expect("a log"))
            .stderr(output)
            .spawn()
            .expect("it starts");
        let sockets = (0..SOCKETS).map(|_| connected_socket(at)).collect();
        let mut rival = Self { process, sockets };
        let began = Instant::now();
        // A zone is loaded when the server answers for it with the AA flag.
        for (zone, _) in zones {
            let mut question = b"\x12\x34\0\0\0\x01\0\0\0\0\0\0".to_vec();
            for label in zone.split('.') {
                question.push(label.len() as u8);
                question.extend_from_slice(label.as_bytes());
            }
            question.extend_from_slice(b"\0\0\x06\0\x01");
            let is_authoritative =
                |answer: &Option<Vec<u8>>| answer.as_ref().is_some_and(|answer| answer[2] & 4 != 0);
            while !rival.send_and_receive(std::slice::from_ref(&question), LAST).iter().any(is_authoritative)
            {
                let log_text = || std::fs::read_to_string(&log).unwrap_or_default();
                let exit_status = rival.process.try_wait().expect("its state");
                let in_time = began.elapsed() < Duration::from_secs(20);
                assert!(exit_status.is_none() && in_time, "no answer for {zone}: {}", log_text());
            }
        }
        rival
    }

    /// Sends all queries at once, one per socket. Returns the answers that arrive within
    /// `patience`.
    fn send_and_receive(&self, queries: &[Vec<u8>], patience: Duration) -> Vec<Option<Vec<u8>>> {
        for (query, socket) in queries.iter().zip(&self.sockets) {
            // Fails with ECONNREFUSED until the server listens.
            let _ = socket.send(query);
        }
        let end = Instant::now() + patience;
        queries.iter().zip(&self.sockets).map(|(query, socket)| receive(socket, query, end)).collect()
    }

    /// Returns the answers to all queries. `answered` marks the queries that linerate answers: they
    /// are repeated in later seconds before they count as unanswered.
    pub(crate) fn answers(&self, queries: &[Vec<u8>], answered: &[bool]) -> Vec<Option<Vec<u8>>> {
        let mut answers: Vec<Option<Vec<u8>>> = vec![None; queries.len()];
        let ask = |answers: &mut [Option<Vec<u8>>], numbers: &[usize], patience| {
            for chunk in numbers.chunks(SOCKETS) {
                let batch: Vec<Vec<u8>> = chunk.iter().map(|&at| queries[at].clone()).collect();
                for (&at, answer) in chunk.iter().zip(self.send_and_receive(&batch, patience)) {
                    answers[at] = answer;
                }
            }
        };
        for (round, patience) in PATIENCE.into_iter().enumerate() {
            let open: Vec<usize> =
                (0..queries.len()).filter(|&at| answers[at].is_none() && answered[at]).collect();
            if round > 0 && !open.is_empty() {
                // NSD's count of error responses restarts every second.
                std::thread::sleep(Duration::from_millis(1_050));
            }
            ask(&mut answers, &open, patience);
        }
        // The server must not answer the queries that linerate drops. Waits as long as for the
        // slowest answers.
        let silent: Vec<usize> = (0..queries.len()).filter(|&at| !answered[at]).collect();
        ask(&mut answers, &silent, LAST);
        answers
    }

    /// The answers over one TCP connection. The server must answer each of these queries.
    pub(crate) fn stream_answers<'a>(
        &self,
        queries: impl Iterator<Item = &'a [u8]>,
    ) -> std::io::Result<Vec<Vec<u8>>> {
        let mut stream = TcpStream::connect(self.sockets[0].peer_addr()?)?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        stream.set_nodelay(true)?;
        let mut answers = Vec::new();
        for query in queries {
            stream.write_all(&[&(query.len() as u16).to_be_bytes()[..], query].concat())?;
            let mut length = [0; 2];
            stream.read_exact(&mut length)?;
            let mut answer = vec![0; usize::from(u16::from_be_bytes(length))];
            stream.read_exact(&mut answer)?;
            answers.push(answer);
        }
        Ok(answers)
    }
}

impl Drop for ReferenceServer {
    /// The server's other processes end with the first one.
    fn drop(&mut self) {
        if let Some(pid) = rustix::process::Pid::from_raw(self.process.id() as i32) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let _ = self.process.wait();
    }
}

/// A free port at an address that the clients do not use. Otherwise, a client socket might take the
/// port before the server does.
fn free_address() -> SocketAddr {
    UdpSocket::bind("127.53.0.1:0").and_then(|socket| socket.local_addr()).expect("a free port")
}

fn connected_socket(to: SocketAddr) -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    socket.connect(to).expect("a connected socket");
    socket
}

/// The answer to `query` if it arrives before `end`. Skips late answers to earlier queries.
fn receive(socket: &UdpSocket, query: &[u8], end: Instant) -> Option<Vec<u8>> {
    let mut buffer = [0; 65_535];
    loop {
        let remaining = end.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        socket.set_read_timeout(Some(remaining)).expect("a timeout");
        match socket.recv(&mut buffer) {
            Ok(length) if buffer[..length].get(..2) == query.get(..2) => {
                return Some(buffer[..length].to_vec());
            }
            Ok(_) => {}
            // A timeout, or the server does not listen yet (ECONNREFUSED).
            Err(_) => return None,
        }
    }
}
