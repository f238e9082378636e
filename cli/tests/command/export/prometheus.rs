//! A Prometheus on a lab's receiver.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::support::within;
use linerate_lab::{LabChild, LabHost};
use serde_json::Value;

/// Ports on the receiver. No other process uses its network namespace.
pub(super) const PROMETHEUS: u16 = 9090;
pub(super) const EXPORTER: u16 = 9853;

/// Time limit for each answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// A Prometheus that scrapes the exporter on the same host and evaluates the rules, once per
/// second.
pub(super) struct PrometheusServer<'h> {
    host: &'h LabHost,
    child: LabChild,
}

pub(super) fn share(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../share").join(name)
}

impl<'h> PrometheusServer<'h> {
    /// Starts Prometheus with these rules. Its files go into `directory`.
    pub(super) fn start(host: &'h LabHost, directory: &Path, rules: &str) -> Self {
        let file = |name: &str, text: &str| {
            let path = directory.join(name);
            std::fs::write(&path, text).expect("written");
            path
        };
        file("linerate.rules.yml", rules);
        let configuration = format!(
            "global: {{ scrape_interval: 1s, evaluation_interval: 1s }}\nrule_files: [linerate.rules.yml]\n\
             scrape_configs: [{{ job_name: linerate, static_configs: [{{ targets: ['127.0.0.1:{EXPORTER}'] }}] }}]\n"
        );
        let configuration = file("prometheus.yml", &configuration);
        let log = std::fs::File::create(directory.join("prometheus.log")).expect("made");
        let mut command = Command::new("prometheus");
        command
            .arg(format!("--config.file={}", configuration.display()))
            .arg(format!("--storage.tsdb.path={}", directory.join("data").display()))
            .arg(format!("--web.listen-address=127.0.0.1:{PROMETHEUS}"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let child = host.spawn(command).expect("prometheus starts");
        let prometheus = Self { host, child };
        within(30, "prometheus is ready", || {
            page(host, PROMETHEUS, "/-/ready").is_some_and(|text| text.contains(" 200 OK"))
        });
        prometheus
    }

    /// The result of a query for the current time.
    pub(super) fn query(&self, query: &str) -> Vec<Value> {
        let text = page(self.host, PROMETHEUS, &format!("/api/v1/query?query={}", percent_encode(query)));
        let text = text.expect("an answer");
        let (_, body) = text.split_once("\r\n\r\n").expect("a body");
        let mut answer: Value = serde_json::from_str(body).expect("JSON");
        assert_eq!(answer["status"], "success", "{query}: {answer}");
        match answer["data"]["result"].take() {
            Value::Array(rows) => rows,
            other => panic!("{query}: {other}"),
        }
    }

    /// The single value of a query for the current time, or `None` if the result is empty.
    pub(super) fn value(&self, query: &str) -> Option<f64> {
        let rows = self.query(query);
        assert!(rows.len() < 2, "{query}: {rows:?}");
        rows.first().map(|row| row["value"][1].as_str()?.parse().ok()).map(|value| value.expect("a number"))
    }

    /// Names of the alerts that fire now.
    pub(super) fn firing_alerts(&self) -> Vec<String> {
        let rows = self.query("ALERTS{alertstate=\"firing\"}");
        rows.iter().map(|row| row["metric"]["alertname"].as_str().expect("a name").to_owned()).collect()
    }
}

impl Drop for PrometheusServer<'_> {
    fn drop(&mut self) {
        // The files are removed with their directory. An error means that Prometheus has already
        // ended.
        let _ = self.child.kill();
    }
}

/// A page of a server on the host, or `None` without a response.
fn page(host: &LabHost, port: u16, path: &str) -> Option<String> {
    page_of(host, (Ipv4Addr::LOCALHOST, port).into(), path)
}

/// A page of a server that the host can reach, or `None` without a response.
pub(super) fn page_of(host: &LabHost, server: SocketAddr, path: &str) -> Option<String> {
    let connect = || TcpStream::connect(server);
    let mut stream = host.run(connect).expect("the host runs").ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: x\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    Some(text)
}

fn percent_encode(query: &str) -> String {
    let byte = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => char::from(byte).to_string(),
        other => format!("%{other:02X}"),
    };
    query.bytes().map(byte).collect()
}
