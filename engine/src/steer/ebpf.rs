//! The extended program: two maps, and the few instructions that look up both.

use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::thread;
use std::time::{Duration, Instant};

use super::error::SteeringError;
use super::table::CpuTable;
use crate::sys::bpf::{self, BpfLoadError, EbpfInstruction};

// In the map of CPUs: no slot. Out of range for any map of sockets, so that its lookup fails.
const NONE: u32 = u32::MAX;
// The kernel's own error number (include/linux/errno.h); user space has no name for it.
const ENOTSUPP: i32 = 524;

pub(super) fn attach<S: AsFd>(sockets: &[S], table: &CpuTable) -> Result<(), SteeringError> {
    let cpus = slots_by_cpu(table);
    let kernel_error = |what| {
        move |source: std::io::Error| match source.raw_os_error() {
            Some(libc::EPERM) => SteeringError::NotPermitted,
            _ => SteeringError::Kernel { what, source },
        }
    };
    let to_u32 = |length: usize| u32::try_from(length).unwrap_or(u32::MAX);
    let slots = bpf::create_map(bpf::MAP_ARRAY, size_of::<u32>(), to_u32(cpus.len()))
        .map_err(kernel_error("making the map of CPUs"))?;
    let members = bpf::create_map(bpf::MAP_REUSEPORT_SOCKARRAY, size_of::<u64>(), to_u32(sockets.len()))
        .map_err(kernel_error("making the map of sockets (Linux 4.19)"))?;
    for (cpu, slot) in cpus.iter().enumerate() {
        bpf::update_map(&slots, to_u32(cpu), &slot.to_ne_bytes())
            .map_err(kernel_error("filling the map of CPUs"))?;
    }
    for (slot, socket) in sockets.iter().enumerate() {
        add_member(&members, slot, socket)?;
    }
    let program = assemble(slots.as_raw_fd(), members.as_raw_fd());
    let program = bpf::load(bpf::PROG_SK_REUSEPORT, &program).map_err(|error| match error {
        BpfLoadError { source, .. } if source.raw_os_error() == Some(libc::EPERM) => {
            SteeringError::NotPermitted
        }
        BpfLoadError { source, log } => SteeringError::Refused { source, log },
    })?;
    let first_socket = sockets.first().ok_or(SteeringError::Empty)?;
    // The group holds the program, and the program its maps: nothing needs to be kept here.
    crate::sys::option::set(
        first_socket,
        libc::SOL_SOCKET,
        libc::SO_ATTACH_REUSEPORT_EBPF,
        program.as_raw_fd(),
    )
    .map_err(|source| match source.raw_os_error() {
        Some(libc::EINVAL) => SteeringError::NotReuseport,
        _ => SteeringError::Kernel {
            what: "SO_ATTACH_REUSEPORT_EBPF (Linux 4.5; this kind of program 4.19)",
            source,
        },
    })
}

// Longest time that a socket stays in the map of a detached program: the kernel frees both in the
// background, after an RCU grace period each, without an event.
const RELEASE: Duration = Duration::from_secs(2);

fn add_member(members: &OwnedFd, slot: usize, socket: &impl AsFd) -> Result<(), SteeringError> {
    let key = u32::try_from(slot).unwrap_or(u32::MAX);
    let value = u64::try_from(socket.as_fd().as_raw_fd()).unwrap_or(u64::MAX).to_ne_bytes();
    let start = Instant::now();
    loop {
        let Err(source) = bpf::update_map(members, key, &value) else {
            return Ok(());
        };
        let why = match source.raw_os_error() {
            Some(libc::EBUSY) if start.elapsed() < RELEASE => {
                thread::sleep(Duration::from_millis(2));
                continue;
            }
            Some(libc::EBUSY) => "another eBPF program steers it: detach that first",
            Some(libc::EINVAL) => "it must have SO_REUSEPORT and be bound, a TCP one listening",
            Some(ENOTSUPP) => "it is neither UDP nor TCP",
            _ => "the kernel does not accept it",
        };
        return Err(SteeringError::Member { slot, why, source });
    }
}

// The slot of every CPU from 0. A default needs an entry for every possible CPU, so the table is
// then as long as the kernel's largest (CONFIG_NR_CPUS is at most 8192).
fn slots_by_cpu(table: &CpuTable) -> Vec<u32> {
    const LARGEST: u32 = 8192;
    let pairs = table.pairs();
    let listed_length =
        pairs.iter().map(|(cpu, _)| cpu + 1).filter(|length| *length <= LARGEST).max().unwrap_or(1);
    let length = if table.default_slot().is_some() { LARGEST } else { listed_length };
    let mut slots = vec![table.default_slot().unwrap_or(NONE); length as usize];
    for (cpu, slot) in pairs {
        if let Some(entry) = slots.get_mut(cpu as usize) {
            *entry = slot;
        }
    }
    slots
}

/// ```c
/// u32 cpu = bpf_get_smp_processor_id();
/// u32 *slot = bpf_map_lookup_elem(&slots, &cpu);
/// if (slot)
///         bpf_sk_select_reuseport(ctx, &members, slot, 0);
/// return SK_PASS;
/// ```
/// If no socket was selected, `SK_PASS` leaves the choice to the hash (net/core/filter.c,
/// `bpf_run_sk_reuseport`).
fn assemble(slots: RawFd, members: RawFd) -> Vec<EbpfInstruction> {
    const SK_PASS: i32 = 1;
    let [slots_low, slots_high] = bpf::load_map(1, slots);
    let [members_low, members_high] = bpf::load_map(2, members);
    let select = [
        // The helper requires the key on the stack or in a map; a copy on the stack satisfies every
        // verifier.
        bpf::load_word(1, 0, 0),
        bpf::store_word(10, -8, 1),
        bpf::move_register(1, 6),
        members_low,
        members_high,
        bpf::move_register(3, 10),
        bpf::add_immediate(3, -8),
        bpf::move_immediate(4, 0),
        bpf::call(bpf::SK_SELECT_REUSEPORT),
    ];
    let mut program = vec![
        bpf::move_register(6, 1),
        bpf::call(bpf::GET_SMP_PROCESSOR_ID),
        bpf::store_word(10, -4, 0),
        slots_low,
        slots_high,
        bpf::move_register(2, 10),
        bpf::add_immediate(2, -4),
        bpf::call(bpf::MAP_LOOKUP_ELEM),
        bpf::jump_if_zero(0, select.len() as i16),
    ];
    program.extend(select);
    program.extend([bpf::move_immediate(0, SK_PASS), bpf::exit()]);
    program
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_by_cpu_contains_table_slots_and_the_default() -> Result<(), SteeringError> {
        let mut table = CpuTable::from_pairs([(3, 1), (1, 0), (4_000_000_000, 2)])?;
        assert_eq!(slots_by_cpu(&table), [NONE, 0, NONE, 1]);
        table.set_default(2)?;
        assert_eq!(slots_by_cpu(&table)[..5], [2, 0, 2, 1, 2]);
        Ok(())
    }
}
