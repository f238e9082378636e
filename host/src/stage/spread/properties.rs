//! Tests properties of a spread on any machine.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::finding::Severity;
use crate::stage::HostView;
use crate::stage::irq::sample;
use crate::stage::list::STAGES;
use crate::stage::name::StageName;
use crate::{CpuSet, Known};

#[derive(Debug, Clone)]
struct RandomMachine {
    nodes: Vec<String>,
    cores: Vec<String>,
    isolated: String,
    nic_node: Option<u32>,
    vectors: Vec<u32>,
    rps: Vec<String>,
    xps: Vec<String>,
    reached: u32,
    policy: SpreadPolicy,
}

#[derive(Debug, Clone)]
struct MachineShape {
    nodes: u32,
    cores: u32,
    threads: u32,
    interleaved: bool,
    offline: Vec<bool>,
    isolated: Vec<bool>,
}

fn shape() -> impl Strategy<Value = MachineShape> {
    (1..4_u32, 1..20_u32, 1..3_u32, any::<bool>(), any::<bool>(), any::<bool>()).prop_flat_map(
        |(nodes, cores, threads, interleaved, some_offline, some_isolated)| {
            let all = (nodes * cores * threads) as usize;
            let part = |is_set: bool| {
                proptest::collection::vec(proptest::bool::weighted(if is_set { 0.2 } else { 0.0 }), all..=all)
            };
            (part(some_offline), part(some_isolated)).prop_map(move |(offline, isolated)| MachineShape {
                nodes,
                cores,
                threads,
                interleaved,
                offline,
                isolated,
            })
        },
    )
}

fn list(cpus: impl IntoIterator<Item = u32>) -> String {
    cpus.into_iter().collect::<CpuSet>().to_string()
}

impl MachineShape {
    /// Node and core of a CPU: second threads come after all cores, or nodes and cores in turn.
    fn place(&self, cpu: u32) -> (u32, u32) {
        let cores = self.nodes * self.cores;
        let core = cpu % cores;
        if self.interleaved { (core % self.nodes, core) } else { (core / self.cores, core) }
    }

    fn online(&self) -> Vec<u32> {
        let all = 0..self.nodes * self.cores * self.threads;
        // The first CPU cannot be taken offline on most machines.
        all.filter(|cpu| *cpu == 0 || !self.offline[*cpu as usize]).collect()
    }

    fn group_lists(&self, groups: u32, group: impl Fn(u32) -> u32) -> Vec<String> {
        let of = |number: u32| list(self.online().into_iter().filter(|cpu| group(*cpu) == number));
        (0..groups).map(of).filter(|group| !group.is_empty()).collect()
    }
}

fn random() -> impl Strategy<Value = RandomMachine> {
    (shape(), 1..129_usize, any::<bool>()).prop_flat_map(|(shape, queues, round_robin)| {
        let online = shape.online();
        let isolated: Vec<u32> =
            online.iter().copied().filter(|cpu| *cpu != 0 && shape.isolated[*cpu as usize]).collect();
        let cpu = proptest::sample::select(online.clone());
        let cpu_subset = proptest::collection::vec(proptest::sample::select(online.clone()), 0..4);
        let policy = (any::<bool>(), 0..3_u8).prop_map(|(last, handing)| SpreadPolicy {
            second_threads: if last { SecondThreads::Last } else { SecondThreads::Never },
            handing: [RpsTarget::None, RpsTarget::OwnNode, RpsTarget::EveryNode][usize::from(handing)],
            free: CpuSet::new(),
            ..SpreadPolicy::default()
        });
        let vectors = if round_robin {
            Just(online.iter().copied().cycle().take(queues).collect::<Vec<u32>>()).boxed()
        } else {
            proptest::collection::vec(cpu, queues..=queues).boxed()
        };
        let transmit = 1..queues + 9;
        (
            vectors,
            proptest::collection::vec(cpu_subset.clone(), queues..=queues),
            transmit.prop_flat_map(move |count| proptest::collection::vec(cpu_subset.clone(), count..=count)),
            (1..=queues, proptest::option::of(0..shape.nodes)),
            policy,
        )
            .prop_map(move |(vectors, rps, xps, (reached, nic_node), policy)| RandomMachine {
                nodes: shape.group_lists(shape.nodes, |cpu| shape.place(cpu).0),
                cores: shape.group_lists(shape.nodes * shape.cores, |cpu| shape.place(cpu).1),
                isolated: list(isolated.clone()),
                nic_node,
                vectors,
                rps: rps.into_iter().map(list).collect(),
                xps: xps.into_iter().map(list).collect(),
                reached: u32::try_from(reached).expect("few"),
                policy,
            })
    })
}

fn mask(list: &str) -> String {
    CpuSet::from_list(list).expect("a list").to_mask()
}

fn strs(texts: &[String]) -> Vec<&str> {
    texts.iter().map(String::as_str).collect()
}

impl RandomMachine {
    fn path(&self) -> PacketPath {
        let (nodes, cores, rps) = (strs(&self.nodes), strs(&self.cores), strs(&self.rps));
        let xps = self.xps.iter().enumerate().filter(|_| self.xps.len() > 1);
        let mut files: Vec<(String, String)> = xps
            .map(|(queue, cpus)| {
                (format!("/sys/class/net/eth0/queues/tx-{queue}/xps_cpus"), mask(cpus) + "\n")
            })
            .collect();
        let table: Vec<u32> = (0..self.reached).collect();
        files.push(("/calls/ethtool/eth0/rss.json".into(), format!("{{\"table\": {table:?}}}")));
        let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (&**path, &**text)).collect();
        sample::path(&sample::SampleMachine {
            nodes: &nodes,
            cores: &cores,
            isolated: &self.isolated,
            nic_node: self.nic_node,
            vectors: &self.vectors,
            hints: None,
            rps: &rps,
            files: &files,
        })
    }
}

/// The path after the spread.
fn with_spread(mut path: PacketPath, spread: &PacketSpread) -> PacketPath {
    for vector in path.irq.interfaces[0].vectors.expect_mut() {
        let cpu = vector.receive_queue.and_then(|queue| spread.receive_interrupts.get(&queue)).copied();
        vector.affinity = Known::Value(cpu.into_iter().collect());
        vector.effective = Known::Value(Some(cpu.into_iter().collect()));
    }
    for queue in path.softirq.rps[0].queues.expect_mut() {
        if let Some(cpus) = spread.receive.get(&queue.queue) {
            queue.cpus = Known::Value(cpus.clone());
        }
    }
    for queue in path.transmit[0].queues.expect_mut() {
        if let Some(cpus) = spread.transmit.get(&queue.queue) {
            queue.xps_cpus = Known::Value(Some(cpus.clone()));
        }
    }
    path
}

fn finding_titles(path: &PacketPath) -> Vec<String> {
    let view = HostView::once(path);
    let stage_names = [StageName::Irq, StageName::Softirq, StageName::Transmit];
    let stages = STAGES.iter().filter(|stage| stage_names.contains(&stage.name));
    let rules = stages.flat_map(|stage| stage.rules).chain(STAGES[1].rules).filter(|rule| {
        rule.id == "link.far-node" || rule.stage().is_some_and(|stage| stage_names.contains(&stage))
    });
    let findings = rules.flat_map(|rule| rule.findings(&view));
    findings
        .filter(|finding| finding.severity > Severity::Note)
        .map(|finding| format!("{}: {}", finding.id, finding.title))
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn exactly_the_cpus_allowed_by_the_policy_receive_packets(random in random()) {
        let path = random.path();
        let cpus = random.policy.cpus(&path).expect("known");
        let spread = PacketSpread::of(&path, &random.policy).expect("CPUs").remove(0);
        let sources = receive::sources(&path, &spread);
        let mut receiving_cpus: BTreeSet<u32> = sources.values().copied().collect();
        receiving_cpus.extend(spread.receive.values().flat_map(CpuSet::iter));
        let machine = &path.machine;
        let with_queue: BTreeSet<Option<u32>> = sources.values().map(|cpu| machine.node_of(*cpu)).collect();
        let expected: BTreeSet<u32> = cpus
            .iter()
            .filter(|cpu| match random.policy.handing {
                RpsTarget::EveryNode => true,
                RpsTarget::OwnNode => with_queue.contains(&machine.node_of(*cpu)),
                RpsTarget::None => sources.values().any(|own| own == cpu),
            })
            .collect();
        prop_assert_eq!(receiving_cpus, expected);
        // Within the node if that has a queue.
        for (queue, targets) in &spread.receive {
            for cpu in targets.iter() {
                let own = machine.node_of(sources[queue]);
                let node = machine.node_of(cpu);
                prop_assert!(own == node || !with_queue.contains(&node), "rx-{queue} to CPU {cpu}");
            }
        }
    }

    #[test]
    fn interrupts_use_distinct_cpus_in_order_of_preference(random in random()) {
        let path = random.path();
        let cpus = random.policy.cpus(&path).expect("known");
        let spread = PacketSpread::of(&path, &random.policy).expect("CPUs").remove(0);
        let used_cpus: BTreeSet<u32> = spread.receive_interrupts.values().copied().collect();
        prop_assert_eq!(spread.receive_interrupts.len(), random.vectors.len());
        prop_assert_eq!(used_cpus.len(), random.vectors.len().min(cpus.len()));
        let near = path.link[0].node.value().copied().flatten();
        let machine = &path.machine;
        let is_far = |cpu: u32| near.is_some() && machine.node_of(cpu) != near;
        let sibling_count = |cpu: u32, is_before: &dyn Fn(u32) -> bool| {
            let core = machine.siblings_of(cpu).cloned().unwrap_or_default();
            core.iter().filter(|other| *other != cpu && used_cpus.contains(other) && is_before(*other)).count()
        };
        let worst_used = used_cpus.iter().map(|cpu| (sibling_count(*cpu, &|other| other < *cpu), is_far(*cpu))).max();
        let worst_used = worst_used.expect("a used CPU");
        let unused_cpus = cpus.iter().filter(|cpu| !used_cpus.contains(cpu));
        let best_unused = unused_cpus.map(|cpu| (sibling_count(cpu, &|_| true), is_far(cpu))).min();
        prop_assert!(best_unused.is_none_or(|best| worst_used <= best), "{used_cpus:?}");
    }

    #[test]
    fn each_cpu_sends_by_one_queue_and_prefers_its_own_queue(random in random()) {
        let path = random.path();
        let spread = PacketSpread::of(&path, &random.policy).expect("CPUs").remove(0);
        let online = path.machine.online.value().expect("known");
        if random.xps.len() > 1 {
            let mut senders: Vec<u32> = spread.transmit.values().flat_map(CpuSet::iter).collect();
            senders.sort_unstable();
            prop_assert_eq!(senders, online.iter().collect::<Vec<_>>());
            for cpu in online.iter() {
                let own = |queue: &u32| spread.transmit_interrupts.get(queue) == Some(&cpu);
                let sends_by = spread.transmit.iter().find(|(_, cpus)| cpus.contains(cpu)).expect("a queue").0;
                prop_assert!(own(sends_by) || !spread.transmit.keys().any(own), "CPU {cpu}");
            }
        } else {
            prop_assert!(spread.transmit.is_empty());
        }
    }

    #[test]
    fn an_applied_spread_is_stable_and_has_no_findings(mut random in random()) {
        random.policy = SpreadPolicy { handing: RpsTarget::EveryNode, ..SpreadPolicy::default() };
        random.isolated = String::new();
        let path = random.path();
        let spread = PacketSpread::of(&path, &random.policy).expect("CPUs").remove(0);
        let path = with_spread(path, &spread);
        prop_assert_eq!(&PacketSpread::of(&path, &random.policy).expect("CPUs")[0], &spread);
        prop_assert_eq!(finding_titles(&path), Vec::<String>::new());
    }
}
