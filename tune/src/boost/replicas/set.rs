//! The copies of a server, from start to end.

mod steer;

use std::collections::BTreeMap;
use std::fs::File;
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use linerate_host::Host;
use linerate_host::bind_hooks::BindHooks;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::Signal;

use super::buffers::HandoverBuffers;
use super::cgroup::{self, CgroupTree, PATIENCE, ReplicaCgroup};
use super::drain::ServerDrain;
use super::process::CopyProcess;
use super::startup::CopyBinds;
use super::steering::CopyPlacement;
use super::takeover::ServerTakeover;
use super::{ReplicaConfig, ReplicaError, ReplicaEvent, groups, remove_leftovers};

/// After this time without a shared port, the ports that were bound instead are reported.
const SLOW_START: Duration = Duration::from_secs(5);

/// A copy that ran for this time is restarted at once, and any other copy after a growing pause.
const STEADY: Duration = Duration::from_secs(10);

/// Interval between checks whether copies that take over a port read their sockets.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// Pause after a failure while the copies serve.
const TRY_AGAIN: Duration = Duration::from_secs(1);

const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Sockets of one address, by copy.
type GroupSockets = BTreeMap<u32, Vec<u64>>;

pub struct ReplicaSet {
    host: Host,
    config: ReplicaConfig,
    group: ReplicaCgroup,
    /// Locked while this process runs.
    _supervision: File,
    hooks: BindHooks,
    placement: CopyPlacement,
    copies: Vec<ServerCopy>,
    phase: SetPhase,
    /// The server whose port is taken over, until the copies have the port.
    takeover: Option<ServerTakeover>,
    /// The same server, until it has ended.
    drain: Option<ServerDrain>,
    /// Buffers of the new sockets, until the old server has ended.
    buffers: HandoverBuffers,
    /// Time of the first probe of the copies.
    probed_since: Option<Instant>,
    /// Time when a process of a copy was first seen in a session of its own.
    left_session: Option<Instant>,
    /// When a slow start is reported; `None` after that.
    slow_at: Option<Instant>,
    steered: BTreeMap<SocketAddr, GroupSockets>,
    events: Vec<ReplicaEvent>,
    /// The last failure while the copies serve. The action is tried again.
    failure: Option<String>,
    /// Copies that ended, whose last lines may not be printed yet.
    ended: Vec<CopyProcess>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SetPhase {
    Starting,
    Serving,
    /// Other copies have taken the port over: no copy is restarted.
    Replaced,
    Ending,
}

struct ServerCopy {
    process: Option<CopyProcess>,
    cgroup_id: u64,
    binds: CopyBinds,
    began: Instant,
    again_at: Option<Instant>,
    /// Failures in a row, each soon after a start.
    failures: u32,
    restarts: u32,
    /// Time of its end, until it serves again.
    missing_since: Option<Instant>,
}

impl ReplicaSet {
    /// Starts the copies. Removes the remains of a killed supervisor on the same port, unless the
    /// port is taken over.
    ///
    /// # Errors
    /// [`ReplicaError`]; then no process runs and no control group is left.
    pub fn start(config: ReplicaConfig) -> Result<Self, ReplicaError> {
        let host = Host::live();
        let mut events = Vec::new();
        if let (Some(port), None) = (config.port, config.takeover) {
            events.extend(remove_leftovers(&host, Some(port))?.into_iter().map(ReplicaEvent::Removed));
            if let Some(group) = groups(&host, Some(port))?.first() {
                return Err(group.conflict(&host, port));
            }
        }
        let placement = CopyPlacement::choose(&host, &config)?;
        let group = CgroupTree::open(&host)?.create(&host, config.replicas)?;
        let set = Self::start_in(host, config, placement, group.clone(), events);
        if set.is_err() {
            let _ = cgroup::kill(&group.path);
            let _ = group.remove();
        }
        set
    }

    fn start_in(
        host: Host,
        config: ReplicaConfig,
        placement: CopyPlacement,
        mut group: ReplicaCgroup,
        events: Vec<ReplicaEvent>,
    ) -> Result<Self, ReplicaError> {
        let supervision = group.supervise().map_err(ReplicaError::io("lock the control group"))?;
        if config.takeover.is_some() {
            group.begin_takeover().map_err(ReplicaError::io("mark the control group"))?;
        }
        let hooks =
            File::open(&group.path).and_then(|directory| BindHooks::attach(directory.as_fd(), config.port));
        let hooks_error = |error| {
            ReplicaError::Refused(format!("attach BPF programs to {}: {error}", group.path.display()))
        };
        let hooks = hooks.map_err(hooks_error)?;
        if let Some(port) = config.port {
            group.add_port(port).map_err(ReplicaError::io("mark the port of the control group"))?;
        }
        let now = Instant::now();
        let mut copies = Vec::new();
        for copy in 0..config.replicas {
            copies.push(ServerCopy {
                process: None,
                cgroup_id: group
                    .id_of_copy(copy)
                    .map_err(ReplicaError::io("read the id of a control group"))?,
                binds: CopyBinds::default(),
                began: now,
                again_at: None,
                failures: 0,
                restarts: 0,
                missing_since: None,
            });
        }
        let mut set = Self {
            host,
            config,
            group,
            _supervision: supervision,
            hooks,
            placement,
            copies,
            phase: SetPhase::Starting,
            takeover: None,
            drain: None,
            buffers: HandoverBuffers::default(),
            probed_since: None,
            left_session: None,
            slow_at: Some(now + SLOW_START),
            steered: BTreeMap::new(),
            events,
            failure: None,
            ended: Vec::new(),
        };
        if let (Some(port), Some(_)) = (set.config.port, set.config.takeover) {
            let server = (port, set.config.takeover_pid);
            set.takeover = Some(ServerTakeover::prepare(&set.host, &set.placement, &set.group, server)?);
        }
        for copy in 0..set.config.replicas {
            if let Err(error) = set.start_copy(copy) {
                set.abort_start();
                return Err(error);
            }
        }
        Ok(set)
    }

    /// Ends all copies. A server whose port was to be taken over continues.
    fn abort_start(&mut self) {
        if let Some(takeover) = &self.takeover {
            takeover.undo_switch(&self.host);
        }
        let _ = cgroup::kill(&self.group.path);
        let _ = cgroup::wait_until_empty(&self.group.path, PATIENCE);
        self.release_server();
    }

    /// Leaves the server whose port was to be taken over as it was. The copies must have ended,
    /// because the kernel's hash would give them datagrams.
    fn release_server(&mut self) {
        if let Some(takeover) = self.takeover.take() {
            takeover.release(&self.host);
        }
    }

    /// Waits for the next event of the copies, or until `wake` is readable, and acts on it.
    ///
    /// # Errors
    /// If a copy does not come up at the start. Then all copies are ended, and the control group is
    /// removed.
    pub fn wait(&mut self, wake: BorrowedFd<'_>) -> Result<(), ReplicaError> {
        self.poll(wake)?;
        let Err(error) = self.act() else {
            self.failure = None;
            return Ok(());
        };
        if self.phase == SetPhase::Starting {
            self.abort_start();
            self.finish()?;
            return Err(error);
        }
        // The copies serve, so they continue.
        let reason = error.to_string();
        if self.failure.as_ref() != Some(&reason) {
            self.events.push(ReplicaEvent::Failed { why: reason.clone() });
        }
        self.failure = Some(reason);
        Ok(())
    }

    pub fn take_events(&mut self) -> Vec<ReplicaEvent> {
        std::mem::take(&mut self.events)
    }

    /// Sends a signal to each copy.
    pub fn signal(&self, signal: Signal) {
        self.copies
            .iter()
            .filter_map(|copy| copy.process.as_ref())
            .for_each(|process| process.signal(signal));
    }

    /// Sends a signal to each copy and restarts none afterwards. A server whose port is being taken
    /// over continues, unless it was told to end already. A second call kills the copies.
    pub fn end(&mut self, signal: Signal) -> Result<(), ReplicaError> {
        if self.phase == SetPhase::Ending {
            return cgroup::kill(&self.group.path).map_err(ReplicaError::io("kill the copies"));
        }
        self.phase = SetPhase::Ending;
        if let Some(drain) = self.drain.take() {
            let (takeover, remaining) = drain.cancel();
            self.takeover = takeover;
            if !remaining.is_empty() {
                self.events.push(ReplicaEvent::Canceled { remaining });
            }
        }
        if let Some(takeover) = &self.takeover {
            takeover.undo_switch(&self.host);
        }
        self.signal(signal);
        Ok(())
    }

    pub fn has_ended(&self) -> bool {
        matches!(self.phase, SetPhase::Replaced | SetPhase::Ending)
            && self.copies.iter().all(|copy| copy.process.is_none())
            && self.drain.is_none()
    }

    /// Waits for the last lines, and removes the control group.
    pub fn finish(&mut self) -> Result<(), ReplicaError> {
        let result = self.remove_copies();
        self.release_server();
        result
    }

    fn remove_copies(&mut self) -> Result<(), ReplicaError> {
        let to_error = ReplicaError::io("remove the control group of the copies");
        if !cgroup::wait_until_empty(&self.group.path, PATIENCE).map_err(&to_error)? {
            cgroup::kill(&self.group.path).map_err(&to_error)?;
        }
        for copy in &mut self.copies {
            self.ended.extend(copy.process.take());
        }
        self.ended.drain(..).for_each(CopyProcess::finish);
        cgroup::wait_until_empty(&self.group.path, PATIENCE).map_err(&to_error)?;
        self.group.remove_directories().map_err(&to_error)
    }

    fn start_copy(&mut self, copy: u32) -> Result<(), ReplicaError> {
        let cpu = self.placement.cpus[copy as usize];
        let process = CopyProcess::start(&self.config, &self.group, copy, cpu)?;
        let state = &mut self.copies[copy as usize];
        state.binds.clear();
        (state.process, state.began, state.again_at) = (Some(process), Instant::now(), None);
        Ok(())
    }

    fn poll(&self, wake: BorrowedFd<'_>) -> Result<(), ReplicaError> {
        let mut descriptors =
            vec![PollFd::new(&wake, PollFlags::IN), PollFd::new(&self.hooks, PollFlags::IN)];
        let processes = self.copies.iter().filter_map(|copy| copy.process.as_ref());
        descriptors.extend(processes.map(|process| PollFd::new(process, PollFlags::IN)));
        let drain = self.drain.as_ref();
        let old_processes: Vec<BorrowedFd<'_>> =
            drain.into_iter().flat_map(ServerDrain::descriptors).collect();
        descriptors.extend(old_processes.iter().map(|process| PollFd::new(process, PollFlags::IN)));
        let (now, is_starting) = (Instant::now(), self.phase == SetPhase::Starting);
        let slow_start = self.slow_at.filter(|_| is_starting);
        // There is no event for a copy that begins to read or stays in the foreground, and none for an
        // interrupted hand-over.
        let next_check = if self.takeover.is_some() || self.left_session.is_some() && is_starting {
            Some(now + LOOK_AGAIN)
        } else {
            (self.phase == SetPhase::Replaced || self.failure.is_some()).then(|| now + TRY_AGAIN)
        };
        let restarts = self.copies.iter().filter_map(|copy| copy.again_at);
        let next_step = drain.map(ServerDrain::next_step);
        let next_wake = restarts.chain(slow_start).chain(next_check).chain(next_step).min();
        let timeout = next_wake.and_then(|at| Timespec::try_from(at.saturating_duration_since(now)).ok());
        match poll(&mut descriptors, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(ReplicaError::io("wait for the copies")(errno.into())),
        }
    }

    fn act(&mut self) -> Result<(), ReplicaError> {
        self.read_binds();
        for copy in 0..self.config.replicas {
            let state = &mut self.copies[copy as usize];
            let Some(process) = &mut state.process else { continue };
            if let Some(status) = process.reap().map_err(ReplicaError::io("read the status of a copy"))? {
                self.ended.extend(state.process.take());
                self.handle_ended_copy(copy, status)?;
            }
        }
        self.ended.retain_mut(|process| !process.has_printed());
        if let Some(handover) = self.drain.as_mut().and_then(ServerDrain::step) {
            self.drain = None;
            std::mem::take(&mut self.buffers).restore(&self.host);
            let _ = self.group.end_takeover();
            self.events.push(ReplicaEvent::Replaced(handover));
        }
        self.resume_after_interrupted_handover();
        self.restart_due_copies();
        self.steer()?;
        self.report_slow_start();
        Ok(())
    }

    /// Whether there is nothing left to do for the copies.
    fn is_over(&mut self) -> bool {
        if self.phase == SetPhase::Serving && self.group.is_replaced() {
            self.phase = SetPhase::Replaced;
            self.copies.iter_mut().for_each(|copy| copy.again_at = None);
            self.events.push(ReplicaEvent::HandedOver);
        }
        matches!(self.phase, SetPhase::Replaced | SetPhase::Ending)
    }

    fn resume_after_interrupted_handover(&mut self) {
        if self.phase != SetPhase::Replaced || self.group.is_replaced() {
            return;
        }
        self.phase = SetPhase::Serving;
        self.events.push(ReplicaEvent::Resumed);
        // The other copies may have left their table.
        self.steered.values_mut().for_each(BTreeMap::clear);
        for copy in self.copies.iter_mut().filter(|copy| copy.process.is_none()) {
            copy.again_at = Some(Instant::now());
            copy.missing_since.get_or_insert_with(Instant::now);
        }
    }

    fn read_binds(&mut self) {
        while let Some(event) = self.hooks.next_event() {
            if let Some(copy) = self.copies.iter_mut().find(|copy| copy.cgroup_id == event.cgroup) {
                copy.binds.add(&event);
            }
        }
        if self.phase != SetPhase::Starting {
            self.copies.iter_mut().for_each(|copy| copy.binds.forget_unshared());
        }
    }

    fn handle_ended_copy(&mut self, copy: u32, status: ExitStatus) -> Result<(), ReplicaError> {
        let group = self.group.copy_path(copy);
        let has_processes = cgroup::is_populated(&group);
        if self.is_over() {
            return Ok(());
        }
        let state = &mut self.copies[copy as usize];
        if self.phase == SetPhase::Starting {
            let why = state.binds.failure_reason(status, has_processes && status.success());
            return Err(ReplicaError::Startup { copy, why });
        }
        if has_processes {
            cgroup::kill(&group).map_err(ReplicaError::io("end the processes of a copy"))?;
        }
        let is_steady = state.began.elapsed() >= STEADY;
        state.failures = if is_steady { 0 } else { state.failures + 1 };
        let again_in = match state.failures {
            0 => Duration::ZERO,
            failures => FIRST_PAUSE.saturating_mul(1 << (failures - 1).min(16)).min(LONGEST_PAUSE),
        };
        state.again_at = Some(Instant::now() + again_in);
        state.missing_since.get_or_insert_with(Instant::now);
        self.events.push(ReplicaEvent::Ended { copy, status: status.to_string(), again_in });
        Ok(())
    }

    fn restart_due_copies(&mut self) {
        for copy in 0..self.config.replicas {
            let is_due = self.copies[copy as usize].again_at.is_some_and(|at| at <= Instant::now());
            if !is_due || self.is_over() {
                continue;
            }
            let restarts = &mut self.copies[copy as usize].restarts;
            *restarts += 1;
            // Only `boost status` needs it.
            let _ = self.group.set_restarts(copy, *restarts);
            if let Err(error) = self.start_copy(copy) {
                let again_in = LONGEST_PAUSE;
                self.copies[copy as usize].again_at = Some(Instant::now() + again_in);
                self.events.push(ReplicaEvent::Ended { copy, status: error.to_string(), again_in });
            }
        }
    }

    fn report_slow_start(&mut self) {
        if self.phase == SetPhase::Starting && self.slow_at.is_some_and(|at| at <= Instant::now()) {
            self.slow_at = None;
            let groups = self.complete_groups();
            let takeover = self.takeover.as_ref();
            let old_addresses = takeover.into_iter().flat_map(ServerTakeover::addresses);
            let missing: Vec<SocketAddr> =
                old_addresses.filter(|local| !groups.contains_key(local)).collect();
            let bound = self.copies.iter().flat_map(|copy| copy.binds.bound_addresses()).collect();
            let (port, after) = (self.config.port, SLOW_START);
            self.events.push(match takeover.is_some() && missing.is_empty() {
                true => ReplicaEvent::SlowHandover { after },
                false => ReplicaEvent::SlowStart { port, bound, missing, after },
            });
        }
    }
}
