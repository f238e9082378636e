//! A look at the cost of packets for tests. Every figure in it is made up: nothing here was measured on any machine.

use linerate_host::Known;
use linerate_trace::cost::calibrate::CostCalibration;
use linerate_trace::cost::{
    COUNTING_POINT, CostReport, CostResult, CostVictim, CpuCost, DeviceCost, OwnTime, UntracedEstimate,
    UntracedIrq, VictimGrouping,
};

use crate::envelope::Envelope;
use crate::origin::{HostSummary, Warning};

/// Two CPUs, one of which a process computes on that gets packets.
pub(crate) fn cost() -> CostReport {
    CostReport {
        seconds: 10.0,
        counting_point: Known::Value(COUNTING_POINT.to_owned()),
        cpus: vec![cpu(0, [60, 30, 1, 0, 4, 2, 3]), cpu(2, [0, 57, 38, 1, 1, 2, 1])],
        victims: vec![
            victim(812, 812, "openssl", 9_900, 4_000, Known::Value(9_890_000_000)),
            victim(900, 900, "nsd", 2_000, 100, Known::Value(1_990_000_000)),
            victim(900, 901, "nsd", 1_000, 50, Known::unknown("it began meanwhile")),
        ],
        paths: None,
        devices: vec![DeviceCost {
            name: "eth0".to_owned(),
            ifindex: 2,
            network_namespace: 7,
            polls: 500_000,
            threaded_polls: 0,
            busy_polls: 0,
            packets: 4_000_000,
            budget_exhausted: 1_200,
            taken_ns: 3_600_000_000,
        }],
        untraced_irq: Known::Value(UntracedIrq {
            cpu: 2,
            by_timer: estimate(3_000.0),
            by_cpu: estimate(11_000.0),
        }),
        own: OwnTime {
            runs: 3_000_000,
            ns_a_run: Known::Value(62.0),
            process_ns: 20_000_000,
            share: Known::Value(0.0093),
            highest_share: Known::Value(0.017),
        },
        packets_ns_a_packet_samples: Vec::new(),
        notes: Vec::new(),
    }
}

fn estimate(ns: f64) -> Known<UntracedEstimate> {
    Known::Value(UntracedEstimate { ns, low_ns: ns * 0.9, high_ns: ns * 1.1, interrupts: 250 })
}

/// The same as a result.
pub(crate) fn envelope() -> Envelope<CostResult> {
    let calibration = CostCalibration {
        cpu: 2,
        tid: 4_000,
        elapsed_ns: 10_000_000_000,
        lost_by_inference_ns: 4_150_000_000,
        lost_by_tracing_ns: 4_100_000_000,
        taken_ns: 4_000_000_000,
        rounds_per_second: 1e9,
        interrupts: 1_000_000,
        steal_ns: Known::Value(0),
    };
    let result =
        CostResult { by: VictimGrouping::Process, top: 10, cost: cost(), calibrations: vec![calibration] };
    let envelope = Envelope::new(HostSummary::default(), Some(1_735_689_599), result);
    let argv = vec!["linerate".to_owned(), "cost".to_owned()];
    Envelope { argv, ..envelope }.with_warnings([Warning::remark("the hypervisor took 0.2 % of these CPUs")])
}

/// A document whose every text tries to break out of the page.
pub(crate) fn hostile() -> Envelope<CostResult> {
    let attack = "</title><script>alert('x')</script>&\"";
    let mut envelope = envelope();
    envelope.argv.push(attack.to_owned());
    envelope.host.kernel = Some(attack.to_owned());
    for victim in &mut envelope.result.cost.victims {
        victim.comm = attack.to_owned();
    }
    for device in &mut envelope.result.cost.devices {
        device.name = attack.to_owned();
    }
    envelope.warnings.push(Warning::remark(attack));
    envelope
}

/// A CPU whose time is divided so, per cent: idle, processes, NET_RX, NET_TX, interrupts for packets, other softirqs,
/// other interrupts.
fn cpu(number: u32, percent: [u64; 7]) -> CpuCost {
    let [idle_ns, tasks_ns, net_rx_ns, net_tx_ns, nic_irq_ns, other_softirq_ns, other_irq_ns] =
        percent.map(|percent| percent * 100_000_000);
    CpuCost {
        cpu: number,
        elapsed_ns: 10_000_000_000,
        traced_ns: 10_000_000_000,
        packets_share_doubt: Known::Value(0.0),
        idle_ns,
        tasks_ns,
        net_rx_ns,
        net_tx_ns,
        nic_irq_ns,
        other_softirq_ns,
        other_irq_ns,
        untraced_irq_ns: nic_irq_ns / 2,
        untraced_irq_doubt_ns: nic_irq_ns / 20,
        in_ksoftirqd_ns: net_rx_ns / 10,
        in_threads_ns: 0,
        from_idle_ns: idle_ns / 100,
        interrupts: 120_000,
        rx_runs: 100_000,
        polls: 250_000,
        packets: net_rx_ns / 1_000,
        entered_packets: net_rx_ns / 2_000,
        own_runs: 1_500_000,
        time_squeezes: Known::Value(12),
        steal_ns: Known::Value(0),
    }
}

fn victim(
    pid: u32,
    tid: u32,
    comm: &str,
    on_cpu_ms: u64,
    taken_ms: u64,
    accounted_ns: Known<u64>,
) -> CostVictim {
    CostVictim {
        pid,
        tid,
        comm: comm.to_owned(),
        cgroup_id: u64::from(pid),
        cgroup: Known::Value(format!("/system.slice/{comm}.service")),
        on_cpu_ns: on_cpu_ms * 1_000_000,
        taken_ns: taken_ms * 1_000_000,
        taken_in_own_calls_ns: Known::Value(0),
        taken_other_ns: taken_ms * 10_000,
        untraced_ns: taken_ms * 1_000,
        displaced_ns: taken_ms * 20_000,
        accounted_ns,
    }
}
