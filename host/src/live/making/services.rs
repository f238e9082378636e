//! UDP services and their sockets.

use std::collections::BTreeMap;

use crate::Known;
use crate::pulse::{Pulse, SocketPulse};
use crate::stage::socket::{self, Protocol, Steering};

use super::Readings;
use crate::live::growth::rate;
use crate::live::picture::{Service, Socket};

/// `ip_local_port_range` as kernels have it unless told otherwise (inet_init_net in net/ipv4/af_inet.c).
const USUAL_LOCAL_PORTS: (u16, u16) = (32_768, 60_999);

/// The UDP services of the path but for ports that clients are given, unless they were asked for.
pub(super) fn all(readings: &Readings<'_>) -> Known<Vec<Service>> {
    let sockets = &readings.path.socket;
    let (first, last) = sockets.local_ports.value().copied().unwrap_or(USUAL_LOCAL_PORTS);
    let services = match &sockets.services {
        Known::Value(services) => services,
        Known::Unknown { why } => return Known::unknown(why.clone()),
    };
    if let Some(why) = readings.now.sockets.why() {
        return Known::unknown(why);
    }
    let of = |pulse: Option<&Pulse>| -> BTreeMap<u64, SocketPulse> {
        let all = pulse.and_then(|pulse| pulse.sockets.value()).into_iter().flatten();
        all.map(|item| (item.inode, item.clone())).collect()
    };
    let (before, now) = (of(readings.before), of(Some(readings.now)));
    let shown = services.iter().filter(|service| {
        let port = service.local.port();
        service.protocol == Protocol::Udp && (service.named || port < first || port > last)
    });
    let services = shown.filter_map(|service| {
        let sockets: Vec<Socket> = (0..)
            .zip(&service.sockets)
            .filter_map(|(place, known)| socket(place, known, (&before, &now), readings.seconds))
            .collect();
        (!sockets.is_empty()).then(|| Service {
            name: service.name(),
            port: service.local.port(),
            pids: service.processes.value().into_iter().flatten().map(|process| process.pid).collect(),
            steering: service.steering.value().copied().flatten().map(named),
            sockets,
        })
    });
    Known::Value(services.collect())
}

/// None where the socket is no more.
fn socket(
    place: u32,
    known: &socket::Socket,
    (before, now): (&BTreeMap<u64, SocketPulse>, &BTreeMap<u64, SocketPulse>),
    seconds: Option<f64>,
) -> Option<Socket> {
    let now = now.get(&known.inode)?;
    let size = now.receive_buffer_bytes.or(known.receive_buffer_bytes);
    #[expect(clippy::cast_precision_loss, reason = "a share is shown with two digits")]
    let fill = size.filter(|size| *size > 0).map(|size| now.queued_bytes as f64 / size as f64);
    Some(Socket {
        inode: known.inode,
        place,
        gone_seconds: None,
        incoming_cpu: known.incoming_cpu(),
        queued_bytes: Some(now.queued_bytes),
        receive_buffer_bytes: size,
        fill,
        drops_per_second: rate(
            before.get(&known.inode).and_then(|item| item.drops),
            now.drops.or(known.drops),
            seconds,
        ),
    })
}

fn named(steering: Steering) -> String {
    match steering {
        Steering::Hash => "hash",
        Steering::Cpu => "cpu",
        Steering::Program => "program",
    }
    .to_owned()
}
