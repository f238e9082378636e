//! A server of two workers, for tests.

use std::net::SocketAddr;

use linerate_host::delivery::{DeliveryCount, DeliveryReport};
use linerate_host::setting::SocketAt;
use linerate_host::stage::socket::SocketProtocol;
use linerate_host::{CpuSet, Known, Setting, SettingValue};
use linerate_tune::TunePlan;
use linerate_tune::boost::BoostPlan;
use linerate_tune::boost::delivery::PlanConformity;
use linerate_tune::boost::delivery::{DeliveryAgreement, SocketAgreement};
use linerate_tune::boost::discovery::{
    GroupSocket, ObservedServer, ReaderEvidence, ReaderThread, ServerGroup, ServerProcess,
};
use linerate_tune::boost::plan::{BoostRefusal, CpuAssignment, ServerAdvice};
use linerate_tune::boost::report::{BoostApplyReport, BoostPlanReport, BoostVerification, DeliveryCounts};
use linerate_tune::plan::PlannedChange;
use linerate_tune::report::AppliedChange;
use linerate_tune::transaction::ChangeOutcome;

/// A master that holds all sockets, and two workers with a socket of each group.
pub(crate) fn nsd() -> BoostPlanReport {
    let udp = group(SocketProtocol::Udp, "0.0.0.0:53", &[41, 42]);
    let tcp = group(SocketProtocol::Tcp, "0.0.0.0:53", &[45, 46]);
    let server = ObservedServer {
        name: "nsd".into(),
        product: Some("nsd".into()),
        processes: vec![
            process(812, None, false),
            process(813, Some(812), true),
            process(814, Some(812), true),
        ],
        namespace: 4_026_531_840,
        groups: vec![udp, tcp],
        readers: vec![reader(813, &[41, 45]), reader(814, &[42, 46])],
        delivery: Known::Value(delivery()),
        notes: vec!["Its calls were sampled 40 times over 2 s.".into()],
    };
    let plan = TunePlan {
        cpus: vec![0, 1],
        changes: vec![
            change(thread(813), "0-3", "0", "Its socket's packets arrive on CPU 0."),
            change(thread(814), "0-3", "1", "Its socket's packets arrive on CPU 1."),
            change(steering(), "none", "by-cpu 0:41 1:42 2:41 3:42", "The hash of a flow knows of no CPU."),
        ],
        ..TunePlan::new("boost nsd on port 53")
    };
    let assignment = |cpu, receives, sockets: [u64; 2], threads: &[u32]| CpuAssignment {
        cpu,
        receives,
        sockets: sockets.to_vec(),
        threads: threads.to_vec(),
    };
    let boost = BoostPlan {
        plan,
        places: vec![
            assignment(0, true, [41, 45], &[813]),
            assignment(1, true, [42, 46], &[814]),
            assignment(2, false, [41, 45], &[]),
            assignment(3, false, [42, 46], &[]),
        ],
        advice: vec![ServerAdvice {
            what: "Two workers take packets of four CPUs.".into(),
            option: Some("server-count: 4".into()),
            source: Some("https://nsd.docs.nlnetlabs.nl/".into()),
        }],
        refusals: vec![BoostRefusal {
            what: "tcp 0.0.0.0:53".into(),
            why: "is steered already by a classic BPF program of its own or of another tool".into(),
        }],
    };
    BoostPlanReport { server, boost, agreement: Known::Value(agreement()) }
}

pub(crate) fn nsd_applied() -> BoostApplyReport {
    let BoostPlanReport { server, boost, .. } = nsd();
    let conformity = PlanConformity { packets: 59_189, as_planned: 59_189, ..PlanConformity::default() };
    BoostApplyReport {
        tune: Some(4),
        goal: boost.plan.goal.clone(),
        until: None,
        changes: boost
            .plan
            .changes
            .iter()
            .map(|change| AppliedChange::new(change, ChangeOutcome::Made))
            .collect(),
        broke_off: None,
        places: boost.places,
        refusals: boost.refusals,
        advice: boost.advice,
        before: DeliveryCounts::of(&server),
        now: Some(DeliveryCounts { seconds: Some(2.0), agreement: Known::unknown("no BPF") }),
        verification: BoostVerification::AsPlanned { conformity, replies_per_request: None },
        measurement: Known::unknown("too few datagrams came"),
        undone: false,
    }
}

fn process(pid: u32, parent: Option<u32>, reads: bool) -> ServerProcess {
    ServerProcess { pid, parent, name: "nsd".into(), started: 100, threads: 1, reads }
}

fn reader(pid: u32, sockets: &[u64]) -> ReaderThread {
    ReaderThread {
        pid,
        tid: pid,
        started: 100,
        name: "nsd".into(),
        sockets: sockets.to_vec(),
        seen: ReaderEvidence::Reading,
        guessed: Vec::new(),
        allowed: Known::Value(CpuSet::from_list("0-3").expect("a list")),
        cpuset: None,
    }
}

fn group(protocol: SocketProtocol, local: &str, cookies: &[u64]) -> ServerGroup {
    let member = |cookie: &u64| GroupSocket {
        socket: SocketAt { cookie: *cookie, inode: 9_000 + cookie, pid: 812, descriptor: 3 },
        holders: vec![(812, 3)],
        options: Known::Value(None),
        drops: Some(0),
        receive_buffer_bytes: Some(212_992),
    };
    ServerGroup {
        protocol,
        local: local.parse().expect("an address"),
        reuseport: true,
        members: cookies.iter().map(member).collect(),
        ordered: protocol == SocketProtocol::Udp,
        steering: Known::Value("none".into()),
    }
}

fn delivery() -> DeliveryReport {
    let delivery_count = |cookie, arrived_on, read_on, packets| DeliveryCount {
        cookie,
        arrived_on: Some(arrived_on),
        read_on,
        pid: 813,
        tid: 813,
        packets,
    };
    let read = vec![
        delivery_count(41, 0, 0, 300),
        delivery_count(41, 1, 0, 200),
        delivery_count(42, 0, 1, 260),
        delivery_count(42, 1, 1, 240),
    ];
    DeliveryReport { seconds: 2.0, read, ..DeliveryReport::default() }
}

fn agreement() -> DeliveryAgreement {
    let socket = |cookie, arrivals: [(u32, u64); 2], read, thread| SocketAgreement {
        cookie,
        arrived: arrivals.to_vec(),
        read: vec![read],
        threads: vec![thread],
    };
    DeliveryAgreement {
        packets: 1_000,
        on_arrival_cpu: 540,
        refused: 0,
        sockets: vec![
            socket(41, [(0, 300), (1, 200)], (0, 500), 813),
            socket(42, [(0, 260), (1, 240)], (1, 500), 814),
        ],
    }
}

fn thread(tid: u32) -> Setting {
    Setting::ThreadCpus { pid: tid, tid, started: 100 }
}

fn steering() -> Setting {
    let local: SocketAddr = "0.0.0.0:53".parse().expect("an address");
    Setting::Steering { namespace: 4_026_531_840, protocol: SocketProtocol::Udp, local }
}

fn change(setting: Setting, from: &str, to: &str, reason: &str) -> PlannedChange {
    PlannedChange::new(setting, SettingValue::new(from), SettingValue::new(to), reason)
}
