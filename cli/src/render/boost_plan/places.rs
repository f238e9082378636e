//! Which CPU's packets go where.

use std::collections::BTreeMap;

use linerate_tune::boost::plan::CpuAssignment;

use super::{MOST, heading, hidden_rows_note};
use crate::command::boost::BoostPlanDocument;
use crate::render::column::TextColumn;
use crate::render::format;
use crate::render::style::TextStyle;
use crate::render::table::TextTable;

/// A line for each CPU that packets arrive on or that threads are to run on, and what becomes of the others.
pub(super) fn lines(planned: &BoostPlanDocument<'_>, full: bool, style: TextStyle) -> Vec<String> {
    let places = &planned.boost.places;
    if places.is_empty() {
        return Vec::new();
    }
    let arrived = arrivals_by_cpu(planned);
    let total: u64 = arrived.values().sum();
    let (told, others): (Vec<&CpuAssignment>, Vec<&CpuAssignment>) =
        places.iter().partition(|place| full || place.receives || !place.threads.is_empty());
    let mut table = TextTable::new(&[">CPU", ">datagrams", "read by thread", "sockets"]);
    for place in &told {
        let came = arrived.get(&place.cpu).copied().unwrap_or(0);
        let came = match total {
            0 if place.receives => "yes".to_owned(),
            0 => "-".to_owned(),
            _ => format!("{} ({})", format::grouped(came), format::percent(came as f64 / total as f64)),
        };
        table.row(vec![place.cpu.to_string(), came, threads(planned, place), listed(&place.sockets)]);
    }
    let most = if full { usize::MAX } else { MOST };
    let mut lines = heading("where each CPU's packets are to go", style);
    lines.extend(table.lines(2, most, style));
    lines.extend(hidden_rows_note(told.len().saturating_sub(most), style));
    if !others.is_empty() {
        let cpus: Vec<u32> = others.iter().map(|place| place.cpu).collect();
        let (noun, verb) = if cpus.len() == 1 { ("CPU", "is") } else { ("CPUs", "are") };
        let text = format!(
            "Should packets come by {noun} {} too, they {verb} read by the thread nearest to it.",
            format::cpu_list(&cpus)
        );
        lines.extend(TextColumn { style, before: 2, label: 0 }.labelled("", &text));
    }
    lines
}

/// Datagrams by the CPU they arrived on.
fn arrivals_by_cpu(planned: &BoostPlanDocument<'_>) -> BTreeMap<u32, u64> {
    let mut arrived = BTreeMap::new();
    for socket in planned.agreement.value().into_iter().flat_map(|agreement| &agreement.sockets) {
        for (cpu, packets) in &socket.arrived {
            *arrived.entry(*cpu).or_default() += packets;
        }
    }
    arrived
}

/// The threads that are to run there, or those elsewhere that read its sockets.
fn threads(planned: &BoostPlanDocument<'_>, place: &CpuAssignment) -> String {
    if !place.threads.is_empty() {
        return listed(&place.threads);
    }
    let elsewhere = planned.boost.places.iter().filter(|other| {
        !other.threads.is_empty() && other.sockets.iter().any(|socket| place.sockets.contains(socket))
    });
    let cpus: Vec<u32> = elsewhere.map(|place| place.cpu).collect();
    if cpus.is_empty() { "-".to_owned() } else { format!("on CPU {}", format::cpu_list(&cpus)) }
}

fn listed<T: ToString>(items: &[T]) -> String {
    let items: Vec<String> = items.iter().map(ToString::to_string).collect();
    if items.is_empty() { "-".to_owned() } else { items.join(" ") }
}
