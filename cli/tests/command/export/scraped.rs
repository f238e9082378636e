//! A real Prometheus scrapes the export of a server under load. The rate that it shows is right,
//! and alerts fire only when the server is flooded.

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use linerate_lab::{Lab, LabChild, LabHost};
use serde_json::Value;

use super::prometheus::{EXPORTER, PrometheusServer, share};
use super::steady::SteadyLoad;
use super::{metrics_address, rules};
use crate::support::{self, await_line, is_installed, is_root, program, start_lab, start_on, within};

const TEST: &str = "export::prometheus_shows_the_load_rate_and_alerts_on_a_flood";
const SERVER: &str = "198.18.0.1:4099";

/// Minimum time per transaction of the slow server.
const SLOW: Duration = Duration::from_micros(500);

/// Transactions per second before the flood.
const CALM: u32 = 300;

/// Alerts that fire when the server is flooded.
const LIVELOCK_ALERTS: [&str; 2] = ["LinerateLivelock", "LinerateReceiveBufferDrops"];

#[test]
fn prometheus_shows_the_load_rate_and_alerts_on_a_flood() {
    if !is_root(TEST) || !is_installed(TEST, "prometheus") {
        return;
    }
    let _machine = support::machine();
    let Some(lab) = start_lab(TEST, Lab::builder().queues(2)) else { return };
    let directory = tempfile::tempdir().expect("a directory");
    let (receiver, sender) = (lab.receiver(), &lab.senders()[0]);
    let is_slow = serve(receiver);
    let _exporter = export(receiver);
    let prometheus = PrometheusServer::start(receiver, directory.path(), &fast_rules());
    within(30, "Prometheus scrapes the exporter", || prometheus.value("up") == Some(1.0));

    let steady = SteadyLoad::start(sender, SERVER, CALM);
    assert_rate_matches(&prometheus, &steady);
    let firing = prometheus.firing_alerts();
    let fires = |name: &str| firing.iter().any(|alert| alert == name);
    assert!(!fires(LIVELOCK_ALERTS[0]), "while it is calm: {firing:?}");
    // On a busy machine the server may lose requests before the flood, too.
    assert!(steady.lost() || !fires(LIVELOCK_ALERTS[1]), "while it is calm: {firing:?}");
    assert_dashboard_has_values(&prometheus);
    drop(steady);

    is_slow.store(true, Ordering::Relaxed);
    let flood = ["load", SERVER, "--backend", "socket", "--flows", "8", "--flood", "--duration", "60"];
    let mut flood = start_on(sender, program(), &[&flood[..], &["--quiet"]].concat());
    within(30, "the alerts fire", || {
        let firing = prometheus.firing_alerts();
        LIVELOCK_ALERTS.iter().all(|alert| firing.iter().any(|name| name == alert))
    });
    flood.kill().expect("the flood is killed");
}

/// Under steady load, the rate in Prometheus has to be the generator's own rate over the same time,
/// within 2 %.
///
/// A sample has the start time of its scrape. It is unknown when during the scrape the counter was
/// read. So the generator's count is taken over the shortest and the longest possible time between
/// both ends. Both ends are quick scrapes, unless the machine is too slow for them.
fn assert_rate_matches(prometheus: &PrometheusServer<'_>, steady: &SteadyLoad) {
    const COUNTER: &str = "linerate_udp_receive_datagrams_total{family=\"ipv4\"}";
    const WINDOW: f64 = 10.0;
    /// In seconds: 1 % of the window.
    const QUICK: f64 = 0.1;
    const AGAIN: f64 = 0.6;
    const TRIES: u32 = 20;
    let mut tries = 0;
    let mut window = None;
    within(30, "a window of steady load", || {
        let durations = prometheus.samples("scrape_duration_seconds[40s]");
        let duration_at =
            |time: f64| durations.iter().find(|(at, _)| *at == time).map(|(_, seconds)| *seconds);
        let samples = prometheus.samples(&format!("{COUNTER}[40s]"));
        let Some((last, _)) = samples.last().copied() else { return false };
        let begin = samples.partition_point(|(at, _)| *at < last - WINDOW);
        let Some((first, _)) = samples.get(begin).copied() else { return false };
        // A scrape soon after another one gets the same response again, so the sample is older than
        // its time.
        let is_fresh = |index: Option<usize>| {
            let pair = index.and_then(|index| samples.get(index..index + 2));
            pair.is_some_and(|pair| {
                duration_at(pair[0].0).is_some_and(|duration| pair[1].0 - pair[0].0 - duration > AGAIN)
            })
        };
        if !is_fresh(begin.checked_sub(1)) || !is_fresh(samples.len().checked_sub(2)) {
            return false;
        }
        let (Some(before), Some(after)) = (duration_at(first), duration_at(last)) else { return false };
        // If scrapes at the start of the window were missed, Prometheus extrapolates.
        let is_whole = first - (last - WINDOW) < 1.05 && first > steady.since();
        tries += u32::from(is_whole);
        window = is_whole.then_some((first, before, last, after));
        is_whole && (before.max(after) <= QUICK || tries > TRIES)
    });
    let (first, before, last, after) = window.expect("a window");
    let rate = prometheus.value_at(&format!("rate({COUNTER}[{WINDOW}s])"), last).expect("a rate");
    let seconds = last - first;
    let least = steady.answered_between(first + before, last) as f64 / seconds;
    let most = steady.sent_between(first, last + after) as f64 / seconds;
    let summary = format!(
        "Prometheus reports {rate:.1}/s over {seconds:.1} s, the generator {least:.1} to {most:.1}/s; the scrapes at both ends took \
         {before:.3} and {after:.3} s"
    );
    assert!((0.98 * least..=1.02 * most).contains(&rate), "{summary}");
    eprintln!("{summary}");
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

/// Starts `linerate export` on the receiver and waits until it serves.
fn export(receiver: &LabHost) -> LabChild {
    let mut child = start_on(receiver, program(), &["export"]);
    let (address, _) = await_line(&mut child.stderr, metrics_address);
    assert_eq!(address.port(), EXPORTER);
    child
}
