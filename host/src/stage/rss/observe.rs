//! Reads the indirection table, the hash and the rules of an interface.

use std::collections::BTreeMap;

use super::{HashFields, RssState, queue_counts};
use crate::netlink::qstats::QueueStatistics;
use crate::setting::QueueDirection;
use crate::setting::flow_hash::flow_hash;
use crate::setting::rss_table::indirection;
use crate::stage::link::LinkState;
use crate::sys::ethtool::receive;
use crate::{Host, HostError, Known};

/// Flow types whose hash matters here.
const FLOWS: [&str; 4] = ["udp4", "udp6", "tcp4", "tcp6"];

impl RssState {
    /// `statistics` are the kernel's counters of its queues, if available.
    pub(crate) fn observe(
        host: &Host,
        link: &LinkState,
        statistics: &Known<Option<QueueStatistics>>,
    ) -> Self {
        let interface = link.interface.as_str();
        let indirection = Known::if_supported(indirection(host, interface));
        let hash = indirection.clone().map(|answer| answer?.hash);
        let table = indirection.map(|answer| answer.map(|answer| answer.table));
        let action = |subject: &str| format!("reading {subject} of {interface}");
        Self {
            interface: interface.to_owned(),
            table: table.map(|table| table.filter(|entries| !entries.is_empty())),
            table_queues: Known::if_supported(host.call(
                &format!("ethtool/{interface}/table-queues"),
                &action("the number of queues for RSS"),
                || receive::table_queues(interface),
            )),
            hash,
            fields: fields(host, interface).into(),
            ntuple: Known::if_supported(host.call(
                &format!("ethtool/{interface}/ntuple"),
                &action("the rules for flows"),
                || receive::ntuple(interface),
            )),
            queues: queue_counts(link, statistics, QueueDirection::Receive),
        }
    }
}

fn fields(host: &Host, interface: &str) -> Result<Option<BTreeMap<String, HashFields>>, HostError> {
    let mut fields_by_flow = BTreeMap::new();
    for flow in FLOWS {
        match flow_hash(host, interface, flow) {
            // Drivers return `EINVAL` for flow types that they do not hash, as igb does
            // (`igb_get_rxfh_fields`).
            Err(error) if matches!(error.errno(), Some(libc::EOPNOTSUPP | libc::EINVAL)) => {}
            fields => drop(fields_by_flow.insert(flow.to_owned(), fields?)),
        }
    }
    Ok((!fields_by_flow.is_empty()).then_some(fields_by_flow))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stage::rss::{NtupleRule, sample};

    fn observe(calls: &[(&str, &str)]) -> RssState {
        let files = calls.iter().map(|(key, answer)| (format!("/calls/ethtool/eth0/{key}.json"), *answer));
        RssState::observe(&Host::scripted(files), &sample::link("eth0", 4), &Known::Value(None))
    }

    #[test]
    fn rss_state_is_read_from_the_driver() {
        let rss = observe(&[
            ("rss", r#"{"table": [0, 1, 2, 3], "hash": {"function": "toeplitz", "key": "6d5a"}}"#),
            ("table-queues", "4"),
            ("flow-hash/udp4", r#"{"source_address": true, "destination_address": true}"#),
            ("flow-hash/udp6", r#"{"errno": 22}"#),
            ("flow-hash/tcp4", r#"{"source_address": true, "source_port": true, "others": 4}"#),
            ("flow-hash/tcp6", r#"{"errno": 95}"#),
            ("ntuple", r#"[{"location": 1, "flow": "udp4", "queue": 3, "destination_port": 53}]"#),
        ]);
        assert_eq!(rss.entries(), Some(&[0, 1, 2, 3][..]));
        assert_eq!(rss.table_queues, Known::Value(Some(4)));
        assert_eq!(rss.hash.value().and_then(Option::as_ref).map(|hash| hash.key.as_str()), Some("6d5a"));
        let fields = rss.fields.value().cloned().flatten().expect("fields");
        let letters: Vec<_> = fields.iter().map(|(flow, fields)| (flow.as_str(), fields.letters())).collect();
        assert_eq!(letters, [("tcp4", "vsf".to_owned()), ("udp4", "sd".to_owned())]);
        let rule = NtupleRule {
            location: 1,
            flow: "udp4".into(),
            queue: Some(3),
            rss_context: false,
            destination_port: Some(53),
        };
        assert_eq!(rss.rules(), Some(&[rule][..]));
        assert_eq!(rss.queues, Known::Value(None));
    }

    #[test]
    fn unsupported_rss_features_are_none() {
        let not_supported = r#"{"errno": 95}"#;
        let keys = ["rss", "table-queues", "ntuple", "flow-hash/udp4", "flow-hash/udp6", "flow-hash/tcp4"];
        let mut calls: Vec<_> = keys.into_iter().map(|key| (key, not_supported)).collect();
        calls.push(("flow-hash/tcp6", not_supported));
        let rss = observe(&calls);
        assert_eq!(
            (&rss.table, &rss.hash, &rss.table_queues),
            (&Known::Value(None), &Known::Value(None), &Known::Value(None))
        );
        assert_eq!((&rss.fields, &rss.ntuple), (&Known::Value(None), &Known::Value(None)));
        // A virtio_net without RSS reports an empty table and key (Linux 6.18).
        let rss = observe(&[("rss", r#"{"table": [], "hash": null}"#)]);
        assert_eq!((&rss.table, &rss.hash), (&Known::Value(None), &Known::Value(None)));
    }
}
