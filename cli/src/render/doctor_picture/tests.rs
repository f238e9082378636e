use super::*;
use crate::render::style::TextStyle;
use linerate_host::recording::RecordedEntry;
use linerate_host::{Host, HostRecording, PacketPath, Scope};
use linerate_testkit::fixture::{Node, fixture};

pub(in crate::render) fn readings(name: &str) -> (PacketPath, Option<PacketPath>) {
    let trees = fixture(name).expect("a fixture").trees();
    let mut paths = trees.iter().map(|tree| {
        let mut recording = HostRecording::new();
        for (path, node) in tree.followed().entries() {
            let entry = match node {
                Node::File(content) => RecordedEntry::File(content.clone().into_bytes()),
                Node::Link(target) => RecordedEntry::Link(target.clone()),
            };
            recording.insert(path, entry);
        }
        PacketPath::observe(&Host::recorded(recording), &Scope::default())
    });
    (paths.next().expect("a reading"), paths.next())
}

fn drawn(name: &str, width: usize) -> String {
    let (first, later) = readings(name);
    let view = later.as_ref().map_or(HostView::once(&first), |later| HostView::twice(&first, later));
    lines(&PathPicture::from_view(&view), TextStyle { width, colour: false }).join("\n")
}

fn fits(text: &str, width: usize) {
    for line in text.lines() {
        assert!(line.chars().count() <= width, "{width} columns: {line}");
    }
}

#[test]
fn twenty_queues_on_one_node_are_one_way() {
    let text = drawn("makita-2016", 120);
    assert!(text.contains("├ node 1: CPU 5-9,15-19\n│ no receive queue's interrupt comes here"), "{text}");
    assert!(text.contains("│ rx 0-19 "), "{text}");
    assert!(text.contains("no RPS → the one socket → 20 threads on any CPU"), "{text}");
}

#[test]
fn the_queue_that_takes_all_is_a_way_of_its_own() {
    let text = drawn("million-packets", 120);
    let row = text.lines().find(|line| line.contains("rx 4 ")).expect("a row for it");
    assert!(row.contains("kpps") && row.contains("CPU 4 "), "{text}");
}

#[test]
fn nothing_is_drawn_where_nothing_is_known() {
    let path = PacketPath::observe(&Host::scripted([("/proc/uptime", "1 1")]), &Scope::default());
    let view = HostView::once(&path);
    assert!(lines(&PathPicture::from_view(&view), TextStyle { width: 80, colour: false }).is_empty());
}

#[test]
fn every_host_stays_within_terminal_and_frame() {
    for name in linerate_testkit::fixture::names() {
        let (first, later) = readings(name);
        let view = later.as_ref().map_or(HostView::once(&first), |later| HostView::twice(&first, later));
        let picture = PathPicture::from_view(&view);
        for width in [80, 120] {
            let text = lines(&picture, TextStyle { width, colour: false }).join("\n");
            fits(&text, width);
            assert!(text.lines().count() <= 60, "{name}: {text}");
        }
        for ways in &picture.interfaces {
            let drawing = PathDrawing::of(ways, picture.service.as_ref());
            assert!(drawing.lines.len() < 1_000, "{name}: {} lines", drawing.lines.len());
            for label in &drawing.labels {
                assert!(label.x < drawing.width && label.y < drawing.height, "{name}: {}", label.text);
            }
        }
    }
}

#[test]
fn transmit_queues_that_send_nothing_are_quiet_lines() {
    let of_transmit = |name: &str| {
        let (first, later) = readings(name);
        let later = later.expect("two readings");
        let picture = PathPicture::from_view(&HostView::twice(&first, &later));
        let drawing = PathDrawing::of(&picture.interfaces[0], picture.service.as_ref());
        let lines = drawing.lines.into_iter().filter(|line| line.told.contains(": tx "));
        lines.map(|line| line.class).collect::<std::collections::BTreeSet<_>>()
    };
    assert_eq!(of_transmit("million-packets"), ["way quiet"].into());
    assert_eq!(of_transmit("makita-2016"), ["way"].into());
}
