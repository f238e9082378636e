//! Counters of serving threads: their CPU time.

use super::ServingThread;
use crate::counter::{CountedUnit, Counter};
use crate::stage::PacketPath;
use crate::stage::name::StageName;

/// CPU time of each serving thread, in user mode and in the kernel.
pub(in crate::stage) fn counters(path: &PacketPath) -> Vec<Counter> {
    path.thread.serving.value().into_iter().flatten().flat_map(times).collect()
}

fn times(thread: &ServingThread) -> impl Iterator<Item = Counter> + '_ {
    let fields = [("utime", &thread.user_ticks), ("stime", &thread.system_ticks)];
    fields.into_iter().filter_map(|(name, ticks)| {
        let place = format!("thread {} {}", thread.name, thread.tid);
        let read_from = format!("/proc/{}/task/{}/stat", thread.pid, thread.tid);
        Some(Counter::new(StageName::Thread, place, name, CountedUnit::Ticks, *ticks.value()?, read_from))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Known;
    use crate::stage::socket::sample::{host, service, thread};

    #[test]
    fn thread_counters_have_known_cpu_time_and_socket_counters_have_drops() {
        let mut path = host(&[]).with(service(1), vec![thread(51, 700, "0")]);
        path.thread_mut(0).user_ticks = Known::Value(7);
        path.thread_mut(0).system_ticks = Known::unknown("gone");
        path.service().sockets[0].drops = Some(3);
        let counters: Vec<(String, String, u64)> = path
            .counters()
            .into_iter()
            .filter(|counter| matches!(counter.stage, StageName::Socket | StageName::Thread))
            .map(|counter| (counter.place, counter.name, counter.value))
            .collect();
        let socket = ("udp 10.0.0.1:53 (echo) ino 700".to_owned(), "drops".to_owned(), 3);
        assert_eq!(counters, [socket, ("thread worker 51".to_owned(), "utime".to_owned(), 7)]);
    }
}
