//! Whole expositions, of fixture hosts.

use std::collections::BTreeSet;

use super::{
    Exporter, ExporterOptions, Exposition, ExpositionFormat, FAMILIES, MetricKind, OptionalMetrics, family,
    text,
};
use crate::fixture_hosts;
use linerate_host::Host;
use linerate_testkit::fixture::{Fixture, fixture, many};

/// A fixture's exposition after this many scrapes.
fn fixture_exposition(fixture: &Fixture, options: ExporterOptions, scrapes: usize) -> Exposition {
    let [host, _] = fixture_hosts::readings(fixture);
    let mut exporter = Exporter::new(host, options);
    (1..scrapes).for_each(|_| drop(exporter.scrape()));
    exporter.scrape()
}

fn value(exposition: &Exposition, series: &str, labels: &[&str]) -> Option<f64> {
    let (_, rows) = exposition.families.iter().find(|(family, _)| family.series() == series)?;
    rows.iter().find(|row| row.labels == labels).map(|row| row.number.value())
}

/// The numbers of a family's series.
fn numbers(exposition: &Exposition, name: &str) -> Vec<f64> {
    let (_, rows) = exposition.families.iter().find(|(family, _)| family.name == name).expect("a family");
    rows.iter().map(|row| row.number.value()).collect()
}

#[test]
fn every_series_is_unique_and_of_a_listed_family() {
    let fixtures = linerate_testkit::fixture::names().filter(|name| *name != "many").filter_map(fixture);
    for host in fixtures.chain([many(4, 2, 8)]) {
        let name = host.name;
        let exposition = fixture_exposition(
            &host,
            ExporterOptions { with: vec![OptionalMetrics::Pids], ..ExporterOptions::default() },
            2,
        );
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
fn scraping_the_same_reading_twice_adds_nothing() {
    let host = fixture("makita-2016").expect("a fixture");
    let (once, twice) = (
        fixture_exposition(&host, ExporterOptions::default(), 1),
        fixture_exposition(&host, ExporterOptions::default(), 2),
    );
    for ((family, first), (_, second)) in once.families.iter().zip(&twice.families) {
        let of_host = !family.name.contains("exporter") && matches!(family.kind, MetricKind::Counter(_));
        assert!(!of_host || first == second, "{}", family.name);
    }
}

#[test]
fn each_queue_has_a_series_up_to_the_series_limit() {
    let host = many(32, 4, 16);
    let all = fixture_exposition(&host, ExporterOptions::default(), 1);
    assert_eq!(value(&all, "linerate_softirq_processed_packets_total", &["31"]), Some(4_000_000.0));
    assert_eq!(value(&all, "linerate_machine_cpu_seconds_total", &["31", "softirq"]), Some(6_400.0));
    let all_queues = numbers(&all, "linerate_rss_receive_packets");
    assert_eq!(all_queues.len(), 64);
    let few = fixture_exposition(&host, ExporterOptions { max_series: 10, ..ExporterOptions::default() }, 1);
    // Ten queues, and for each interface a series for its other queues.
    let few_queues = numbers(&few, "linerate_rss_receive_packets");
    assert!((11..=14).contains(&few_queues.len()), "{few_queues:?}");
    assert_eq!(value(&few, "linerate_folded_series", &["linerate_rss_receive_packets"]), Some(54.0));
    assert!((all_queues.iter().sum::<f64>() - few_queues.iter().sum::<f64>()).abs() < 0.5);
}

#[test]
fn several_ports_include_services_on_the_loopback_and_no_other_services() {
    let header = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref \
                  pointer drops\n";
    let socket = |address: &str, inode: u32| {
        format!(
            "1: {address} 00000000:0000 07 00000000:00000000 00:00000000 00000000 0 0 {inode} 2 0000000000000000 0\n"
        )
    };
    let sockets = [("0100007F:0035", 1), ("00000000:0355", 2), ("00000000:007B", 3)];
    let table = sockets.map(|(address, inode)| socket(address, inode)).concat();
    for ports in [vec![53], vec![53, 853], vec![53, 123, 853]] {
        let host = Host::scripted([("/proc/net/udp", format!("{header}{table}"))]);
        let options = ExporterOptions { ports: ports.clone(), ..ExporterOptions::default() };
        let exposition = Exporter::new(host, options).scrape();
        for port in [53, 123, 853] {
            let sockets = value(&exposition, "linerate_socket_sockets", &["udp", &port.to_string()]);
            assert_eq!(sockets, ports.contains(&port).then_some(1.0), "{ports:?} {port}");
        }
    }
}

#[test]
fn unreadable_values_are_absent_and_counted_as_unknown() {
    let host = Host::scripted::<String, String>([]);
    let exposition = Exporter::new(host, ExporterOptions::default()).scrape();
    assert_eq!(value(&exposition, "linerate_unknown", &["machine.kernel", "missing"]), Some(1.0));
    assert!(value(&exposition, "linerate_build_info", &[env!("CARGO_PKG_VERSION")]).is_some());
    assert!(exposition.families.iter().all(|(family, _)| !family.name.contains("softirq")));
}

#[test]
fn findings_have_the_id_and_severity_of_their_rule() {
    let exposition =
        fixture_exposition(&fixture("makita-2016").expect("a fixture"), ExporterOptions::default(), 1);
    let (_, rows) =
        exposition.families.iter().find(|(family, _)| family.name == "linerate_findings").expect("findings");
    let ids: BTreeSet<&str> = rows.iter().map(|row| row.labels[0].as_str()).collect();
    let labels = ["rss.table-misses-queues", "medium"];
    assert_eq!(value(&exposition, "linerate_findings", &labels), Some(1.0), "{rows:?}");
    assert!(ids.iter().all(|id| linerate_host::diagnosis::rule(id).is_some()));
}
