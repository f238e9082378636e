//! What a run of `flame` comes to, in a sentence, and what to do about it.

use std::collections::BTreeMap;

use linerate_trace::contention::LockContention;
use linerate_trace::flame::StackProfile;
use linerate_trace::flame::spots::{self, HotSpot};

use super::format::percent;
use super::style::TextTone;
use crate::command::flame::FlameDocument;

/// Less of packet processing than this is not worth a verdict.
const LEAST: f64 = 0.05;

/// What it comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FlameVerdict {
    pub(crate) sentence: String,
    /// What to do; empty where there is nothing.
    pub(crate) advice: String,
    pub(crate) tone: TextTone,
    /// Whether it is about waits for locks, which are to be shown first then.
    pub(crate) of_locks: bool,
}

impl FlameVerdict {
    fn plain(sentence: impl Into<String>) -> Self {
        Self { sentence: sentence.into(), advice: String::new(), tone: TextTone::Plain, of_locks: false }
    }

    /// Waits for locks where they are worth it, since they are nothing but loss, and samples do not show those with interrupts
    /// off; else the largest of the hot spots.
    pub(crate) fn of(document: &FlameDocument) -> Self {
        let Some(profile) = &document.profile else {
            return document
                .contention
                .as_ref()
                .map_or_else(|| Self::plain("Nothing was looked at."), Self::of_locks);
        };
        if document.samples() == 0 {
            return Self::plain(nothing_shown(document, profile));
        }
        let spot = document.spots.first().filter(|spot| spot.share_of_path >= LEAST);
        let spinning =
            document.contention.as_ref().and_then(|contention| spinning_share(contention, profile));
        match (spot, spinning) {
            (Some(spot), _) if same(spot, document.contention.as_ref()) => Self::of_spot(spot),
            (Some(spot), Some(share)) if share >= LEAST.min(spot.share_of_busy) => {
                Self::spinning(share, document)
            }
            (None, Some(share)) if share >= LEAST => Self::spinning(share, document),
            (Some(spot), _) => Self::of_spot(spot),
            (None, _) => Self::plain(nothing_hot(document)),
        }
    }

    fn of_spot(spot: &HotSpot) -> Self {
        Self {
            sentence: format!(
                "{} of packet processing: {}{}.",
                percent(spot.share_of_path),
                spot.what,
                finding(spot)
            ),
            advice: spot.remedy.clone(),
            tone: TextTone::Bad,
            of_locks: false,
        }
    }

    fn spinning(share: f64, document: &FlameDocument) -> Self {
        let spot = document.contention.as_ref().and_then(most_spinning).and_then(spots::known);
        let so = spot.as_ref().map_or_else(
            || "the callers are below".to_owned(),
            |spot| format!("most of that where {}{}", spot.what, finding(spot)),
        );
        Self {
            sentence: format!("{} of the time that CPUs are busy they wait for locks; {so}.", percent(share)),
            advice: spot.map(|spot| spot.remedy).unwrap_or_default(),
            tone: TextTone::Bad,
            of_locks: true,
        }
    }

    fn of_locks(contention: &LockContention) -> Self {
        let cpus = contention.cpus.len().max(1) as f64;
        let share = contention.spinning_ns as f64 / 1e9 / (contention.seconds.max(f64::MIN_POSITIVE) * cpus);
        if contention.waits == 0 {
            return Self::plain("No lock was waited for.");
        }
        let sentence = format!("{} of all CPU time went on spinning for locks.", percent(share));
        let tone = if share >= LEAST { TextTone::Bad } else { TextTone::Plain };
        Self { sentence, advice: String::new(), tone, of_locks: true }
    }
}

/// The rule of doctor that looks for its cause, in brackets.
fn finding(spot: &HotSpot) -> String {
    spot.finding.as_ref().map_or_else(String::new, |id| format!(" ({id})"))
}

fn nothing_shown(document: &FlameDocument, profile: &StackProfile) -> String {
    let samples: u64 = profile.cpus.iter().map(|cpu| cpu.samples).sum();
    if samples == 0 {
        return "No sample was taken: the CPUs slept all the time, or it was not for long enough.".to_owned();
    }
    if document.shown.irq_only && profile.busy() > 0 {
        return "No sample is in interrupt context: no packets were processed there, or hardly any."
            .to_owned();
    }
    "All samples are idle: the CPUs had nothing to do.".to_owned()
}

fn nothing_hot(document: &FlameDocument) -> String {
    let interrupt = document.interrupt_share().unwrap_or(0.0);
    match document.spots.first() {
        _ if document.path_samples == 0 => "No packet was processed in any of the samples.".to_owned(),
        Some(spot) => format!(
            "No hot spot: the largest, {}, has {} of packet processing.",
            spot.what,
            percent(spot.share_of_path)
        ),
        None => {
            format!("No known hot spot; {} of the busy time is in interrupt context.", percent(interrupt))
        }
    }
}

/// Spinning as a share of the time in which CPUs were busy.
pub(super) fn spinning_share(contention: &LockContention, profile: &StackProfile) -> Option<f64> {
    let samples: u64 = profile.cpus.iter().map(|cpu| cpu.samples).sum();
    let cpus = profile.cpus.len() as f64;
    // CPUs that sleep are not sampled; those samples that are idle are no busy time either.
    let asked = f64::from(profile.frequency_hz) * profile.seconds * cpus;
    let busy = profile.busy() as f64 / asked.max(samples as f64).max(1.0);
    let spinning = contention.spinning_ns as f64 / 1e9 / (contention.seconds * cpus);
    (busy > 0.0 && spinning.is_finite()).then(|| (spinning / busy).min(1.0))
}

/// The hot spot in which most time is waited.
fn most_spinning(contention: &LockContention) -> Option<&str> {
    let mut by_spot: BTreeMap<&str, u64> = BTreeMap::new();
    for waited in &contention.locks {
        if let Some(id) = &waited.spot {
            *by_spot.entry(id).or_default() += waited.waited_ns;
        }
    }
    by_spot.into_iter().max_by_key(|(_, waited_ns)| *waited_ns).map(|(id, _)| id)
}

fn same(spot: &HotSpot, contention: Option<&LockContention>) -> bool {
    contention.and_then(most_spinning) == Some(spot.id.as_str())
}
