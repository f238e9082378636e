//! Hosts with known faults, judged: what is wrong is named, worst first, and nothing else.

mod damage;
mod named;

use linerate_host::recording::RecordedEntry;
use linerate_host::{Diagnosis, Host, HostRecording, HostView, PacketPath, Scope};
use linerate_testkit::specimen::{Node, Specimen, Tree, specimen};

/// A specimen that is there.
fn known(name: &str) -> Specimen {
    specimen(name).expect("one of the specimens")
}

/// The trees of its readings, as a reader finds them who follows links.
fn trees(specimen: &Specimen) -> Vec<Tree> {
    specimen.trees().iter().map(Tree::followed).collect()
}

/// Reads a tree as a capture in memory.
fn observe(tree: &Tree, scope: &Scope) -> PacketPath {
    let mut recording = HostRecording::new();
    for (path, node) in tree.entries() {
        let entry = match node {
            Node::File(content) => RecordedEntry::File(content.clone().into_bytes()),
            Node::Link(target) => RecordedEntry::Link(target.clone()),
        };
        recording.insert(path, entry);
    }
    PacketPath::observe(&Host::recorded(recording), scope)
}

/// What is found by all readings.
fn judge(readings: &[PacketPath]) -> Diagnosis {
    match readings {
        [only] => Diagnosis::of(&HostView::once(only)),
        [before, now] => Diagnosis::of(&HostView::twice(before, now)),
        _ => panic!("{} readings", readings.len()),
    }
}

/// What is found on a specimen, by all its readings.
fn diagnose(specimen: &Specimen, scope: &Scope) -> Diagnosis {
    let readings: Vec<PacketPath> = trees(specimen).iter().map(|tree| observe(tree, scope)).collect();
    judge(&readings)
}
