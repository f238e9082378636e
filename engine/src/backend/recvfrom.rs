//! One transaction at a time: `recvfrom`, then `sendto`, as a plain server does it. The baseline to compare with.
//!
//! On a wildcard address `recvmsg` and `sendmsg` take their place, since only they carry the address to reply from.

use std::io;

use super::{Job, Receive, Tally, judge, too_long};
use crate::overload::{Open, Policy};
use crate::service::{Action, ReplyOptions, Request, Service};
use crate::sys::control::{Control, Extras, Filled};
use crate::sys::name::Name;
use crate::sys::single::{Received, receive_from, receive_message, send_message, send_to};
use crate::worker::Phase;

/// Everything one transaction needs, made once.
struct Buffers {
    request: Box<[u8]>,
    reply: Box<[u8]>,
    name: Name,
    control: Control,
}

/// Serves until told to end and everything queued is answered.
pub(crate) fn run<S: Service>(mut job: Job<'_, S>) -> io::Result<()> {
    match job.gate.take() {
        None => run_by(Open, job),
        Some(gate) => run_by(gate, job),
    }
}

fn run_by<S: Service, P: Policy>(mut policy: P, mut job: Job<'_, S>) -> io::Result<()> {
    let mut buffers = Buffers {
        request: vec![0; job.shape.request].into_boxed_slice(),
        reply: vec![0; job.shape.reply].into_boxed_slice(),
        name: Name::ZERO,
        control: Control::EMPTY,
    };
    let mut tally = Tally::new(job.counters);
    loop {
        let flags = match job.ending.phase() {
            Phase::Serve if !policy.looks() => 0,
            Phase::Serve | Phase::Drain => libc::MSG_DONTWAIT,
            Phase::End => return Ok(()),
        };
        tally.counts.syscalls += 1;
        let Buffers { request, name, control, .. } = &mut buffers;
        let received = if job.shape.asked.is_nothing() {
            receive_from(job.socket, request, name, flags)
        } else {
            receive_message(job.socket, request, name, control, job.shape.asked, flags)
        };
        match received {
            Ok(Received { named: false, .. }) => job.ending.woken(),
            Ok(received) => {
                policy.received(job.socket, 1, true);
                answer(&mut buffers, &received, &mut policy, &mut job, &mut tally);
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

fn answer<S: Service, P: Policy>(
    buffers: &mut Buffers,
    received: &Received,
    policy: &mut P,
    job: &mut Job<'_, S>,
    tally: &mut Tally<'_>,
) {
    let Buffers { request, reply, name, control } = buffers;
    let asked = job.shape.asked;
    let came = (!asked.is_nothing()).then_some(Filled { control, length: received.control });
    tally.counts.batches += 1;
    tally.counts.received += 1;
    let truncated = received.length > request.len();
    if truncated && !tally.truncated(job.deliver_truncated) {
        return;
    }
    policy.arrived(|| came.as_ref().and_then(Filled::received_ns));
    if !policy.admits(name) {
        tally.shed();
        return;
    }
    let payload = &request[..received.length.min(request.len())];
    let seen = Request::new(payload, name, came, truncated, &job.path);
    let (mut filled, mut extras) = (received.control, Extras::NONE);
    let segment = came.as_ref().and_then(Filled::segment);
    let action = job.service.answer(&seen, reply);
    let mut otherwise = |tally: &mut Tally<'_>, options: ReplyOptions| {
        tally.otherwise(0, options);
        extras = options.extras();
        let Some(to) = options.to else { return };
        if to.is_ipv4() != name.is_ipv4() {
            filled = 0;
        }
        *name = Name::encode(to, job.shape.family).unwrap_or(Name::ZERO);
    };
    let outgoing = match action {
        Action::Drop => {
            tally.counts.dropped += 1;
            tally.rest = true;
            return;
        }
        Action::Defer => return tally.deferred(),
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
        tally.send_failed(&too_long());
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
            Err(error) => tally.send_failed(&error),
        }
        return;
    }
}
