//! Many transactions a system call: `recvmmsg`, then `sendmmsg`.

use std::io;

use super::{LocalCounters, ReceiveFailure, WorkerJob, classify_receive_error, decide};
use crate::overload::{AdmissionPolicy, Unlimited};
use crate::service::Service;
use crate::sys::batch::{
    ControlKind, ExtendedControl, MessageBatch, NoControl, OutgoingMessage, PktinfoV4, PktinfoV6,
};
use crate::sys::control::{PktinfoMode, ReceivedControl};
use crate::worker::WorkerPhase;

/// Serves until told to end and everything queued is answered.
pub(crate) fn run<S: Service>(mut job: WorkerJob<'_, S>) -> io::Result<()> {
    match job.gate.take() {
        None => run_by(Unlimited, job),
        Some(gate) => run_by(gate, job),
    }
}

fn run_by<S: Service, P: AdmissionPolicy>(policy: P, job: WorkerJob<'_, S>) -> io::Result<()> {
    match job.shape.asked.pktinfo {
        _ if job.shape.asked.has_extra_fields() => {
            run_with(MessageBatch::<ExtendedControl>::new(job.shape), policy, job)
        }
        PktinfoMode::Off => run_with(MessageBatch::<NoControl>::new(job.shape), policy, job),
        PktinfoMode::V4 => run_with(MessageBatch::<PktinfoV4>::new(job.shape), policy, job),
        PktinfoMode::V6 => run_with(MessageBatch::<PktinfoV6>::new(job.shape), policy, job),
    }
}

fn run_with<S: Service, K: ControlKind, P: AdmissionPolicy>(
    mut batch: MessageBatch<K>,
    mut policy: P,
    mut job: WorkerJob<'_, S>,
) -> io::Result<()> {
    let mut tally = LocalCounters::new(job.counters);
    loop {
        let flags = match job.ending.phase() {
            // Waits for the first message only and takes what else is there.
            WorkerPhase::Serve if !policy.looks() => libc::MSG_WAITFORONE,
            WorkerPhase::Serve => libc::MSG_DONTWAIT,
            WorkerPhase::Drain => libc::MSG_DONTWAIT,
            WorkerPhase::End => return Ok(()),
        };
        tally.counts.syscalls += 1;
        match batch.receive(job.socket, flags) {
            Ok(0) => job.ending.on_wake(),
            Ok(received) => {
                policy.received(job.socket, received, received == job.shape.messages);
                answer(&mut batch, received, &mut policy, &mut job, &mut tally);
                tally.publish();
            }
            Err(error) => match classify_receive_error(error) {
                ReceiveFailure::Again => {}
                ReceiveFailure::Empty => {
                    policy.nothing();
                    job.ending.on_empty();
                }
                ReceiveFailure::Failed => {
                    tally.counts.receive_errors += 1;
                    tally.rest = true;
                    tally.publish();
                }
                ReceiveFailure::Broken(error) => return Err(error),
            },
        }
    }
}

#[inline(always)]
pub(super) fn answer<S: Service, K: ControlKind, P: AdmissionPolicy>(
    batch: &mut MessageBatch<K>,
    received: usize,
    policy: &mut P,
    job: &mut WorkerJob<'_, S>,
    tally: &mut LocalCounters<'_>,
) {
    tally.counts.batches += 1;
    tally.counts.received += received as u64;
    let deliver_truncated = job.deliver_truncated;
    let (service, path) = (&mut *job.service, &job.path);
    batch.process(|incoming| {
        policy.arrived(|| incoming.control.as_ref().and_then(ReceivedControl::received_ns));
        if policy.admits(incoming.name) {
            return decide(service, path, deliver_truncated, tally, incoming);
        }
        tally.count_shed();
        OutgoingMessage::Nothing
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
                        tally.count_send_failure(&error);
                        batch.skip();
                    }
                }
                _ => {
                    tally.count_send_failure(&error);
                    batch.skip();
                }
            },
        }
    }
    batch.rearm();
}
