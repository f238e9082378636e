//! Datagrams from the host to an interface of the guest.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use clap::ValueEnum;

use super::machine::TapWire;
use super::session::GuestSession;

/// Port of the guest's server.
const PORT: u16 = 4000;

/// A rate that the guest can process, and that exceeds its other traffic, packets per second.
pub(super) const FEW: u32 = 2_000;

/// A rate that suffices for doctor to judge the queues, packets per second.
pub(super) const ENOUGH: u32 = 8_000;

/// Source ports of many flows.
const MANY: usize = 256;

/// The number of flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FlowCount {
    /// One flow, which arrives on one queue
    One,
    /// 256 flows, each from its own port
    Many,
}

/// Traffic that continues until it is stopped.
pub(super) struct GuestTraffic {
    over: Arc<AtomicBool>,
    sender: JoinHandle<std::io::Result<u64>>,
}

impl GuestTraffic {
    pub(super) fn start(
        guest: &GuestSession,
        to: &TapWire,
        flows: FlowCount,
        per_second: u32,
    ) -> anyhow::Result<Self> {
        let target = SocketAddr::from((to.guest, PORT));
        let count = match flows {
            FlowCount::One => 1,
            FlowCount::Many => MANY,
        };
        let sockets = (0..count).map(|_| guest.socket_outside()).collect::<anyhow::Result<Vec<_>>>()?;
        let over = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&over);
        let sender = std::thread::Builder::new()
            .name("traffic".into())
            .spawn(move || send(&sockets, target, per_second, &told))
            .context("start a thread")?;
        Ok(Self { over, sender })
    }

    /// Stops the traffic and returns the number of datagrams.
    pub(super) fn stop(self) -> anyhow::Result<u64> {
        self.over.store(true, Ordering::Relaxed);
        let sent = self.sender.join().map_err(|_| anyhow!("the sender has panicked"))?;
        sent.context("send to the guest")
    }
}

/// Sends at an even rate from each socket in turn.
fn send(
    sockets: &[UdpSocket],
    target: SocketAddr,
    per_second: u32,
    over: &AtomicBool,
) -> std::io::Result<u64> {
    let interval = Duration::from_secs(1) / per_second;
    let begin = Instant::now();
    let mut sent = 0;
    for (number, socket) in (0..).zip(sockets.iter().cycle()) {
        if over.load(Ordering::Relaxed) {
            break;
        }
        std::thread::sleep((begin + interval * number).saturating_duration_since(Instant::now()));
        socket.send_to(&[0; 100], target)?;
        sent += 1;
    }
    Ok(sent)
}
