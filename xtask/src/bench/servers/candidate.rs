//! Who takes part, and how each is started.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};
use linerate_lab::LabChild;
use linerate_testkit::reflector::XdpService;
use rustix::process::Signal;

use super::dns;
use super::program::Kind;
use super::scene::Scene;

/// How long a server may take to end when it is asked to.
const ENDING: Duration = Duration::from_secs(5);

/// What is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    Echo,
    Dns,
}

/// One that takes part.
pub(super) struct Candidate {
    pub(super) name: &'static str,
    pub(super) protocol: Protocol,
    program: Program,
}

/// What is started.
enum Program {
    /// One of this crate.
    Here(Kind),
    /// XDP_TX at the interface.
    Reflector,
    Nsd,
    Knot {
        /// Whether it takes packets by AF_XDP.
        xdp: bool,
    },
}

/// A server at work, until this is dropped.
pub(super) enum Serving {
    Process(LabChild),
    /// In the kernel alone.
    Program(#[expect(dead_code, reason = "held for its drop")] XdpService),
}

pub(super) const MMSG: &str = "mmsg";
/// With an overload policy.
pub(super) const MMSG_POLICY: &str = "mmsg-policy";
pub(super) const XDP: &str = "xdp";
/// With settings that are given.
pub(super) const XDP_SET: &str = "xdp-set";
/// With a service that has something to do.
pub(super) const XDP_WORKING: &str = "xdp-working";
pub(super) const C: &str = "c";
pub(super) const TOKIO: &str = "tokio";
pub(super) const XDP_TX: &str = "xdp-tx";
pub(super) const DNS_XDP: &str = "dns-xdp";
pub(super) const NSD: &str = "nsd";

/// Neighbours in this list are neighbours in time, which comparisons gain by.
pub(super) fn all() -> Vec<Candidate> {
    use Program::{Here, Knot, Nsd, Reflector};
    let echo = |name, program| Candidate { name, protocol: Protocol::Echo, program };
    let dns = |name, program| Candidate { name, protocol: Protocol::Dns, program };
    vec![
        echo("recvfrom", Here(Kind::Recvfrom)),
        echo("quinn-udp", Here(Kind::Quinn)),
        echo(TOKIO, Here(Kind::Tokio)),
        echo(C, Here(Kind::C)),
        echo(MMSG, Here(Kind::Mmsg)),
        echo(MMSG_POLICY, Here(Kind::MmsgPolicy)),
        echo(XDP, Here(Kind::Xdp)),
        echo(XDP_SET, Here(Kind::XdpSet)),
        echo(XDP_WORKING, Here(Kind::XdpWorking)),
        echo(XDP_TX, Reflector),
        dns("dns-mmsg", Here(Kind::DnsMmsg)),
        dns(DNS_XDP, Here(Kind::DnsXdp)),
        dns(NSD, Nsd),
        dns("knot", Knot { xdp: false }),
        dns("knot-xdp", Knot { xdp: true }),
    ]
}

impl Candidate {
    /// What it is, for a reader of figures.
    pub(super) fn how(&self) -> String {
        match self.program {
            Program::Here(kind) => kind.how().to_owned(),
            Program::Reflector => "every frame returned by an XDP program: the ceiling".to_owned(),
            Program::Nsd => "NSD, reuseport, one process a worker".to_owned(),
            Program::Knot { xdp: false } => "Knot DNS on sockets".to_owned(),
            Program::Knot { xdp: true } => "Knot DNS on AF_XDP".to_owned(),
        }
    }

    /// Whether it takes requests where the device delivers them, before the network stack.
    pub(super) fn takes_frames(&self) -> bool {
        match self.program {
            Program::Here(kind) => matches!(kind, Kind::Xdp | Kind::XdpSet | Kind::XdpWorking | Kind::DnsXdp),
            Program::Reflector => true,
            Program::Nsd => false,
            Program::Knot { xdp } => xdp,
        }
    }

    /// Starts it in the receiver. It may not answer yet.
    pub(super) fn start(&self, scene: &Scene) -> anyhow::Result<Serving> {
        let address = scene.address();
        let command = match &self.program {
            Program::Here(kind) => {
                let mut command = Command::new(std::env::current_exe()?);
                command.args(["bench", "server", "--kind", &kind.name(), "--bind", &address.to_string()]);
                command.args(["--workers", &scene.workers.to_string(), "--cpus", &scene.cpu_list()]);
                if let (Kind::XdpSet, Some(settings)) = (kind, &scene.xdp_settings) {
                    command.args(["--xdp-settings", settings]);
                }
                if self.protocol == Protocol::Dns {
                    command.arg("--zone").arg(dns::zone(scene.directory())?);
                }
                command
            }
            Program::Reflector => {
                let (service, interface) = (XdpService::reflector().port(address.port()), scene.interface());
                let attach = || service.attach(interface);
                return Ok(Serving::Program(scene.receiver().run(attach)??));
            }
            Program::Nsd => dns::nsd(scene)?,
            Program::Knot { xdp } => dns::knot(scene, *xdp)?,
        };
        spawn(scene, &command).map(Serving::Process)
    }
}

impl Serving {
    /// Whether it still runs; if not, what it said at the end.
    pub(super) fn check(&mut self, log: &Path) -> anyhow::Result<()> {
        let Self::Process(child) = self else { return Ok(()) };
        if let Some(status) = child.wait_at_most(Duration::ZERO)? {
            let said = std::fs::read_to_string(log).unwrap_or_default();
            let error = said.lines().find(|line| line.starts_with("Error: "));
            let last = || said.lines().rev().find(|line| !line.trim().is_empty());
            bail!("it ended with {status}: {}", error.or_else(last).unwrap_or("it said nothing").trim());
        }
        Ok(())
    }

    /// The process, if it is one.
    pub(super) fn process(&self) -> Option<u32> {
        match self {
            Self::Process(child) => Some(child.id()),
            Self::Program(_) => None,
        }
    }
}

impl Drop for Serving {
    /// Asks a process to end before it is made to, so that it leaves as little behind as it can.
    fn drop(&mut self) {
        if let Self::Process(child) = self {
            let _ = child.signal(Signal::TERM);
            let _ = child.wait_at_most(ENDING);
        }
    }
}

/// All are held to the same CPUs in the same way, whatever else they are told.
fn spawn(scene: &Scene, program: &Command) -> anyhow::Result<LabChild> {
    let mut command = Command::new("taskset");
    command.args(["-c", &scene.cpu_list()]).arg(program.get_program()).args(program.get_args());
    let log = std::fs::File::create(scene.log()).context("writing what a server says")?;
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    Ok(scene.receiver().spawn(command)?)
}
