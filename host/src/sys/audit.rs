//! The audit netlink protocol, status messages only (`struct audit_status`, linux/audit.h).

use std::io;

use rustix::fd::OwnedFd;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
};

const AUDIT_GET: u16 = 1000;
const AUDIT_SET: u16 = 1001;
const AUDIT_STATUS_ENABLED: u32 = 1;
const NLMSG_ERROR: u16 = 2;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
const HEADER_BYTES: usize = 16;
/// Ten words; older kernels accept a shorter and newer ones a longer structure.
const STATUS_WORDS: usize = 10;

pub(crate) fn enabled() -> io::Result<u32> {
    let socket = open()?;
    request(&socket, AUDIT_GET, NLM_F_REQUEST, &[])?;
    let answer = receive(&socket)?;
    let (kind, body) = parse(&answer)?;
    match kind {
        AUDIT_GET => word(body, 4).ok_or_else(short),
        NLMSG_ERROR => Err(error_of(body)),
        other => Err(io::Error::other(format!("unexpected audit message {other}"))),
    }
}

pub(crate) fn set_enabled(enabled: u32) -> io::Result<()> {
    let mut status = [0_u32; STATUS_WORDS];
    status[0] = AUDIT_STATUS_ENABLED;
    status[1] = enabled;
    let body: Vec<u8> = status.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let socket = open()?;
    request(&socket, AUDIT_SET, NLM_F_REQUEST | NLM_F_ACK, &body)?;
    let answer = receive(&socket)?;
    match parse(&answer)? {
        (NLMSG_ERROR, body) if word(body, 0) == Some(0) => Ok(()),
        (NLMSG_ERROR, body) => Err(error_of(body)),
        (other, _) => Err(io::Error::other(format!("unexpected audit message {other}"))),
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

fn receive(socket: &OwnedFd) -> io::Result<Vec<u8>> {
    let mut buffer = vec![0_u8; 8192];
    let (length, _) = recv(socket, &mut buffer[..], RecvFlags::empty())?;
    buffer.truncate(length);
    Ok(buffer)
}

/// Message kind and body of the first netlink message in `bytes`.
fn parse(bytes: &[u8]) -> io::Result<(u16, &[u8])> {
    let kind = bytes.get(4..6).and_then(|kind| kind.try_into().ok()).map(u16::from_ne_bytes);
    match (kind, bytes.get(HEADER_BYTES..)) {
        (Some(kind), Some(body)) => Ok((kind, body)),
        _ => Err(short()),
    }
}

fn word(body: &[u8], offset: usize) -> Option<u32> {
    body.get(offset..offset + 4)?.try_into().ok().map(u32::from_ne_bytes)
}

fn error_of(body: &[u8]) -> io::Error {
    word(body, 0).map_or_else(short, |code| io::Error::from_raw_os_error(code.cast_signed().saturating_neg()))
}

fn short() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the kernel's audit answer is too short")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_answer_carries_the_kernels_reason() {
        let mut message = vec![0_u8; HEADER_BYTES];
        message[4..6].copy_from_slice(&NLMSG_ERROR.to_ne_bytes());
        message.extend((-1_i32).to_ne_bytes());
        let (kind, body) = parse(&message).expect("a message");
        assert_eq!(kind, NLMSG_ERROR);
        assert_eq!(error_of(body).kind(), io::ErrorKind::PermissionDenied);
        assert!(parse(&message[..10]).is_err());
    }
}
