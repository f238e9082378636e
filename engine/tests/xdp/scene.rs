//! The lab, servers and clients that the AF_XDP tests use.

use std::error::Error;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::process::Command;
use std::time::{Duration, Instant};

pub(crate) use crate::support::{PATIENCE, ask, client};
use linerate_engine::{AfXdpSettings, Backend, Builder, Echo, RunningServer, Server, Service};
use linerate_lab::{Lab, LabHost};

pub(crate) type XdpTestResult = Result<(), Box<dyn Error>>;

/// The reason why a test cannot run on this machine.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct XdpTestSkip(pub(crate) String);

/// A lab with two queues.
pub(crate) struct XdpTestLab {
    pub(crate) lab: Lab,
}

pub(crate) const PORT: u16 = 5300;

/// A server with default settings of AF_XDP.
pub(crate) fn xdp_server(address: SocketAddr, workers: usize) -> Builder {
    Server::builder().bind(address).workers(workers).backend(Backend::Xdp(AfXdpSettings::default()))
}

impl XdpTestLab {
    pub(crate) fn new() -> Result<Self, Box<dyn Error>> {
        if !rustix::process::geteuid().is_root() {
            return Err(XdpTestSkip("AF_XDP and a lab require root".to_owned()).into());
        }
        let lab = Lab::builder().queues(2).start().map_err(|error| XdpTestSkip(error.to_string()))?;
        Ok(Self { lab })
    }

    /// A lab with an echo server of two workers at the receiver's IPv4 address.
    pub(crate) fn with_echo() -> Result<(Self, SocketAddr, RunningServer), Box<dyn Error>> {
        let scene = Self::new()?;
        let address = SocketAddr::new(scene.ipv4(), PORT);
        let running = scene.start(xdp_server(address, 2), |_| Echo)?;
        Ok((scene, address, running))
    }

    /// Starts a server on the receiver. The server must use AF_XDP; skips the test if the kernel has
    /// no AF_XDP.
    pub(crate) fn start<S: Service + 'static>(
        &self,
        builder: Builder,
        service: impl FnMut(usize) -> S + Send + 'static,
    ) -> Result<RunningServer, Box<dyn Error>> {
        let running = self.lab.receiver().run(|| builder.start(service))??;
        if running.xdp().is_none() {
            let why = format!("{:?}", running.fallbacks());
            return Err(if why.contains("CONFIG_XDP_SOCKETS") {
                XdpTestSkip(why).into()
            } else {
                why.into()
            });
        }
        Ok(running)
    }

    pub(crate) fn sender(&self) -> &LabHost {
        &self.lab.senders()[0]
    }

    /// A UDP client on the sender, of the address family of `ip`.
    pub(crate) fn client(&self, ip: IpAddr) -> Result<UdpSocket, Box<dyn Error>> {
        let any = if ip.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        Ok(self.sender().run(|| client(any))??)
    }

    /// The receiver's first address per family.
    pub(crate) fn addresses(&self) -> Vec<IpAddr> {
        let end = &self.lab.links()[0].receiver;
        let four = end.ipv4.first().map(|address| IpAddr::V4(*address));
        let six = end.ipv6.first().map(|address| IpAddr::V6(*address));
        four.into_iter().chain(six).collect()
    }

    pub(crate) fn ipv4(&self) -> IpAddr {
        IpAddr::V4(self.lab.links()[0].receiver.ipv4[0])
    }

    /// The output of `ip link show eth0` on the receiver.
    pub(crate) fn link(&self) -> Result<String, Box<dyn Error>> {
        run(self.lab.receiver(), "ip", &["link", "show", "eth0"])
    }
}

/// Runs a program in a lab host and returns its standard output.
pub(crate) fn run(host: &LabHost, program: &str, arguments: &[&str]) -> Result<String, Box<dyn Error>> {
    let output = host.run(|| Command::new(program).args(arguments).output())??;
    if output.status.success() {
        return Ok(String::from_utf8(output.stdout)?);
    }
    Err(format!("{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr)).into())
}

/// Repeats a request until its reply arrives, because requests are lost while an interface is down.
pub(crate) fn ask_until_answered(client: &UdpSocket, to: SocketAddr, request: &[u8]) -> XdpTestResult {
    client.set_read_timeout(Some(Duration::from_millis(50)))?;
    let deadline = Instant::now() + Duration::from_secs(20);
    while Instant::now() < deadline {
        if ask(client, to, request).is_ok_and(|(answer, _)| answer == request) {
            client.set_read_timeout(Some(PATIENCE))?;
            return Ok(());
        }
    }
    Err("no answer within 20 s".into())
}
