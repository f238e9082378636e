//! A real Prometheus scrapes the export of a server under load. The requests that it shows are
//! right, and alerts fire only when the server is flooded.

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use linerate_lab::{Lab, LabHost};
use serde_json::Value;

use super::lab::LabExportProcess;
use super::prometheus::{EXPORTER, PrometheusServer, share};
use super::rules;
use crate::support::{
    self, document_of, is_installed, is_root, program, run_on, start_lab, start_on, within,
};

const SERVER: &str = "198.18.0.1:4099";

/// Minimum time per transaction of the slow server.
const SLOW: Duration = Duration::from_micros(500);

/// Transactions per second before the flood.
const CALM: &str = "300";

/// Alerts that fire when the server is flooded.
const LIVELOCK_ALERTS: [&str; 2] = ["LinerateLivelock", "LinerateReceiveBufferDrops"];

#[test]
fn prometheus_shows_the_requests_of_a_load_and_alerts_on_a_flood() {
    if !is_root() || !is_installed("prometheus") {
        return;
    }
    support::machine();
    let Some(lab) = start_lab(Lab::builder().queues(2)) else { return };
    let directory = tempfile::tempdir().expect("a directory");
    let (receiver, sender) = (lab.receiver(), &lab.senders()[0]);
    let is_slow = serve(receiver);
    let exporter = LabExportProcess::start(receiver, &[]);
    assert_eq!(exporter.address.port(), EXPORTER);
    let prometheus = PrometheusServer::start(receiver, directory.path(), &fast_rules());
    within(30, "Prometheus scrapes the exporter", || prometheus.value("up") == Some(1.0));

    let has_loss = assert_counts_match(&prometheus, sender);
    let firing = prometheus.firing_alerts();
    let fires = |name: &str| firing.iter().any(|alert| alert == name);
    assert!(!fires(LIVELOCK_ALERTS[0]), "while it is calm: {firing:?}");
    assert!(has_loss || !fires(LIVELOCK_ALERTS[1]), "while it is calm: {firing:?}");
    assert_dashboard_has_values(&prometheus);

    is_slow.store(true, Ordering::Relaxed);
    let flood = ["load", SERVER, "--backend", "socket", "--flows", "8", "--flood", "--duration", "60"];
    let mut flood = start_on(sender, program(), &[&flood[..], &["--quiet"]].concat());
    within(30, "the alerts fire", || {
        let firing = prometheus.firing_alerts();
        LIVELOCK_ALERTS.iter().all(|alert| firing.iter().any(|name| name == alert))
    });
    flood.kill().expect("the flood is killed");
}

/// Sends at a low rate. The counter has to grow by the number of requests that the server read.
/// Returns whether requests were lost, as on a busy machine.
fn assert_counts_match(prometheus: &PrometheusServer<'_>, sender: &LabHost) -> bool {
    const COUNTER: &str = "linerate_udp_receive_datagrams_total{family=\"ipv4\"}";
    let before = prometheus.value(COUNTER).expect("a value");
    let load =
        ["load", SERVER, "--backend", "socket", "--rate", CALM, "--duration", "5", "--quiet", "--json", "-"];
    let load = document_of(&run_on(sender, program(), &load));
    let [sent, answered] = ["sent", "answered"].map(|key| load["result"][key].as_f64().expect("a count"));
    within(30, "the scrape after the load", || {
        let growth = prometheus.value(COUNTER).expect("a value") - before;
        assert!(growth <= sent, "{growth} of {load}");
        growth >= answered
    });
    answered < sent
}

/// Runs every query of the dashboard as Grafana would. Series that a veth has must return values.
fn assert_dashboard_has_values(prometheus: &PrometheusServer<'_>) {
    let text = std::fs::read_to_string(share("grafana/linerate.json")).expect("the dashboard");
    let dashboard: Value = serde_json::from_str(&text).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels").iter();
    let targets = panels.filter_map(|panel| panel["targets"].as_array()).flatten();
    let mut empty = Vec::new();
    for query in targets.map(|target| target["expr"].as_str().expect("a query")) {
        let expression = query
            .replace("$instance", &format!("127.0.0.1:{EXPORTER}"))
            .replace("$interface", ".+")
            .replace("$__rate_interval", "30s");
        if prometheus.query(&expression).is_empty() {
            empty.extend(rules::series(query).into_iter().map(str::to_owned));
        }
    }
    for series in [
        "linerate_link_receive_packets_total",
        "linerate_machine_cpu_seconds_total",
        "linerate_softirq_processed_packets_total",
        "linerate_route_receive_packets_total",
        "linerate_socket_fill_ratio",
        "linerate_thread_cpu_seconds_total",
        "linerate_scrape_duration_seconds",
    ] {
        // The query for steal time uses the same series and is empty on machines without steal
        // time.
        let empty_count = empty.iter().filter(|name| *name == series).count();
        assert!(
            empty_count <= usize::from(series.contains("machine_cpu")),
            "{series} has no values: {empty:?}"
        );
    }
}

/// The shipped rules with ranges of seconds, so that alerts fire soon.
fn fast_rules() -> String {
    let rules = std::fs::read_to_string(share("prometheus/linerate.rules.yml")).expect("the rules");
    let rules = rules.replace("[5m]", "[6s]");
    let lines = rules.lines().map(|line| match line.split_once("for: ") {
        Some((indent, _)) => format!("{indent}for: 1s\n"),
        None => format!("{line}\n"),
    });
    lines.collect()
}

/// Starts a server on the receiver, which becomes slow when the returned flag is set. The server
/// ends with the test.
fn serve(receiver: &LabHost) -> Arc<AtomicBool> {
    let socket = receiver.run(|| UdpSocket::bind(SERVER)).expect("the host runs").expect("a socket");
    let is_slow = Arc::<AtomicBool>::default();
    let slow_flag = Arc::clone(&is_slow);
    std::thread::spawn(move || {
        let mut buffer = [0; 2000];
        while let Ok((bytes, client)) = socket.recv_from(&mut buffer) {
            if slow_flag.load(Ordering::Relaxed) {
                std::thread::sleep(SLOW);
            }
            // A client that has gone gets no reply.
            let _ = socket.send_to(&buffer[..bytes], client);
        }
    });
    is_slow
}
