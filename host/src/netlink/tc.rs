//! tc filters and tcx programs on an interface.

use std::collections::BTreeSet;
use std::io;

use netlink_sys::protocols::NETLINK_ROUTE;
use serde::{Deserialize, Serialize};

use super::attribute::{attribute, word};
use super::connection::NetlinkConnection;
use super::qdisc::{self, HEADER_BYTES, INDEX, INFO, PARENT};
use crate::sys::tcx::{self, TcxDirection};

// `RTM_GETTFILTER` of linux/rtnetlink.h.
const GET_FILTER: u16 = 46;

const CHAIN: u16 = 11;

// The parents for ingress and egress filters without a class.
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
    let qdiscs = match qdisc::list(index) {
        // A kernel without CONFIG_NET_SCHED has neither qdiscs nor filters.
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => Vec::new(),
        answers => answers?,
    };
    // The qdisc that only has filters (`clsact` or `ingress`).
    let filter_qdisc = qdiscs.iter().find(|item| item.parent == "ingress");
    let mut connection = NetlinkConnection::open(NETLINK_ROUTE)?;
    let mut filters = |parent| -> io::Result<u32> {
        let answers = connection.dump(GET_FILTER, &header(index, parent))?;
        Ok(count(answers.iter().map(|answer| answer.body.as_slice())))
    };
    // The older qdisc `ingress` has no egress side, and lists its filters for any parent below it.
    let (ingress, egress) = match filter_qdisc.map(|item| item.kind.as_str()) {
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
    fn entries_of_a_tc_filter_are_counted_once() {
        let chain = |number: u32| RequestAttributes::default().text(qdisc::KIND, "flower").u32(CHAIN, number);
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
