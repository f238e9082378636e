//! The table of hot spots, and the spot of a stack.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use linerate_host::StageName;
use linerate_host::finding::Rule;
use linerate_host::stage::STAGES;
use serde::Deserialize;

use super::{FoundSpot, FrameKind, HotSpot, SpotFunction, share};

/// A test checks that it can be read and refers to existing rules.
pub(crate) static TABLE: LazyLock<SpotTable> = LazyLock::new(|| {
    SpotTable::read(include_str!("spots.toml")).unwrap_or_else(|why| unreachable!("spots.toml: {why}"))
});

/// Hot spots and the functions that identify them.
#[derive(Debug)]
pub(crate) struct SpotTable {
    spots: Vec<KnownSpot>,
    packet_path: NamePatterns,
}

/// A function, judged by its name only.
#[derive(Debug)]
pub(super) struct JudgedFunction<'n> {
    pub(super) name: &'n str,
    plain: &'n str,
    in_path: bool,
    could_be: Vec<usize>,
}

#[derive(Debug)]
struct KnownSpot {
    /// Without samples.
    hot_spot: HotSpot,
    ways: Vec<SpotPattern>,
    anywhere: bool,
    kind: FrameKind,
}

#[derive(Debug)]
struct SpotPattern {
    functions: NamePatterns,
    leaf: NamePatterns,
    // One of these must be further out on the stack; empty for any.
    under: NamePatterns,
}

#[derive(Debug, Default)]
struct NamePatterns {
    whole: Vec<String>,
    beginnings: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SpotFile {
    lists: BTreeMap<String, Vec<String>>,
    spot: Vec<SpotEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SpotEntry {
    id: String,
    stage: StageName,
    what: String,
    finding: Option<String>,
    remedy: Option<String>,
    when_not: Option<String>,
    source: Option<String>,
    #[serde(default)]
    anywhere: bool,
    #[serde(default)]
    user: bool,
    #[serde(default)]
    functions: Vec<String>,
    #[serde(default)]
    leaf: Vec<String>,
    #[serde(default)]
    under: Vec<String>,
    #[serde(default)]
    also: Vec<SpotAlternative>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SpotAlternative {
    functions: Vec<String>,
    under: Vec<String>,
}

impl SpotTable {
    pub(super) fn read(text: &str) -> Result<Self, String> {
        let file: SpotFile = toml::from_str(text).map_err(|error| error.to_string())?;
        let names = |names: &[String]| NamePatterns::read(names, &file.lists);
        let spots = file.spot.iter().map(|entry| KnownSpot::read(entry, &names)).collect::<Result<_, _>>()?;
        Ok(Self { spots, packet_path: names(&["@packet_path".to_owned()])? })
    }

    pub(super) fn judge<'n>(&self, name: &'n str, kind: FrameKind) -> JudgedFunction<'n> {
        let plain = crate::symbols::source_name(name);
        let matching_index = |(index, spot): (usize, &KnownSpot)| spot.could_be(plain, kind).then_some(index);
        JudgedFunction {
            name,
            plain,
            in_path: kind == FrameKind::Kernel && self.packet_path.matches(plain),
            could_be: self.spots.iter().enumerate().filter_map(matching_index).collect(),
        }
    }

    /// The innermost spot of a stack, innermost function first, and the function that identifies
    /// it.
    pub(super) fn spot_of(&self, frames: &[&JudgedFunction<'_>], in_path: bool) -> Option<(usize, usize)> {
        (0..frames.len()).find_map(|depth| {
            let spots = frames[depth].could_be.iter().filter(|spot| in_path || self.spots[**spot].anywhere);
            let candidates =
                spots.filter_map(|spot| Some((self.spots[*spot].distance(frames, depth)?, *spot)));
            candidates.min().map(|(_, spot)| (spot, depth))
        })
    }

    /// The spot of a wait for a spinning lock, by the callers of the lock, innermost first.
    pub(crate) fn of_lock(&self, callers: &[String]) -> Option<&str> {
        let names = std::iter::once("queued_spin_lock_slowpath").chain(callers.iter().map(String::as_str));
        let frames: Vec<JudgedFunction<'_>> = names.map(|name| self.judge(name, FrameKind::Kernel)).collect();
        let frames: Vec<&JudgedFunction<'_>> = frames.iter().collect();
        let (spot, depth) = self.spot_of(&frames, true)?;
        // Callers outside of the lock's owner do not identify it; a generic lock is a spot only in
        // the packet path.
        let is_known = self.spots[spot].distance(&frames, depth) != Some(usize::MAX);
        (depth == 0 && (is_known || is_packet_path(&frames))).then_some(self.spots[spot].hot_spot.id.as_str())
    }

    pub(super) fn spot(&self, index: usize, found: &FoundSpot<'_>, busy: u64, path_samples: u64) -> HotSpot {
        let function =
            |(name, samples): (&&str, &u64)| SpotFunction { name: (*name).into(), samples: *samples };
        let mut functions: Vec<SpotFunction> = found.functions.iter().map(function).collect();
        functions.sort_by_key(|function| std::cmp::Reverse(function.samples));
        HotSpot {
            share_of_path: share(found.in_path, path_samples),
            share_of_busy: share(found.samples, busy),
            samples: found.samples,
            functions,
            ..self.spots[index].hot_spot.clone()
        }
    }

    pub(super) fn hot_spots(&self) -> impl Iterator<Item = &HotSpot> {
        self.spots.iter().map(|spot| &spot.hot_spot)
    }
}

impl KnownSpot {
    fn read(
        entry: &SpotEntry,
        names: &impl Fn(&[String]) -> Result<NamePatterns, String>,
    ) -> Result<Self, String> {
        let first_pattern = SpotPattern {
            functions: names(&entry.functions)?,
            leaf: names(&entry.leaf)?,
            under: names(&entry.under)?,
        };
        let mut patterns = vec![first_pattern];
        for alternative in &entry.also {
            patterns.push(SpotPattern {
                functions: names(&alternative.functions)?,
                leaf: NamePatterns::default(),
                under: names(&alternative.under)?,
            });
        }
        let kind = if entry.user { FrameKind::User } else { FrameKind::Kernel };
        Ok(Self { hot_spot: hot_spot(entry)?, ways: patterns, anywhere: entry.anywhere, kind })
    }

    /// Whether a function may be this spot, depending on its place in a stack.
    fn could_be(&self, name: &str, kind: FrameKind) -> bool {
        self.kind == kind
            && self.ways.iter().any(|pattern| pattern.functions.matches(name) || pattern.leaf.matches(name))
    }

    // Distance of the outer function that confirms the spot; `None` if there is none. Spots
    // without condition come last.
    fn distance(&self, frames: &[&JudgedFunction<'_>], depth: usize) -> Option<usize> {
        let name = frames[depth].plain;
        let outer_match =
            |names: &NamePatterns| frames[depth + 1..].iter().position(|frame| names.matches(frame.plain));
        let pattern_distance = |pattern: &SpotPattern| {
            let is_match = pattern.functions.matches(name) || (depth == 0 && pattern.leaf.matches(name));
            match (is_match, pattern.under.is_empty()) {
                (false, _) => None,
                (true, true) => Some(usize::MAX),
                (true, false) => outer_match(&pattern.under),
            }
        };
        self.ways.iter().filter_map(pattern_distance).min()
    }
}

/// Whether a packet is received, sent or waited for in a stack.
pub(super) fn is_packet_path(frames: &[&JudgedFunction<'_>]) -> bool {
    frames.iter().any(|frame| frame.in_path)
}

/// Texts that an entry lacks are those of its finding's rule.
fn hot_spot(entry: &SpotEntry) -> Result<HotSpot, String> {
    let rule = entry.finding.as_deref().map(rule).transpose()?;
    let own_or_rule_text = |own_text: &Option<String>, rule_text: fn(&Rule) -> &'static str| {
        let text = own_text.clone().or_else(|| rule.map(|rule| rule_text(rule).to_owned()));
        text.filter(|text| !text.is_empty()).ok_or_else(|| format!("{} lacks words", entry.id))
    };
    Ok(HotSpot {
        id: entry.id.clone(),
        stage: entry.stage,
        what: entry.what.clone(),
        finding: entry.finding.clone(),
        remedy: own_or_rule_text(&entry.remedy, |rule| rule.remedy)?,
        when_not: own_or_rule_text(&entry.when_not, |rule| rule.caveats)?,
        source: own_or_rule_text(&entry.source, |rule| rule.source)?,
        share_of_path: 0.0,
        share_of_busy: 0.0,
        samples: 0,
        functions: Vec::new(),
    })
}

fn rule(id: &str) -> Result<&'static Rule, String> {
    let mut rules = STAGES.iter().flat_map(|stage| stage.rules);
    rules.find(|rule| rule.id == id).ok_or_else(|| format!("doctor has no rule {id}"))
}

impl NamePatterns {
    fn read(names: &[String], lists: &BTreeMap<String, Vec<String>>) -> Result<Self, String> {
        let mut patterns = Self::default();
        for name in names {
            if let Some(list) = name.strip_prefix('@') {
                let list = lists.get(list).ok_or_else(|| format!("there is no list {list}"))?;
                let Self { whole, beginnings } = Self::read(list, lists)?;
                patterns.whole.extend(whole);
                patterns.beginnings.extend(beginnings);
            } else if let Some(beginning) = name.strip_suffix('*') {
                patterns.beginnings.push(beginning.to_owned());
            } else {
                patterns.whole.push(name.clone());
            }
        }
        Ok(patterns)
    }

    fn is_empty(&self) -> bool {
        self.whole.is_empty() && self.beginnings.is_empty()
    }

    fn matches(&self, name: &str) -> bool {
        self.whole.iter().any(|whole| whole == name)
            || self.beginnings.iter().any(|beginning| name.starts_with(beginning.as_str()))
    }
}
