//! Tables of nftables and their content (linux/netfilter/nf_tables.h, Linux 3.13).

use std::io;

use serde::{Deserialize, Serialize};

use super::hook::hook_name;
use super::{attribute_number, family_name, list, split_message, truncated_error};
use crate::netlink::attribute::{RequestAttributes, attribute, text};

const SUBSYSTEM: u8 = 10;
const GET_TABLE: u8 = 1;
const GET_CHAIN: u8 = 4;
const ALL_FAMILIES: u8 = 0;

const TABLE_NAME: u16 = 1;
const TABLE_FLAGS: u16 = 2;
/// `NFT_TABLE_F_DORMANT`: the chains are detached from their hooks.
const DORMANT: u32 = 1;

const CHAIN_TABLE: u16 = 1;
const CHAIN_NAME: u16 = 3;
const CHAIN_HOOK: u16 = 4;
const CHAIN_POLICY: u16 = 5;
const CHAIN_USE: u16 = 6;
const CHAIN_TYPE: u16 = 7;
const HOOK_NUMBER: u16 = 1;
const HOOK_PRIORITY: u16 = 2;
// `NF_IP_PRI_CONNTRACK` of linux/netfilter_ipv4.h, equal for IPv6.
const TRACKING: i32 = -200;
// `NF_DROP` of linux/netfilter.h.
const POLICY_DROP: u32 = 0;

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct NftTable {
    /// `ip`, `ip6`, `inet`, `netdev`, ...
    pub family: String,
    pub name: String,
    /// A jump to one of its chains counts as another rule.
    pub rules: u32,
    /// Number of chains at a hook. Packets reach the others only by a jump.
    pub hooks: u32,
    /// Whether a chain at a hook drops what no rule accepts.
    pub drops: bool,
    /// Whether a chain with rules is at a hook before connection tracking, where `notrack` rules
    /// have to be.
    pub before_tracking: bool,
    /// Whether a chain of type nat with rules is at prerouting or output, where rules change
    /// destinations.
    pub destination_nat: bool,
    /// `flags dormant`.
    pub dormant: bool,
    /// The chains at a hook.
    pub base_chains: Vec<BaseChain>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct BaseChain {
    pub name: String,
    /// `prerouting`, `input`, `forward`, `output`, `postrouting`, `ingress` or `egress`.
    pub hook: String,
}

// Rules are counted from the use counts of their chains, so that it is not necessary to read a
// ruleset of many thousand rules.
pub(crate) fn tables() -> io::Result<Vec<NftTable>> {
    let no_attributes = RequestAttributes::default();
    let mut tables = Vec::new();
    for answer in list(SUBSYSTEM, GET_TABLE, ALL_FAMILIES, &no_attributes)? {
        tables.push(parse_table(&answer)?);
    }
    for answer in list(SUBSYSTEM, GET_CHAIN, ALL_FAMILIES, &no_attributes)? {
        add_chain(&answer, &mut tables)?;
    }
    Ok(tables)
}

pub(crate) fn parse_table(body: &[u8]) -> io::Result<NftTable> {
    let (family, attributes) = split_message(body)?;
    Ok(NftTable {
        family: family_name(family),
        name: attribute(attributes, TABLE_NAME).map(text).ok_or_else(truncated_error)?,
        dormant: attribute_number(attributes, TABLE_FLAGS).is_some_and(|flags| flags & DORMANT != 0),
        ..NftTable::default()
    })
}

/// Adds a chain to the counts of its table.
pub(crate) fn add_chain(body: &[u8], tables: &mut [NftTable]) -> io::Result<()> {
    let (family_number, attributes) = split_message(body)?;
    let family = family_name(family_number);
    let name = attribute(attributes, CHAIN_TABLE).map(text).ok_or_else(truncated_error)?;
    let uses = attribute_number(attributes, CHAIN_USE).ok_or_else(truncated_error)?;
    // The table was created after the list.
    let Some(table) = tables.iter_mut().find(|table| table.family == family && table.name == name) else {
        return Ok(());
    };
    table.rules = table.rules.saturating_add(uses);
    if let Some(hook) = attribute(attributes, CHAIN_HOOK) {
        let is_before_tracking =
            attribute_number(hook, HOOK_PRIORITY).is_some_and(|priority| priority.cast_signed() < TRACKING);
        table.before_tracking |= is_before_tracking && uses > 0;
        table.hooks = table.hooks.saturating_add(1);
        table.drops |= attribute_number(attributes, CHAIN_POLICY) == Some(POLICY_DROP);
        let hook = attribute_number(hook, HOOK_NUMBER).and_then(|hook| hook_name(family_number, hook));
        table.destination_nat |= uses > 0
            && attribute(attributes, CHAIN_TYPE).map(text).as_deref() == Some("nat")
            && matches!(hook, Some("prerouting" | "output"));
        if let Some((name, hook)) = attribute(attributes, CHAIN_NAME).map(text).zip(hook) {
            table.base_chains.push(BaseChain { name, hook: hook.to_owned() });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    fn answer(family: u8, attributes: &RequestAttributes) -> Vec<u8> {
        [&[family, 0, 0, 0], attributes.as_bytes()].concat()
    }

    fn chain(table: &str, uses: u32) -> RequestAttributes {
        RequestAttributes::default().text(CHAIN_TABLE, table).bytes(CHAIN_USE, &uses.to_be_bytes())
    }

    #[test]
    fn chains_and_rules_are_counted_in_their_table() {
        let named_table = RequestAttributes::default().text(TABLE_NAME, "fw").bytes(TABLE_FLAGS, &[0; 4]);
        let mut tables = [parse_table(&answer(1, &named_table)).expect("a table")];
        let base_chain = chain("fw", 2)
            .text(CHAIN_NAME, "first")
            .nested(
                CHAIN_HOOK,
                &RequestAttributes::default()
                    .bytes(HOOK_NUMBER, &4_u32.to_be_bytes())
                    .bytes(HOOK_PRIORITY, &(-300_i32).to_be_bytes()),
            )
            .bytes(CHAIN_POLICY, &POLICY_DROP.to_be_bytes());
        for answer in [answer(1, &base_chain), answer(1, &chain("fw", 5)), answer(2, &chain("fw", 9))] {
            add_chain(&answer, &mut tables).expect("a chain");
        }
        let expected = NftTable {
            family: "inet".into(),
            name: "fw".into(),
            rules: 7,
            hooks: 1,
            drops: true,
            before_tracking: true,
            destination_nat: false,
            dormant: false,
            base_chains: vec![BaseChain { name: "first".into(), hook: "postrouting".into() }],
        };
        assert_eq!(tables[0], expected);
    }

    #[test]
    fn nat_chains_with_rules_at_prerouting_or_output_are_destination_nat() {
        for (hook, kind, uses, expected) in [
            (0_u32, "nat", 1, true),
            (3, "nat", 1, true),
            (4, "nat", 1, false),
            (0, "nat", 0, false),
            (0, "filter", 1, false),
        ] {
            let hook = RequestAttributes::default().bytes(HOOK_NUMBER, &hook.to_be_bytes());
            let chain = chain("fw", uses).text(CHAIN_TYPE, kind).nested(CHAIN_HOOK, &hook);
            let mut tables = [NftTable { family: "ip".into(), name: "fw".into(), ..NftTable::default() }];
            add_chain(&answer(2, &chain), &mut tables).expect("a chain");
            assert_eq!(tables[0].destination_nat, expected, "{kind} {uses}");
        }
    }

    #[test]
    fn incomplete_table_and_chain_messages_are_errors() {
        assert!(parse_table(&answer(2, &RequestAttributes::default())).is_err());
        let mut tables = [NftTable::default()];
        assert!(
            add_chain(&answer(2, &RequestAttributes::default().text(CHAIN_TABLE, "fw")), &mut tables)
                .is_err()
        );
        assert!(add_chain(&[], &mut tables).is_err());
    }
}
