//! ethtool commands for receiving: the indirection table, hash fields and flow rules
//! (linux/ethtool.h).
//!
//! The ioctl has all of these commands since Linux 3.16; the ethtool family of generic netlink does
//! not.

use std::io;

use super::{RuleSpec, flow_names, flow_rule, hexadecimal, ioctl};
use crate::ethtool::{HashFields, HashFunction, IndirectionInfo, NtupleRule};

const GET_HASH_FIELDS: u32 = 0x29;
const SET_HASH_FIELDS: u32 = 0x2a;
const GET_RINGS: u32 = 0x2d;
const COUNT_RULES: u32 = 0x2e;
const GET_RULE: u32 = 0x2f;
const LIST_RULES: u32 = 0x30;
const DELETE_RULE: u32 = 0x31;
const INSERT_RULE: u32 = 0x32;
const GET_TABLE: u32 = 0x38;
const SET_TABLE: u32 = 0x39;
const GET_INDIRECTION: u32 = 0x46;

/// Bytes of struct ethtool_rxnfc, and offsets of its fields.
const RXNFC_BYTES: usize = 192;
const RXNFC_FLOW: usize = 4;
const RXNFC_DATA: usize = 8;
const RXNFC_SPEC: usize = 16;
const RXNFC_LOCATION: usize = RXNFC_SPEC + flow_rule::LOCATION;
const RXNFC_RULE_COUNT: usize = RXNFC_SPEC + flow_rule::SPEC_BYTES;
const RXNFC_RULES: usize = 188;

// Bytes of struct ethtool_rxfh before table and key, and offsets of its fields.
const RXFH_BYTES: usize = 24;
const RXFH_TABLE_SIZE: usize = 8;
const RXFH_KEY_SIZE: usize = 12;
const RXFH_FUNCTION: usize = 16;

// Bytes of struct ethtool_rxfh_indir before the table, and the offset of its size.
const TABLE_BYTES: usize = 8;
const TABLE_SIZE: usize = 4;

/// A larger size is invalid.
const MOST_ENTRIES: u32 = 1 << 16;
const MOST_KEY_BYTES: u32 = 1 << 12;
const MOST_RULES: u32 = 1 << 16;

// Rules may be added between counting and listing them.
const LIST_ATTEMPTS: u32 = 3;
const SPARE_RULES: u32 = 16;

// The indirection table and the hash (`ETHTOOL_GRSSH`, Linux 3.16), or only the table
// (`ETHTOOL_GRXFHINDIR`).
pub(crate) fn indirection(interface: &str) -> io::Result<IndirectionInfo> {
    match table_and_hash(interface) {
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
            table(interface).map(|table| IndirectionInfo { table, hash: None })
        }
        answer => answer,
    }
}

fn table_and_hash(interface: &str) -> io::Result<IndirectionInfo> {
    let mut sizes = vec![0; RXFH_BYTES];
    send_command(interface, GET_INDIRECTION, &mut sizes)?;
    let entries =
        check_limit(word(&sizes, RXFH_TABLE_SIZE), MOST_ENTRIES, "entries of an indirection table")?;
    let key = check_limit(word(&sizes, RXFH_KEY_SIZE), MOST_KEY_BYTES, "bytes of a hash key")?;
    let mut answer = vec![0; RXFH_BYTES + entries as usize * 4 + key as usize];
    put_word(&mut answer, RXFH_TABLE_SIZE, entries);
    put_word(&mut answer, RXFH_KEY_SIZE, key);
    send_command(interface, GET_INDIRECTION, &mut answer)?;
    let (table, key) = answer[RXFH_BYTES..].split_at(entries as usize * 4);
    let function = flow_names::hash_function(answer[RXFH_FUNCTION]);
    let hash =
        (!key.is_empty() || !table.is_empty()).then(|| HashFunction { function, key: hexadecimal(key) });
    Ok(IndirectionInfo { table: words(table), hash })
}

fn table(interface: &str) -> io::Result<Vec<u32>> {
    let mut size = vec![0; TABLE_BYTES];
    send_command(interface, GET_TABLE, &mut size)?;
    let entries = check_limit(word(&size, TABLE_SIZE), MOST_ENTRIES, "entries of an indirection table")?;
    let mut answer = vec![0; TABLE_BYTES + entries as usize * 4];
    put_word(&mut answer, TABLE_SIZE, entries);
    send_command(interface, GET_TABLE, &mut answer)?;
    Ok(words(&answer[TABLE_BYTES..]))
}

/// Sets the table and keeps the key and the function (`ETHTOOL_SRXFHINDIR`).
pub(crate) fn set_table(interface: &str, table: &[u32]) -> io::Result<()> {
    if table.is_empty() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // A request without entries sets the default table, after which drivers set another one when the
    // channels change. After any other request drivers such as ice keep the table
    // (`IFF_RXFH_CONFIGURED`, ethtool_set_rxfh_indir of net/ethtool/ioctl.c).
    let queues = table_queues(interface).unwrap_or_default();
    if is_default_table(table, queues) && send_table(interface, &[]).is_ok() {
        return Ok(());
    }
    send_table(interface, table)
}

/// `ethtool_rxfh_indir_default` of linux/ethtool.h.
fn is_default_table(table: &[u32], queues: u32) -> bool {
    queues > 0 && table.iter().zip(0..).all(|(queue, entry)| *queue == entry % queues)
}

fn send_table(interface: &str, table: &[u32]) -> io::Result<()> {
    let entries = u32::try_from(table.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let mut request = vec![0; TABLE_BYTES];
    put_word(&mut request, TABLE_SIZE, entries);
    request.extend(table.iter().flat_map(|queue| queue.to_ne_bytes()));
    send_command(interface, SET_TABLE, &mut request)
}

// The hashed fields of a flow type, by its name in ethtool(8) (`ETHTOOL_GRXFH`).
pub(crate) fn hash_fields(interface: &str, flow: &str) -> io::Result<HashFields> {
    let mut request = flow_request(flow)?;
    send_command(interface, GET_HASH_FIELDS, &mut request)?;
    Ok(HashFields::from_bits(word(&request, RXNFC_DATA)))
}

/// `ETHTOOL_SRXFH`.
pub(crate) fn set_hash_fields(interface: &str, flow: &str, fields: HashFields) -> io::Result<()> {
    let mut request = flow_request(flow)?;
    request[RXNFC_DATA..RXNFC_DATA + 8].copy_from_slice(&u64::from(fields.bits()).to_ne_bytes());
    send_command(interface, SET_HASH_FIELDS, &mut request)
}

// Whether ethtool(8) has a flow type with this name.
pub(crate) fn is_flow(name: &str) -> bool {
    flow_names::flow_number(name).is_some()
}

fn flow_request(flow: &str) -> io::Result<Vec<u8>> {
    let number = flow_names::flow_number(flow).ok_or(io::ErrorKind::InvalidInput)?;
    let mut request = vec![0; RXNFC_BYTES];
    put_word(&mut request, RXNFC_FLOW, number);
    Ok(request)
}

/// The number of queues that the driver allows in its table (`ETHTOOL_GRXRINGS`).
pub(crate) fn table_queues(interface: &str) -> io::Result<u32> {
    let mut request = vec![0; RXNFC_BYTES];
    send_command(interface, GET_RINGS, &mut request)?;
    Ok(word(&request, RXNFC_DATA))
}

/// The rules that direct flows to queues (`ETHTOOL_GRXCLSRLCNT`, `_GRXCLSRLALL`, `_GRXCLSRULE`).
pub(crate) fn ntuple(interface: &str) -> io::Result<Vec<NtupleRule>> {
    let mut attempts = 1;
    loop {
        let listed = |location| Ok(read_rule(interface, location)?.listed(location));
        let result = locations(interface).and_then(|rules| rules.into_iter().map(listed).collect());
        match result {
            // A rule was added (no room) or removed (no such rule) in the meantime.
            Err(error)
                if attempts < LIST_ATTEMPTS
                    && matches!(error.raw_os_error(), Some(libc::EMSGSIZE | libc::ENOENT)) =>
            {
                attempts += 1;
            }
            answer => return answer,
        }
    }
}

fn locations(interface: &str) -> io::Result<Vec<u32>> {
    let mut request = vec![0; RXNFC_BYTES];
    send_command(interface, COUNT_RULES, &mut request)?;
    let count = check_limit(word(&request, RXNFC_RULE_COUNT), MOST_RULES, "rules for flows")?;
    if count == 0 {
        return Ok(Vec::new());
    }
    let capacity = count + SPARE_RULES;
    let mut answer = vec![0; RXNFC_BYTES + capacity as usize * 4];
    put_word(&mut answer, RXNFC_RULE_COUNT, capacity);
    send_command(interface, LIST_RULES, &mut answer)?;
    let rule_count = word(&answer, RXNFC_RULE_COUNT).min(capacity) as usize;
    Ok(words(&answer[RXNFC_RULES..]).into_iter().take(rule_count).collect())
}

pub(crate) fn rule_spec(interface: &str, location: u32) -> io::Result<Option<RuleSpec>> {
    let has_rule = locations(interface)?.contains(&location);
    has_rule.then(|| read_rule(interface, location)).transpose()
}

/// `ETHTOOL_SRXCLSRLINS`.
pub(crate) fn insert_rule(interface: &str, location: u32, rule: &RuleSpec) -> io::Result<()> {
    let mut request = vec![0; RXNFC_BYTES];
    request[RXNFC_SPEC..RXNFC_RULE_COUNT].copy_from_slice(&rule.with_location(location));
    // The same word is the number of the RSS context if the flow type has its flag.
    put_word(&mut request, RXNFC_RULE_COUNT, rule.context.unwrap_or_default());
    send_command(interface, INSERT_RULE, &mut request)
}

/// `ETHTOOL_SRXCLSRLDEL`.
pub(crate) fn delete_rule(interface: &str, location: u32) -> io::Result<()> {
    send_rule_command(interface, DELETE_RULE, location).map(drop)
}

fn read_rule(interface: &str, location: u32) -> io::Result<RuleSpec> {
    let answer = send_rule_command(interface, GET_RULE, location)?;
    let context = word(&answer, RXNFC_RULE_COUNT);
    RuleSpec::of(&answer[RXNFC_SPEC..], context).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

fn send_rule_command(interface: &str, command: u32, location: u32) -> io::Result<Vec<u8>> {
    let mut request = vec![0; RXNFC_BYTES];
    put_word(&mut request, RXNFC_LOCATION, location);
    send_command(interface, command, &mut request)?;
    Ok(request)
}

/// Sends a structure with this command as its first word. The answer replaces the structure.
fn send_command(interface: &str, command: u32, structure: &mut [u8]) -> io::Result<()> {
    put_word(structure, 0, command);
    // SAFETY: every caller above gives the structure its command takes, zeroed where it says nothing, with room for as
    // many entries, key bytes or rules as the structure itself says; the kernel copies no more than that.
    unsafe { ioctl(interface, structure.as_mut_ptr().cast()) }
}

fn check_limit(size: u32, limit: u32, unit: &str) -> io::Result<u32> {
    if size <= limit { Ok(size) } else { Err(io::Error::other(format!("{size} {unit}: that cannot be"))) }
}

fn word(bytes: &[u8], offset: usize) -> u32 {
    bytes.get(offset..).and_then(<[u8]>::first_chunk).copied().map_or(0, u32::from_ne_bytes)
}

fn words(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks_exact(4).map(|chunk| word(chunk, 0)).collect()
}

fn put_word(bytes: &mut [u8], offset: usize, value: u32) {
    bytes[offset..offset + 4].copy_from_slice(&value.to_ne_bytes());
}

#[cfg(test)]
mod tests {
    use super::is_default_table;

    #[test]
    fn default_rss_tables_have_all_queues_in_turn() {
        assert!(is_default_table(&[0, 1, 2, 0, 1], 3) && is_default_table(&[0, 0], 1));
        assert!(is_default_table(&[0, 1], 4), "a table with fewer entries than queues");
        assert!(!is_default_table(&[0, 1, 0, 1], 3) && !is_default_table(&[1, 0], 2));
        assert!(!is_default_table(&[0, 0], 0), "the number of queues is unknown");
    }
}
