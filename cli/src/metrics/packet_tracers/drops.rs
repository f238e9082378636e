//! Packets and the places where they end, by the kernel's own reason.

use std::collections::BTreeMap;

use linerate_host::Host;
use linerate_trace::TraceError;
use linerate_trace::drops::packet_counts::{
    CountedEvent, DropsTracer, PacketDirection, PathPoint, PortSubject,
};

use super::MetricCollector;
use crate::metrics::families::{DROPS_LOST, DROPS_MISSED, DROPS_PASSED};
use crate::metrics::gather::GatheredSamples;

#[derive(Debug)]
pub(crate) struct DropsCollector {
    look: DropsTracer,
}

impl DropsCollector {
    /// Starts to count the UDP packets of these ports in the calling thread's network namespace.
    pub(crate) fn start(host: &Host, ports: &[u16]) -> Result<Self, TraceError> {
        let port_subject = PortSubject { ports: ports.to_vec(), peer: None };
        Ok(Self { look: DropsTracer::start(host, &port_subject)? })
    }
}

impl MetricCollector for DropsCollector {
    fn gather(&mut self, host: &Host, samples: &mut GatheredSamples) -> Result<(), String> {
        let trace = self.look.read(host).map_err(|error| error.to_string())?;
        // The kernel uses one reason at many places, so their counts are added.
        let mut lost_packets: BTreeMap<(&str, String), u64> = BTreeMap::new();
        for (site, packets) in &trace.lost {
            let reason = site.reason.as_deref().unwrap_or("unknown").to_ascii_lowercase();
            *lost_packets.entry((direction_name(site.direction), reason)).or_default() += packets;
        }
        for ((direction, reason), packets) in lost_packets {
            samples.add_counter(&DROPS_LOST, &[direction, &reason], packets);
        }
        for ((at, direction), packets) in &trace.passed {
            samples.add_counter(&DROPS_PASSED, &[point(*at), direction_name(*direction)], *packets);
        }
        samples.add_counter(&DROPS_MISSED, &[], trace.event_count(CountedEvent::Missed));
        Ok(())
    }
}

fn direction_name(direction: PacketDirection) -> &'static str {
    match direction {
        PacketDirection::Request => "request",
        PacketDirection::Reply => "reply",
    }
}

fn point(point: PathPoint) -> &'static str {
    match point {
        PathPoint::Received => "received",
        PathPoint::Delivered => "delivered",
        PathPoint::Read => "read",
        PathPoint::Truncated => "truncated",
        PathPoint::LengthUnknown => "length_unknown",
        PathPoint::Sent => "sent",
        PathPoint::SendFailed => "send_failed",
        PathPoint::Queued => "queued",
        PathPoint::Forwarded => "forwarded",
    }
}
