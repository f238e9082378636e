//! Many transactions per system call: `recvmmsg`, then `sendmmsg`.

use std::io;

use super::job::{LocalCounters, WorkerJob, decide};
use crate::overload::{AdmissionPolicy, Unlimited};
use crate::service::Service;
use crate::shutdown::WorkerPhase;
use crate::sys::batch::{
    ControlKind, DynamicControl, MessageBatch, NoControl, OutgoingMessage, PktinfoV4, PktinfoV6,
};
use crate::sys::control::{PktinfoMode, ReceivedControl};

/// Serves until the worker stops and all queued requests are answered.
pub(crate) fn run<S: Service>(mut job: WorkerJob<'_, S>) -> io::Result<()> {
    let (admission, shape) = (job.admission.take(), job.shape);
    // The common cases have a loop of their own each. It is compiled for every service, so there are few.
    match (admission, shape.asked.pktinfo) {
        (Some(admission), _) => run_with(MessageBatch::<DynamicControl>::new(shape), admission, job),
        (None, _) if shape.asked.has_extra_fields() => {
            run_with(MessageBatch::<DynamicControl>::new(shape), Unlimited, job)
        }
        (None, PktinfoMode::Off) => run_with(MessageBatch::<NoControl>::new(shape), Unlimited, job),
        (None, PktinfoMode::V4) => run_with(MessageBatch::<PktinfoV4>::new(shape), Unlimited, job),
        (None, PktinfoMode::V6) => run_with(MessageBatch::<PktinfoV6>::new(shape), Unlimited, job),
    }
}

fn run_with<S: Service, K: ControlKind, P: AdmissionPolicy>(
    mut batch: MessageBatch<K>,
    mut policy: P,
    mut job: WorkerJob<'_, S>,
) -> io::Result<()> {
    let mut counters = LocalCounters::new(job.counters);
    loop {
        let flags = match job.shutdown.phase() {
            // Waits for the first message only.
            WorkerPhase::Serve if !policy.should_poll() => libc::MSG_WAITFORONE,
            WorkerPhase::Serve => libc::MSG_DONTWAIT,
            WorkerPhase::Drain => libc::MSG_DONTWAIT,
            WorkerPhase::End => return Ok(()),
        };
        counters.counts.syscalls += 1;
        match batch.receive(job.socket, flags) {
            Ok(0) => job.shutdown.on_wake(),
            Ok(received) => answer(&mut batch, received, &mut policy, &mut job, &mut counters),
            Err(error) => {
                if counters.on_receive_error(error, job.socket)? {
                    policy.on_idle();
                    job.shutdown.on_empty();
                }
            }
        }
    }
}

/// Answers a batch of received messages.
#[inline(always)]
pub(super) fn answer<S: Service, K: ControlKind, P: AdmissionPolicy>(
    batch: &mut MessageBatch<K>,
    received: usize,
    policy: &mut P,
    job: &mut WorkerJob<'_, S>,
    counters: &mut LocalCounters<'_>,
) {
    policy.record_received(job.socket, received, received == job.shape.messages);
    counters.counts.batches += 1;
    counters.counts.received += received as u64;
    let settings = (job.skips_broadcasts, job.deliver_truncated);
    let (service, path) = (&mut *job.service, &job.path);
    batch.process(|incoming| {
        policy.record_arrival(|| incoming.control.as_ref().and_then(ReceivedControl::received_ns));
        if policy.admits(incoming.name) {
            return decide(service, path, settings, counters, incoming);
        }
        counters.count_shed();
        OutgoingMessage::Nothing
    });
    while batch.unsent() > 0 {
        counters.counts.syscalls += 1;
        match batch.send(job.socket) {
            Ok(sent) => counters.counts.answered += sent as u64,
            Err(error) => match error.raw_os_error() {
                Some(libc::EINTR) => {}
                // The send buffer stayed full for the whole timeout; every other message would wait as long.
                Some(libc::EAGAIN) => {
                    while batch.unsent() > 0 {
                        counters.count_send_failure(&error);
                        batch.skip();
                    }
                }
                _ => {
                    counters.count_send_failure(&error);
                    batch.skip();
                }
            },
        }
    }
    batch.rearm();
    counters.publish();
}
