use linerate_host::{Host, PacketPath, Scope};
use linerate_testkit::fixture::fixture;

use super::*;
use crate::fixture_hosts;
use crate::render::style::TextStyle;
use crate::render::{html, text};

/// The readings of a fixture host.
pub(crate) fn readings(name: &str) -> (PacketPath, Option<PacketPath>) {
    let fixture = fixture(name).expect("a fixture");
    let [first, later] =
        fixture_hosts::readings(&fixture).map(|host| PacketPath::observe(&host, &Scope::default()));
    (first, Some(later))
}

/// The result for a fixture host, with two unknown values added.
pub(crate) fn fixture_diagnosis(name: &str) -> Envelope<DoctorResult> {
    let (first, later) = readings(name);
    let view = later.as_ref().map_or(HostView::once(&first), |later| HostView::twice(&first, later));
    let mut diagnosis = Diagnosis::of(&view);
    diagnosis.unknown.extend(["link[eth0].rings", "link[eth0].coalescing"].map(no_privilege));
    let result = DoctorResult::new(&view, &diagnosis, false, &[]).expect("JSON");
    envelope(&view, Some(1_772_355_000), result)
}

fn no_privilege(what: &str) -> UnknownItem {
    UnknownItem { what: what.to_owned(), why: "asking eth0: no privilege".to_owned() }
}

fn paths(name: &str) -> PacketPaths {
    fixture_diagnosis(name).result.paths
}

/// Only the drawing of the path.
fn path_text(name: &str, width: usize) -> String {
    let envelope = fixture_diagnosis(name);
    let document = Document { sections: path_sections(&envelope.result), ..Document::default() };
    text::text(&document, TextStyle { width, colour: false })
}

#[test]
fn twenty_queues_on_one_node_are_one_lane() {
    let text = path_text("makita-2016", 120);
    assert!(
        text.contains("├ node 1: CPU 5-9,15-19\n│ no interrupt of a receive queue arrives here"),
        "{text}"
    );
    assert!(text.contains("│ rx 0-19 "), "{text}");
    assert!(text.contains("no RPS → the one socket → 20 threads on any CPU"), "{text}");
}

#[test]
fn a_usb_interface_has_unknown_cpus_and_queries_are_no_services() {
    let usb0 = "/sys/class/net/usb0";
    let sockets = r#"[{"local": "10.0.0.1:53", "inode": 700}, {"local": "0.0.0.0:40000", "inode": 701}]"#;
    let files = [
        ("/proc/interrupts", "    CPU0\n"),
        ("/calls/sock_diag/udp4.json", sockets),
        (&format!("{usb0}/operstate"), "up\n"),
        (&format!("{usb0}/queues/rx-0/rps_cpus"), "0\n"),
        (&format!("{usb0}/device/uevent"), "DRIVER=cdc_ether\n"),
        (
            "/calls/ethtool/usb0/driver.json",
            r#"{"name": "cdc_ether", "version": "1", "firmware": "", "bus": "1-1"}"#,
        ),
    ];
    let subsystem = [(&*format!("{usb0}/device/subsystem"), "../../bus/usb")];
    let host = Host::recorded(linerate_host::HostRecording::from_files(files).with_links(subsystem));
    let scope = Scope { interfaces: vec!["usb0".to_owned()], ..Scope::default() };
    let paths = PacketPaths::from_view(&HostView::once(&PacketPath::observe(&host, &scope)));
    assert_eq!(paths.interfaces[0].queues[0].napi, None);
    assert_eq!(paths.service.map(|service| service.name).as_deref(), Some("UDP 10.0.0.1:53"));
    assert!(paths.other_services.is_empty());
}

#[test]
fn queues_of_no_single_node_have_their_own_group() {
    let mut host = paths("makita-2016");
    let paths = &mut host.interfaces[0];
    for queue in &mut paths.queues {
        queue.napi = Some(paths.online.clone());
    }
    let groups = flows(paths, None);
    let summaries: Vec<_> =
        groups.iter().map(|group| (group.heading.as_str(), group.rows.len(), group.empty)).collect();
    assert_eq!(
        summaries,
        [
            ("node 0: CPU 0-4,10-14, with the NIC", 0, ""),
            ("node 1: CPU 5-9,15-19", 0, ""),
            ("any node", 1, "")
        ]
    );
}

#[test]
fn the_busiest_queue_has_its_own_lane() {
    let text = path_text("million-packets", 120);
    let row = text.lines().find(|line| line.contains("rx 4 ")).expect("a row for rx 4");
    assert!(row.contains("kpps") && row.contains("CPU 4 "), "{text}");
}

#[test]
fn path_sections_without_known_values_are_empty() {
    let path = PacketPath::observe(&Host::scripted([("/proc/uptime", "1 1")]), &Scope::default());
    let view = HostView::once(&path);
    let result = DoctorResult::new(&view, &Diagnosis::of(&view), false, &[]).expect("JSON");
    assert!(path_sections(&result).iter().all(|section| {
        section.blocks_for(Audience::Text).chain(section.blocks_for(Audience::Page)).next().is_none()
    }));
}

#[test]
fn the_service_is_listed_with_its_cpus_if_no_interface_is_drawn() {
    let mut envelope = fixture_diagnosis("makita-2016");
    envelope.result.paths.interfaces.clear();
    let text = text::text(&envelope.document(), TextStyle { width: 120, colour: false });
    assert!(text.contains("one socket, 20 threads on any CPU"), "{text}");
}

#[test]
fn drawings_of_every_fixture_fit_the_terminal_and_the_frame() {
    for name in linerate_testkit::fixture::names() {
        for width in [80, 120] {
            let text = path_text(name, width);
            let long = text.lines().find(|line| line.chars().count() > width);
            assert_eq!(long, None, "{name}, {width} columns");
            assert!(text.lines().count() <= 60, "{name}: {text}");
        }
        let host = paths(name);
        for paths in &host.interfaces {
            let drawing = PathDrawing::new(paths, host.service.as_ref());
            assert!(drawing.lines.len() < 1_000, "{name}: {} lines", drawing.lines.len());
            for label in &drawing.labels {
                assert!(label.x < drawing.width && label.y < drawing.height, "{name}: {}", label.text);
            }
        }
    }
}

#[test]
fn lines_of_idle_transmit_queues_have_the_class_quiet() {
    let classes = |name: &str| {
        let host = paths(name);
        let drawing = PathDrawing::new(&host.interfaces[0], host.service.as_ref());
        let lines = drawing.lines.into_iter().filter(|line| line.told.contains(": tx "));
        lines.map(|line| line.class).collect::<std::collections::BTreeSet<_>>()
    };
    assert_eq!(classes("million-packets"), ["way quiet"].into());
    assert_eq!(classes("makita-2016"), ["way"].into());
}

#[test]
fn queues_without_an_interrupt_have_lines_from_queue_to_transmit_queue() {
    let mut host = paths("makita-2016");
    host.service = None;
    let paths = &mut host.interfaces[0];
    for queue in &mut paths.queues {
        (queue.napi, queue.rps) = (Some(CpuSet::new()), Some(CpuSet::new()));
    }
    let drawing = PathDrawing::new(paths, None);
    let labels: Vec<&str> = drawing.lines.iter().map(|line| line.told.as_str()).collect();
    assert!(labels.iter().any(|label| label.contains("on the sender's CPU")), "{labels:?}");
    assert!(labels.iter().any(|label| label.starts_with("tx")), "{labels:?}");
}

#[test]
fn diagnosis_text_is_short_unless_full_is_set() {
    let style = TextStyle { width: 100, colour: false };
    let mut document = fixture_diagnosis("makita-2016").document();
    let short = text::text(&document, style);
    assert!(short.lines().all(|line| line.chars().count() <= 100), "{short}");
    assert!(short.contains("\nUnknown\n"), "{short}");
    assert!(short.contains("--full"), "{short}");
    document.full = true;
    let full = text::text(&document, style);
    assert!(full.contains("  source ") && full.contains("  kernels "), "{full}");
    assert!(full.contains("link[eth0].rings, link[eth0].coalescing: asking eth0"), "{full}");
}

#[test]
fn unknown_values_of_one_kind_share_a_line() {
    let mut eth1 = no_privilege("link[eth1].rings");
    eth1.why = "asking eth1: no privilege".to_owned();
    let unknown = [no_privilege("link[eth0].rings"), eth1];
    assert_eq!(
        by_kind(&unknown),
        [("asking eth0: no privilege", vec!["link[eth0].rings", "link[eth1].rings"])]
    );
    assert_eq!(by_reason(&unknown).len(), 2);
}

#[test]
fn host_text_is_escaped_in_the_page() {
    let name = "<script>alert(1)</script>&\"";
    let host = Host::scripted([
        ("/proc/sys/kernel/osrelease".to_owned(), format!("4.6.3{name}\n")),
        ("/proc/cpuinfo".to_owned(), format!("processor : 0\nmodel name : {name}\n")),
    ]);
    let path = PacketPath::observe(&host, &Scope::default());
    let view = HostView::once(&path);
    let result = DoctorResult::new(&view, &Diagnosis::of(&view), false, &[]).expect("JSON");
    let document = envelope(&view, None, result).document();
    let page = html::page(&document).expect("a page");
    assert!(!page.contains("<script") && page.contains("4.6.3"), "{page}");
    assert!(document.verdict.contains("values are unknown"), "{}", document.verdict);
}
