//! tc filters and tcx programs on an interface.

use std::collections::BTreeSet;
use std::io;

use netlink_sys::protocols::NETLINK_ROUTE;
use serde::{Deserialize, Serialize};

use super::attribute::{attribute, text, word};
use super::connection::NetlinkConnection;
use crate::sys::tcx::{self, TcxDirection};

// Message types of linux/rtnetlink.h.
const GET_QDISC: u16 = 38;
const GET_FILTER: u16 = 46;

// Bytes of struct tcmsg (linux/rtnetlink.h), and offsets of its words.
const HEADER_BYTES: usize = 20;
const INDEX: usize = 4;
const PARENT: usize = 12;
const INFO: usize = 16;

const KIND: u16 = 1;
const CHAIN: u16 = 11;

// The parent for filters without a class (`TC_H_INGRESS`, `TC_H_CLSACT`), and for ingress and
// egress filters there.
const CLSACT: u32 = 0xffff_fff1;
const CLSACT_INGRESS: u32 = 0xffff_fff2;
const CLSACT_EGRESS: u32 = 0xffff_fff3;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ProgramCounts {
    pub ingress: u32,
    pub egress: u32,
}

/// Numbers of tc filters and tcx programs of an interface.
pub(crate) fn programs(index: u32) -> io::Result<ProgramCounts> {
    let mut connection = NetlinkConnection::open(NETLINK_ROUTE)?;
    let qdiscs = match connection.dump(GET_QDISC, &header(index, 0)) {
        // A kernel without CONFIG_NET_SCHED has neither qdiscs nor filters.
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => Vec::new(),
        answers => answers?,
    };
    let kind = qdiscs.iter().find_map(|answer| qdisc_for_filters(&answer.body, index));
    let mut filters = |parent| -> io::Result<u32> {
        let answers = connection.dump(GET_FILTER, &header(index, parent))?;
        Ok(count(answers.iter().map(|answer| answer.body.as_slice())))
    };
    // The older qdisc `ingress` has no egress side, and lists its filters for any parent below it.
    let (ingress, egress) = match kind.as_deref() {
        Some("clsact") => (filters(CLSACT_INGRESS)?, filters(CLSACT_EGRESS)?),
        Some(_) => (filters(CLSACT_INGRESS)?, 0),
        None => (0, 0),
    };
    Ok(ProgramCounts {
        ingress: ingress.saturating_add(tcx::count(index, TcxDirection::Ingress)?),
        egress: egress.saturating_add(tcx::count(index, TcxDirection::Egress)?),
    })
}

fn header(index: u32, parent: u32) -> [u8; HEADER_BYTES] {
    let mut bytes = [0; HEADER_BYTES];
    bytes[INDEX..INDEX + 4].copy_from_slice(&index.to_ne_bytes());
    bytes[PARENT..PARENT + 4].copy_from_slice(&parent.to_ne_bytes());
    bytes
}

/// The kind of the filter-only qdisc (`clsact` or `ingress`), if this answer is about it.
pub(crate) fn qdisc_for_filters(body: &[u8], index: u32) -> Option<String> {
    let is_clsact = word(body, INDEX)? == index && word(body, PARENT)? == CLSACT;
    attribute(body.get(HEADER_BYTES..)?, KIND).filter(|_| is_clsact).map(text)
}

/// Number of filters: each has a chain, priority and protocol, and any number of entries.
pub(crate) fn count<'a>(answers: impl Iterator<Item = &'a [u8]>) -> u32 {
    let filter_key = |body: &[u8]| {
        let chain = attribute(body.get(HEADER_BYTES..)?, CHAIN).and_then(|chain| word(chain, 0)).unwrap_or(0);
        Some((chain, word(body, INFO)?))
    };
    let filters: BTreeSet<_> = answers.filter_map(filter_key).collect();
    u32::try_from(filters.len()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::attribute::RequestAttributes;
    fn answer(index: u32, parent: u32, info: u32, attributes: &RequestAttributes) -> Vec<u8> {
        let mut body = header(index, parent).to_vec();
        body[INFO..INFO + 4].copy_from_slice(&info.to_ne_bytes());
        body.extend(attributes.as_bytes());
        body
    }

    #[test]
    fn filter_qdisc_is_the_clsact_of_the_same_interface() {
        let kind = |name| RequestAttributes::default().text(KIND, name);
        let filter_qdisc = |index, parent, name| qdisc_for_filters(&answer(index, parent, 0, &kind(name)), 2);
        assert_eq!(filter_qdisc(2, CLSACT, "clsact").as_deref(), Some("clsact"));
        assert_eq!(filter_qdisc(2, 0xffff_ffff, "fq_codel"), None);
        assert_eq!(filter_qdisc(3, CLSACT, "ingress"), None);
    }

    #[test]
    fn entries_of_a_tc_filter_are_counted_once() {
        let chain = |number: u32| RequestAttributes::default().text(KIND, "flower").u32(CHAIN, number);
        let answers = [
            answer(2, CLSACT_INGRESS, 0xc000_0008, &chain(0)),
            answer(2, CLSACT_INGRESS, 0xc000_0008, &chain(0)),
            answer(2, CLSACT_INGRESS, 0xbfff_0008, &chain(0)),
            answer(2, CLSACT_INGRESS, 0xc000_0008, &chain(1)),
            vec![0; 7],
        ];
        assert_eq!(count(answers.iter().map(Vec::as_slice)), 3);
    }
}
