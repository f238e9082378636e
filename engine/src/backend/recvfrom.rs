//! One transaction at a time: `recvfrom`, then `sendto`, as a plain server does it. The baseline to compare with.
//!
//! On a wildcard address `recvmsg` and `sendmsg` take their place, since only they carry the address to reply from.

use std::io;

use super::{LocalCounters, ReceiveFailure, WorkerJob, classify_receive_error, too_long};
use crate::overload::{AdmissionPolicy, Unlimited};
use crate::service::{Action, ReplyOptions, Request, Service};
use crate::sys::control::{ControlBuffer, ReceivedControl, SendExtras};
use crate::sys::name::SocketName;
use crate::sys::single::{ReceivedDatagram, receive_from, receive_message, send_message, send_to};
use crate::worker::WorkerPhase;

/// Everything one transaction needs, made once.
struct TransactionBuffers {
    request: Box<[u8]>,
    reply: Box<[u8]>,
    name: SocketName,
    control: ControlBuffer,
}

/// Serves until told to end and everything queued is answered.
pub(crate) fn run<S: Service>(mut job: WorkerJob<'_, S>) -> io::Result<()> {
    match job.gate.take() {
        None => run_by(Unlimited, job),
        Some(gate) => run_by(gate, job),
    }
}

fn run_by<S: Service, P: AdmissionPolicy>(mut policy: P, mut job: WorkerJob<'_, S>) -> io::Result<()> {
    let mut buffers = TransactionBuffers {
        request: vec![0; job.shape.request].into_boxed_slice(),
        reply: vec![0; job.shape.reply].into_boxed_slice(),
        name: SocketName::ZERO,
        control: ControlBuffer::EMPTY,
    };
    let mut tally = LocalCounters::new(job.counters);
    loop {
        let flags = match job.ending.phase() {
            WorkerPhase::Serve if !policy.looks() => 0,
            WorkerPhase::Serve | WorkerPhase::Drain => libc::MSG_DONTWAIT,
            WorkerPhase::End => return Ok(()),
        };
        tally.counts.syscalls += 1;
        let TransactionBuffers { request, name, control, .. } = &mut buffers;
        let received = if job.shape.asked.is_nothing() {
            receive_from(job.socket, request, name, flags)
        } else {
            receive_message(job.socket, request, name, control, job.shape.asked, flags)
        };
        match received {
            Ok(ReceivedDatagram { named: false, .. }) => job.ending.on_wake(),
            Ok(received) => {
                policy.received(job.socket, 1, true);
                answer(&mut buffers, &received, &mut policy, &mut job, &mut tally);
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

fn answer<S: Service, P: AdmissionPolicy>(
    buffers: &mut TransactionBuffers,
    received: &ReceivedDatagram,
    policy: &mut P,
    job: &mut WorkerJob<'_, S>,
    tally: &mut LocalCounters<'_>,
) {
    let TransactionBuffers { request, reply, name, control } = buffers;
    let asked = job.shape.asked;
    let came = (!asked.is_nothing()).then_some(ReceivedControl { control, length: received.control });
    tally.counts.batches += 1;
    tally.counts.received += 1;
    let truncated = received.length > request.len();
    if truncated && !tally.count_truncated(job.deliver_truncated) {
        return;
    }
    policy.arrived(|| came.as_ref().and_then(ReceivedControl::received_ns));
    if !policy.admits(name) {
        tally.count_shed();
        return;
    }
    let payload = &request[..received.length.min(request.len())];
    let seen = Request::new(payload, name, came, truncated, &job.path);
    let (mut filled, mut extras) = (received.control, SendExtras::NONE);
    let segment = came.as_ref().and_then(ReceivedControl::segment);
    let action = job.service.answer(&seen, reply);
    let mut otherwise = |tally: &mut LocalCounters<'_>, options: ReplyOptions| {
        tally.reply_with_options(0, options);
        extras = options.extras();
        let Some(to) = options.to else { return };
        if to.is_ipv4() != name.is_ipv4() {
            filled = 0;
        }
        *name = SocketName::encode(to, job.shape.family).unwrap_or(SocketName::ZERO);
    };
    let outgoing = match action {
        Action::Drop => {
            tally.counts.dropped += 1;
            tally.rest = true;
            return;
        }
        Action::Defer => return tally.count_deferred(),
        Action::Echo => {
            extras.segment = segment;
            Some(payload)
        }
        Action::Reply(length) => reply.get(..length),
        Action::ReplyTo { length, to } => {
            otherwise(tally, ReplyOptions { to: Some(to), ..ReplyOptions::default() });
            reply.get(..length)
        }
        Action::ReplyWith { length, options } => {
            otherwise(tally, options);
            reply.get(..length)
        }
    };
    let Some(outgoing) = outgoing else {
        tally.count_send_failure(&too_long());
        return;
    };
    let length = control.make_reply(asked, filled);
    let length = if extras.is_none() { length } else { control.append(length, name.is_ipv4(), extras) };
    loop {
        tally.counts.syscalls += 1;
        let sent = match length {
            0 => send_to(job.socket, outgoing, name, job.shape.family),
            _ => send_message(job.socket, outgoing, name, job.shape.family, control, length),
        };
        match sent {
            Ok(()) => tally.counts.answered += 1,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => tally.count_send_failure(&error),
        }
        return;
    }
}
