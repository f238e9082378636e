//! Steers datagrams to the copies. A takeover moves them from the server that has the port.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use linerate_host::bind_hooks::{BoundSocket, sockets_on};
use linerate_host::stage::socket::SocketProtocol;

use super::super::cgroup;
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
            for (cookie, local) in state.binds.shared() {
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
        let groups = self.complete_groups();
        if groups.iter().all(|(local, sockets)| self.steered.get(local) == Some(sockets)) {
            return Ok(());
        }
        if self.phase == SetPhase::Starting && !self.stay_in_foreground() {
            return Ok(());
        }
        let _lock = self.group.lock_steering().map_err(ReplicaError::io("lock the control group"))?;
        if self.is_over() {
            return Ok(());
        }
        let mut has_closed = true;
        while has_closed {
            has_closed = false;
            for (local, sockets) in self.complete_groups() {
                if self.steered.get(&local) == Some(&sockets) {
                    continue;
                }
                if self.has_closed_sockets(local, &sockets)? {
                    has_closed = true;
                    continue;
                }
                let steered = self.placement.steer(&self.host, local, &sockets);
                // A socket may have been closed meanwhile.
                if steered.is_err() && self.has_closed_sockets(local, &sockets)? {
                    has_closed = true;
                    continue;
                }
                self.has_steered(local, sockets, steered)?;
            }
        }
        Ok(())
    }

    /// Moves the datagrams of the old server's addresses to the copies, once these read their sockets.
    fn take_over(&mut self) -> Result<(), ReplicaError> {
        let groups = self.complete_groups();
        let Some(takeover) = &self.takeover else { return Ok(()) };
        if !takeover.addresses().all(|local| groups.contains_key(&local)) {
            return Ok(());
        }
        for (local, sockets) in &groups {
            if self.has_closed_sockets(*local, sockets)? {
                return Ok(());
            }
        }
        if !self.copies_read()? || !self.stay_in_foreground() || !self.copies_answer(&groups)? {
            return Ok(());
        }
        self.enlarge_buffers(groups.keys())?;
        let Some(takeover) = &self.takeover else { return Ok(()) };
        let lock = takeover.lock()?;
        let addresses: BTreeSet<SocketAddr> = takeover.addresses().collect();
        let mut steered = Vec::new();
        for (local, sockets) in groups {
            let result = self.placement.steer(&self.host, local, &sockets);
            if let (Err(why), true) = (&result, addresses.contains(&local)) {
                // A socket may have been closed meanwhile: then the next turn steers to the
                // remaining sockets.
                return match self.has_closed_sockets(local, &sockets)? {
                    true => Ok(()),
                    false => Err(ReplicaError::NotSteered { why: why.clone() }),
                };
            }
            steered.push((local, sockets, result));
        }
        // The copies have the port, so later failures do not end them.
        self.phase = SetPhase::Serving;
        let marked = lock.map_or(Ok(()), |lock| lock.mark_replaced());
        let grace = self.config.takeover.unwrap_or_default();
        self.drain = self.takeover.take().map(|takeover| takeover.drain(grace));
        for (local, sockets, result) in steered {
            self.has_steered(local, sockets, result)?;
        }
        marked.map_err(ReplicaError::io("tell the old supervisor that its port is taken over"))
    }

    /// Whether a thread of each copy waits for datagrams of each of its sockets.
    fn copies_read(&self) -> Result<bool, ReplicaError> {
        for (copy, state) in (0..).zip(&self.copies) {
            let mut sockets = BTreeSet::new();
            for (cookie, local) in state.binds.shared() {
                let listed = listed(local.port())?;
                sockets.extend(
                    listed.iter().filter(|socket| socket.cookie == cookie).map(|socket| socket.inode),
                );
            }
            if !readiness::are_read(&self.host, &self.group.processes_of_copy(copy), &sockets) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether no copy is about to end because it went to the background.
    fn stay_in_foreground(&mut self) -> bool {
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
            let listed = listed(local.port())?;
            for socket in
                listed.iter().filter(|socket| self.copies.iter().any(|copy| copy.binds.has(socket.cookie)))
            {
                self.buffers.enlarge(&self.host, readiness::somewhere(socket));
            }
        }
        Ok(())
    }

    /// Whether each socket of the old server's addresses gave a valid reply, if a probe is
    /// configured.
    fn copies_answer(&mut self, groups: &BTreeMap<SocketAddr, GroupSockets>) -> Result<bool, ReplicaError> {
        let (Some(probe), Some(takeover)) = (&self.config.probe, &self.takeover) else { return Ok(true) };
        let since = *self.probed_since.get_or_insert_with(Instant::now);
        for local in takeover.addresses() {
            let listed = listed(local.port())?;
            let of_copies = groups.get(&local).into_iter().flatten();
            let sockets = of_copies.flat_map(|(copy, cookies)| cookies.iter().map(|cookie| (*copy, *cookie)));
            for (copy, cookie) in sockets {
                let socket = listed.iter().find(|socket| socket.cookie == cookie);
                let asked = socket.ok_or_else(|| "it was closed".to_owned());
                let asked = asked.and_then(|socket| readiness::ask(&self.host, socket, probe));
                match asked {
                    Ok(()) => {}
                    Err(_) if since.elapsed() < PROBE_PATIENCE => return Ok(false),
                    Err(why) => {
                        let why = format!("does not answer on {}: {why}", name(SocketProtocol::Udp, local));
                        return Err(ReplicaError::Startup { copy, why });
                    }
                }
            }
        }
        // A copy that waits for a datagram since a probe would hold its socket in the map of the
        // probe's program (`udp_bpf_recvmsg` of net/ipv4/udp_bpf.c, Linux 6.18).
        let failed = ReplicaError::io("freeze the copies for a moment");
        (0..self.config.replicas)
            .try_for_each(|copy| cgroup::restart_calls(&self.group.of_copy(copy)))
            .map_err(failed)?;
        Ok(true)
    }

    /// Removes sockets that were closed since, for example sockets that only tried whether the port
    /// is free.
    fn has_closed_sockets(
        &mut self,
        local: SocketAddr,
        sockets: &GroupSockets,
    ) -> Result<bool, ReplicaError> {
        let listed = listed(local.port())?;
        let mut has_closed = false;
        for (copy, cookies) in sockets {
            for cookie in
                cookies.iter().filter(|cookie| !listed.iter().any(|socket| socket.cookie == **cookie))
            {
                self.copies[*copy as usize].binds.forget(*cookie);
                has_closed = true;
            }
        }
        // The copies may have bound some of these sockets since the last check.
        self.read_binds();
        let is_own = |cookie: u64| self.copies.iter().any(|copy| copy.binds.has(cookie));
        let others = listed.iter().any(|socket| socket.local == local && !is_own(socket.cookie));
        if others && self.phase == SetPhase::Starting && self.takeover.is_none() {
            return Err(self.taken(local));
        }
        Ok(has_closed)
    }

    fn taken(&self, local: SocketAddr) -> ReplicaError {
        let port = local.port();
        let others = groups(&self.host, Some(port)).unwrap_or_default();
        match others.iter().find(|group| group.supervisor != self.group.supervisor) {
            Some(group) => ReplicaError::PortInUse { port, supervisor: group.supervisor },
            None => ReplicaError::PortTaken { local },
        }
    }

    fn has_steered(
        &mut self,
        local: SocketAddr,
        sockets: GroupSockets,
        steered: Result<(), String>,
    ) -> Result<(), ReplicaError> {
        self.group.add_port(local.port()).map_err(ReplicaError::io("mark the port of the control group"))?;
        for (copy, cookies) in sockets.iter().filter(|(_, cookies)| cookies.len() > 1) {
            self.events.push(ReplicaEvent::BoundAgain { copy: *copy, local, sockets: cookies.len() });
        }
        let is_new = !self.steered.contains_key(&local);
        match steered {
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

fn listed(port: u16) -> Result<Vec<BoundSocket>, ReplicaError> {
    sockets_on(port).map_err(ReplicaError::io("list the UDP sockets (module udp_diag)"))
}
