use std::time::Duration;

use linerate_host::{CpuSet, Host, Known};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

use super::model::{
    BufferDemand, CpuDemand, FULL_LOAD_GAIN, LinkDemand, QuotaDemand, Remedy, ServiceDemand, ThreadDemand,
};
use super::{BatchCost, HeadroomReport, HeadroomSession, LimitingResource};
use crate::TraceError;

// Scaled so that rates are round numbers.
fn cost(packet_ns: f64) -> BatchCost {
    let packet_ns = packet_ns * FULL_LOAD_GAIN;
    BatchCost { packet_ns, now_ns: packet_ns * 1.5, error_ns: packet_ns * 0.02, ..BatchCost::default() }
}

fn cpu(cpu: u32, arrival_share: f64, read_share: f64) -> CpuDemand {
    CpuDemand {
        cpu,
        arrival_share,
        read_share,
        softirq: (arrival_share > 0.0).then(|| cost(2_000.0)),
        service: (read_share > 0.0).then(|| cost(3_000.0)),
        ..CpuDemand::default()
    }
}

fn thread(cpus: &str) -> ThreadDemand {
    ThreadDemand {
        comm: "worker".to_owned(),
        allowed_cpus: Known::Value(CpuSet::from_list(cpus).expect("a list")),
        read_share: 1.0,
        cost: cost(3_000.0),
        ..ThreadDemand::default()
    }
}

/// One thread on CPU 1, where its datagrams arrive, too.
fn demand() -> ServiceDemand {
    let (cpus, threads) = (vec![cpu(0, 0.0, 0.0), cpu(1, 1.0, 1.0)], vec![thread("1")]);
    ServiceDemand { read_per_second: 50_000.0, cpus, threads, ..ServiceDemand::default() }
}

fn first(demand: &ServiceDemand) -> (f64, LimitingResource) {
    let first = demand.limits().into_iter().next().expect("a limit");
    assert!(first.low_per_second < first.per_second && first.per_second < first.high_per_second, "{first:?}");
    (first.per_second.round(), first.resource)
}

#[test]
fn pinned_thread_and_softirqs_share_the_cpu_limit() {
    let limits = demand().limits();
    assert_eq!(first(&demand()), (200_000.0, LimitingResource::Cpu { cpu: 1 }));
    assert_eq!(limits.len(), 1);
    assert_eq!((limits[0].parts.as_str(), limits[0].used_share), ("60 % thread worker, 40 % softirqs", 0.25));
    let mut with_others = demand();
    (with_others.cpus[1].other_use, with_others.cpus[1].steal) = (0.2, 0.05);
    assert_eq!(first(&with_others).0, 150_000.0);
    with_others.cpus[1].yielding_use = 0.2;
    let limit = &with_others.limits()[0];
    assert_eq!(limit.per_second.round(), 190_000.0, "a nice program yields the CPU");
    assert!(
        limit.low_per_second < 150_000.0 * 0.9,
        "the lower bound assumes that the nice program does not yield: {limit:?}"
    );
}

#[test]
fn unpinned_thread_is_limited_by_itself_or_by_all_cpus() {
    let floating = ServiceDemand { threads: vec![thread("0-1")], ..demand() };
    let thread = LimitingResource::Thread { tid: 0, comm: "worker".to_owned() };
    assert_eq!(first(&floating), (333_333.0, thread));
    let mut crowded = floating;
    crowded.cpus[0].other_use = 0.9;
    assert_eq!(first(&crowded), (220_000.0, LimitingResource::AllCpus));
}

#[test]
fn softirqs_of_one_cpu_limit_many_threads() {
    let threads = vec![thread("1"), thread("2"), thread("3")];
    let cpus = vec![cpu(0, 1.0, 0.0), cpu(1, 0.0, 0.34), cpu(2, 0.0, 0.33), cpu(3, 0.0, 0.33)];
    let demand = ServiceDemand { cpus, threads, ..demand() };
    assert_eq!(first(&demand), (500_000.0, LimitingResource::Softirq { cpu: 0 }));
    let remedies = demand.remedies();
    let order: Vec<Remedy> = remedies.iter().map(|gain| gain.remedy).collect();
    assert_eq!(order, [Remedy::Boost, Remedy::SpreadSoftirqs], "{remedies:?}");
}

#[test]
fn receive_buffer_limits_the_rate_during_long_pauses() {
    let buffer = BufferDemand { share: 0.5, bytes: 212_992, packets: 166.0, wait_ns: [4e6, 2e6, 8e6] };
    let small = ServiceDemand { buffer: Known::Value(buffer), ..demand() };
    assert_eq!(first(&small), (83_000.0, LimitingResource::ReceiveBuffer { bytes: 212_992 }));
    assert!(!small.is_beyond_buffer());
    assert!(ServiceDemand { read_per_second: 84_000.0, ..small.clone() }.is_beyond_buffer());
    let after = small.what_if(&[Remedy::SeparateThreads, Remedy::LargerBuffer]);
    let first = |number: usize| after[number].limits.value().expect("possible")[0].per_second.round();
    assert_eq!((first(0), first(1)), (small.limits()[0].per_second.round(), 200_000.0));
    let remedies = small.remedies();
    assert_eq!((remedies[0].remedy, remedies[0].per_second.round()), (Remedy::LargerBuffer, 200_000.0));
}

#[test]
fn link_limits_the_rate_next_to_its_other_traffic() {
    for (own_bits_per_second, capacity) in [(5e8, 100_000.0), (2.5e8, 150_000.0)] {
        let link = LinkDemand {
            interface: "eth0".to_owned(),
            bits_per_second: 1e9,
            used_bits_per_second: 5e8,
            own_bits_per_second,
        };
        let linked = ServiceDemand { links: vec![link], ..demand() };
        assert_eq!(first(&linked), (capacity, LimitingResource::Link { interface: "eth0".to_owned() }));
    }
}

#[test]
fn cpu_quota_limits_the_threads_of_its_control_group() {
    let cgroup = "/sys/fs/cgroup/dns.slice".to_owned();
    let quota = QuotaDemand { cgroup: cgroup.clone(), cpus: 0.3, read_share: 0.5 };
    let limited = ServiceDemand { threads: vec![thread("0-1")], quotas: vec![quota], ..demand() };
    assert_eq!(first(&limited), (200_000.0, LimitingResource::CpuQuota { cgroup }));
}

#[test]
fn other_programs_do_not_limit_cpus_with_few_datagrams_or_softirqs_only() {
    let spread: Vec<CpuDemand> = (0..16).map(|number| cpu(number, 1.0 / 16.0, 0.0)).collect();
    let limits = |changed: fn(&mut CpuDemand)| {
        let mut demand = ServiceDemand { cpus: spread.clone(), ..demand() };
        changed(&mut demand.cpus[7]);
        demand.limits().iter().map(|limit| limit.per_second.round()).collect::<Vec<_>>()
    };
    assert_eq!(limits(|_| ()), [8e6; 16]);
    assert_eq!(limits(|cpu| cpu.other_use = 0.4), [8e6; 16], "softirqs preempt threads");
    assert_eq!(limits(|cpu| (cpu.arrival_share, cpu.other_use) = (1e-5, 1.0)), [8e6; 15]);
}

#[test]
fn capacity_is_unknown_with_little_traffic_or_on_a_busy_host() {
    let why = |demand: ServiceDemand, seconds: f64| {
        let report = HeadroomReport::new(53, seconds, demand);
        assert!(report.remedies.is_empty());
        report.capacity.why().map(str::to_owned).expect("refused")
    };
    assert!(why(demand(), 0.01).contains("read 500 datagrams in 0.0 s"), "{}", why(demand(), 0.01));
    let mut crowded = demand();
    crowded.cpus[1].other_use = 0.7;
    assert!(why(crowded.clone(), 5.0).contains("other programs took 70 % of CPU 1"));
    crowded.cpus[1].steal = 0.2;
    assert!(why(crowded, 5.0).contains("the hypervisor took 20 % of CPU 1"));
    let mut spread = demand();
    spread.cpus = (0..16).map(|number| cpu(number, 1.0 / 16.0, 1.0 / 16.0)).collect();
    spread.cpus[7].other_use = 0.97;
    assert!(why(spread, 5.0).contains("other programs took 97 % of CPU 7"));
    let mut exhausted = demand();
    (exhausted.cpus[0], exhausted.cpus[1]) = (cpu(0, 0.98, 0.95), cpu(1, 0.02, 0.05));
    exhausted.cpus[1].other_use = 1.0;
    assert!(why(exhausted, 5.0).contains("other programs took 100 % of CPU 1"));
    let mut polling = demand();
    polling.threads[0].polls = true;
    assert!(why(polling, 5.0).contains("thread worker (0) reads without a pause"));
}

#[test]
fn without_sys_admin_only_its_own_time_is_unknown() {
    // In the exporter's unit the kernel refuses to time programs. Capabilities are of one thread.
    let measurement = std::thread::spawn(|| {
        let mut sets = capabilities(None).expect("read");
        sets.effective.remove(CapabilitySet::SYS_ADMIN);
        set_capabilities(None, sets).expect("fewer");
        let host = Host::live();
        let mut session = HeadroomSession::start(&host, 9)?;
        session.measure(Duration::from_millis(1), &|_| ())
    });
    match measurement.join().expect("no panic") {
        Ok(report) => {
            let why = report.run_ns.why().expect("unknown");
            assert!(why.contains("CAP_SYS_ADMIN") && report.own_share.why() == Some(why), "{why}");
        }
        Err(TraceError::NotPermitted { capabilities, .. }) if capabilities.contains("CAP_SYS_ADMIN") => {
            panic!("it requires CAP_SYS_ADMIN")
        }
        Err(why) => linerate_testkit::skip("without_sys_admin_only_its_own_time_is_unknown", why),
    }
}
