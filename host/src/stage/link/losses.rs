//! Losses of an interface by reason: from the driver's counters if known, otherwise from the
//! kernel's.

use std::collections::BTreeMap;

use super::LinkState;
use super::loss_names::{LossReason, counters_of_driver, xdp_counter_within};
use crate::Severity;
use crate::amount;
use crate::counter::{CountedUnit, Counter};
use crate::stage::HostView;
use crate::stage::name::StageName;
use crate::stage::view::is_small_loss_total;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LossCounter {
    /// Has a star if counters of several queues were added up.
    pub(super) name: &'static str,
    pub(super) reason: LossReason,
    /// Packets since the driver was loaded.
    pub(super) packets: u64,
    pub(super) read_from: String,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct LossRate {
    /// `None` if only the sum since boot is known, or nothing was lost between two readings.
    pub(super) per_second: Option<f64>,
    /// Packets since the driver was loaded.
    pub(super) packets: u64,
    /// Lost share of the arrived packets; `None` if unknown.
    pub(super) share: Option<f64>,
    pub(super) severity: Severity,
}

/// With this share or more, a rate is not sustained: the limit of capacity measurements.
const LOSS_BOUND: f64 = 1e-3;
/// Below this, losses are isolated peaks.
const PEAKS: f64 = 1e-5;
/// Below this, a sum since boot has no meaning.
const NOTHING: f64 = 1e-7;

/// All known losses, including zeros.
pub(super) fn losses(link: &LinkState) -> Vec<LossCounter> {
    let mut losses = driver_losses(link);
    // The totals of a bond are the sums of its ports (bond_get_stats,
    // drivers/net/bonding/bond_main.c, Linux 6.18).
    if link.has_links_below {
        return losses;
    }
    let has = |losses: &[LossCounter], reasons: &[LossReason]| {
        losses.iter().any(|loss| reasons.contains(&loss.reason))
    };
    if !has(&losses, &[LossReason::RingDry, LossReason::Overrun]) {
        losses.extend(total(link, "rx_missed_errors", LossReason::Overrun));
    }
    if !has(&losses, &[LossReason::Damaged]) {
        losses.extend(total(link, "rx_crc_errors", LossReason::Damaged));
    }
    losses
}

fn driver_losses(link: &LinkState) -> Vec<LossCounter> {
    let (Some(Some(driver)), Some(Some(statistics))) = (link.driver.value(), link.statistics.value()) else {
        return Vec::new();
    };
    let losses = counters_of_driver(&driver.name).filter_map(|counter| {
        let (name, packets) =
            counter.names.iter().find_map(|name| sum(statistics, name).map(|packets| (*name, packets)))?;
        let xdp_drops = xdp_counter_within(&driver.name, name).and_then(|name| sum(statistics, &name));
        let packets = packets.saturating_sub(xdp_drops.unwrap_or(0));
        let read_from = format!("ethtool -S {}", link.interface);
        Some(LossCounter { name, reason: counter.reason, packets, read_from })
    });
    losses.collect()
}

/// The sum of the counters with this name; a star stands for digits. `None` without such a counter.
fn sum(statistics: &BTreeMap<String, u64>, name: &str) -> Option<u64> {
    let Some((start, end)) = name.split_once('*') else { return statistics.get(name).copied() };
    let candidates =
        statistics.range(start.to_owned()..).take_while(|(counter_name, _)| counter_name.starts_with(start));
    let counters = candidates.filter(|(counter_name, _)| {
        let digits = counter_name.strip_prefix(start).and_then(|suffix| suffix.strip_suffix(end));
        digits.is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()))
    });
    counters.map(|(_, count)| *count).reduce(u64::saturating_add)
}

/// A counter that the kernel has for every interface (Documentation/networking/statistics.rst).
fn total(link: &LinkState, name: &'static str, reason: LossReason) -> Option<LossCounter> {
    let packets = link.total(name)?;
    let read_from = format!("/sys/class/net/{}/statistics/{name}", link.interface);
    Some(LossCounter { name, reason, packets, read_from })
}

/// Losses for the reasons that `selects` accepts. `None` if there are none, or too few to mention.
pub(super) fn measure(
    view: &HostView<'_>,
    link: &LinkState,
    selects: impl Fn(LossReason) -> bool,
) -> Option<LossRate> {
    let selected_losses: Vec<LossCounter> =
        losses(link).into_iter().filter(|loss| selects(loss.reason)).collect();
    let packets = selected_losses.iter().map(|loss| loss.packets).fold(0, u64::saturating_add);
    let per_second: f64 = selected_losses.iter().filter_map(|loss| rate(view, link, loss)).sum();
    if per_second > 0.0 {
        let receive_rate = view.rate(|path| path.link_of(&link.interface)?.total("rx_packets"));
        let share = receive_rate.map(|receive_rate| per_second / (per_second + receive_rate));
        let severity = match share {
            _ if view.is_small_loss(per_second) => Severity::Note,
            Some(share) if share >= LOSS_BOUND => Severity::High,
            Some(share) if share < PEAKS => Severity::Note,
            _ => Severity::Medium,
        };
        return Some(LossRate { per_second: Some(per_second), packets, share, severity });
    }
    if packets == 0 {
        return None;
    }
    let share = link.total("rx_packets").map(|received| packets as f64 / (packets as f64 + received as f64));
    let severity = match share {
        Some(share) if share < NOTHING => return None,
        Some(share) if share < PEAKS => Severity::Note,
        _ if is_small_loss_total(packets) => Severity::Note,
        // Earlier losses that did not recur during the observation are only a hint.
        Some(share) if share >= LOSS_BOUND && view.before.is_none() => Severity::Medium,
        _ => Severity::Low,
    };
    Some(LossRate { per_second: None, packets, share, severity })
}

/// `None` without an earlier reading of the same counter.
pub(super) fn rate(view: &HostView<'_>, link: &LinkState, loss: &LossCounter) -> Option<f64> {
    view.rate(|path| {
        let mut losses = losses(path.link_of(&link.interface)?).into_iter();
        losses.find(|other| other.name == loss.name).map(|other| other.packets)
    })
}

impl LossRate {
    /// The amount for a sentence: `451,300 packets/s`.
    pub(super) fn amount(&self) -> String {
        match self.per_second {
            Some(rate) => format!("{} packets/s", amount::rate(rate)),
            None => format!("{} packets since boot", amount::grouped(self.packets)),
        }
    }

    /// The amount with its share: `451,300 packets/s, 56 % of what arrives`.
    pub(super) fn amount_and_share(&self) -> String {
        let verb = if self.per_second.is_some() { "arrives" } else { "arrived" };
        let share = self.share.map(|share| format!(", {} of what {verb}", percent(share)));
        format!("{}{}", self.amount(), share.unwrap_or_default())
    }
}

fn percent(share: f64) -> String {
    let percent = 100.0 * share;
    match percent {
        10.0.. => format!("{percent:.0} %"),
        0.1..10.0 => format!("{percent:.1} %"),
        _ => format!("{percent:.1e} %"),
    }
}

pub(super) fn counters_of_link(link: &LinkState) -> Vec<Counter> {
    const TOTALS: [(&str, CountedUnit); 4] = [
        ("rx_packets", CountedUnit::PacketsIn),
        ("rx_bytes", CountedUnit::BytesIn),
        ("tx_packets", CountedUnit::PacketsOut),
        ("tx_bytes", CountedUnit::BytesOut),
    ];
    let counter = |name: &str, counts, value, read_from: String| {
        Counter::new(StageName::Link, &link.interface, name, counts, value, read_from)
    };
    let totals = TOTALS.iter().filter_map(|(name, counts)| {
        let value = link.total(name)?;
        let read_from = format!("/sys/class/net/{}/statistics/{name}", link.interface);
        Some(counter(name, *counts, value, read_from))
    });
    let loss_counters = losses(link).into_iter().map(|loss| {
        let counts = match loss.name {
            // The device counts delayed packets together with dropped ones.
            "bw_in_allowance_exceeded" | "bw_out_allowance_exceeded" | "pps_allowance_exceeded" => {
                CountedUnit::Events
            }
            _ => CountedUnit::PacketsLost,
        };
        counter(loss.name, counts, loss.packets, loss.read_from)
    });
    totals.chain(loss_counters).collect()
}
