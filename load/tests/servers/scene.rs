//! A lab with a server on its receiver and a generator on its sender.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use linerate_lab::{Lab, LabChild};
use linerate_load::generator::{GeneratorBackend, GeneratorBuilder};
use linerate_load::workload::PreparedExchange;
use linerate_load::{Generator, LoadWorkload, SlotOutcome};
use linerate_testkit::reflector::installed::find;
pub(crate) use linerate_testkit::skip;

/// The longest time until a server answers its first request.
const PATIENCE: Duration = Duration::from_secs(20);

/// A lab, and a directory for the files of a server. On drop, the server ends first.
pub(crate) struct Scene {
    test: &'static str,
    server: Option<LabChild>,
    pub(crate) directory: tempfile::TempDir,
    pub(crate) lab: Lab,
}

impl Scene {
    /// `None`, after a SKIP message, if `program` is not installed or no lab can start.
    pub(crate) fn set(test: &'static str, program: &str) -> Option<Self> {
        if find(program).is_none() {
            skip(test, format_args!("{program} is not installed"));
            return None;
        }
        let lab = Lab::builder().start().map_err(|why| skip(test, why)).ok()?;
        let directory = tempfile::tempdir().unwrap();
        Some(Scene { test, lab, directory, server: None })
    }

    pub(crate) fn address(&self) -> IpAddr {
        self.lab.links()[0].receiver.ipv4[0].into()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    /// Starts the server and waits until it answers `request` at `address`.
    pub(crate) fn serve(&mut self, program: &str, arguments: &[&str], address: SocketAddr, request: &[u8]) {
        let mut command = Command::new(find(program).unwrap());
        let log = std::fs::File::create(self.path("log")).unwrap();
        command.args(arguments).stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        let mut server = self.lab.receiver().spawn(command).unwrap();
        let answers = || {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            socket.connect(address).unwrap();
            socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
            // Fails with ECONNREFUSED until the server listens.
            socket.send(request).is_ok() && socket.recv(&mut [0; 4_096]).is_ok()
        };
        let began = Instant::now();
        while !self.lab.senders()[0].run(answers).unwrap() {
            let exit_status = server.wait_at_most(Duration::from_millis(20)).unwrap();
            let log = || std::fs::read_to_string(self.path("log")).unwrap_or_default();
            assert!(
                exit_status.is_none() && began.elapsed() < PATIENCE,
                "{program} does not answer: {}",
                log()
            );
        }
        self.server = Some(server);
    }

    /// Calls `check` with a generator on the sender: once with sockets, once with XDP.
    pub(crate) fn load(
        &self,
        exchange: PreparedExchange,
        address: SocketAddr,
        flows: usize,
        mut check: impl FnMut(&mut dyn Generator),
    ) {
        let workload = LoadWorkload::Exchange(Arc::new(exchange));
        for backend in [GeneratorBackend::Socket, GeneratorBackend::Xdp] {
            let builder =
                GeneratorBuilder::default().targets(vec![address]).flows(flows).workload(workload.clone());
            match self.lab.senders()[0].run(|| builder.backend(backend).start()).unwrap() {
                Ok(mut generator) => check(&mut *generator),
                Err(why) if backend == GeneratorBackend::Xdp => skip(self.test, why),
                Err(why) => panic!("{why}"),
            }
        }
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        if let Some(mut server) = self.server.take() {
            let _ = server.kill();
        }
    }
}

/// The number of replies with the code `name`.
pub(crate) fn code(outcome: &SlotOutcome, name: &str) -> u64 {
    outcome.codes.iter().filter(|code| code.name.as_deref() == Some(name)).map(|code| code.count).sum()
}

pub(crate) fn assert_sound(outcome: &SlotOutcome) {
    assert_eq!(outcome.sent, outcome.answered + outcome.lost);
    assert_eq!(outcome.latency_ns.count(), outcome.answered);
    assert_eq!(outcome.codes.iter().map(|code| code.count).sum::<u64>(), outcome.answered);
    assert_eq!((outcome.duplicate, outcome.corrupt, outcome.unsolicited), (0, 0, 0), "{outcome:?}");
}
