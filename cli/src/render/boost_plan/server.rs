//! Processes and threads of a server.

use linerate_host::Known;
use linerate_tune::boost::discovery::{ObservedServer, ReaderThread, ServerProcess};

use super::{MOST, heading, hidden_rows_note};
use crate::render::format;
use crate::render::style::TextStyle;
use crate::render::table::TextTable;
use crate::render::tune_plan::count_with_noun;

/// A line a process, with the threads of it that read.
pub(super) fn lines(server: &ObservedServer, full: bool, style: TextStyle) -> Vec<String> {
    let mut lines = heading("the server", style);
    let mut table = TextTable::new(&[">process", "name", "parent", "part"]);
    for process in &server.processes {
        let parent = process.parent.map_or_else(|| "-".to_owned(), |parent| parent.to_string());
        table.row(vec![process.pid.to_string(), process.name.clone(), parent, part(server, process)]);
    }
    let most = if full { usize::MAX } else { MOST };
    lines.extend(table.lines(2, most, style));
    lines.extend(hidden_rows_note(server.processes.len().saturating_sub(most), style));
    lines
}

/// What a process does in the server.
fn part(server: &ObservedServer, process: &ServerProcess) -> String {
    let threads = usize::try_from(process.threads).unwrap_or(usize::MAX);
    let readers: Vec<&ReaderThread> =
        server.readers.iter().filter(|reader| reader.pid == process.pid).collect();
    if readers.is_empty() {
        let does = if process.reads { "reads, by a thread that is not known" } else { "only holds sockets" };
        return format!("{does}; {}", count_with_noun(threads, "thread"));
    }
    let reading = match readers.len() {
        1 if threads == 1 => "reads, 1 thread".to_owned(),
        some => format!("{some} of {} read", count_with_noun(threads, "thread")),
    };
    format!("{reading}, {}", on_cpus(&readers))
}

/// Where threads may run.
fn on_cpus(readers: &[&ReaderThread]) -> String {
    let single =
        |reader: &&&ReaderThread| reader.allowed.value().is_some_and(|cpus| cpus.iter().count() == 1);
    let unknown = readers.iter().any(|reader| matches!(reader.allowed, Known::Unknown { .. }));
    match readers.iter().filter(single).count() {
        _ if unknown => "CPUs unknown".to_owned(),
        0 => match readers.first().and_then(|reader| reader.allowed.value()) {
            Some(cpus) => format!("not pinned (CPUs {})", format::cpu_list(&cpus.iter().collect::<Vec<_>>())),
            None => "not pinned".to_owned(),
        },
        all if all == readers.len() => {
            let cpus = readers.iter().filter_map(|reader| reader.allowed.value()?.iter().next());
            let mut cpus: Vec<u32> = cpus.collect();
            cpus.sort_unstable();
            format!("pinned (CPU {})", format::cpu_list(&cpus))
        }
        some => format!("{some} pinned"),
    }
}
