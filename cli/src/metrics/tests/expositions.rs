//! Whole expositions, of fixture hosts.

use std::collections::BTreeSet;

use super::{Exporter, ExporterOptions, Exposition, ExpositionFormat, FAMILIES, MetricKind, family, text};
use linerate_host::recording::RecordedEntry;
use linerate_host::{Host, HostRecording};
use linerate_testkit::fixture::{Fixture, Node, fixture, many};

/// A fixture's exposition after this many scrapes.
fn exported(fixture: &Fixture, options: &ExporterOptions, scrapes: usize) -> Exposition {
    let mut recording = HostRecording::new();
    for (path, node) in fixture.trees()[0].followed().entries() {
        let entry = match node {
            Node::File(content) => RecordedEntry::File(content.clone().into_bytes()),
            Node::Link(target) => RecordedEntry::Link(target.clone()),
        };
        recording.insert(path, entry);
    }
    let mut exporter = Exporter::new(Host::recorded(recording), options);
    (1..scrapes).for_each(|_| drop(exporter.scrape()));
    exporter.scrape()
}

fn value(exposition: &Exposition, series: &str, labels: &[&str]) -> Option<f64> {
    let (_, rows) = exposition.families.iter().find(|(family, _)| family.series() == series)?;
    rows.iter().find(|row| row.labels == labels).map(|row| row.number.value())
}

#[test]
fn every_series_is_of_the_table_and_there_once() {
    let known = linerate_testkit::fixture::names().filter(|name| *name != "many").filter_map(fixture);
    for host in known.chain([many(4, 2, 8)]) {
        let name = host.name;
        let exposition = exported(&host, &ExporterOptions { pids: true, ..ExporterOptions::default() }, 2);
        let order: Vec<usize> = exposition
            .families
            .iter()
            .map(|(family, _)| {
                FAMILIES.iter().position(|known| known.name == family.name).expect("in the table")
            })
            .collect();
        assert_eq!(order.iter().collect::<BTreeSet<_>>().len(), order.len(), "{name}: a family twice");
        for (family, rows) in &exposition.families {
            let labels: BTreeSet<_> = rows.iter().map(|row| &row.labels).collect();
            assert_eq!(labels.len(), rows.len(), "{name}: {}: a series twice", family.name);
            for row in rows {
                assert_eq!(row.labels.len(), family.labels.len(), "{name}: {}", family.name);
                let fine = row.number.value().is_finite() && (row.number.value() >= 0.0);
                assert!(fine, "{name}: {} {row:?}", family.name);
            }
        }
        let text = text::write(&exposition, ExpositionFormat::OpenMetrics);
        let series = text.lines().filter(|line| !line.starts_with('#'));
        for line in series {
            let name = line.split(['{', ' ']).next().expect("a name");
            assert!(family(name).is_some(), "{line}");
        }
    }
}

#[test]
fn the_same_reading_twice_adds_nothing() {
    let host = fixture("makita-2016").expect("a fixture");
    let (once, twice) =
        (exported(&host, &ExporterOptions::default(), 1), exported(&host, &ExporterOptions::default(), 2));
    for ((family, first), (_, second)) in once.families.iter().zip(&twice.families) {
        let of_host = !family.name.contains("exporter") && matches!(family.kind, MetricKind::Counter(_));
        assert!(!of_host || first == second, "{}", family.name);
    }
}

#[test]
fn a_big_host_has_a_series_a_queue_and_no_more_than_it_may() {
    let host = many(32, 4, 16);
    let all = exported(&host, &ExporterOptions::default(), 1);
    assert_eq!(value(&all, "linerate_softirq_processed_packets_total", &["31"]), Some(4_000_000.0));
    assert_eq!(value(&all, "linerate_machine_cpu_seconds_total", &["31", "softirq"]), Some(6_400.0));
    let queues = |exposition: &Exposition| {
        let families = &exposition.families;
        let (_, rows) = families
            .iter()
            .find(|(family, _)| family.name == "linerate_rss_receive_packets")
            .expect("queues");
        rows.len()
    };
    assert_eq!(queues(&all), 64);
    let few = exported(&host, &ExporterOptions { most_series: 10, ..ExporterOptions::default() }, 1);
    // Ten queues, and for each interface a series for its other queues.
    assert!((11..=14).contains(&queues(&few)), "{}", queues(&few));
    assert_eq!(value(&few, "linerate_folded_series", &["linerate_rss_receive_packets"]), Some(54.0));
    let sum = |exposition: &Exposition| -> f64 {
        let families = &exposition.families;
        let (_, rows) = families
            .iter()
            .find(|(family, _)| family.name == "linerate_rss_receive_packets")
            .expect("queues");
        rows.iter().map(|row| row.number.value()).sum()
    };
    assert!((sum(&all) - sum(&few)).abs() < 0.5);
}

#[test]
fn what_cannot_be_read_is_absent_and_said() {
    let exposition = {
        let mut exporter = Exporter::new(Host::scripted::<String, String>([]), &ExporterOptions::default());
        exporter.scrape()
    };
    assert_eq!(value(&exposition, "linerate_unknown", &["machine.kernel", "missing"]), Some(1.0));
    assert!(value(&exposition, "linerate_build_info", &[env!("CARGO_PKG_VERSION")]).is_some());
    assert!(exposition.families.iter().all(|(family, _)| !family.name.contains("softirq")));
}

#[test]
fn findings_are_told_by_id_and_severity() {
    let exposition = exported(&fixture("makita-2016").expect("a fixture"), &ExporterOptions::default(), 1);
    let (_, rows) =
        exposition.families.iter().find(|(family, _)| family.name == "linerate_findings").expect("findings");
    let ids: BTreeSet<&str> = rows.iter().map(|row| row.labels[0].as_str()).collect();
    assert!(ids.contains("rss.table-misses-queues"), "{ids:?}");
    assert!(ids.iter().all(|id| linerate_host::diagnosis::rule(id).is_some()));
}
