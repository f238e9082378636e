//! io_uring: a multishot receive into a ring of provided buffers, and sends in batches.

use std::io;

use serde::{Deserialize, Serialize};

use super::{Job, Receive, Tally, decide, judge, mmsg};
use crate::error::Error;
use crate::overload::{Gate, Policy};
use crate::service::Service;
use crate::socket::Fallback;
use crate::sys::batch::Outgoing;
use crate::sys::control::Filled;
use crate::sys::uring::{self, Arrival, Lacking, Plan, Ring, TURN, Take};
use crate::worker::Phase;

/// Settings of the io_uring backend.
///
/// A worker has a ring of its own, made by its thread. A receive stays armed on the socket and puts each request into a buffer
/// that the kernel takes from a ring of them; replies are submitted by the same `io_uring_enter` that waits for the next
/// requests, which makes one system call a batch. It takes Linux 6.1 (`IORING_SETUP_DEFER_TASKRUN`).
///
/// A reply is counted as answered when it is submitted; one that the kernel then refuses is taken back and counted under its
/// cause as soon as the call returns. What is still queued when the server stops is served as by
/// [`Backend::Mmsg`](crate::Backend::Mmsg).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", default)]
pub struct Uring {
    /// Requests a worker can have in hand at once: buffers of its ring, a power of two, 2 to 32,768. When all are taken
    /// requests wait in the socket, which is counted ([`Counts::starved`](crate::Counts::starved)).
    pub buffers: u16,
    /// Replies of at least so many bytes are sent without a copy (`IORING_OP_SENDMSG_ZC`, Linux 6.1). That pays for several
    /// kilobytes on devices that gather what they send from many places; on loopback and veth the kernel copies all the same,
    /// and each such reply costs two completions more. `None`: all are copied.
    pub zero_copy_bytes: Option<u32>,
    /// Microseconds for which a worker that waits polls the device itself before it sleeps (`IORING_REGISTER_NAPI`, Linux
    /// 6.9), a million at most. `None`: not at all.
    pub busy_poll_us: Option<u32>,
    /// Whether the device's interrupts are held back in favour of that. Only of use with `busy_poll_us`, and with
    /// `napi_defer_hard_irqs` and `gro_flush_timeout` set on the device.
    pub prefer_busy_poll: bool,
}

impl Default for Uring {
    fn default() -> Self {
        Self { buffers: 256, zero_copy_bytes: None, busy_poll_us: None, prefer_busy_poll: false }
    }
}

impl Uring {
    /// Finds what cannot be.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.buffers.is_power_of_two() && (2..=1 << 15).contains(&self.buffers) {
            return Ok(());
        }
        Err(Error::Size {
            what: "a ring of buffers",
            value: self.buffers.into(),
            limit: "io_uring takes a power of two from 2 to 32,768",
        })
    }

    fn plan(self) -> Plan {
        Plan {
            buffers: self.buffers,
            zero_copy: self.zero_copy_bytes.map(|bytes| bytes as usize),
            busy_poll: self.busy_poll_us,
            prefer_busy_poll: self.prefer_busy_poll,
        }
    }
}

/// As much of `wanted` as can be had here; what cannot is noted. The error is why none of it can, for a person.
pub(crate) fn possible(mut wanted: Uring, fallbacks: &mut Vec<Fallback>) -> Result<Uring, String> {
    let found = uring::probe().map_err(|lacking| explain(&lacking))?;
    if wanted.zero_copy_bytes.is_some() && !found.zero_copy {
        wanted.zero_copy_bytes = None;
        fallbacks.push(Fallback {
            what: "sending without a copy; all replies are copied".to_owned(),
            why: "this kernel has no IORING_OP_SENDMSG_ZC (Linux 6.1)".to_owned(),
        });
    }
    if wanted.busy_poll_us.is_some()
        && let Err(error) = found.busy_poll
    {
        wanted.busy_poll_us = None;
        fallbacks.push(Fallback {
            what: "polling the device while waiting; not used".to_owned(),
            why: format!(
                "IORING_REGISTER_NAPI is not to be had (Linux 6.9, CONFIG_NET_RX_BUSY_POLL): {error}"
            ),
        });
    }
    Ok(wanted)
}

/// One line for a person: what lacks, and since which kernel it is there.
fn explain(lacking: &Lacking) -> String {
    match lacking {
        Lacking::Setup(error) => match error.raw_os_error() {
            Some(libc::ENOSYS) => {
                "the kernel has no io_uring (Linux 5.1, CONFIG_IO_URING), or a sandbox hides it".to_owned()
            }
            Some(libc::EPERM | libc::EACCES) => forbidden(disabled()),
            Some(libc::ENOMEM) => {
                format!("no memory for a ring ({error}): before Linux 5.12 RLIMIT_MEMLOCK counts for it")
            }
            Some(libc::EMFILE | libc::ENFILE) => format!("no file descriptor for a ring: {error}"),
            _ => format!("io_uring_setup failed: {error}"),
        },
        Lacking::Flags => "the kernel's io_uring has no IORING_SETUP_DEFER_TASKRUN (Linux 6.1)".to_owned(),
        Lacking::Files(error) => format!("no socket could be registered with a ring: {error}"),
        Lacking::Buffers(error) => {
            format!("the kernel's io_uring has no ring of provided buffers (Linux 5.19): {error}")
        }
        Lacking::Multishot(error) => {
            format!("the kernel's io_uring has no receive that stays armed (Linux 6.0): {error}")
        }
    }
}

/// The sysctl `kernel.io_uring_disabled` (Linux 6.6), where it can be read.
fn disabled() -> Option<u8> {
    std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled").ok()?.trim().parse().ok()
}

/// Why a ring may not be made, by that sysctl (Documentation/admin-guide/sysctl/kernel.rst).
fn forbidden(disabled: Option<u8>) -> String {
    match disabled {
        Some(2) => "kernel.io_uring_disabled is 2: io_uring is off for everybody on this host".to_owned(),
        Some(1) => "kernel.io_uring_disabled is 1: io_uring takes CAP_SYS_ADMIN, or the group that \
                    kernel.io_uring_group names"
            .to_owned(),
        _ => "a seccomp filter or the security policy forbids io_uring to this process, as containers' defaults do".to_owned(),
    }
}

/// Serves until told to end and everything queued is answered.
pub(crate) fn run<S: Service>(mut job: Job<'_, S>, settings: Uring) -> io::Result<()> {
    let ring = Ring::new(job.socket, job.shape, settings.plan())?;
    let mut gate = job.gate.take();
    let mut work = Work { ring, tally: Tally::new(job.counters), gate: &mut gate };
    let served = work.serve(&mut job);
    work.tally.publish();
    served?;
    drop(work);
    job.gate = gate;
    // What is left in the socket.
    mmsg::run(job)
}

/// A ring and what is counted.
struct Work<'a> {
    ring: Ring<'a>,
    tally: Tally<'a>,
    /// What is done above capacity.
    gate: &'a mut Option<Gate>,
}

impl Work<'_> {
    fn serve<S: Service>(&mut self, job: &mut Job<'_, S>) -> io::Result<()> {
        while job.ending.phase() == Phase::Serve {
            self.ring.arm();
            let looks = self.gate.as_mut().is_some_and(Policy::looks);
            self.enter(if looks { Take::Waiting } else { Take::Something }, job)?;
            self.answer(job)?;
            self.tally.publish();
        }
        self.cancel()?;
        self.answer(job)?;
        self.enter(Take::Nothing, job)
    }

    /// Submits what is queued, takes from the socket as said, and takes in what came.
    #[inline]
    fn enter<S>(&mut self, take: Take, job: &Job<'_, S>) -> io::Result<()> {
        let Self { ring, tally, gate } = self;
        ring.enter(take)?;
        let messages = ring.collect(|error| tally.send_refused(error));
        tally.counts.syscalls += ring.calls();
        tally.counts.batches += u64::from(messages > 0);
        if let Some(gate) = gate {
            match messages {
                0 if take == Take::Nothing => {}
                0 => gate.nothing(),
                _ => gate.received(job.socket, messages, messages >= TURN),
            }
        }
        Ok(())
    }

    /// Ends the receive.
    fn cancel(&mut self) -> io::Result<()> {
        let Self { ring, tally, .. } = self;
        let cancelled = ring.cancel(|error| tally.send_refused(error));
        tally.counts.syscalls += ring.calls();
        cancelled.map(drop)
    }

    /// Decides about all that came. Replies are queued.
    #[inline]
    fn answer<S: Service>(&mut self, job: &mut Job<'_, S>) -> io::Result<()> {
        while let Some(arrival) = self.ring.next() {
            match arrival {
                Arrival::Message(buffer) => {
                    if self.ring.full() {
                        self.tally.publish();
                        self.enter(Take::Nothing, job)?;
                    }
                    let Self { ring, tally, gate } = &mut *self;
                    tally.counts.received += 1;
                    let (service, path, deliver) = (&mut *job.service, &job.path, job.deliver_truncated);
                    let queued = ring.process(buffer, |incoming| {
                        let admits = gate.as_mut().is_none_or(|gate| {
                            gate.arrived(|| incoming.control.as_ref().and_then(Filled::received_ns));
                            gate.admits(incoming.name)
                        });
                        if !admits {
                            tally.shed();
                            return Outgoing::Nothing;
                        }
                        match decide(service, path, deliver, tally, incoming) {
                            Outgoing::With(_, options) if !options.extras().is_none() => {
                                tally.send_failed(&io::Error::from_raw_os_error(libc::EOPNOTSUPP));
                                Outgoing::Nothing
                            }
                            outgoing => outgoing,
                        }
                    });
                    if queued {
                        tally.counts.answered += 1;
                    }
                }
                Arrival::Woken => job.ending.woken(),
                Arrival::Starved | Arrival::Failed(_) => self.disturbed(arrival, job)?,
            }
        }
        Ok(())
    }

    #[cold]
    fn disturbed<S>(&mut self, arrival: Arrival, job: &Job<'_, S>) -> io::Result<()> {
        self.tally.rest = true;
        match arrival {
            Arrival::Failed(error) => match judge(error) {
                Receive::Again | Receive::Empty => {}
                Receive::Failed => self.tally.counts.receive_errors += 1,
                Receive::Broken(error) => return Err(error),
            },
            _ => {
                self.tally.counts.starved += 1;
                // The buffers of queued replies are free once those are sent.
                if self.ring.queued() {
                    self.enter(Take::Nothing, job)?;
                }
            }
        }
        Ok(())
    }
}

impl Drop for Work<'_> {
    /// Requests that were taken from the socket and go with a panic are counted as received, as those of a batch are.
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = self.cancel();
            while let Some(arrival) = self.ring.next() {
                self.tally.counts.received += u64::from(matches!(arrival, Arrival::Message(_)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lacks_is_named_with_the_kernel_that_has_it() {
        let of = |errno| explain(&Lacking::Setup(io::Error::from_raw_os_error(errno)));
        assert!(of(libc::ENOSYS).contains("Linux 5.1"));
        assert!(of(libc::ENOMEM).contains("RLIMIT_MEMLOCK"));
        assert!(explain(&Lacking::Flags).contains("Linux 6.1"));
        for lacking in [Lacking::Files, Lacking::Buffers, Lacking::Multishot] {
            let said = explain(&lacking(io::Error::from_raw_os_error(libc::EINVAL)));
            assert!(said.contains("Invalid argument") && !said.contains('\n'), "{said}");
        }
    }

    #[test]
    fn who_forbids_it_is_told() {
        assert!(forbidden(Some(2)).contains("everybody"));
        assert!(forbidden(Some(1)).contains("kernel.io_uring_group"));
        assert!(forbidden(Some(0)).contains("seccomp"));
        assert!(forbidden(None).contains("seccomp"));
    }

    #[test]
    fn only_powers_of_two_make_a_ring() {
        for (buffers, fine) in
            [(0, false), (1, false), (2, true), (3, false), (1024, true), (32_768, true), (65_535, false)]
        {
            assert_eq!(Uring { buffers, ..Uring::default() }.check().is_ok(), fine, "{buffers}");
        }
    }
}
