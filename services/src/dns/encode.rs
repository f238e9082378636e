//! Records into a message, with names compressed.

use super::query::HEADER;
use super::rtype;
use super::store::{NO_NAME, NameId, ROOT, SetId, Zones};

/// The highest place a pointer can name (RFC 1035, section 4.1.4).
const FARTHEST: usize = 0x3fff;
/// Names whose places are remembered in one message; further ones are written out.
const SLOTS: usize = 4096;

/// Whose name a record has in an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    /// The name that was asked for, which is not in the tree.
    Question,
    Name(NameId),
}

/// Where names are in the message so far.
#[derive(Debug)]
pub(crate) struct Places {
    /// Message, name and place of each; those of other messages are free.
    slots: Box<[(u32, NameId, u16)]>,
    message: u32,
    used: Vec<usize>,
}

impl Places {
    pub(crate) fn new() -> Self {
        Self { slots: vec![(0, 0, 0); SLOTS].into(), message: 0, used: Vec::with_capacity(SLOTS / 2) }
    }

    fn clear(&mut self) {
        self.used.clear();
        self.message = self.message.wrapping_add(1);
        if self.message == 0 {
            self.slots.fill((0, 0, 0));
            self.message = 1;
        }
    }

    /// The slot of a name, or the free one where it would be.
    fn slot(&self, name: NameId) -> usize {
        let mut at = name.wrapping_mul(0x9e37_79b9) as usize >> 20 & (SLOTS - 1);
        while self.slots[at].0 == self.message && self.slots[at].1 != name {
            at = (at + 1) & (SLOTS - 1);
        }
        at
    }

    fn find(&self, name: NameId) -> Option<u16> {
        let (message, _, place) = self.slots[self.slot(name)];
        (message == self.message && place != 0).then_some(place)
    }

    fn put(&mut self, name: NameId, place: usize) {
        if place <= FARTHEST && self.used.len() < SLOTS / 2 {
            let slot = self.slot(name);
            self.slots[slot] = (self.message, name, place as u16);
            self.used.push(slot);
        }
    }

    /// Forgets names from `place` on.
    fn cut(&mut self, place: usize) {
        while let Some(slot) = self.used.pop_if(|slot| usize::from(self.slots[*slot].2) >= place) {
            // Kept in its slot, so that others behind it are still found.
            self.slots[slot].2 = 0;
        }
    }
}

/// A message being written behind its question.
pub(crate) struct Encoder<'a> {
    zones: &'a Zones,
    places: &'a mut Places,
    message: &'a mut [u8],
    at: usize,
    limit: usize,
    /// Whether something did not fit.
    over: bool,
}

impl<'a> Encoder<'a> {
    /// Goes on behind `at` bytes, up to `limit`.
    pub(crate) fn new(
        zones: &'a Zones,
        places: &'a mut Places,
        message: &'a mut [u8],
        at: usize,
        limit: usize,
    ) -> Self {
        places.clear();
        let limit = limit.min(message.len());
        Self { zones, places, message, at, limit, over: false }
    }

    /// Tells that the question ends with `name` and where.
    pub(crate) fn question_ends_with(&mut self, mut name: NameId, name_length: usize) {
        while name != ROOT {
            let length = self.zones.name(name).len();
            self.places.put(name, HEADER + name_length - length);
            name = self.zones.entry(name).parent;
        }
    }

    pub(crate) fn position(&self) -> usize {
        self.at
    }

    /// Takes back what was written since `position`.
    pub(crate) fn cut(&mut self, position: usize) {
        self.at = position;
        self.over = false;
        self.places.cut(position);
    }

    /// Writes one set's records: how many, and whether all fitted.
    pub(crate) fn set(&mut self, owner: Owner, set: SetId) -> (u16, bool) {
        let (zones, mut added) = (self.zones, 0);
        let set = zones.set(set);
        for record in set.records.clone() {
            let mark = self.at;
            self.record(owner, set.rtype, set.ttl, record);
            if self.over {
                self.cut(mark);
                return (added, false);
            }
            added += 1;
        }
        (added, true)
    }

    fn record(&mut self, owner: Owner, rtype: u16, ttl: u32, record: u32) {
        match owner {
            Owner::Question => self.write(&(0xc000 | HEADER as u16).to_be_bytes()),
            Owner::Name(name) => self.name(name),
        }
        self.write(&rtype.to_be_bytes());
        self.write(&super::query::CLASS_IN.to_be_bytes());
        self.write(&ttl.to_be_bytes());
        let length_at = self.at;
        self.write(&[0; 2]);
        let zones = self.zones;
        let data = &zones.records[record as usize];
        let bytes = &zones.data[data.bytes.start as usize..data.bytes.end as usize];
        if rtype::is_compressed(rtype) {
            let (before, after) =
                (usize::from(data.names_at), usize::from(data.names_at + data.names_length));
            self.write(&bytes[..before]);
            for name in data.names.into_iter().filter(|name| *name != NO_NAME) {
                self.name(name);
            }
            self.write(&bytes[after..]);
        } else {
            self.write(bytes);
        }
        if !self.over {
            let length = (self.at - length_at - 2) as u16;
            self.message[length_at..length_at + 2].copy_from_slice(&length.to_be_bytes());
        }
    }

    fn name(&mut self, mut name: NameId) {
        let zones = self.zones;
        while name != ROOT {
            if let Some(place) = self.places.find(name) {
                return self.write(&(0xc000 | place).to_be_bytes());
            }
            self.places.put(name, self.at);
            let bytes = zones.name(name);
            self.write(&bytes[..usize::from(bytes[0]) + 1]);
            name = zones.entry(name).parent;
        }
        self.write(&[0]);
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
