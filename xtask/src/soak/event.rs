//! Events that a server has to survive.

use std::fmt;
use std::net::{SocketAddr, UdpSocket};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use linerate_lab::Lab;

use super::accounting::RoundLoad;
use super::server::{POISON, SoakServer};

/// Time for which the interface is down.
const DOWN: Duration = Duration::from_millis(100);

// Time limit of an answer or a restart.
const PATIENCE: Duration = Duration::from_secs(5);

/// Longer than a full receive buffer takes to be read.
const FULL_BUFFER: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SoakEvent {
    Nothing,
    Flap,
    Mtu,
    Panic,
    Port,
}

impl SoakEvent {
    pub(super) const ALL: [SoakEvent; 5] = [Self::Nothing, Self::Flap, Self::Mtu, Self::Panic, Self::Port];

    /// Causes the event. Returns the requests that this sent in addition to the load.
    pub(super) fn cause(
        self,
        lab: &Lab,
        address: SocketAddr,
        server: &mut SoakServer,
    ) -> anyhow::Result<RoundLoad> {
        let mut extra_requests = RoundLoad::default();
        match self {
            Self::Nothing => {}
            Self::Flap => {
                link(lab, &["down"])?;
                std::thread::sleep(DOWN);
                link(lab, &["up"])?;
            }
            Self::Mtu => {
                link(lab, &["mtu", "1400"])?;
                link(lab, &["mtu", "1500"])?;
            }
            Self::Panic => extra_requests.sent = panic(lab, address, server)?,
            Self::Port => {
                let second_address = SocketAddr::new(address.ip(), address.port() + 1);
                server.open(second_address)?;
                check_echo(lab, second_address)?;
                server.close(second_address)?;
                (extra_requests.sent, extra_requests.answered) = (1, 1);
            }
        }
        Ok(extra_requests)
    }
}

/// Makes a worker panic. Returns the number of requests that this took: under load some are lost.
fn panic(lab: &Lab, address: SocketAddr, server: &mut SoakServer) -> anyhow::Result<u64> {
    let before = server.counts()?.restarts;
    let socket = lab.senders()[0].run(|| UdpSocket::bind("0.0.0.0:0"))??;
    let begin = Instant::now();
    let mut sent = 0;
    while begin.elapsed() < PATIENCE {
        socket.send_to(POISON, address)?;
        sent += 1;
        let sent_at = Instant::now();
        while sent_at.elapsed() < FULL_BUFFER {
            if server.counts()?.restarts != before {
                return Ok(sent);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
    bail!("no worker was restarted within {PATIENCE:?}")
}

// One request that must be answered.
fn check_echo(lab: &Lab, address: SocketAddr) -> anyhow::Result<()> {
    let answer = lab.senders()[0].run(|| -> std::io::Result<Vec<u8>> {
        let client = UdpSocket::bind("0.0.0.0:0")?;
        client.set_read_timeout(Some(PATIENCE))?;
        client.send_to(b"are you there?", address)?;
        let mut answer = vec![0; 64];
        let length = client.recv(&mut answer)?;
        answer.truncate(length);
        Ok(answer)
    })?;
    let answer = answer.with_context(|| format!("asking {address}"))?;
    ensure!(answer == b"are you there?", "{address} answered something else");
    Ok(())
}

fn link(lab: &Lab, arguments: &[&str]) -> anyhow::Result<()> {
    let mut command = Command::new("ip");
    command.args(["link", "set", "dev", &lab.links()[0].receiver.interface]).args(arguments);
    let status = lab.receiver().spawn(command)?.wait()?;
    ensure!(status.success(), "ip link set {} ended with {status}", arguments.join(" "));
    Ok(())
}

impl fmt::Display for SoakEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nothing => "nothing happened",
            Self::Flap => "the interface went down and up",
            Self::Mtu => "the MTU changed, there and back",
            Self::Panic => "a worker panicked",
            Self::Port => "a port was added and removed",
        })
    }
}
