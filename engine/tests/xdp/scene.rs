//! What the tests start from.

use std::error::Error;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::process::Command;
use std::time::{Duration, Instant};

use linerate_engine::{AfXdpSettings, Backend, Builder, RunningServer, Server, Service};
use linerate_lab::{Lab, LabHost, LabRegistry};
use tempfile::TempDir;

pub(crate) type XdpTestResult = Result<(), Box<dyn Error>>;

/// Long enough that only a lost datagram takes so long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// Why a test cannot be done here.
#[derive(Debug)]
pub(crate) struct XdpTestSkip(pub(crate) String);

impl fmt::Display for XdpTestSkip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for XdpTestSkip {}

/// A lab of the test's own.
pub(crate) struct XdpTestLab {
    pub(crate) lab: Lab,
    _directory: TempDir,
}

/// The port of most tests.
pub(crate) const PORT: u16 = 5300;

impl XdpTestLab {
    pub(crate) fn new() -> Result<Self, Box<dyn Error>> {
        if !rustix::process::geteuid().is_root() {
            return Err(XdpTestSkip("AF_XDP and a lab take root".to_owned()).into());
        }
        let directory = tempfile::tempdir()?;
        let registry = LabRegistry::at(directory.path().join("labs"))?;
        let lab = Lab::builder()
            .registry(&registry)
            .queues(2)
            .start()
            .map_err(|error| XdpTestSkip(error.to_string()))?;
        Ok(Self { lab, _directory: directory })
    }

    /// Starts a server at `address` of the receiver. It must serve by AF_XDP, unless this kernel has none.
    pub(crate) fn serve<S: Service + 'static>(
        &self,
        address: SocketAddr,
        settings: AfXdpSettings,
        service: impl FnMut(usize) -> S + Send + 'static,
    ) -> Result<RunningServer, Box<dyn Error>> {
        self.start(Server::builder().bind(address).workers(2).backend(Backend::Xdp(settings)), service)
    }

    /// The same with settings of a test's own.
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

    /// A client on the sender.
    pub(crate) fn client(&self, ip: IpAddr) -> Result<UdpSocket, Box<dyn Error>> {
        let any = if ip.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let socket = self.sender().run(|| UdpSocket::bind(any))??;
        socket.set_read_timeout(Some(PATIENCE))?;
        Ok(socket)
    }

    /// The receiver's addresses, one a family.
    pub(crate) fn addresses(&self) -> Vec<IpAddr> {
        let end = &self.lab.links()[0].receiver;
        let four = end.ipv4.first().map(|address| IpAddr::V4(*address));
        let six = end.ipv6.first().map(|address| IpAddr::V6(*address));
        four.into_iter().chain(six).collect()
    }

    pub(crate) fn ipv4(&self) -> IpAddr {
        IpAddr::V4(self.lab.links()[0].receiver.ipv4[0])
    }

    /// The interface as `ip link` shows it at the receiver.
    pub(crate) fn link(&self) -> Result<String, Box<dyn Error>> {
        run(self.lab.receiver(), "ip", &["link", "show", "eth0"])
    }
}

/// Runs a program in a host and returns what it printed.
pub(crate) fn run(host: &LabHost, program: &str, arguments: &[&str]) -> Result<String, Box<dyn Error>> {
    let output = host.run(|| Command::new(program).args(arguments).output())??;
    if output.status.success() {
        return Ok(String::from_utf8(output.stdout)?);
    }
    Err(format!("{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr)).into())
}

/// Sends one request and returns the answer and who sent it.
pub(crate) fn ask(client: &UdpSocket, to: SocketAddr, request: &[u8]) -> io::Result<(Vec<u8>, SocketAddr)> {
    client.send_to(request, to)?;
    let mut answer = vec![0; 65_536];
    let (length, from) = client.recv_from(&mut answer)?;
    answer.truncate(length);
    Ok((answer, from))
}

/// Asks again and again until an answer comes, while links come and go.
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
