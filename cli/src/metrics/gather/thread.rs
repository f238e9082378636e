//! Threads that serve sockets, by port.

use std::collections::{BTreeMap, BTreeSet};

use linerate_host::PacketPath;
use linerate_host::stage::thread::ServingThread;

use super::services::port_of;
use super::{CounterReset, GatheredSamples, MetricSelection, source_id};
use crate::metrics::families::{THREAD_CPU_SECONDS, THREAD_ID_SECONDS, THREADS};

/// The label of threads that serve more ports than one.
const SEVERAL: &str = "several";

pub(super) fn gather(path: &PacketPath, wanted: &MetricSelection, all: &mut GatheredSamples) {
    let mut ports: BTreeMap<u64, String> = BTreeMap::new();
    for service in path.socket.services().iter().filter(|service| wanted.has(service)) {
        let port = port_of(path, wanted, service);
        ports.extend(service.sockets.iter().map(|socket| (socket.inode, port.clone())));
    }
    for thread in path.thread.serving.value().into_iter().flatten() {
        let served: BTreeSet<&String> = thread.sockets.iter().filter_map(|inode| ports.get(inode)).collect();
        let port = match served.len() {
            0 => continue,
            1 => served.first().map_or(SEVERAL, |port| port.as_str()),
            _ => SEVERAL,
        };
        of_thread(thread, port, wanted, all);
    }
}

fn of_thread(thread: &ServingThread, port: &str, wanted: &MetricSelection, all: &mut GatheredSamples) {
    all.add_gauge(&THREADS, &[port], 1.0);
    let source = (source_id((thread.pid, thread.tid)), CounterReset::Anew);
    for (mode, ticks) in [("user", &thread.user_ticks), ("system", &thread.system_ticks)] {
        let Some(ticks) = ticks.value() else { continue };
        all.add_source_counter(&THREAD_CPU_SECONDS, &[port, mode], source, *ticks);
        if wanted.pids {
            let labels = [&*thread.pid.to_string(), &*thread.tid.to_string(), port, mode];
            all.add_source_counter(&THREAD_ID_SECONDS, &labels, source, *ticks);
        }
    }
}
