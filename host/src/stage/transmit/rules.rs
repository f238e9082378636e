//! Rules about transmit.

pub(in crate::stage) mod qdisc_drops;
pub(in crate::stage) mod queue_stuck;
pub(in crate::stage) mod single_queue;
pub(in crate::stage) mod xps_missing;
pub(in crate::stage) mod xps_wrong;

use std::collections::BTreeMap;

use super::TransmitState;
use crate::CpuSet;
use crate::finding::RuleMatch;
use crate::setting::{QueueDirection, Setting};
use crate::stage::link::{DeviceKind, LinkState};
use crate::stage::{HostView, PacketPath, spread};

struct TransmitNic<'a> {
    path: &'a PacketPath,
    link: &'a LinkState,
    transmit: &'a TransmitState,
    cpus: &'a CpuSet,
}

/// NICs that are up, on hosts with several CPUs. Virtual interfaces are left out: veth and tun have
/// no qdisc or lock per queue, or choose queues themselves (`tun_select_queue`).
fn transmit_nics<'a>(view: &HostView<'a>) -> impl Iterator<Item = TransmitNic<'a>> {
    let path: &'a PacketPath = view.now;
    path.link.iter().filter_map(move |link| {
        let cpus = path.machine.online.value().filter(|cpus| cpus.len() > 1)?;
        let is_candidate =
            link.up.value() != Some(&false) && link.device.value() != Some(&DeviceKind::Software);
        is_candidate.then_some(())?;
        Some(TransmitNic { path, link, transmit: path.transmit_of(&link.interface)?, cpus })
    })
}

impl TransmitNic<'_> {
    fn interface(&self) -> &str {
        &self.link.interface
    }

    /// `None` if XPS has no effect, or is unknown.
    fn xps(&self) -> Option<Vec<(u32, &CpuSet)>> {
        spread::effective_xps(self.path, self.link)
    }

    /// A transmit queue for each CPU: the queue whose receive side interrupts the CPU, otherwise a
    /// shared queue of its node, least used first.
    fn plan(&self) -> BTreeMap<u32, CpuSet> {
        let queues: Vec<u32> = self.transmit.queues().iter().map(|queue| queue.queue).collect();
        let receive_cpus = spread::settled_cpus(self.path, self.interface()).unwrap_or_default();
        spread::cpus_by_transmit_queue(&self.path.machine, &queues, &receive_cpus, self.cpus)
    }

    /// Adds the changes from the current masks to the plan. Queues without a CPU are left out.
    fn add_changes(&self, mut rule_match: RuleMatch, current_masks: &[(u32, &CpuSet)]) -> RuleMatch {
        for (queue, cpus) in self.plan() {
            let Some((_, from)) = current_masks.iter().find(|(other, _)| *other == queue) else { continue };
            if cpus.is_empty() || **from == cpus {
                continue;
            }
            let setting = Setting::QueueCpus {
                interface: self.interface().to_owned(),
                direction: QueueDirection::Transmit,
                queue,
            };
            rule_match = rule_match.change(setting, Some(from.to_mask()), cpus.to_mask());
        }
        rule_match
    }
}

fn by_queue(masks: &[(u32, &CpuSet)]) -> serde_json::Value {
    masks.iter().map(|(queue, cpus)| (format!("tx-{queue}"), serde_json::json!(cpus))).collect()
}

fn xps_files(interface: &str) -> String {
    format!("/sys/class/net/{interface}/queues/tx-*/xps_cpus")
}

/// Packets per second between two readings.
fn sent_rate(view: &HostView<'_>, interface: &str) -> Option<f64> {
    view.rate(|path| path.link_of(interface)?.total("tx_packets"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Known;
    use crate::stage::machine::NumaNode;
    use crate::stage::rss::sample;
    use crate::stage::transmit::TransmitQueueState;

    /// A host of this many CPUs and an interface with these XPS lists.
    pub(super) fn path(cpus: u32, masks: &[&str]) -> PacketPath {
        let mut path = sample::path(cpus, u32::try_from(masks.len()).expect("few"));
        let queue = |(mask, queue): (&&str, u32)| TransmitQueueState {
            queue,
            xps_cpus: Known::Value(Some(CpuSet::from_list(mask).expect("a list"))),
            xps_receive_queues: Known::Value(Some(CpuSet::new())),
            timeouts: Known::Value(0),
            limit_bytes: Known::Value(None),
            packets: Known::Value(None),
            packets_read_from: None,
        };
        path.transmit[0].queues = Known::Value(masks.iter().zip(0..).map(queue).collect());
        path
    }

    fn xps_plan(path: &PacketPath) -> Vec<String> {
        let view = HostView::once(path);
        let sender = transmit_nics(&view).next().expect("a NIC");
        sender.plan().into_values().map(|cpus| cpus.to_string()).collect()
    }

    #[test]
    fn xps_plan_gives_each_cpu_a_queue_shared_within_its_node() {
        assert_eq!(xps_plan(&path(4, &[""; 4])), ["0", "1", "2", "3"]);
        assert_eq!(xps_plan(&path(2, &[""; 4])), ["0", "1", "", ""]);
        let mut nodes = path(8, &[""; 4]);
        let node = |node, cpus| NumaNode { node, cpus: CpuSet::from_list(cpus).expect("a list") };
        nodes.machine.nodes = Known::Value(vec![node(0, "0-1,4-5"), node(1, "2-3,6-7")]);
        assert_eq!(xps_plan(&nodes), ["0,4", "1,5", "2,6", "3,7"]);
    }
}
