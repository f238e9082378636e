//! A real Prometheus scrapes the export of a server under load: the rate it tells is right, and alerts fire when the server
//! is flooded, not before.

use std::io::{BufRead as _, BufReader};
use std::net::UdpSocket;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use linerate_lab::{Lab, LabChild, LabHost};
use linerate_metrics::rules;
use serde_json::Value;

use super::prometheus::{EXPORTER, Prometheus, share, within};
use crate::support::{self, program, skip};

const TEST: &str = "export::a_real_prometheus_tells_the_rate_and_a_livelock";
const SERVER: &str = "198.18.0.1:4099";

/// What a transaction takes the server, at least, when it is to be slow.
const SLOW: Duration = Duration::from_micros(500);

/// Transactions a second while it is calm, and for how long, s.
const CALM: u32 = 300;
const SECONDS: u32 = 8;

/// Alerts that tell of a server that loses more than it serves.
const OF_A_LIVELOCK: [&str; 2] = ["LinerateLivelock", "LinerateReceiveBufferDrops"];

#[test]
fn a_real_prometheus_tells_the_rate_and_a_livelock() {
    if !rustix::process::geteuid().is_root() {
        return skip(TEST, "takes root");
    }
    if Command::new("prometheus").arg("--version").output().is_err() {
        return skip(TEST, "prometheus is not installed");
    }
    let _machine = support::machine();
    let lab = match Lab::builder().queues(2).start() {
        Ok(lab) => lab,
        Err(error) => return skip(TEST, &error.to_string()),
    };
    let directory = tempfile::tempdir().expect("a directory");
    let (receiver, sender) = (lab.receiver(), &lab.senders()[0]);
    let is_slow = serve(receiver);
    let _exporter = export(receiver);
    let prometheus = Prometheus::start(receiver, directory.path(), &hasty_rules());
    within("it is scraped", || prometheus.value("up") == Some(1.0));

    let written = directory.path().join("load.json");
    let load_said = calm_load(sender, &written);
    the_rate_is_right(&prometheus, &load_said);
    let firing = prometheus.firing();
    let fires = |name: &str| firing.iter().any(|alert| alert == name);
    assert!(!fires(OF_A_LIVELOCK[0]), "while it is calm: {firing:?}");
    // Where the machine was busy with others throughout, the server did lose some.
    assert!(load_said["lost"] != 0 || !fires(OF_A_LIVELOCK[1]), "while it is calm: {firing:?}");
    the_dashboard_is_answered(&prometheus);

    is_slow.store(true, Ordering::Relaxed);
    let mut flood = load(sender, &["--flood", "--duration", "60"]);
    within("the alerts fire", || {
        let firing = prometheus.firing();
        OF_A_LIVELOCK.iter().all(|alert| firing.iter().any(|name| name == alert))
    });
    flood.kill().expect("it is ended");
}

/// What Prometheus tells of the generator's run is what the generator says, within 2 per cent. When in a scrape the counter was
/// read is not known, which on a busy machine matters to a rate over some seconds; it does not where the counter stood still
/// before and after.
fn the_rate_is_right(prometheus: &Prometheus<'_>, load: &Value) {
    const COUNTER: &str = "linerate_udp_receive_datagrams_total{family=\"ipv4\"}";
    let over =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a time").as_secs_f64();
    within("it is scraped after the load", || {
        prometheus.value(&format!("timestamp({COUNTER})")).is_some_and(|at| at > over)
    });
    let query = format!("(max_over_time({COUNTER}[2m]) - min_over_time({COUNTER}[2m])) / {SECONDS}");
    let told = prometheus.value(&query).expect("a rate");
    let said = |key: &str| load[key].as_f64().expect("a rate");
    let (answered, offered) = (said("answered_per_second"), said("offered_per_second"));
    // The same, unless the machine is so busy that replies come too late.
    let right = (0.98 * answered..=1.02 * offered).contains(&told);
    assert!(right, "Prometheus tells {told}/s, the generator {answered}/s answered of {offered}/s");
    eprintln!("Prometheus tells {told}/s, the generator {answered}/s answered of {offered}/s");
}

/// Every query of the dashboard, as Grafana would ask it; what a veth has gives something.
fn the_dashboard_is_answered(prometheus: &Prometheus<'_>) {
    let text = std::fs::read_to_string(share("grafana/linerate.json")).expect("the dashboard");
    let dashboard: Value = serde_json::from_str(&text).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels").iter();
    let targets = panels.filter_map(|panel| panel["targets"].as_array()).flatten();
    let mut empty = Vec::new();
    for query in targets.map(|target| target["expr"].as_str().expect("a query")) {
        let asked = query
            .replace("$instance", &format!("127.0.0.1:{EXPORTER}"))
            .replace("$interface", ".+")
            .replace("$__rate_interval", "30s");
        if prometheus.query(&asked).is_empty() {
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
        // Steal is asked for where there is some, which is another query of the same series.
        let gone = empty.iter().filter(|name| *name == series).count();
        assert!(gone <= usize::from(series.contains("machine_cpu")), "{series} gives nothing: {empty:?}");
    }
}

/// The rules as they are shipped, but in a hurry.
fn hasty_rules() -> String {
    let rules = std::fs::read_to_string(share("prometheus/linerate.rules.yml")).expect("the rules");
    let hasty = rules.replace("[5m]", "[6s]");
    let lines = hasty.lines().map(|line| match line.split_once("for: ") {
        Some((indent, _)) => format!("{indent}for: 1s\n"),
        None => format!("{line}\n"),
    });
    lines.collect()
}

/// A server on the receiver, which takes its time once it is told to; it ends with the test.
fn serve(receiver: &LabHost) -> Arc<AtomicBool> {
    let socket = receiver.run(|| UdpSocket::bind(SERVER)).expect("the host runs").expect("a socket");
    let is_slow = Arc::<AtomicBool>::default();
    let told = Arc::clone(&is_slow);
    std::thread::spawn(move || {
        let mut buffer = [0; 2000];
        while let Ok((bytes, client)) = socket.recv_from(&mut buffer) {
            if told.load(Ordering::Relaxed) {
                std::thread::sleep(SLOW);
            }
            // A client that has gone gets no reply.
            let _ = socket.send_to(&buffer[..bytes], client);
        }
    });
    is_slow
}

/// What the generator says of a calm stretch.
fn calm_load(sender: &LabHost, written: &Path) -> Value {
    let (rate, seconds) = (CALM.to_string(), SECONDS.to_string());
    let file = written.to_str().expect("a name");
    let mut calm = load(sender, &["--rate", &rate, "--duration", &seconds, "--json", file]);
    assert!(calm.wait().expect("it ends").success());
    serde_json::from_str(&std::fs::read_to_string(written).expect("written")).expect("JSON")
}

/// `linerate export` on the receiver, once it serves.
fn export(receiver: &LabHost) -> LabChild {
    let mut command = Command::new(program());
    command.arg("export").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = receiver.spawn(command).expect("the command starts");
    let mut lines = BufReader::new(child.stderr.take().expect("a pipe")).lines().map_while(Result::ok);
    let ready = format!("serving metrics on http://127.0.0.1:{EXPORTER}/metrics");
    assert!(lines.by_ref().any(|line| line == ready), "it serves");
    std::thread::spawn(move || lines.for_each(drop));
    child
}

fn load(sender: &LabHost, arguments: &[&str]) -> LabChild {
    let mut command = Command::new(program());
    command.args(["load", SERVER, "--backend", "socket", "--flows", "8", "--quiet"]).args(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    sender.spawn(command).expect("the command starts")
}
