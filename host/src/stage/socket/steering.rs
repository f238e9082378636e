//! The method by which a reuseport group chooses a socket, if it is visible from outside.

use super::{SocketOwner, SocketProtocol, SocketState, SteeringState};
use crate::process::owners::DescriptorOwners;
use crate::reuseport::{ChooserMember, ChooserReader, ChoosingProgram, GroupChooser};
use crate::stage::machine;
use crate::{Host, Known};

/// `BPF_PROG_TYPE_SK_REUSEPORT` of linux/bpf.h, as in fdinfo.
const SK_REUSEPORT: &str = "21";

/// The first kernel that uses SO_INCOMING_CPU in a reuseport group (reuseport_select_sock_by_hash
/// in net/core/sock_reuseport.c).
const HONOURED_SINCE: (u32, u32) = (6, 2);

pub(super) fn steering(
    host: &Host,
    owners: &DescriptorOwners,
    choosers: &ChooserReader<'_>,
    (protocol, processes): (SocketProtocol, &Known<Vec<SocketOwner>>),
    sockets: &[SocketState],
) -> Known<Option<SteeringState>> {
    let [first, _, ..] = sockets else { return Known::Value(None) };
    let Known::Value(processes) = processes else {
        return Known::unknown("whose sockets they are is unknown");
    };
    if processes.iter().any(|process| holds_program(host, process.pid, owners.programs_of(process.pid))) {
        return Known::Value(Some(SteeringState::Program));
    }
    let has_incoming_cpus = sockets.iter().all(|socket| socket.incoming_cpu().is_some());
    let cookie = first.cookie.filter(|cookie| *cookie != 0);
    let member = match cookie.map(|cookie| choosers.member(protocol, cookie)) {
        Some(Ok(member)) => member,
        Some(Err(error)) => return Known::unknown(error.to_string()),
        None => {
            return Known::unknown("the sockets have no cookies, by which to ask what chooses among them");
        }
    };
    match member.map(|member| member.chooser) {
        Some(GroupChooser::Extended) if member.is_some_and(is_linerate_program) => {
            Known::Value(Some(SteeringState::Cpu))
        }
        Some(GroupChooser::ClassicByCpu) => Known::Value(Some(SteeringState::Cpu)),
        Some(GroupChooser::Classic | GroupChooser::Extended) => Known::Value(Some(SteeringState::Program)),
        Some(GroupChooser::Kernel) if has_incoming_cpus && incoming_cpu_is_honoured(host) => {
            Known::Value(Some(SteeringState::Cpu))
        }
        Some(GroupChooser::Kernel) => Known::Value(Some(SteeringState::Hash)),
        None => Known::unknown("they are in no reuseport group: the kernel gives all packets to one of them"),
    }
}

/// Sorts sockets by the index that a classic program uses, and returns whether the kernel reported
/// the index of every socket.
pub(super) fn sort_by_place(
    choosers: &ChooserReader<'_>,
    protocol: SocketProtocol,
    sockets: &mut [SocketState],
) -> bool {
    let place = |socket: &SocketState| choosers.member(protocol, socket.cookie?).ok()??.place;
    let is_ordered = sockets.len() > 1 && sockets.iter().all(|socket| place(socket).is_some());
    if is_ordered {
        sockets.sort_by_key(place);
    }
    is_ordered
}

/// Whether the program is linerate's, which chooses by CPU.
fn is_linerate_program(member: &ChooserMember) -> bool {
    member.program.as_ref().is_some_and(|program| program.name == ChoosingProgram::STEER)
}

fn holds_program(host: &Host, pid: u32, descriptors: &[u32]) -> bool {
    descriptors.iter().any(|descriptor| {
        let info = host.read(&format!("/proc/{pid}/fdinfo/{descriptor}"));
        info.is_ok_and(|info| program_type(&info) == Some(SK_REUSEPORT))
    })
}

/// Reads `prog_type:\t21` in the fdinfo of a BPF program (bpf_prog_show_fdinfo in
/// kernel/bpf/syscall.c).
pub(crate) fn program_type(info: &str) -> Option<&str> {
    info.lines().find_map(|line| line.strip_prefix("prog_type:")).map(str::trim)
}

fn incoming_cpu_is_honoured(host: &Host) -> bool {
    let release = host.read("/proc/sys/kernel/osrelease").unwrap_or_default();
    machine::version(&release).is_some_and(|version| version >= HONOURED_SINCE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HostRecording;
    use crate::Scope;
    use crate::recording::RecordedEntry;
    use crate::stage::socket::HostSockets;

    /// A service of two sockets that a process holds.
    fn tree(options: [&str; 2], kernel: &str) -> HostRecording {
        let mut recording = HostRecording::new();
        let mut file = |path: &str, text: &str| recording.insert_file(path, text);
        let socket = |inode: u32| {
            format!(r#"{{"local": "10.0.0.1:53", "inode": {inode}, "cookie": {}}}"#, inode - 600)
        };
        file("/calls/sock_diag/udp4.json", &format!("[{},{}]", socket(700), socket(701)));
        file("/calls/socket/700/options.json", options[0]);
        file("/calls/socket/701/options.json", options[1]);
        file("/proc/sys/kernel/osrelease", kernel);
        file("/proc/50/comm", "echo\n");
        recording.with_links([("/proc/50/fd/3", "socket:[700]"), ("/proc/50/fd/4", "socket:[701]")])
    }

    const REUSEPORT: [&str; 2] = [r#"{"reuseport": true}"#; 2];
    const BY_CPU: [&str; 2] =
        [r#"{"reuseport": true, "incoming_cpu": 0}"#, r#"{"reuseport": true, "incoming_cpu": 1}"#];

    fn steering_and_order(
        mut recording: HostRecording,
        chooser: &str,
    ) -> (Known<Option<SteeringState>>, Vec<u64>) {
        let (chooser, program) = chooser.split_once(' ').unwrap_or((chooser, "choose"));
        let program = format!(r#"{{"id": 9, "name": "{program}"}}"#);
        let member = |cookie: u32, place: u32| {
            format!(
                r#"{{"cookie": {cookie}, "place": {place}, "chooser": "{chooser}", "program": {program}}}"#
            )
        };
        if !chooser.is_empty() {
            let answer = format!("[{},{}]", member(100, 1), member(101, 0));
            recording.insert("/calls/reuseport/udp.json", RecordedEntry::File(answer.into_bytes()));
        }
        let sockets = HostSockets::observe(&Host::recorded(recording), &Scope::default());
        let service = &sockets.services()[0];
        (service.steering.clone(), service.sockets.iter().map(|socket| socket.inode).collect())
    }

    #[test]
    fn steering_follows_the_chooser_the_kernel_reports() {
        for (chooser, expected) in [
            ("kernel", SteeringState::Hash),
            ("classic_by_cpu", SteeringState::Cpu),
            ("classic", SteeringState::Program),
            ("extended", SteeringState::Program),
            ("extended linerate_steer", SteeringState::Cpu),
        ] {
            let (steering, order) = steering_and_order(tree(REUSEPORT, "6.18.0"), chooser);
            assert_eq!((steering, order), (Known::Value(Some(expected)), vec![701, 700]));
        }
    }

    #[test]
    fn incoming_cpu_steers_from_linux_6_2_if_set_on_every_socket() {
        assert_eq!(
            steering_and_order(tree(BY_CPU, "6.2.1"), "kernel").0,
            Known::Value(Some(SteeringState::Cpu))
        );
        assert_eq!(
            steering_and_order(tree(BY_CPU, "6.1.90-amd64"), "kernel").0,
            Known::Value(Some(SteeringState::Hash))
        );
        let one_cpu = [BY_CPU[0], REUSEPORT[0]];
        assert_eq!(
            steering_and_order(tree(one_cpu, "6.18.0"), "kernel").0,
            Known::Value(Some(SteeringState::Hash))
        );
    }

    #[test]
    fn a_bpf_program_descriptor_implies_steering_by_program() {
        let mut recording = tree(REUSEPORT, "4.19.0");
        recording.insert("/proc/50/fd/9", RecordedEntry::Link("anon_inode:bpf-prog".into()));
        let info = "pos:\t0\nflags:\t02000002\nprog_type:\t21\nprog_jited:\t1\n";
        recording.insert("/proc/50/fdinfo/9", RecordedEntry::File(info.into()));
        let (steering, order) = steering_and_order(recording, "");
        assert_eq!((steering, order), (Known::Value(Some(SteeringState::Program)), vec![700, 701]));
    }

    #[test]
    fn steering_is_unknown_if_the_kernel_reports_no_chooser() {
        let (steering, _) = steering_and_order(tree(REUSEPORT, "5.4.0"), "");
        assert!(steering.why().is_some_and(|why| why.starts_with("asking what chooses in reuseport groups")));
    }
}
