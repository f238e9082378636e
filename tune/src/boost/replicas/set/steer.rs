//! Steers datagrams to the copies. A takeover moves them from the server that has the port.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use linerate_host::bind_hooks::{BoundSocket, sockets_on};
use linerate_host::stage::socket::SocketProtocol;

use super::super::cgroup::{self, ReplicaCgroup};
use super::super::drain::ServerDrain;
use super::super::readiness;
use super::super::{ReplicaError, ReplicaEvent, groups, name};
use super::{GroupSockets, ReplicaSet, SetPhase};

/// Longest wait for valid replies of copies that read their sockets.
const PROBE_PATIENCE: Duration = Duration::from_secs(10);

/// The first process of a server that goes to the background ends within this time.
const BACKGROUND_PATIENCE: Duration = Duration::from_secs(2);

impl ReplicaSet {
    /// The addresses for which every copy has a socket.
    pub(super) fn complete_groups(&self) -> BTreeMap<SocketAddr, GroupSockets> {
        let mut groups: BTreeMap<SocketAddr, GroupSockets> = BTreeMap::new();
        for (copy, state) in (0..).zip(&self.copies) {
            for (cookie, local) in state.binds.shared_sockets() {
                groups.entry(local).or_default().entry(copy).or_default().push(cookie);
            }
        }
        groups.retain(|_, sockets| sockets.len() == self.copies.len());
        groups
    }

    pub(super) fn steer(&mut self) -> Result<(), ReplicaError> {
        if matches!(self.phase, SetPhase::Replaced | SetPhase::Ending) {
            return Ok(());
        }
        if self.takeover.is_some() {
            return self.take_over();
        }
        if self.unsteered_group().is_none() {
            return Ok(());
        }
        if self.phase == SetPhase::Starting && !self.are_in_foreground() {
            return Ok(());
        }
        let _lock = self.group.lock_steering().map_err(ReplicaError::io("lock the control group"))?;
        if self.is_over() {
            return Ok(());
        }
        while let Some((local, sockets)) = self.unsteered_group() {
            if self.forget_closed_sockets(local, &sockets)? {
                continue;
            }
            let result = self.placement.steer(&self.host, local, &sockets);
            // A socket may have been closed meanwhile.
            if result.is_err() && self.forget_closed_sockets(local, &sockets)? {
                continue;
            }
            self.record_steering(local, sockets, result)?;
        }
        Ok(())
    }

    fn unsteered_group(&self) -> Option<(SocketAddr, GroupSockets)> {
        self.complete_groups().into_iter().find(|(local, sockets)| self.steered.get(local) != Some(sockets))
    }

    /// Moves the datagrams of the old server's addresses to the copies, once these read their sockets.
    fn take_over(&mut self) -> Result<(), ReplicaError> {
        self.check_addresses()?;
        let groups = self.complete_groups();
        let Some(takeover) = &self.takeover else { return Ok(()) };
        if !takeover.addresses().all(|local| groups.contains_key(&local)) {
            return Ok(());
        }
        for (local, sockets) in &groups {
            if self.forget_closed_sockets(*local, sockets)? {
                return Ok(());
            }
        }
        if !self.are_copies_reading()? || !self.are_in_foreground() || !self.probe_copies(&groups)? {
            return Ok(());
        }
        self.enlarge_buffers(groups.keys())?;
        let Some(takeover) = &mut self.takeover else { return Ok(()) };
        let lock = takeover.begin_switch(&self.host)?;
        let addresses: BTreeSet<SocketAddr> = takeover.addresses().collect();
        let mut results = Vec::new();
        for (local, sockets) in groups {
            let result = self.placement.steer(&self.host, local, &sockets);
            if let (Err(reason), true) = (&result, addresses.contains(&local)) {
                // A socket may have been closed meanwhile: then the next turn steers to the
                // remaining sockets.
                return match self.forget_closed_sockets(local, &sockets)? {
                    true => Ok(()),
                    false => Err(ReplicaError::NotSteered { why: reason.clone() }),
                };
            }
            results.push((local, sockets, result));
        }
        // The copies have the port, so later failures do not end them.
        self.phase = SetPhase::Serving;
        let mark_result = lock.map_or(Ok(()), |lock| lock.mark_replaced());
        let grace = self.config.takeover.unwrap_or_default();
        self.drain = self.takeover.take().map(|takeover| ServerDrain::new(takeover, grace));
        for (local, sockets, result) in results {
            self.record_steering(local, sockets, result)?;
        }
        mark_result.map_err(ReplicaError::io("tell the old supervisor that its port is taken over"))
    }

    /// Fails if a copy has a socket to which the kernel gives datagrams of the old server's
    /// addresses, whatever the steering program of these addresses does.
    fn check_addresses(&self) -> Result<(), ReplicaError> {
        let Some((takeover, port)) = self.takeover.as_ref().zip(self.config.port) else { return Ok(()) };
        if self.copies.iter().all(|copy| copy.binds.shared_sockets().next().is_none()) {
            return Ok(());
        }
        let bound_sockets = bound_sockets(port)?;
        let old_sockets: Vec<&BoundSocket> =
            bound_sockets.iter().filter(|socket| takeover.has_socket(socket.cookie)).collect();
        for (copy, state) in (0..).zip(&self.copies) {
            let new_sockets = bound_sockets.iter().filter(|socket| state.binds.has(socket.cookie));
            if let Some(why) = new_sockets.filter_map(|new| overlap(&old_sockets, new)).next() {
                return Err(ReplicaError::Startup { copy, why });
            }
        }
        Ok(())
    }

    /// Whether a thread of each copy waits for datagrams of each of its sockets.
    fn are_copies_reading(&self) -> Result<bool, ReplicaError> {
        for (copy, state) in (0..).zip(&self.copies) {
            let mut sockets = BTreeSet::new();
            for (cookie, local) in state.binds.shared_sockets() {
                let bound_sockets = bound_sockets(local.port())?;
                sockets.extend(
                    bound_sockets.iter().filter(|socket| socket.cookie == cookie).map(|socket| socket.inode),
                );
            }
            if !readiness::are_read(&self.host, &self.group.processes_of_copy(copy), &sockets) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether no copy is about to end because it went to the background.
    fn are_in_foreground(&mut self) -> bool {
        let has_left_session =
            |copy| readiness::have_left_session(&self.host, &self.group.processes_of_copy(copy));
        if !(0..self.config.replicas).any(has_left_session) {
            return true;
        }
        self.left_session.get_or_insert_with(Instant::now).elapsed() >= BACKGROUND_PATIENCE
    }

    fn enlarge_buffers<'a>(
        &mut self,
        locals: impl Iterator<Item = &'a SocketAddr>,
    ) -> Result<(), ReplicaError> {
        for local in locals {
            let bound_sockets = bound_sockets(local.port())?;
            for socket in bound_sockets
                .iter()
                .filter(|socket| self.copies.iter().any(|copy| copy.binds.has(socket.cookie)))
            {
                self.buffers.enlarge(&self.host, readiness::socket_of_any_process(socket));
            }
        }
        Ok(())
    }

    /// Whether each socket of the old server's addresses gave a valid reply, if a probe is
    /// configured.
    fn probe_copies(&mut self, groups: &BTreeMap<SocketAddr, GroupSockets>) -> Result<bool, ReplicaError> {
        let (Some(probe), Some(takeover)) = (&self.config.probe, &self.takeover) else { return Ok(true) };
        let probed_since = *self.probed_since.get_or_insert_with(Instant::now);
        for local in takeover.addresses() {
            let bound_sockets = bound_sockets(local.port())?;
            let cookies_by_copy = groups.get(&local).into_iter().flatten();
            let sockets =
                cookies_by_copy.flat_map(|(copy, cookies)| cookies.iter().map(|cookie| (*copy, *cookie)));
            for (copy, cookie) in sockets {
                let socket = bound_sockets.iter().find(|socket| socket.cookie == cookie);
                let probe_result = socket.ok_or_else(|| "it was closed".to_owned());
                let probe_result =
                    probe_result.and_then(|socket| readiness::send_probe(&self.host, socket, probe));
                match probe_result {
                    Ok(()) => {}
                    Err(_) if probed_since.elapsed() < PROBE_PATIENCE => return Ok(false),
                    Err(why) => {
                        let why = format!("does not answer on {}: {why}", name(SocketProtocol::Udp, local));
                        return Err(ReplicaError::Startup { copy, why });
                    }
                }
            }
        }
        // A copy that waits for a datagram since a probe would hold its socket in the map of the
        // probe's program (`udp_bpf_recvmsg` of net/ipv4/udp_bpf.c, Linux 6.18).
        let to_error = ReplicaError::io("freeze the copies for a moment");
        (0..self.config.replicas)
            .try_for_each(|copy| cgroup::restart_calls(&self.group.copy_path(copy)))
            .map_err(to_error)?;
        Ok(true)
    }

    /// Removes sockets that were closed since, for example sockets that only tried whether the port
    /// is free.
    fn forget_closed_sockets(
        &mut self,
        local: SocketAddr,
        sockets: &GroupSockets,
    ) -> Result<bool, ReplicaError> {
        let bound_sockets = bound_sockets(local.port())?;
        let mut has_closed = false;
        for (copy, cookies) in sockets {
            for cookie in
                cookies.iter().filter(|cookie| !bound_sockets.iter().any(|socket| socket.cookie == **cookie))
            {
                self.copies[*copy as usize].binds.forget(*cookie);
                has_closed = true;
            }
        }
        // The copies may have bound some of these sockets since the last check.
        self.read_binds();
        let is_own = |cookie: u64| self.copies.iter().any(|copy| copy.binds.has(cookie));
        let has_others = bound_sockets.iter().any(|socket| socket.local == local && !is_own(socket.cookie));
        if has_others && self.phase == SetPhase::Starting && self.takeover.is_none() {
            return Err(self.port_conflict(local));
        }
        Ok(has_closed)
    }

    fn port_conflict(&self, local: SocketAddr) -> ReplicaError {
        let port = local.port();
        let other_groups = groups(&self.host, Some(port)).unwrap_or_default();
        let is_other = |group: &&ReplicaCgroup| !group.is_same(&self.group) && !group.processes().is_empty();
        match other_groups.iter().find(is_other) {
            Some(group) => group.conflict(&self.host, port),
            None => ReplicaError::Refused(format!(
                "{} has sockets of another server, too: end that server first (ss -ulpn 'sport = :{port}' names it)",
                name(SocketProtocol::Udp, local)
            )),
        }
    }

    fn record_steering(
        &mut self,
        local: SocketAddr,
        sockets: GroupSockets,
        result: Result<(), String>,
    ) -> Result<(), ReplicaError> {
        self.group.add_port(local.port()).map_err(ReplicaError::io("mark the port of the control group"))?;
        for (copy, cookies) in sockets.iter().filter(|(_, cookies)| cookies.len() > 1) {
            self.events.push(ReplicaEvent::BoundAgain { copy: *copy, local, sockets: cookies.len() });
        }
        let is_new = !self.steered.contains_key(&local);
        match result {
            Ok(()) if is_new => {
                self.events.push(ReplicaEvent::Serving { local, cpus: self.placement.cpus.clone() });
            }
            Ok(()) => {}
            Err(why) => self.events.push(ReplicaEvent::NotSteered { local, why }),
        }
        self.steered.insert(local, sockets);
        self.phase = SetPhase::Serving;
        for (copy, state) in (0..).zip(&mut self.copies) {
            if let Some(since) = state.missing_since.take() {
                self.events.push(ReplicaEvent::Back { copy, after: since.elapsed() });
            }
        }
        Ok(())
    }
}

/// Why a new socket gets datagrams of an old socket that is in another group: the kernel prefers the
/// more specific address, and an IPv4 socket to one of both families (`compute_score` of
/// net/ipv4/udp.c and net/ipv6/udp.c, Linux 6.18).
fn overlap(old_sockets: &[&BoundSocket], new: &BoundSocket) -> Option<String> {
    let (new_ip, new_name) = (new.local.ip().to_canonical(), name(SocketProtocol::Udp, new.local));
    let has_same_address = |old: &&&BoundSocket| old.local.ip().to_canonical() == new_ip;
    let mut same_address = old_sockets.iter().filter(has_same_address).peekable();
    if same_address.peek().is_some() {
        let differs = same_address.all(|old| old.v6_only.is_some() && old.v6_only != new.v6_only);
        return (differs && new.v6_only.is_some()).then(|| {
            format!("binds {new_name} with another value of IPV6_V6ONLY than the old server: let both bind the same addresses")
        });
    }
    let diverts = |old: &&&BoundSocket| match (old.local.ip(), new_ip) {
        (IpAddr::V4(old_ip), IpAddr::V4(_)) => old_ip.is_unspecified(),
        (IpAddr::V6(old_ip), IpAddr::V6(_)) => old_ip.is_unspecified(),
        (IpAddr::V6(old_ip), IpAddr::V4(_)) => old_ip.is_unspecified() && old.v6_only == Some(false),
        (IpAddr::V4(_), IpAddr::V6(_)) => false,
    };
    old_sockets.iter().find(diverts).map(|old| {
        format!(
            "binds {new_name}, which gets datagrams of {} of the old server at once: let both bind the same addresses",
            name(SocketProtocol::Udp, old.local)
        )
    })
}

fn bound_sockets(port: u16) -> Result<Vec<BoundSocket>, ReplicaError> {
    sockets_on(port).map_err(ReplicaError::io("list the UDP sockets (module udp_diag)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_sockets_that_divert_datagrams_of_old_ones_are_refused() {
        let socket = |(local, v6_only): (&str, Option<bool>)| BoundSocket {
            cookie: 1,
            inode: 2,
            local: local.parse().expect("an address"),
            v6_only,
            queued: 0,
            drops: None,
        };
        let any4 = ("0.0.0.0:53", None);
        let one4 = ("192.0.2.1:53", None);
        let dual = ("[::]:53", Some(false));
        let only6 = ("[::]:53", Some(true));
        let one6 = ("[2001:db8::1]:53", Some(true));
        for (old, new, expected) in [
            (&[any4][..], any4, None),
            (&[any4], one4, Some("gets datagrams of udp 0.0.0.0:53")),
            (&[any4], only6, None),
            (&[any4], ("[::ffff:192.0.2.1]:53", Some(false)), Some("gets datagrams of udp 0.0.0.0:53")),
            (&[any4, one4], one4, None),
            (&[one4], any4, None),
            (&[dual], any4, Some("gets datagrams of udp [::]:53")),
            (&[dual], one4, Some("gets datagrams of udp [::]:53")),
            (&[dual], one6, Some("gets datagrams of udp [::]:53")),
            (&[dual], only6, Some("another value of IPV6_V6ONLY")),
            (&[dual], dual, None),
            (&[only6], any4, None),
            (&[any4, only6], dual, Some("another value of IPV6_V6ONLY")),
            (&[("[::]:53", None)], only6, None),
        ] {
            let old_sockets: Vec<BoundSocket> = old.iter().copied().map(socket).collect();
            let reason = overlap(&old_sockets.iter().collect::<Vec<_>>(), &socket(new));
            assert_eq!(reason.is_some(), expected.is_some(), "{old:?} {new:?} {reason:?}");
            assert!(reason.unwrap_or_default().contains(expected.unwrap_or_default()), "{old:?} {new:?}");
        }
    }
}
