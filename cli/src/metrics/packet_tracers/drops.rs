//! Packets and the places where they end, by the kernel's own reason.

use std::collections::BTreeMap;

use linerate_host::Host;
use linerate_trace::TraceError;
use linerate_trace::drops::packet_counts::{CountedEvent, DropsTracer, PacketCounts, PortSubject};

use super::MetricCollector;
use crate::metrics::families::{DROPS_LOST, DROPS_MISSED, DROPS_PASSED};
use crate::metrics::gather::GatheredSamples;

#[derive(Debug)]
pub(crate) struct DropsCollector {
    look: DropsTracer,
    last: PacketCounts,
    // The sum of the differences, because the datagrams of earlier reads are estimated again in each
    // reading.
    total: PacketCounts,
}

impl DropsCollector {
    /// Starts to count the UDP packets of these ports in the calling thread's network namespace.
    pub(crate) fn start(host: &Host, ports: &[u16]) -> Result<Self, TraceError> {
        let port_subject = PortSubject { ports: ports.to_vec(), peer: None };
        let look = DropsTracer::start(host, &port_subject)?;
        Ok(Self { look, last: PacketCounts::default(), total: PacketCounts::default() })
    }
}

impl MetricCollector for DropsCollector {
    fn gather(&mut self, host: &Host, samples: &mut GatheredSamples) -> Result<(), String> {
        let counts = self.look.read(host).map_err(|error| error.to_string())?;
        self.total = self.total.joined(&counts.since(&self.last));
        self.last = counts;
        // The kernel uses one reason at many places, so their counts are added.
        let mut lost_packets: BTreeMap<(&str, String), u64> = BTreeMap::new();
        for (site, packets) in &self.total.lost {
            let reason = site.reason.as_deref().unwrap_or("unknown").to_ascii_lowercase();
            *lost_packets.entry((site.direction.into(), reason)).or_default() += packets;
        }
        for ((direction, reason), packets) in lost_packets {
            samples.add_counter(&DROPS_LOST, &[direction, &reason], packets);
        }
        for ((at, direction), packets) in &self.total.passed {
            samples.add_counter(&DROPS_PASSED, &[at.into(), direction.into()], *packets);
        }
        samples.add_counter(&DROPS_MISSED, &[], self.total.event_count(CountedEvent::Missed));
        Ok(())
    }
}
