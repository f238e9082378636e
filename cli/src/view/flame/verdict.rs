//! The verdict of a profile: a sentence, and advice.

use std::collections::BTreeMap;

use linerate_trace::contention::LockContention;
use linerate_trace::flame::StackProfile;
use linerate_trace::flame::result::FlameResult;
use linerate_trace::flame::spots::{self, HotSpot};

use crate::document::Tone;
use crate::render::format::percent;

/// The least share of packet processing for a verdict.
const LEAST: f64 = 0.05;
/// The least share of the busy time for an alarm.
const NOTABLE: f64 = 0.01;
/// The least number of samples of packet processing for a verdict.
const FEWEST_SAMPLES: u64 = 100;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FlameVerdict {
    pub(super) sentence: String,
    /// The advice; may be empty.
    pub(super) advice: String,
    pub(super) tone: Tone,
    /// Whether the verdict is about lock waits, which are then printed first.
    pub(super) of_locks: bool,
}

impl FlameVerdict {
    fn plain(sentence: impl Into<String>) -> Self {
        Self { sentence: sentence.into(), advice: String::new(), tone: Tone::Plain, of_locks: false }
    }

    /// The verdict is about lock waits if they are large, because they are pure loss, and samples
    /// miss waits with interrupts off. Otherwise it is about the largest hot spot.
    pub(super) fn new(result: &FlameResult) -> Self {
        let Some(profile) = &result.profile else {
            return result
                .contention
                .as_ref()
                .map_or_else(|| Self::plain("Nothing was measured."), Self::from_contention);
        };
        if result.samples() == 0 {
            return Self::plain(nothing_shown(result, profile));
        }
        let has_enough = result.path_samples >= FEWEST_SAMPLES;
        // Two standard deviations of a share of `LEAST`.
        let surely_least = LEAST + (4.0 * LEAST * (1.0 - LEAST) / result.path_samples as f64).sqrt();
        let spot = result.spots.first().filter(|spot| has_enough && spot.share_of_path >= surely_least);
        let lock_share =
            result.contention.as_ref().and_then(|contention| spinning_share(contention, profile));
        let lock_share = lock_share.filter(|share| *share >= NOTABLE);
        match (spot, lock_share) {
            (Some(spot), _) if is_same_spot(spot, result.contention.as_ref()) => Self::from_spot(spot),
            (Some(spot), Some(share)) if share >= LEAST.min(spot.share_of_busy) => {
                Self::spinning(share, result)
            }
            (None, Some(share)) if share >= LEAST => Self::spinning(share, result),
            (Some(spot), _) => Self::from_spot(spot),
            (None, _) => Self::plain(nothing_hot(result)),
        }
    }

    fn from_spot(spot: &HotSpot) -> Self {
        Self {
            sentence: format!(
                "{} of packet processing: {}{}.",
                percent(spot.share_of_path),
                spot.what,
                finding(spot)
            ),
            advice: spot.remedy.clone(),
            tone: if spot.share_of_busy >= NOTABLE { Tone::Bad } else { Tone::Plain },
            of_locks: false,
        }
    }

    fn spinning(share: f64, result: &FlameResult) -> Self {
        let spot = result.contention.as_ref().and_then(most_spinning).and_then(spots::known);
        let cause_text = spot.map_or_else(
            || "the callers are below".to_owned(),
            |spot| format!("most of it because {}{}", spot.what, finding(spot)),
        );
        Self {
            sentence: format!(
                "CPUs spend {} of their busy time waiting for locks; {cause_text}.",
                percent(share)
            ),
            advice: spot.map(|spot| spot.remedy.clone()).unwrap_or_default(),
            tone: Tone::Bad,
            of_locks: true,
        }
    }

    fn from_contention(contention: &LockContention) -> Self {
        let cpus = contention.cpus.len().max(1) as f64;
        let share = contention.spinning_ns as f64 / 1e9 / (contention.seconds.max(f64::MIN_POSITIVE) * cpus);
        if contention.waits == 0 {
            return Self::plain("No thread waited for a lock.");
        }
        let sentence = format!("CPUs spent {} of their time spinning for locks.", percent(share));
        let tone = if share >= LEAST { Tone::Bad } else { Tone::Plain };
        Self { sentence, advice: String::new(), tone, of_locks: true }
    }
}

/// Doctor's finding about the cause, in brackets.
fn finding(spot: &HotSpot) -> String {
    spot.finding.as_ref().map_or_else(String::new, |id| format!(" ({id})"))
}

fn nothing_shown(result: &FlameResult, profile: &StackProfile) -> String {
    let samples: u64 = profile.cpus.iter().map(|cpu| cpu.samples).sum();
    if samples == 0 {
        return "No sample was taken: the CPUs slept all the time, or the duration was too short.".to_owned();
    }
    if result.shown.irq_only && profile.busy() > 0 {
        return "No sample is in interrupt context: few or no packets were processed there.".to_owned();
    }
    "All samples are idle: the CPUs had nothing to do.".to_owned()
}

fn nothing_hot(result: &FlameResult) -> String {
    let interrupt = result.interrupt_share().unwrap_or(0.0);
    match result.spots.first() {
        _ if result.path_samples == 0 => "No packet was processed in any of the samples.".to_owned(),
        _ if result.path_samples < FEWEST_SAMPLES => {
            format!("Too few samples of packet processing for a verdict: {}.", result.path_samples)
        }
        Some(spot) => format!(
            "No {}hot spot: the largest, {}, has {} of packet processing.",
            if spot.share_of_path >= LEAST { "certain " } else { "" },
            spot.what,
            percent(spot.share_of_path)
        ),
        None => {
            format!("No known hot spot; {} of the busy time is in interrupt context.", percent(interrupt))
        }
    }
}

/// Time in lock waits as a share of the time in which CPUs were busy.
pub(super) fn spinning_share(contention: &LockContention, profile: &StackProfile) -> Option<f64> {
    let samples: u64 = profile.cpus.iter().map(|cpu| cpu.samples).sum();
    let cpus = profile.cpus.len() as f64;
    // Sleeping CPUs are not sampled, and idle samples are no busy time.
    let requested_samples = f64::from(profile.frequency_hz) * profile.seconds * cpus;
    let busy_share = profile.busy() as f64 / requested_samples.max(samples as f64).max(1.0);
    let spinning_share = contention.spinning_ns as f64 / 1e9 / (contention.seconds * cpus);
    (busy_share > 0.0 && spinning_share.is_finite()).then(|| (spinning_share / busy_share).min(1.0))
}

/// The hot spot with the most waiting time.
fn most_spinning(contention: &LockContention) -> Option<&str> {
    let mut waited_by_spot: BTreeMap<&str, u64> = BTreeMap::new();
    for wait_site in &contention.locks {
        if let Some(id) = &wait_site.spot {
            *waited_by_spot.entry(id).or_default() += wait_site.waited_ns;
        }
    }
    waited_by_spot.into_iter().max_by_key(|(_, waited_ns)| *waited_ns).map(|(id, _)| id)
}

fn is_same_spot(spot: &HotSpot, contention: Option<&LockContention>) -> bool {
    contention.and_then(most_spinning) == Some(spot.id.as_str())
}
