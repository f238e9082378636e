//! Plans for machines of any shape.

use linerate_host::{Host, HostRecording, PacketPath, Scope, Severity};
use linerate_testkit::fixture::{Cpu, QueueVector, Thread, Tree, fixture};
use proptest::prelude::*;
use serde_json::json;

use super::tests::{builtin_profile, change_lines, of_states, plan, recording};
use super::*;
use crate::TuneProfile;

/// The setup of the NIC of 2016 on a machine of another shape.
#[derive(Debug, Clone)]
struct Shape {
    nodes: u32,
    cores: u32,
    threads: u32,
    /// The CPU of each queue's interrupt, to be taken modulo the number of CPUs.
    interrupts: Vec<u32>,
    /// Number of queues that the indirection table names.
    table_queues: usize,
    /// CPUs of RPS and XPS, for the first queues.
    rps: Vec<u32>,
    xps: Vec<u32>,
    transmit: usize,
    hash: bool,
    rp_filter: bool,
    audit: u32,
}

fn shape() -> impl Strategy<Value = Shape> {
    let layout = (1..3_u32, 1..9_u32, 1..3_u32, proptest::collection::vec(0..999_u32, 1..40), 1..40_usize);
    let cpu_list = || proptest::collection::vec(0..999_u32, 0..5);
    (layout, cpu_list(), cpu_list(), 1..40_usize, any::<bool>(), any::<bool>(), 0..2_u32).prop_map(
        |((nodes, cores, threads, interrupts, table_queues), rps, xps, transmit, hash, rp_filter, audit)| {
            Shape {
                nodes,
                cores,
                threads,
                table_queues: table_queues.min(interrupts.len()),
                interrupts,
                rps,
                xps,
                transmit,
                hash,
                rp_filter,
                audit,
            }
        },
    )
}

impl Shape {
    fn cpus(&self) -> u32 {
        self.nodes * self.cores * self.threads
    }

    fn tree(&self) -> Tree {
        let mut tree = fixture("makita-2016").expect("a fixture").first;
        let (all, cores) = (self.cpus(), self.nodes * self.cores);
        let cpu = |cpu: u32| Cpu { node: cpu % cores / self.cores, core: cpu % cores % self.cores };
        tree.set_cpus(&(0..all).map(cpu).collect::<Vec<_>>());
        let vector = |(cpu, queue): (&u32, u32)| QueueVector {
            irq: 105 + queue,
            chip: format!("IR-PCI-MSI {queue:>3}"),
            name: format!("ens1f0-TxRx-{queue}"),
            device: "/sys/devices/pci0000:00/0000:00:03.0/0000:04:00.0".into(),
            node: 0,
            cpu: cpu % all,
            hint: queue % all,
            handled: (7, 7),
        };
        tree.set_vectors(&self.interrupts.iter().zip(0..).map(vector).collect::<Vec<_>>());
        for (pid, threads) in [(811, 1), (4711, all.min(20))] {
            let thread = Thread { allowed: (0..all).collect(), last_cpu: 0, descriptor: None };
            tree.set_threads(pid, &vec![thread; threads as usize]);
        }
        let queues = |count: usize, cpus: &[u32]| -> Vec<Vec<u32>> {
            let cpu = |queue: usize| cpus.get(queue).map(|cpu| cpu % all).into_iter().collect();
            (0..count).map(cpu).collect()
        };
        let queue_count = self.interrupts.len();
        tree.set_queues("ens1f0", &queues(queue_count, &self.rps), &queues(self.transmit, &self.xps));
        let ethtool = |item: &str| format!("ethtool/ens1f0/{item}");
        let driver = json!({ "name": "igb", "version": "4.2.1-k", "firmware": "", "bus": "0000:04:00.0" });
        tree.call(&ethtool("driver"), &driver);
        let channels = json!({
            "rx": 0, "tx": 0, "combined": queue_count,
            "rx_max": 0, "tx_max": 0, "combined_max": queue_count,
        });
        tree.call(&ethtool("channels"), &channels);
        tree.call(&ethtool("table-queues"), &json!(queue_count));
        let table: Vec<usize> = (0..128).map(|entry| entry % self.table_queues).collect();
        let hash = json!({ "function": "toeplitz", "key": "6d5a56da255b0ec24167253d43a38fb0" });
        tree.call(&ethtool("rss"), &json!({ "table": table, "hash": hash }));
        let fields = json!({
            "source_address": true, "destination_address": true,
            "source_port": self.hash, "destination_port": self.hash,
        });
        for family in ["flow-hash/udp4", "flow-hash/udp6"] {
            tree.call(&ethtool(family), &fields);
        }
        tree.call(&ethtool("statistics"), &json!({ "rx_packets": 2_597_371_338_u64, "rx_missed_errors": 0 }));
        tree.line("/proc/sys/net/ipv4/conf/ens1f0/rp_filter", u8::from(self.rp_filter));
        tree.call("audit/enabled", &json!(self.audit));
        tree
    }

    /// Two readings one second apart, between which this many packets arrive.
    fn readings_at(&self, packets_per_second: u64) -> Vec<HostRecording> {
        let first = self.tree();
        let mut later = self.tree();
        later.edit("/proc/uptime", |text| {
            let (up, idle) = text.trim().split_once(' ').expect("two numbers");
            format!("{} {idle}\n", up.parse::<f64>().expect("a number") + 1.0)
        });
        later.edit("/proc/net/snmp", |text| {
            // The fixture has received as many IP packets as UDP datagrams, so both counters grow.
            let counter = text.split_whitespace().filter_map(|word| word.parse::<u64>().ok()).max();
            let counter = counter.expect("numbers");
            let later_counter = counter + packets_per_second;
            text.replace(&counter.to_string(), &later_counter.to_string())
        });
        vec![recording(&first), recording(&later)]
    }
}

/// Packets per second, most of them near the rate below which costs per packet are only notes.
fn rate() -> impl Strategy<Value = u64> {
    prop_oneof![Just(2_000), 19_990..20_010_u64, Just(500_000)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6, ..ProptestConfig::default() })]

    #[test]
    fn plans_are_independent_of_packet_rate_and_need_no_second_run(
        shape in shape(),
        first in rate(),
        second in rate(),
        anyway in any::<bool>(),
    ) {
        let profile = TuneProfile { anyway, ..builtin_profile("udp-server") };
        let scope = Scope { port: Some(10_000), ..Scope::default() };
        let plan_at = |rate| {
            let readings = shape.readings_at(rate);
            let observe = |reading: &HostRecording| {
                PacketPath::observe(&Host::recorded(reading.clone()), &scope)
            };
            let states: Vec<PacketPath> = readings.iter().map(observe).collect();
            of_states(&Host::recorded(readings[1].clone()), &states, &profile)
        };
        let (first_plan, second_plan) = (plan_at(first), plan_at(second));
        prop_assert_eq!(change_lines(&first_plan), change_lines(&second_plan));
        prop_assert_eq!(&first_plan.skipped, &second_plan.skipped);
        let rehearsal = rehearse(shape.readings_at(second), &scope, &first_plan);
        let next_plan = of_states(&rehearsal.host, &rehearsal.readings, &profile);
        prop_assert_eq!(change_lines(&next_plan), Vec::<String>::new());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn plans_for_random_machines_fix_or_explain_findings_in_one_run(
        shape in shape(),
        anyway in any::<bool>(),
    ) {
        let readings = vec![recording(&shape.tree())];
        let profile = TuneProfile { anyway, ..builtin_profile("udp-server") };
        let plan = plan(&readings, &profile);
        prop_assert_eq!(&TunePlan::parse(&plan.to_json(), "x").expect("its own text"), &plan);
        let rehearsal = rehearse(readings, &Scope::default(), &plan);
        prop_assert!(rehearsal.unrehearsed.is_empty(), "{:?}", rehearsal.unrehearsed);
        for finding in rehearsal.diagnosis.findings.iter().filter(|finding| finding.severity > Severity::Note) {
            let is_explained = plan.skipped.iter().any(|skipped| skipped.finding == finding.id)
                || plan.held_back.iter().any(|group| group.fixes(finding.id));
            prop_assert!(is_explained, "{}: {}\n{:#?}", finding.id, finding.title, change_lines(&plan));
        }
        let next_plan = of_states(&rehearsal.host, &rehearsal.readings, &profile);
        prop_assert_eq!(change_lines(&next_plan), Vec::<String>::new());
        prop_assert!(plan.check(&rehearsal.host).is_ok(), "{:?}", plan.check(&rehearsal.host));
    }
}
