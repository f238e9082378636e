//! Many transactions a system call: `recvmmsg`, then `sendmmsg`.

use std::io;

use super::{Job, Receive, Tally, decide, judge};
use crate::overload::{Open, Policy};
use crate::service::Service;
use crate::sys::batch::{Batch, Kind, More, Off, Outgoing, V4, V6};
use crate::sys::control::{Filled, Pktinfo};
use crate::worker::Phase;

/// Serves until told to end and everything queued is answered.
pub(crate) fn run<S: Service>(mut job: Job<'_, S>) -> io::Result<()> {
    match job.gate.take() {
        None => run_by(Open, job),
        Some(gate) => run_by(gate, job),
    }
}

fn run_by<S: Service, P: Policy>(policy: P, job: Job<'_, S>) -> io::Result<()> {
    match job.shape.asked.pktinfo {
        _ if job.shape.asked.is_more() => run_with(Batch::<More>::new(job.shape), policy, job),
        Pktinfo::Off => run_with(Batch::<Off>::new(job.shape), policy, job),
        Pktinfo::V4 => run_with(Batch::<V4>::new(job.shape), policy, job),
        Pktinfo::V6 => run_with(Batch::<V6>::new(job.shape), policy, job),
    }
}

fn run_with<S: Service, K: Kind, P: Policy>(
    mut batch: Batch<K>,
    mut policy: P,
    mut job: Job<'_, S>,
) -> io::Result<()> {
    let mut tally = Tally::new(job.counters);
    loop {
        let flags = match job.ending.phase() {
            // Waits for the first message only and takes what else is there.
            Phase::Serve if !policy.looks() => libc::MSG_WAITFORONE,
            Phase::Serve => libc::MSG_DONTWAIT,
            Phase::Drain => libc::MSG_DONTWAIT,
            Phase::End => return Ok(()),
        };
        tally.counts.syscalls += 1;
        match batch.receive(job.socket, flags) {
            Ok(0) => job.ending.woken(),
            Ok(received) => {
                policy.received(job.socket, received, received == job.shape.messages);
                answer(&mut batch, received, &mut policy, &mut job, &mut tally);
                tally.publish();
            }
            Err(error) => match judge(error) {
                Receive::Again => {}
                Receive::Empty => {
                    policy.nothing();
                    job.ending.empty();
                }
                Receive::Failed => {
                    tally.counts.receive_errors += 1;
                    tally.rest = true;
                    tally.publish();
                }
                Receive::Broken(error) => return Err(error),
            },
        }
    }
}

#[inline(always)]
pub(super) fn answer<S: Service, K: Kind, P: Policy>(
    batch: &mut Batch<K>,
    received: usize,
    policy: &mut P,
    job: &mut Job<'_, S>,
    tally: &mut Tally<'_>,
) {
    tally.counts.batches += 1;
    tally.counts.received += received as u64;
    let deliver_truncated = job.deliver_truncated;
    let (service, path) = (&mut *job.service, &job.path);
    batch.process(|incoming| {
        policy.arrived(|| incoming.control.as_ref().and_then(Filled::received_ns));
        if policy.admits(incoming.name) {
            return decide(service, path, deliver_truncated, tally, incoming);
        }
        tally.shed();
        Outgoing::Nothing
    });
    while batch.unsent() > 0 {
        tally.counts.syscalls += 1;
        match batch.send(job.socket) {
            Ok(sent) => tally.counts.answered += sent as u64,
            Err(error) => match error.raw_os_error() {
                Some(libc::EINTR) => {}
                // The wait for room in the send buffer is over; every other message would wait as long.
                Some(libc::EAGAIN) => {
                    while batch.unsent() > 0 {
                        tally.send_failed(&error);
                        batch.skip();
                    }
                }
                _ => {
                    tally.send_failed(&error);
                    batch.skip();
                }
            },
        }
    }
    batch.rearm();
}
