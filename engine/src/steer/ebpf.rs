//! The extended program: bpf/select_by_cpu.bpf.c with two maps.

use std::error::Error;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::thread;
use std::time::{Duration, Instant};

use aya::EbpfLoader;
use aya::maps::{Array, MapData, ReusePortSockArray};
use aya::programs::SkReuseport;

use super::error::SteeringError;
use super::table::CpuTable;
use crate::sys::bpf;

static OBJECT: &[u8] =
    aya::include_bytes_aligned!(concat!(env!("CARGO_MANIFEST_DIR"), "/../bpf/select_by_cpu.bpf.o"));

// In the map of CPUs: no slot. Out of range for any map of sockets, so that its lookup fails.
const NONE: u32 = u32::MAX;
// The kernel's own error number (include/linux/errno.h); user space has no name for it.
const ENOTSUPP: i32 = 524;

pub(super) fn attach<S: AsFd>(sockets: &[S], table: &CpuTable) -> Result<(), SteeringError> {
    let first_socket = sockets.first().ok_or(SteeringError::Empty)?;
    let cpus = slots_by_cpu(table);
    let to_u32 = |length: usize| u32::try_from(length).unwrap_or(u32::MAX);
    let mut object = EbpfLoader::new()
        .btf(None)
        .map_max_entries("slots", to_u32(cpus.len()))
        .map_max_entries("members", to_u32(sockets.len()))
        .load(OBJECT)
        .map_err(|error| load_error(&error))?;
    let refused = |why| SteeringError::Refused { why };
    let mut slots: Array<&mut MapData, u32> = bpf::map(&mut object, "slots").map_err(refused)?;
    for (cpu, slot) in (0..).zip(cpus) {
        slots.set(cpu, slot, 0).map_err(|error| load_error(&error))?;
    }
    let mut members: ReusePortSockArray<&mut MapData> = bpf::map(&mut object, "members").map_err(refused)?;
    for (slot, socket) in sockets.iter().enumerate() {
        add_member(&mut members, slot, socket.as_fd())?;
    }
    let program: &mut SkReuseport = bpf::program(&mut object, "select_by_cpu").map_err(refused)?;
    program.load().map_err(|error| load_error(&error))?;
    // The group holds the program, and the program its maps: nothing needs to be kept here.
    program.attach(first_socket).map_err(|error| match bpf::errno(&error) {
        Some(libc::EINVAL) => SteeringError::NotReuseport,
        errno => SteeringError::Kernel {
            what: "SO_ATTACH_REUSEPORT_EBPF (Linux 4.5; this kind of program 4.19)",
            source: errno.map_or_else(|| io::Error::other(error), io::Error::from_raw_os_error),
        },
    })
}

fn load_error(error: &(dyn Error + 'static)) -> SteeringError {
    match bpf::errno(error) {
        Some(libc::EPERM) => SteeringError::NotPermitted,
        _ => SteeringError::Refused { why: bpf::load_error(error) },
    }
}

// Longest time that a socket stays in the map of a detached program: the kernel frees both in the
// background, after an RCU grace period each, without an event.
const RELEASE: Duration = Duration::from_secs(2);

fn add_member(
    members: &mut ReusePortSockArray<&mut MapData>,
    slot: usize,
    socket: BorrowedFd<'_>,
) -> Result<(), SteeringError> {
    let key = u32::try_from(slot).unwrap_or(u32::MAX);
    let start = Instant::now();
    loop {
        let Err(error) = members.set(key, &socket, 0) else { return Ok(()) };
        let errno = bpf::errno(&error);
        let why = match errno {
            Some(libc::EBUSY) if start.elapsed() < RELEASE => {
                thread::sleep(Duration::from_millis(2));
                continue;
            }
            Some(libc::EBUSY) => "another eBPF program steers it: detach that first",
            Some(libc::EINVAL) => "it must have SO_REUSEPORT and be bound, a TCP one listening",
            Some(ENOTSUPP) => "it is neither UDP nor TCP",
            _ => "the kernel does not accept it",
        };
        let source = errno.map_or_else(|| io::Error::other(error), io::Error::from_raw_os_error);
        return Err(SteeringError::Member { slot, why, source });
    }
}

// The slot of every CPU from 0; CONFIG_NR_CPUS is at most 8192.
fn slots_by_cpu(table: &CpuTable) -> Vec<u32> {
    const LARGEST: u32 = 8192;
    let pairs = table.pairs();
    let length = pairs.iter().map(|(cpu, _)| cpu + 1).filter(|length| *length <= LARGEST).max().unwrap_or(1);
    let mut slots = vec![NONE; length as usize];
    for (cpu, slot) in pairs {
        if let Some(entry) = slots.get_mut(cpu as usize) {
            *entry = slot;
        }
    }
    slots
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_by_cpu_contains_table_slots() -> Result<(), SteeringError> {
        let table = CpuTable::from_pairs([(3, 1), (1, 0), (4_000_000_000, 2)])?;
        assert_eq!(slots_by_cpu(&table), [NONE, 0, NONE, 1]);
        Ok(())
    }
}
