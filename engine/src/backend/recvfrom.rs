//! One transaction per system call pair: `recvfrom`, then `sendto`, as a plain server does it. The baseline to compare with.
//!
//! On a wildcard address these are `recvmsg` and `sendmsg`, because only they carry the address to reply from.

use std::io;

use super::job::{LocalCounters, WorkerJob, decide};
use crate::overload::{AdmissionPolicy, Unlimited};
use crate::service::Service;
use crate::shutdown::WorkerPhase;
use crate::sys::batch::{IncomingMessage, OutgoingMessage};
use crate::sys::control::{ControlBuffer, ReceivedControl, SendExtras};
use crate::sys::name::SocketName;
use crate::sys::single_message::{ReceivedDatagram, receive_from, receive_message, send_message, send_to};

struct TransactionBuffers {
    request: Box<[u8]>,
    reply: Box<[u8]>,
    name: SocketName,
    control: ControlBuffer,
}

/// Serves until the worker stops and all queued requests are answered.
pub(crate) fn run<S: Service>(mut job: WorkerJob<'_, S>) -> io::Result<()> {
    match job.admission.take() {
        None => run_with(Unlimited, job),
        Some(admission) => run_with(admission, job),
    }
}

fn run_with<S: Service, P: AdmissionPolicy>(mut policy: P, mut job: WorkerJob<'_, S>) -> io::Result<()> {
    let mut buffers = TransactionBuffers {
        request: vec![0; job.shape.request].into_boxed_slice(),
        reply: vec![0; job.shape.reply].into_boxed_slice(),
        name: SocketName::ZERO,
        control: ControlBuffer::EMPTY,
    };
    let mut counters = LocalCounters::new(job.counters);
    loop {
        let flags = match job.shutdown.phase() {
            WorkerPhase::Serve if !policy.should_poll() => 0,
            WorkerPhase::Serve | WorkerPhase::Drain => libc::MSG_DONTWAIT,
            WorkerPhase::End => return Ok(()),
        };
        counters.counts.syscalls += 1;
        let TransactionBuffers { request, name, control, .. } = &mut buffers;
        let received = if job.shape.asked.is_nothing() {
            receive_from(job.socket, request, name, flags)
        } else {
            receive_message(job.socket, request, name, control, job.shape.asked, flags)
        };
        match received {
            Ok(ReceivedDatagram { named: false, .. }) => job.shutdown.on_wake(),
            Ok(received) => {
                policy.record_received(job.socket, 1, true);
                answer(&mut buffers, &received, &mut policy, &mut job, &mut counters);
                counters.publish();
            }
            Err(error) => {
                if counters.on_receive_error(error, job.socket)? {
                    policy.on_idle();
                    job.shutdown.on_empty();
                }
            }
        }
    }
}

fn answer<S: Service, P: AdmissionPolicy>(
    buffers: &mut TransactionBuffers,
    received: &ReceivedDatagram,
    policy: &mut P,
    job: &mut WorkerJob<'_, S>,
    counters: &mut LocalCounters<'_>,
) {
    let TransactionBuffers { request, reply, name, control } = buffers;
    let (control_request, family) = (job.shape.asked, job.shape.family);
    let received_control =
        (!control_request.is_nothing()).then_some(ReceivedControl { control, length: received.control });
    counters.counts.batches += 1;
    counters.counts.received += 1;
    policy.record_arrival(|| received_control.as_ref().and_then(ReceivedControl::received_ns));
    if !policy.admits(name) {
        counters.count_shed();
        return;
    }
    let segment = received_control.as_ref().and_then(ReceivedControl::segment);
    let (payload, truncated) = match request.get(..received.length) {
        Some(payload) => (payload, false),
        None => (&request[..], true),
    };
    let incoming = IncomingMessage { payload, name, control: received_control, truncated, reply };
    let (mut control_length, mut extras) = (received.control, SendExtras::NONE);
    let settings = (job.skips_broadcasts, job.deliver_truncated);
    let outgoing = match decide(job.service, &job.path, settings, counters, incoming) {
        OutgoingMessage::Nothing => return,
        OutgoingMessage::Same => {
            extras.segment = segment;
            payload
        }
        OutgoingMessage::Reply(length) => &reply[..length],
        OutgoingMessage::With(length, options) => {
            extras = options.extras();
            if let Some(reply_address) = options.to {
                if reply_address.is_ipv4() != name.is_ipv4() {
                    control_length = 0;
                }
                *name = SocketName::encode(reply_address, family).unwrap_or(SocketName::ZERO);
            }
            &reply[..length]
        }
    };
    let length = control.make_reply(control_request, control_length);
    let length = if extras.is_none() { length } else { control.append(length, name.is_ipv4(), extras) };
    counters.send_single(|| match length {
        0 => send_to(job.socket, outgoing, name, family),
        _ => send_message(job.socket, outgoing, name, family, control, length),
    });
}
