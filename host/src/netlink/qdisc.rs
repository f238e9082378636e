//! Qdiscs from rtnetlink (`RTM_GETQDISC`; linux/rtnetlink.h, linux/gen_stats.h).

use std::io;

use netlink_sys::protocols::NETLINK_ROUTE;
use serde::{Deserialize, Serialize};

use super::attribute::{attribute, number, text, word};
use super::connection::NetlinkConnection;
use crate::{Host, Known};

const GET: u16 = 38;
const NEW: u16 = 36;

/// Bytes of struct tcmsg, and offsets of its fields.
pub(super) const HEADER_BYTES: usize = 20;
pub(super) const INDEX: usize = 4;
const HANDLE: usize = 8;
pub(super) const PARENT: usize = 12;
pub(super) const INFO: usize = 16;

// `TCA_KIND`, `TCA_STATS2` and the attributes in it.
pub(super) const KIND: u16 = 1;
const STATISTICS: u16 = 7;
const BASIC: u16 = 1;
const QUEUE: u16 = 3;
const PACKETS_64: u16 = 8;

// `TC_H_ROOT` and `TC_H_INGRESS` (linux/pkt_sched.h).
const ROOT: u32 = u32::MAX;
const INGRESS: u32 = 0xffff_fff1;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QdiscState {
    /// `mq`, `fq_codel`, `pfifo_fast`, `noqueue`, ...
    pub kind: String,
    /// As tc prints it, such as `8001:`; `0:` for a default qdisc.
    #[serde(default)]
    pub handle: String,
    /// `root`, `ingress`, or the parent's handle as tc prints it, such as `:3`.
    pub parent: String,
    pub packets: u64,
    pub drops: u64,
    pub requeues: u64,
    pub backlog: u64,
}

pub(crate) fn disciplines(host: &Host, interface: &str, index: &Known<u32>) -> Known<Vec<QdiscState>> {
    let operation = format!("reading the queueing disciplines of {interface}");
    host.call(&format!("qdisc/{interface}"), &operation, || list(*index.known()?)).into()
}

/// Whether a qdisc that holds packets is at the root of an interface.
pub fn has_root_queue(host: &Host, interface: &str, index: u32) -> Known<bool> {
    let is_queue = |qdisc: &QdiscState| qdisc.parent == "root" && qdisc.kind != "noqueue";
    disciplines(host, interface, &Known::Value(index)).map(|qdiscs| qdiscs.iter().any(is_queue))
}

// The qdiscs of each interface. One request suffices, because the kernel always lists all.
pub(crate) fn disciplines_of_links(
    host: &Host,
    links: &[(&str, &Known<u32>)],
) -> Vec<Known<Vec<QdiscState>>> {
    let is_one_request = host.is_live() && links.len() > 1;
    // After an error each interface reports its own reason.
    let Some(qdiscs) = is_one_request.then(|| list_matching(|_| true).ok()).flatten() else {
        return links.iter().map(|(interface, index)| disciplines(host, interface, index)).collect();
    };
    let disciplines_of_link = |(_, index): &(&str, &Known<u32>)| {
        let with_index = |index: u32| {
            qdiscs.iter().filter(|(owner, _)| *owner == index).map(|(_, item)| item.clone()).collect()
        };
        Known::clone(index).map(with_index)
    };
    links.iter().map(disciplines_of_link).collect()
}

// The kernel always lists the qdiscs of all interfaces (`tc_dump_qdisc`, net/sched/sch_api.c, Linux
// 6.18).
pub(super) fn list(interface: u32) -> io::Result<Vec<QdiscState>> {
    Ok(list_matching(|index| index == interface)?.into_iter().map(|(_, discipline)| discipline).collect())
}

/// With the index of the interface.
fn list_matching(is_wanted: impl Fn(u32) -> bool) -> io::Result<Vec<(u32, QdiscState)>> {
    let answers = NetlinkConnection::open(NETLINK_ROUTE)?.dump(GET, &[0; HEADER_BYTES])?;
    let matching_qdiscs = answers.iter().filter(|answer| answer.kind == NEW).filter_map(|answer| {
        let index = word(&answer.body, INDEX).filter(|index| is_wanted(*index))?;
        Some(
            parse_qdisc(&answer.body)
                .map(|item| (index, item))
                .ok_or_else(|| io::ErrorKind::InvalidData.into()),
        )
    });
    matching_qdiscs.collect()
}

// `None` if it is incomplete or has no statistics.
pub(crate) fn parse_qdisc(body: &[u8]) -> Option<QdiscState> {
    let attributes = body.get(HEADER_BYTES..)?;
    let statistics = attribute(attributes, STATISTICS)?;
    // struct gnet_stats_basic: 64 bits of bytes, 32 bits of packets; since Linux 5.5 also 64 bits
    // of packets.
    let basic = attribute(statistics, BASIC)?;
    let packets = attribute(statistics, PACKETS_64).and_then(number).or(word(basic, 8).map(u64::from))?;
    // struct gnet_stats_queue: packets and bytes waiting, drops, requeues, overlimits.
    let queue = attribute(statistics, QUEUE)?;
    let count = |offset| word(queue, offset).map(u64::from);
    Some(QdiscState {
        kind: attribute(attributes, KIND).map(text)?,
        handle: format!("{:x}:", word(body, HANDLE)? >> 16),
        parent: parent(word(body, PARENT)?),
        packets,
        drops: count(8)?,
        requeues: count(12)?,
        backlog: count(0)?,
    })
}

/// As tc prints it.
fn parent(handle: u32) -> String {
    match (handle, handle >> 16, handle & 0xffff) {
        (ROOT, _, _) => "root".to_owned(),
        (INGRESS, _, _) => "ingress".to_owned(),
        (_, 0, minor) => format!(":{minor:x}"),
        (_, major, minor) => format!("{major:x}:{minor:x}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers of Linux 6.18 after `tc qdisc replace dev v0 root mq` on an interface with two
    /// queues.
    const MQ: &str = "000000000300000000000180ffffffff01000000070001006d71000005000c00000000003000070014000100aa01000000000000\
                      05000000000000001800030000000000000000000000000000000000000000002c000300aa01000000000000050000000000\
                      0000000000000000000000000000000000000000000000000000";
    const PFIFO_FAST: &str = "00000000030000000000000002000180010000000f000100706669666f5f66617374000018000200030000000102020201\
         020000010101010101010105000c000000000030000700140001000e0100000000000003000000000000001800030000\
         000000000000000000000000000000000000002c0003000e010000000000000300000000000000000000000000000000\
         000000000000000000000000000000";

    fn bytes(text: &str) -> Vec<u8> {
        let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
        digits.chunks(2).map(byte).collect()
    }

    #[test]
    fn qdisc_messages_are_parsed_with_handles_and_counters() {
        let root = parse_qdisc(&bytes(MQ)).expect("a discipline");
        assert_eq!((root.kind.as_str(), root.handle.as_str(), root.parent.as_str()), ("mq", "8001:", "root"));
        assert_eq!((root.packets, root.drops, root.requeues, root.backlog), (5, 0, 0, 0));
        let child = parse_qdisc(&bytes(PFIFO_FAST)).expect("a discipline");
        assert_eq!((child.kind.as_str(), child.handle.as_str()), ("pfifo_fast", "0:"));
        assert_eq!((child.parent.as_str(), child.packets), ("8001:2", 3));
    }

    #[test]
    fn backlog_drops_and_requeues_are_read_separately() {
        let mut message = bytes(PFIFO_FAST);
        let queue =
            message.windows(4).position(|window| window == [0x18, 0, 3, 0]).expect("its statistics") + 4;
        for (at, value) in [(0, 7_u8), (8, 21), (12, 35)] {
            message[queue + at] = value;
        }
        let qdisc = parse_qdisc(&message).expect("a discipline");
        assert_eq!((qdisc.backlog, qdisc.drops, qdisc.requeues), (7, 21, 35));
    }

    #[test]
    fn truncated_qdisc_messages_are_none() {
        let whole = bytes(MQ);
        // The statistics after the queue's are repeated without the hardware's share.
        let needed = whole.len() - 44;
        for length in 0..needed {
            assert_eq!(parse_qdisc(&whole[..length]), None, "{length}");
        }
    }

    #[test]
    fn qdisc_parents_are_printed_as_in_tc() {
        assert_eq!(parent(0x8001_000a), "8001:a");
        assert_eq!(parent(3), ":3");
        assert_eq!(parent(0xffff_fff1), "ingress");
    }
}
