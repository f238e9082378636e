//! Snapshots show removed items for some seconds.

use std::time::Instant;

use crate::{Known, Scope};

use crate::live::snapshot::{InterfaceSnapshot, ServiceSnapshot, Snapshot, SocketSnapshot, ThreadSnapshot};

/// Seconds.
const SHOWN: f64 = 5.0;

/// Items of the last snapshot, and the times at which they were removed.
#[derive(Debug, Default)]
pub(super) struct RecentlyRemoved {
    interfaces: Vec<(InterfaceSnapshot, Option<Instant>)>,
    services: Vec<(ServiceSnapshot, Option<Instant>)>,
    threads: Vec<(ThreadSnapshot, Option<Instant>)>,
}

impl RecentlyRemoved {
    /// Adds recently removed items to a snapshot. An interface that the user named always stays.
    pub(super) fn keep(&mut self, snapshot: &mut Snapshot, at: Instant, scope: &Scope) {
        let asked_for = |item: &InterfaceSnapshot| scope.interfaces.contains(&item.interface);
        for name in &scope.interfaces {
            let known = |item: &InterfaceSnapshot| item.interface == *name;
            if !snapshot.interfaces.iter().any(known) && !self.interfaces.iter().any(|(item, _)| known(item))
            {
                let missing = InterfaceSnapshot { interface: name.clone(), ..InterfaceSnapshot::default() };
                self.interfaces.push((missing, Some(at)));
            }
        }
        let same = |one: &InterfaceSnapshot, other: &InterfaceSnapshot| one.interface == other.interface;
        let gone = |item: &InterfaceSnapshot, seconds: f64| InterfaceSnapshot {
            interface: item.interface.clone(),
            driver: item.driver.clone(),
            node: item.node,
            gone_seconds: Some(seconds),
            receive: Known::unknown("the interface is gone"),
            transmit: Known::unknown("the interface is gone"),
            discipline: Known::unknown("the interface is gone"),
            ..InterfaceSnapshot::default()
        };
        merge(&mut self.interfaces, &mut snapshot.interfaces, at, (same, gone), asked_for);
        if let Known::Value(services) = &mut snapshot.services {
            let same = |one: &ServiceSnapshot, other: &ServiceSnapshot| {
                one.sockets.iter().any(|socket| has(other, socket))
            };
            let gone = |item: &ServiceSnapshot, seconds: f64| {
                let socket = |socket: &SocketSnapshot| SocketSnapshot {
                    inode: socket.inode,
                    place: socket.place,
                    gone_seconds: Some(seconds),
                    ..SocketSnapshot::default()
                };
                ServiceSnapshot { sockets: item.sockets.iter().map(socket).collect(), ..item.clone() }
            };
            merge(&mut self.services, services, at, (same, gone), |_| false);
        }
        if let Known::Value(threads) = &mut snapshot.threads {
            let same =
                |one: &ThreadSnapshot, other: &ThreadSnapshot| (one.pid, one.tid) == (other.pid, other.tid);
            let gone = |item: &ThreadSnapshot, seconds: f64| ThreadSnapshot {
                pid: item.pid,
                tid: item.tid,
                name: item.name.clone(),
                services: item.services.clone(),
                gone_seconds: Some(seconds),
                ..ThreadSnapshot::default()
            };
            merge(&mut self.threads, threads, at, (same, gone), |_| false);
        }
    }
}

fn has(service: &ServiceSnapshot, socket: &SocketSnapshot) -> bool {
    service.sockets.iter().any(|other| other.inode == socket.inode)
}

/// Adds recently removed items to `there`, marked by `gone`.
fn merge<T>(
    known: &mut Vec<(T, Option<Instant>)>,
    there: &mut Vec<T>,
    at: Instant,
    (same, gone): (impl Fn(&T, &T) -> bool, impl Fn(&T, f64) -> T),
    stays: impl Fn(&T) -> bool,
) {
    // Keep only the removed items that are still shown.
    let mut next: Vec<(T, Option<Instant>)> = there.iter().map(|item| (gone(item, 0.0), None)).collect();
    for (item, since) in known.drain(..) {
        if next.iter().any(|(other, left)| left.is_none() && same(other, &item)) {
            continue;
        }
        let since = since.unwrap_or(at);
        let seconds = at.duration_since(since).as_secs_f64();
        if seconds < SHOWN || stays(&item) {
            there.push(gone(&item, seconds));
            next.push((item, Some(since)));
        }
    }
    *known = next;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn what_went_is_shown_as_gone_and_then_dropped_and_what_came_back_is_there() {
        let (same, gone) = (|a: &(u32, f64), b: &(u32, f64)| a.0 == b.0, |a: &(u32, f64), s: f64| (a.0, s));
        let mut known = Vec::new();
        let begin = Instant::now();
        let mut look = |items: &[u32], after: u64| {
            let mut there: Vec<(u32, f64)> = items.iter().map(|item| (*item, -1.0)).collect();
            let at = begin + Duration::from_secs(after);
            merge(&mut known, &mut there, at, (same, gone), |item| item.0 == 9);
            there
        };
        assert_eq!(look(&[1, 2, 9], 0), [(1, -1.0), (2, -1.0), (9, -1.0)]);
        assert_eq!(look(&[1], 1), [(1, -1.0), (2, 0.0), (9, 0.0)]);
        assert_eq!(look(&[1], 4), [(1, -1.0), (2, 3.0), (9, 3.0)]);
        assert_eq!(look(&[1, 2], 5), [(1, -1.0), (2, -1.0), (9, 4.0)], "it came back");
        assert_eq!(look(&[1], 6), [(1, -1.0), (2, 0.0), (9, 5.0)]);
        assert_eq!(look(&[1], 11), [(1, -1.0), (9, 10.0)], "one stays");
    }
}
