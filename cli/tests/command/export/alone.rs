//! `linerate export` without a Prometheus.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;

use super::metrics_address;
use crate::support::{TestChild, TestDirectory, await_line, linerate, program, signal, within};

/// A running `linerate export`.
struct ExportProcess {
    child: TestChild,
    address: SocketAddr,
    messages: Vec<String>,
}

impl ExportProcess {
    fn start(arguments: &[&str]) -> Self {
        let mut command = Command::new(program());
        command.args(["export", "--listen", "127.0.0.1:0"]).args(arguments);
        let mut child = command.stderr(Stdio::piped()).spawn().expect("the command starts");
        let (address, messages) = await_line(&mut child.stderr, metrics_address);
        Self { child: TestChild(child), address, messages }
    }

    fn get(&self, path: &str, header: &str) -> String {
        let mut stream = TcpStream::connect(self.address).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
        write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\n{header}\r\n").expect("a request");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("a response");
        text
    }

    /// Sends SIGTERM and returns the exit status.
    fn end(mut self) -> Option<i32> {
        signal(self.child.id(), Signal::TERM);
        self.child.wait().expect("it ends").code()
    }
}

#[test]
fn export_serves_both_formats_and_ends_on_sigterm() {
    let export = ExportProcess::start(&["--interface", "lo", "--with", "pids"]);
    assert!(export.messages.is_empty(), "{:?}", export.messages);
    let text =
        export.get("/metrics", "Accept: application/openmetrics-text;version=1.0.0,text/plain;q=0.5\r\n");
    assert!(
        text.starts_with("HTTP/1.1 200 OK\r\nContent-Type: application/openmetrics-text; version=1.0.0"),
        "{text}"
    );
    assert!(text.contains("\nlinerate_link_up{interface=\"lo\"} ") && text.ends_with("\n# EOF\n"), "{text}");
    let text = export.get("/metrics", "");
    assert!(text.contains("Content-Type: text/plain; version=0.0.4") && !text.contains("# EOF"), "{text}");
    assert!(text.contains("# TYPE linerate_softirq_processed_packets_total counter\n"), "{text}");
    assert!(export.get("/-/healthy", "").starts_with("HTTP/1.1 200 "));
    assert!(export.get("/", "").contains("href=\"/metrics\""));
    assert!(export.get("/other", "").starts_with("HTTP/1.1 404 "));
    assert_eq!(export.end(), Some(0));
}

#[test]
fn textfile_is_written_completely_and_without_leftovers() {
    let directory = TestDirectory::new();
    let file = directory.file("linerate.prom");
    let export = ExportProcess::start(&["--interface", "lo", "--textfile", &file, "--every", "1"]);
    // The file is written before the first HTTP response.
    assert!(export.get("/-/healthy", "").starts_with("HTTP/1.1 200 "));
    let text = std::fs::read_to_string(&file).expect("written");
    assert!(
        text.starts_with("# HELP linerate_") && text.ends_with('\n') && !text.contains("# EOF"),
        "{text}"
    );
    assert_eq!(export.end(), Some(0));
    let names = std::fs::read_dir(directory.path()).expect("listed").count();
    assert_eq!(names, 1, "nothing but the file");
}

#[test]
fn textfile_is_written_again_after_a_failure() {
    let directory = TestDirectory::new();
    let (place, moved) = (directory.file("place"), directory.file("moved"));
    std::fs::create_dir(&place).expect("made");
    let file = directory.path().join("place/linerate.prom");
    let mut command = Command::new(program());
    command.args(["export", "--interface", "lo", "--every", "1", "--textfile"]).arg(&file);
    let mut export = TestChild(command.stderr(Stdio::piped()).spawn().expect("the command starts"));
    within(60, "the file is written", || file.exists());
    std::fs::rename(&place, &moved).expect("moved");
    await_line(&mut export.stderr, |line| line.ends_with("; trying again").then_some(()));
    std::fs::create_dir(&place).expect("made");
    within(60, "the file is written again", || file.exists());
}

#[test]
fn once_writes_metrics_to_standard_output_or_the_textfile() {
    let output = linerate(&["export", "--once", "--interface", "lo"]);
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    assert!(output.stdout.ends_with(b"# EOF\n"));
    let directory = TestDirectory::new();
    let file = directory.file("linerate.prom");
    let output = linerate(&["export", "--once", "--interface", "lo", "--textfile", &file]);
    assert!(output.status.success() && output.stdout.is_empty(), "{output:?}");
    assert!(std::fs::read_to_string(&file).expect("written").contains("linerate_build_info{version="));
}
