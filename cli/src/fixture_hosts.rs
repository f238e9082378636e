//! Fixture hosts for tests.

use linerate_host::{Host, HostRecording};
use linerate_testkit::fixture::Fixture;

/// The two readings of a fixture host.
pub(crate) fn readings(fixture: &Fixture) -> [Host; 2] {
    fixture.trees().map(|tree| {
        let tree = tree.followed();
        Host::recorded(HostRecording::from_files(tree.files()).with_links(tree.links()))
    })
}
