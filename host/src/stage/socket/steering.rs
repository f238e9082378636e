//! How the socket of a reuseport group is chosen, as far as it can be told from outside.

use super::owners::Owners;
use super::{Process, Socket, Steering};
use crate::{Host, Known};

/// `BPF_PROG_TYPE_SK_REUSEPORT` of linux/bpf.h, as fdinfo shows it.
const SK_REUSEPORT: &str = "21";

const UNTOLD: &str = "the kernel does not tell whether a program chooses the socket (SO_ATTACH_REUSEPORT_CBPF), \
                      only that none asks for the packets of a CPU (SO_INCOMING_CPU)";

/// The first kernel that honours SO_INCOMING_CPU in a reuseport group (reuseport_select_sock_by_hash in net/core/sock_reuseport.c).
const HONOURED_SINCE: (u32, u32) = (6, 2);

/// How a socket of these is chosen.
pub(super) fn steering(
    host: &Host,
    owners: &Owners,
    processes: &Known<Vec<Process>>,
    sockets: &[Socket],
) -> Known<Option<Steering>> {
    if sockets.len() < 2 {
        return Known::Value(None);
    }
    let Known::Value(processes) = processes else {
        return Known::unknown("whose sockets they are is unknown");
    };
    if processes.iter().any(|process| holds_program(host, process.pid, owners.programs_of(process.pid))) {
        return Known::Value(Some(Steering::Program));
    }
    if let Some(why) = sockets.iter().find_map(|socket| socket.options.why()) {
        return Known::unknown(why);
    }
    match sockets.iter().all(|socket| socket.incoming_cpu().is_some()) {
        true if incoming_cpu_is_honoured(host) => Known::Value(Some(Steering::Cpu)),
        _ => Known::unknown(UNTOLD),
    }
}

fn holds_program(host: &Host, pid: u32, descriptors: &[u32]) -> bool {
    descriptors.iter().any(|descriptor| {
        let info = host.read(&format!("/proc/{pid}/fdinfo/{descriptor}"));
        info.is_ok_and(|info| program_type(&info) == Some(SK_REUSEPORT))
    })
}

/// `prog_type:\t21` in the fdinfo of a BPF program (bpf_prog_show_fdinfo in kernel/bpf/syscall.c).
pub(crate) fn program_type(info: &str) -> Option<&str> {
    info.lines().find_map(|line| line.strip_prefix("prog_type:")).map(str::trim)
}

fn incoming_cpu_is_honoured(host: &Host) -> bool {
    let Ok(release) = host.read("/proc/sys/kernel/osrelease") else { return false };
    let mut numbers = release.split(|letter: char| !letter.is_ascii_digit()).map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor) >= HONOURED_SINCE,
        _ => false,
    }
}
