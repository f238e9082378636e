//! Names of queue counters in `ethtool -S` by driver. Data only.

use QueueCounterKind::{ReceiveDrops, ReceivedBytes, ReceivedPackets, SentPackets};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QueueCounterKind {
    ReceivedPackets,
    ReceivedBytes,
    ReceiveDrops,
    SentPackets,
}

/// A counter's name: the text before and after the queue's number. If the packets of one queue have
/// several names, such as the address kinds of bnxt, the counters are added up.
pub(super) struct QueueCounterName {
    pub(super) before: &'static str,
    pub(super) after: &'static str,
    pub(super) counted: QueueCounterKind,
}

const fn name(before: &'static str, after: &'static str, counted: QueueCounterKind) -> QueueCounterName {
    QueueCounterName { before, after, counted }
}

/// From the drivers' sources in Linux 3.10 to 6.18.
pub(super) const NAMES: &[QueueCounterName] = &[
    // ixgbe, ixgbevf, igb, igc, ice, fm10k, hv_netvsc; virtio_net from 4.9 to 6.8
    name("rx_queue_", "_packets", ReceivedPackets),
    name("rx_queue_", "_bytes", ReceivedBytes),
    name("rx_queue_", "_drops", ReceiveDrops),
    name("tx_queue_", "_packets", SentPackets),
    // i40e, iavf
    name("rx-", ".packets", ReceivedPackets),
    name("rx-", ".bytes", ReceivedBytes),
    name("tx-", ".packets", SentPackets),
    // sfc
    name("rx-", ".rx_packets", ReceivedPackets),
    name("tx-", ".tx_packets", SentPackets),
    // mlx4, mlx5; virtio_net in 6.8 and 6.9
    name("rx", "_packets", ReceivedPackets),
    name("rx", "_bytes", ReceivedBytes),
    name("rx", "_dropped", ReceiveDrops),
    name("rx", "_drops", ReceiveDrops),
    name("tx", "_packets", SentPackets),
    // mana
    name("rx_", "_packets", ReceivedPackets),
    name("rx_", "_bytes", ReceivedBytes),
    name("tx_", "_packets", SentPackets),
    // ionic
    name("rx_", "_pkts", ReceivedPackets),
    name("rx_", "_dropped", ReceiveDrops),
    name("tx_", "_pkts", SentPackets),
    // ena
    name("queue_", "_rx_cnt", ReceivedPackets),
    name("queue_", "_rx_bytes", ReceivedBytes),
    name("queue_", "_tx_cnt", SentPackets),
    // gve counts descriptors: one per packet unless the packet is longer than a buffer
    name("rx_completed_desc[", "]", ReceivedPackets),
    name("rx_bytes[", "]", ReceivedBytes),
    name("rx_queue_drop_cnt[", "]", ReceiveDrops),
    name("rx_no_buffers_posted[", "]", ReceiveDrops),
    name("tx_completed_desc[", "]", SentPackets),
    // bnxt, bnx2x
    name("[", "]: rx_ucast_packets", ReceivedPackets),
    name("[", "]: rx_mcast_packets", ReceivedPackets),
    name("[", "]: rx_bcast_packets", ReceivedPackets),
    name("[", "]: rx_discards", ReceiveDrops),
    name("[", "]: tx_ucast_packets", SentPackets),
    name("[", "]: tx_mcast_packets", SentPackets),
    name("[", "]: tx_bcast_packets", SentPackets),
    // be2net
    name("rxq", ": rx_pkts", ReceivedPackets),
    name("rxq", ": rx_bytes", ReceivedBytes),
    name("rxq", ": rx_drops_no_frags", ReceiveDrops),
    name("txq", ": tx_pkts", SentPackets),
    // octeontx2, nicvf
    name("rxq", ": frames", ReceivedPackets),
    name("rxq", ": bytes", ReceivedBytes),
    name("rxq", ": drops", ReceiveDrops),
    name("txq", ": frames", SentPackets),
    // nfp
    name("rvec_", "_rx_pkts", ReceivedPackets),
    name("rvec_", "_tx_pkts", SentPackets),
    // qede
    name("", ": rcv_pkts", ReceivedPackets),
    name("", ": xmit_pkts", SentPackets),
    // atlantic
    name("Queue[", "] InPackets", ReceivedPackets),
    name("Queue[", "] OutPackets", SentPackets),
    // stmmac
    name("q", "_rx_pkt_n", ReceivedPackets),
    name("q", "_tx_pkt_n", SentPackets),
    // veth counts packets of NAPI, with or without an XDP program
    name("rx_queue_", "_xdp_packets", ReceivedPackets),
    name("rx_queue_", "_xdp_bytes", ReceivedBytes),
];
