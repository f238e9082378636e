//! Differences between two profiles.

use std::collections::BTreeMap;

use inferno::flamegraph::color::{BackgroundColor, Color};
use serde::{Deserialize, Serialize};

use super::draw::{self, DrawOptions};
use super::fold;
use super::profile::{SampleEvent, StackFrame, StackProfile};
use super::result::FlameSelection;
use crate::TraceError;

/// Parts of a CPU per sample in drawn lines: integers, fine enough for one sample in a long run.
const PARTS: f64 = 1e6;

/// Differences in CPU time, so that profiles may have different length and frequency.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProfileDifference {
    /// CPUs' worth of time in the earlier view: 1.0 is one CPU all the time.
    pub before_cpus: f64,
    pub after_cpus: f64,
    /// Largest change first.
    pub functions: Vec<FunctionChange>,
    /// Limits of the comparison, such as different events.
    pub notes: Vec<String>,
}

/// Change of a function's own time, without its callees.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FunctionChange {
    pub function: StackFrame,
    /// CPUs' worth of time before: 0.25 is a quarter of a CPU.
    pub before_cpus: f64,
    pub after_cpus: f64,
}

impl FunctionChange {
    /// Change in CPUs' worth of time.
    pub fn cpus(&self) -> f64 {
        self.after_cpus - self.before_cpus
    }
}

impl ProfileDifference {
    pub fn between(before: &StackProfile, after: &StackProfile, shown: FlameSelection) -> Self {
        // In each function without its callees.
        let mut own_times: BTreeMap<&StackFrame, [f64; 2]> = BTreeMap::new();
        for (side, profile) in [before, after].into_iter().enumerate() {
            for stack in shown.stacks(profile) {
                if let Some(frame) = profile.frames_of(stack).next_back() {
                    own_times.entry(frame).or_default()[side] += cpus(profile, stack.samples);
                }
            }
        }
        let change = |(function, [before_cpus, after_cpus]): (&StackFrame, [f64; 2])| FunctionChange {
            function: function.clone(),
            before_cpus,
            after_cpus,
        };
        let mut functions: Vec<FunctionChange> = own_times.into_iter().map(change).collect();
        // A stable sort: equal changes stay in the order of names.
        functions.sort_by(|a, b| b.cpus().abs().total_cmp(&a.cpus().abs()));
        Self {
            before_cpus: shown.stacks(before).map(|stack| cpus(before, stack.samples)).sum(),
            after_cpus: shown.stacks(after).map(|stack| cpus(after, stack.samples)).sum(),
            functions,
            notes: notes(before, after),
        }
    }
}

/// CPUs' worth of time of this many samples.
pub(super) fn cpus(profile: &StackProfile, samples: u64) -> f64 {
    let samples_per_cpu = f64::from(profile.frequency_hz) * profile.seconds;
    if samples_per_cpu > 0.0 { samples as f64 / samples_per_cpu } else { 0.0 }
}

fn notes(before: &StackProfile, after: &StackProfile) -> Vec<String> {
    let mut notes = Vec::new();
    let event = |profile: &StackProfile| match profile.event {
        SampleEvent::CpuCycles => "cycles",
        SampleEvent::CpuClock { .. } => "the CPU clock",
    };
    if event(before) != event(after) {
        notes.push(format!(
            "one samples {}, the other {}: sections with interrupts off are not comparable",
            event(before),
            event(after)
        ));
    }
    if before.cpus.len() != after.cpus.len() {
        notes.push(format!("{} CPUs were sampled before, {} after", before.cpus.len(), after.cpus.len()));
    }
    for (profile, label) in [(before, "before"), (after, "after")] {
        if profile.lost() > 0 {
            notes.push(format!("{} samples were lost {label}", profile.lost()));
        }
    }
    notes
}

/// The flame graph of `after`; a function is red if its own time grew, blue if it shrank. Functions
/// that vanished have no width; [`ProfileDifference::functions`] lists them. `None` if the
/// selection has no samples.
pub fn svg(
    before: &StackProfile,
    after: &StackProfile,
    drawing: &DrawOptions,
) -> Result<Option<String>, TraceError> {
    let mut lines: BTreeMap<String, [u64; 2]> = BTreeMap::new();
    for (side, profile) in [before, after].into_iter().enumerate() {
        for (stack, samples) in fold::lines(profile, drawing.shown, draw::USER) {
            lines.entry(stack).or_default()[side] = (cpus(profile, samples) * PARTS).round() as u64;
        }
    }
    if lines.values().all(|[_, after]| *after == 0) {
        return Ok(None);
    }
    let lines: Vec<String> =
        lines.into_iter().map(|(stack, [before, after])| format!("{stack} {before} {after}")).collect();
    let mut options = draw::options(drawing);
    options.count_name = "millionths of a CPU".to_owned();
    // Otherwise unchanged functions would look like the background.
    options.bgcolors = Some(BackgroundColor::Flat(Color { r: 226, g: 226, b: 226 }));
    let graph = draw::draw(&mut options, &lines)?;
    let legend = [
        ("more time in the function itself than before", (255, 90, 90)),
        ("as before", (250, 250, 250)),
        ("less", (90, 90, 255)),
    ];
    Ok(Some(draw::finish(&graph, drawing, legend.into_iter())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flame::fixture::profile;

    const BEFORE: &str = "40 x task main;aes\n20 x softirq main;handle_softirqs;net_rx_action\n";

    #[test]
    fn twice_the_time_with_twice_the_samples_is_no_difference() {
        let mut long = profile(&BEFORE.replace("40 ", "80 ").replace("20 ", "40 "));
        long.seconds *= 2.0;
        let difference = ProfileDifference::between(&profile(BEFORE), &long, FlameSelection::default());
        assert!(difference.functions.iter().all(|change| change.cpus() == 0.0), "{difference:?}");
    }

    #[test]
    fn functions_are_sorted_by_change() {
        let after = profile("38 x task main;aes\n50 x softirq main;handle_softirqs;nf_hook_slow\n");
        let difference = ProfileDifference::between(&profile(BEFORE), &after, FlameSelection::default());
        let names: Vec<(&str, i64)> = difference
            .functions
            .iter()
            .map(|change| (change.function.name.as_str(), (change.cpus() * 100.0).round() as i64))
            .collect();
        assert_eq!(names, [("nf_hook_slow", 50), ("net_rx_action", -20), ("aes", -2)]);
        let irq = FlameSelection { irq_only: true, per_cpu: false };
        assert!((ProfileDifference::between(&profile(BEFORE), &after, irq).after_cpus - 0.5).abs() < 1e-9);
        let picture = svg(&profile(BEFORE), &after, &DrawOptions::default()).unwrap().unwrap();
        crate::flame::draw::tests::well_formed(&picture).unwrap();
    }

    #[test]
    fn differences_of_event_and_lost_samples_are_noted() {
        let mut clock = profile(BEFORE);
        clock.event = SampleEvent::CpuClock { why: "no PMU".to_owned() };
        clock.cpus[0].lost = 3;
        let notes = ProfileDifference::between(&profile(BEFORE), &clock, FlameSelection::default()).notes;
        assert!(
            notes[0].contains("the CPU clock") && notes[1].contains("3 samples were lost after"),
            "{notes:?}"
        );
    }
}
