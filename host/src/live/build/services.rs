//! UDP services and their sockets.

use std::collections::BTreeMap;

use crate::Known;
use crate::counter_sample::CounterSample;
use crate::netlink::DiagSocket;
use crate::stage::socket;

use super::SnapshotInput;
use crate::live::growth::rate_32;
use crate::live::snapshot::{ServiceSnapshot, SocketSnapshot};

// The UDP services of the path. Services on ephemeral ports are left out unless the user named
// them.
pub(super) fn all(readings: &SnapshotInput<'_>) -> Known<Vec<ServiceSnapshot>> {
    let sockets = &readings.path.socket;
    if let Some(why) = sockets.services.why().or(readings.now.sockets.why()) {
        return Known::unknown(why);
    }
    let sockets_by_inode = |sample: Option<&CounterSample>| -> BTreeMap<u64, DiagSocket> {
        let all = sample.and_then(|sample| sample.sockets.value()).into_iter().flatten();
        all.map(|item| (item.inode, item.clone())).collect()
    };
    let (before, now) = (sockets_by_inode(readings.before), sockets_by_inode(Some(readings.now)));
    let services = sockets.udp_services().filter_map(|service| {
        let sockets: Vec<SocketSnapshot> = (0..)
            .zip(&service.sockets)
            .filter_map(|(place, state)| socket(place, state, (&before, &now), readings.seconds))
            .collect();
        (!sockets.is_empty()).then(|| ServiceSnapshot {
            name: service.name(),
            port: service.local.port(),
            pids: service.processes.value().into_iter().flatten().map(|process| process.pid).collect(),
            steering: service.steering.value().copied().flatten().map(|steering| steering.to_string()),
            sockets,
        })
    });
    Known::Value(services.collect())
}

// `None` if the socket is closed.
fn socket(
    place: u32,
    state: &socket::SocketState,
    (before, now): (&BTreeMap<u64, DiagSocket>, &BTreeMap<u64, DiagSocket>),
    seconds: Option<f64>,
) -> Option<SocketSnapshot> {
    let now = now.get(&state.inode)?;
    let size = now.receive_buffer_bytes.or(state.receive_buffer_bytes);
    let fill = size.filter(|size| *size > 0).map(|size| now.queued as f64 / size as f64);
    Some(SocketSnapshot {
        inode: state.inode,
        place,
        gone_seconds: None,
        incoming_cpu: state.incoming_cpu(),
        queued_bytes: Some(now.queued),
        receive_buffer_bytes: size,
        fill,
        drops_per_second: rate_32(
            before.get(&state.inode).and_then(|item| item.drops),
            now.drops.or(state.drops),
            seconds,
        ),
    })
}
