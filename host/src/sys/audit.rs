//! The audit netlink protocol: its status (`struct audit_status`) and rules (`struct
//! audit_rule_data`), both of linux/audit.h.

use std::io;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
};

use serde::{Deserialize, Serialize};

const AUDIT_GET: u16 = 1000;
const AUDIT_SET: u16 = 1001;
const AUDIT_LIST_RULES: u16 = 1013;
const AUDIT_STATUS_ENABLED: u32 = 1;
// The list of rules for new tasks, in the low bits of `flags`; the higher bits show how a rule was
// added.
const FILTER_TASK: u32 = 1;
const FILTER_LIST_MASK: u32 = 0x0f;
const ACTION_NEVER: u32 = 0;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
const HEADER_BYTES: usize = 16;
// The longest message of the kernel's audit (MAX_AUDIT_MESSAGE_LENGTH), with its header.
const LONGEST_ANSWER: usize = 8970 + HEADER_BYTES;
// The kernel answers sooner unless it lost the answer.
const ANSWER_DEADLINE: Duration = Duration::from_secs(5);
/// Ten words; older kernels accept a shorter structure, newer kernels a longer one.
const STATUS_WORDS: usize = 10;

/// `AUDIT_LIST_RULES`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct AuditRules {
    pub count: u32,
    /// Whether one is `never,task` without conditions, as some distributions ship: tasks started
    /// since then have no audit context, and their system calls cost nothing (audit_alloc in
    /// kernel/auditsc.c).
    pub never_task: bool,
}

pub(crate) fn enabled() -> io::Result<u32> {
    let socket = open()?;
    request(&socket, AUDIT_GET, NLM_F_REQUEST, &[])?;
    let answer = receive(&socket, Instant::now() + ANSWER_DEADLINE)?;
    let (kind, body) = parse(&answer)?;
    match kind {
        AUDIT_GET => word(body, 4).ok_or_else(truncated_error),
        NLMSG_ERROR => Err(error_of(body)),
        message_kind => Err(io::Error::other(format!("unexpected audit message {message_kind}"))),
    }
}

pub(crate) fn set_enabled(enabled: u32) -> io::Result<()> {
    let mut status = [0_u32; STATUS_WORDS];
    status[0] = AUDIT_STATUS_ENABLED;
    status[1] = enabled;
    let body: Vec<u8> = status.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let socket = open()?;
    request(&socket, AUDIT_SET, NLM_F_REQUEST | NLM_F_ACK, &body)?;
    let answer = receive(&socket, Instant::now() + ANSWER_DEADLINE)?;
    match parse(&answer)? {
        (NLMSG_ERROR, body) if word(body, 0) == Some(0) => Ok(()),
        (NLMSG_ERROR, body) => Err(error_of(body)),
        (message_kind, _) => Err(io::Error::other(format!("unexpected audit message {message_kind}"))),
    }
}

// The kernel sends one rule per message from a separate thread (audit_send_list_thread in
// kernel/audit.c), so no acknowledgement marks the end.
pub(crate) fn rules() -> io::Result<AuditRules> {
    let socket = open()?;
    request(&socket, AUDIT_LIST_RULES, NLM_F_REQUEST, &[])?;
    let deadline = Instant::now() + ANSWER_DEADLINE;
    let mut rules = AuditRules::default();
    while !count_rule(&receive(&socket, deadline)?, &mut rules)? {}
    Ok(rules)
}

/// Counts a rule; returns whether it was the last answer.
pub(crate) fn count_rule(answer: &[u8], rules: &mut AuditRules) -> io::Result<bool> {
    match parse(answer)? {
        (NLMSG_DONE, _) => Ok(true),
        (NLMSG_ERROR, body) => Err(error_of(body)),
        (AUDIT_LIST_RULES, body) => {
            let field = |index: usize| word(body, index * 4).ok_or_else(truncated_error);
            let (list, action, fields) = (field(0)? & FILTER_LIST_MASK, field(1)?, field(2)?);
            rules.count = rules.count.saturating_add(1);
            rules.never_task |= list == FILTER_TASK && action == ACTION_NEVER && fields == 0;
            Ok(false)
        }
        (message_kind, _) => Err(io::Error::other(format!("unexpected audit message {message_kind}"))),
    }
}

fn open() -> io::Result<OwnedFd> {
    Ok(socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, Some(netlink::AUDIT))?)
}

fn request(socket: &OwnedFd, kind: u16, flags: u16, body: &[u8]) -> io::Result<()> {
    let length = u32::try_from(HEADER_BYTES + body.len()).map_err(io::Error::other)?;
    let mut message = Vec::with_capacity(HEADER_BYTES + body.len());
    message.extend(length.to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend(flags.to_ne_bytes());
    message.extend(1_u32.to_ne_bytes());
    message.extend(0_u32.to_ne_bytes());
    message.extend(body);
    send(socket, &message, SendFlags::empty())?;
    Ok(())
}

fn receive(socket: &OwnedFd, deadline: Instant) -> io::Result<Vec<u8>> {
    wait(socket, deadline)?;
    let mut buffer = vec![0_u8; LONGEST_ANSWER];
    let (length, _) = recv(socket, &mut buffer[..], RecvFlags::empty())?;
    buffer.truncate(length);
    Ok(buffer)
}

fn wait(socket: &OwnedFd, deadline: Instant) -> io::Result<()> {
    loop {
        let remaining = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec { tv_sec: remaining.as_secs() as _, tv_nsec: remaining.subsec_nanos() as _ };
        match poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&timeout)) {
            Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
            Ok(_) => return Ok(()),
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Kind and body of the first netlink message.
fn parse(bytes: &[u8]) -> io::Result<(u16, &[u8])> {
    let kind = bytes.get(4..6).and_then(|kind| kind.try_into().ok()).map(u16::from_ne_bytes);
    match (kind, bytes.get(HEADER_BYTES..)) {
        (Some(kind), Some(body)) => Ok((kind, body)),
        _ => Err(truncated_error()),
    }
}

fn word(body: &[u8], offset: usize) -> Option<u32> {
    body.get(offset..offset + 4)?.try_into().ok().map(u32::from_ne_bytes)
}

fn error_of(body: &[u8]) -> io::Error {
    word(body, 0).map_or_else(truncated_error, |code| {
        io::Error::from_raw_os_error(code.cast_signed().saturating_neg())
    })
}

fn truncated_error() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the kernel's audit answer is too short")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn audit_error_message_is_parsed_to_its_errno() {
        let mut message = vec![0_u8; HEADER_BYTES];
        message[4..6].copy_from_slice(&NLMSG_ERROR.to_ne_bytes());
        message.extend((-1_i32).to_ne_bytes());
        let (kind, body) = parse(&message).expect("a message");
        assert_eq!(kind, NLMSG_ERROR);
        assert_eq!(error_of(body).kind(), io::ErrorKind::PermissionDenied);
        assert!(parse(&message[..10]).is_err());
    }

    fn rule(flags: u32, action: u32, fields: u32) -> Vec<u8> {
        let mut message = vec![0_u8; HEADER_BYTES];
        message[4..6].copy_from_slice(&AUDIT_LIST_RULES.to_ne_bytes());
        message.extend([flags, action, fields].iter().flat_map(|word| word.to_ne_bytes()));
        message
    }

    #[test]
    fn audit_rules_are_counted_and_task_never_is_detected() {
        let mut rules = AuditRules::default();
        // `-a always,exit -F arch=b64 -S execve`: list 4, action 2.
        assert!(!count_rule(&rule(4, 2, 1), &mut rules).expect("a rule"));
        // A rule for tasks of one user does not exempt others.
        assert!(!count_rule(&rule(1, 0, 1), &mut rules).expect("a rule"));
        assert_eq!(rules, AuditRules { count: 2, never_task: false });
        // `-A task,never`, as some distributions ship it; 0x10 means that it was inserted first.
        assert!(!count_rule(&rule(0x11, 0, 0), &mut rules).expect("a rule"));
        assert_eq!(rules, AuditRules { count: 3, never_task: true });
        let mut done = vec![0_u8; HEADER_BYTES];
        done[4..6].copy_from_slice(&NLMSG_DONE.to_ne_bytes());
        assert!(count_rule(&done, &mut rules).expect("the end"));
        assert!(count_rule(&rule(4, 2, 1)[..HEADER_BYTES + 6], &mut rules).is_err());
    }
}
