//! The answer to a question: sets of records with sections and owner names.
//!
//! The steps are those of RFC 1034, section 4.3.2; if it leaves a choice, those of NSD.

use super::encode::RecordOwner;
use super::query::{self, rcode};
use super::rtype;
use super::store::{BucketIndex, ClosestName, RecordSet, WireName, Zones, first_name};
use super::zonefile::is_below;

/// Sections in the order in which they are written. Later ones are left out first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum DnsSection {
    Answer,
    Authority,
    // Addresses of name servers inside the delegated zone, which clients need to reach it (RFC 9471).
    Glue,
    /// The zone's name servers next to an answer.
    Servers,
    /// IPv4 addresses of hosts in the answer.
    AddressesV4,
    AddressesV6,
}

impl DnsSection {
    pub(crate) const ALL: [DnsSection; 6] = [
        DnsSection::Answer,
        DnsSection::Authority,
        DnsSection::Glue,
        DnsSection::Servers,
        DnsSection::AddressesV4,
        DnsSection::AddressesV6,
    ];

    /// Whether a reply without the section is truncated (TC).
    pub(crate) fn is_required(self) -> bool {
        self <= DnsSection::Glue
    }

    /// Index of its count in the header.
    pub(crate) fn count(self) -> usize {
        match self {
            DnsSection::Answer => 0,
            DnsSection::Authority | DnsSection::Servers => 1,
            DnsSection::Glue | DnsSection::AddressesV4 | DnsSection::AddressesV6 => 2,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AnswerSet {
    pub(crate) section: DnsSection,
    pub(crate) owner: RecordOwner,
    pub(crate) set: BucketIndex,
    /// `None`: that of the set.
    pub(crate) ttl: Option<u32>,
}

// Extended error codes (RFC 8914).
pub(crate) mod extended {
    pub(crate) const PROHIBITED: u16 = 18;
    pub(crate) const NOT_AUTHORITATIVE: u16 = 20;
    pub(crate) const NOT_SUPPORTED: u16 = 21;
}

// Most sets in one answer.
const MOST_PARTS: usize = 4096;

// An answer before encoding. Reused, so that answers need no allocation.
#[derive(Debug, Default)]
pub(crate) struct DnsAnswer {
    pub(crate) parts: Vec<AnswerSet>,
    pub(crate) rcode: u16,
    pub(crate) authoritative: bool,
    pub(crate) referral: bool,
    pub(crate) extended: Option<u16>,
    /// Equal for all names with the same answer.
    pub(crate) subject: u32,
    pub(crate) wildcard: bool,
}

impl DnsAnswer {
    fn clear(&mut self) {
        self.parts.clear();
        *self = DnsAnswer { parts: std::mem::take(&mut self.parts), ..DnsAnswer::default() };
    }
}

/// A name buffer that is taken out while in use.
pub(crate) type NameBuffer = Option<Box<WireName>>;

pub(crate) struct ZoneResolver<'a> {
    pub(crate) zones: &'a Zones,
    pub(crate) answer: &'a mut DnsAnswer,
    pub(crate) qtype: u16,
    pub(crate) qclass: u16,
    pub(crate) question: &'a WireName,
    pub(crate) alias: &'a mut NameBuffer,
    pub(crate) host: &'a mut NameBuffer,
}

impl<'a> ZoneResolver<'a> {
    pub(crate) fn resolve(&mut self) {
        self.answer.clear();
        let question = self.question;
        let mut next_target = self.resolve_step(RecordOwner::Question, question, false);
        while let Some(target) = next_target {
            let mut name = self.alias.take().unwrap_or_default();
            name.set(self.zones.name(target));
            next_target = self.resolve_step(RecordOwner::Name(target), &name, true);
            *self.alias = Some(name);
        }
    }

    /// Answers for one name; returns the target of an alias.
    fn resolve_step(&mut self, owner: RecordOwner, name: &WireName, is_alias: bool) -> Option<BucketIndex> {
        // DS at a cut is the parent's (RFC 4035, section 3.1.4.1).
        let is_apex = self.qtype == rtype::DS && self.zones.is_apex(name);
        let parent_zone = if is_apex { self.zones.zone_of(name, true) } else { None };
        let Some(zone) = parent_zone.or_else(|| self.zones.zone_of(name, false)) else {
            if !is_alias {
                self.answer.rcode = rcode::REFUSED;
                self.answer.extended = Some(extended::NOT_AUTHORITATIVE);
            }
            return None;
        };
        let closest = self.zones.find(name, zone);
        if !is_alias {
            self.answer.subject = closest.subject;
        }
        let authoritative = self.qclass != query::CLASS_ANY;
        if is_apex && parent_zone.is_none() {
            self.answer.authoritative = authoritative;
            self.add_negative(zone);
            return None;
        }
        match self.find_delegation(name, &closest) {
            Some((delegation, set))
                if !(closest.exact && self.qtype == rtype::DS && delegation == closest.node) =>
            {
                self.answer.authoritative = is_alias;
                self.answer.referral = true;
                let delegation = self.zones.node_name(delegation);
                self.add_set(DnsSection::Authority, RecordOwner::Name(delegation), set, zone);
                None
            }
            _ => {
                self.answer.authoritative = authoritative;
                self.answer_from_zone(owner, name, &closest)
            }
        }
    }

    /// The highest zone cut at or above the closest name, and its name servers.
    fn find_delegation(
        &self,
        name: &WireName,
        closest: &ClosestName,
    ) -> Option<(BucketIndex, RecordSet<'a>)> {
        let apex_labels = super::store::label_count(&self.zones.zones[usize::from(closest.zone)].apex);
        (apex_labels + 1..=closest.labels).find_map(|labels| {
            let node = if labels == closest.labels {
                closest.node
            } else {
                self.zones.node(closest.zone, name, labels)?
            };
            Some((node, self.zones.find_set(node, rtype::NS)?))
        })
    }

    /// Answers from the data of the zone; returns the target of an alias.
    fn answer_from_zone(
        &mut self,
        owner: RecordOwner,
        name: &WireName,
        closest: &ClosestName,
    ) -> Option<BucketIndex> {
        let zone = closest.zone;
        let node = if closest.exact {
            closest.node
        } else if let Some(wildcard) = self.zones.wildcard(zone, name, closest.labels, closest.node) {
            self.answer.wildcard = true;
            wildcard
        } else {
            self.answer.rcode = rcode::NXDOMAIN;
            self.add_negative(zone);
            return None;
        };
        if self.qtype == rtype::NSEC3 {
            // Names of NSEC3 records are hashes, which exist for proofs only.
            self.add_negative(zone);
            return None;
        }
        let matching_set = if self.qtype == rtype::ANY {
            self.select_any_set(node)
        } else {
            self.zones.find_set(node, self.qtype)
        };
        if let Some(set) = matching_set {
            self.add_set(DnsSection::Answer, owner, set, zone);
            let is_large = matches!(self.qtype, rtype::DNSKEY | rtype::DS | rtype::ANY);
            let apex = self.zones.zones[usize::from(zone)].node;
            let servers = self.zones.find_set(apex, rtype::NS);
            if let Some(servers) = servers.filter(|_| self.qclass != query::CLASS_ANY && !is_large) {
                self.add_set(
                    DnsSection::Servers,
                    RecordOwner::Name(self.zones.node_name(apex)),
                    servers,
                    zone,
                );
            }
            return None;
        }
        if let Some(set) = self.zones.find_set(node, rtype::CNAME) {
            // A set that is already there closes a loop of aliases.
            let is_new = self.add_set(DnsSection::Answer, owner, set, zone);
            let (index, data) = set.records().next()?;
            return first_name(rtype::CNAME, index, data).filter(|_| is_new);
        }
        self.add_negative(zone);
        None
    }

    // One set stands for all (RFC 8482, section 4.1): a small and common one if there is any.
    fn select_any_set(&self, node: BucketIndex) -> Option<RecordSet<'a>> {
        let (mut common_set, mut large_set) = (None, None);
        for set in self.zones.sets_of(node) {
            match set.rtype {
                rtype::A | rtype::AAAA | rtype::SOA | rtype::MX | rtype::PTR => return Some(set),
                rtype::NSEC3 => {}
                rtype::DNSKEY | rtype::RRSIG | rtype::NSEC => large_set = Some(set),
                _ => common_set = Some(set),
            }
        }
        common_set.or(large_set)
    }

    fn add_negative(&mut self, zone: u16) {
        if self.qclass != query::CLASS_ANY {
            let (set, ttl) = self.zones.negative(zone);
            let owner = RecordOwner::Name(self.zones.node_name(self.zones.zones[usize::from(zone)].node));
            self.add_part(AnswerSet { section: DnsSection::Authority, owner, set, ttl: Some(ttl) });
        }
    }

    /// Adds a part; false if it is already there. It then keeps the earlier of both sections.
    fn add_part(&mut self, new_part: AnswerSet) -> bool {
        let (zones, question) = (self.zones, self.question);
        let name = |owner: RecordOwner| match owner {
            RecordOwner::Question => question.end(question.labels),
            RecordOwner::Name(index) => zones.name(index),
        };
        let is_same = |part: &&mut AnswerSet| {
            part.set == new_part.set
                && (part.owner == new_part.owner
                    || name(part.owner).eq_ignore_ascii_case(name(new_part.owner)))
        };
        if let Some(part) = self.answer.parts.iter_mut().find(is_same) {
            let is_earlier = new_part.section < part.section;
            part.section = part.section.min(new_part.section);
            return is_earlier;
        }
        if self.answer.parts.len() == MOST_PARTS {
            return false;
        }
        self.answer.parts.push(new_part);
        true
    }

    /// Adds a set, and addresses of the hosts it names.
    fn add_set(&mut self, section: DnsSection, owner: RecordOwner, set: RecordSet<'a>, zone: u16) -> bool {
        let is_new = self.add_part(AnswerSet { section, owner, set: set.place, ttl: None });
        if !rtype::names_host(set.rtype) {
            return is_new;
        }
        let mut host = self.host.take().unwrap_or_default();
        for (index, data) in set.records() {
            let Some(target) = first_name(set.rtype, index, data) else { continue };
            let bytes = self.zones.name(target);
            if self.zones.contains_name(zone, bytes) {
                host.set(bytes);
                let delegation = match owner {
                    RecordOwner::Name(delegation)
                        if self.answer.referral && section == DnsSection::Authority =>
                    {
                        Some(self.zones.name(delegation))
                    }
                    _ => None,
                };
                self.add_addresses(
                    &host,
                    target,
                    zone,
                    set.rtype == rtype::NS,
                    delegation.is_some_and(|delegation| is_below(bytes, delegation)),
                );
            }
        }
        *self.host = Some(host);
        is_new
    }

    /// Adds the addresses of a host. `below_cuts`: also if they are glue, for referrals. `required`: the answer is useless
    /// without them.
    fn add_addresses(
        &mut self,
        host: &WireName,
        target: BucketIndex,
        zone: u16,
        below_cuts: bool,
        required: bool,
    ) {
        let closest = self.zones.find(host, zone);
        if !below_cuts && self.find_delegation(host, &closest).is_some() {
            return;
        }
        let node = if closest.exact {
            closest.node
        } else if let Some(wildcard) = self.zones.wildcard(zone, host, closest.labels, closest.node) {
            wildcard
        } else {
            return;
        };
        for (section, rtype) in [(DnsSection::AddressesV4, rtype::A), (DnsSection::AddressesV6, rtype::AAAA)]
        {
            if let Some(set) = self.zones.find_set(node, rtype) {
                let section = if required { DnsSection::Glue } else { section };
                self.add_part(AnswerSet {
                    section,
                    owner: RecordOwner::Name(target),
                    set: set.place,
                    ttl: None,
                });
            }
        }
    }
}
