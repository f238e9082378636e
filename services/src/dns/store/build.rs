//! Building zones from files: records are collected, then sorted into buckets.
//!
//! A reload reads the files twice: first to compute the checksum of each bucket, then to build the buckets with another
//! checksum. So a change of some records needs little memory in addition to the zones that are served.

use std::collections::HashSet;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::Arc;

use super::super::rtype;
use super::super::zonefile::{self, ZoneError, ZoneFiles, ZoneRecord, ZoneText, display_name};
use super::{
    BucketIndex, COUNT, FLAG_WILDCARD, NO_ZONE, NameBucket, SLOT, StoredZone, WireName, Zones, bucket_of,
    label_count, mixed,
};

/// Average records per bucket.
const FILL: usize = 8;
// Attempts to read files that change while they are read.
const TRIES: usize = 3;
/// Types of items that are no records.
const MARK_EXISTS: u16 = 0;
const MARK_WILDCARD: u16 = rtype::OPT;
// Bytes of an item before its name: zone, type, TTL, line, file, and the lengths of name and data.
const ITEM_HEADER: usize = 18;
/// Items begin at multiples of this.
const ALIGNMENT: usize = 8;
/// Larger sets are deduplicated by hash.
const MANY: usize = 16;

impl Zones {
    /// Reads all zones. Shares unchanged buckets with `before`.
    pub(crate) fn read(zones: &[(&str, ZoneText<'_>)], before: Option<&Zones>) -> Result<Self, ZoneError> {
        let names: Vec<Vec<u8>> =
            zones.iter().map(|(name, _)| zonefile::apex(name)).collect::<Result<_, _>>()?;
        let before = before.filter(|before| {
            before.zones.iter().map(|zone| &zone.apex[..]).eq(names.iter().map(Vec::as_slice))
        });
        if let Some(at) = (1..names.len()).find(|at| names[..*at].contains(&names[*at])) {
            return Err(ZoneError::Twice { zone: display_name(&names[at]) });
        }
        let Some(before) = before else { return ReadPass::new(names, None).all(zones) };
        for _ in 0..TRIES {
            let mut sums = ReadPass::new(names.clone(), Some((before, RebuildChoice::Nothing)));
            sums.files(zones)?;
            // If the number of records changed much, all buckets are built again with the right size.
            let fits = (before.records / 4..=before.records * 4 + FILL).contains(&sums.records);
            if !fits {
                return ReadPass::new(names, None).all(zones);
            }
            let keep: Vec<bool> = std::iter::zip(&before.buckets, std::iter::zip(&before.sums, &sums.sums))
                .map(|(bucket, (old, new))| old == new && !bucket.noted)
                .collect();
            let expected = sums.sums;
            let made =
                ReadPass::new(names.clone(), Some((before, RebuildChoice::Buckets(keep)))).all(zones)?;
            if made.sums == expected {
                return Ok(made);
            }
        }
        Err(ZoneError::Changed)
    }
}

/// The previous buckets to build again.
enum RebuildChoice {
    Nothing,
    /// All but the ones to keep.
    Buckets(Vec<bool>),
}

/// One time that all files are read.
struct ReadPass<'a> {
    names: Vec<Vec<u8>>,
    before: Option<(&'a Zones, RebuildChoice)>,
    keys: RandomState,
    sums: Vec<u64>,
    shift: u32,
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

impl<'a> ReadPass<'a> {
    fn new(names: Vec<Vec<u8>>, before: Option<(&'a Zones, RebuildChoice)>) -> Self {
        let (keys, buckets, shift) = match &before {
            Some((zones, _)) => (zones.keys.clone(), zones.buckets.len(), zones.shift),
            None => (RandomState::new(), 0, 0),
        };
        let signed = vec![false; names.len()];
        let sums = vec![0; buckets];
        let most_labels = names.iter().map(|name| label_count(name) as u8).max().unwrap_or(0);
        Self {
            names,
            before,
            keys,
            sums,
            shift,
            records: 0,
            most_labels,
            items: Vec::new(),
            index: Vec::new(),
            name: WireName::default(),
            parent: Vec::new(),
            signed,
        }
    }

    fn files(&mut self, zones: &[(&str, ZoneText<'_>)]) -> Result<Vec<ZoneFiles>, ZoneError> {
        let mut all = Vec::new();
        for (number, (name, text)) in zones.iter().enumerate() {
            let (mut full, number) = (false, number as u16);
            self.parent.clear();
            // The apex always exists.
            self.mark(number, &self.names[usize::from(number)].clone(), MARK_EXISTS);
            let read = zonefile::read(name, *text, &mut |record| full |= !self.record(number, record))?;
            if full {
                let why = "the zones together are too large: 32 GB of records is the most";
                return Err(ZoneError::Zone {
                    file: read.files[0].clone(),
                    zone: display_name(&read.apex),
                    why,
                });
            }
            all.push(read);
        }
        Ok(all)
    }

    /// Adds a record; false if there is no room.
    fn record(&mut self, zone: u16, record: &ZoneRecord<'_>) -> bool {
        self.records += 1;
        let apex = self.names[usize::from(zone)].len();
        let owner = record.owner;
        self.signed[usize::from(zone)] |=
            record.rtype == rtype::RRSIG && owner.len() == apex && record.data.starts_with(&[0, 48]);
        if owner.len() > apex {
            let parent = &owner[usize::from(owner[0]) + 1..];
            if owner.starts_with(b"\x01*") {
                self.mark(zone, parent, MARK_WILDCARD);
            }
            if parent != self.parent.as_slice() {
                self.parent.clear();
                self.parent.extend_from_slice(parent);
                let mut rest = parent;
                while rest.len() > apex {
                    self.mark(zone, rest, MARK_EXISTS);
                    let above = &rest[usize::from(rest[0]) + 1..];
                    if rest.starts_with(b"\x01*") {
                        self.mark(zone, above, MARK_WILDCARD);
                    }
                    rest = above;
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
        let hash = mixed(self.name.hash(self.name.labels), zone);
        if let Some((_, wanted)) = &self.before {
            let bucket = bucket_of(hash, self.shift) as usize;
            self.sums[bucket] = self.sums[bucket].wrapping_add(sum(&self.keys, zone, record));
            match wanted {
                RebuildChoice::Buckets(keep) if !keep[bucket] => {}
                _ => return true,
            }
        }
        let at = self.items.len().next_multiple_of(ALIGNMENT);
        let Ok(offset) = u32::try_from(at / ALIGNMENT) else { return false };
        self.index.push((hash, offset));
        self.items.resize(at, 0);
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

    /// Reads the files and builds the zones.
    fn all(mut self, zones: &[(&str, ZoneText<'_>)]) -> Result<Zones, ZoneError> {
        let files = self.files(zones)?;
        let kept = match self.before.take() {
            Some((before, RebuildChoice::Buckets(keep))) => Some((before, keep)),
            _ => None,
        };
        if kept.is_none() {
            let buckets = (self.records / FILL).next_power_of_two();
            self.shift = u32::BITS - buckets.trailing_zeros();
            self.sums = vec![0; buckets];
            for (hash, offset) in &self.index {
                let (zone, record) = item(&self.items, *offset);
                let bucket = bucket_of(*hash, self.shift) as usize;
                self.sums[bucket] = self.sums[bucket].wrapping_add(sum(&self.keys, zone, &record));
            }
        }
        // By bucket, hash and place in the files.
        self.index.sort_unstable();
        let mut made =
            BucketBuilder { files: &files, items: &self.items, notes: Vec::new(), scratch: Vec::new() };
        let mut buckets = Vec::with_capacity(self.sums.len());
        let mut rest = &self.index[..];
        for bucket in 0..self.sums.len() {
            if let Some((before, keep)) = &kept
                && keep[bucket]
            {
                buckets.push(Arc::clone(&before.buckets[bucket]));
                continue;
            }
            let count = rest.partition_point(|(hash, _)| bucket_of(*hash, self.shift) as usize <= bucket);
            let (these, others) = rest.split_at(count);
            rest = others;
            buckets.push(Arc::new(made.bucket(these)?));
        }
        let mut notes = made.notes;
        for (zone, _) in files.iter().zip(&self.signed).filter(|(_, signed)| **signed) {
            notes.push(format!(
                "zone {} is signed, but signatures and proofs are only given to who asks for them by type: validating \
                 resolvers will not accept its answers",
                display_name(&zone.apex)
            ));
        }
        let mut zones = Zones {
            records: buckets.iter().map(|bucket| bucket.records as usize).sum(),
            buckets,
            sums: self.sums,
            shift: self.shift,
            zones: Vec::new(),
            table: table(&self.names),
            most_labels: self.most_labels,
            apex_labels: self.names.iter().map(|name| label_count(name) as u8).max().unwrap_or(0),
            keys: self.keys,
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
        let nowhere = BucketIndex { bucket: 0, at: 0 };
        let node = self.node(number, &name, name.labels).unwrap_or(nowhere);
        // A file without SOA was refused.
        let soa = self.find_set(node, rtype::SOA);
        let minimum = soa.and_then(|soa| soa.records().next()).and_then(|(_, data)| data.last_chunk());
        StoredZone {
            apex: apex.into(),
            node,
            soa: soa.map_or(nowhere, |soa| soa.place),
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
        let mut full = WireName::default();
        full.set(name);
        let hash = full.hash(full.labels);
        let mut at = mixed(hash, 0) as usize & (size - 1);
        while slots[at].1 != NO_ZONE {
            at = (at + 1) & (size - 1);
        }
        slots[at] = (hash, zone as u16);
    }
    slots
}

/// The share of a record in the checksum of its bucket, which does not depend on the order of records.
fn sum(keys: &RandomState, zone: u16, record: &ZoneRecord<'_>) -> u64 {
    let mut hasher = keys.build_hasher();
    hasher.write_u64(u64::from(zone) << 48 | u64::from(record.rtype) << 32 | u64::from(record.ttl));
    hasher.write(record.owner);
    hasher.write(record.data);
    hasher.finish()
}

/// The item at an offset.
fn item(items: &[u8], offset: u32) -> (u16, ZoneRecord<'_>) {
    let bytes = &items[offset as usize * ALIGNMENT..];
    let word = |at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
    let long = |at: usize| u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let (name, data) = (usize::from(word(14)), usize::from(word(16)));
    let (owner, rest) = bytes[ITEM_HEADER..].split_at(name);
    let record = ZoneRecord {
        owner,
        rtype: word(2),
        ttl: long(4),
        line: long(8),
        file: word(12),
        data: &rest[..data],
    };
    (word(0), record)
}

struct BucketBuilder<'a> {
    files: &'a [ZoneFiles],
    items: &'a [u8],
    notes: Vec<String>,
    scratch: Vec<u8>,
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
    fn bucket(&mut self, index: &[(u32, u32)]) -> Result<NameBucket, ZoneError> {
        let mut nodes: Vec<NameNode<'a>> = Vec::new();
        let notes = self.notes.len();
        for &(hash, offset) in index {
            let (zone, record) = item(self.items, offset);
            let same =
                |node: &NameNode<'_>| node.hash == hash && node.zone == zone && node.name == record.owner;
            let at = nodes.iter().rposition(same).unwrap_or_else(|| {
                nodes.push(NameNode { hash, zone, name: record.owner, wildcard: false, sets: Vec::new() });
                nodes.len() - 1
            });
            match record.rtype {
                MARK_EXISTS => {}
                MARK_WILDCARD => nodes[at].wildcard = true,
                _ => self.add(&mut nodes[at], record)?,
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
        let mut records = 0;
        for (number, node) in nodes.iter().enumerate() {
            let (slot, at) = (COUNT + number * SLOT, scratch.len() as u32);
            scratch[slot..slot + 4].copy_from_slice(&node.hash.to_ne_bytes());
            scratch[slot + 4..slot + 8].copy_from_slice(&at.to_ne_bytes());
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
                records += set.len() as u32;
            }
        }
        Ok(NameBucket { bytes: Box::from(&scratch[..]), records, noted: self.notes.len() > notes })
    }

    fn add(&mut self, node: &mut NameNode<'a>, record: ZoneRecord<'a>) -> Result<(), ZoneError> {
        let zone = &self.files[usize::from(node.zone)];
        let alias = |rtype: u16| rtype == rtype::CNAME;
        let beside = |rtype: u16| matches!(rtype, rtype::RRSIG | rtype::NSEC | rtype::NSEC3);
        let clash = |set: &Vec<ZoneRecord<'_>>| {
            let other = set[0].rtype;
            other != record.rtype
                && (alias(other) && !beside(record.rtype) || alias(record.rtype) && !beside(other))
        };
        if node.sets.iter().any(clash) {
            let why = "a CNAME cannot have other records next to it; remove it or them";
            return Err(zone.complaint(&record, why));
        }
        match node.sets.iter_mut().find(|set| set[0].rtype == record.rtype) {
            Some(set) => set.push(record),
            None => node.sets.push(vec![record]),
        }
        Ok(())
    }

    /// Removes duplicates, and checks that the records are compatible.
    fn deduplicate_set(&mut self, zone: u16, set: &mut Vec<ZoneRecord<'a>>) -> Result<(), ZoneError> {
        if set.len() > MANY {
            let mut seen = HashSet::new();
            set.retain(|record| seen.insert(record.data));
        } else {
            let mut kept = 0;
            for at in 0..set.len() {
                if set[..kept].iter().all(|other| other.data != set[at].data) {
                    set.swap(kept, at);
                    kept += 1;
                }
            }
            set.truncate(kept);
        }
        let (zone, first) = (&self.files[usize::from(zone)], set[0]);
        for record in &set[1..] {
            if matches!(record.rtype, rtype::CNAME | rtype::SOA) {
                let why = "there is another record of this type, and may be one only; remove one";
                return Err(zone.complaint(record, why));
            }
            if record.ttl != first.ttl && record.rtype != rtype::RRSIG {
                let why = format!(
                    "its TTL is not that of the others of its type, {} s, which is served",
                    first.ttl
                );
                self.notes.push(zone.complaint(record, &why).to_string());
            }
        }
        Ok(())
    }
}
