//! The machine of 2016 as it might be found today, after hands that each changed one thing. Made up, to show what else can
//! be wrong on a machine of two nodes.

use super::{Specimen, Way, load, machine};
use crate::specimen::Machine;

/// The CPUs that the four threads are pinned to: one of the node of the NIC that gets no packets, three of the other.
const PINNED: [u32; 4] = [1, 6, 7, 8];
/// The CPU that is too busy, in the node of the NIC.
const CROWDED: usize = 12;

/// Four sockets for twenty queues, threads where no packets arrive, RPS and XPS across nodes.
pub(in crate::specimen::known_hosts) fn neglected() -> Specimen {
    let way = Way { sockets: 4, pinned: true, tables: false, audit: 0, ..Way::as_found() };
    let mut first = machine(&way);
    neglect(&mut first);
    let mut later = load(&first, &way, 900_000);
    lose(&mut later);
    Specimen {
        name: "makita-2016-neglected",
        about: "the machine of 2016, made up: four sockets, threads pinned where no packets arrive, settings changed one by one",
        first,
        later: Some(later),
    }
}

fn neglect(machine: &mut Machine) {
    machine.cpus.governor = Some("powersave");
    let nic = &mut machine.nics[0];
    // Somebody gave queue 0 weight, and forgot it.
    nic.ethtool.table = Some((0..128).map(|entry| if entry < 64 { 0 } else { entry % 16 }).collect());
    // The first queue's interrupt is on the node of the NIC, CPU 6 on the other.
    nic.receive[0].rps = vec![6];
    nic.transmit[0].xps = vec![0, 1];
    nic.transmit[1].xps = Vec::new();
    let server = &mut machine.processes[1];
    server.threads.truncate(PINNED.len());
    for (thread, cpu) in server.threads.iter_mut().zip(PINNED) {
        thread.allowed = vec![cpu];
        thread.last_cpu = cpu;
    }
}

/// What ten seconds of that come to, beside the packets.
fn lose(machine: &mut Machine) {
    let crowded = &mut machine.softnet[CROWDED];
    crowded.dropped += 42_000;
    crowded.squeezed += 9_000;
    *machine.nics[0].ethtool.statistics.entry("rx_missed_errors".to_owned()).or_default() += 12_000;
}
