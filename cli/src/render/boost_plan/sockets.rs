//! Sockets of a server by group: who reads each, and how its packets landed.

use linerate_host::Known;
use linerate_host::setting::SteeringTable;
use linerate_host::stage::socket::SocketProtocol;
use linerate_tune::boost::delivery::SocketAgreement;
use linerate_tune::boost::discovery::{GroupSocket, ReaderEvidence, ReaderThread, ServerGroup};

use super::{MOST, heading, hidden_rows_note};
use crate::command::boost::BoostPlanDocument;
use crate::render::column::TextColumn;
use crate::render::format;
use crate::render::style::TextStyle;
use crate::render::table::TextTable;
use crate::render::tune_plan::count_with_noun;

/// A table a group.
pub(super) fn lines(planned: &BoostPlanDocument<'_>, full: bool, style: TextStyle) -> Vec<String> {
    let mut lines = heading("its sockets", style);
    for group in &planned.server.groups {
        lines.extend(TextColumn { style, before: 2, label: 0 }.labelled("", &kind(group)));
        lines.extend(members(planned, group, full, style));
    }
    lines
}

/// Protocol, address, and how one of the sockets is chosen.
fn kind(group: &ServerGroup) -> String {
    let name = format!("{} {}", group.protocol.name(), group.local);
    if !group.reuseport && group.members.len() < 2 {
        return format!("{name}: one socket, not of a reuseport group");
    }
    if group.members.len() == 1 {
        return format!("{name}: one socket, alone in its reuseport group");
    }
    let count = count_with_noun(group.members.len(), "socket");
    let order = if group.ordered { "" } else { ", their order unproven" };
    format!("{name}: {count}{order}, {}", selection_text(&group.steering))
}

/// What chooses the socket, in words.
pub(crate) fn selection_text(steering: &Known<String>) -> String {
    match steering.value().map(String::as_str) {
        None => match steering {
            Known::Unknown { why } => format!("chosen by what could not be seen: {why}"),
            Known::Value(_) => String::new(),
        },
        Some("none") => "chosen by the kernel's hash of the flow".to_owned(),
        Some("classic-by-cpu") => {
            "chosen by CPU by a classic BPF program, its own or another tool's".to_owned()
        }
        Some("classic") => "chosen by a classic BPF program, its own or another tool's".to_owned(),
        Some(text) if text.parse::<SteeringTable>().is_ok() => "chosen by CPU by linerate".to_owned(),
        Some(text) => format!("chosen by {text}, its own or another tool's"),
    }
}

fn members(
    planned: &BoostPlanDocument<'_>,
    group: &ServerGroup,
    full: bool,
    style: TextStyle,
) -> Vec<String> {
    let mut table =
        TextTable::new(&[">#", ">socket", ">buffer KiB", ">lost", ">datagrams", ">on its CPU", "read by"]);
    let agreement = planned.agreement.value();
    for (position, member) in group.members.iter().enumerate() {
        let seen = agreement.and_then(|agreement| {
            agreement.sockets.iter().find(|socket| socket.cookie == member.socket.cookie)
        });
        let position = if group.ordered { position.to_string() } else { "-".to_owned() };
        let readers: Vec<&ReaderThread> = planned.server.readers_of(member.socket.cookie).collect();
        let (datagrams, here) = match (group.protocol, seen) {
            (SocketProtocol::Udp, Some(seen)) => delivery_cells(planned, seen),
            (SocketProtocol::Udp, None) if agreement.is_some() => ("0".to_owned(), "-".to_owned()),
            _ => ("-".to_owned(), "-".to_owned()),
        };
        table.row(vec![
            position,
            member.socket.cookie.to_string(),
            member.receive_buffer_bytes.map_or_else(unknown, |bytes| (bytes / 1024).to_string()),
            member.drops.map_or_else(unknown, format::grouped),
            datagrams,
            here,
            read_by(&readers, member, full),
        ]);
    }
    let most = if full { usize::MAX } else { MOST };
    let mut lines = table.lines(4, most, style);
    lines.extend(hidden_rows_note(group.members.len().saturating_sub(most), style));
    lines
}

fn unknown() -> String {
    format::UNKNOWN.to_owned()
}

/// Datagrams that were put into a socket, and the share of those read that was read where it arrived.
fn delivery_cells(planned: &BoostPlanDocument<'_>, seen: &SocketAgreement) -> (String, String) {
    let arrived: u64 = seen.arrived.iter().map(|(_, packets)| packets).sum();
    let landings = planned.server.landings.value();
    let known = landings.into_iter().flat_map(|landings| &landings.read).filter_map(|landing| {
        let arrived_on = landing.arrived_on.filter(|_| landing.cookie == seen.cookie)?;
        Some((landing.packets, if arrived_on == landing.read_on { landing.packets } else { 0 }))
    });
    let (read, here) = known.fold((0, 0), |(read, here), (more, there)| (read + more, here + there));
    let share = if read == 0 { "-".to_owned() } else { format::percent(here as f64 / read as f64) };
    (format::grouped(arrived), share)
}

/// The threads that read it, and how that is known.
fn read_by(readers: &[&ReaderThread], member: &GroupSocket, full: bool) -> String {
    /// Threads that are named one by one.
    const NAMED: usize = 3;
    let most = if full { usize::MAX } else { NAMED };
    match readers {
        [] => match member.holders.first() {
            Some((pid, _)) => format!("nobody that was seen; process {pid} holds it"),
            None => "nobody that was seen".to_owned(),
        },
        [one] => format!("{} {} ({})", one.tid, one.name, words(one, member)),
        [first, ..] if readers.len() <= most => {
            let all: Vec<String> = readers.iter().map(|reader| reader.tid.to_string()).collect();
            format!("{} {} ({})", all.join(", "), first.name, words(first, member))
        }
        [first, ..] => {
            format!(
                "{} of {} ({})",
                count_with_noun(readers.len(), "thread"),
                first.name,
                words(first, member)
            )
        }
    }
}

fn words(reader: &ReaderThread, member: &GroupSocket) -> &'static str {
    match reader.seen {
        // It was seen at another socket.
        seen if seen < ReaderEvidence::Ring && reader.guessed.contains(&member.socket.cookie) => "assumed",
        ReaderEvidence::Reading => "seen to read",
        ReaderEvidence::InCall => "waits in a call on it",
        ReaderEvidence::Polling => "waits for it in epoll",
        ReaderEvidence::Ring => "io_uring",
        ReaderEvidence::OnlyThread => "the only thread",
        ReaderEvidence::Assumed => "assumed",
    }
}
