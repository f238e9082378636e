//! Plans for machines of any shape.

use linerate_host::{HostRecording, Scope, Severity};
use linerate_testkit::specimen::{
    Cpu, CpuTimes, Hashed, Machine, ReceiveQueue, Softnet, TransmitQueue, specimen,
};
use proptest::prelude::*;

use super::tests::{named, of_states, plan, recording, shown};
use super::*;
use crate::TuneProfile;

/// How the NIC of 2016 is set up on a machine of another shape.
#[derive(Debug, Clone)]
struct Shape {
    nodes: u32,
    cores: u32,
    threads: u32,
    /// The CPU of each queue's interrupt, to be taken modulo their number.
    interrupts: Vec<u32>,
    /// How many of the queues the table names.
    reached: usize,
    /// CPUs of RPS and XPS of some queues.
    rps: Vec<u32>,
    xps: Vec<u32>,
    transmit: usize,
    hash: bool,
    rp_filter: bool,
    audit: u32,
}

fn shape() -> impl Strategy<Value = Shape> {
    let placed = (1..3_u32, 1..9_u32, 1..3_u32, proptest::collection::vec(0..999_u32, 1..40), 1..40_usize);
    let some = || proptest::collection::vec(0..999_u32, 0..5);
    (placed, some(), some(), 1..40_usize, any::<bool>(), any::<bool>(), 0..2_u32).prop_map(
        |((nodes, cores, threads, interrupts, reached), rps, xps, transmit, hash, rp_filter, audit)| Shape {
            nodes,
            cores,
            threads,
            reached: reached.min(interrupts.len()),
            interrupts,
            rps,
            xps,
            transmit,
            hash,
            rp_filter,
            audit,
        },
    )
}

impl Shape {
    fn cpus(&self) -> u32 {
        self.nodes * self.cores * self.threads
    }

    fn machine(&self) -> Machine {
        let mut machine = specimen("makita-2016").expect("a specimen").first;
        let (all, queues) = (self.cpus(), self.interrupts.len());
        let count = all as usize;
        let cores = self.nodes * self.cores;
        machine.cpus.all = (0..all)
            .map(|cpu| Cpu { cpu, node: cpu % cores / self.cores, core: cpu % cores % self.cores })
            .collect();
        machine.times = vec![CpuTimes { idle: 8_000_000, softirq: 640_000, ..CpuTimes::default() }; count];
        machine.softnet = vec![Softnet { processed: 4_000_000, ..Softnet::default() }; count];
        let template = machine.interrupts[0].clone();
        machine.interrupts = self
            .interrupts
            .iter()
            .zip(0_u32..)
            .map(|(cpu, queue)| {
                let mut interrupt = template.clone();
                (interrupt.irq, interrupt.hardware) = (105 + queue, queue);
                interrupt.name = format!("ens1f0-TxRx-{queue}");
                (interrupt.affinity, interrupt.effective) = (vec![cpu % all], cpu % all);
                interrupt.hint = vec![queue % all];
                interrupt.handled = vec![7; count];
                interrupt
            })
            .collect();
        let (first, second) = (machine.processes[0].clone(), machine.processes[1].clone());
        machine.processes = [first, second]
            .map(|mut process| {
                process.threads.truncate(count);
                process.threads.iter_mut().for_each(|thread| {
                    (thread.allowed, thread.last_cpu) = ((0..all).collect(), 0);
                });
                process
            })
            .to_vec();
        let nic = &mut machine.nics[0];
        nic.irqs = (105..).take(queues).collect();
        nic.receive = vec![ReceiveQueue::default(); queues];
        nic.transmit = vec![TransmitQueue::default(); self.transmit];
        for (queue, cpu) in self.rps.iter().enumerate().take(queues) {
            nic.receive[queue].rps = vec![cpu % all];
        }
        for (queue, cpu) in self.xps.iter().enumerate().take(self.transmit) {
            nic.transmit[queue].xps = vec![cpu % all];
        }
        let offered = u32::try_from(queues).expect("few");
        nic.ethtool.driver[0] = "igb";
        nic.ethtool.channels = Some([0, 0, offered, 0, 0, offered]);
        nic.ethtool.table_queues = Some(offered);
        nic.ethtool.table =
            Some((0..128).map(|entry| entry % u32::try_from(self.reached).expect("few")).collect());
        nic.ethtool.udp_hash = Some(if self.hash { Hashed::Ports } else { Hashed::Addresses });
        nic.ethtool.statistics.retain(|name, _| !name.contains("queue"));
        machine.sysctls.insert("net.ipv4.conf.ens1f0.rp_filter".into(), u8::from(self.rp_filter).to_string());
        machine.audit = self.audit;
        machine
    }

    fn readings(&self) -> Vec<HostRecording> {
        vec![recording(&self.machine().tree())]
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn on_any_machine_a_plan_leaves_nothing_but_what_it_says_and_nothing_for_a_second_one(
        shape in shape(),
        anyway in any::<bool>(),
    ) {
        let readings = shape.readings();
        let profile = TuneProfile { anyway, ..named("udp-server") };
        let plan = plan(&readings, &profile);
        prop_assert_eq!(&TunePlan::parse(&plan.to_json(), "x").expect("its own text"), &plan);
        let rehearsal = rehearse(readings, &Scope::default(), &plan);
        prop_assert!(rehearsal.unrehearsed.is_empty(), "{:?}", rehearsal.unrehearsed);
        for finding in rehearsal.diagnosis.findings.iter().filter(|finding| finding.severity > Severity::Note) {
            let left = plan.left.iter().any(|left| left.finding == finding.id)
                || plan.held_back.iter().any(|held| held.fixes(finding.id));
            prop_assert!(left, "{}: {}\n{:#?}", finding.id, finding.title, shown(&plan));
        }
        let again = of_states(&rehearsal.host, &rehearsal.readings, &profile);
        prop_assert_eq!(shown(&again), Vec::<String>::new());
        prop_assert!(plan.check(&rehearsal.host).is_ok(), "{:?}", plan.check(&rehearsal.host));
    }
}
