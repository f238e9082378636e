//! Building zones from files: records are collected, then sorted into buckets.

use std::collections::HashSet;

use super::super::rtype;
use super::super::zonefile::{self, ZoneError, ZoneFiles, ZoneRecord, ZoneText, display_name};
use super::{
    BucketIndex, COUNT, FLAG_WILDCARD, NO_ZONE, SLOT, StoredZone, WireName, Zones, bucket_of, label_count,
    mix_hash,
};

/// Average records per bucket.
const FILL: usize = 8;
/// Types of items that are no records.
const MARK_EXISTS: u16 = 0;
const MARK_WILDCARD: u16 = rtype::OPT;
// Bytes of an item before its name: zone, type, TTL, line, file, and the lengths of name and data.
const ITEM_HEADER: usize = 18;
/// Items begin at multiples of this.
const ALIGNMENT: usize = 8;

impl Zones {
    /// Reads all zones.
    pub(crate) fn read(zones: &[(&str, ZoneText<'_>)]) -> Result<Self, ZoneError> {
        let names: Vec<Vec<u8>> =
            zones.iter().map(|(name, _)| zonefile::apex(name)).collect::<Result<_, _>>()?;
        if let Some(index) = (1..names.len()).find(|index| names[..*index].contains(&names[*index])) {
            return Err(ZoneError::Twice { zone: display_name(&names[index]) });
        }
        ZoneReader {
            most_labels: most_labels(&names),
            signed: vec![false; names.len()],
            names,
            records: 0,
            items: Vec::new(),
            index: Vec::new(),
            name: WireName::default(),
            parent: Vec::new(),
        }
        .build(zones)
    }
}

fn most_labels(names: &[Vec<u8>]) -> u8 {
    names.iter().map(|name| label_count(name) as u8).max().unwrap_or(0)
}

/// The records of all files.
struct ZoneReader {
    names: Vec<Vec<u8>>,
    records: usize,
    most_labels: u8,
    // The written items, and the hash and offset of each.
    items: Vec<u8>,
    index: Vec<(u32, u32)>,
    name: WireName,
    /// The last parent that was marked as existing.
    parent: Vec<u8>,
    signed: Vec<bool>,
}

impl ZoneReader {
    fn files(&mut self, zones: &[(&str, ZoneText<'_>)]) -> Result<Vec<ZoneFiles>, ZoneError> {
        let mut zone_files = Vec::new();
        for (number, (name, text)) in zones.iter().enumerate() {
            let (mut is_full, number) = (false, number as u16);
            self.parent.clear();
            // The apex always exists.
            self.mark(number, &self.names[usize::from(number)].clone(), MARK_EXISTS);
            let parsed_files =
                zonefile::read(name, *text, &mut |record| is_full |= !self.record(number, record))?;
            if is_full {
                let why = "the zones together are too large: 32 GB of records is the most";
                return Err(ZoneError::Zone {
                    file: parsed_files.files[0].clone(),
                    zone: display_name(&parsed_files.apex),
                    why,
                });
            }
            zone_files.push(parsed_files);
        }
        Ok(zone_files)
    }

    /// Adds a record; false if there is no room.
    fn record(&mut self, zone: u16, record: &ZoneRecord<'_>) -> bool {
        self.records += 1;
        let apex_length = self.names[usize::from(zone)].len();
        let owner = record.owner;
        self.signed[usize::from(zone)] |=
            record.rtype == rtype::RRSIG && owner.len() == apex_length && record.data.starts_with(&[0, 48]);
        if owner.len() > apex_length {
            let parent = &owner[usize::from(owner[0]) + 1..];
            if owner.starts_with(b"\x01*") {
                self.mark(zone, parent, MARK_WILDCARD);
            }
            if parent != self.parent.as_slice() {
                self.parent.clear();
                self.parent.extend_from_slice(parent);
                let mut suffix = parent;
                while suffix.len() > apex_length {
                    self.mark(zone, suffix, MARK_EXISTS);
                    let parent_suffix = &suffix[usize::from(suffix[0]) + 1..];
                    if suffix.starts_with(b"\x01*") {
                        self.mark(zone, parent_suffix, MARK_WILDCARD);
                    }
                    suffix = parent_suffix;
                }
            }
        }
        self.item(zone, record)
    }

    fn mark(&mut self, zone: u16, name: &[u8], mark: u16) {
        self.item(zone, &ZoneRecord { owner: name, rtype: mark, ttl: 0, data: &[], file: 0, line: 0 });
    }

    fn item(&mut self, zone: u16, record: &ZoneRecord<'_>) -> bool {
        self.name.set(record.owner);
        self.most_labels = self.most_labels.max(self.name.labels as u8);
        let hash = mix_hash(self.name.hash(self.name.labels), zone);
        let position = self.items.len().next_multiple_of(ALIGNMENT);
        let Ok(offset) = u32::try_from(position / ALIGNMENT) else { return false };
        self.index.push((hash, offset));
        self.items.resize(position, 0);
        self.items.extend_from_slice(&zone.to_ne_bytes());
        self.items.extend_from_slice(&record.rtype.to_ne_bytes());
        self.items.extend_from_slice(&record.ttl.to_ne_bytes());
        self.items.extend_from_slice(&record.line.to_ne_bytes());
        self.items.extend_from_slice(&record.file.to_ne_bytes());
        self.items.extend_from_slice(&(record.owner.len() as u16).to_ne_bytes());
        self.items.extend_from_slice(&(record.data.len() as u16).to_ne_bytes());
        self.items.extend_from_slice(record.owner);
        self.items.extend_from_slice(record.data);
        true
    }

    fn build(mut self, zones: &[(&str, ZoneText<'_>)]) -> Result<Zones, ZoneError> {
        let files = self.files(zones)?;
        let bucket_count = (self.records / FILL).next_power_of_two();
        let shift = u32::BITS - bucket_count.trailing_zeros();
        // By bucket, hash and place in the files.
        self.index.sort_unstable();
        let mut bucket_builder = BucketBuilder {
            files: &files,
            items: &self.items,
            notes: Vec::new(),
            scratch: Vec::new(),
            records: 0,
        };
        let mut buckets = Vec::with_capacity(bucket_count);
        let mut remaining_index = &self.index[..];
        for bucket in 0..bucket_count {
            let count =
                remaining_index.partition_point(|(hash, _)| bucket_of(*hash, shift) as usize <= bucket);
            let (bucket_index, later_index) = remaining_index.split_at(count);
            remaining_index = later_index;
            buckets.push(bucket_builder.bucket(bucket_index)?);
        }
        let records = bucket_builder.records;
        let mut notes = bucket_builder.notes;
        for (zone, _) in files.iter().zip(&self.signed).filter(|(_, signed)| **signed) {
            notes.push(format!(
                "zone {} is signed, but signatures and proofs are only given to who asks for them by type: validating \
                 resolvers will not accept its answers",
                display_name(&zone.apex)
            ));
        }
        let mut zones = Zones {
            records,
            buckets,
            shift,
            zones: Vec::new(),
            table: table(&self.names),
            most_labels: self.most_labels,
            apex_labels: most_labels(&self.names),
            notes,
        };
        zones.zones =
            self.names.iter().enumerate().map(|(number, apex)| zones.zone(number as u16, apex)).collect();
        Ok(zones)
    }
}

impl Zones {
    fn zone(&self, number: u16, apex: &[u8]) -> StoredZone {
        let mut name = WireName::default();
        name.set(apex);
        let no_index = BucketIndex { bucket: 0, at: 0 };
        let node = self.node(number, &name, name.labels).unwrap_or(no_index);
        // A file without SOA was refused.
        let soa = self.find_set(node, rtype::SOA);
        let minimum = soa.and_then(|soa| soa.records().next()).and_then(|(_, data)| data.last_chunk());
        StoredZone {
            apex: apex.into(),
            node,
            soa: soa.map_or(no_index, |soa| soa.place),
            negative_ttl: soa
                .map_or(0, |soa| soa.ttl)
                .min(minimum.map_or(0, |minimum| u32::from_be_bytes(*minimum))),
        }
    }
}

fn table(names: &[Vec<u8>]) -> Vec<(u32, u16)> {
    let size = (names.len() * 2 + 1).next_power_of_two();
    let mut slots = vec![(0, NO_ZONE); size];
    for (zone, name) in names.iter().enumerate() {
        let mut wire_name = WireName::default();
        wire_name.set(name);
        let hash = wire_name.hash(wire_name.labels);
        let mut slot = mix_hash(hash, 0) as usize & (size - 1);
        while slots[slot].1 != NO_ZONE {
            slot = (slot + 1) & (size - 1);
        }
        slots[slot] = (hash, zone as u16);
    }
    slots
}

fn read_item(items: &[u8], offset: u32) -> (u16, ZoneRecord<'_>) {
    let bytes = &items[offset as usize * ALIGNMENT..];
    let read_u16 = |position: usize| u16::from_ne_bytes([bytes[position], bytes[position + 1]]);
    let read_u32 = |position: usize| {
        u32::from_ne_bytes([bytes[position], bytes[position + 1], bytes[position + 2], bytes[position + 3]])
    };
    let (name_length, data) = (usize::from(read_u16(14)), usize::from(read_u16(16)));
    let (owner, data_bytes) = bytes[ITEM_HEADER..].split_at(name_length);
    let record = ZoneRecord {
        owner,
        rtype: read_u16(2),
        ttl: read_u32(4),
        line: read_u32(8),
        file: read_u16(12),
        data: &data_bytes[..data],
    };
    (read_u16(0), record)
}

struct BucketBuilder<'a> {
    files: &'a [ZoneFiles],
    items: &'a [u8],
    notes: Vec<String>,
    scratch: Vec<u8>,
    records: usize,
}

struct NameNode<'a> {
    hash: u32,
    zone: u16,
    name: &'a [u8],
    wildcard: bool,
    sets: Vec<Vec<ZoneRecord<'a>>>,
}

impl<'a> BucketBuilder<'a> {
    /// Builds a bucket from items sorted by hash.
    fn bucket(&mut self, index: &[(u32, u32)]) -> Result<Box<[u8]>, ZoneError> {
        let mut nodes: Vec<NameNode<'a>> = Vec::new();
        for &(hash, offset) in index {
            let (zone, record) = read_item(self.items, offset);
            let is_same_node =
                |node: &NameNode<'_>| node.hash == hash && node.zone == zone && node.name == record.owner;
            let node_index = nodes.iter().rposition(is_same_node).unwrap_or_else(|| {
                nodes.push(NameNode { hash, zone, name: record.owner, wildcard: false, sets: Vec::new() });
                nodes.len() - 1
            });
            match record.rtype {
                MARK_EXISTS => {}
                MARK_WILDCARD => nodes[node_index].wildcard = true,
                _ => self.add(&mut nodes[node_index], record)?,
            }
        }
        for node in &mut nodes {
            for set in &mut node.sets {
                self.deduplicate_set(node.zone, set)?;
            }
        }
        let scratch = &mut self.scratch;
        scratch.clear();
        scratch.extend_from_slice(&(nodes.len() as u32).to_ne_bytes());
        scratch.resize(COUNT + nodes.len() * SLOT, 0);
        for (number, node) in nodes.iter().enumerate() {
            let (slot, node_offset) = (COUNT + number * SLOT, scratch.len() as u32);
            scratch[slot..slot + 4].copy_from_slice(&node.hash.to_ne_bytes());
            scratch[slot + 4..slot + 8].copy_from_slice(&node_offset.to_ne_bytes());
            scratch.extend_from_slice(&node.zone.to_ne_bytes());
            scratch.push(if node.wildcard { FLAG_WILDCARD } else { 0 });
            scratch.extend_from_slice(node.name);
            scratch.extend_from_slice(&(node.sets.len() as u16).to_ne_bytes());
            for set in &node.sets {
                let length: usize = set.iter().map(|record| 2 + record.data.len()).sum();
                scratch.extend_from_slice(&set[0].rtype.to_ne_bytes());
                scratch.extend_from_slice(&set[0].ttl.to_ne_bytes());
                scratch.extend_from_slice(&(length as u32).to_ne_bytes());
                for record in set {
                    scratch.extend_from_slice(&(record.data.len() as u16).to_ne_bytes());
                    scratch.extend_from_slice(record.data);
                }
                self.records += set.len();
            }
        }
        Ok(Box::from(&scratch[..]))
    }

    fn add(&mut self, node: &mut NameNode<'a>, record: ZoneRecord<'a>) -> Result<(), ZoneError> {
        let zone = &self.files[usize::from(node.zone)];
        let is_alias = |rtype: u16| rtype == rtype::CNAME;
        let may_join_alias = |rtype: u16| matches!(rtype, rtype::RRSIG | rtype::NSEC | rtype::NSEC3);
        let is_conflict = |set: &Vec<ZoneRecord<'_>>| {
            let other_type = set[0].rtype;
            other_type != record.rtype
                && (is_alias(other_type) && !may_join_alias(record.rtype)
                    || is_alias(record.rtype) && !may_join_alias(other_type))
        };
        if node.sets.iter().any(is_conflict) {
            let why = "a CNAME cannot have other records next to it; remove it or them";
            return Err(zone.record_error(&record, why));
        }
        match node.sets.iter_mut().find(|set| set[0].rtype == record.rtype) {
            Some(set) => set.push(record),
            None => node.sets.push(vec![record]),
        }
        Ok(())
    }

    /// Removes duplicates, and checks that the records are compatible.
    fn deduplicate_set(&mut self, zone: u16, set: &mut Vec<ZoneRecord<'a>>) -> Result<(), ZoneError> {
        if set.len() > 1 {
            let mut unique_data = HashSet::new();
            set.retain(|record| unique_data.insert(record.data));
        }
        let (zone, first) = (&self.files[usize::from(zone)], set[0]);
        for record in &set[1..] {
            if matches!(record.rtype, rtype::CNAME | rtype::SOA) {
                let why = "there is another record of this type, and may be one only; remove one";
                return Err(zone.record_error(record, why));
            }
            if record.ttl != first.ttl && record.rtype != rtype::RRSIG {
                let why = format!(
                    "its TTL is not that of the others of its type, {} s, which is served",
                    first.ttl
                );
                self.notes.push(zone.record_error(record, &why).to_string());
            }
        }
        Ok(())
    }
}
