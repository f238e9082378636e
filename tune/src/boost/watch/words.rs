//! Descriptions of changes.

use std::collections::BTreeMap;

use linerate_host::setting::SteeringTable;
use linerate_host::{CpuSet, Setting, SettingValue};

pub(super) fn of(setting: &Setting, from: &SettingValue, to: &SettingValue) -> Vec<String> {
    match setting {
        Setting::ThreadCpus { pid, tid, .. } => {
            let thread =
                if pid == tid { format!("process {pid}") } else { format!("thread {tid} of process {pid}") };
            vec![format!("{thread} runs on CPU {to}")]
        }
        Setting::Steering { protocol, local, .. } => match to.as_str().parse::<SteeringTable>() {
            Ok(table) => {
                let before = from.as_str().parse::<SteeringTable>().unwrap_or_default();
                let place = format!("{} {local}", protocol.name());
                rows(&before, &table).into_iter().map(|row| format!("{place}: {row}")).collect()
            }
            Err(_) => vec![format!("{setting}: {to}")],
        },
        _ => vec![format!("{setting}: {to}")],
    }
}

/// One line per set of sockets that receives the packets of other CPUs than before.
fn rows(before: &SteeringTable, now: &SteeringTable) -> Vec<String> {
    let mut moved: BTreeMap<&[u64], Vec<u32>> = BTreeMap::new();
    for (cpu, sockets) in &now.by_cpu {
        if before.by_cpu.get(cpu) != Some(sockets) {
            moved.entry(sockets).or_default().push(*cpu);
        }
    }
    let row = |(sockets, cpus): (&[u64], Vec<u32>)| {
        let word = if cpus.len() == 1 { "CPU" } else { "CPUs" };
        let cpus: CpuSet = cpus.into_iter().collect();
        let sockets: Vec<String> = sockets.iter().map(u64::to_string).collect();
        format!("packets of {word} {cpus} go to socket {}", sockets.join(" or "))
    };
    moved.into_iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use linerate_host::stage::socket::SocketProtocol;

    use super::*;

    #[test]
    fn only_moved_cpus_are_described() {
        let local = "127.0.0.1:53".parse().expect("an address");
        let setting = Setting::Steering { namespace: 1, protocol: SocketProtocol::Udp, local };
        let (from, to) = (
            SettingValue::new("by-cpu 0:41 1:42 2:42 3:43"),
            SettingValue::new("by-cpu 0:41 1:43 2:43 3:43+44"),
        );
        let expected = [
            "udp 127.0.0.1:53: packets of CPUs 1-2 go to socket 43",
            "udp 127.0.0.1:53: packets of CPU 3 go to socket 43 or 44",
        ];
        assert_eq!(of(&setting, &from, &to), expected);
    }

    #[test]
    fn a_thread_is_described_with_its_process() {
        let pin = |tid| {
            of(
                &Setting::ThreadCpus { pid: 7, tid, started: 1 },
                &SettingValue::new("0-3"),
                &SettingValue::new("2"),
            )
        };
        assert_eq!(
            (pin(7), pin(8)),
            (
                vec!["process 7 runs on CPU 2".to_owned()],
                vec!["thread 8 of process 7 runs on CPU 2".to_owned()]
            )
        );
    }
}
