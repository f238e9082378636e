//! What boosts are in force, and where packets go now, as text.

use std::collections::BTreeMap;

use linerate_host::Known;
use linerate_host::setting::{SteeredSocket, SteeredSockets};

use super::boost_plan;
use super::column::TextColumn;
use super::format;
use super::style::{TextStyle, TextTone};
use super::table::TextTable;
use super::tune_plan::count_with_noun;
use super::tune_status;
use crate::command::boost::{ActiveBoost, BoostStatusDocument, BoostedServerState, SteeredGroup};
use crate::command::tune::StateDirArgs;

/// A block for each boost. In `full`, with all of its settings and sockets.
pub(crate) fn status(
    status: &BoostStatusDocument,
    place: &StateDirArgs,
    full: bool,
    style: TextStyle,
) -> String {
    let mut lines = tune_status::trouble(status.trouble.as_ref(), &status.journal, style);
    if status.boosts.is_empty() {
        lines.push("No boost is in force.".to_owned());
    }
    for boost in &status.boosts {
        lines.extend(tune_status::block(&boost.tune, place, full, style));
        lines.extend(boost.groups.iter().flat_map(|group| steering(group, full, style)));
        lines.extend(server_state_lines(boost, style));
    }
    lines.push(String::new());
    lines.join("\n")
}

/// Where the program of a group put packets since it was attached.
fn steering(group: &SteeredGroup, full: bool, style: TextStyle) -> Vec<String> {
    let name = format!("{} {}", group.protocol.name(), group.local);
    let column = TextColumn { style, before: 2, label: 0 };
    let warned = |text: String| -> Vec<String> {
        column.labelled("", &text).iter().map(|line| style.paint(TextTone::Warn, line)).collect()
    };
    let steered = match &group.steered {
        Known::Value(Some(steered)) => steered,
        Known::Value(None) => return warned(format!("{name}: linerate's program is not there any more")),
        Known::Unknown { why } => return warned(format!("{name}: what it gets could not be read: {why}")),
    };
    let mut lines = vec![format!("  {name}: packets so far")];
    let mut table = TextTable::new(&[">socket", "for CPUs", ">packets", "by CPUs", "socket is"]);
    for socket in &steered.sockets {
        let cpus: Vec<u32> = steered
            .by_cpu
            .iter()
            .filter(|(_, cookies)| cookies.contains(&socket.cookie))
            .map(|(cpu, _)| *cpu)
            .collect();
        let came: Vec<u32> = socket.packets_by_cpu.keys().copied().collect();
        table.row(vec![
            socket.cookie.to_string(),
            listed(&cpus),
            format::grouped(total(socket)),
            listed(&came),
            if socket.present { "there" } else { "gone: its packets go to others" }.to_owned(),
        ]);
    }
    let most = if full { usize::MAX } else { boost_plan::MOST };
    lines.extend(table.lines(4, most, style));
    lines.extend(boost_plan::hidden_rows_note(steered.sockets.len().saturating_sub(most), style));
    lines.extend(hash_fallback_lines(steered, style));
    lines
}

fn total(socket: &SteeredSocket) -> u64 {
    socket.packets_by_cpu.values().sum()
}

fn listed(cpus: &[u32]) -> String {
    if cpus.is_empty() { "-".to_owned() } else { format::cpu_list(cpus) }
}

/// What the program left to the kernel's hash.
fn hash_fallback_lines(steered: &SteeredSockets, style: TextStyle) -> Vec<String> {
    let some: BTreeMap<_, _> = steered.hashed_by_cpu.iter().filter(|(_, packets)| **packets > 0).collect();
    if some.is_empty() {
        return Vec::new();
    }
    let packets: u64 = some.values().copied().sum();
    let cpus: Vec<u32> = some.keys().map(|cpu| **cpu).collect();
    let text = format!(
        "{} packets of CPU {} were left to the kernel's hash, since no socket of theirs was there",
        format::grouped(packets),
        format::cpu_list(&cpus)
    );
    TextColumn { style, before: 4, label: 0 }
        .labelled("", &text)
        .iter()
        .map(|line| style.paint(TextTone::Warn, line))
        .collect()
}

/// The server as it is seen now.
fn server_state_lines(boost: &ActiveBoost, style: TextStyle) -> Vec<String> {
    let column = TextColumn { style, before: 2, label: 10 };
    let now = match &boost.now {
        Known::Value(now) => now,
        Known::Unknown { why } => return column.labelled("now", why),
    };
    let mut lines = column.labelled("now", &format!("{}.", boost_plan::delivery_text(&now.landed.agreement)));
    for text in troubles(now) {
        lines.extend(column.labelled("", &text).iter().map(|line| style.paint(TextTone::Warn, line)));
    }
    lines
}

fn troubles(now: &BoostedServerState) -> Vec<String> {
    let unread: Vec<String> = now.unread_sockets.iter().map(u64::to_string).collect();
    let unread = (!unread.is_empty())
        .then(|| format!("nobody was seen to read {} {}", noun(unread.len()), unread.join(", ")));
    let wanted = (now.changes_wanted > 0).then(|| {
        format!("{} would put it right: linerate boost apply", count_with_noun(now.changes_wanted, "change"))
    });
    unread.into_iter().chain(wanted).collect()
}

fn noun(sockets: usize) -> &'static str {
    if sockets == 1 { "socket" } else { "sockets" }
}

#[cfg(test)]
mod tests;
