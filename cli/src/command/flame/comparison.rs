//! Two saved runs side by side.

use std::collections::BTreeMap;

use anyhow::{Result, bail};
use linerate_trace::contention::{LockContention, LockKind};
use linerate_trace::flame::spots::HotSpot;
use linerate_trace::flame::{ProfileDifference, StackProfile};
use serde::{Deserialize, Serialize};

use super::document::FlameDocument;
use super::drawing::FlameView;
use super::program;

/// The schema of `--diff --json`.
pub(crate) const SCHEMA: &str = "linerate.flame-diff/1";

/// What changed between two runs.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct FlameComparison {
    pub(crate) schema: String,
    pub(crate) version: String,
    pub(crate) argv: Vec<String>,
    #[serde(flatten)]
    pub(crate) shown: FlameView,
    pub(crate) before: ComparedProfile,
    pub(crate) after: ComparedProfile,
    pub(crate) difference: ProfileDifference,
    /// Hot spots of either, by how much they changed.
    pub(crate) spots: Vec<SpotChange>,
    /// Waits for locks of either, by how much they changed. Empty where one of the two did not look.
    pub(crate) locks: Vec<LockChange>,
    pub(crate) warnings: Vec<String>,
}

/// One of the runs.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ComparedProfile {
    pub(crate) file: String,
    pub(crate) host: String,
    pub(crate) argv: Vec<String>,
    pub(crate) started_unix_seconds: u64,
    pub(crate) seconds: f64,
    /// None where it was read from a file, which does not have it.
    #[serde(skip)]
    profile: Option<StackProfile>,
}

/// A hot spot in both.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SpotChange {
    pub(crate) spot: HotSpot,
    /// CPUs' worth of time: 0.25 is a quarter of a CPU.
    pub(crate) before_cpus: f64,
    pub(crate) after_cpus: f64,
}

/// Waits at a place of code in both.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct LockChange {
    pub(crate) lock: LockKind,
    pub(crate) callers: Vec<String>,
    pub(crate) before_ns_per_second: f64,
    pub(crate) after_ns_per_second: f64,
}

impl FlameComparison {
    /// Reads both.
    pub(super) fn of(before_file: &str, after_file: &str, shown: FlameView) -> Result<Self> {
        let open = |file: &str| -> Result<(FlameDocument, StackProfile)> {
            let mut document = FlameDocument::read(file)?.seen_as(shown, true);
            match document.profile.take() {
                Some(profile) => Ok((document, profile)),
                None => bail!("{file}: it has no samples (a run with --locks), and cannot be compared"),
            }
        };
        let ((before, old), (after, new)) = (open(before_file)?, open(after_file)?);
        let (version, argv) = program();
        Ok(Self {
            schema: SCHEMA.to_owned(),
            version,
            argv,
            shown,
            difference: ProfileDifference::between(&old, &new, shown.view()),
            spots: spots((&before.spots, &old), (&after.spots, &new)),
            locks: locks(before.contention.as_ref(), after.contention.as_ref()),
            warnings: warnings(&before, &after),
            before: ComparedProfile::of(before_file, before, old),
            after: ComparedProfile::of(after_file, after, new),
        })
    }

    /// Before and after; none where it was read from a file.
    pub(super) fn profiles(&self) -> Option<[&StackProfile; 2]> {
        Some([self.before.profile.as_ref()?, self.after.profile.as_ref()?])
    }
}

impl ComparedProfile {
    fn of(file: &str, document: FlameDocument, profile: StackProfile) -> Self {
        Self {
            file: file.to_owned(),
            host: document.host.name,
            argv: document.argv,
            started_unix_seconds: document.started_unix_seconds,
            seconds: profile.seconds,
            profile: Some(profile),
        }
    }
}

fn warnings(before: &FlameDocument, after: &FlameDocument) -> Vec<String> {
    let mut warnings = Vec::new();
    let (old, new) = (&before.host, &after.host);
    if old.name != new.name {
        warnings.push(format!("They are of two hosts: {} and {}.", old.name, new.name));
    }
    if old.kernel != new.kernel {
        let name = |kernel: &Option<String>| kernel.clone().unwrap_or_else(|| "unknown".to_owned());
        warnings.push(format!(
            "The kernels differ ({} and {}): functions may have other names.",
            name(&old.kernel),
            name(&new.kernel)
        ));
    }
    if before.contention.is_some() != after.contention.is_some() {
        warnings.push("Only one of them looked at locks: waits are not compared.".to_owned());
    }
    warnings
}

/// CPUs' worth of time that so many samples are.
fn cpus(samples: u64, profile: &StackProfile) -> f64 {
    let each = f64::from(profile.frequency_hz) * profile.seconds;
    if each > 0.0 { samples as f64 / each } else { 0.0 }
}

fn spots(before: (&[HotSpot], &StackProfile), after: (&[HotSpot], &StackProfile)) -> Vec<SpotChange> {
    let mut changes: BTreeMap<&str, SpotChange> = BTreeMap::new();
    for (spots, profile, is_after) in [(before.0, before.1, false), (after.0, after.1, true)] {
        for spot in spots {
            let change = changes.entry(&spot.id).or_insert_with(|| SpotChange {
                spot: spot.clone(),
                before_cpus: 0.0,
                after_cpus: 0.0,
            });
            let side = if is_after { &mut change.after_cpus } else { &mut change.before_cpus };
            *side += cpus(spot.samples, profile);
        }
    }
    let mut changes: Vec<SpotChange> = changes.into_values().collect();
    changes.sort_by(|a, b| b.by().abs().total_cmp(&a.by().abs()));
    changes
}

fn locks(before: Option<&LockContention>, after: Option<&LockContention>) -> Vec<LockChange> {
    let (Some(before), Some(after)) = (before, after) else { return Vec::new() };
    let mut changes: BTreeMap<(LockKind, &[String]), LockChange> = BTreeMap::new();
    for (contention, is_after) in [(before, false), (after, true)] {
        for waited in &contention.locks {
            let change =
                changes.entry((waited.lock, waited.callers.as_slice())).or_insert_with(|| LockChange {
                    lock: waited.lock,
                    callers: waited.callers.clone(),
                    before_ns_per_second: 0.0,
                    after_ns_per_second: 0.0,
                });
            let per_second = waited.waited_ns as f64 / contention.seconds.max(f64::MIN_POSITIVE);
            *(if is_after { &mut change.after_ns_per_second } else { &mut change.before_ns_per_second }) +=
                per_second;
        }
    }
    let mut changes: Vec<LockChange> = changes.into_values().collect();
    changes.sort_by(|a, b| b.by().abs().total_cmp(&a.by().abs()));
    changes
}

impl SpotChange {
    /// Grown (above zero) or shrunk, in CPUs' worth of time.
    pub(crate) fn by(&self) -> f64 {
        self.after_cpus - self.before_cpus
    }
}

impl LockChange {
    /// Grown (above zero) or shrunk.
    pub(crate) fn by(&self) -> f64 {
        self.after_ns_per_second - self.before_ns_per_second
    }
}
