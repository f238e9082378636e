//! A reuseport group of the live host: its sockets, their steering, and copies of their
//! descriptors.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;

use rustix::net::sockopt::socket_cookie;

use super::program::SteeringMaps;
use super::table::ReuseportGroup;
use crate::netlink::sock_diag::SocketProtocol;
use crate::netlink::{DiagSocket, diag_sockets};
use crate::process::copy::copy;
use crate::process::owners::DescriptorOwners;
use crate::reuseport::{self, ChoosingProgram, GroupChooser};
use crate::root::ExplainedErrno;
use crate::{Host, Known};

pub(super) enum GroupSteering {
    None,
    /// linerate's program.
    Ours(Box<SteeringMaps>),
    /// A description of another program.
    Foreign(String),
}

pub(super) struct GroupMembers {
    what: String,
    sockets: BTreeMap<u64, DiagSocket>,
    owners: DescriptorOwners,
}

/// Sockets by cookie. `ENOENT` if there are none.
pub(super) fn sockets(group: &ReuseportGroup) -> io::Result<BTreeMap<u64, DiagSocket>> {
    let ReuseportGroup { namespace, protocol, local } = *group;
    check_namespace(namespace)?;
    let family = if local.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let entries = diag_sockets(family, protocol)?;
    let is_at_address =
        |socket: &DiagSocket| socket.local.ip() == local.ip() && socket.local.port() == local.port();
    let sockets: BTreeMap<u64, DiagSocket> = entries
        .into_iter()
        .filter(is_at_address)
        .filter_map(|socket| Some((socket.cookie.filter(|cookie| *cookie != 0)?, socket)))
        .collect();
    if sockets.is_empty() {
        let words = format!("no {} socket is bound to {local}", protocol.name());
        return Err(ExplainedErrno::error(libc::ENOENT, words));
    }
    Ok(sockets)
}

pub(super) fn steering(
    protocol: SocketProtocol,
    sockets: &BTreeMap<u64, DiagSocket>,
) -> io::Result<GroupSteering> {
    let mut members = reuseport::read_members(protocol)?;
    members.retain(|member| sockets.contains_key(&member.cookie));
    let Some(first) = members.first() else { return Ok(GroupSteering::None) };
    if members.iter().any(|other| (&other.chooser, &other.program) != (&first.chooser, &first.program)) {
        return Err(io::Error::other("its sockets are in several groups, which are steered differently"));
    }
    Ok(match (first.chooser, &first.program) {
        (GroupChooser::Kernel, _) => GroupSteering::None,
        (GroupChooser::Classic, _) => GroupSteering::Foreign("classic".into()),
        (GroupChooser::ClassicByCpu, _) => GroupSteering::Foreign("classic-by-cpu".into()),
        (GroupChooser::Extended, None) => GroupSteering::Foreign("program".into()),
        (GroupChooser::Extended, Some(program)) => {
            let maps = match program.name.as_str() {
                ChoosingProgram::STEER => SteeringMaps::of(program.id)?,
                _ => None,
            };
            let name = if program.name.is_empty() { "of no name" } else { &program.name };
            let foreign_program = || GroupSteering::Foreign(format!("program {name} (id {})", program.id));
            maps.map_or_else(foreign_program, |maps| GroupSteering::Ours(Box::new(maps)))
        }
    })
}

impl GroupMembers {
    /// Finds the processes that hold these sockets.
    pub(super) fn of(group_name: String, sockets: BTreeMap<u64, DiagSocket>) -> Self {
        Self { what: group_name, sockets, owners: DescriptorOwners::observe(&Host::live()) }
    }

    pub(super) fn cookies(&self) -> impl Iterator<Item = u64> {
        self.sockets.keys().copied()
    }

    // Number of different interfaces that its sockets are bound to; unbound sockets count as one
    // more. There are at least this many groups.
    pub(super) fn interface_count(&self) -> usize {
        let mut indices: Vec<u32> = self.sockets.values().map(|socket| socket.interface_index).collect();
        indices.sort_unstable();
        indices.dedup();
        indices.len()
    }

    pub(super) fn contains(&self, cookie: u64) -> bool {
        self.sockets.contains_key(&cookie)
    }

    pub(super) fn copy_any(&self) -> io::Result<OwnedFd> {
        let mut failure = None;
        for cookie in self.cookies() {
            match self.copy(cookie) {
                Ok(socket) => return Ok(socket),
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        Err(failure.unwrap_or_else(|| io::ErrorKind::NotFound.into()))
    }

    /// A copy of the descriptor from any process that holds the socket.
    pub(super) fn copy(&self, cookie: u64) -> io::Result<OwnedFd> {
        let socket = self.sockets.get(&cookie).ok_or(io::ErrorKind::NotFound)?;
        let holders = match self.owners.descriptors_of(socket.inode) {
            Known::Value(holders) => holders,
            Known::Unknown { why } => return Err(ExplainedErrno::error(libc::EPERM, why)),
        };
        let mut failure = None;
        for holder in holders {
            match copy(socket.inode, holder) {
                Ok(copied) if socket_cookie(&copied)? == cookie => return Ok(copied),
                Ok(_) => {}
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        let no_holder_error = || {
            let message =
                format!("{}: socket {cookie} is held by no process that is visible here", self.what);
            io::Error::other(message)
        };
        Err(failure.unwrap_or_else(no_holder_error))
    }
}

/// Fails in another network namespace, because the kernel lists only the sockets and groups of the
/// calling thread's namespace.
fn check_namespace(namespace: u64) -> io::Result<()> {
    let current = u64::from(crate::bpf::network_namespace()?);
    if current == namespace {
        return Ok(());
    }
    Err(io::Error::other(format!(
        "it is in network namespace {namespace} and this is {current}: run linerate with \
         --netns PID, a process of the server"
    )))
}
