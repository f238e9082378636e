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

const fn counted(reason: LossReason, names: &'static [&'static str]) -> LossCounterNames {
    LossCounterNames { names, reason }
}

use LossReason::{Allowance, Damaged, NoBuffer, Overrun, RingDry};

/// Empty for unknown drivers.
pub(super) fn of_driver(name: &str) -> &'static [LossCounterNames] {
    DRIVERS.iter().find(|(drivers, _)| drivers.contains(&name)).map_or(&[], |(_, counted)| counted)
}

const DRIVERS: &[(&[&str], &[LossCounterNames])] = &[
    (
        &["ixgbe"],
        &[
            counted(RingDry, &["rx_no_dma_resources", "hw_rx_no_dma_resources"]),
            counted(Overrun, &["rx_missed_errors"]),
            counted(NoBuffer, &["alloc_rx_page_failed"]),
            counted(NoBuffer, &["alloc_rx_buff_failed"]),
            counted(Damaged, &["rx_crc_errors"]),
        ],
    ),
    (
        &["ixgbevf"],
        &[counted(NoBuffer, &["alloc_rx_page_failed"]), counted(NoBuffer, &["alloc_rx_buff_failed"])],
    ),
    (
        // rx_no_buffer_count of these drivers is not a loss: a frame without a descriptor waits in
        // the NIC's buffer.
        &["igb", "igc"],
        &[
            counted(RingDry, &["rx_queue_*_drops"]),
            counted(Overrun, &["rx_missed_errors"]),
            counted(NoBuffer, &["rx_queue_*_alloc_failed"]),
            counted(Damaged, &["rx_crc_errors"]),
        ],
    ),
    (
        &["e1000", "e1000e"],
        &[
            counted(Overrun, &["rx_missed_errors"]),
            counted(NoBuffer, &["alloc_rx_buff_failed"]),
            counted(Damaged, &["rx_crc_errors"]),
        ],
    ),
    (
        &["i40e"],
        &[
            counted(RingDry, &["rx_dropped"]),
            counted(Overrun, &["port.rx_dropped", "port.rx_discards"]),
            counted(NoBuffer, &["rx_alloc_fail"]),
            counted(Damaged, &["port.rx_crc_errors"]),
        ],
    ),
    (
        &["ice"],
        &[
            counted(RingDry, &["rx_dropped"]),
            counted(Overrun, &["rx_dropped.nic", "port.rx_dropped"]),
            counted(NoBuffer, &["rx_alloc_fail"]),
            counted(Damaged, &["rx_crc_errors.nic", "port.rx_crc_errors"]),
        ],
    ),
    (&["iavf", "i40evf"], &[counted(RingDry, &["rx_discards", "rx_dropped"])]),
    (
        &["mlx5_core"],
        &[
            counted(RingDry, &["rx_out_of_buffer"]),
            counted(Overrun, &["rx_discards_phy"]),
            counted(NoBuffer, &["rx_buff_alloc_err", "rx*_buff_alloc_err"]),
            counted(Damaged, &["rx_crc_errors_phy"]),
        ],
    ),
    (
        &["mlx4_en"],
        &[
            counted(RingDry, &["rx_dropped", "rx_missed_errors"]),
            counted(Overrun, &["rx_over_errors", "rx_fifo_errors"]),
            counted(NoBuffer, &["rx_alloc_failed"]),
            counted(Damaged, &["rx_crc_errors"]),
        ],
    ),
    (
        &["bnxt_en"],
        &[
            counted(RingDry, &["rx_total_ring_discards", "rx_total_discard_pkts", "[*]: rx_discards"]),
            counted(NoBuffer, &["rx_total_oom_discards", "[*]: rx_oom_discards"]),
            counted(NoBuffer, &["rx_total_buf_errors", "[*]: rx_buf_errors"]),
            counted(Damaged, &["rx_fcs_err_frames"]),
        ],
    ),
    (
        &["bnx2x"],
        &[
            counted(RingDry, &["[*]: rx_discards"]),
            counted(Overrun, &["rx_discards"]),
            counted(NoBuffer, &["rx_skb_alloc_discard"]),
            counted(Damaged, &["rx_crc_errors"]),
        ],
    ),
    (&["tg3"], &[counted(RingDry, &["rx_discards"]), counted(Damaged, &["rx_fcs_errors"])]),
    (
        // Bandwidth and packet counters include queued packets.
        &["ena"],
        &[
            counted(Overrun, &["rx_overruns"]),
            counted(RingDry, &["rx_drops"]),
            counted(NoBuffer, &["queue_*_rx_page_alloc_fail"]),
            counted(NoBuffer, &["queue_*_rx_skb_alloc_fail"]),
            counted(Allowance("inbound bandwidth"), &["bw_in_allowance_exceeded"]),
            counted(Allowance("outbound bandwidth"), &["bw_out_allowance_exceeded"]),
            counted(Allowance("packets per second"), &["pps_allowance_exceeded"]),
            counted(Allowance("tracked connections"), &["conntrack_allowance_exceeded"]),
            counted(
                Allowance("packets to name service, time service and metadata"),
                &["linklocal_allowance_exceeded"],
            ),
        ],
    ),
    (
        &["gve"],
        &[
            counted(RingDry, &["rx_queue_drop_cnt[*]"]),
            counted(NoBuffer, &["rx_skb_alloc_fail"]),
            counted(NoBuffer, &["rx_buf_alloc_fail"]),
            counted(NoBuffer, &["rx_desc_err_dropped_pkt"]),
        ],
    ),
    (&["mana"], &[counted(RingDry, &["hc_rx_discards_no_wqe"])]),
    (
        &["virtio_net"],
        &[
            counted(RingDry, &["rx_hw_drop_overruns", "rx*_hw_drop_overruns"]),
            counted(NoBuffer, &["rx_drops", "rx*_drops", "rx_queue_*_drops"]),
        ],
    ),
    (
        &["vmxnet3"],
        &[
            counted(RingDry, &["pkts rx OOB"]),
            counted(NoBuffer, &["rx buf alloc fail"]),
            counted(Damaged, &["fcs"]),
        ],
    ),
    (&["hv_netvsc"], &[counted(NoBuffer, &["rx_no_memory"])]),
    (
        &["sfc", "sfc_siena", "sfc_ef100", "sfc-falcon"],
        &[
            counted(RingDry, &["rx_nodesc_drop_cnt", "port_rx_nodesc_drops", "rx_nodesc_drops"]),
            counted(Overrun, &["port_rx_overflow", "rx_overflow"]),
            counted(NoBuffer, &["rx_noskb_drops"]),
            counted(Damaged, &["port_rx_bad", "rx_bad"]),
        ],
    ),
    (
        &["be2net"],
        &[
            counted(RingDry, &["rxq*: rx_drops_no_frags"]),
            counted(RingDry, &["rx_drops_no_erx_descr"]),
            counted(Overrun, &["rx_drops_no_pbuf"]),
            counted(Damaged, &["rx_crc_errors"]),
        ],
    ),
    (
        &["qede"],
        &[
            counted(RingDry, &["no_buff_discards"]),
            counted(Overrun, &["brb_discards"]),
            counted(Damaged, &["rx_crc_errors"]),
        ],
    ),
    (&["enic"], &[counted(RingDry, &["rx_no_bufs"]), counted(Damaged, &["rx_crc_errors"])]),
    (&["atlantic"], &[counted(Overrun, &["InDroppedDma"])]),
    (&["r8169"], &[counted(Overrun, &["rx_missed"])]),
    (&["veth"], &[counted(NoBuffer, &["rx_queue_*_drops"])]),
];

impl LossReason {
    /// The text for a sentence, after a colon.
    pub(super) fn text(self) -> String {
        match self {
            RingDry => "no descriptor was free in the ring".into(),
            Overrun => "the NIC's own buffer overran".into(),
            NoBuffer => "the driver had no buffer it could use".into(),
            Damaged => "the frames came damaged".into(),
            Allowance(what) => format!("the instance's allowance of {what} was used up"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_is_there_once_and_a_name_has_one_star_at_most() {
        let mut seen = std::collections::BTreeSet::new();
        for (drivers, counted) in DRIVERS {
            assert!(drivers.iter().all(|driver| seen.insert(driver)), "{drivers:?}");
            let names: Vec<&str> = counted.iter().flat_map(|counted| counted.names.iter().copied()).collect();
            assert!(names.iter().all(|name| name.matches('*').count() <= 1), "{names:?}");
            let once: std::collections::BTreeSet<&str> = names.iter().copied().collect();
            assert_eq!(once.len(), names.len(), "{drivers:?} counts something twice");
        }
    }
}
