//! The changes for the units: the CPUs of their threads, and the choice among their sockets.

use linerate_host::setting::{SocketKnob, SteeringTable};
use linerate_host::{Setting, SettingValue};

use super::group::{OwnedGroup, SteeringMethod, incoming_cpu, name};
use super::unit::ThreadPlacement;
use crate::boost::ObservedServer;
use crate::plan::PlannedChange;

/// Source of the figures and of the mechanism of steering.
const MAKITA: &str = "T. Makita, Boost UDP Transaction Performance (2016)";

/// The effect of steering, from the same source.
const STEERED: &str = "2.54 to 4.25 million transactions/s on 20 cores.";

pub(super) fn change(setting: Setting, from: String, to: String, reason: String) -> PlannedChange {
    PlannedChange::new(setting, SettingValue::new(from), SettingValue::new(to), reason)
}

/// Pins a thread to the CPU of its unit; `None` if it is bound to the CPU already. An error has the
/// reason why it cannot be pinned.
pub(super) fn pin(unit: &ThreadPlacement<'_>) -> Result<Option<PlannedChange>, String> {
    if unit.is_bound() {
        return Ok(None);
    }
    let reader = unit.reader;
    let allowed = reader.allowed.value().ok_or_else(|| {
        let error = reader.allowed.why().unwrap_or_default();
        format!("its CPU affinity cannot be read, so undo could not restore it ({error})")
    })?;
    let setting = Setting::ThreadCpus { pid: reader.pid, tid: reader.tid, started: reader.started };
    let reason = format!(
        "Thread {} of {} reads the sockets that get the packets of CPU {}.",
        reader.tid, reader.name, unit.cpu
    );
    let effect =
        "4.25 to 5.05 million transactions/s on 20 cores from running each thread on the CPU of its socket.";
    let risk = "It gets no other CPU while softirq or other threads keep this one busy. Threads that it starts from then on \
                inherit it.";
    Ok(Some(PlannedChange {
        effect: Some(effect.to_owned()),
        source: Some(MAKITA.to_owned()),
        risk: Some(risk.to_owned()),
        ..change(setting, allowed.to_string(), unit.cpu.to_string(), reason)
    }))
}

/// Attaches a program that chooses by the table.
pub(super) fn steer(
    server: &ObservedServer,
    owned: &OwnedGroup<'_>,
    current_table: Option<&SteeringTable>,
    table: &SteeringTable,
) -> PlannedChange {
    let group = owned.group;
    let setting =
        Setting::Steering { namespace: server.namespace, protocol: group.protocol, local: group.local };
    let from = current_table.map_or_else(|| "none".to_owned(), ToString::to_string);
    let situation =
        if current_table.is_some() { "The program has another table." } else { "The kernel's hash chooses." };
    let reason = format!(
        "{situation} Of the {} sockets of {} each is to get the packets of its thread's CPU.",
        group.members.len(),
        name(group)
    );
    let risk = "A flow goes to another socket when its packets arrive on another CPU: not for protocols that keep a flow's \
                state in one worker, as QUIC does.";
    PlannedChange {
        effect: Some(STEERED.to_owned()),
        source: Some(MAKITA.to_owned()),
        risk: Some(risk.to_owned()),
        ..change(setting, from, table.to_string(), reason)
    }
}

/// Sets SO_INCOMING_CPU of each socket to the CPU of its unit. An error has the reason why that is
/// not possible.
pub(super) fn set_incoming_cpus(
    owned: &OwnedGroup<'_>,
    units: &[ThreadPlacement<'_>],
    cause: &str,
) -> Result<Vec<PlannedChange>, String> {
    let mut changes = Vec::new();
    for (member, reader) in &owned.sockets {
        let Some(unit) = units.iter().find(|unit| unit.reader.tid == reader.tid) else { continue };
        let current_cpu = incoming_cpu(member)
            .ok_or("the options of its sockets cannot be read, so undo could not restore them")?;
        if current_cpu == Some(unit.cpu) {
            continue;
        }
        let setting = Setting::Socket { socket: member.socket, knob: SocketKnob::IncomingCpu };
        let reason = format!(
            "Socket {} of {} is to get the packets of CPU {}, where thread {} reads it. {cause}",
            member.socket.cookie,
            name(owned.group),
            unit.cpu,
            reader.tid
        );
        let from = current_cpu.map_or_else(|| "none".to_owned(), |cpu| cpu.to_string());
        changes.push(PlannedChange {
            effect: Some(STEERED.to_owned()),
            source: Some(format!("{MAKITA}; Linux 6.2, net/core/sock_reuseport.c")),
            risk: Some("A socket whose thread dies keeps its CPU's packets until it is closed.".to_owned()),
            ..change(setting, from, unit.cpu.to_string(), reason)
        });
    }
    Ok(changes)
}

/// Whether a table has the same effect as the kernel's hash without a program: all sockets of the
/// group for every CPU.
pub(super) fn is_like_hash(owned: &OwnedGroup<'_>, table: &SteeringTable) -> bool {
    let socket_count = owned.group.members.len();
    let has_program = matches!(owned.way, SteeringMethod::Program(Some(_)));
    owned.unread.is_empty() && !has_program && table.by_cpu.values().all(|row| row.len() == socket_count)
}
