//! Samples of a server at little cost: its living processes and threads, and its bound sockets.

use std::collections::{BTreeMap, BTreeSet};

use linerate_host::Host;
use linerate_host::stage::thread::TaskStat;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct ServerSample {
    /// Living processes, including new ones, with their start times in clock ticks since boot.
    pub(super) processes: BTreeMap<u32, u64>,
    /// Process and thread.
    pub(super) threads: BTreeSet<(u32, u32)>,
    /// Inodes of the UDP sockets on its ports.
    pub(super) sockets: BTreeSet<u64>,
}

impl ServerSample {
    /// Samples these processes (with start times) and their descendants that run the same program.
    pub(super) fn of(host: &Host, start_times: &BTreeMap<u32, u64>, ports: &[u16]) -> Self {
        let mut sample = Self::default();
        let mut pending: Vec<(u32, Option<u64>)> =
            start_times.iter().map(|(pid, started)| (*pid, Some(*started))).collect();
        while let Some((pid, started)) = pending.pop() {
            let Ok(task) = TaskStat::of_process(host, pid) else { continue };
            let started_now = task.started.unwrap_or_default();
            // The id was reused by another process.
            let is_other_process = started.is_some_and(|started| started != 0 && started != started_now);
            // A first thread that has ended stays listed, and its state is that of the process.
            let mut threads = host.list_numbers(&format!("/proc/{pid}/task"), "").unwrap_or_default();
            threads.retain(|tid| !task.ended || *tid != pid);
            if threads.is_empty() || is_other_process || sample.processes.insert(pid, started_now).is_some() {
                continue;
            }
            for tid in threads {
                sample.threads.insert((pid, tid));
                pending.extend(children(host, pid, tid).into_iter().map(|child| (child, None)));
            }
        }
        sample.sockets =
            sample.processes.keys().next().map_or_else(BTreeSet::new, |pid| sockets(host, *pid, ports));
        sample
    }

    pub(super) fn has(&self, pid: u32, tid: u32) -> bool {
        self.threads.contains(&(pid, tid))
    }
}

/// Children of a thread that run the same program. Other children, such as scripts, read none of
/// its sockets.
fn children(host: &Host, pid: u32, tid: u32) -> Vec<u32> {
    let text = host.read(&format!("/proc/{pid}/task/{tid}/children")).unwrap_or_default();
    let mut pids: Vec<u32> = text.split_ascii_whitespace().filter_map(|word| word.parse().ok()).collect();
    let program = |pid: u32| host.read_link(&format!("/proc/{pid}/exe")).ok();
    let own_program = if pids.is_empty() { None } else { program(pid) };
    pids.retain(|child| own_program.is_none() || program(*child) == own_program);
    pids
}

/// Inodes of the UDP sockets that are bound to these ports in the network namespace of a process.
fn sockets(host: &Host, pid: u32, ports: &[u16]) -> BTreeSet<u64> {
    let tables =
        ["udp", "udp6"].map(|table| host.read(&format!("/proc/{pid}/net/{table}")).unwrap_or_default());
    tables.iter().flat_map(|table| bound_inodes(table, ports)).collect()
}

/// The inodes of the sockets in a table such as `/proc/net/udp` that are bound to these ports
/// (`udp4_format_sock` in net/ipv4/udp.c, Linux 6.18).
fn bound_inodes(table: &str, ports: &[u16]) -> Vec<u64> {
    const LOCAL: usize = 1;
    const INODE: usize = 9;
    let row = |line: &str| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let port = u16::from_str_radix(words.get(LOCAL)?.rsplit_once(':')?.1, 16).ok()?;
        let inode = words.get(INODE)?.parse().ok()?;
        ports.contains(&port).then_some(inode)
    };
    table.lines().filter_map(row).collect()
}

#[cfg(test)]
mod tests {
    use linerate_host::HostRecording;
    use linerate_host::recording::RecordedEntry;

    use super::*;

    fn stat(pid: u32, state: &str, started: u64) -> String {
        format!("{pid} (a (b) c) {state} 1 17 17 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 {started} 99 1\n")
    }

    /// A master with these workers, the last of which runs another program.
    fn host(workers: &[(u32, &str)]) -> Host {
        let mut recording = HostRecording::new();
        let children: Vec<String> = workers.iter().map(|(pid, _)| pid.to_string()).collect();
        let mut process = |pid: u32, state: &str, children: &str, program: &str| {
            recording.insert_file(format!("/proc/{pid}/stat"), stat(pid, state, u64::from(pid) * 10));
            recording.insert_file(format!("/proc/{pid}/task/{pid}/children"), children);
            recording.insert(format!("/proc/{pid}/exe"), RecordedEntry::Link(program.to_owned()));
        };
        process(50, "S", &children.join(" "), "/usr/sbin/nsd");
        for (number, (pid, state)) in workers.iter().enumerate() {
            let program = if number + 1 == workers.len() { "/bin/sh" } else { "/usr/sbin/nsd" };
            process(*pid, state, "", program);
        }
        let head = "   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n";
        let row = |local: &str, inode: u32| {
            format!(
                " 1: {local} 00000000:0000 07 00000000:00000000 00:00000000 00000000 0 0 {inode} 2 0000 0\n"
            )
        };
        let table = format!("{head}{}{}", row("0100007F:0035", 700), row("0100007F:0036", 701));
        recording.insert_file("/proc/50/net/udp", table);
        recording.insert_file("/proc/50/net/udp6", format!("{head}{}", row("0000000000000000:0035", 702)));
        Host::recorded(recording)
    }

    #[test]
    fn sample_includes_forked_workers_but_no_zombies_or_other_programs() {
        let known = BTreeMap::from([(50, 500), (51, 510), (60, 0)]);
        let sample = ServerSample::of(&host(&[(51, "S"), (52, "R"), (53, "Z"), (54, "S")]), &known, &[53]);
        assert_eq!(sample.processes, BTreeMap::from([(50, 500), (51, 510), (52, 520)]));
        assert_eq!(sample.threads, BTreeSet::from([(50, 50), (51, 51), (52, 52)]));
        assert_eq!(sample.sockets, BTreeSet::from([700, 702]));
    }

    #[test]
    fn process_whose_first_thread_has_ended_is_sampled() {
        let host = Host::scripted([
            ("/proc/50/stat", stat(50, "Z", 500)),
            ("/proc/50/task/50/children", String::new()),
            ("/proc/50/task/51/children", String::new()),
        ]);
        let sample = ServerSample::of(&host, &BTreeMap::from([(50, 500)]), &[53]);
        assert_eq!((sample.processes.len(), sample.threads), (1, BTreeSet::from([(50, 51)])));
    }

    #[test]
    fn reused_pids_are_not_sampled() {
        let sample = ServerSample::of(&host(&[(51, "S")]), &BTreeMap::from([(50, 499)]), &[53]);
        assert_eq!(sample, ServerSample::default());
    }
}
