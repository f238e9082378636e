//! Datagrams from the host to an interface of the guest.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use clap::ValueEnum;
use serde::Deserialize;

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
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
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
        wire: &TapWire,
        flows: FlowCount,
        per_second: u32,
    ) -> anyhow::Result<Self> {
        let target = SocketAddr::from((wire.guest, PORT));
        let count = match flows {
            FlowCount::One => 1,
            FlowCount::Many => MANY,
        };
        let sockets = (0..count).map(|_| guest.host_socket()).collect::<anyhow::Result<Vec<_>>>()?;
        let stop_flag = Arc::new(AtomicBool::new(false));
        let sender_flag = Arc::clone(&stop_flag);
        let sender = std::thread::Builder::new()
            .name("traffic".into())
            .spawn(move || send(&sockets, target, per_second, &sender_flag))
            .context("start a thread")?;
        Ok(Self { over: stop_flag, sender })
    }

    /// Stops the traffic and returns the number of datagrams.
    pub(super) fn stop(self) -> anyhow::Result<u64> {
        self.over.store(true, Ordering::Relaxed);
        let send_result = self.sender.join().map_err(|_| anyhow!("the sender has panicked"))?;
        send_result.context("send to the guest")
    }
}

/// Sends at an even rate from each socket in turn.
fn send(
    sockets: &[UdpSocket],
    target: SocketAddr,
    per_second: u32,
    stop_flag: &AtomicBool,
) -> std::io::Result<u64> {
    let interval = Duration::from_secs(1) / per_second;
    let begin = Instant::now();
    let mut sent_count = 0;
    for (number, socket) in (0..).zip(sockets.iter().cycle()) {
        if stop_flag.load(Ordering::Relaxed) {
            break;
        }
        std::thread::sleep((begin + interval * number).saturating_duration_since(Instant::now()));
        socket.send_to(&[0; 100], target)?;
        sent_count += 1;
    }
    Ok(sent_count)
}
