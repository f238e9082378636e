//! Snapshots show removed items for some seconds.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use crate::{Known, Scope};

use crate::live::snapshot::{InterfaceSnapshot, ServiceSnapshot, Snapshot, SocketSnapshot, ThreadSnapshot};

/// Seconds.
const SHOWN: f64 = 5.0;

#[derive(Debug)]
struct ServiceSocket {
    service: String,
    place: u32,
    removed_at: Option<Instant>,
}

/// Items of the last snapshot, and the times at which they were removed.
#[derive(Debug, Default)]
pub(super) struct RecentlyRemoved {
    interfaces: Vec<(InterfaceSnapshot, Option<Instant>)>,
    services: Vec<(ServiceSnapshot, Option<Instant>)>,
    /// By inode: sockets of services that are still there.
    sockets: BTreeMap<u64, ServiceSocket>,
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
            self.add_services(services, now);
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

    fn add_services(&mut self, services: &mut Vec<ServiceSnapshot>, now: Instant) {
        let is_same = |left: &ServiceSnapshot, right: &ServiceSnapshot| {
            left.sockets.iter().any(|socket| has_socket(right, socket))
        };
        let mark_removed = |item: &ServiceSnapshot, seconds: f64| {
            let socket = |socket: &SocketSnapshot| removed_socket(socket.inode, socket.place, seconds);
            ServiceSnapshot { sockets: item.sockets.iter().map(socket).collect(), ..item.clone() }
        };
        merge(&mut self.services, services, now, (is_same, mark_removed), |_| false);
        self.add_sockets(services, now);
    }

    /// Adds recently removed sockets to services that still have open sockets.
    fn add_sockets(&mut self, services: &mut [ServiceSnapshot], now: Instant) {
        let mut sockets = BTreeMap::new();
        let mut removed_with_service = BTreeSet::new();
        for service in services.iter() {
            for socket in &service.sockets {
                if socket.gone_seconds.is_some() {
                    removed_with_service.insert(socket.inode);
                } else {
                    let (service, place) = (service.name.clone(), socket.place);
                    sockets.insert(socket.inode, ServiceSocket { service, place, removed_at: None });
                }
            }
        }
        for (inode, socket) in std::mem::take(&mut self.sockets) {
            let removed_at = socket.removed_at.unwrap_or(now);
            let seconds = now.duration_since(removed_at).as_secs_f64();
            if sockets.contains_key(&inode) || removed_with_service.contains(&inode) || seconds >= SHOWN {
                continue;
            }
            let is_its_service = |service: &&mut ServiceSnapshot| {
                service.name == socket.service
                    && service.sockets.iter().any(|other| other.gone_seconds.is_none())
            };
            if let Some(service) = services.iter_mut().find(is_its_service) {
                service.sockets.push(removed_socket(inode, socket.place, seconds));
                sockets.insert(inode, ServiceSocket { removed_at: Some(removed_at), ..socket });
            }
        }
        self.sockets = sockets;
    }
}

fn removed_socket(inode: u64, place: u32, seconds: f64) -> SocketSnapshot {
    SocketSnapshot { inode, place, gone_seconds: Some(seconds), ..SocketSnapshot::default() }
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
    fn a_closed_socket_of_a_running_service_is_shown_as_gone() {
        let begin = Instant::now();
        let mut removed = RecentlyRemoved::default();
        let mut refresh = |services: &[(&str, &[u64])], after: u64| -> Vec<Vec<(u64, Option<f64>)>> {
            let socket = |inode: &u64| SocketSnapshot { inode: *inode, ..SocketSnapshot::default() };
            let service = |(name, inodes): &(&str, &[u64])| ServiceSnapshot {
                name: (*name).to_owned(),
                sockets: inodes.iter().map(socket).collect(),
                ..ServiceSnapshot::default()
            };
            let mut services = services.iter().map(service).collect();
            removed.add_services(&mut services, begin + Duration::from_secs(after));
            let sockets = |service: ServiceSnapshot| {
                service.sockets.into_iter().map(|socket| (socket.inode, socket.gone_seconds)).collect()
            };
            services.into_iter().map(sockets).collect()
        };
        let (ntp, ntp_socket) = (("ntp", &[9][..]), vec![(9, None)]);
        refresh(&[("dns", &[1, 2, 3]), ntp], 0);
        let closed = |seconds| vec![(1, None), (2, None), (3, Some(seconds))];
        assert_eq!(refresh(&[("dns", &[1, 2]), ntp], 1), [closed(0.0), ntp_socket.clone()]);
        assert_eq!(refresh(&[("dns", &[1, 2]), ntp], 5), [closed(4.0), ntp_socket.clone()]);
        assert_eq!(refresh(&[("dns", &[1, 2]), ntp], 6), [vec![(1, None), (2, None)], ntp_socket.clone()]);
        let ended = vec![(1, Some(0.0)), (2, Some(0.0))];
        assert_eq!(refresh(&[("dns", &[4]), ntp], 7), [vec![(4, None)], ntp_socket, ended], "a restart");
    }

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
