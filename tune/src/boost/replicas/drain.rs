//! The end of a server whose port was handed over: it reads its buffers, sends its last replies,
//! and its processes are ended. This happens step by step, so that the new copies are supervised
//! meanwhile.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use linerate_host::bind_hooks::{BoundSocket, sockets_on};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::takeover::ServerTakeover;

/// If a server reads nothing for this time, it will not read the remaining datagrams.
const IDLE: Duration = Duration::from_secs(5);

/// Longest wait for the old server to end after SIGTERM.
const PATIENCE: Duration = Duration::from_secs(30);

/// Time between checks of the buffers. The kernel has no event for an empty buffer.
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// How a port was handed over.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServerHandover {
    pub port: u16,
    /// Processes of the old server that ended.
    pub ended: Vec<u32>,
    /// Time until the old server had read its buffers.
    pub drained_in: Duration,
    /// Memory of the datagrams that it had not read when it was told to end, bytes; `None` if the
    /// sockets could not be listed.
    pub unread: Option<u64>,
    /// Datagrams that found the buffers of the old sockets full, or `None` if the kernel did not
    /// report it.
    pub old_drops: Option<u64>,
    /// The same for the new sockets.
    pub new_drops: Option<u64>,
    /// Processes that did not end in time.
    pub remaining: Vec<u32>,
    /// Failures after the switch.
    pub errors: Vec<String>,
}

pub(super) struct OldProcess {
    pid: u32,
    /// `None` if it had ended.
    descriptor: Option<OwnedFd>,
}

pub(super) struct ServerDrain {
    takeover: ServerTakeover,
    grace: Duration,
    stage: DrainStage,
    handover: ServerHandover,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DrainStage {
    /// The server reads its buffers since `began`. The number of unread bytes is unchanged since
    /// `since`.
    Reading {
        began: Instant,
        since: Instant,
    },
    Replying {
        until: Instant,
    },
    Ending {
        until: Instant,
    },
}

impl ServerDrain {
    /// Lets the server read its buffers, gives its last replies the time `grace`, and ends it.
    pub(super) fn new(takeover: ServerTakeover, grace: Duration) -> Self {
        let now = Instant::now();
        let stage = DrainStage::Reading { began: now, since: now };
        let handover = ServerHandover { port: takeover.port, ..ServerHandover::default() };
        Self { takeover, grace, stage, handover }
    }

    /// The hand-over if it can still be undone, and the processes that still run.
    pub(super) fn cancel(self) -> (Option<ServerTakeover>, Vec<u32>) {
        let running = self.takeover.processes.iter().filter(|process| process.is_running());
        let pids = running.map(|process| process.pid).collect();
        let was_told_to_end = matches!(self.stage, DrainStage::Ending { .. });
        ((!was_told_to_end).then_some(self.takeover), pids)
    }

    pub(super) fn next_step(&self) -> Instant {
        match self.stage {
            DrainStage::Reading { .. } => Instant::now() + LOOK_AGAIN,
            // `descriptors` has no process that has already ended.
            DrainStage::Ending { .. } if !self.takeover.processes.iter().any(OldProcess::is_running) => {
                Instant::now()
            }
            DrainStage::Replying { until } | DrainStage::Ending { until } => until,
        }
    }

    /// Readable when a process that was told to end has ended.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let is_ending = matches!(self.stage, DrainStage::Ending { .. });
        // The descriptor of an ended process stays readable.
        let running = self.takeover.processes.iter().filter(move |process| is_ending && process.is_running());
        running.filter_map(|process| Some(process.descriptor.as_ref()?.as_fd()))
    }

    /// Takes the next step if it is due. Returns the outcome once the old server has ended, or its
    /// time is over.
    pub(super) fn step(&mut self) -> Option<ServerHandover> {
        let now = Instant::now();
        match self.stage {
            DrainStage::Reading { began, since } => {
                let unread_before = self.handover.unread;
                let is_known = self.read_buffers();
                let since = if self.handover.unread == unread_before { since } else { now };
                let is_over = !is_known || self.handover.unread == Some(0) || now >= since + IDLE;
                if is_over {
                    self.handover.drained_in = now - began;
                }
                self.stage = match is_over {
                    true => DrainStage::Replying { until: now + self.grace },
                    false => DrainStage::Reading { began, since },
                };
            }
            DrainStage::Replying { until } if now >= until => {
                self.read_buffers();
                // The copies of its sockets must be closed when the server ends.
                self.takeover.shared.clear();
                for process in &self.takeover.processes {
                    if let Err(errno) = process.terminate() {
                        self.handover.record_error("end the old server", &errno.into());
                    }
                }
                self.stage = DrainStage::Ending { until: now + PATIENCE };
            }
            DrainStage::Replying { .. } => {}
            DrainStage::Ending { until } => {
                let (remaining, ended): (Vec<_>, Vec<_>) =
                    self.takeover.processes.iter().partition(|process| process.is_running());
                if remaining.is_empty() || now >= until {
                    let pids =
                        |processes: Vec<&OldProcess>| processes.iter().map(|process| process.pid).collect();
                    (self.handover.ended, self.handover.remaining) = (pids(ended), pids(remaining));
                    if let Some(group) = &self.takeover.leftover
                        && self.handover.remaining.is_empty()
                        && let Err(error) = group.remove()
                    {
                        self.handover.record_error("remove the control group of the old copies", &error);
                    }
                    return Some(std::mem::take(&mut self.handover));
                }
            }
        }
        None
    }

    /// Reads how full the buffers are. Returns whether that is known.
    fn read_buffers(&mut self) -> bool {
        self.handover.unread = None;
        let sockets = match sockets_on(self.handover.port) {
            Ok(sockets) => sockets,
            Err(error) => {
                self.handover.record_error("list the UDP sockets (module udp_diag)", &error);
                return false;
            }
        };
        let takeover = &self.takeover;
        let (old, new): (Vec<_>, Vec<_>) =
            sockets.into_iter().partition(|socket| takeover.has_socket(socket.cookie));
        // Another server may have the port on another address.
        let new = new.into_iter().filter(|socket| takeover.addresses().any(|local| local == socket.local));
        let old_drops = |socket: &BoundSocket| {
            takeover.sockets.get(&socket.cookie).copied().flatten().unwrap_or_default()
        };
        let sum = |sockets: &[BoundSocket]| {
            sockets
                .iter()
                .map(|socket| Some(socket.drops?.saturating_sub(old_drops(socket))))
                .sum::<Option<u64>>()
        };
        self.handover.unread = Some(old.iter().map(|socket| socket.queued).sum());
        // Sockets of processes that have ended are gone.
        self.handover.old_drops = self.handover.old_drops.max(sum(&old));
        self.handover.new_drops = sum(&new.collect::<Vec<_>>());
        true
    }
}

impl ServerHandover {
    fn record_error(&mut self, action: &str, error: &io::Error) {
        self.errors.push(format!("{action}: {error}"));
    }
}

impl OldProcess {
    pub(super) fn open(pid: u32) -> io::Result<Self> {
        let descriptor =
            match Pid::from_raw(pid.cast_signed()).map(|pid| pidfd_open(pid, PidfdFlags::empty())) {
                None | Some(Err(Errno::SRCH)) => None,
                Some(result) => Some(result?),
            };
        Ok(Self { pid, descriptor })
    }

    fn terminate(&self) -> Result<(), Errno> {
        match self.descriptor.as_ref().map(|descriptor| pidfd_send_signal(descriptor, Signal::TERM)) {
            None | Some(Err(Errno::SRCH)) => Ok(()),
            Some(result) => result,
        }
    }

    fn is_running(&self) -> bool {
        let timeout = Timespec::default();
        self.descriptor.as_ref().is_some_and(|descriptor| {
            matches!(poll(&mut [PollFd::new(descriptor, PollFlags::IN)], Some(&timeout)), Ok(0))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    #[test]
    fn drain_reports_unread_bytes_and_ends_a_server_that_does_not_read() {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let (local, cookie) = (
            socket.local_addr().expect("bound"),
            rustix::net::sockopt::socket_cookie(&socket).expect("a cookie"),
        );
        UdpSocket::bind("127.0.0.1:0").and_then(|client| client.send_to(&[1], local)).expect("sent");
        let mut child = std::process::Command::new("sleep").arg("600").spawn().expect("started");
        let mut other = std::process::Command::new("sleep").arg("600").spawn().expect("started");
        let processes = [&child, &other].map(|child| OldProcess::open(child.id()).expect("a process"));
        let mut takeover = ServerTakeover::default();
        (takeover.port, takeover.processes) = (local.port(), processes.into());
        takeover.sockets.insert(cookie, Some(0));
        let mut drain = ServerDrain::new(takeover, Duration::ZERO);
        other.kill().and_then(|()| other.wait()).expect("a child");
        let began = Instant::now();
        assert_eq!(drain.step(), None);
        let unread = drain.handover.unread;
        assert!(unread > Some(0) && drain.handover.old_drops == Some(0));
        assert!(matches!(drain.stage, DrainStage::Reading { .. }));
        drain.stage = DrainStage::Reading { began, since: began.checked_sub(IDLE).expect("past") };
        // The buffer is as full as before, and the server still has to end.
        while !matches!(drain.stage, DrainStage::Ending { .. }) {
            assert_eq!(drain.step(), None);
        }
        let pending: Vec<_> = drain.descriptors().collect();
        assert!(pending.len() <= 1, "an ended process would wake the supervisor again and again");
        child.wait().expect("a child");
        assert!(drain.descriptors().next().is_none() && drain.next_step() <= Instant::now());
        let handover = drain.step().expect("the server has ended");
        assert_eq!((handover.unread, &handover.ended[..]), (unread, &[child.id(), other.id()][..]));
    }
}
