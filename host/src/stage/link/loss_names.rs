//! Names that drivers use for packets that their NIC loses.
//!
//! The names come from get_ethtool_stats and get_strings of each driver in the kernel (drivers/net,
//! Linux 3.10 to 6.18).

/// The reason why the NIC or its driver lost a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LossReason {
    /// The ring of a receive queue had no free descriptor: its CPU did not return any in time.
    RingDry,
    /// The NIC's own buffer overran before the rings: no descriptors, or a slow bus.
    Overrun,
    /// The driver had no memory for a buffer, or could not use it.
    NoBuffer,
    /// A damaged frame.
    Damaged,
    /// The instance exceeded this limit of the cloud.
    Allowance(&'static str),
}

/// A loss counter with alternative names. The first name that is present counts. A star stands for
/// digits; such counters are added up.
pub(super) struct LossCounterNames {
    drivers: &'static [&'static str],
    pub(super) names: &'static [&'static str],
    pub(super) reason: LossReason,
}

const fn counter(
    drivers: &'static [&'static str],
    reason: LossReason,
    names: &'static [&'static str],
) -> LossCounterNames {
    LossCounterNames { drivers, names, reason }
}

use LossReason::{Allowance, Damaged, NoBuffer, Overrun, RingDry};

/// Empty for unknown drivers.
pub(super) fn counters_of_driver(name: &str) -> impl Iterator<Item = &'static LossCounterNames> {
    COUNTERS.iter().filter(move |counter| counter.drivers.contains(&name))
}

/// The counter of packets that an XDP program dropped, if the driver also counts them as `drops`.
/// virtio_net does (receive_small_xdp and receive_mergeable_xdp, drivers/net/virtio_net.c, Linux
/// 6.18).
pub(in crate::stage) fn xdp_counter_within(driver: &str, drops: &str) -> Option<String> {
    let prefix = drops.strip_suffix("_drops").filter(|_| driver == "virtio_net")?;
    Some(format!("{prefix}_xdp_drops"))
}

const SFC: &[&str] = &["sfc", "sfc_siena", "sfc_ef100", "sfc-falcon"];

const COUNTERS: &[LossCounterNames] = &[
    counter(&["ixgbe"], RingDry, &["rx_no_dma_resources", "hw_rx_no_dma_resources"]),
    counter(&["ixgbe"], Overrun, &["rx_missed_errors"]),
    counter(&["ixgbe"], NoBuffer, &["alloc_rx_page_failed"]),
    counter(&["ixgbe"], NoBuffer, &["alloc_rx_buff_failed"]),
    counter(&["ixgbe"], Damaged, &["rx_crc_errors"]),
    counter(&["ixgbevf"], NoBuffer, &["alloc_rx_page_failed"]),
    counter(&["ixgbevf"], NoBuffer, &["alloc_rx_buff_failed"]),
    // rx_no_buffer_count of these drivers is not a loss: a frame without a descriptor waits in
    // the NIC's buffer.
    counter(&["igb", "igc"], RingDry, &["rx_queue_*_drops"]),
    counter(&["igb", "igc"], Overrun, &["rx_missed_errors"]),
    counter(&["igb", "igc"], NoBuffer, &["rx_queue_*_alloc_failed"]),
    counter(&["igb", "igc"], Damaged, &["rx_crc_errors"]),
    counter(&["e1000", "e1000e"], Overrun, &["rx_missed_errors"]),
    counter(&["e1000", "e1000e"], NoBuffer, &["alloc_rx_buff_failed"]),
    counter(&["e1000", "e1000e"], Damaged, &["rx_crc_errors"]),
    counter(&["i40e"], RingDry, &["rx_dropped"]),
    counter(&["i40e"], Overrun, &["port.rx_dropped", "port.rx_discards"]),
    counter(&["i40e"], NoBuffer, &["rx_alloc_fail"]),
    counter(&["i40e"], Damaged, &["port.rx_crc_errors"]),
    counter(&["ice"], RingDry, &["rx_dropped"]),
    counter(&["ice"], Overrun, &["rx_dropped.nic", "port.rx_dropped"]),
    counter(&["ice"], NoBuffer, &["rx_alloc_fail"]),
    counter(&["ice"], Damaged, &["rx_crc_errors.nic", "port.rx_crc_errors"]),
    counter(&["iavf", "i40evf"], RingDry, &["rx_discards", "rx_dropped"]),
    counter(&["mlx5_core"], RingDry, &["rx_out_of_buffer"]),
    counter(&["mlx5_core"], Overrun, &["rx_discards_phy"]),
    counter(&["mlx5_core"], NoBuffer, &["rx_buff_alloc_err", "rx*_buff_alloc_err"]),
    counter(&["mlx5_core"], Damaged, &["rx_crc_errors_phy"]),
    counter(&["mlx4_en"], RingDry, &["rx_dropped", "rx_missed_errors"]),
    counter(&["mlx4_en"], Overrun, &["rx_over_errors", "rx_fifo_errors"]),
    counter(&["mlx4_en"], NoBuffer, &["rx_alloc_failed"]),
    counter(&["mlx4_en"], Damaged, &["rx_crc_errors"]),
    counter(&["bnxt_en"], RingDry, &["rx_total_ring_discards", "rx_total_discard_pkts", "[*]: rx_discards"]),
    counter(&["bnxt_en"], NoBuffer, &["rx_total_oom_discards", "[*]: rx_oom_discards"]),
    counter(&["bnxt_en"], NoBuffer, &["rx_total_buf_errors", "[*]: rx_buf_errors"]),
    counter(&["bnxt_en"], Damaged, &["rx_fcs_err_frames"]),
    counter(&["bnx2x"], RingDry, &["[*]: rx_discards"]),
    counter(&["bnx2x"], Overrun, &["rx_discards"]),
    counter(&["bnx2x"], NoBuffer, &["rx_skb_alloc_discard"]),
    counter(&["bnx2x"], Damaged, &["rx_crc_errors"]),
    counter(&["tg3"], RingDry, &["rx_discards"]),
    counter(&["tg3"], Damaged, &["rx_fcs_errors"]),
    // Bandwidth and packet counters include queued packets.
    counter(&["ena"], Overrun, &["rx_overruns"]),
    counter(&["ena"], RingDry, &["rx_drops"]),
    counter(&["ena"], NoBuffer, &["queue_*_rx_page_alloc_fail"]),
    counter(&["ena"], NoBuffer, &["queue_*_rx_skb_alloc_fail"]),
    counter(&["ena"], Allowance("inbound bandwidth"), &["bw_in_allowance_exceeded"]),
    counter(&["ena"], Allowance("outbound bandwidth"), &["bw_out_allowance_exceeded"]),
    counter(&["ena"], Allowance("packets per second"), &["pps_allowance_exceeded"]),
    counter(&["ena"], Allowance("tracked connections"), &["conntrack_allowance_exceeded"]),
    counter(
        &["ena"],
        Allowance("packets to name service, time service and metadata"),
        &["linklocal_allowance_exceeded"],
    ),
    counter(&["gve"], RingDry, &["rx_queue_drop_cnt[*]"]),
    counter(&["gve"], NoBuffer, &["rx_skb_alloc_fail"]),
    counter(&["gve"], NoBuffer, &["rx_buf_alloc_fail"]),
    counter(&["gve"], NoBuffer, &["rx_desc_err_dropped_pkt"]),
    counter(&["mana"], RingDry, &["hc_rx_discards_no_wqe"]),
    counter(&["virtio_net"], RingDry, &["rx_hw_drop_overruns", "rx*_hw_drop_overruns"]),
    counter(&["virtio_net"], NoBuffer, &["rx_drops", "rx*_drops", "rx_queue_*_drops"]),
    counter(&["vmxnet3"], RingDry, &["pkts rx OOB"]),
    counter(&["vmxnet3"], NoBuffer, &["rx buf alloc fail"]),
    counter(&["vmxnet3"], Damaged, &["fcs"]),
    counter(&["hv_netvsc"], NoBuffer, &["rx_no_memory"]),
    counter(SFC, RingDry, &["rx_nodesc_drop_cnt", "port_rx_nodesc_drops", "rx_nodesc_drops"]),
    counter(SFC, Overrun, &["port_rx_overflow", "rx_overflow"]),
    counter(SFC, NoBuffer, &["rx_noskb_drops"]),
    counter(SFC, Damaged, &["port_rx_bad", "rx_bad"]),
    counter(&["be2net"], RingDry, &["rxq*: rx_drops_no_frags"]),
    counter(&["be2net"], RingDry, &["rx_drops_no_erx_descr"]),
    counter(&["be2net"], Overrun, &["rx_drops_no_pbuf"]),
    counter(&["be2net"], Damaged, &["rx_crc_errors"]),
    counter(&["qede"], RingDry, &["no_buff_discards"]),
    counter(&["qede"], Overrun, &["brb_discards"]),
    counter(&["qede"], Damaged, &["rx_crc_errors"]),
    counter(&["enic"], RingDry, &["rx_no_bufs"]),
    counter(&["enic"], Damaged, &["rx_crc_errors"]),
    counter(&["atlantic"], Overrun, &["InDroppedDma"]),
    counter(&["r8169"], Overrun, &["rx_missed"]),
    counter(&["veth"], NoBuffer, &["rx_queue_*_drops"]),
];

impl LossReason {
    /// The text for a sentence, after a colon.
    pub(super) fn text(self) -> String {
        match self {
            RingDry => "no descriptor was free in the ring".into(),
            Overrun => "the NIC's own buffer overran".into(),
            NoBuffer => "the driver had no buffer it could use".into(),
            Damaged => "the frames came damaged".into(),
            Allowance(resource) => format!("the instance's allowance of {resource} was used up"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loss_names_are_unique_for_each_driver_and_have_at_most_one_wildcard() {
        let mut known_names = std::collections::BTreeSet::new();
        for counter in COUNTERS {
            for name in counter.names {
                assert!(name.matches('*').count() <= 1, "{name}");
                let is_new = counter.drivers.iter().all(|driver| known_names.insert((driver, name)));
                assert!(is_new, "{:?} list {name} twice", counter.drivers);
            }
        }
    }
}
