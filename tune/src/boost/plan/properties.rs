//! Properties of every plan.

use std::collections::{BTreeMap, BTreeSet};

use linerate_host::setting::SteeringTable;
use linerate_host::{CpuSet, Known};
use proptest::prelude::*;

use super::sample::{BoostSampleMachine, cpus, nsd, pins, seen_on, tables};
use super::{BoostChoice, make};
use crate::boost::ObservedServer;

/// A machine, a server on it, and which of its threads are restricted.
#[derive(Debug, Clone)]
struct PlanCase {
    machine: BoostSampleMachine,
    workers: u32,
    /// The CPUs of the control group of each worker, and those it may run on, by position among all.
    restricted: Vec<(Option<Vec<prop::sample::Index>>, Vec<prop::sample::Index>)>,
    /// Workers that are gone.
    gone: Vec<bool>,
    seen: Option<Vec<prop::sample::Index>>,
}

fn some_of(all: u32, indices: &[prop::sample::Index]) -> CpuSet {
    indices.iter().map(|index| u32::try_from(index.index(all as usize)).expect("few")).collect()
}

fn machine() -> impl Strategy<Value = BoostSampleMachine> {
    let shape = (1_u32..4, 1_u32..5, 1_u32..3);
    let queues = prop::collection::vec(any::<prop::sample::Index>(), 0..6);
    (shape, queues, prop::option::of(any::<prop::sample::Index>())).prop_map(
        |((nodes, cores, threads), queues, isolated)| {
            let all = nodes * cores * threads;
            let of_node = |node: u32| {
                let first = node * cores * threads;
                format!("{first}-{}", first + cores * threads - 1)
            };
            let core = |core: u32| {
                let siblings: Vec<String> =
                    (0..threads).map(|thread| (core * threads + thread).to_string()).collect();
                siblings.join(",")
            };
            BoostSampleMachine {
                nodes: (0..nodes).map(of_node).collect(),
                cores: (0..nodes * cores).map(core).collect(),
                vectors: queues
                    .iter()
                    .map(|queue| u32::try_from(queue.index(all as usize)).expect("few"))
                    .collect(),
                isolated: isolated.map_or_else(String::new, |cpu| cpu.index(all as usize).to_string()),
                ..BoostSampleMachine::of(all)
            }
        },
    )
}

fn case() -> impl Strategy<Value = PlanCase> {
    let indices = || prop::collection::vec(any::<prop::sample::Index>(), 1..5);
    let restriction = (prop::option::weighted(0.3, indices()), indices());
    (
        machine(),
        2_u32..9,
        prop::collection::vec(restriction, 8),
        prop::collection::vec(prop::bool::weighted(0.1), 8),
        prop::option::of(indices()),
    )
        .prop_map(|(machine, workers, restricted, gone, seen)| PlanCase {
            machine,
            workers,
            restricted,
            gone,
            seen,
        })
}

impl PlanCase {
    fn all(&self) -> u32 {
        u32::try_from(cpus(&self.machine.nodes.join(",")).len()).expect("few")
    }

    fn server(&self) -> ObservedServer {
        let all = self.all();
        let mut server = nsd(self.workers, &format!("0-{}", all - 1));
        for (at, reader) in server.readers.iter_mut().enumerate() {
            let (cpuset, allowed) = &self.restricted[at];
            if let Some(cpuset) = cpuset {
                let cpuset = some_of(all, cpuset);
                let allowed = some_of(all, allowed);
                let within: CpuSet = allowed.iter().filter(|cpu| cpuset.contains(*cpu)).collect();
                reader.allowed = Known::Value(if within.is_empty() { cpuset.clone() } else { within });
                reader.cpuset = Some(cpuset);
            }
        }
        let gone = |tid: u32| self.gone.get((tid - 800) as usize).copied().unwrap_or(false);
        server.readers.retain(|reader| !gone(reader.tid));
        if let Some(seen) = &self.seen {
            seen_on(&mut server, &some_of(all, seen).to_string());
        }
        server
    }
}

proptest! {
    #[test]
    fn every_cpu_has_a_read_socket_and_every_read_socket_has_a_cpu(case in case()) {
        let server = case.server();
        let plan = make(&server, &case.machine.path(), &BoostChoice::default());
        let read_cookies: BTreeSet<u64> =
            server.readers.iter().flat_map(|reader| &reader.sockets).copied().collect();
        for (group, text) in tables(&plan) {
            let table: SteeringTable = text.parse().expect("a table");
            prop_assert_eq!(table.by_cpu.len(), case.all() as usize, "{}: {}", group, text);
            for row in table.by_cpu.values() {
                let is_read = row.iter().all(|cookie| read_cookies.contains(cookie));
                prop_assert!(!row.is_empty() && is_read, "{}", text);
            }
            // Every socket that is read gets packets of some CPU.
            let table_cookies: BTreeSet<u64> = table.by_cpu.values().flatten().copied().collect();
            let base = table_cookies.first().map_or(0, |cookie| cookie / 100);
            let group_cookies: BTreeSet<u64> =
                read_cookies.iter().copied().filter(|cookie| cookie / 100 == base).collect();
            prop_assert_eq!(table_cookies, group_cookies);
        }
    }

    #[test]
    fn threads_are_pinned_once_and_within_their_cpusets(case in case()) {
        let server = case.server();
        let plan = make(&server, &case.machine.path(), &BoostChoice::default());
        let cpu_by_thread = pins(&plan);
        let changes = plan.plan.changes.iter();
        let pin_changes =
            changes.filter(|change| matches!(change.setting, linerate_host::Setting::ThreadCpus { .. }));
        prop_assert_eq!(pin_changes.count(), cpu_by_thread.len());
        for (tid, to) in &cpu_by_thread {
            let reader = server.readers.iter().find(|reader| reader.tid == *tid).expect("a reader");
            let cpu: u32 = to.parse().expect("one CPU");
            prop_assert!(reader.cpuset.as_ref().is_none_or(|set| set.contains(cpu)), "{} of {:?}", cpu, reader);
            prop_assert!(reader.allowed.value().is_some_and(|set| set.contains(cpu)), "{} of {:?}", cpu, reader);
        }
    }

    #[test]
    fn all_sockets_of_a_thread_get_the_packets_of_one_cpu(case in case()) {
        let server = case.server();
        let plan = make(&server, &case.machine.path(), &BoostChoice::default());
        // Cookies of a worker end with the same two digits in each group.
        let workers = |text: &String| -> BTreeMap<u32, Vec<u64>> {
            let table: SteeringTable = text.parse().expect("a table");
            table.by_cpu.iter().map(|(cpu, row)| (*cpu, row.iter().map(|cookie| cookie % 100).collect())).collect()
        };
        let tables: Vec<_> = tables(&plan).values().map(workers).collect();
        prop_assert!(tables.windows(2).all(|two| two[0] == two[1]), "{tables:?}");
        // The socket of a thread gets the packets of the CPU it is bound to.
        for (tid, cpu) in pins(&plan) {
            let cpu: u32 = cpu.parse().expect("one CPU");
            for table in &tables {
                prop_assert!(table[&cpu].contains(&u64::from(tid - 800)), "{tid} on {cpu}: {table:?}");
            }
        }
    }

    #[test]
    fn planning_again_after_applying_plans_no_changes(case in case()) {
        let mut server = case.server();
        let path = case.machine.path();
        let plan = make(&server, &path, &BoostChoice::default());
        let (pins, tables) = (pins(&plan), tables(&plan));
        for reader in &mut server.readers {
            if let Some(cpu) = pins.get(&reader.tid) {
                reader.allowed = Known::Value(cpus(cpu));
            }
        }
        for group in &mut server.groups {
            if let Some(table) = tables.get(&super::group::name(group)) {
                group.steering = Known::Value(table.clone());
            }
        }
        let next_plan = make(&server, &path, &BoostChoice::default());
        prop_assert!(next_plan.plan.changes.is_empty(), "{:#?}", next_plan.plan.changes);
    }
}
