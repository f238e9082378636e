//! Whether steering and pinning can help: compares the CPUs on which datagrams are read now with
//! the planned CPUs.

use linerate_host::setting::SteeringTable;
use linerate_host::stage::socket::SocketProtocol;

use super::changes;
use super::group::{OwnedGroup, SteeringMethod};
use super::unit::ThreadPlacement;
use crate::boost::ObservedServer;

/// Least number of datagrams for the comparison.
const ENOUGH: u64 = 300;

/// Shares that differ by less are considered equal.
const TOLERANCE: f64 = 0.02;

/// Whether packets of a group go, or will go, to sockets by CPU. Otherwise a pinned thread only has
/// fewer CPUs.
pub(super) fn is_by_cpu(owned: &OwnedGroup<'_>, table: &SteeringTable) -> bool {
    match owned.way {
        SteeringMethod::Already | SteeringMethod::OwnByCpu | SteeringMethod::Program(Some(_)) => true,
        SteeringMethod::Program(None) | SteeringMethod::IncomingCpu(_) => {
            !table.by_cpu.is_empty() && !changes::is_like_hash(owned, table)
        }
    }
}

/// Why a plan cannot help; `None` if it can, or if too few datagrams were seen. A boosted server
/// stays as it is, so this is `None`, too.
pub(super) fn why_not(
    server: &ObservedServer,
    tables: &[(&OwnedGroup<'_>, SteeringTable)],
    units: &[ThreadPlacement<'_>],
) -> Option<String> {
    if tables.iter().any(|(owned, _)| matches!(owned.way, SteeringMethod::Program(Some(_)))) {
        return None;
    }
    let now = share_now(server, tables)?;
    let planned = share_as_planned(server, tables, units)?;
    let percent = |share: f64| format!("{:.0} %", share * 100.0);
    if planned < now - TOLERANCE {
        return Some(format!(
            "{} of its datagrams are read on the CPU they arrived on now, and {} would be: that is worse",
            percent(now),
            percent(planned)
        ));
    }
    // If packets go by CPU already, a pin keeps a thread on the CPU on which it is only by chance.
    let by_cpu = |(owned, _): &(&OwnedGroup<'_>, _)| {
        matches!(owned.way, SteeringMethod::Already | SteeringMethod::OwnByCpu)
    };
    let keeps = now >= 1.0 - TOLERANCE && tables.iter().any(by_cpu);
    (!keeps && planned < now + TOLERANCE).then(|| {
        format!(
            "{} of its datagrams are read on the CPU they arrived on now, and {} would be: that changes nothing at this load",
            percent(now),
            percent(planned)
        )
    })
}

/// The group of a UDP socket, and its table.
fn of<'t, 's>(
    tables: &'t [(&'t OwnedGroup<'s>, SteeringTable)],
    cookie: u64,
) -> Option<&'t (&'t OwnedGroup<'s>, SteeringTable)> {
    let has =
        |owned: &OwnedGroup<'_>| owned.group.members.iter().any(|member| member.socket.cookie == cookie);
    tables.iter().find(|(owned, _)| owned.group.protocol == SocketProtocol::Udp && has(owned))
}

/// The share of datagrams that are read on their CPU of arrival.
fn share_now(server: &ObservedServer, tables: &[(&OwnedGroup<'_>, SteeringTable)]) -> Option<f64> {
    let (mut all, mut same) = (0, 0);
    for item in server.delivery.value()?.read.iter().filter(|item| of(tables, item.cookie).is_some()) {
        let Some(arrived_on) = item.arrived_on else { continue };
        all += item.packets;
        same += if arrived_on == item.read_on { item.packets } else { 0 };
    }
    (all >= ENOUGH).then(|| same as f64 / all as f64)
}

/// The same share if the threads run as planned and the tables choose the sockets.
fn share_as_planned(
    server: &ObservedServer,
    tables: &[(&OwnedGroup<'_>, SteeringTable)],
    units: &[ThreadPlacement<'_>],
) -> Option<f64> {
    let (mut all, mut same) = (0.0, 0.0);
    for arrival in &server.delivery.value()?.arrived {
        let Some((owned, table)) = of(tables, arrival.cookie) else { continue };
        let own = [arrival.cookie];
        let to = match owned.way {
            SteeringMethod::Already | SteeringMethod::OwnByCpu => &own[..],
            SteeringMethod::Program(_) | SteeringMethod::IncomingCpu(_) => table.by_cpu.get(&arrival.cpu)?,
        };
        let is_there = |cookie: &&u64| {
            let reader = owned.sockets.iter().find(|(member, _)| member.socket.cookie == **cookie);
            let unit = reader.and_then(|(_, reader)| units.iter().find(|unit| unit.reader.tid == reader.tid));
            unit.is_some_and(|unit| unit.cpu == arrival.cpu)
        };
        all += arrival.packets as f64;
        same += arrival.packets as f64 * to.iter().filter(is_there).count() as f64 / to.len().max(1) as f64;
    }
    (all > 0.0).then(|| same / all)
}
