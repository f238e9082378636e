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
    pub(super) names: &'static [&'static str],
    pub(super) reason: LossReason,
}

const fn counter(reason: LossReason, names: &'static [&'static str]) -> LossCounterNames {
    LossCounterNames { names, reason }
}

use LossReason::{Allowance, Damaged, NoBuffer, Overrun, RingDry};

/// Empty for unknown drivers.
pub(super) fn counters_of_driver(name: &str) -> &'static [LossCounterNames] {
    DRIVERS.iter().find(|(drivers, _)| drivers.contains(&name)).map_or(&[], |(_, counters)| counters)
}

/// The counter of packets that an XDP program dropped, if the driver also counts them as `drops`.
/// virtio_net does (receive_small_xdp and receive_mergeable_xdp, drivers/net/virtio_net.c, Linux
/// 6.18).
pub(in crate::stage) fn xdp_counter_within(driver: &str, drops: &str) -> Option<String> {
    let prefix = drops.strip_suffix("_drops").filter(|_| driver == "virtio_net")?;
    Some(format!("{prefix}_xdp_drops"))
}

const DRIVERS: &[(&[&str], &[LossCounterNames])] = &[
    (
        &["ixgbe"],
        &[
            counter(RingDry, &["rx_no_dma_resources", "hw_rx_no_dma_resources"]),
            counter(Overrun, &["rx_missed_errors"]),
            counter(NoBuffer, &["alloc_rx_page_failed"]),
            counter(NoBuffer, &["alloc_rx_buff_failed"]),
            counter(Damaged, &["rx_crc_errors"]),
        ],
    ),
    (
        &["ixgbevf"],
        &[counter(NoBuffer, &["alloc_rx_page_failed"]), counter(NoBuffer, &["alloc_rx_buff_failed"])],
    ),
    (
        // rx_no_buffer_count of these drivers is not a loss: a frame without a descriptor waits in
        // the NIC's buffer.
        &["igb", "igc"],
        &[
            counter(RingDry, &["rx_queue_*_drops"]),
            counter(Overrun, &["rx_missed_errors"]),
            counter(NoBuffer, &["rx_queue_*_alloc_failed"]),
            counter(Damaged, &["rx_crc_errors"]),
        ],
    ),
    (
        &["e1000", "e1000e"],
        &[
            counter(Overrun, &["rx_missed_errors"]),
            counter(NoBuffer, &["alloc_rx_buff_failed"]),
            counter(Damaged, &["rx_crc_errors"]),
        ],
    ),
    (
        &["i40e"],
        &[
            counter(RingDry, &["rx_dropped"]),
            counter(Overrun, &["port.rx_dropped", "port.rx_discards"]),
            counter(NoBuffer, &["rx_alloc_fail"]),
            counter(Damaged, &["port.rx_crc_errors"]),
        ],
    ),
    (
        &["ice"],
        &[
            counter(RingDry, &["rx_dropped"]),
            counter(Overrun, &["rx_dropped.nic", "port.rx_dropped"]),
            counter(NoBuffer, &["rx_alloc_fail"]),
            counter(Damaged, &["rx_crc_errors.nic", "port.rx_crc_errors"]),
        ],
    ),
    (&["iavf", "i40evf"], &[counter(RingDry, &["rx_discards", "rx_dropped"])]),
    (
        &["mlx5_core"],
        &[
            counter(RingDry, &["rx_out_of_buffer"]),
            counter(Overrun, &["rx_discards_phy"]),
            counter(NoBuffer, &["rx_buff_alloc_err", "rx*_buff_alloc_err"]),
            counter(Damaged, &["rx_crc_errors_phy"]),
        ],
    ),
    (
        &["mlx4_en"],
        &[
            counter(RingDry, &["rx_dropped", "rx_missed_errors"]),
            counter(Overrun, &["rx_over_errors", "rx_fifo_errors"]),
            counter(NoBuffer, &["rx_alloc_failed"]),
            counter(Damaged, &["rx_crc_errors"]),
        ],
    ),
    (
        &["bnxt_en"],
        &[
            counter(RingDry, &["rx_total_ring_discards", "rx_total_discard_pkts", "[*]: rx_discards"]),
            counter(NoBuffer, &["rx_total_oom_discards", "[*]: rx_oom_discards"]),
            counter(NoBuffer, &["rx_total_buf_errors", "[*]: rx_buf_errors"]),
            counter(Damaged, &["rx_fcs_err_frames"]),
        ],
    ),
    (
        &["bnx2x"],
        &[
            counter(RingDry, &["[*]: rx_discards"]),
            counter(Overrun, &["rx_discards"]),
            counter(NoBuffer, &["rx_skb_alloc_discard"]),
            counter(Damaged, &["rx_crc_errors"]),
        ],
    ),
    (&["tg3"], &[counter(RingDry, &["rx_discards"]), counter(Damaged, &["rx_fcs_errors"])]),
    (
        // Bandwidth and packet counters include queued packets.
        &["ena"],
        &[
            counter(Overrun, &["rx_overruns"]),
            counter(RingDry, &["rx_drops"]),
            counter(NoBuffer, &["queue_*_rx_page_alloc_fail"]),
            counter(NoBuffer, &["queue_*_rx_skb_alloc_fail"]),
            counter(Allowance("inbound bandwidth"), &["bw_in_allowance_exceeded"]),
            counter(Allowance("outbound bandwidth"), &["bw_out_allowance_exceeded"]),
            counter(Allowance("packets per second"), &["pps_allowance_exceeded"]),
            counter(Allowance("tracked connections"), &["conntrack_allowance_exceeded"]),
            counter(
                Allowance("packets to name service, time service and metadata"),
                &["linklocal_allowance_exceeded"],
            ),
        ],
    ),
    (
        &["gve"],
        &[
            counter(RingDry, &["rx_queue_drop_cnt[*]"]),
            counter(NoBuffer, &["rx_skb_alloc_fail"]),
            counter(NoBuffer, &["rx_buf_alloc_fail"]),
            counter(NoBuffer, &["rx_desc_err_dropped_pkt"]),
        ],
    ),
    (&["mana"], &[counter(RingDry, &["hc_rx_discards_no_wqe"])]),
    (
        &["virtio_net"],
        &[
            counter(RingDry, &["rx_hw_drop_overruns", "rx*_hw_drop_overruns"]),
            counter(NoBuffer, &["rx_drops", "rx*_drops", "rx_queue_*_drops"]),
        ],
    ),
    (
        &["vmxnet3"],
        &[
            counter(RingDry, &["pkts rx OOB"]),
            counter(NoBuffer, &["rx buf alloc fail"]),
            counter(Damaged, &["fcs"]),
        ],
    ),
    (&["hv_netvsc"], &[counter(NoBuffer, &["rx_no_memory"])]),
    (
        &["sfc", "sfc_siena", "sfc_ef100", "sfc-falcon"],
        &[
            counter(RingDry, &["rx_nodesc_drop_cnt", "port_rx_nodesc_drops", "rx_nodesc_drops"]),
            counter(Overrun, &["port_rx_overflow", "rx_overflow"]),
            counter(NoBuffer, &["rx_noskb_drops"]),
            counter(Damaged, &["port_rx_bad", "rx_bad"]),
        ],
    ),
    (
        &["be2net"],
        &[
            counter(RingDry, &["rxq*: rx_drops_no_frags"]),
            counter(RingDry, &["rx_drops_no_erx_descr"]),
            counter(Overrun, &["rx_drops_no_pbuf"]),
            counter(Damaged, &["rx_crc_errors"]),
        ],
    ),
    (
        &["qede"],
        &[
            counter(RingDry, &["no_buff_discards"]),
            counter(Overrun, &["brb_discards"]),
            counter(Damaged, &["rx_crc_errors"]),
        ],
    ),
    (&["enic"], &[counter(RingDry, &["rx_no_bufs"]), counter(Damaged, &["rx_crc_errors"])]),
    (&["atlantic"], &[counter(Overrun, &["InDroppedDma"])]),
    (&["r8169"], &[counter(Overrun, &["rx_missed"])]),
    (&["veth"], &[counter(NoBuffer, &["rx_queue_*_drops"])]),
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
    fn loss_names_list_each_driver_once_and_use_at_most_one_wildcard() {
        let mut known_drivers = std::collections::BTreeSet::new();
        for (drivers, counters) in DRIVERS {
            assert!(drivers.iter().all(|driver| known_drivers.insert(driver)), "{drivers:?}");
            let names: Vec<&str> =
                counters.iter().flat_map(|counter| counter.names.iter().copied()).collect();
            assert!(names.iter().all(|name| name.matches('*').count() <= 1), "{names:?}");
            let unique_names: std::collections::BTreeSet<&str> = names.iter().copied().collect();
            assert_eq!(unique_names.len(), names.len(), "{drivers:?} lists a name twice");
        }
    }
}
