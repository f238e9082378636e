//! Whether steering and pinning can help: compares the CPUs on which datagrams are read now with
//! the planned CPUs.

use linerate_host::setting::SteeringTable;
use linerate_host::stage::socket::SocketProtocol;

use super::changes;
use super::group::{OwnedGroup, SteeringMethod};
use super::unit::ThreadPlacement;
use crate::boost::ObservedServer;
use crate::boost::delivery::DeliveryAgreement;
use crate::boost::discovery::ServerGroup;

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
pub(super) fn skip_reason(
    server: &ObservedServer,
    tables: &[(&OwnedGroup<'_>, SteeringTable)],
    units: &[ThreadPlacement<'_>],
) -> Option<String> {
    if tables.iter().any(|(owned, _)| matches!(owned.way, SteeringMethod::Program(Some(_)))) {
        return None;
    }
    let current_share = share_now(server, tables)?;
    let planned_share = share_as_planned(server, tables, units)?;
    let percent = |share: f64| format!("{:.0} %", share * 100.0);
    if planned_share < current_share - TOLERANCE {
        return Some(format!(
            "{} of its datagrams are read on the CPU they arrived on now, and {} would be: that is worse",
            percent(current_share),
            percent(planned_share)
        ));
    }
    // If packets go by CPU already, a pin keeps a thread on the CPU on which it is only by chance.
    let is_steered = |(owned, _): &(&OwnedGroup<'_>, _)| {
        matches!(owned.way, SteeringMethod::Already | SteeringMethod::OwnByCpu)
    };
    let pins_help = current_share >= 1.0 - TOLERANCE && tables.iter().any(is_steered);
    (!pins_help && planned_share < current_share + TOLERANCE).then(|| {
        format!(
            "{} of its datagrams are read on the CPU they arrived on now, and {} would be: that changes nothing at this load",
            percent(current_share),
            percent(planned_share)
        )
    })
}

/// The group of a UDP socket, and its table.
fn find_group<'t, 's>(
    tables: &'t [(&'t OwnedGroup<'s>, SteeringTable)],
    cookie: u64,
) -> Option<&'t (&'t OwnedGroup<'s>, SteeringTable)> {
    let has_socket = |group: &ServerGroup| group.cookies().any(|own_cookie| own_cookie == cookie);
    tables.iter().find(|(owned, _)| owned.group.protocol == SocketProtocol::Udp && has_socket(owned.group))
}

/// The share of datagrams that are read on their CPU of arrival.
fn share_now(server: &ObservedServer, tables: &[(&OwnedGroup<'_>, SteeringTable)]) -> Option<f64> {
    let groups = tables.iter().map(|(owned, _)| owned.group);
    let agreement = DeliveryAgreement::of_groups(groups, server.delivery.value()?);
    agreement.share().filter(|_| agreement.packets >= ENOUGH)
}

/// The same share if the threads run as planned and the tables choose the sockets.
fn share_as_planned(
    server: &ObservedServer,
    tables: &[(&OwnedGroup<'_>, SteeringTable)],
    units: &[ThreadPlacement<'_>],
) -> Option<f64> {
    let (mut total, mut matching) = (0.0, 0.0);
    for arrival in &server.delivery.value()?.arrived {
        let Some((owned, table)) = find_group(tables, arrival.cookie) else { continue };
        let own_socket = [arrival.cookie];
        let target_sockets = match owned.way {
            SteeringMethod::Already | SteeringMethod::OwnByCpu => &own_socket[..],
            SteeringMethod::Program(_) | SteeringMethod::IncomingCpu(_) => table.by_cpu.get(&arrival.cpu)?,
        };
        let is_on_arrival_cpu = |cookie: &&u64| {
            let reader = owned.sockets.iter().find(|(member, _)| member.socket.cookie == **cookie);
            let unit = reader.and_then(|(_, reader)| units.iter().find(|unit| unit.reader.tid == reader.tid));
            unit.is_some_and(|unit| unit.cpu == arrival.cpu)
        };
        total += arrival.packets as f64;
        matching += arrival.packets as f64 * target_sockets.iter().filter(is_on_arrival_cpu).count() as f64
            / target_sockets.len().max(1) as f64;
    }
    (total > 0.0).then(|| matching / total)
}
