//! Records in a message, with compressed names.

use super::query::HEADER;
use super::rtype;
use super::store::{BucketIndex, WireName, Zones};

// The highest offset of a pointer (RFC 1035, section 4.1.4).
const FARTHEST: usize = 0x3fff;
// Slots for name suffixes of one message. At most half are used; further names are not compressed.
const SLOTS: usize = 4096;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RecordOwner {
    /// The name of the question, which may not be in the zone.
    Question,
    Name(BucketIndex),
}

#[derive(Debug)]
pub(crate) struct NameOffsets {
    /// Message number, hash and offset; a slot of another message is free.
    slots: Box<[(u32, u32, u16)]>,
    message: u32,
    used: Vec<usize>,
    name: WireName,
}

impl NameOffsets {
    pub(crate) fn new() -> Self {
        let used = Vec::with_capacity(SLOTS / 2);
        Self { slots: vec![(0, 0, 0); SLOTS].into(), message: 0, used, name: WireName::default() }
    }

    fn clear(&mut self) {
        self.used.clear();
        self.message = self.message.wrapping_add(1);
        if self.message == 0 {
            self.slots.fill((0, 0, 0));
            self.message = 1;
        }
    }

    /// The slots to search for a hash.
    fn probe(hash: u32) -> impl Iterator<Item = usize> + use<> {
        let start = hash.wrapping_mul(0x9e37_79b9) as usize >> 20 & (SLOTS - 1);
        (0..SLOTS).map(move |step| (start + step) & (SLOTS - 1))
    }

    fn add_suffix(&mut self, hash: u32, offset: usize) {
        if offset <= FARTHEST && self.used.len() < SLOTS / 2 {
            let free_slot = Self::probe(hash).find(|slot| self.slots[*slot].0 != self.message);
            if let Some(slot) = free_slot {
                self.slots[slot] = (self.message, hash, offset as u16);
                self.used.push(slot);
            }
        }
    }

    fn truncate(&mut self, offset: usize) {
        while let Some(slot) = self.used.pop_if(|slot| usize::from(self.slots[*slot].2) >= offset) {
            // The slot stays in use, so that the search still finds later ones.
            self.slots[slot].2 = 0;
        }
    }
}

/// Writes a message after its question.
pub(crate) struct MessageEncoder<'a> {
    zones: &'a Zones,
    places: &'a mut NameOffsets,
    message: &'a mut [u8],
    at: usize,
    limit: usize,
    /// Whether a write did not fit.
    over: bool,
}

impl<'a> MessageEncoder<'a> {
    // Starts after the question with the name `question`; writes up to `limit`.
    pub(crate) fn new(
        zones: &'a Zones,
        offsets: &'a mut NameOffsets,
        message: &'a mut [u8],
        position: usize,
        limit: usize,
        question: &WireName,
    ) -> Self {
        offsets.clear();
        for labels in 1..=question.labels {
            offsets.add_suffix(question.hash(labels), HEADER + question.start(labels));
        }
        let limit = limit.min(message.len());
        Self { zones, places: offsets, message, at: position, limit, over: false }
    }

    pub(crate) fn position(&self) -> usize {
        self.at
    }

    /// Removes everything after `position`.
    pub(crate) fn truncate(&mut self, position: usize) {
        self.at = position;
        self.over = false;
        self.places.truncate(position);
    }

    /// Writes the records of a set; returns their number, and whether all fit.
    pub(crate) fn set(&mut self, owner: RecordOwner, set: BucketIndex, ttl: Option<u32>) -> (u16, bool) {
        let (zones, mut added) = (self.zones, 0);
        let set = zones.set(set);
        for (_, data) in set.records() {
            let start = self.at;
            self.record(owner, set.rtype, ttl.unwrap_or(set.ttl), data);
            if self.over {
                self.truncate(start);
                return (added, false);
            }
            added += 1;
        }
        (added, true)
    }

    fn record(&mut self, owner: RecordOwner, rtype: u16, ttl: u32, data: &[u8]) {
        match owner {
            RecordOwner::Question => self.write(&(0xc000 | HEADER as u16).to_be_bytes()),
            RecordOwner::Name(name) => self.name(self.zones.name(name)),
        }
        self.write(&rtype.to_be_bytes());
        self.write(&super::query::CLASS_IN.to_be_bytes());
        self.write(&ttl.to_be_bytes());
        let length_at = self.at;
        self.write(&[0; 2]);
        let mut written = 0;
        if rtype::is_compressed(rtype) {
            for name in rtype::names(rtype, data).into_iter().flatten() {
                self.write(&data[written..name.start]);
                written = name.end;
                self.name(&data[name]);
            }
        }
        self.write(&data[written..]);
        if !self.over {
            let length = (self.at - length_at - 2) as u16;
            self.message[length_at..length_at + 2].copy_from_slice(&length.to_be_bytes());
        }
    }

    fn name(&mut self, name: &[u8]) {
        self.places.name.set(name);
        // From the longest suffix down: the first one found gives the shortest message.
        for labels in (1..=self.places.name.labels).rev() {
            if self.over {
                return;
            }
            if let Some(offset) = self.find(labels) {
                return self.write(&(0xc000 | offset).to_be_bytes());
            }
            let (start, end) = (self.places.name.start(labels), self.places.name.start(labels - 1));
            self.places.add_suffix(self.places.name.hash(labels), self.at);
            self.write(&name[start..end]);
        }
        self.write(&[0]);
    }

    /// The offset in the message of the suffix with this many labels of the current name.
    fn find(&self, labels: usize) -> Option<u16> {
        let (hash, end) = (self.places.name.hash(labels), self.places.name.end(labels));
        let entries = NameOffsets::probe(hash).map(|slot| self.places.slots[slot]);
        let mut entries = entries.take_while(|(message, ..)| *message == self.places.message);
        let is_match = |(_, entry_hash, offset): &(u32, u32, u16)| {
            *entry_hash == hash && *offset != 0 && self.has_name_at(*offset, end)
        };
        entries.find(is_match).map(|(_, _, offset)| offset)
    }

    /// Whether the message has `name` at `offset`, ignoring case.
    fn has_name_at(&self, offset: u16, mut name: &[u8]) -> bool {
        let mut position = usize::from(offset);
        loop {
            let length = self.message[position];
            if length & 0xc0 == 0xc0 {
                position = usize::from(u16::from_be_bytes([length & 0x3f, self.message[position + 1]]));
                continue;
            }
            let label = usize::from(length) + 1;
            let is_equal = name.get(..label).is_some_and(|name_label| {
                name_label.eq_ignore_ascii_case(&self.message[position..position + label])
            });
            if !is_equal || length == 0 {
                return is_equal;
            }
            (position, name) = (position + label, &name[label..]);
        }
    }

    fn write(&mut self, bytes: &[u8]) {
        let end = self.at + bytes.len();
        if self.over || end > self.limit {
            self.over = true;
            return;
        }
        self.message[self.at..end].copy_from_slice(bytes);
        self.at = end;
    }
}
