//! Options of the server's UDP sockets other than steering.

use crate::plan::PlannedChange;
use linerate_host::setting::SocketKnob;
use linerate_host::stage::link::LinkState;
use linerate_host::{PacketPath, Setting};

use super::BoostChoice;
use super::changes::change;
use super::group::name;
use crate::boost::ObservedServer;
use crate::boost::discovery::{GroupSocket, ServerGroup};

/// The receive buffer for a socket that loses packets, as the kernel counts it: twice the largest
/// size that Linux 6.18 and later permit without privilege (`net.core.rmem_max`).
const AMPLE_BYTES: u64 = 8 << 20;

/// With fewer replies, the largest observed reply does not show how large replies become.
const ENOUGH: u64 = 300;

/// Headers of IPv4 and UDP, in bytes.
const HEADERS: u32 = 28;

/// Larger buffers if a socket of the group lost packets during the observation, or if they were
/// requested. The socket's drop counter is as old as the socket, so it does not show current
/// losses.
pub(super) fn receive_buffers(
    server: &ObservedServer,
    group: &ServerGroup,
    choice: &BoostChoice,
) -> Result<Vec<PlannedChange>, String> {
    let drops = dropped_datagrams(server, group);
    let target_bytes = choice.receive_buffer_bytes.or((drops > 0).then_some(AMPLE_BYTES));
    let Some(target_bytes) = target_bytes else { return Ok(Vec::new()) };
    // The kernel gets half of this value and doubles it.
    let target_bytes = target_bytes.next_multiple_of(2);
    let cause = match choice.receive_buffer_bytes {
        Some(_) => "It was asked for.".to_owned(),
        None => format!("{} lost {drops} packets to full buffers while it was looked at.", name(group)),
    };
    let mut changes = Vec::new();
    for member in &group.members {
        let bytes = member.receive_buffer_bytes.or_else(|| options(member)?.receive_buffer_bytes);
        if bytes.is_some_and(|bytes| bytes >= target_bytes) {
            continue;
        }
        let from = current_value(member, SocketKnob::ReceiveBuffer)?;
        let setting = setting(member, SocketKnob::ReceiveBuffer);
        let effect = "Fewer packets lost in bursts; none saved where the threads are too slow for the rate.";
        changes.push(PlannedChange {
            effect: Some(effect.to_owned()),
            source: Some("Linux, Documentation/networking/ip-sysctl and net/core/sock.c".to_owned()),
            risk: Some("A longer queue is a longer wait where the threads are too slow.".to_owned()),
            ..change(setting, from, target_bytes.to_string(), cause.clone())
        });
    }
    Ok(changes)
}

/// No IP ID, if that was requested and the observed replies were small enough. IPv6 has none.
pub(super) fn path_mtu(
    server: &ObservedServer,
    group: &ServerGroup,
    path: &PacketPath,
    choice: &BoostChoice,
) -> Result<Vec<PlannedChange>, String> {
    if !choice.skip_ip_id {
        return Ok(Vec::new());
    }
    if group.local.is_ipv6() {
        // A socket of all addresses gets IPv4 requests, too, unless another socket gets them.
        let is_ipv4 = |other: &ServerGroup| {
            other.protocol == group.protocol
                && other.local.is_ipv4()
                && other.local.port() == group.local.port()
        };
        return match group.local.ip().is_unspecified() && !server.groups.iter().any(is_ipv4) {
            true => Err("an IPv6 socket may send IPv4 replies, too: their IP IDs stay".to_owned()),
            false => Ok(Vec::new()),
        };
    }
    let (replies, largest) = replies(server, group)?;
    let (link, mtu) = smallest_mtu(path)?;
    if largest + HEADERS > mtu {
        return Err(format!(
            "its largest reply of {replies} had {largest} bytes, with {HEADERS} of headers more than the {mtu} of {}: IP IDs stay",
            link.interface
        ));
    }
    let mut changes = Vec::new();
    for member in &group.members {
        let from = current_value(member, SocketKnob::PathMtu)?;
        match from.as_str() {
            "do" => continue,
            "want" | "dont" => {}
            other => {
                return Err(format!(
                    "its path MTU discovery is '{other}', which only the server can have set: IP IDs stay"
                ));
            }
        }
        let reason = format!(
            "Of {replies} replies the largest had {largest} bytes, with {HEADERS} of headers {}, and the MTU of {} is {mtu}: none is \
             cut into fragments, which is what an IP ID is for.",
            largest + HEADERS,
            link.interface
        );
        let risk = "A reply that is larger than the path MTU of a client is refused (EMSGSIZE) instead of fragmented.";
        changes.push(PlannedChange {
            source: Some("Linux, include/net/ip.h, ip_select_ident_segs".to_owned()),
            risk: Some(risk.to_owned()),
            ..change(setting(member, SocketKnob::PathMtu), from, "do".to_owned(), reason)
        });
    }
    Ok(changes)
}

pub(super) fn busy_poll(group: &ServerGroup, choice: &BoostChoice) -> Result<Vec<PlannedChange>, String> {
    let Some(microseconds) = choice.busy_poll_us else { return Ok(Vec::new()) };
    let mut changes = Vec::new();
    for member in &group.members {
        let from = current_value(member, SocketKnob::BusyPoll)?;
        if from == microseconds.to_string() {
            continue;
        }
        let reason = format!(
            "It was asked for: a thread without packets polls the queue for {microseconds} us before it sleeps."
        );
        let risk = "Threads use their CPUs while they wait. Interfaces of software have no queue to poll.";
        changes.push(PlannedChange {
            source: Some("Linux, Documentation/networking/napi.rst (busy polling)".to_owned()),
            risk: Some(risk.to_owned()),
            ..change(setting(member, SocketKnob::BusyPoll), from, microseconds.to_string(), reason)
        });
    }
    Ok(changes)
}

fn setting(member: &GroupSocket, knob: SocketKnob) -> Setting {
    Setting::Socket { socket: member.socket, knob }
}

fn options(member: &GroupSocket) -> Option<&linerate_host::stage::socket::SocketOptions> {
    member.options.value()?.as_ref()
}

fn current_value(member: &GroupSocket, knob: SocketKnob) -> Result<String, String> {
    let value = options(member).and_then(|options| options.knobs.get(&knob));
    value.cloned().ok_or_else(|| {
        let option_name = match knob {
            SocketKnob::IncomingCpu => "SO_INCOMING_CPU",
            SocketKnob::BusyPoll => "SO_BUSY_POLL",
            SocketKnob::ReceiveBuffer => "SO_RCVBUF",
            SocketKnob::PathMtu => "IP_MTU_DISCOVER",
        };
        let reason = member.options.why().map_or_else(String::new, |reason| format!(" ({reason})"));
        format!("{option_name} of its sockets cannot be read, so undo could not restore it{reason}")
    })
}

/// Datagrams that full buffers dropped during the observation.
fn dropped_datagrams(server: &ObservedServer, group: &ServerGroup) -> u64 {
    let arrived = server.delivery.value().map_or(&[][..], |delivery| &delivery.arrived);
    arrived.iter().filter(|arrival| has_socket(group, arrival.cookie)).map(|arrival| arrival.refused).sum()
}

/// Number of observed replies, and the payload bytes of the largest reply.
fn replies(server: &ObservedServer, group: &ServerGroup) -> Result<(u64, u32), String> {
    let delivery = match &server.delivery {
        linerate_host::Known::Value(delivery) => delivery,
        linerate_host::Known::Unknown { why } => {
            return Err(format!("how large its replies get was not seen ({why}): IP IDs stay"));
        }
    };
    let send_counts = || delivery.sent.iter().filter(|sending| has_socket(group, sending.cookie));
    let packets: u64 = send_counts().map(|sending| sending.packets).sum();
    let largest = send_counts().map(|sending| sending.largest_bytes).max();
    match largest.filter(|_| packets >= ENOUGH) {
        Some(largest) => Ok((packets, largest)),
        None => Err(format!("{packets} replies were seen, too few to know their largest size: IP IDs stay")),
    }
}

fn has_socket(group: &ServerGroup, cookie: u64) -> bool {
    group.cookies().any(|own_cookie| own_cookie == cookie)
}

fn smallest_mtu(path: &PacketPath) -> Result<(&LinkState, u32), String> {
    let mut smallest: Option<(&LinkState, u32)> = None;
    for link in path.link.iter().filter(|link| link.is_up()) {
        let Some(mtu) = link.mtu_bytes.value().copied() else {
            let reason = link.mtu_bytes.why().unwrap_or_default();
            return Err(format!("the MTU of {} is unknown ({reason}): IP IDs stay", link.interface));
        };
        if smallest.is_none_or(|(_, least)| mtu < least) {
            smallest = Some((link, mtu));
        }
    }
    smallest.ok_or_else(|| {
        "no interface is up whose MTU could be compared with its replies: IP IDs stay".to_owned()
    })
}
