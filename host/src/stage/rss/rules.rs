//! Rules about receive-side scaling.

mod balance;
pub(in crate::stage) mod hash;
pub(in crate::stage) mod imbalance;
pub(in crate::stage) mod single_flow;
pub(in crate::stage) mod table_misses;
pub(in crate::stage) mod table_uneven;

use std::collections::BTreeMap;

use super::RssState;
use crate::stage::link::{DeviceKind, LinkState};
use crate::stage::{HostView, PacketPath};

/// A NIC with several receive queues. Virtual interfaces have no RSS.
struct ScaledInterface<'a> {
    link: &'a LinkState,
    rss: &'a RssState,
    queues: u32,
}

fn scaled_interfaces<'a>(view: &HostView<'a>) -> impl Iterator<Item = ScaledInterface<'a>> {
    let path: &'a PacketPath = view.now;
    path.link.iter().filter_map(move |link| {
        let queues = *link.receive_queues.value()?;
        let is_up = link.up.value() != Some(&false);
        let is_software = link.device.value() == Some(&DeviceKind::Software);
        (queues > 1 && is_up && !is_software).then_some(())?;
        Some(ScaledInterface { link, rss: path.rss_of(&link.interface)?, queues })
    })
}

impl ScaledInterface<'_> {
    fn interface(&self) -> &str {
        &self.link.interface
    }

    /// Number of table entries by queue, without unused queues. `None` without a table.
    fn entries(&self) -> Option<BTreeMap<u32, usize>> {
        let table = self.rss.entries()?;
        let mut entries = BTreeMap::new();
        for queue in table {
            *entries.entry(*queue).or_default() += 1;
        }
        Some(entries)
    }

    /// Queues in use without a table entry or rule. `None` if table or rules are unknown, or a rule
    /// uses an RSS context.
    fn missed_queues(&self) -> Option<Vec<u32>> {
        let entries = self.entries()?;
        let rules = self.rss.rules()?;
        if rules.iter().any(|rule| rule.rss_context) {
            return None;
        }
        let has_rule = |queue: &u32| rules.iter().any(|rule| rule.queue == Some(*queue));
        Some((0..self.queues).filter(|queue| !entries.contains_key(queue) && !has_rule(queue)).collect())
    }

    /// Whether a queue has more than twice the entries of another queue, and the difference is not
    /// due to rounding.
    fn is_uneven(&self) -> Option<bool> {
        let entries = self.entries()?;
        let (fewest, most) = (entries.values().min()?, entries.values().max()?);
        Some(*most > fewest * 2 && most - fewest > 1)
    }

    /// Whether the UDP hash lacks the ports, over IPv4 or IPv6; `None` if unknown.
    fn lacks_ports(&self) -> Option<bool> {
        let fields = self.rss.fields.value()?.as_ref()?;
        let udp = ["udp4", "udp6"].into_iter().filter_map(|flow| fields.get(flow));
        udp.map(|fields| fields.has_addresses() && !fields.has_ports()).reduce(|left, right| left || right)
    }
}

/// The call that reads the table, for evidence.
fn table_call(interface: &str) -> String {
    format!("ETHTOOL_GRSSH of {interface}, as ethtool -x {interface} shows it")
}
