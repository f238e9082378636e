//! What the answer to a question is: which sets of records, in which section, under whose name.
//!
//! The order of the steps is that of RFC 1034, section 4.3.2, and where that leaves a choice the choice is NSD's.

use super::encode::Owner;
use super::query::{self, rcode};
use super::rtype;
use super::store::{NO_NAME, NO_ZONE, NameId, SetId, Zones};

/// Sections in the order in which they are written, and given up when there is no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Section {
    Answer,
    Authority,
    /// The zone's servers beside an answer: the first to be left out.
    Servers,
    /// IPv4 addresses of hosts that the answer names.
    AddressesV4,
    AddressesV6,
}

impl Section {
    pub(crate) const ALL: [Section; 5] =
        [Section::Answer, Section::Authority, Section::Servers, Section::AddressesV4, Section::AddressesV6];
}

/// A set of records in an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) section: Section,
    pub(crate) owner: Owner,
    pub(crate) set: SetId,
}

/// Extended errors (RFC 8914).
pub(crate) mod extended {
    pub(crate) const PROHIBITED: u16 = 18;
    pub(crate) const NOT_AUTHORITATIVE: u16 = 20;
    pub(crate) const NOT_SUPPORTED: u16 = 21;
}

/// Most sets in one answer.
const MOST_PARTS: usize = 4096;

/// An answer before it is written. Kept and used again, so that answering does not allocate.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    pub(crate) parts: Vec<Part>,
    pub(crate) rcode: u16,
    pub(crate) authoritative: bool,
    /// Whether it refers to servers of another zone, whose addresses it must not lack.
    pub(crate) referral: bool,
    pub(crate) extended: Option<u16>,
    /// The wildcard it was made from, if any.
    pub(crate) wildcard: Option<NameId>,
}

impl Answer {
    fn clear(&mut self) {
        self.parts.clear();
        *self = Answer { parts: std::mem::take(&mut self.parts), ..Answer::default() };
    }

    /// Whether the set was not there yet. One that was keeps the earlier of its sections.
    fn add(&mut self, new: Part) -> bool {
        if let Some(part) = self.parts.iter_mut().find(|part| part.set == new.set && part.owner == new.owner)
        {
            let earlier = new.section < part.section;
            part.section = part.section.min(new.section);
            return earlier;
        }
        if self.parts.len() == MOST_PARTS {
            return false;
        }
        self.parts.push(new);
        true
    }
}

/// The part of a name that is in the tree.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Found {
    pub(crate) name: NameId,
    /// Whether it is the whole name.
    pub(crate) exact: bool,
}

pub(crate) struct Resolver<'a> {
    pub(crate) zones: &'a Zones,
    pub(crate) answer: &'a mut Answer,
    pub(crate) qtype: u16,
    pub(crate) qclass: u16,
}

/// A zone and the deepest name in it that exists.
#[derive(Clone, Copy)]
struct Standing {
    zone: u16,
    name: NameId,
    exact: bool,
}

impl Resolver<'_> {
    pub(crate) fn resolve(&mut self, found: Found) {
        self.answer.clear();
        let mut next = Some((Owner::Question, found));
        let mut followed = 0;
        while let Some((owner, found)) = next {
            next = self.step(owner, found, followed).map(|target| {
                followed += 1;
                (Owner::Name(target), Found { name: target, exact: true })
            });
        }
    }

    /// Answers for one name; returns the next one, if this is an alias.
    fn step(&mut self, owner: Owner, found: Found, followed: usize) -> Option<NameId> {
        let Some(standing) = self.stand(found) else {
            if followed == 0 {
                self.answer.rcode = rcode::REFUSED;
                self.answer.extended = Some(extended::NOT_AUTHORITATIVE);
            }
            return None;
        };
        let Standing { zone, name, exact } = standing;
        let authoritative = self.qclass != query::CLASS_ANY;
        let is_apex = name == self.zones.zones[usize::from(zone)].apex;
        if exact && self.qtype == rtype::DS && is_apex {
            self.answer.authoritative = authoritative;
            self.negative(zone);
            return None;
        }
        match self.cut_above(name, zone) {
            Some((cut, set)) if !(exact && self.qtype == rtype::DS && cut == name) => {
                self.answer.authoritative = followed > 0;
                self.answer.referral = true;
                self.add(Section::Authority, Owner::Name(cut), set, zone);
                None
            }
            _ => {
                self.answer.authoritative = authoritative;
                self.own(owner, standing)
            }
        }
    }

    /// The zone that answers for a name, which for DS at a cut is the parent's (RFC 4035, section 3.1.4.1).
    fn stand(&self, found: Found) -> Option<Standing> {
        let zone = self.zone_of(found.name)?;
        let (mut name, mut exact) = (found.name, found.exact);
        while !self.zones.entry(name).exists {
            name = self.zones.entry(name).parent;
            exact = false;
        }
        let apex = self.zones.zones[usize::from(zone)].apex;
        if exact && self.qtype == rtype::DS && name == apex {
            let above = self.zones.entry(apex).parent;
            if let Some(zone) = (above != NO_NAME).then(|| self.zone_of(above)).flatten() {
                return Some(Standing { zone, name, exact });
            }
        }
        Some(Standing { zone, name, exact })
    }

    fn zone_of(&self, mut name: NameId) -> Option<u16> {
        while name != NO_NAME {
            let entry = self.zones.entry(name);
            if entry.apex_of != NO_ZONE {
                return Some(entry.apex_of);
            }
            name = entry.parent;
        }
        None
    }

    /// The highest cut at or above a name, and its servers.
    fn cut_above(&self, mut name: NameId, zone: u16) -> Option<(NameId, SetId)> {
        let apex = self.zones.zones[usize::from(zone)].apex;
        let mut cut = None;
        while name != NO_NAME && name != apex {
            if let Some(set) = self.zones.find_set(name, zone, rtype::NS) {
                cut = Some((name, set));
            }
            name = self.zones.entry(name).parent;
        }
        cut
    }

    /// Answers from the zone's own data; returns the target of an alias.
    fn own(&mut self, owner: Owner, standing: Standing) -> Option<NameId> {
        let Standing { zone, name, exact } = standing;
        let wildcard = self.zones.entry(name).wildcard;
        let (owner, name) = match (exact, wildcard) {
            (true, _) => (Owner::Name(name), name),
            (false, NO_NAME) => {
                self.answer.rcode = rcode::NXDOMAIN;
                self.negative(zone);
                return None;
            }
            (false, wildcard) => {
                self.answer.wildcard.get_or_insert(wildcard);
                (owner, wildcard)
            }
        };
        if self.qtype == rtype::NSEC3 {
            // Its names are hashes, which exist for proofs only.
            self.negative(zone);
            return None;
        }
        let of_type = if self.qtype == rtype::ANY {
            self.any(name, zone)
        } else {
            self.zones.find_set(name, zone, self.qtype)
        };
        if let Some(set) = of_type {
            self.add(Section::Answer, owner, set, zone);
            let large = matches!(self.qtype, rtype::DNSKEY | rtype::DS | rtype::ANY);
            let of = &self.zones.zones[usize::from(zone)];
            if let Some(servers) = of.authority.filter(|_| self.qclass != query::CLASS_ANY && !large) {
                self.add(Section::Servers, Owner::Name(of.apex), servers, zone);
            }
            return None;
        }
        if let Some(set) = self.zones.find_set(name, zone, rtype::CNAME) {
            // One that is there already closes a circle.
            let new = self.add(Section::Answer, owner, set, zone);
            let record = self.zones.set(set).records.start;
            return new.then(|| self.zones.records[record as usize].names[0]);
        }
        self.negative(zone);
        None
    }

    /// One set stands for all (RFC 8482, section 4.1): a small and common one if there is any.
    fn any(&self, name: NameId, zone: u16) -> Option<SetId> {
        let (mut usual, mut large) = (None, None);
        for (id, set) in self.zones.sets_of(name, zone) {
            match set.rtype {
                rtype::A | rtype::AAAA | rtype::SOA | rtype::MX | rtype::PTR => return Some(id),
                rtype::NSEC3 => {}
                rtype::DNSKEY | rtype::RRSIG | rtype::NSEC => large = Some(id),
                _ => usual = Some(id),
            }
        }
        usual.or(large)
    }

    fn negative(&mut self, zone: u16) {
        if self.qclass != query::CLASS_ANY {
            let zone = &self.zones.zones[usize::from(zone)];
            self.answer.add(Part {
                section: Section::Authority,
                owner: Owner::Name(zone.apex),
                set: zone.negative,
            });
        }
    }

    /// Adds a set, and addresses of the hosts it names.
    fn add(&mut self, section: Section, owner: Owner, set: SetId, zone: u16) -> bool {
        let new = self.answer.add(Part { section, owner, set });
        let Some(of) = Some(self.zones.set(set)).filter(|set| rtype::names_host(set.rtype)) else {
            return new;
        };
        for record in of.records.clone() {
            let host = self.zones.records[record as usize].names[0];
            // Glue is for referrals.
            if of.rtype == rtype::NS || self.cut_above(host, zone).is_none() {
                self.addresses(host, zone);
            }
        }
        new
    }

    fn addresses(&mut self, host: NameId, zone: u16) {
        let mut closest = host;
        while !self.zones.entry(closest).exists {
            closest = self.zones.entry(closest).parent;
        }
        let wildcard = self.zones.entry(closest).wildcard;
        let source = if closest != host && wildcard != NO_NAME { wildcard } else { host };
        for (section, rtype) in [(Section::AddressesV4, rtype::A), (Section::AddressesV6, rtype::AAAA)] {
            if let Some(set) = self.zones.find_set(source, zone, rtype) {
                self.answer.add(Part { section, owner: Owner::Name(host), set });
            }
        }
    }
}
