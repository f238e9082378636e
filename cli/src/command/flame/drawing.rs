//! Flame graphs and folded stacks of what was seen.

use anyhow::{Context as _, Result};
use linerate_trace::flame::{CpuContext, DrawOptions, ProfileView, StackProfile, difference, draw, fold};
use serde::{Deserialize, Serialize};

use super::comparison::FlameComparison;
use super::document::FlameDocument;
use crate::render::flame_text;

/// Which part of a profile is shown, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct FlameView {
    /// Interrupt context alone.
    pub(crate) irq_only: bool,
    /// A graph a CPU.
    pub(crate) per_cpu: bool,
}

impl FlameView {
    pub(super) fn view(self) -> ProfileView {
        ProfileView { irq_only: self.irq_only, per_cpu: self.per_cpu, ..ProfileView::default() }
    }

    /// The profile without what is not shown.
    pub(super) fn part_of(self, profile: &StackProfile) -> StackProfile {
        let mut part = profile.clone();
        if self.irq_only {
            part.stacks.retain(|stack| stack.context.is_interrupt() || stack.context == CpuContext::Idle);
        }
        part
    }
}

/// The flame graph as a file of its own; none without samples.
pub(super) fn svg(document: &FlameDocument) -> Result<Option<String>> {
    drawn(document, true)
}

/// The same for a page.
pub(crate) fn graph_for_page(document: &FlameDocument) -> Result<Option<String>> {
    drawn(document, false)
}

fn drawn(document: &FlameDocument, interactive: bool) -> Result<Option<String>> {
    let Some(profile) = document.profile.as_ref().filter(|_| document.samples() > 0) else { return Ok(None) };
    let what = if document.shown.irq_only { "Interrupt context" } else { "CPU time" };
    let picture = DrawOptions {
        title: format!("{what} on {}", document.host.name),
        subtitle: Some(flame_text::sampled(profile)),
        view: document.shown.view(),
        interactive,
    };
    draw::svg(profile, &picture).context("the flame graph cannot be drawn")
}

/// The graph of what changed as a file of its own; none without samples.
pub(super) fn difference(comparison: &FlameComparison) -> Result<Option<String>> {
    changed(comparison, true)
}

/// The same for a page.
pub(crate) fn difference_for_page(comparison: &FlameComparison) -> Result<Option<String>> {
    changed(comparison, false)
}

fn changed(comparison: &FlameComparison, interactive: bool) -> Result<Option<String>> {
    let Some([before, after]) = comparison.profiles() else { return Ok(None) };
    let picture = DrawOptions {
        title: "CPU time: red has grown, blue has shrunk".to_owned(),
        subtitle: Some(format!("{} against {}", comparison.after.file, comparison.before.file)),
        view: comparison.shown.view(),
        interactive,
    };
    difference::svg(before, after, &picture).context("the flame graph cannot be drawn")
}

/// Folded stacks; none without samples.
pub(super) fn folded(document: &FlameDocument) -> Option<String> {
    let profile = document.profile.as_ref().filter(|_| document.samples() > 0)?;
    Some(fold::folded(profile, document.shown.view()))
}
