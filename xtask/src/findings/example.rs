//! An example of each finding, on fixture hosts.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use linerate_host::finding::Finding;
use linerate_host::{Diagnosis, HostView, OpenedCapture, PacketPath, Scope};
use linerate_testkit::fixture::{Fixture, fixture, names};

#[derive(Debug, Clone)]
pub(super) struct RuleExample {
    /// The fixture's name, for `cargo xtask fixture`.
    pub host: &'static str,
    pub about: &'static str,
    pub finding: Finding,
}

/// The worst finding of each rule on the first host that has one, by the id of the rule.
pub(super) fn examples_by_rule() -> Result<BTreeMap<&'static str, RuleExample>> {
    let mut examples = BTreeMap::new();
    // The host of 128 CPUs is large and has no findings of its own.
    for fixture in names().filter(|name| *name != "many").filter_map(fixture) {
        for finding in findings(&fixture)? {
            let Fixture { name: host, about, .. } = fixture;
            examples.entry(finding.id).or_insert(RuleExample { host, about, finding });
        }
    }
    Ok(examples)
}

/// Findings of a host, worst first.
fn findings(fixture: &Fixture) -> Result<Vec<Finding>> {
    let directory = tempfile::tempdir().context("cannot make a directory")?;
    fixture.write(directory.path()).with_context(|| format!("writing {}", fixture.name))?;
    let OpenedCapture { first, later, .. } = OpenedCapture::open(directory.path())?;
    let scope = Scope::default();
    let before = PacketPath::observe(&first, &scope);
    let later = later.map(|later| PacketPath::observe(&later, &scope));
    let view = later.as_ref().map_or_else(|| HostView::once(&before), |now| HostView::twice(&before, now));
    Ok(Diagnosis::of(&view).findings)
}
