//! The observed server: processes, sockets, and the CPUs of its packets.

use std::collections::BTreeMap;

use linerate_host::Known;
use linerate_host::setting::SteeringTable;
use linerate_host::stage::socket::SocketProtocol;
use linerate_tune::boost::delivery::SocketAgreement;
use linerate_tune::boost::discovery::{
    GroupSocket, ObservedServer, ReaderEvidence, ReaderThread, ServerGroup, ServerProcess,
};
use linerate_tune::boost::plan::CpuAssignment;
use linerate_tune::boost::report::BoostPlanReport;

use super::limited;
use crate::document::{Section, Table};
use crate::render::format::{self, count_with_noun, known_text};

pub(super) fn processes(server: &ObservedServer) -> Section {
    let table =
        Table::new(">process | name | parent | role").with_rows(server.processes.iter().map(|process| {
            let parent = process.parent.map_or_else(|| "-".to_owned(), |parent| parent.to_string());
            [process.pid.to_string(), process.name.clone(), parent, role(server, process)]
        }));
    Section::new("Processes").with(limited(table))
}

fn role(server: &ObservedServer, process: &ServerProcess) -> String {
    let threads = usize::try_from(process.threads).unwrap_or(usize::MAX);
    let readers: Vec<&ReaderThread> =
        server.readers.iter().filter(|reader| reader.pid == process.pid).collect();
    if readers.is_empty() {
        let role_text = if process.reads { "reads, by an unknown thread" } else { "only holds sockets" };
        return format!("{role_text}; {}", count_with_noun(threads, "thread"));
    }
    let reading_text = match readers.len() {
        1 if threads == 1 => "reads, 1 thread".to_owned(),
        count => format!("{count} of {} read", count_with_noun(threads, "thread")),
    };
    format!("{reading_text}, {}", allowed_cpus(&readers))
}

fn allowed_cpus(readers: &[&ReaderThread]) -> String {
    let is_pinned =
        |reader: &&&ReaderThread| reader.allowed.value().is_some_and(|cpus| cpus.iter().count() == 1);
    let has_unknown = readers.iter().any(|reader| matches!(reader.allowed, Known::Unknown { .. }));
    match readers.iter().filter(is_pinned).count() {
        _ if has_unknown => "CPUs unknown".to_owned(),
        0 => match readers.first().and_then(|reader| reader.allowed.value()) {
            Some(cpus) => format!("not pinned (CPUs {})", format::cpu_list(&cpus.iter().collect::<Vec<_>>())),
            None => "not pinned".to_owned(),
        },
        count if count == readers.len() => {
            let cpus = readers.iter().filter_map(|reader| reader.allowed.value()?.iter().next());
            let mut cpus: Vec<u32> = cpus.collect();
            cpus.sort_unstable();
            format!("pinned (CPU {})", format::cpu_list(&cpus))
        }
        count => format!("{count} pinned"),
    }
}

/// One table per group.
pub(super) fn sockets(report: &BoostPlanReport, full: bool) -> Section {
    report.server.groups.iter().fold(Section::new("Sockets"), |section, group| {
        section.with(group_title(group)).with(limited(member_table(report, group, full)))
    })
}

fn group_title(group: &ServerGroup) -> String {
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

fn selection_text(steering: &Known<String>) -> String {
    match steering {
        Known::Unknown { why } => format!("chosen by a method that could not be read: {why}"),
        Known::Value(text) => match text.as_str() {
            "none" => "chosen by the kernel's hash of the flow".to_owned(),
            "classic-by-cpu" => {
                "chosen by CPU by a classic BPF program, its own or another tool's".to_owned()
            }
            "classic" => "chosen by a classic BPF program, its own or another tool's".to_owned(),
            text if text.parse::<SteeringTable>().is_ok() => "chosen by CPU by linerate".to_owned(),
            text => format!("chosen by {text}, its own or another tool's"),
        },
    }
}

fn member_table(report: &BoostPlanReport, group: &ServerGroup, full: bool) -> Table {
    let agreement = report.agreement.value();
    let row = |(position, member): (usize, &GroupSocket)| {
        let socket_agreement = agreement.and_then(|agreement| {
            agreement.sockets.iter().find(|socket| socket.cookie == member.socket.cookie)
        });
        let position = if group.ordered { position.to_string() } else { "-".to_owned() };
        let readers: Vec<&ReaderThread> = report.server.readers_of(member.socket.cookie).collect();
        let (datagrams, same_cpu_share) = match (group.protocol, socket_agreement) {
            (SocketProtocol::Udp, Some(matched)) => delivery_cells(report, matched),
            (SocketProtocol::Udp, None) if agreement.is_some() => ("0".to_owned(), "-".to_owned()),
            _ => ("-".to_owned(), "-".to_owned()),
        };
        [
            position,
            member.socket.cookie.to_string(),
            known_text(member.receive_buffer_bytes, |bytes| (bytes / 1024).to_string()),
            known_text(member.drops, format::grouped),
            datagrams,
            same_cpu_share,
            readers_text(&readers, member, full),
        ]
    };
    let headings = "># | >socket | >buffer KiB | >lost | >datagrams | >on its CPU | read by";
    Table::new(headings).with_rows(group.members.iter().enumerate().map(row))
}

/// Datagrams of a socket, and the share that was read on the CPU of their arrival.
fn delivery_cells(report: &BoostPlanReport, socket_agreement: &SocketAgreement) -> (String, String) {
    let arrivals: u64 = socket_agreement.arrived.iter().map(|(_, packets)| packets).sum();
    let (mut read_packets, mut read_on_arrival_cpu) = (0, 0);
    let delivery = report.server.delivery.value();
    for item in delivery.into_iter().flat_map(|delivery| &delivery.read) {
        let Some(arrived_on) = item.arrived_on.filter(|_| item.cookie == socket_agreement.cookie) else {
            continue;
        };
        read_packets += item.packets;
        read_on_arrival_cpu += if arrived_on == item.read_on { item.packets } else { 0 };
    }
    let share = if read_packets == 0 {
        "-".to_owned()
    } else {
        format::percent(read_on_arrival_cpu as f64 / read_packets as f64)
    };
    (format::grouped(arrivals), share)
}

/// The threads that read a socket, and the evidence for each.
fn readers_text(readers: &[&ReaderThread], member: &GroupSocket, full: bool) -> String {
    /// Threads in the short form.
    const NAMED: usize = 3;
    let max_named = if full { usize::MAX } else { NAMED };
    match readers {
        [] => match member.holders.first() {
            Some((pid, _)) => format!("no thread seen; process {pid} holds it"),
            None => "no thread seen".to_owned(),
        },
        [reader] => format!("{} {} ({})", reader.tid, reader.name, evidence_text(reader, member)),
        [first, ..] => {
            let threads = match readers.len() <= max_named {
                true => format::comma_list(readers.iter().map(|reader| reader.tid)),
                false => format!("{} of", count_with_noun(readers.len(), "thread")),
            };
            format!("{threads} {} ({})", first.name, evidence_text(first, member))
        }
    }
}

fn evidence_text(reader: &ReaderThread, member: &GroupSocket) -> &'static str {
    match reader.seen {
        // The thread was seen at another socket.
        evidence if evidence < ReaderEvidence::Ring && reader.guessed.contains(&member.socket.cookie) => {
            "assumed"
        }
        ReaderEvidence::Reading => "seen to read",
        ReaderEvidence::InCall => "waits in a call on it",
        ReaderEvidence::Polling => "waits for it in epoll",
        ReaderEvidence::Ring => "io_uring",
        ReaderEvidence::OnlyThread => "the only thread",
        ReaderEvidence::Assumed => "assumed",
    }
}

/// The CPUs with packets or threads; `full` adds the other CPUs.
pub(super) fn assignments(report: &BoostPlanReport, full: bool) -> Option<Section> {
    let assignments = &report.boost.places;
    let arrivals = arrivals_by_cpu(report);
    let total: u64 = arrivals.values().sum();
    let (listed_places, other_places): (Vec<&CpuAssignment>, Vec<&CpuAssignment>) = assignments
        .iter()
        .partition(|assignment| full || assignment.receives || !assignment.threads.is_empty());
    let row = |assignment: &&CpuAssignment| {
        let packets = arrivals.get(&assignment.cpu).copied().unwrap_or(0);
        let packets_text = match total {
            0 if assignment.receives => "yes".to_owned(),
            0 => "-".to_owned(),
            _ => format!("{} ({})", format::grouped(packets), format::percent(packets as f64 / total as f64)),
        };
        [
            assignment.cpu.to_string(),
            packets_text,
            threads_text(assignments, assignment),
            list_text(&assignment.sockets),
        ]
    };
    let table = Table::new(">CPU | >datagrams | read by thread | sockets");
    let section = Section::new("CPUs of packets and threads")
        .with(limited(table.with_rows(listed_places.iter().map(row))));
    let section = match other_places.iter().map(|assignment| assignment.cpu).collect::<Vec<_>>().as_slice() {
        [] => section,
        [cpu] => {
            section.with(format!("Packets that come by CPU {cpu} are read by the thread nearest to it."))
        }
        cpus => section.with(format!(
            "Packets that come by CPUs {} are read by the thread nearest to them.",
            format::cpu_list(cpus)
        )),
    };
    (!assignments.is_empty()).then_some(section)
}

fn arrivals_by_cpu(report: &BoostPlanReport) -> BTreeMap<u32, u64> {
    let mut arrivals = BTreeMap::new();
    for socket in report.agreement.value().into_iter().flat_map(|agreement| &agreement.sockets) {
        for (cpu, packets) in &socket.arrived {
            *arrivals.entry(*cpu).or_default() += packets;
        }
    }
    arrivals
}

/// The threads that run on the CPU, or the CPUs of the threads that read its sockets.
fn threads_text(assignments: &[CpuAssignment], assignment: &CpuAssignment) -> String {
    if !assignment.threads.is_empty() {
        return list_text(&assignment.threads);
    }
    let serving_places = assignments.iter().filter(|candidate| {
        !candidate.threads.is_empty()
            && candidate.sockets.iter().any(|socket| assignment.sockets.contains(socket))
    });
    let cpus: Vec<u32> = serving_places.map(|assignment| assignment.cpu).collect();
    if cpus.is_empty() { "-".to_owned() } else { format!("on CPU {}", format::cpu_list(&cpus)) }
}

fn list_text<T: ToString>(items: &[T]) -> String {
    let items: Vec<String> = items.iter().map(ToString::to_string).collect();
    if items.is_empty() { "-".to_owned() } else { items.join(" ") }
}
