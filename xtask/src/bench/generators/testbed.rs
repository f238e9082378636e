//! Two hosts and the link between them.

use std::net::Ipv4Addr;
use std::ops::Range;

use anyhow::Context;
use etherparse::PacketBuilder;
use linerate_lab::{Lab, LabHost, LabLink};
use linerate_testkit::reflector::{XdpBuilder, XdpService};

use super::PAYLOAD;
use crate::machine;

// Shorter datagrams are a tool's own control messages (iperf3 sends 4 bytes), and pass.
const SHORTEST: u16 = 40;

const DESTINATION_PORT: u16 = 7;

/// The UDP checksum in a frame.
const CHECKSUM: Range<usize> = 40..42;

/// A veth pair of one queue, with a service at the receiving end.
pub(super) struct GeneratorTestbed {
    service: XdpService,
    lab: Lab,
    // The CPU for everything but the generator.
    pub(super) other_cpu: u32,
}

impl GeneratorTestbed {
    pub(super) fn new(cpu: u32, service: XdpBuilder) -> anyhow::Result<Self> {
        let other_cpu = move_away_from(cpu)?;
        // One queue, because kxdpgun has a thread per queue.
        let lab = Lab::builder().queues(1).start()?;
        let interface = lab.links()[0].receiver.interface.clone();
        let service = service.shortest_payload(SHORTEST);
        let service = lab.receiver().run(|| service.attach(&interface))??;
        Ok(Self { service, lab, other_cpu })
    }

    pub(super) fn link(&self) -> &LabLink {
        &self.lab.links()[0]
    }

    pub(super) fn receiver(&self) -> &LabHost {
        self.lab.receiver()
    }

    pub(super) fn sender(&self) -> &LabHost {
        &self.lab.senders()[0]
    }

    pub(super) fn target(&self) -> Ipv4Addr {
        self.link().receiver.ipv4[0]
    }

    /// Ethernet, IPv4, UDP without a checksum, payload.
    pub(super) fn frame(&self, source_port: u16) -> anyhow::Result<Vec<u8>> {
        let LabLink { sender, receiver, .. } = self.link();
        let packet = PacketBuilder::ethernet2(sender.mac, receiver.mac)
            .ipv4(sender.ipv4[0].octets(), receiver.ipv4[0].octets(), 64)
            .udp(source_port, DESTINATION_PORT);
        let mut frame = Vec::new();
        packet.write(&mut frame, &[0x55; PAYLOAD])?;
        frame[CHECKSUM].fill(0);
        Ok(frame)
    }

    /// Datagrams that the receiver has counted.
    pub(super) fn received(&self) -> anyhow::Result<u64> {
        Ok(self.service.account()?.received)
    }
}

/// Moves the calling thread and its children to another CPU than `cpu`, and returns that CPU.
fn move_away_from(cpu: u32) -> anyhow::Result<u32> {
    // For the second testbed the thread may already be on another CPU, which is fine.
    let other_cpu = machine::allowed_cpus()?.into_iter().find(|candidate| *candidate != cpu);
    let other_cpu =
        other_cpu.with_context(|| format!("there is no CPU but {cpu} for the servers: two are needed"))?;
    machine::pin(None, other_cpu)?;
    Ok(other_cpu)
}
