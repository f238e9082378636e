//! Lines of `linerate boost run`.

use linerate_tune::boost::replicas::{ReplicaEvent, ReplicaLeftover, ServerHandover};

use crate::render::format::count_with_noun;

pub(crate) fn event(event: &ReplicaEvent) -> String {
    let line = match event {
        ReplicaEvent::Removed(leftover) => return removed(leftover),
        ReplicaEvent::Serving { local, cpus } => {
            let cpus: Vec<String> = cpus.iter().map(u32::to_string).collect();
            format!("{local}: {} on CPU {}.", count_with_noun(cpus.len(), "replica"), cpus.join(", "))
        }
        ReplicaEvent::NotSteered { local, why } => {
            format!("udp {local} is not steered: {why}. The kernel's hash chooses the copy.")
        }
        ReplicaEvent::BoundAgain { copy, local, sockets } => format!(
            "Copy {copy} has {sockets} sockets of udp {local}. Its datagrams are shared among them: check that it reads all."
        ),
        ReplicaEvent::SlowStart { port, bound, after } => {
            let wanted = match port {
                Some(port) => format!("port {port}"),
                None => "a port that they share".to_owned(),
            };
            let bound: Vec<String> = bound.iter().map(|local| format!("udp {local}")).collect();
            let bound = match bound.is_empty() {
                true => "no UDP port".to_owned(),
                false => bound.join(", "),
            };
            let seconds = after.as_secs();
            format!("After {seconds} s not every copy has {wanted}. Bound so far: {bound}. Still waiting.")
        }
        ReplicaEvent::Replaced(handover) => replaced(handover),
        ReplicaEvent::Ended { copy, status, again_in } if again_in.is_zero() => {
            format!("Copy {copy} ended ({status}) and is started again.")
        }
        ReplicaEvent::Ended { copy, status, again_in } => {
            let seconds = again_in.as_secs_f64();
            format!("Copy {copy} ended ({status}) and is started again in {seconds:.1} s.")
        }
        ReplicaEvent::Back { copy, after } => {
            format!("Copy {copy} serves again after {:.2} s.", after.as_secs_f64())
        }
    };
    line + "\n"
}

pub(crate) fn removed(leftover: &ReplicaLeftover) -> String {
    let ReplicaLeftover { supervisor, processes } = leftover;
    format!(
        "Ended the replicas of linerate process {supervisor}, which was killed ({processes} processes).\n"
    )
}

fn replaced(handover: &ServerHandover) -> String {
    let list = |pids: &[u32]| pids.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
    let milliseconds = handover.drained_in.as_secs_f64() * 1e3;
    let mut line = format!(
        "Port {} is taken over. The old server read its last datagram after {milliseconds:.0} ms",
        handover.port
    );
    if !handover.ended.is_empty() {
        line += &format!(", and process {} has ended", list(&handover.ended));
    }
    line += ".";
    if !handover.left.is_empty() {
        line += &format!(" Process {} still runs: end it (kill -9).", list(&handover.left));
    }
    line
}
