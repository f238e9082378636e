//! Fixture hosts for tests.

use linerate_host::recording::RecordedEntry;
use linerate_host::{Host, HostRecording};
use linerate_testkit::fixture::{Fixture, Node};

/// The two readings of a fixture host.
pub(crate) fn readings(fixture: &Fixture) -> [Host; 2] {
    fixture.trees().map(|tree| {
        let mut recording = HostRecording::new();
        for (path, node) in tree.followed().entries() {
            let entry = match node {
                Node::File(content) => RecordedEntry::File(content.clone().into_bytes()),
                Node::Link(target) => RecordedEntry::Link(target.clone()),
            };
            recording.insert(path, entry);
        }
        Host::recorded(recording)
    })
}
