//! A run of `flame` on a server with one socket and many threads, made up.

use std::collections::BTreeMap;

use linerate_host::{Known, StageName};
use linerate_trace::contention::{LockContention, LockKind, WaitSite};
use linerate_trace::flame::spots::{HotSpot, SpotFunction};
use linerate_trace::flame::{
    CpuContext, CpuProfile, FrameKind, SampleEvent, SampledStack, SamplingCost, StackFrame, StackProfile,
};

use linerate_trace::flame::FlameSelection;
use linerate_trace::flame::result::{FlameResult, SelfSamples};

use crate::envelope::Envelope;
use crate::origin::HostSummary;

/// The whole of it.
pub(crate) fn envelope() -> Envelope<FlameResult> {
    let result = FlameResult {
        shown: FlameSelection::default(),
        path_samples: 5_942,
        spots: spots(),
        functions: vec![
            own("main", Some("server"), 2_820, 0.47),
            own("native_queued_spin_lock_slowpath", None, 2_460, 0.41),
            own("nft_do_chain", Some("nf_tables"), 720, 0.12),
        ],
        contention: Some(contention()),
        profile: Some(profile()),
    };
    let host = HostSummary {
        name: Some("ns1".to_owned()),
        kernel: Some("6.18.0".to_owned()),
        cpu_model: Some("A CPU".to_owned()),
        ..HostSummary::default()
    };
    let envelope = Envelope::new(host, Some(1_772_355_900), result);
    Envelope { argv: ["linerate", "flame", "--duration", "5"].map(str::to_owned).to_vec(), ..envelope }
}

fn own(function: &str, module: Option<&str>, samples: u64, share: f64) -> SelfSamples {
    SelfSamples { function: function.to_owned(), module: module.map(str::to_owned), samples, share }
}

fn spots() -> Vec<HotSpot> {
    vec![
        HotSpot {
            id: "socket-lock".to_owned(),
            stage: StageName::Socket,
            what: "CPUs wait for the lock of one socket's queue".to_owned(),
            finding: Some("socket.shared-by-threads".to_owned()),
            remedy:
                "Give each thread a socket of its own (SO_REUSEPORT), and each CPU's packets to its thread: \
                     linerate boost does that to a server that runs."
                    .to_owned(),
            when_not: "One thread is all the service needs.".to_owned(),
            source: "net/ipv4/udp.c, Linux 6.18".to_owned(),
            share_of_path: 0.414,
            share_of_busy: 0.391,
            samples: 2_460,
            functions: vec![function("native_queued_spin_lock_slowpath", 2_460)],
        },
        HotSpot {
            id: "netfilter".to_owned(),
            stage: StageName::Filter,
            what: "rules of netfilter are matched for each packet".to_owned(),
            finding: None,
            remedy: "Put a rule that accepts the service's port first.".to_owned(),
            when_not: "Rules before it must see these packets.".to_owned(),
            source: "net/netfilter/core.c, Linux 6.18".to_owned(),
            share_of_path: 0.12,
            share_of_busy: 0.11,
            samples: 720,
            functions: vec![function("nft_do_chain", 720)],
        },
        HotSpot {
            id: "gro".to_owned(),
            stage: StageName::Softirq,
            what: "packets are looked at for being merged".to_owned(),
            finding: None,
            remedy: "ethtool -K eth0 gro off".to_owned(),
            when_not: "The host also receives TCP in bulk.".to_owned(),
            source: "net/core/gro.c, Linux 6.18".to_owned(),
            share_of_path: 0.008,
            share_of_busy: 0.007,
            samples: 48,
            functions: vec![function("dev_gro_receive", 48)],
        },
    ]
}

fn function(name: &str, samples: u64) -> SpotFunction {
    SpotFunction { name: name.to_owned(), samples }
}

fn contention() -> LockContention {
    LockContention {
        seconds: 5.0,
        cpus: vec![0, 1],
        locks: vec![WaitSite {
            callers: [
                "__udp_enqueue_schedule_skb",
                "udp_queue_rcv_one_skb",
                "udp_unicast_rcv_skb",
                "__udp4_lib_rcv",
            ]
            .map(str::to_owned)
            .to_vec(),
            lock: LockKind::Spinlock,
            waits: 1_204_331,
            waited_ns: 2_100_000_000,
            longest_ns: 87_300,
            by_cpu_ns: BTreeMap::from([(0, 1_000_000_000), (1, 1_100_000_000)]),
            spot: Some("socket-lock".to_owned()),
        }],
        total_ns: 2_100_000_000,
        spinning_ns: 2_100_000_000,
        waits: 1_204_331,
        missed: 0,
        notes: vec!["A wait is told where it ends.".to_owned()],
    }
}

fn profile() -> StackProfile {
    let frame = |name: &str, module: Option<&str>, kind| StackFrame {
        name: name.to_owned(),
        module: module.map(str::to_owned),
        kind,
    };
    let stack = |frames: &[u32], context, entry, cpu, samples| SampledStack {
        frames: frames.to_vec(),
        context,
        entry,
        cpu,
        pid: 812,
        comm: "server".to_owned(),
        samples,
    };
    StackProfile {
        seconds: 5.0,
        event: SampleEvent::CpuClock { why: "the machine has no counter of cycles".to_owned() },
        frequency_hz: 999,
        cpus: vec![
            CpuProfile { cpu: 0, samples: 4_995, idle: 1_995, lost: 0 },
            CpuProfile { cpu: 1, samples: 4_995, idle: 1_995, lost: 0 },
        ],
        frames: vec![
            frame("main", Some("server"), FrameKind::User),
            frame("handle_softirqs", None, FrameKind::Kernel),
            frame("native_queued_spin_lock_slowpath", None, FrameKind::Kernel),
            frame("nft_do_chain", Some("nf_tables"), FrameKind::Kernel),
            frame("default_idle", None, FrameKind::Kernel),
        ],
        stacks: vec![
            stack(&[0], CpuContext::Task, 0, 0, 1_000),
            stack(&[0], CpuContext::Task, 0, 1, 1_820),
            stack(&[0, 1, 2], CpuContext::Softirq, 1, 0, 1_640),
            stack(&[0, 1, 2], CpuContext::Softirq, 1, 1, 820),
            stack(&[0, 1, 3], CpuContext::Softirq, 1, 0, 360),
            stack(&[0, 1, 3], CpuContext::Ksoftirqd, 1, 1, 360),
            stack(&[4], CpuContext::Idle, 0, 0, 1_995),
            stack(&[4], CpuContext::Idle, 0, 1, 1_995),
        ],
        own: Known::Value(SamplingCost { ns_a_sample: 6_200.0, process_ns: 41_000_000, share: 0.0103 }),
        notes: vec![
            "What runs with interrupts off is charged to where they are switched on again.".to_owned(),
        ],
    }
}
