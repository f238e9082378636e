//! Two results compared: hot spots, functions and lock waits before and after.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::difference::cpus;
use super::result::{FlameResult, FlameSelection};
use super::spots::HotSpot;
use super::{ProfileDifference, StackProfile};
use crate::contention::{LockContention, LockKind};

#[derive(Debug, Serialize, Deserialize)]
pub struct FlameComparison {
    #[serde(flatten)]
    pub shown: FlameSelection,
    pub before: ComparedProfile,
    pub after: ComparedProfile,
    pub difference: ProfileDifference,
    /// Hot spots of either, the largest change first.
    pub spots: Vec<SpotChange>,
    /// Lock waits of either, the largest change first. Empty unless both measured them.
    pub locks: Vec<LockChange>,
}

/// One of the two results.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ComparedProfile {
    pub file: String,
    /// The host's name; `None` if unknown.
    pub host: Option<String>,
    pub argv: Vec<String>,
    pub started_unix_seconds: Option<u64>,
    pub seconds: f64,
    /// `None` if the comparison was read from a file, which does not have it.
    #[serde(skip)]
    profile: Option<StackProfile>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SpotChange {
    pub spot: HotSpot,
    /// CPUs' worth of time: 0.25 is a quarter of a CPU.
    pub before_cpus: f64,
    pub after_cpus: f64,
}

/// Waits for a lock at one place of the code.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LockChange {
    pub lock: LockKind,
    pub callers: Vec<String>,
    pub before_ns_per_second: f64,
    pub after_ns_per_second: f64,
}

impl ComparedProfile {
    /// A side without its profile.
    #[must_use]
    pub fn new(
        file: String,
        host: Option<String>,
        argv: Vec<String>,
        started_unix_seconds: Option<u64>,
    ) -> Self {
        Self { file, host, argv, started_unix_seconds, seconds: 0.0, profile: None }
    }
}

impl FlameComparison {
    /// Compares two results, which must have samples.
    ///
    /// # Errors
    /// Names the file without samples.
    pub fn new(
        shown: FlameSelection,
        before: (ComparedProfile, FlameResult),
        after: (ComparedProfile, FlameResult),
    ) -> Result<Self, String> {
        let split_profile = |(mut side, result): (ComparedProfile, FlameResult)| {
            let mut result = result.select(shown);
            let Some(profile) = result.profile.take() else {
                return Err(format!(
                    "{}: it has no samples (a run with --locks), and cannot be compared",
                    side.file
                ));
            };
            side.seconds = profile.seconds;
            Ok((side, result, profile))
        };
        let ((mut before, old_result, old_profile), (mut after, new_result, new_profile)) =
            (split_profile(before)?, split_profile(after)?);
        let difference = ProfileDifference::between(&old_profile, &new_profile, shown);
        let spots =
            spots([(old_result.spots.as_slice(), &old_profile), (new_result.spots.as_slice(), &new_profile)]);
        let locks = locks([old_result.contention.as_ref(), new_result.contention.as_ref()]);
        (before.profile, after.profile) = (Some(old_profile), Some(new_profile));
        Ok(Self { shown, before, after, difference, spots, locks })
    }

    /// Both profiles; `None` if the comparison was read from a file.
    #[must_use]
    pub fn profiles(&self) -> Option<[&StackProfile; 2]> {
        Some([self.before.profile.as_ref()?, self.after.profile.as_ref()?])
    }
}

fn spots(sides: [(&[HotSpot], &StackProfile); 2]) -> Vec<SpotChange> {
    let mut changes: BTreeMap<&str, SpotChange> = BTreeMap::new();
    for (side, (spots, profile)) in sides.into_iter().enumerate() {
        for spot in spots {
            let change = changes.entry(&spot.id).or_insert_with(|| SpotChange {
                spot: spot.clone(),
                before_cpus: 0.0,
                after_cpus: 0.0,
            });
            let value = if side == 0 { &mut change.before_cpus } else { &mut change.after_cpus };
            *value += cpus(profile, spot.samples);
        }
    }
    let mut changes: Vec<SpotChange> = changes.into_values().collect();
    changes.sort_by(|a, b| b.growth().abs().total_cmp(&a.growth().abs()));
    changes
}

fn locks(sides: [Option<&LockContention>; 2]) -> Vec<LockChange> {
    let [Some(before), Some(after)] = sides else { return Vec::new() };
    let mut changes: BTreeMap<(LockKind, &[String]), LockChange> = BTreeMap::new();
    for (side, contention) in [before, after].into_iter().enumerate() {
        for site in &contention.locks {
            let change = changes.entry((site.lock, site.callers.as_slice())).or_insert_with(|| LockChange {
                lock: site.lock,
                callers: site.callers.clone(),
                before_ns_per_second: 0.0,
                after_ns_per_second: 0.0,
            });
            let value =
                if side == 0 { &mut change.before_ns_per_second } else { &mut change.after_ns_per_second };
            *value += site.waited_ns as f64 / contention.seconds.max(f64::MIN_POSITIVE);
        }
    }
    let mut changes: Vec<LockChange> = changes.into_values().collect();
    changes.sort_by(|a, b| b.growth().abs().total_cmp(&a.growth().abs()));
    changes
}

impl SpotChange {
    /// Positive if it grew, in CPUs' worth of time.
    #[must_use]
    pub fn growth(&self) -> f64 {
        self.after_cpus - self.before_cpus
    }
}

impl LockChange {
    /// Positive if it grew.
    #[must_use]
    pub fn growth(&self) -> f64 {
        self.after_ns_per_second - self.before_ns_per_second
    }
}
