//! Many transactions a system call: `recvmmsg`, then `sendmmsg`.

use std::io;

use super::{Job, Receive, Tally, judge, too_long};
use crate::service::{Action, Request, Service};
use crate::sys::batch::{Batch, Kind, Off, Outgoing, V4, V6};
use crate::sys::control::Pktinfo;
use crate::worker::Phase;

/// Serves until told to end and everything queued is answered.
pub(crate) fn run<S: Service>(job: Job<'_, S>) -> io::Result<()> {
    match job.shape.pktinfo {
        Pktinfo::Off => run_with(Batch::<Off>::new(job.shape), job),
        Pktinfo::V4 => run_with(Batch::<V4>::new(job.shape), job),
        Pktinfo::V6 => run_with(Batch::<V6>::new(job.shape), job),
    }
}

fn run_with<S: Service, K: Kind>(mut batch: Batch<K>, mut job: Job<'_, S>) -> io::Result<()> {
    let mut tally = Tally::new(job.counters);
    loop {
        let flags = match job.ending.phase() {
            // Waits for the first message only and takes what else is there.
            Phase::Serve => libc::MSG_WAITFORONE,
            Phase::Drain => libc::MSG_DONTWAIT,
            Phase::End => return Ok(()),
        };
        tally.counts.syscalls += 1;
        match batch.receive(job.socket, flags) {
            Ok(0) => job.ending.woken(),
            Ok(received) => {
                answer(&mut batch, received, &mut job, &mut tally);
                tally.publish();
            }
            Err(error) => match judge(error) {
                Receive::Again => {}
                Receive::Empty => job.ending.empty(),
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
fn answer<S: Service, K: Kind>(
    batch: &mut Batch<K>,
    received: usize,
    job: &mut Job<'_, S>,
    tally: &mut Tally<'_>,
) {
    tally.counts.batches += 1;
    tally.counts.received += received as u64;
    let deliver_truncated = job.deliver_truncated;
    let service = &mut *job.service;
    batch.process(|incoming| {
        if incoming.truncated && !tally.truncated(deliver_truncated) {
            return Outgoing::Nothing;
        }
        let space = incoming.reply.len();
        let request = Request::new(incoming.payload, incoming.name, incoming.control, incoming.truncated);
        match service.answer(&request, incoming.reply) {
            Action::Echo => Outgoing::Same,
            Action::Reply(length) if length <= space => Outgoing::Reply(length),
            Action::ReplyTo { length, to } if length <= space => {
                tally.counts.redirected += 1;
                tally.rest = true;
                Outgoing::ReplyTo(length, to)
            }
            Action::Reply(_) | Action::ReplyTo { .. } => {
                tally.send_failed(&too_long());
                Outgoing::Nothing
            }
            Action::Drop => {
                tally.counts.dropped += 1;
                tally.rest = true;
                Outgoing::Nothing
            }
        }
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
