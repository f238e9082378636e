//! Two hosts: a server on some CPUs, and a client on another CPU.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use linerate_lab::{Lab, LabHost, LabLink};
use linerate_load::generator::LiveFrames;
use linerate_load::{Generator, LoadWorkload};

use super::ServersBench;
use super::placement::ReceivePlacement;
use super::workload::{self, ServerProtocol};
use crate::bench::echo_load;
use crate::bench::placement::LongBacklog;

// Receive buffer of every server's socket, bytes: a moment without CPU then causes no loss.
pub(super) const BUFFER: usize = 4 << 20;

/// Bytes of UDP payload of an echo request.
pub(super) const PAYLOAD: usize = 100;

const PORT: u16 = 7777;

const FLOWS: usize = 64;

// Longest time that a killed server keeps its port.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct GeneratorPurpose {
    pub(super) protocol: ServerProtocol,
    /// The requests that are sent as live frames. If a network stack receives them, above all after
    /// RPS, fewer live frames than clones arrive per second.
    pub(super) live_frames: LiveFrames,
}

/// The lab and its current generator.
pub(super) struct ServersTestbed {
    generator: Option<(GeneratorPurpose, Box<dyn Generator>)>,
    pub(super) workers: u32,
    pub(super) cpus: Vec<u32>,
    generator_cpu: u32,
    /// The settings of `xdp-set`.
    pub(super) xdp_settings: Option<String>,
    directory: tempfile::TempDir,
    lab: Lab,
    _backlog: Option<LongBacklog>,
}

impl ServersTestbed {
    pub(super) fn new(settings: &ServersBench, placement: ReceivePlacement) -> anyhow::Result<Self> {
        let cpus = settings.server_cpus.clone();
        let lab = Lab::builder().queues(settings.workers).start()?;
        let testbed = Self {
            generator: None,
            workers: settings.workers,
            cpus,
            generator_cpu: settings.generator_cpu,
            xdp_settings: settings.xdp_settings.clone(),
            directory: tempfile::tempdir()?,
            lab,
            _backlog: if placement == ReceivePlacement::Rps { LongBacklog::set()? } else { None },
        };
        placement.set(testbed.receiver(), testbed.interface(), settings.workers, &testbed.cpus)?;
        Ok(testbed)
    }

    /// Waits until the port is free.
    pub(super) fn wait_until_free(&self) -> anyhow::Result<()> {
        let address = self.address();
        let begin = Instant::now();
        loop {
            match self.receiver().run(|| UdpSocket::bind(address))? {
                Ok(_) => return Ok(()),
                Err(error) if begin.elapsed() > PATIENCE => {
                    return Err(error)
                        .with_context(|| format!("{address}: still not free after {PATIENCE:?}"));
                }
                Err(_) => std::thread::sleep(Duration::from_millis(2)),
            }
        }
    }

    // Detaches an XDP program that a server left. Knot 3.2 leaves its own even after an orderly
    // end, and the program would redirect the next server's packets to no socket. Does nothing
    // without a program.
    pub(super) fn clear_programs(&self) -> anyhow::Result<()> {
        for mode in ["xdpdrv", "xdpgeneric"] {
            let mut command = Command::new("ip");
            command.args(["link", "set", "dev", self.interface(), mode, "off"]);
            let status = self.receiver().spawn(command)?.wait()?;
            ensure!(status.success(), "ip link set dev {} {mode} off ended with {status}", self.interface());
        }
        Ok(())
    }

    // The generator for a purpose. Only one generator at a time can have the interface.
    pub(super) fn generator(&mut self, purpose: GeneratorPurpose) -> anyhow::Result<&mut dyn Generator> {
        if self.generator.as_ref().is_none_or(|(current_purpose, _)| *current_purpose != purpose) {
            self.generator = None;
            let workload = match purpose.protocol {
                ServerProtocol::Echo => LoadWorkload::Echo { payload_bytes: PAYLOAD },
                ServerProtocol::Dns => workload::dns_queries()?,
            };
            let builder = echo_load(self.address(), self.generator_cpu, FLOWS, PAYLOAD)
                .workload(workload)
                .live_frames(purpose.live_frames);
            let generator = self.lab.senders()[0].run(|| builder.start())??;
            self.generator = Some((purpose, generator));
        }
        let (_, generator) = self.generator.as_mut().context("there is a generator")?;
        Ok(&mut **generator)
    }

    fn link(&self) -> &LabLink {
        &self.lab.links()[0]
    }

    pub(super) fn receiver(&self) -> &LabHost {
        self.lab.receiver()
    }

    /// The interface of the host that serves.
    pub(super) fn interface(&self) -> &str {
        &self.link().receiver.interface
    }

    pub(super) fn ip(&self) -> Ipv4Addr {
        self.link().receiver.ipv4[0]
    }

    /// The address of each server in turn.
    pub(super) fn address(&self) -> SocketAddr {
        (self.ip(), PORT).into()
    }

    pub(super) fn cpu_list(&self) -> String {
        self.cpus.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
    }

    /// The directory for configurations and zones.
    pub(super) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// The output of the server.
    pub(super) fn log(&self) -> PathBuf {
        self.directory().join("log")
    }
}
