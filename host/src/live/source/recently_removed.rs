//! Snapshots show removed items for some seconds.

use std::collections::BTreeSet;
use std::time::Instant;

use crate::{Known, Scope};

use crate::live::snapshot::{InterfaceSnapshot, ServiceSnapshot, Snapshot, SocketSnapshot, ThreadSnapshot};

/// Seconds.
const SHOWN: f64 = 5.0;

/// Items of the last snapshot, including those that it showed as removed.
#[derive(Debug, Default)]
pub(super) struct RecentlyRemoved {
    interfaces: Vec<InterfaceSnapshot>,
    services: Vec<ServiceSnapshot>,
    threads: Vec<ThreadSnapshot>,
    // When the list was last known.
    interfaces_at: Option<Instant>,
    services_at: Option<Instant>,
    threads_at: Option<Instant>,
}

trait Removable: Clone {
    fn is_same(&self, other: &Self) -> bool;
    /// `None` while it exists.
    fn gone_seconds(&self) -> Option<f64>;
    fn removed(&self, gone_seconds: f64) -> Self;
}

impl RecentlyRemoved {
    /// Adds recently removed items to a snapshot. An interface that the user named always stays.
    pub(super) fn add_to(&mut self, snapshot: &mut Snapshot, now: Instant, scope: &Scope) {
        let elapsed_since = |at: &mut Option<Instant>| {
            at.replace(now).map_or(0.0, |last| now.duration_since(last).as_secs_f64())
        };
        for interface in &scope.interfaces {
            let item = InterfaceSnapshot { interface: interface.clone(), ..InterfaceSnapshot::default() };
            if !self.interfaces.iter().any(|last| last.is_same(&item)) {
                self.interfaces.push(item);
            }
        }
        let is_named = |item: &InterfaceSnapshot| scope.interfaces.contains(&item.interface);
        let elapsed = elapsed_since(&mut self.interfaces_at);
        merge(&mut self.interfaces, &mut snapshot.interfaces, elapsed, is_named);
        if let Known::Value(services) = &mut snapshot.services {
            let elapsed = elapsed_since(&mut self.services_at);
            let sockets = services.iter().flat_map(|service| &service.sockets);
            let open: BTreeSet<u64> = sockets.map(|socket| socket.inode).collect();
            for last in &mut self.services {
                if let Some(service) = services.iter_mut().find(|service| last.is_same(service)) {
                    // Another service may have the socket now.
                    last.sockets.retain(|socket| !open.contains(&socket.inode));
                    merge(&mut last.sockets, &mut service.sockets, elapsed, |_| false);
                }
            }
            merge(&mut self.services, services, elapsed, |_| false);
        }
        if let Known::Value(threads) = &mut snapshot.threads {
            let elapsed = elapsed_since(&mut self.threads_at);
            merge(&mut self.threads, threads, elapsed, |_| false);
        }
    }
}

/// Adds the last items that are missing in `current`, for a time or while they are kept.
fn merge<T: Removable>(last: &mut Vec<T>, current: &mut Vec<T>, elapsed: f64, is_kept: impl Fn(&T) -> bool) {
    for item in last.drain(..) {
        let gone_seconds = item.gone_seconds().map_or(0.0, |seconds| seconds + elapsed);
        let is_shown = gone_seconds < SHOWN || is_kept(&item);
        if is_shown && !current.iter().any(|other| other.is_same(&item)) {
            current.push(item.removed(gone_seconds));
        }
    }
    last.clone_from(current);
}

impl Removable for InterfaceSnapshot {
    fn is_same(&self, other: &Self) -> bool {
        self.interface == other.interface
    }

    fn gone_seconds(&self) -> Option<f64> {
        self.gone_seconds
    }

    fn removed(&self, gone_seconds: f64) -> Self {
        Self {
            interface: self.interface.clone(),
            driver: self.driver.clone(),
            node: self.node,
            gone_seconds: Some(gone_seconds),
            receive: Known::unknown("the interface is gone"),
            transmit: Known::unknown("the interface is gone"),
            discipline: Known::unknown("the interface is gone"),
            ..Self::default()
        }
    }
}

impl Removable for ServiceSnapshot {
    fn is_same(&self, other: &Self) -> bool {
        self.sockets.iter().any(|socket| other.sockets.iter().any(|other| other.is_same(socket)))
    }

    fn gone_seconds(&self) -> Option<f64> {
        self.sockets.iter().try_fold(f64::INFINITY, |least, socket| Some(least.min(socket.gone_seconds?)))
    }

    fn removed(&self, gone_seconds: f64) -> Self {
        // Without the sockets that were closed before the service ended.
        let is_gone = self.gone_seconds().is_some();
        let sockets = self.sockets.iter().filter(|socket| is_gone || socket.gone_seconds.is_none());
        let sockets = sockets.map(|socket| socket.removed(gone_seconds)).collect();
        Self { sockets, ..self.clone() }
    }
}

impl Removable for SocketSnapshot {
    fn is_same(&self, other: &Self) -> bool {
        self.inode == other.inode
    }

    fn gone_seconds(&self) -> Option<f64> {
        self.gone_seconds
    }

    fn removed(&self, gone_seconds: f64) -> Self {
        Self { inode: self.inode, place: self.place, gone_seconds: Some(gone_seconds), ..Self::default() }
    }
}

impl Removable for ThreadSnapshot {
    fn is_same(&self, other: &Self) -> bool {
        (self.pid, self.tid) == (other.pid, other.tid)
    }

    fn gone_seconds(&self) -> Option<f64> {
        self.gone_seconds
    }

    fn removed(&self, gone_seconds: f64) -> Self {
        Self {
            pid: self.pid,
            tid: self.tid,
            name: self.name.clone(),
            services: self.services.clone(),
            gone_seconds: Some(gone_seconds),
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Host;
    use crate::live::{LiveHost, SnapshotSource};
    use std::time::Duration;

    #[test]
    fn removed_items_are_shown_as_gone_until_they_return_or_expire() {
        let begin = Instant::now();
        let mut removed = RecentlyRemoved::default();
        let none = SnapshotSource::Live(Host::scripted::<String, String>([]));
        let empty = LiveHost::open(none, Scope::default()).refresh();
        let scope = Scope { interfaces: vec!["eth9".into()], ..Scope::default() };
        let mut refresh = |interfaces: &[&str], inodes: &[&[u64]], seconds: u64| {
            let mut snapshot = empty.clone();
            let interface = |name: &&str| InterfaceSnapshot {
                interface: (*name).to_owned(),
                ..InterfaceSnapshot::default()
            };
            let socket = |inode: &u64| SocketSnapshot { inode: *inode, ..SocketSnapshot::default() };
            let service = |inodes: &&[u64]| ServiceSnapshot {
                sockets: inodes.iter().map(socket).collect(),
                ..ServiceSnapshot::default()
            };
            snapshot.interfaces = interfaces.iter().map(interface).collect();
            snapshot.services = match inodes {
                [] => Known::unknown("unreadable"),
                inodes => Known::Value(inodes.iter().map(service).collect()),
            };
            removed.add_to(&mut snapshot, begin + Duration::from_secs(seconds), &scope);
            let text = |name: String, gone_seconds: Option<f64>| match gone_seconds {
                None => name,
                Some(seconds) => format!("{name} gone {seconds} s"),
            };
            let interfaces = snapshot.interfaces.iter();
            let interfaces = interfaces.map(|item| text(item.interface.clone(), item.gone_seconds));
            let sockets = snapshot.services.value().into_iter().flatten().flat_map(|item| &item.sockets);
            let sockets = sockets.map(|socket| text(socket.inode.to_string(), socket.gone_seconds));
            interfaces.chain(sockets).collect::<Vec<_>>().join(", ")
        };
        for (interfaces, inodes, seconds, expected) in [
            (&["eth0", "eth1"][..], &[&[1, 2, 3][..], &[9]][..], 0, "eth0, eth1, eth9 gone 0 s, 1, 2, 3, 9"),
            (&["eth0"], &[&[1, 2], &[9]], 1, "eth0, eth1 gone 0 s, eth9 gone 1 s, 1, 2, 3 gone 0 s, 9"),
            (&["eth0"], &[&[1, 2], &[9]], 5, "eth0, eth1 gone 4 s, eth9 gone 5 s, 1, 2, 3 gone 4 s, 9"),
            (&["eth0", "eth1"], &[&[1, 2], &[9]], 6, "eth0, eth1, eth9 gone 6 s, 1, 2, 9"),
            (&["eth0"], &[&[4], &[9]], 7, "eth0, eth1 gone 0 s, eth9 gone 7 s, 4, 9, 1 gone 0 s, 2 gone 0 s"),
            (&["eth0"], &[&[4, 5, 6], &[9]], 12, "eth0, eth9 gone 12 s, 4, 5, 6, 9"),
            // The first service is split, loses a socket, and ends.
            (&["eth0"], &[&[4, 5], &[6]], 14, "eth0, eth9 gone 14 s, 4, 5, 6, 9 gone 0 s"),
            (&["eth0"], &[&[4], &[6]], 15, "eth0, eth9 gone 15 s, 4, 5 gone 0 s, 6, 9 gone 1 s"),
            (&["eth0"], &[&[7], &[6]], 17, "eth0, eth9 gone 17 s, 7, 6, 4 gone 0 s, 9 gone 3 s"),
            // The time while the services are unknown counts.
            (&["eth0"], &[], 18, "eth0, eth9 gone 18 s"),
            (&["eth0"], &[&[7], &[6]], 21, "eth0, eth9 gone 21 s, 7, 6, 4 gone 4 s"),
        ] {
            assert_eq!(refresh(interfaces, inodes, seconds), expected);
        }
    }
}
