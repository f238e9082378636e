use super::*;
use crate::stage::irq::sample::{SampleMachine as Sample, path};

fn queue_cpus(plan: Option<BTreeMap<u32, u32>>) -> Vec<u32> {
    plan.map_or_else(Vec::new, |plan| plan.into_values().collect())
}

#[test]
fn hints_are_followed_only_if_each_queue_has_its_own_cpu() {
    let path = path(&Sample { hints: Some(&[3, 2, 1, 0]), vectors: &[0, 0, 0, 0], ..Sample::PLAIN });
    assert_eq!(queue_cpus(plan(&path, "eth0")), [3, 2, 1, 0]);
    let path_of_one_hint = crate::stage::irq::sample::path(&Sample {
        hints: Some(&[0, 0, 0, 0]),
        vectors: &[0, 0, 0, 0],
        ..Sample::PLAIN
    });
    assert_eq!(queue_cpus(plan(&path_of_one_hint, "eth0")), [0, 1, 2, 3]);
}

#[test]
fn cores_of_the_nics_node_come_first_and_second_threads_last() {
    let machine = Sample {
        nodes: &["0-1,4-5", "2-3,6-7"],
        cores: &["0,4", "1,5", "2,6", "3,7"],
        nic_node: Some(1),
        vectors: &[0; 8],
        ..Sample::PLAIN
    };
    assert_eq!(queue_cpus(plan(&path(&machine), "eth0")), [2, 3, 0, 1, 6, 7, 4, 5]);
}

#[test]
fn isolated_cpus_are_skipped_and_excess_queues_wrap_around() {
    let machine = Sample { isolated: "2-3", vectors: &[0; 5], ..Sample::PLAIN };
    assert_eq!(queue_cpus(plan(&path(&machine), "eth0")), [0, 1, 0, 1, 0]);
}

#[test]
fn vectors_of_queues_that_are_off_are_left_out() {
    let mut path = path(&Sample { vectors: &[0, 1, 0, 1], ..Sample::PLAIN });
    path.link[0].receive_queues = crate::Known::Value(2);
    path.link[0].transmit_queues = crate::Known::Value(2);
    assert_eq!(queue_cpus(plan(&path, "eth0")), [0, 1]);
    let spread = PacketSpread::of(&path, &SpreadPolicy::default()).expect("CPUs").remove(0);
    assert_eq!((spread.receive_interrupts.len(), spread.transmit_interrupts.len()), (2, 2));
}

#[test]
fn rps_excludes_an_isolated_cpu_that_has_the_interrupt() {
    let machine = Sample { isolated: "2-3", vectors: &[2], rps: &[""], ..Sample::PLAIN };
    let policy = SpreadPolicy { interrupts_stay: true, ..SpreadPolicy::default() };
    let spread = PacketSpread::of(&path(&machine), &policy).expect("CPUs").remove(0);
    assert_eq!(spread.receive_interrupts[&0], 2);
    assert_eq!(spread.receive[&0].to_string(), "0-1");
}

#[test]
fn an_existing_spread_stays_unless_queues_share_a_cpu() {
    let machine = Sample { vectors: &[2, 0], hints: Some(&[0, 1]), ..Sample::PLAIN };
    assert_eq!(queue_cpus(settled_cpus(&path(&machine), "eth0")), [2, 0]);
    let machine = Sample { vectors: &[2, 2], hints: Some(&[0, 1]), ..Sample::PLAIN };
    assert_eq!(queue_cpus(settled_cpus(&path(&machine), "eth0")), [0, 1]);
    assert_eq!(settled_cpus(&path(&machine), "eth9"), None);
}
