//! Reads and changes the steering of a group of the live host.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::time::{Duration, Instant};

use super::group::{GroupMembers, GroupSteering, sockets, steering};
use super::program::{SteeringMaps, detach, possible_cpus};
use super::table::{ReuseportGroup, SteeredSocket, SteeredSockets, SteeringTable};
use super::table_rows;
use crate::root::ExplainedErrno;

// Least number of spare places for workers that are added later, and for copies that take the port
// over. A place needs 8 bytes, and 8 bytes per CPU.
const SPARE_PLACES: u32 = 64;

// How long a socket may stay in the map of a detached program.
const RELEASE: Duration = Duration::from_secs(2);

pub(super) enum SteeringFailure {
    // The change would not work, or another program steers the group.
    Reason(String),
    Io(io::Error),
}

impl From<io::Error> for SteeringFailure {
    fn from(error: io::Error) -> Self {
        SteeringFailure::Io(error)
    }
}

/// Reads the steering as text.
pub(super) fn read(group: &ReuseportGroup) -> io::Result<String> {
    let sockets = sockets(group)?;
    match steering(group.protocol, &sockets)? {
        GroupSteering::None => Ok("none".into()),
        GroupSteering::Foreign(name) => Ok(name),
        GroupSteering::Ours(program) => Ok(table(&program)?.to_string()),
    }
}

// Counts of linerate's program; `None` if it is not attached.
pub(super) fn steering_counts(group: &ReuseportGroup) -> io::Result<Option<SteeredSockets>> {
    let sockets = sockets(group)?;
    let GroupSteering::Ours(program) = steering(group.protocol, &sockets)? else {
        return Ok(None);
    };
    let (entries, present) = (program.table()?, program.sockets()?);
    let cpus = rows()?;
    let socket = |(place, cookie): (u32, u64)| {
        let present = present.get(&place) == Some(&cookie);
        io::Result::Ok(SteeredSocket { cookie, present, packets_by_cpu: program.chosen(place)? })
    };
    Ok(Some(SteeredSockets {
        by_cpu: table_rows::table(&entries, cpus).by_cpu,
        sockets: table_rows::places(&entries, cpus).into_iter().map(socket).collect::<io::Result<_>>()?,
        hashed_by_cpu: program.hashed()?,
    }))
}

/// Attaches the program with this table, or replaces the table of the attached program.
pub(super) fn steer(group: &ReuseportGroup, new_table: &SteeringTable) -> Result<(), SteeringFailure> {
    let sockets = sockets(group)?;
    let current = steering(group.protocol, &sockets)?;
    let members = GroupMembers::of(group.address(), sockets);
    check(&members, new_table)?;
    match current {
        GroupSteering::Foreign(name) => Err(SteeringFailure::Reason(foreign_program_reason(&name))),
        GroupSteering::Ours(program) if program.follows_quic_ids() != new_table.follows_quic_ids => {
            Err(SteeringFailure::Reason(
                "it is steered by CPU, and by QUIC connection ID is another program, or the reverse: undo the first".into(),
            ))
        }
        GroupSteering::Ours(mut program) => change(&mut program, &members, new_table),
        GroupSteering::None => attach(&members, new_table),
    }
}

pub(super) fn release(group: &ReuseportGroup) -> Result<(), SteeringFailure> {
    let sockets = sockets(group)?;
    let program = match steering(group.protocol, &sockets)? {
        GroupSteering::None => return Ok(()),
        GroupSteering::Foreign(name) => return Err(SteeringFailure::Reason(foreign_program_reason(&name))),
        GroupSteering::Ours(program) => program,
    };
    let members = GroupMembers::of(group.address(), sockets);
    let socket = members.copy_any()?;
    detach(socket.as_fd())?;
    // The kernel removes the sockets later, and until then they cannot be in the map of another
    // program.
    for place in program.sockets()?.into_keys() {
        program.remove_socket(place)?;
    }
    Ok(())
}

/// The reason why another program is left alone.
pub(super) fn foreign_program_reason(name: &str) -> String {
    let name = match name {
        "classic-by-cpu" => "classic, by CPU",
        name => name,
    };
    format!(
        "a steering program is there already ({name}): it is the server's own or another tool's, and is not replaced"
    )
}

fn check(members: &GroupMembers, table: &SteeringTable) -> Result<(), SteeringFailure> {
    // Sockets that were closed since are legal, so that undo can restore the table of workers that
    // ended.
    let open_cookie = table.cookies().find(|cookie| members.contains(*cookie));
    if let (None, Some(cookie)) = (open_cookie, table.cookies().next()) {
        let cookies: Vec<String> = members.cookies().map(|cookie| cookie.to_string()).collect();
        return Err(SteeringFailure::Reason(format!(
            "socket {cookie} is none of the group, whose sockets are {}",
            cookies.join(", ")
        )));
    }
    let last_cpu = rows()?.saturating_sub(1);
    if let Some(cpu) = table.by_cpu.keys().find(|cpu| **cpu > last_cpu) {
        return Err(SteeringFailure::Reason(format!("there is no CPU {cpu}: the last is {last_cpu}")));
    }
    if members.interface_count() > 1 {
        return Err(SteeringFailure::Reason(
            "its sockets are bound to different interfaces, and so several groups".into(),
        ));
    }
    Ok(())
}

/// The program gets its sockets and table before it is attached in one step.
fn attach(members: &GroupMembers, table: &SteeringTable) -> Result<(), SteeringFailure> {
    let socket_count = u32::try_from(members.cookies().count()).map_err(io::Error::other)?;
    let cpu_count = u32::try_from(possible_cpus()?.len()).map_err(io::Error::other)?;
    let (loaded_program, mut program) =
        SteeringMaps::load(places(socket_count, cpu_count), table.follows_quic_ids)?;
    change(&mut program, members, table)?;
    let open_cookie = table
        .cookies()
        .find(|cookie| members.contains(*cookie))
        .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
    Ok(loaded_program.attach(members.copy(open_cookie)?.as_fd())?)
}

/// Places of the program for this number of sockets.
fn places(sockets: u32, cpus: u32) -> u32 {
    sockets.saturating_mul(2).saturating_add(cpus.saturating_mul(2).max(SPARE_PLACES))
}

// Adds new sockets, which no table refers to yet; then replaces the table; then removes unused
// sockets. At each moment every place in the active table holds the intended socket, unless it was
// closed.
fn change(
    program: &mut SteeringMaps,
    members: &GroupMembers,
    new_table: &SteeringTable,
) -> Result<(), SteeringFailure> {
    let cpus = rows()?;
    let present = program.sockets()?;
    let used_places = table_rows::places(&program.table()?, cpus);
    let mut free_places = (0..program.places())
        .filter(|place| !present.contains_key(place) && !used_places.contains_key(place));
    let mut places: BTreeMap<u64, u32> = present.iter().map(|(place, cookie)| (*cookie, *place)).collect();
    let new_cookies: BTreeSet<u64> =
        new_table.cookies().filter(|cookie| !places.contains_key(cookie)).collect();
    let mut additions = Vec::new();
    for cookie in new_cookies {
        let place = free_places.next().ok_or_else(|| {
            SteeringFailure::Reason(format!(
                "the program has no place for socket {cookie}: it has {} (undo it and apply it again, or start fewer \
                 replicas)",
                program.places()
            ))
        })?;
        additions.push((place, cookie));
        places.insert(cookie, place);
    }
    // The place of a closed socket stays empty, as if the socket had been closed later.
    for (place, cookie) in additions.into_iter().filter(|(_, cookie)| members.contains(*cookie)) {
        let socket = members.copy(cookie)?;
        put_when_released(program, place, socket.as_fd()).map_err(|error| put_error(cookie, error))?;
    }
    let entries = table_rows::entries(new_table, &places, cpus)
        .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
    program.activate_table(&entries)?;
    let table_cookies: BTreeSet<u64> = new_table.cookies().collect();
    for (place, _) in present.iter().filter(|(_, cookie)| !table_cookies.contains(cookie)) {
        program.remove_socket(*place)?;
    }
    Ok(())
}

// Adds a socket, and waits until it has left the map of a program that was just detached: the
// kernel frees both in the background after an RCU grace period each, without an event.
fn put_when_released(program: &mut SteeringMaps, place: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
    let start = Instant::now();
    loop {
        match program.put(place, socket) {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) && start.elapsed() < RELEASE => {
                std::thread::sleep(RELEASE / 1000);
            }
            result => return result,
        }
    }
}

// `reuseport_array_update_check` of kernel/bpf/reuseport_array.c.
fn put_error(cookie: u64, error: io::Error) -> SteeringFailure {
    match error.raw_os_error() {
        Some(libc::EBUSY) => SteeringFailure::Reason(format!(
            "socket {cookie} is in a map of another BPF program, or is that of a tunnel: it can be in no other"
        )),
        Some(libc::EINVAL) => SteeringFailure::Reason(format!("socket {cookie} is in no reuseport group")),
        _ => SteeringFailure::Io(error),
    }
}

fn table(program: &SteeringMaps) -> io::Result<SteeringTable> {
    let follows_quic_ids = program.follows_quic_ids();
    Ok(SteeringTable { follows_quic_ids, ..table_rows::table(&program.table()?, rows()?) })
}

/// Rows of a table: the highest possible CPU number plus one.
fn rows() -> io::Result<u32> {
    Ok(possible_cpus()?.into_iter().max().map_or(1, |last| last + 1))
}

// Adds the required capabilities, which the kernel does not report: CAP_BPF and CAP_PERFMON to
// load programs that read its memory, CAP_NET_ADMIN to attach them, CAP_SYS_ADMIN to find a
// program by its id, CAP_SYS_PTRACE to copy sockets of other processes.
pub(super) fn explain_error(error: io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(errno @ (libc::EPERM | libc::EACCES)) => {
            let words = "this requires CAP_BPF, CAP_PERFMON, CAP_NET_ADMIN, CAP_SYS_ADMIN and CAP_SYS_PTRACE: run it as root";
            ExplainedErrno::error(errno, words)
        }
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steering_of_one_socket_has_places_for_two_more_per_cpu() {
        for (cpus, least) in [(1, 64), (128, 256), (256, 512)] {
            assert!(places(1, cpus) > least);
        }
    }
}
