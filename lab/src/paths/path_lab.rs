//! A lab with one network path, its service and its client.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use linerate_engine::RunningServer;
use linerate_host::{Host, Known};
use linerate_load::{Generator, LoadWorkload};
use tempfile::NamedTempFile;

use super::recipe::{NetworkPath, PathCommand, RecipeValues};
use super::relay::MOST_CLIENTS;
use crate::ladder::config::LadderConfig;
use crate::ladder::configuration::{PortSharing, ServerConfiguration};
use crate::ladder::error::TestbedError;
use crate::ladder::lab_testbed::{CpuPlacement, setup};
use crate::ladder::sampler::Sampler;
use crate::ladder::server;
use crate::{Lab, LabChild, LabError, LabHost};

static FORWARD: &[u8] = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/../bpf/forward.bpf.o"));

/// Why a path has no figures: one line.
#[derive(Debug, thiserror::Error)]
pub enum PathError {
    #[error("{host}: {command}: {why}")]
    Command { host: &'static str, command: String, why: String },
    #[error(transparent)]
    Lab(#[from] LabError),
    #[error(transparent)]
    Testbed(#[from] TestbedError),
}

/// The client, the path and the service, ready for load.
pub(super) struct PathLab {
    pub(super) path: &'static NetworkPath,
    // In the order of dropping: service and generator live in the hosts of the lab.
    _service: RunningServer,
    pub(super) generator: Box<dyn Generator>,
    /// Processes of the recipe that run until the lab ends.
    relays: Vec<LabChild>,
    pub(super) lab: Lab,
    _object: NamedTempFile,
}

impl PathLab {
    /// Makes the path. `linerate` is the program that contains the relays.
    pub(super) fn start(
        path: &'static NetworkPath,
        config: &LadderConfig,
        linerate: &Path,
        cancel: &Arc<AtomicBool>,
    ) -> Result<Self, PathError> {
        if config.flows as usize > MOST_CLIENTS && path.name == "userland-proxy" {
            let why = format!("the proxy serves at most {MOST_CLIENTS} clients: lower --flows");
            return Err(TestbedError::Lab(why).into());
        }
        let lab = Lab::builder().senders(2).start()?;
        let object = object_file().map_err(|error| LabError::system("write the BPF programs", error))?;
        let sender1 = &lab.senders()[1];
        let values = RecipeValues {
            sender1: format!("/proc/{}/fd/{}", std::process::id(), sender1.namespace().as_raw_fd()),
            object: object.path().display().to_string(),
            linerate: shlex::try_quote(&linerate.to_string_lossy()).unwrap_or_default().into_owned(),
        };
        let mut relays = Vec::new();
        for command in path.commands(&values) {
            let host = lab.host(command.host).ok_or_else(|| command.failed("the lab has no such host"))?;
            relays.extend(carry_out(host, &command)?);
        }
        let placement = placement(&config.cpus);
        setup::set_sender(&lab, &lab.links()[0], &placement, true, true)?;
        let sampler = Sampler { config, cancel: Arc::clone(cancel) };
        let workload = LoadWorkload::Echo { payload_bytes: config.payload_bytes as usize };
        let (generator, nice) =
            setup::generator(&lab.senders()[0], &sampler, &placement, path.target(), &workload)?;
        let configuration = ServerConfiguration {
            sharing: PortSharing::SteeredByCpu,
            pinned: true,
            batched_calls: true,
            ..ServerConfiguration::baseline()
        };
        let host = lab.host(path.service_host).unwrap_or_else(|| lab.receiver());
        let (address, largest) = (path.service_address(), config.payload_bytes as usize);
        let service = server::start_in_lab(host, &configuration, address, &placement.server, nice, largest)?;
        Ok(Self { path, _service: service, generator, relays, lab, _object: object })
    }

    pub(super) fn is_relay(&self, pid: u32) -> bool {
        self.relays.iter().any(|relay| relay.id() == pid)
    }

    /// The lab's host with this network namespace.
    pub(super) fn host_of(&self, namespace: u32) -> Option<String> {
        let hosts = [self.lab.receiver()].into_iter().chain(self.lab.senders());
        let has_namespace = |host: &&LabHost| host.namespace_id().inode == u64::from(namespace);
        hosts.into_iter().find(has_namespace).map(|host| host.name().to_owned())
    }

    /// Whether bridged packets pass netfilter's IPv4 hooks, too.
    pub(super) fn bridge_netfilter(&self) -> Known<bool> {
        const FILE: &str = "/proc/sys/net/bridge/bridge-nf-call-iptables";
        let read_result = self.lab.receiver().run(|| Host::live().read(FILE));
        match read_result {
            Ok(Ok(text)) => Known::Value(text.trim() == "1"),
            Ok(Err(error)) => Known::unknown(error.to_string()),
            Err(error) => Known::unknown(error.to_string()),
        }
    }
}

impl PathCommand {
    fn failed(&self, why: impl Into<String>) -> PathError {
        PathError::Command { host: self.host, command: self.line.clone(), why: why.into() }
    }
}

/// Nothing on a path sets RPS, so the client, the path and the service share the CPUs.
pub(super) fn placement(cpus: &[u32]) -> CpuPlacement {
    CpuPlacement::shared(cpus)
}

fn object_file() -> io::Result<NamedTempFile> {
    let mut file = NamedTempFile::new()?;
    file.write_all(FORWARD)?;
    Ok(file)
}

/// Runs a command to its end, or until it prints that it is ready.
fn carry_out(host: &LabHost, path_command: &PathCommand) -> Result<Option<LabChild>, PathError> {
    let words = shlex::split(&path_command.line).unwrap_or_default();
    let (program, arguments) = words.split_first().ok_or_else(|| path_command.failed("it is empty"))?;
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stderr(Stdio::piped());
    command.stdout(if path_command.stays { Stdio::piped() } else { Stdio::null() });
    let mut child = host.spawn(command).map_err(|error| match error {
        LabError::System { source, .. } if source.kind() == io::ErrorKind::NotFound => {
            path_command.failed(format!("there is no program {program}"))
        }
        other => other.into(),
    })?;
    if path_command.stays {
        let mut ready_line = String::new();
        let output = child.stdout.take();
        let read_result = output.map_or(Ok(0), |output| BufReader::new(output).read_line(&mut ready_line));
        if read_result.is_ok_and(|bytes| bytes > 0) {
            return Ok(Some(child));
        }
    }
    let mut error_text = String::new();
    if let Some(mut errors) = child.stderr.take() {
        // The output is used only to report the reason.
        let _ = errors.read_to_string(&mut error_text);
    }
    let status = child.wait().map_err(|error| path_command.failed(error.to_string()))?;
    if status.success() && !path_command.stays {
        return Ok(None);
    }
    let why = error_text
        .lines()
        .find(|line| !line.trim().is_empty())
        .map_or_else(|| status.to_string(), str::to_owned);
    Err(path_command.failed(why))
}
