//! Lines of `linerate boost run`.

use std::net::SocketAddr;

use linerate_host::Known;
use linerate_tune::boost::replicas::{
    CopyState, ReplicaEvent, ReplicaLeftover, ReplicaSetState, ServerHandover,
};

use crate::document::{Block, Section, Table, Tone};
use crate::render::format::{self, comma_list, count_with_noun};

/// A set of copies, for `boost status`.
pub(super) fn set_section(set: &ReplicaSetState) -> Section {
    let ports = if set.ports.is_empty() {
        "no port yet".to_owned()
    } else {
        format!("port {}", comma_list(&set.ports))
    };
    let row = |copy: &CopyState| {
        [
            copy.copy.to_string(),
            if copy.processes.is_empty() { "none".to_owned() } else { comma_list(&copy.processes) },
            text_or_unknown(&copy.cpus, |cpus| format::cpu_list(&cpus.iter().collect::<Vec<_>>())),
            text_or_unknown(&copy.restarts, u32::to_string),
        ]
    };
    let table = Table::new(">copy | processes | CPUs | >restarts");
    let mut section = Section::new(format!("{} on {ports}", count_with_noun(set.copies.len(), "replica")))
        .with(table.with_rows(set.copies.iter().map(row)));
    if set.is_replaced {
        section = section.with("Other copies have taken the port over; these are being ended.".to_owned());
    } else if !set.is_supervised {
        let port = set.ports.first().map_or_else(String::new, |port| format!(" --port {port}"));
        let text = format!(
            "linerate process {}, which started them, was killed: copies that end are not started again. linerate boost \
             undo{port} ends them.",
            set.supervisor
        );
        section = section.with(Block::Paragraph(Tone::Warn, text));
    }
    section
}

fn text_or_unknown<T>(value: &Known<T>, to_text: impl Fn(&T) -> String) -> String {
    value.value().map_or_else(|| "unknown".to_owned(), to_text)
}

pub(crate) fn event(event: &ReplicaEvent) -> String {
    let line = match event {
        ReplicaEvent::Removed(leftover) => return removed_text(leftover),
        ReplicaEvent::Serving { local, cpus } => {
            format!("{local}: {} on CPU {}.", count_with_noun(cpus.len(), "replica"), comma_list(cpus))
        }
        ReplicaEvent::NotSteered { local, why } => {
            format!("udp {local} is not steered: {why}. The kernel's hash chooses the copy.")
        }
        ReplicaEvent::BoundAgain { copy, local, sockets } => format!(
            "Copy {copy} has {sockets} sockets of udp {local}. Its datagrams are shared among them: check that it reads all."
        ),
        ReplicaEvent::SlowStart { port, bound, missing, after: waited } => {
            let port_text = match port {
                Some(port) => format!("port {port}"),
                None => "a port that they share".to_owned(),
            };
            let list = |locals: &[SocketAddr]| comma_list(locals.iter().map(|local| format!("udp {local}")));
            let bound_text = if bound.is_empty() { "no UDP port".to_owned() } else { list(bound) };
            let missing_text = match bound.is_empty() || missing.is_empty() {
                true => String::new(),
                false => {
                    format!(" The old server has {}: both have to bind the same addresses.", list(missing))
                }
            };
            let seconds = waited.as_secs();
            format!(
                "After {seconds} s not every copy has {port_text}. Bound so far: {bound_text}.{missing_text} Still waiting."
            )
        }
        ReplicaEvent::SlowHandover { after: waited } => {
            let seconds = waited.as_secs();
            format!(
                "After {seconds} s every copy has the port, but not every copy waits for datagrams on it (or answers the \
                 probe). The old server goes on. Still waiting; Ctrl-C ends the new copies."
            )
        }
        ReplicaEvent::Replaced(handover) => replaced_text(handover),
        ReplicaEvent::Canceled { remaining } => {
            format!("The replicas end. Process {} of the old server still runs.", comma_list(remaining))
        }
        ReplicaEvent::HandedOver => {
            "Another linerate boost replace has taken the port over: copies that end are not started again."
                .to_owned()
        }
        ReplicaEvent::Resumed => {
            "The other linerate boost replace was interrupted: copies that end are started again.".to_owned()
        }
        ReplicaEvent::Failed { why } => format!("Warning: {why}. The copies go on; linerate tries again."),
        ReplicaEvent::Ended { copy, status, again_in } if again_in.is_zero() => {
            format!("Copy {copy} ended ({status}) and is started again.")
        }
        ReplicaEvent::Ended { copy, status, again_in } => {
            let seconds = again_in.as_secs_f64();
            format!("Copy {copy} ended ({status}) and is started again in {seconds:.1} s.")
        }
        ReplicaEvent::Back { copy, after: waited } => {
            format!("Copy {copy} serves again after {:.2} s.", waited.as_secs_f64())
        }
    };
    line + "\n"
}

pub(crate) fn removed_text(leftover: &ReplicaLeftover) -> String {
    let ReplicaLeftover { supervisor, processes } = leftover;
    format!(
        "Ended the replicas of linerate process {supervisor}, which was killed ({processes} processes).\n"
    )
}

fn replaced_text(handover: &ServerHandover) -> String {
    let milliseconds = handover.drained_in.as_secs_f64() * 1e3;
    let mut line = format!("Port {} is taken over. The old server ", handover.port);
    line += &match handover.unread {
        Some(0) => format!("read its last datagram after {milliseconds:.0} ms"),
        Some(unread) => {
            format!("left datagrams of {unread} bytes unread, and read nothing for the last seconds")
        }
        None => "may have left datagrams unread".to_owned(),
    };
    if !handover.ended.is_empty() {
        line += &format!(", and process {} has ended", comma_list(&handover.ended));
    }
    line += ".";
    let drops = [("old", handover.old_drops), ("new", handover.new_drops)];
    for (side, drop_count) in drops.into_iter().filter_map(|(side, drops)| Some((side, drops?))) {
        if drop_count > 0 {
            line += &format!(
                " {} found a buffer of the {side} server full.",
                count_with_noun(usize::try_from(drop_count).unwrap_or(usize::MAX), "datagram")
            );
        }
    }
    for error in &handover.errors {
        line += &format!(" Warning: {error}.");
    }
    if !handover.remaining.is_empty() {
        line += &format!(" Process {} still runs: end it (kill -9).", comma_list(&handover.remaining));
    }
    line
}
