//! Zones in memory: buckets of names by hash, one allocation each.

use super::rtype;
use super::zonefile::is_below;

mod build;

pub(crate) const NO_ZONE: u16 = u16::MAX;

/// The position of a node, a set or a name in a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BucketIndex {
    bucket: u32,
    at: u32,
}

impl BucketIndex {
    fn offset_by(self, bytes: usize) -> Self {
        Self { at: self.at + bytes as u32, ..self }
    }
}

/// The records of a name and a type in a zone.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RecordSet<'a> {
    pub(crate) place: BucketIndex,
    pub(crate) rtype: u16,
    pub(crate) ttl: u32,
    /// Each record with two bytes of length before it.
    bytes: &'a [u8],
}

impl<'a> RecordSet<'a> {
    /// The data of each record, and its position.
    pub(crate) fn records(&self) -> impl Iterator<Item = (BucketIndex, &'a [u8])> + use<'a> {
        let (start, set_bytes) = (self.place.offset_by(SET_HEADER), self.bytes);
        let mut offset = 0;
        std::iter::from_fn(move || {
            let length = usize::from(u16_at(set_bytes, offset)?);
            let data = offset + 2;
            offset = data + length;
            Some((start.offset_by(data), set_bytes.get(data..offset)?))
        })
    }
}

#[derive(Debug)]
pub(crate) struct StoredZone {
    pub(crate) apex: Box<[u8]>,
    pub(crate) node: BucketIndex,
    soa: BucketIndex,
    // The TTL of the SOA in negative answers: the lesser of its TTL and its minimum (RFC 2308, section 3).
    negative_ttl: u32,
}

// A bucket: the number of nodes, then the hash and the position of each (4 bytes each). A node: zone, flags, name, number of
// sets. A set: type, TTL, length of its records; each record with its length before it.
const COUNT: usize = 4;
const SLOT: usize = 8;
const NODE_HEADER: usize = 3;
const SET_HEADER: usize = 10;
const FLAG_WILDCARD: u8 = 1;

/// All zones that are served.
#[derive(Debug)]
pub struct Zones {
    buckets: Vec<Box<[u8]>>,
    /// Bits of a hash below the bucket number.
    shift: u32,
    pub(crate) zones: Vec<StoredZone>,
    // Zones by the hash of their names; at most half full.
    table: Vec<(u32, u16)>,
    // Labels of the longest name, and of the longest name of a zone.
    pub(crate) most_labels: u8,
    apex_labels: u8,
    records: usize,
    notes: Vec<String>,
}

/// A name in wire form and lower case, with the offset and hash of each suffix.
#[derive(Debug, Clone)]
pub(crate) struct WireName {
    bytes: [u8; LONGEST],
    length: usize,
    pub(crate) labels: usize,
    /// By labels from the root.
    starts: [u8; LABELS],
    hashes: [u32; LABELS],
}

const LONGEST: usize = super::rtype::LONGEST_NAME;
const LABELS: usize = LONGEST / 2 + 2;

impl Default for WireName {
    fn default() -> Self {
        Self { bytes: [0; LONGEST], length: 1, labels: 0, starts: [0; LABELS], hashes: [HASH_START; LABELS] }
    }
}

impl WireName {
    /// Copies a complete name in wire form.
    pub(crate) fn set(&mut self, name: &[u8]) {
        let length = name.len().min(LONGEST);
        let bytes = &mut self.bytes[..length];
        bytes.copy_from_slice(&name[..length]);
        // Lengths of labels are below the codes of letters.
        bytes.make_ascii_lowercase();
        let mut starts = [0u8; LABELS];
        let (mut labels, mut offset) = (0, 0);
        while bytes[offset] != 0 {
            starts[labels] = offset as u8;
            labels += 1;
            offset += usize::from(bytes[offset]) + 1;
        }
        (self.length, self.labels) = (offset + 1, labels);
        self.starts[0] = offset as u8;
        let (mut hash, mut end) = (HASH_START, offset);
        self.hashes[0] = hash;
        for depth in 1..=labels {
            let start = usize::from(starts[labels - depth]);
            hash = hash_back(hash, &bytes[start..end]);
            self.starts[depth] = start as u8;
            self.hashes[depth] = hash;
            end = start;
        }
    }

    /// The suffix with this many labels.
    pub(crate) fn end(&self, labels: usize) -> &[u8] {
        &self.bytes[usize::from(self.starts[labels])..self.length]
    }

    pub(crate) fn hash(&self, labels: usize) -> u32 {
        self.hashes[labels]
    }

    pub(crate) fn start(&self, labels: usize) -> usize {
        usize::from(self.starts[labels])
    }
}

// The longest suffix of a name that exists in a zone.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ClosestName {
    pub(crate) zone: u16,
    pub(crate) node: BucketIndex,
    pub(crate) labels: usize,
    /// Whether the whole name exists.
    pub(crate) exact: bool,
    /// Equal for all names with the same suffix.
    pub(crate) subject: u32,
}

impl Zones {
    /// Warnings about the zones for the operator.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    #[must_use]
    pub fn record_count(&self) -> usize {
        self.records
    }

    fn bytes(&self, index: BucketIndex) -> &[u8] {
        &self.buckets[index.bucket as usize][index.at as usize..]
    }

    /// A name in wire form.
    pub(crate) fn name(&self, index: BucketIndex) -> &[u8] {
        let bytes = self.bytes(index);
        &bytes[..name_length(bytes)]
    }

    pub(crate) fn node_name(&self, node: BucketIndex) -> BucketIndex {
        node.offset_by(NODE_HEADER)
    }

    pub(crate) fn set(&self, index: BucketIndex) -> RecordSet<'_> {
        set_at(self.bytes(index), index)
    }

    pub(crate) fn sets_of(&self, node: BucketIndex) -> impl Iterator<Item = RecordSet<'_>> {
        let node_bytes = self.bytes(node);
        let mut offset = NODE_HEADER + name_length(&node_bytes[NODE_HEADER..]);
        let count = u16_at(node_bytes, offset).unwrap_or(0);
        offset += 2;
        (0..count).map(move |_| {
            let set = set_at(&node_bytes[offset..], node.offset_by(offset));
            offset += SET_HEADER + set.bytes.len();
            set
        })
    }

    pub(crate) fn find_set(&self, node: BucketIndex, rtype: u16) -> Option<RecordSet<'_>> {
        self.sets_of(node).find(|set| set.rtype == rtype)
    }

    /// The SOA of a zone, and its TTL in negative answers.
    pub(crate) fn negative(&self, zone: u16) -> (BucketIndex, u32) {
        let zone = &self.zones[usize::from(zone)];
        (zone.soa, zone.negative_ttl)
    }

    // The zone with the longest suffix of `name`; `excludes_own`: except a zone with this name.
    pub(crate) fn zone_of(&self, name: &WireName, excludes_own: bool) -> Option<u16> {
        let max_labels =
            name.labels.checked_sub(usize::from(excludes_own))?.min(usize::from(self.apex_labels));
        (0..=max_labels).rev().find_map(|labels| self.zone_named(name.end(labels), name.hash(labels)))
    }

    fn zone_named(&self, name: &[u8], hash: u32) -> Option<u16> {
        let mask = self.table.len() - 1;
        let mut slot = mix_hash(hash, 0) as usize & mask;
        loop {
            let (slot_hash, zone) = self.table[slot];
            if zone == NO_ZONE {
                return None;
            }
            if slot_hash == hash && *self.zones[usize::from(zone)].apex == *name {
                return Some(zone);
            }
            slot = (slot + 1) & mask;
        }
    }

    pub(crate) fn is_apex(&self, name: &WireName) -> bool {
        self.zone_named(name.end(name.labels), name.hash(name.labels)).is_some()
    }

    // The longest suffix of `name` that exists in a zone of which it is a subdomain.
    pub(crate) fn find(&self, name: &WireName, zone: u16) -> ClosestName {
        let stored_zone = &self.zones[usize::from(zone)];
        let max_labels = name.labels.min(usize::from(self.most_labels));
        let apex_labels = label_count(&stored_zone.apex);
        for labels in (apex_labels + 1..=max_labels).rev() {
            if let Some(node) = self.node(zone, name, labels) {
                let subject = mix_hash(name.hash(labels), zone);
                return ClosestName { zone, node, labels, exact: labels == name.labels, subject };
            }
        }
        let subject = mix_hash(name.hash(apex_labels), zone);
        ClosestName {
            zone,
            node: stored_zone.node,
            labels: apex_labels,
            exact: apex_labels == name.labels,
            subject,
        }
    }

    pub(crate) fn node(&self, zone: u16, name: &WireName, labels: usize) -> Option<BucketIndex> {
        self.lookup(zone, name.hash(labels), |bytes| bytes.starts_with(name.end(labels)))
    }

    /// The node of `*` below the suffix with this many labels, whose node is `parent`.
    pub(crate) fn wildcard(
        &self,
        zone: u16,
        name: &WireName,
        labels: usize,
        parent: BucketIndex,
    ) -> Option<BucketIndex> {
        if self.bytes(parent)[2] & FLAG_WILDCARD == 0 {
            return None;
        }
        let end = name.end(labels);
        let hash = hash_back(name.hash(labels), b"\x01*");
        self.lookup(zone, hash, |bytes| {
            bytes.strip_prefix(b"\x01*").is_some_and(|suffix| suffix.starts_with(end))
        })
    }

    /// A node by its hash; `is_match` receives bytes that begin with its name.
    #[inline]
    fn lookup(&self, zone: u16, hash: u32, is_match: impl Fn(&[u8]) -> bool) -> Option<BucketIndex> {
        let hash = mix_hash(hash, zone);
        let bucket = bucket_of(hash, self.shift);
        let bytes = &*self.buckets[bucket as usize];
        let count = u32_at(bytes, 0) as usize;
        let slots = bytes[COUNT..COUNT + count * SLOT].as_chunks::<SLOT>().0;
        slots.iter().find_map(|slot| {
            let offset = u32::from_ne_bytes([slot[4], slot[5], slot[6], slot[7]]);
            let node = &bytes[offset as usize..];
            let is_same = u32::from_ne_bytes([slot[0], slot[1], slot[2], slot[3]]) == hash
                && u16_at(node, 0) == Some(zone)
                && is_match(&node[NODE_HEADER..]);
            is_same.then_some(BucketIndex { bucket, at: offset })
        })
    }

    pub(crate) fn contains_name(&self, zone: u16, name: &[u8]) -> bool {
        is_below(name, &self.zones[usize::from(zone)].apex)
    }
}

fn set_at(bytes: &[u8], index: BucketIndex) -> RecordSet<'_> {
    let length = u32_at(bytes, 6) as usize;
    RecordSet {
        place: index,
        rtype: u16_at(bytes, 0).unwrap_or(0),
        ttl: u32_at(bytes, 2),
        bytes: &bytes[SET_HEADER..SET_HEADER + length],
    }
}

fn u16_at(bytes: &[u8], offset: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(offset..offset + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    bytes.get(offset..offset + 4).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_ne_bytes)
}

/// Length of the name at the start of `bytes`.
fn name_length(bytes: &[u8]) -> usize {
    let mut offset = 0;
    while bytes[offset] != 0 {
        offset += usize::from(bytes[offset]) + 1;
    }
    offset + 1
}

pub(crate) fn label_count(name: &[u8]) -> usize {
    let (mut labels, mut offset) = (0, 0);
    while name[offset] != 0 {
        (labels, offset) = (labels + 1, offset + usize::from(name[offset]) + 1);
    }
    labels
}

// Continues a hash from the end of a name towards its start. Only zone files add names, so queries cannot fill a bucket.
#[inline]
pub(crate) fn hash_back(mut hash: u32, bytes: &[u8]) -> u32 {
    // FNV-1a with its 32-bit prime.
    for byte in bytes.iter().rev() {
        hash = (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
    }
    hash
}

const HASH_START: u32 = 0x811c_9dc5;

/// The hash of a name in a zone. The low bits of the name's own hash depend on its first letters only.
#[inline]
fn mix_hash(hash: u32, zone: u16) -> u32 {
    let hash = (hash ^ (hash >> 15) ^ u32::from(zone).wrapping_mul(0x85eb_ca6b)).wrapping_mul(0x9e37_79b1);
    hash ^ hash >> 16
}

#[inline]
fn bucket_of(hash: u32, shift: u32) -> u32 {
    hash.checked_shr(shift).unwrap_or(0)
}

/// Position of the first name in the data at `index`.
pub(crate) fn first_name(rtype: u16, index: BucketIndex, data: &[u8]) -> Option<BucketIndex> {
    let [range, _] = rtype::names(rtype, data);
    range.map(|range| index.offset_by(range.start))
}
