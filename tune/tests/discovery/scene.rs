//! A lab with a server on its receiver, which is observed there.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use linerate_host::Host;
use linerate_lab::{Lab, LabChild};
pub(crate) use linerate_testkit::skip;
use linerate_tune::boost::ObservedServer;
use linerate_tune::boost::discovery::{DiscoveryError, ObservationOptions, ServerQuery};

/// Time limit for the first answer of a server.
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct Scene {
    server: Option<LabChild>,
    pub(crate) directory: tempfile::TempDir,
    pub(crate) lab: Lab,
}

impl Scene {
    /// `None`, after printing SKIP, if no lab can be created.
    pub(crate) fn set(test: &str) -> Option<Self> {
        let directory = tempfile::tempdir().expect("a directory");
        match Lab::builder().start() {
            Ok(lab) => Some(Scene { lab, directory, server: None }),
            Err(why) => {
                skip(test, why);
                None
            }
        }
    }

    pub(crate) fn address(&self) -> IpAddr {
        self.lab.links()[0].receiver.ipv4[0].into()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Starts the server, waits until it answers `request` at `address`, and returns its process
    /// id.
    pub(crate) fn serve(
        &mut self,
        program: &PathBuf,
        arguments: &[&str],
        address: SocketAddr,
        request: &[u8],
    ) -> u32 {
        let mut command = Command::new(program);
        let log = std::fs::File::create(self.path("log")).expect("a log");
        command.args(arguments).stdin(Stdio::null()).stdout(log.try_clone().expect("a log")).stderr(log);
        let mut server = self.lab.receiver().spawn(command).expect("started");
        let began = Instant::now();
        while !self.lab.senders()[0].run(|| is_answered(address, request)).expect("ran") {
            let exit_status = server.wait_at_most(Duration::from_millis(20)).expect("waited");
            let log = std::fs::read_to_string(self.path("log")).unwrap_or_default();
            assert!(
                exit_status.is_none() && began.elapsed() < PATIENCE,
                "{program:?} does not answer: {log}"
            );
        }
        let id = server.id();
        self.server = Some(server);
        id
    }

    /// Observes the server in its network namespace.
    pub(crate) fn observe(
        &self,
        query: &ServerQuery,
        options: ObservationOptions,
    ) -> Result<ObservedServer, DiscoveryError> {
        let sys = self.lab.receiver().sys_path().expect("a sysfs").to_owned();
        let host = Host::live_with_sys(sys);
        let result = self.lab.receiver().run(|| ObservedServer::observe(&host, query, options, &|| false));
        result.expect("ran").map(|(server, _)| server)
    }

    /// Observes the server while the sender sends requests, each from another port.
    pub(crate) fn observe_under_load(
        &self,
        query: &ServerQuery,
        options: ObservationOptions,
        address: SocketAddr,
        request: &[u8],
    ) -> ObservedServer {
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let send_requests = || {
                while !stop.load(Ordering::Relaxed) {
                    let _ = self.lab.senders()[0].run(|| is_answered(address, request));
                }
            };
            let sender = scope.spawn(send_requests);
            let server = self.observe(query, options);
            stop.store(true, Ordering::Relaxed);
            sender.join().expect("ended");
            server.expect("a server")
        })
    }
}

fn is_answered(address: SocketAddr, request: &[u8]) -> bool {
    let any_address = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(any_address).expect("bound");
    socket.connect(address).expect("connected");
    socket.set_read_timeout(Some(Duration::from_millis(100))).expect("set");
    // Refused until the server listens.
    socket.send(request).is_ok() && socket.recv(&mut [0; 4_096]).is_ok()
}

impl Drop for Scene {
    fn drop(&mut self) {
        if let Some(mut server) = self.server.take() {
            let _ = server.kill();
        }
    }
}

pub(crate) fn observation_options(milliseconds: u64, datagrams: bool) -> ObservationOptions {
    ObservationOptions { duration: Duration::from_millis(milliseconds), datagrams }
}

pub(crate) fn on_port(port: u16) -> ServerQuery {
    ServerQuery { port: Some(port), ..ServerQuery::default() }
}
