//! The servers, and their start.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};
use linerate_lab::LabChild;
use linerate_testkit::reflector::XdpService;
use rustix::process::Signal;

use super::dns;
use super::program::ProgramKind;
use super::testbed::ServersTestbed;
use super::workload::ServerProtocol;

// Time for a server to end after SIGTERM.
const ENDING: Duration = Duration::from_secs(5);

pub(super) struct ServerCandidate {
    pub(super) name: &'static str,
    pub(super) protocol: ServerProtocol,
    program: CandidateProgram,
}

enum CandidateProgram {
    /// A server of this crate.
    Here(ProgramKind),
    /// XDP_TX at the interface.
    Reflector,
    Nsd,
    Knot {
        /// Whether the server receives packets by AF_XDP.
        xdp: bool,
    },
}

/// A running server, until this is dropped.
pub(super) enum CandidateRun {
    Process(LabChild),
    // A program that runs only in the kernel.
    Program(#[expect(dead_code, reason = "held for its drop")] XdpService),
}

pub(super) const MMSG: &str = "mmsg";
/// The mmsg server with an overload policy.
pub(super) const MMSG_POLICY: &str = "mmsg-policy";
pub(super) const XDP: &str = "xdp";
/// The XDP server with the given settings.
pub(super) const XDP_SET: &str = "xdp-set";
/// The XDP server with a service that works for each request.
pub(super) const XDP_WORKING: &str = "xdp-working";
pub(super) const C: &str = "c";
pub(super) const TOKIO: &str = "tokio";
pub(super) const XDP_TX: &str = "xdp-tx";
pub(super) const DNS_XDP: &str = "dns-xdp";
pub(super) const NSD: &str = "nsd";

/// The servers in the order of their turns. Compared servers are neighbours, so that their turns
/// are close in time.
pub(super) fn all() -> Vec<ServerCandidate> {
    use CandidateProgram::{Here, Knot, Nsd, Reflector};
    let echo = |name, program| ServerCandidate { name, protocol: ServerProtocol::Echo, program };
    let dns = |name, program| ServerCandidate { name, protocol: ServerProtocol::Dns, program };
    vec![
        echo("recvfrom", Here(ProgramKind::Recvfrom)),
        echo("quinn-udp", Here(ProgramKind::Quinn)),
        echo(TOKIO, Here(ProgramKind::Tokio)),
        echo(C, Here(ProgramKind::C)),
        echo(MMSG, Here(ProgramKind::Mmsg)),
        echo(MMSG_POLICY, Here(ProgramKind::MmsgPolicy)),
        echo(XDP, Here(ProgramKind::Xdp)),
        echo(XDP_SET, Here(ProgramKind::XdpSet)),
        echo(XDP_WORKING, Here(ProgramKind::XdpWorking)),
        echo(XDP_TX, Reflector),
        dns("dns-mmsg", Here(ProgramKind::DnsMmsg)),
        dns(DNS_XDP, Here(ProgramKind::DnsXdp)),
        dns(NSD, Nsd),
        dns("knot", Knot { xdp: false }),
        dns("knot-xdp", Knot { xdp: true }),
    ]
}

impl ServerCandidate {
    pub(super) fn describe(&self) -> String {
        match self.program {
            CandidateProgram::Here(kind) => kind.describe().to_owned(),
            CandidateProgram::Reflector => "every frame returned by an XDP program: the ceiling".to_owned(),
            CandidateProgram::Nsd => "NSD, reuseport, one process a worker".to_owned(),
            CandidateProgram::Knot { xdp: false } => "Knot DNS on sockets".to_owned(),
            CandidateProgram::Knot { xdp: true } => "Knot DNS on AF_XDP".to_owned(),
        }
    }

    /// Whether the server receives requests from the device, before the network stack.
    pub(super) fn takes_frames(&self) -> bool {
        match self.program {
            CandidateProgram::Here(kind) => matches!(
                kind,
                ProgramKind::Xdp | ProgramKind::XdpSet | ProgramKind::XdpWorking | ProgramKind::DnsXdp
            ),
            CandidateProgram::Reflector => true,
            CandidateProgram::Nsd => false,
            CandidateProgram::Knot { xdp } => xdp,
        }
    }

    /// Starts the server in the receiver. It may not answer yet.
    pub(super) fn start(&self, testbed: &ServersTestbed) -> anyhow::Result<CandidateRun> {
        let address = testbed.address();
        let command = match &self.program {
            CandidateProgram::Here(kind) => {
                let mut command = Command::new(std::env::current_exe()?);
                command.args(["bench", "server", "--kind", &kind.name(), "--bind", &address.to_string()]);
                command.args(["--workers", &testbed.workers.to_string(), "--cpus", &testbed.cpu_list()]);
                if let (ProgramKind::XdpSet, Some(settings)) = (kind, &testbed.xdp_settings) {
                    command.args(["--xdp-settings", settings]);
                }
                if self.protocol == ServerProtocol::Dns {
                    command.arg("--zone").arg(dns::zone(testbed.directory())?);
                }
                command
            }
            CandidateProgram::Reflector => {
                let (service, interface) =
                    (XdpService::reflector().port(address.port()), testbed.interface());
                let attach = || service.attach(interface);
                return Ok(CandidateRun::Program(testbed.receiver().run(attach)??));
            }
            CandidateProgram::Nsd => dns::nsd(testbed)?,
            CandidateProgram::Knot { xdp } => dns::knot(testbed, *xdp)?,
        };
        spawn(testbed, &command).map(CandidateRun::Process)
    }
}

impl CandidateRun {
    // Fails with the last output of the server if it has ended.
    pub(super) fn check(&mut self, log: &Path) -> anyhow::Result<()> {
        let Self::Process(child) = self else { return Ok(()) };
        if let Some(status) = child.wait_at_most(Duration::ZERO)? {
            let log_text = std::fs::read_to_string(log).unwrap_or_default();
            let error = log_text.lines().find(|line| line.starts_with("Error: "));
            let last_line = || log_text.lines().rev().find(|line| !line.trim().is_empty());
            bail!("it ended with {status}: {}", error.or_else(last_line).unwrap_or("it said nothing").trim());
        }
        Ok(())
    }

    /// The process; `None` if the server runs in the kernel.
    pub(super) fn process(&self) -> Option<u32> {
        match self {
            Self::Process(child) => Some(child.id()),
            Self::Program(_) => None,
        }
    }
}

impl Drop for CandidateRun {
    // SIGTERM before SIGKILL, so that the server can clean up its programs and sockets.
    fn drop(&mut self) {
        if let Self::Process(child) = self {
            let _ = child.signal(Signal::TERM);
            let _ = child.wait_at_most(ENDING);
        }
    }
}

/// All servers run on the same CPUs.
fn spawn(testbed: &ServersTestbed, program: &Command) -> anyhow::Result<LabChild> {
    let mut command = Command::new("taskset");
    command.args(["-c", &testbed.cpu_list()]).arg(program.get_program()).args(program.get_args());
    let log = std::fs::File::create(testbed.log()).context("writing the output of a server")?;
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    Ok(testbed.receiver().spawn(command)?)
}
