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
    pub(super) fn add_to(&mut self, snapshot: &mut Snapshot, now: Instant, scope: &Scope) {
        let is_requested = |item: &InterfaceSnapshot| scope.interfaces.contains(&item.interface);
        for name in &scope.interfaces {
            let has_name = |item: &InterfaceSnapshot| item.interface == *name;
            if !snapshot.interfaces.iter().any(has_name)
                && !self.interfaces.iter().any(|(item, _)| has_name(item))
            {
                let placeholder =
                    InterfaceSnapshot { interface: name.clone(), ..InterfaceSnapshot::default() };
                self.interfaces.push((placeholder, Some(now)));
            }
        }
        let is_same = |left: &InterfaceSnapshot, right: &InterfaceSnapshot| left.interface == right.interface;
        let mark_removed = |item: &InterfaceSnapshot, seconds: f64| InterfaceSnapshot {
            interface: item.interface.clone(),
            driver: item.driver.clone(),
            node: item.node,
            gone_seconds: Some(seconds),
            receive: Known::unknown("the interface is gone"),
            transmit: Known::unknown("the interface is gone"),
            discipline: Known::unknown("the interface is gone"),
            ..InterfaceSnapshot::default()
        };
        merge(&mut self.interfaces, &mut snapshot.interfaces, now, (is_same, mark_removed), is_requested);
        if let Known::Value(services) = &mut snapshot.services {
            let is_same = |left: &ServiceSnapshot, right: &ServiceSnapshot| {
                left.sockets.iter().any(|socket| has_socket(right, socket))
            };
            let mark_removed = |item: &ServiceSnapshot, seconds: f64| {
                let socket = |socket: &SocketSnapshot| SocketSnapshot {
                    inode: socket.inode,
                    place: socket.place,
                    gone_seconds: Some(seconds),
                    ..SocketSnapshot::default()
                };
                ServiceSnapshot { sockets: item.sockets.iter().map(socket).collect(), ..item.clone() }
            };
            merge(&mut self.services, services, now, (is_same, mark_removed), |_| false);
        }
        if let Known::Value(threads) = &mut snapshot.threads {
            let is_same = |left: &ThreadSnapshot, right: &ThreadSnapshot| {
                (left.pid, left.tid) == (right.pid, right.tid)
            };
            let mark_removed = |item: &ThreadSnapshot, seconds: f64| ThreadSnapshot {
                pid: item.pid,
                tid: item.tid,
                name: item.name.clone(),
                services: item.services.clone(),
                gone_seconds: Some(seconds),
                ..ThreadSnapshot::default()
            };
            merge(&mut self.threads, threads, now, (is_same, mark_removed), |_| false);
        }
    }
}

fn has_socket(service: &ServiceSnapshot, socket: &SocketSnapshot) -> bool {
    service.sockets.iter().any(|other| other.inode == socket.inode)
}

/// Adds recently removed items to `current`, marked by `mark_removed`.
fn merge<T>(
    previous: &mut Vec<(T, Option<Instant>)>,
    current: &mut Vec<T>,
    now: Instant,
    (is_same, mark_removed): (impl Fn(&T, &T) -> bool, impl Fn(&T, f64) -> T),
    is_kept: impl Fn(&T) -> bool,
) {
    // Keep only the removed items that are still shown.
    let mut next: Vec<(T, Option<Instant>)> =
        current.iter().map(|item| (mark_removed(item, 0.0), None)).collect();
    for (item, since) in previous.drain(..) {
        if next.iter().any(|(other, removed_at)| removed_at.is_none() && is_same(other, &item)) {
            continue;
        }
        let since = since.unwrap_or(now);
        let seconds = now.duration_since(since).as_secs_f64();
        if seconds < SHOWN || is_kept(&item) {
            current.push(mark_removed(&item, seconds));
            next.push((item, Some(since)));
        }
    }
    *previous = next;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn removed_items_are_shown_as_gone_until_they_return_or_expire() {
        let (same, gone) = (|a: &(u32, f64), b: &(u32, f64)| a.0 == b.0, |a: &(u32, f64), s: f64| (a.0, s));
        let mut known = Vec::new();
        let begin = Instant::now();
        let mut refresh = |items: &[u32], after: u64| {
            let mut shown_items: Vec<(u32, f64)> = items.iter().map(|item| (*item, -1.0)).collect();
            let at = begin + Duration::from_secs(after);
            merge(&mut known, &mut shown_items, at, (same, gone), |item| item.0 == 9);
            shown_items
        };
        assert_eq!(refresh(&[1, 2, 9], 0), [(1, -1.0), (2, -1.0), (9, -1.0)]);
        assert_eq!(refresh(&[1], 1), [(1, -1.0), (2, 0.0), (9, 0.0)]);
        assert_eq!(refresh(&[1], 4), [(1, -1.0), (2, 3.0), (9, 3.0)]);
        assert_eq!(refresh(&[1, 2], 5), [(1, -1.0), (2, -1.0), (9, 4.0)], "item 2 returned");
        assert_eq!(refresh(&[1], 6), [(1, -1.0), (2, 0.0), (9, 5.0)]);
        assert_eq!(refresh(&[1], 11), [(1, -1.0), (9, 10.0)], "item 9 stays");
    }
}
