//! Packets lost in the NIC: the reason, the effect of longer rings, and limits of clouds.

use super::LinkState;
use super::loss_names::LossReason;
use super::losses::{losses, measure, rate};
use crate::finding::{Rule, RuleMatch};
use crate::setting::pairs_value;
use crate::stage::HostView;
use crate::sys::ethtool::RINGS;
use crate::{Setting, Severity};

pub(in crate::stage) const HARDWARE_DROPS: Rule = Rule {
    id: "link.hardware-drops",
    title: "The NIC loses packets before the kernel sees them",
    why: "A NIC puts a frame into memory only where the driver left it a descriptor. When the CPU that polls a queue is \
          busy, its ring runs dry; the NIC's own buffer then fills and overruns. No socket and no firewall counts these \
          packets. One queue that takes all traffic, or a CPU that also runs the server, is the usual cause.",
    effect: "The packets that are lost now arrive, as far as the CPUs can then keep up; where one queue took all, spreading \
             its flows raised 350,000 packets/s to 1,100,000.",
    published_ratio: None,
    source: "M. Majkowski, How to receive a million packets per second (2015): rx_nodesc_drop_cnt at 451,000/s; \
             Documentation/networking/statistics.rst",
    kernels: "all",
    remedy: "If rings ran dry, spread the load over more queues and CPUs first (see the findings of rss, irq \
             and softirq), then lengthen the rings. If the NIC's buffer overran without dry rings, check the \
             PCIe width and flow control. If frames were damaged, check cable, optics and switch port. If \
             the driver got no buffers, check memory pressure.",
    caveats: "The load was a test, or a flood beyond the intended load of the service.",
    check: |view| view.links_up().filter_map(|link| match_hardware_drops(view, link)).collect(),
};

pub(in crate::stage) const RING_SMALL: Rule = Rule {
    id: "link.ring-small",
    title: "Receive rings run dry at peaks and could be longer",
    why: "A ring holds packets while its CPU is busy with others. Short rings lose packets in bursts of a \
          fraction of a millisecond, although the CPU keeps up on average.",
    effect: "Bursts up to the new length survive; the sustained rate stays as it is.",
    published_ratio: None,
    source: "Documentation/networking/device_drivers/ethernet/intel/ice.rst, Rx Descriptor Ring Size",
    kernels: "all",
    remedy: "Lengthen the receive rings with ethtool -G, to four times at first, and watch the counter.",
    caveats: "Latency under load matters more than loss, because packets wait longer in a longer ring, which \
              also exceeds the CPU's cache; or the interface must not pause now, because most drivers reset \
              it to change its rings.",
    check: |view| view.links_up().filter_map(|link| match_ring(view, link)).collect(),
};

pub(in crate::stage) const ALLOWANCE_EXCEEDED: Rule = Rule {
    id: "link.allowance-exceeded",
    title: "The cloud holds packets back because the instance's allowance is used up",
    why: "An instance has allowances of bandwidth, packets per second and tracked connections. Traffic above \
          them is queued or dropped outside the machine, and only these counters of the ENA device show it.",
    effect: "Up to the allowance of the larger instance; nothing on this machine changes it.",
    published_ratio: None,
    source: "Amazon EC2 User Guide, Monitor network performance for ENA settings on your EC2 instance",
    kernels: "all whose ena driver has these counters",
    remedy: "A larger or network-optimized instance, or more of them. For tracked connections: security group rules that \
             allow the service's port from and to everywhere, which are not tracked.",
    caveats: "The counter rose in a test, or the losses are rare and the service's clients send again.",
    check: |view| view.links_up().filter_map(|link| match_allowance_exceeded(view, link)).collect(),
};

fn is_hardware(reason: LossReason) -> bool {
    !matches!(reason, LossReason::Allowance(_))
}

fn match_hardware_drops(view: &HostView<'_>, link: &LinkState) -> Option<RuleMatch> {
    let loss_rate = measure(view, link, is_hardware)?;
    let loss_amount = loss_rate.amount_and_share();
    let title =
        format!("{} loses {loss_amount}: {}", link.interface, describe_reasons(view, link, is_hardware));
    Some(add_evidence(RuleMatch::new(loss_rate.severity, title), view, link, is_hardware))
}

/// Loss reasons and counter names, largest first: growing counters if there are any, otherwise all.
fn describe_reasons(view: &HostView<'_>, link: &LinkState, selects: fn(LossReason) -> bool) -> String {
    let mut rated_losses: Vec<_> = losses(link)
        .into_iter()
        .filter(|loss| selects(loss.reason) && loss.packets > 0)
        .map(|loss| (rate(view, link, &loss).unwrap_or(0.0), loss))
        .collect();
    if rated_losses.iter().any(|(rate, _)| *rate > 0.0) {
        rated_losses.retain(|(rate, _)| *rate > 0.0);
    }
    rated_losses.sort_by(|(first_rate, first), (second_rate, second)| {
        second_rate.total_cmp(first_rate).then(second.packets.cmp(&first.packets))
    });
    let texts = rated_losses.into_iter().map(|(_, loss)| format!("{} ({})", loss.reason.text(), loss.name));
    texts.collect::<Vec<_>>().join("; ")
}

fn add_evidence(
    mut rule_match: RuleMatch,
    view: &HostView<'_>,
    link: &LinkState,
    selects: fn(LossReason) -> bool,
) -> RuleMatch {
    for loss in losses(link).into_iter().filter(|loss| selects(loss.reason) && loss.packets > 0) {
        rule_match = rule_match
            .evidence_if(format!("{} per second", loss.name), rate(view, link, &loss), &loss.read_from)
            .evidence(format!("{} since boot", loss.name), loss.packets, loss.read_from);
    }
    let path = format!("/sys/class/net/{}/statistics/rx_packets", link.interface);
    rule_match.evidence_if("packets received since boot", link.total("rx_packets"), path)
}

/// Above this share the CPU is too slow on average, so a longer ring would only lose more
/// packets.
const MORE_THAN_BURSTS: f64 = 0.01;

fn match_ring(view: &HostView<'_>, link: &LinkState) -> Option<RuleMatch> {
    let is_ring_loss = |reason| matches!(reason, LossReason::RingDry | LossReason::Overrun);
    let rings = link.rings.value().copied().flatten()?;
    let loss_rate = measure(view, link, is_ring_loss)?;
    let share = loss_rate.share?;
    if rings.rx == 0
        || rings.rx >= rings.rx_max
        || share > MORE_THAN_BURSTS
        || loss_rate.severity == Severity::Note
    {
        return None;
    }
    let longer_rings = super::RingLengths { rx: rings.rx.saturating_mul(4).min(rings.rx_max), ..rings };
    let severity = if loss_rate.per_second.is_some() { Severity::Medium } else { Severity::Low };
    let title = format!(
        "Receive rings of {} have {} descriptors and could have {}; {} were lost for want of them",
        link.interface,
        rings.rx,
        rings.rx_max,
        loss_rate.amount(),
    );
    let read_from = format!("ethtool -g {}", link.interface);
    let rule_match = RuleMatch::new(severity, title)
        .evidence("descriptors of a receive ring", rings.rx, &read_from)
        .evidence("descriptors it can have", rings.rx_max, read_from);
    let setting = Setting::Rings { interface: link.interface.clone() };
    let lengths = |rings| pairs_value(&RINGS, rings);
    let rule_match = rule_match.change(setting, Some(lengths(&rings)), lengths(&longer_rings));
    Some(add_evidence(rule_match, view, link, is_ring_loss))
}

fn match_allowance_exceeded(view: &HostView<'_>, link: &LinkState) -> Option<RuleMatch> {
    let is_allowance = |reason| matches!(reason, LossReason::Allowance(_));
    let loss_rate = measure(view, link, is_allowance)?;
    let title = format!(
        "{} of {} were delayed or dropped outside this machine: {}",
        loss_rate.amount(),
        link.interface,
        describe_reasons(view, link, is_allowance)
    );
    Some(add_evidence(RuleMatch::new(loss_rate.severity, title), view, link, is_allowance))
}
