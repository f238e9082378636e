//! `linerate doctor`, run as a user runs it: on host trees, captures and this machine.

mod calls;

use std::io::Read;
use std::net::UdpSocket;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use linerate_testkit::fixture::fixture;
use rustix::process::Signal;
use serde_json::Value;

use crate::schema::conforms;
use crate::support::{
    self, assert_refused, checked_document, checked_text, document_of, errors_of, is_installed, is_root,
    linerate, signal, skip, text_of, texts,
};
use crate::tune::scene::text;

/// The document without the fields that differ from run to run.
fn without_run_fields(mut document: Value) -> Value {
    for key in ["argv", "started_unix_seconds"] {
        document.as_object_mut().expect("an object").remove(key);
    }
    document
}

/// `linerate doctor` on the host in a directory or a capture.
fn doctor(root: &Path, arguments: &[&str]) -> Output {
    linerate(&[&["doctor", "--root", text(root)], arguments].concat())
}

fn diagnose(root: &Path) -> Value {
    document_of(&doctor(root, &["--json", "-"]))
}

/// Saves a capture. Returns standard error.
#[track_caller]
fn capture(file: &Path, arguments: &[&str]) -> String {
    let output = linerate(&[&["doctor", "capture", text(file)], arguments].concat());
    checked_text(&output, 0, "doctor capture").1
}

fn tree(name: &str) -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    fixture(name).expect("a fixture").write(directory.path()).expect("written");
    directory
}

#[test]
fn captures_give_the_same_document_as_their_host() {
    for name in ["makita-2016", "million-packets", "small-vm"] {
        let tree = tree(name);
        let file = tree.path().join("capture.tar.gz");
        capture(&file, &["--root", text(tree.path())]);
        let [of_host, of_capture] =
            [tree.path(), file.as_path()].map(|root| without_run_fields(diagnose(root)));
        assert_eq!(of_host, of_capture, "{name}");
        assert_eq!(manifest(&file)["unix_seconds"], Value::Null, "the directory has no time");
    }
}

#[test]
fn anonymous_captures_keep_the_findings_and_hide_names() {
    let hosts = [("makita-2016", "udpecho"), ("held-back-vm", "named"), ("kvm-host", "web1")];
    for (host, name) in hosts {
        let tree = tree(host);
        let file = tree.path().join("capture.tar.gz");
        capture(&file, &["--anonymous", "--root", text(tree.path())]);
        let (named, anonymous) = (diagnose(tree.path()), diagnose(&file));
        let [ids, anonymous_ids] =
            [&named, &anonymous].map(|document| texts(&document["result"]["findings"], "id"));
        assert_eq!(ids, anonymous_ids, "{host}");
        let capture = unpacked(&file);
        assert!(named.to_string().contains(name) && !capture.contains(name), "{host}");
    }
}

fn unpacked(file: &Path) -> String {
    let content = std::fs::File::open(file).expect("a capture");
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(content).read_to_end(&mut bytes).expect("a tar");
    String::from_utf8_lossy(&bytes).into_owned()
}

#[test]
fn a_capture_that_is_made_anonymous_later_hides_the_host_name() {
    let tree = tree("makita-2016");
    let directory = tree.path().join("etc/systemd/network");
    std::fs::create_dir_all(&directory).expect("made");
    std::fs::write(directory.join("10-eth.link"), "# of db-7\n").expect("written");
    let file = tree.path().join("capture.tar.gz");
    let anonymous = || (capture(&file, &["--anonymous", "--root", text(tree.path())]), unpacked(&file));
    let (errors, capture) = anonymous();
    assert!(errors.contains("the host name is unknown") && capture.contains("# of db-7"), "{errors}");
    let info = r#"{"schema": "linerate.capture/1", "version": "0.1.0", "host_name": "db-7.example"}"#;
    std::fs::write(tree.path().join("capture.json"), info).expect("written");
    let (errors, capture) = anonymous();
    assert!(!errors.contains("the host name is unknown"), "{errors}");
    assert!(capture.contains("# of host\n") && !capture.contains("db-7"));
}

/// The manifest in a capture.
fn manifest(file: &Path) -> Value {
    let archive = std::fs::File::open(file).expect("a capture");
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(archive));
    let is_manifest =
        |entry: &tar::Entry<'_, _>| entry.path().is_ok_and(|path| path.ends_with("capture.json"));
    let entry = archive.entries().expect("a tar").map(|entry| entry.expect("an entry")).find(is_manifest);
    serde_json::from_reader(entry.expect("a manifest")).expect("JSON")
}

#[test]
fn captures_of_this_machine_are_readable_and_private() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("here.tar.gz");
    capture(&file, &["--interval", "0.2"]);
    conforms(&manifest(&file), "linerate.capture/1");
    let document = diagnose(&file);
    let document = &document["result"];
    assert_eq!(document["live"], false);
    assert!(
        document["seconds_between_readings"].as_f64().is_some_and(|seconds| seconds > 0.1),
        "{}",
        document["seconds_between_readings"]
    );
    let mode = std::os::unix::fs::PermissionsExt::mode(&file.metadata().expect("there").permissions());
    assert_eq!(mode & 0o077, 0, "other users can read the capture");
    assert_eq!(doctor(directory.path(), &["--json", "-"]).status.code(), Some(2));
}

#[test]
fn json_has_the_documented_fields_and_sorts_findings_by_severity() {
    let tree = tree("makita-2016");
    let document = checked_document(&doctor(tree.path(), &["--json", "-"]), 1, "linerate.doctor/2");
    let document = &document["result"];
    let severities = texts(&document["findings"], "severity");
    let rank = |name: &&str| ["high", "medium", "low", "note"].iter().position(|known| known == name);
    assert!(severities.iter().map(rank).is_sorted(), "{severities:?}");
}

#[test]
fn healthy_hosts_have_no_findings_above_note() {
    for name in ["makita-2016-fixed", "small-vm"] {
        let tree = tree(name);
        let status = |level: &str| doctor(tree.path(), &["--fail-on", level]).status.code();
        assert_eq!((status("low"), status("note")), (Some(0), Some(1)), "{name}");
    }
    // The tree has only the kernel version, so doctor can only judge the kernel. Its age is a note.
    let bare = tempfile::tempdir().expect("a directory");
    std::fs::create_dir_all(bare.path().join("proc/sys/kernel")).expect("made");
    std::fs::write(bare.path().join("proc/sys/kernel/osrelease"), "4.6.3\n").expect("written");
    let status = |level: &str| doctor(bare.path(), &["--fail-on", level]).status.code();
    assert_eq!((status("low"), status("note")), (Some(0), Some(1)));
}

#[test]
fn doctor_reports_ports_without_a_listener() {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let port = socket.local_addr().expect("an address").port().to_string();
    let output = linerate(&["doctor", "--port", &port, "--json", "-"]);
    let document = document_of(&output);
    assert!(
        document["result"]["stages"]["socket"]["services"][0]["named"].as_bool() == Some(true),
        "{output:?}"
    );
    drop(socket);
    let output = linerate(&["doctor", "--port", &port]);
    assert_refused(&output, &format!("linerate: nobody listens on port {port}: "));
}

/// A doctor that has a handler for this signal, and waits 600 s between its readings.
fn waiting_doctor(handled_signal: Signal) -> Child {
    // A test may run with SIGHUP ignored, which doctor would leave so.
    let mut child = Command::new("env")
        .arg("--default-signal=HUP")
        .arg(support::program())
        .args(["doctor", "--interval", "600", "--json", "-"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command starts");
    let pid = child.id();
    let has_handler = || {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:\t")).unwrap_or("0");
        u64::from_str_radix(mask, 16).is_ok_and(|mask| mask & 1 << (handled_signal.as_raw() - 1) != 0)
    };
    while !has_handler() {
        assert!(child.try_wait().expect("a child").is_none(), "doctor ended by itself");
        std::thread::yield_now();
    }
    child
}

#[test]
fn interrupted_doctor_reports_the_first_reading() {
    // Also a signal that arrives before all handlers are registered.
    let child = waiting_doctor(Signal::INT);
    signal(child.id(), Signal::INT);
    let output = child.wait_with_output().expect("ended");
    let document = document_of(&output);
    let document = &document["result"];
    assert!(document["seconds_between_readings"].is_null() && document["stages"]["machine"].is_object());
}

#[test]
fn a_second_signal_ends_a_command_at_once() {
    // The last to be registered.
    let mut child = waiting_doctor(Signal::HUP);
    // Stopped, it gets both signals before it can act on the first.
    for sent_signal in [Signal::STOP, Signal::INT, Signal::TERM, Signal::CONT] {
        signal(child.id(), sent_signal);
    }
    let status = child.wait().expect("ended");
    assert!(status.signal().is_some(), "{status}");
}

#[test]
fn doctor_makes_no_system_call_that_changes_the_host() {
    if !is_installed("strace") {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let shim = directory.path().join("ethtool_log.so");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/command/doctor/ethtool_log.c");
    let compiler = Command::new("cc").args(["-shared", "-fPIC", "-o", text(&shim), source, "-ldl"]).output();
    if !compiler.is_ok_and(|compiler| compiler.status.success()) {
        return skip("no C compiler");
    }
    let (trace, log) = (directory.path().join("trace"), directory.path().join("log"));
    std::fs::write(&log, "").expect("written");
    let calls = format!("trace={},{}", calls::CALLS_TO_INSPECT.join(","), calls::FORBIDDEN.join(","));
    let run = |with_shim: bool| {
        let mut command = Command::new("strace");
        command.args(["-f", "-xx", "-o", text(&trace), "-e", &calls]);
        if with_shim {
            command.arg("-E").arg(format!("LD_PRELOAD={}", shim.display()));
            command.arg("-E").arg(format!("ETHTOOL_LOG={}", log.display()));
        }
        let output =
            command.arg(support::program()).args(["doctor", "--interval", "0.2"]).output().expect("started");
        (output, std::fs::read_to_string(&trace).unwrap_or_default())
    };
    let (output, trace_text) = run(false);
    if trace_text.lines().count() < 3 {
        return skip(format!("strace cannot trace here: {}", errors_of(&output)));
    }
    assert!(matches!(output.status.code(), Some(0 | 1)), "{output:?}");
    let changes: Vec<String> = trace_text.lines().filter_map(calls::change).collect();
    assert!(changes.is_empty(), "{}", changes.join("\n"));
    let _ = run(true);
    let ioctls = std::fs::read_to_string(&log).expect("a log");
    for command in ioctls.lines() {
        assert!(calls::ETHTOOL_IOCTL_GETS.contains(&command), "ethtool command {command}");
    }
    assert_eq!(trace_text.contains("SIOCETHTOOL"), !ioctls.is_empty(), "the log misses ethtool calls");
}

#[test]
fn links_and_processes_gone_at_the_second_reading_are_unknown() {
    let tree = tree("million-packets");
    for path in ["later/sys/class/net/eth2", "later/proc/3021"] {
        std::fs::remove_dir_all(tree.path().join(path)).expect("it was there");
    }
    let document = document_of(&doctor(tree.path(), &["--pid", "3021", "--json", "-"]));
    let unknown = document["result"]["unknown"].as_array().expect("a list");
    for name in ["link[eth2]", "process 3021"] {
        let entry =
            unknown.iter().find(|item| item["what"] == name).unwrap_or_else(|| panic!("{name}: {unknown:?}"));
        assert_eq!(entry["why"], "it was there at the first reading, and gone at the second");
    }
}

#[test]
fn interval_requires_a_capture_with_two_readings() {
    let tree = tree("million-packets");
    let run = || doctor(tree.path(), &["--interval", "1"]);
    assert_eq!(run().status.code(), Some(1));
    std::fs::remove_dir_all(tree.path().join("later")).expect("it was there");
    assert_refused(&run(), "holds one reading");
}

#[test]
fn node_problem_detector_output_is_one_line_of_at_most_80_characters() {
    let (bad, fine) = (tree("makita-2016"), tree("makita-2016-fixed"));
    let options = ["--output", "node-problem-detector", "--fail-on", "high"];
    let check = |root: &Path, status: i32, words: &str| {
        let output = doctor(root, &options);
        assert_eq!(output.status.code(), Some(status));
        let line = text_of(&output);
        assert!(line.contains(words) && line.lines().count() == 1 && line.trim().len() <= 80, "{line}");
    };
    check(bad.path(), 1, " findings: ");
    check(fine.path(), 0, "0 findings");
    check(Path::new("no-such-directory"), 2, "no-such-directory");
}

#[test]
fn host_root_reads_a_mounted_host_and_requires_its_proc() {
    let root = tempfile::tempdir().expect("a directory");
    assert_refused(&linerate(&["doctor", "--host-root", text(root.path())]), "no /proc of the host");
    if !is_root() {
        return;
    }
    // Only the mounted root has a /marker.
    let script = "set -e; cd \"$1\"; mount -t tmpfs none .; cd \"$1\"; mkdir proc sys; touch marker; mount --rbind /proc proc; \
                  mount --rbind /sys sys; mount --bind /proc/self/ns/net marker; cd /; \
                  exec \"$2\" doctor --host-root \"$1\" --netns /marker --interface lo --json -";
    let mut unshare = Command::new("unshare");
    unshare.args(["--mount", "sh", "-c", script, "sh"]).arg(root.path()).arg(support::program());
    let output = unshare.output().expect("unshare starts");
    conforms(&document_of(&output), "linerate.doctor/2");
}
