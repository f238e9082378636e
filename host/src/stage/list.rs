//! The description, rules and counters of each stage.

use super::{
    PacketPath, counters, filter, irq, link, machine, route, rss, socket, softirq, thread, transmit,
};
use crate::counter::Counter;
use crate::finding::Rule;
use crate::stage::name::StageName;

#[derive(Debug)]
pub struct StageInfo {
    pub name: StageName,
    /// The processing of a packet in this stage, one paragraph.
    pub explain: &'static str,
    pub rules: &'static [Rule],
    pub counters: fn(&PacketPath) -> Vec<Counter>,
}

/// In packet order.
pub const STAGES: [StageInfo; 10] = [
    StageInfo {
        name: StageName::Machine,
        explain: "Packets are processed by CPUs: their number, shared cores and nodes, frequency, and other work \
                  on them limit all later stages.",
        rules: &[
            machine::governor::RULE,
            machine::smt::SHARED,
            machine::smt::OFF,
            machine::steal::RULE,
            machine::kernel_age::RULE,
        ],
        counters: counters::of_machine,
    },
    StageInfo {
        name: StageName::Link,
        explain: "The NIC puts each frame into a ring of buffers, one ring per receive queue. If rings are \
                  short, queues few, or the NIC far from the CPUs, packets are lost here, and only the NIC's own \
                  counters show it.",
        rules: &[
            link::queues::SINGLE,
            link::queues::BELOW_CPUS,
            link::loss_rules::HARDWARE_DROPS,
            link::loss_rules::RING_SMALL,
            link::loss_rules::ALLOWANCE_EXCEEDED,
            link::gro::RULE,
            link::far_node::RULE,
            link::virtual_functions::RULE,
            link::virtual_network::rules::VHOST_SATURATED,
            link::virtual_network::rules::TAP_DROPS,
            link::virtual_network::rules::TAP_SINGLE_QUEUE,
        ],
        counters: |path| path.link.iter().flat_map(link::LinkState::counters).collect(),
    },
    StageInfo {
        name: StageName::Rss,
        explain: "The NIC hashes the addresses (and, if configured, the ports) of each packet, and looks up in its \
                  indirection table which receive queue that hash belongs to. A queue that is not in the table gets \
                  nothing; a flow never leaves its queue.",
        rules: &[
            rss::rules::hash::RULE,
            rss::rules::table_misses::RULE,
            rss::rules::table_uneven::RULE,
            rss::rules::imbalance::RULE,
            rss::rules::single_flow::RULE,
        ],
        counters: counters::of_rss,
    },
    StageInfo {
        name: StageName::Irq,
        explain: "Each queue's vector interrupts one of the CPUs of its affinity, and the packets of that queue \
                  are then processed there. Drivers give hints, irqbalance and other programs decide. If the \
                  interrupts of many queues go to few CPUs, the other CPUs get no packets.",
        rules: &[
            irq::rules::one_node::RULE,
            irq::rules::stacked::RULE,
            irq::rules::isolated::RULE,
            irq::rules::not_hint::RULE,
            irq::rules::owner_conflict::RULE,
        ],
        counters: counters::of_irq,
    },
    StageInfo {
        name: StageName::Softirq,
        explain: "The interrupt's CPU polls the queue in the NET_RX softirq, up to 64 packets per poll, and \
                  processes each up to the socket; with RPS it hands each to the backlog of another CPU chosen \
                  by hash. Nothing else runs on a CPU that is in softirq.",
        rules: &[
            softirq::rules::rps_missing::RULE,
            softirq::rules::rps_crosses_node::RULE,
            softirq::rules::rps_on_sibling::RULE,
            softirq::rules::skew::RULE,
            softirq::rules::backlog_drops::RULE,
            softirq::rules::squeezed::RULE,
            softirq::rules::livelock_risk::RULE,
        ],
        counters: counters::of_softirq,
    },
    StageInfo {
        name: StageName::Filter,
        explain: "XDP programs see a packet before it has a socket buffer, tc after that, and netfilter at its \
                  hooks on the way in and out. Each hook costs time per packet, with or without rules; \
                  connection tracking looks up each packet and creates an entry per flow.",
        rules: &[
            filter::drops::RULE,
            filter::notrack::RULE,
            filter::empty_tables::RULE,
            filter::generic_xdp::RULE,
            filter::bridge_netfilter::RULE,
        ],
        counters: |path| filter::conntrack::counters(&path.filter),
    },
    StageInfo {
        name: StageName::Route,
        explain: "The kernel looks up the route of each packet; with source validation it also looks up the \
                  route back to its source. Early demux looks for a connected socket first, to save the lookup.",
        rules: &[route::reverse_path::VALIDATION, route::reverse_path::DROPS, route::early_demux::RULE],
        counters: |path| route::snmp::counters(&path.route),
    },
    StageInfo {
        name: StageName::Socket,
        explain: "A packet is put into the receive queue of its socket, under that socket's lock, and lost if \
                  the buffer is full. In a reuseport group one socket is chosen: by hash, by a program, or by \
                  the CPU of the packet.",
        rules: &[
            socket::rules::sharing::SHARED_BY_THREADS,
            socket::rules::steered::NOT_STEERED,
            socket::rules::steered::MISMATCH,
            socket::rules::group::IMBALANCE,
            socket::rules::group::BELOW_QUEUES,
            socket::rules::buffer::RECEIVE_DROPS,
            socket::rules::memory::RULE,
            socket::rules::buffer::SMALL,
            socket::rules::buffer::GRO_SMALL,
        ],
        counters: |path| path.socket.counters(),
    },
    StageInfo {
        name: StageName::Thread,
        explain: "A thread takes the packet out of its socket by a system call. On the CPU whose softirq put it there, or one \
                  that shares a cache with it, that is cheap; on another node it is not. Auditing and seccomp add \
                  their cost to each of these calls.",
        rules: &[
            thread::rules::unpinned::UNPINNED,
            thread::rules::placement::FAR_NODE,
            thread::rules::placement::NOT_WITH_QUEUE,
            thread::rules::placement::ON_SIBLING,
            thread::rules::held_back::RULE,
            thread::rules::audit::AUDIT,
        ],
        counters: counters::of_threads,
    },
    StageInfo {
        name: StageName::Transmit,
        explain: "A packet leaves by a transmit queue, through that queue's qdisc and under its lock. XPS \
                  chooses the queue by CPU, so that each CPU has its own; without XPS the flow's hash chooses, \
                  and CPUs wait at locks.",
        rules: &[
            transmit::rules::xps_missing::RULE,
            transmit::rules::xps_wrong::RULE,
            transmit::rules::single_queue::RULE,
            transmit::rules::qdisc_drops::RULE,
            transmit::rules::queue_stuck::RULE,
        ],
        counters: counters::of_transmit,
    },
];

impl PacketPath {
    pub fn counters(&self) -> Vec<Counter> {
        STAGES.iter().flat_map(|stage| (stage.counters)(self)).collect()
    }
}
