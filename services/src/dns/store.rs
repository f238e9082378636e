//! Zones in the shape that questions are answered from: a tree of names with a hash table over it.

use std::collections::HashMap;
use std::ops::Range;

use super::rtype;
use super::zonefile::{Parsed, ZoneError, ZoneRecords};

/// A name's place in [`Zones`]; the root has 0.
pub(crate) type NameId = u32;
pub(crate) const ROOT: NameId = 0;
pub(crate) const NO_NAME: NameId = u32::MAX;
/// A set's place in [`Zones`].
pub(crate) type SetId = u32;
pub(crate) const NO_ZONE: u16 = u16::MAX;

/// A name that owns records, or that records mention, or a parent of such.
#[derive(Debug)]
pub(crate) struct Entry {
    /// Where it is in the names' bytes.
    at: u32,
    length: u8,
    pub(crate) labels: u8,
    pub(crate) parent: NameId,
    /// Whether it or a name below owns records (RFC 4592, section 2.2.2).
    pub(crate) exists: bool,
    /// `*` below it, if that exists.
    pub(crate) wildcard: NameId,
    /// The zone whose name this is.
    pub(crate) apex_of: u16,
    sets: Range<SetId>,
}

/// The records of a name and a type in a zone.
#[derive(Debug)]
pub(crate) struct Set {
    pub(crate) rtype: u16,
    pub(crate) zone: u16,
    pub(crate) ttl: u32,
    pub(crate) records: Range<u32>,
}

/// A record's data.
#[derive(Debug)]
pub(crate) struct Data {
    /// Where it is in the data's bytes, as a whole.
    pub(crate) bytes: Range<u32>,
    /// Its names, by place in it: at most two, one after the other.
    pub(crate) names: [NameId; 2],
    /// Where the first name begins.
    pub(crate) names_at: u16,
    /// How many bytes the names take.
    pub(crate) names_length: u16,
}

#[derive(Debug)]
pub(crate) struct Zone {
    pub(crate) apex: NameId,
    /// The SOA as negative answers have it: with the lesser of its TTL and its minimum (RFC 2308, section 3).
    pub(crate) negative: SetId,
    pub(crate) authority: Option<SetId>,
}

/// All zones that are served.
#[derive(Debug)]
pub struct Zones {
    bytes: Vec<u8>,
    entries: Vec<Entry>,
    pub(crate) sets: Vec<Set>,
    pub(crate) records: Vec<Data>,
    pub(crate) data: Vec<u8>,
    pub(crate) zones: Vec<Zone>,
    table: Table,
    /// Labels of the longest name.
    pub(crate) most_labels: u8,
    notes: Vec<String>,
}

impl Zones {
    /// What an operator should know about the zones, though they are served.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// How many records there are, in all zones.
    #[must_use]
    pub fn record_count(&self) -> usize {
        self.records.len()
    }

    pub(crate) fn entry(&self, id: NameId) -> &Entry {
        &self.entries[id as usize]
    }

    /// A name in wire form, lower case.
    pub(crate) fn name(&self, id: NameId) -> &[u8] {
        let entry = self.entry(id);
        &self.bytes[entry.at as usize..entry.at as usize + usize::from(entry.length)]
    }

    pub(crate) fn set(&self, id: SetId) -> &Set {
        &self.sets[id as usize]
    }

    pub(crate) fn sets_of(&self, id: NameId, zone: u16) -> impl Iterator<Item = (SetId, &Set)> {
        let sets = self.entry(id).sets.clone();
        sets.map(|set| (set, self.set(set))).filter(move |(_, set)| set.zone == zone)
    }

    pub(crate) fn find_set(&self, id: NameId, zone: u16, rtype: u16) -> Option<SetId> {
        self.sets_of(id, zone).find(|(_, set)| set.rtype == rtype).map(|(id, _)| id)
    }

    /// The name in the tree whose hash and bytes these are.
    pub(crate) fn lookup(&self, hash: u32, name: &[u8]) -> Option<NameId> {
        self.table.candidates(hash).find(|id| self.name(*id) == name)
    }

    /// Puts zones together. A name may be in several: at a cut, the parent's records and the child's.
    pub(crate) fn build(zones: &[ZoneRecords]) -> Result<Self, ZoneError> {
        let mut building = Building::default();
        building.insert(&[0]);
        for (number, zone) in zones.iter().enumerate() {
            building.zone(number as u16, zone)?;
        }
        Ok(building.finish())
    }
}

/// Continues a hash from the end of a name towards its beginning.
#[inline]
pub(crate) fn hash_back(mut hash: u32, bytes: &[u8]) -> u32 {
    for byte in bytes.iter().rev() {
        hash = (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
    }
    hash
}

pub(crate) const HASH_START: u32 = 0x811c_9dc5;

/// Open addressing, at most half full. Only zone files put names in, so nobody can fill one place of it by queries.
#[derive(Debug)]
struct Table {
    slots: Vec<(u32, NameId)>,
}

impl Table {
    fn of(names: impl ExactSizeIterator<Item = (u32, NameId)>) -> Self {
        let size = (names.len() * 2).next_power_of_two();
        let mut slots = vec![(0, NO_NAME); size];
        for (hash, id) in names {
            let mut at = Self::first(hash, size);
            while slots[at].1 != NO_NAME {
                at = (at + 1) & (size - 1);
            }
            slots[at] = (hash, id);
        }
        Self { slots }
    }

    /// The low bits of the hash are those of the first letters alone.
    fn first(hash: u32, size: usize) -> usize {
        (hash ^ (hash >> 15)) as usize & (size - 1)
    }

    #[inline]
    fn candidates(&self, hash: u32) -> impl Iterator<Item = NameId> {
        let size = self.slots.len();
        let first = Self::first(hash, size);
        (0..size)
            .map(move |step| self.slots[(first + step) & (size - 1)])
            .take_while(|(_, id)| *id != NO_NAME)
            .filter(move |(other, _)| *other == hash)
            .map(|(_, id)| id)
    }
}

#[derive(Default)]
struct Building {
    bytes: Vec<u8>,
    entries: Vec<Entry>,
    by_name: HashMap<Vec<u8>, NameId>,
    /// By owner, sets in the order of the file; each with its zone, type, TTL and records.
    sets: HashMap<NameId, Vec<(Set, Vec<Data>)>>,
    data: Vec<u8>,
    zones: Vec<Zone>,
    notes: Vec<String>,
}

impl Building {
    /// The name's place, made with those of its parents if it is new.
    fn insert(&mut self, name: &[u8]) -> NameId {
        if let Some(id) = self.by_name.get(name) {
            return *id;
        }
        let (parent, labels) = match name {
            [0] => (NO_NAME, 0),
            _ => {
                let parent = self.insert(&name[usize::from(name[0]) + 1..]);
                (parent, self.entries[parent as usize].labels + 1)
            }
        };
        let id = self.entries.len() as NameId;
        self.entries.push(Entry {
            at: self.bytes.len() as u32,
            length: name.len() as u8,
            labels,
            parent,
            exists: false,
            wildcard: NO_NAME,
            apex_of: NO_ZONE,
            sets: 0..0,
        });
        self.bytes.extend_from_slice(name);
        self.by_name.insert(name.to_vec(), id);
        id
    }

    fn zone(&mut self, number: u16, zone: &ZoneRecords) -> Result<(), ZoneError> {
        let apex = self.insert(&zone.apex);
        if self.entries[apex as usize].apex_of != NO_ZONE {
            return Err(ZoneError::Twice { zone: zone.name.clone() });
        }
        self.entries[apex as usize].apex_of = number;
        for record in &zone.records {
            self.record(number, zone, record)?;
        }
        let signed = zone.records.iter().any(|record| {
            record.owner == zone.apex && record.rtype == rtype::RRSIG && record.data.starts_with(&[0, 48])
        });
        if signed {
            self.notes.push(format!(
                "zone {} is signed, but signatures and proofs are only given to who asks for them by type: validating \
                 resolvers will not accept its answers",
                zone.name
            ));
        }
        self.zones.push(Zone { apex, negative: 0, authority: None });
        Ok(())
    }

    fn record(&mut self, number: u16, zone: &ZoneRecords, record: &Parsed) -> Result<(), ZoneError> {
        let owner = self.insert(&record.owner);
        let data = self.data(record);
        let sets = self.sets.entry(owner).or_default();
        let in_zone = |set: &&mut (Set, Vec<Data>)| set.0.zone == number;
        let alias = |rtype: u16| rtype == rtype::CNAME;
        let beside = |rtype: u16| matches!(rtype, rtype::RRSIG | rtype::NSEC | rtype::NSEC3);
        for (other, _) in sets.iter_mut().filter(in_zone) {
            let differ = other.rtype != record.rtype;
            if differ
                && (alias(other.rtype) && !beside(record.rtype)
                    || alias(record.rtype) && !beside(other.rtype))
            {
                return Err(zone.complaint(record, "a CNAME has no other records beside it"));
            }
        }
        match sets.iter_mut().filter(in_zone).find(|(set, _)| set.rtype == record.rtype) {
            None => {
                let set = Set { rtype: record.rtype, zone: number, ttl: record.ttl, records: 0..0 };
                sets.push((set, vec![data]));
            }
            Some((set, records)) => {
                let same = |other: &Data| {
                    self.data[other.bytes.start as usize..other.bytes.end as usize] == record.data[..]
                };
                if records.iter().any(same) {
                    return Ok(());
                }
                if matches!(record.rtype, rtype::CNAME | rtype::SOA) {
                    return Err(
                        zone.complaint(record, "there is another record of this type, and may be one only")
                    );
                }
                if set.ttl != record.ttl && record.rtype != rtype::RRSIG {
                    self.notes.push(
                        zone.complaint(
                            record,
                            &format!(
                                "its TTL is not that of the others of its type, {} s, which is served",
                                set.ttl
                            ),
                        )
                        .to_string(),
                    );
                }
                records.push(data);
            }
        }
        let mut id = owner;
        while id != NO_NAME && !self.entries[id as usize].exists {
            self.entries[id as usize].exists = true;
            id = self.entries[id as usize].parent;
        }
        Ok(())
    }

    fn data(&mut self, record: &Parsed) -> Data {
        let found = rtype::names(record.rtype, &record.data);
        let names = found.clone().map(|at| at.map_or(NO_NAME, |at| self.insert(&record.data[at])));
        let start = self.data.len() as u32;
        self.data.extend_from_slice(&record.data);
        Data {
            bytes: start..self.data.len() as u32,
            names,
            names_at: found[0].as_ref().map_or(0, |at| at.start as u16),
            names_length: found.iter().flatten().map(|at| at.len() as u16).sum(),
        }
    }

    fn finish(mut self) -> Zones {
        let (mut sets, mut records) = (Vec::new(), Vec::new());
        let mut negatives = Vec::new();
        for id in 0..self.entries.len() as NameId {
            let first = sets.len() as SetId;
            for (set, data) in self.sets.remove(&id).unwrap_or_default() {
                let number = sets.len() as SetId;
                let zone = &mut self.zones[usize::from(set.zone)];
                let start = records.len() as u32;
                if set.rtype == rtype::NS && zone.apex == id {
                    zone.authority = Some(number);
                }
                if set.rtype == rtype::SOA {
                    let end = data[0].bytes.end as usize;
                    let minimum =
                        self.data[end - 4..end].iter().fold(0, |all, byte| all << 8 | u32::from(*byte));
                    let ttl = set.ttl.min(minimum);
                    negatives.push(Set { rtype: rtype::SOA, zone: set.zone, ttl, records: start..start + 1 });
                }
                records.extend(data);
                sets.push(Set { records: start..records.len() as u32, ..set });
            }
            self.entries[id as usize].sets = first..sets.len() as SetId;
        }
        for negative in negatives {
            self.zones[usize::from(negative.zone)].negative = sets.len() as SetId;
            sets.push(negative);
        }
        for (name, id) in &self.by_name {
            if name.starts_with(b"\x01*") && self.entries[*id as usize].exists {
                let parent = self.entries[*id as usize].parent;
                self.entries[parent as usize].wildcard = *id;
            }
        }
        let hashed = self.by_name.iter().map(|(name, id)| (hash_back(HASH_START, name), *id));
        Zones {
            table: Table::of(hashed),
            most_labels: self.entries.iter().map(|entry| entry.labels).max().unwrap_or(0),
            bytes: self.bytes,
            entries: self.entries,
            sets,
            records,
            data: self.data,
            zones: self.zones,
            notes: self.notes,
        }
    }
}
