//! `linerate doctor`, run as a user runs it: on host trees, captures and this machine.

mod calls;

use std::net::UdpSocket;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use linerate_testkit::fixture::fixture;
use serde_json::Value;

use crate::schema::conforms;
use crate::support::{self, linerate, skip};

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)))
}

/// The document without the fields that differ from run to run.
fn lasting(mut document: Value) -> Value {
    for key in ["argv", "started_unix_seconds"] {
        document.as_object_mut().expect("an object").remove(key);
    }
    document
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a name")
}

fn tree(name: &str) -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    fixture(name).expect("a fixture").write(directory.path()).expect("written");
    directory
}

fn ids(document: &Value) -> Vec<String> {
    let findings = document["result"]["findings"].as_array().expect("findings");
    findings.iter().map(|finding| finding["id"].as_str().expect("an id").to_owned()).collect()
}

#[test]
fn a_capture_gives_the_same_as_what_was_captured() {
    for name in ["makita-2016", "million-packets", "small-vm"] {
        let tree = tree(name);
        let file = tree.path().join("capture.tar.gz");
        let captured = linerate(&["doctor", "capture", text(&file), "--root", text(tree.path())]);
        assert_eq!(captured.status.code(), Some(0), "{}", String::from_utf8_lossy(&captured.stderr));
        let of = |root: &Path| lasting(json(&linerate(&["doctor", "--root", text(root), "--json", "-"])));
        assert_eq!(of(tree.path()), of(&file), "{name}");
    }
}

#[test]
fn an_anonymous_capture_leads_to_the_same_findings_without_the_names() {
    let tree = tree("makita-2016");
    let file = tree.path().join("capture.tar.gz");
    let captured = linerate(&["doctor", "capture", text(&file), "--anonymous", "--root", text(tree.path())]);
    assert_eq!(captured.status.code(), Some(0), "{}", String::from_utf8_lossy(&captured.stderr));
    let of = |root: &Path| json(&linerate(&["doctor", "--root", text(root), "--json", "-"]));
    let (named, anonymous) = (of(tree.path()), of(&file));
    assert_eq!(ids(&named), ids(&anonymous));
    assert!(named.to_string().contains("udpecho") && !anonymous.to_string().contains("udpecho"));
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
fn a_capture_of_this_machine_is_read_back() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("here.tar.gz");
    let captured = linerate(&["doctor", "capture", text(&file), "--interval", "0.2"]);
    assert_eq!(captured.status.code(), Some(0), "{}", String::from_utf8_lossy(&captured.stderr));
    conforms(&manifest(&file), "linerate.capture/1");
    let read = json(&linerate(&["doctor", "--root", text(&file), "--json", "-"]));
    let read = &read["result"];
    assert_eq!(read["live"], false);
    assert!(
        read["seconds_between_readings"].as_f64().is_some_and(|seconds| seconds > 0.1),
        "{}",
        read["seconds_between_readings"]
    );
    let mode = std::os::unix::fs::PermissionsExt::mode(&file.metadata().expect("there").permissions());
    assert_eq!(mode & 0o077, 0, "others may read what only root may see");
    let again = linerate(&["doctor", "--root", text(directory.path()), "--json", "-"]);
    assert_eq!(again.status.code(), Some(2));
}

#[test]
fn the_document_holds_what_the_schema_says() {
    let tree = tree("makita-2016");
    let output = linerate(&["doctor", "--root", text(tree.path()), "--json", "-"]);
    assert_eq!(output.status.code(), Some(1));
    let document = json(&output);
    conforms(&document, "linerate.doctor/2");
    let document = &document["result"];
    for key in ["seconds_between_readings", "unknown", "counters", "stages"] {
        assert!(document.get(key).is_some(), "no {key}");
    }
    let finding = &document["findings"][0];
    for key in
        ["id", "stage", "severity", "title", "evidence", "effect", "source", "changes", "commands", "caveats"]
    {
        assert!(finding.get(key).is_some(), "no {key} in {finding}");
    }
    let severities: Vec<&str> = document["findings"]
        .as_array()
        .expect("findings")
        .iter()
        .filter_map(|one| one["severity"].as_str())
        .collect();
    let rank = |name: &&str| ["high", "medium", "low", "note"].iter().position(|known| known == name);
    assert!(severities.iter().map(rank).is_sorted(), "{severities:?}");
}

#[test]
fn a_host_with_nothing_wrong_is_no_failure() {
    for name in ["makita-2016-fixed", "small-vm"] {
        let tree = tree(name);
        let status = |level: &str| {
            linerate(&["doctor", "--root", text(tree.path()), "--fail-on", level]).status.code()
        };
        assert_eq!((status("low"), status("note")), (Some(0), Some(1)), "{name}");
    }
}

#[test]
fn the_exit_status_follows_the_severity_asked_for() {
    // The tree has only the kernel version, so doctor can only judge the kernel. Its age is a note.
    let bare = tempfile::tempdir().expect("a directory");
    std::fs::create_dir_all(bare.path().join("proc/sys/kernel")).expect("made");
    std::fs::write(bare.path().join("proc/sys/kernel/osrelease"), "4.6.3\n").expect("written");
    let found = tree("makita-2016");
    let run = |tree: &Path, level: &str| {
        linerate(&["doctor", "--root", text(tree), "--fail-on", level]).status.code()
    };
    assert_eq!((run(bare.path(), "low"), run(bare.path(), "note")), (Some(0), Some(1)));
    assert_eq!((run(found.path(), "high"), run(found.path(), "low")), (Some(1), Some(1)));
    let page = found.path().join("page.html");
    linerate(&["doctor", "--root", text(found.path()), "--html", text(&page)]);
    assert!(std::fs::read_to_string(&page).expect("written").contains("<svg"));
}

#[test]
fn a_port_where_nobody_listens_is_told() {
    let taken = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("an address").port().to_string();
    let output = linerate(&["doctor", "--port", &port, "--json", "-"]);
    let document = json(&output);
    assert!(
        document["result"]["stages"]["socket"]["services"][0]["named"].as_bool() == Some(true),
        "{output:?}"
    );
    drop(taken);
    let output = linerate(&["doctor", "--port", &port]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2));
    assert!(errors.starts_with(&format!("linerate: nobody listens on port {port} in this")), "{errors}");
}

#[test]
fn an_interrupted_watch_shows_the_first_reading() {
    let mut child = Command::new(support::program())
        .args(["doctor", "--interval", "600", "--json", "-"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command starts");
    let pid = child.id().to_string();
    // doctor installs its signal handlers first, then waits in a call that a signal interrupts.
    let waits = || {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:\t")).unwrap_or("0");
        u64::from_str_radix(caught, 16).is_ok_and(|caught| caught & 2 != 0)
    };
    while !waits() {
        assert!(child.try_wait().expect("a child").is_none(), "it ended by itself");
        std::thread::yield_now();
    }
    assert!(Command::new("kill").args(["-INT", &pid]).status().expect("kill starts").success());
    let output = child.wait_with_output().expect("ended");
    let document = json(&output);
    let document = &document["result"];
    assert!(document["seconds_between_readings"].is_null() && document["stages"]["machine"].is_object());
}

#[test]
fn nothing_on_the_host_is_written() {
    const NAME: &str = "nothing_on_the_host_is_written";
    if Command::new("strace").arg("-V").output().is_err() {
        return skip(NAME, "strace is not installed");
    }
    let directory = tempfile::tempdir().expect("a directory");
    let shim = directory.path().join("ethtool_log.so");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/command/doctor/ethtool_log.c");
    let built = Command::new("cc").args(["-shared", "-fPIC", "-o", text(&shim), source, "-ldl"]).output();
    if !built.is_ok_and(|built| built.status.success()) {
        return skip(NAME, "no C compiler");
    }
    let (trace, log) = (directory.path().join("trace"), directory.path().join("log"));
    std::fs::write(&log, "").expect("written");
    let calls = format!("trace={},{}", calls::LOOKED_INTO.join(","), calls::FORBIDDEN.join(","));
    let run = |preloaded: bool| {
        let mut command = Command::new("strace");
        command.args(["-f", "-xx", "-o", text(&trace), "-e", &calls]);
        if preloaded {
            command.arg("-E").arg(format!("LD_PRELOAD={}", shim.display()));
            command.arg("-E").arg(format!("ETHTOOL_LOG={}", log.display()));
        }
        let output =
            command.arg(support::program()).args(["doctor", "--interval", "0.2"]).output().expect("started");
        (output, std::fs::read_to_string(&trace).unwrap_or_default())
    };
    let (output, traced) = run(false);
    if traced.lines().count() < 3 {
        return skip(
            NAME,
            &format!("strace cannot trace here: {}", String::from_utf8_lossy(&output.stderr).trim()),
        );
    }
    assert!(matches!(output.status.code(), Some(0 | 1)), "{output:?}");
    let changes: Vec<String> = traced.lines().filter_map(calls::change).collect();
    assert!(changes.is_empty(), "{}", changes.join("\n"));
    let _ = run(true);
    let asked = std::fs::read_to_string(&log).expect("a log");
    for command in asked.lines() {
        assert!(calls::ETHTOOL_IOCTL_GETS.contains(&command), "ethtool command {command}");
    }
    assert_eq!(traced.contains("SIOCETHTOOL"), !asked.is_empty(), "the log misses what was asked");
}

#[test]
fn what_goes_away_between_two_readings_is_unknown() {
    let tree = tree("million-packets");
    for gone in ["later/sys/class/net/eth2", "later/proc/3021"] {
        std::fs::remove_dir_all(tree.path().join(gone)).expect("it was there");
    }
    let output = linerate(&["doctor", "--root", text(tree.path()), "--pid", "3021", "--json", "-"]);
    let document = json(&output);
    let unknown = document["result"]["unknown"].as_array().expect("a list");
    for what in ["link[eth2]", "process 3021"] {
        let said =
            unknown.iter().find(|item| item["what"] == what).unwrap_or_else(|| panic!("{what}: {unknown:?}"));
        assert_eq!(said["why"], "it was there at the first reading, and gone at the second");
    }
}

#[test]
fn a_watch_of_a_capture_needs_two_readings() {
    let tree = tree("million-packets");
    let run = || linerate(&["doctor", "--root", text(tree.path()), "--interval", "1"]);
    assert_eq!(run().status.code(), Some(1));
    std::fs::remove_dir_all(tree.path().join("later")).expect("it was there");
    let output = run();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), errors.lines().count()), (Some(2), 1), "{errors}");
    assert!(errors.contains("holds one reading"), "{errors}");
}

#[test]
fn node_problem_detector_gets_one_short_line_and_a_status() {
    let (bad, fine) = (tree("makita-2016"), tree("makita-2016-fixed"));
    let options = ["--output", "node-problem-detector", "--fail-on", "high"];
    let told = |root: &str, status: i32, words: &str| {
        let told = linerate(&[&["doctor", "--root", root], options.as_slice()].concat());
        assert_eq!(told.status.code(), Some(status));
        let line = String::from_utf8(told.stdout).expect("text");
        assert!(line.contains(words) && line.lines().count() == 1 && line.trim().len() <= 80, "{line}");
    };
    told(text(bad.path()), 1, " findings: ");
    told(text(fine.path()), 0, "0 findings");
    told("no-such-directory", 2, "no-such-directory");
}

#[test]
fn a_container_looks_at_the_host_whose_root_is_mounted() {
    let test = "a_container_looks_at_the_host_whose_root_is_mounted";
    let root = tempfile::tempdir().expect("a directory");
    let refused = linerate(&["doctor", "--host-root", text(root.path())]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("no /proc of the host"), "{refused:?}");
    if !rustix::process::geteuid().is_root() {
        return skip(test, "takes root");
    }
    // Only the mounted root has a /marker.
    let script = "set -e; cd \"$1\"; mount -t tmpfs none .; cd \"$1\"; mkdir proc sys; touch marker; mount --rbind /proc proc; \
                  mount --rbind /sys sys; mount --bind /proc/self/ns/net marker; cd /; \
                  exec \"$2\" doctor --host-root \"$1\" --netns /marker --interface lo --json -";
    let mut unshare = Command::new("unshare");
    unshare.args(["--mount", "sh", "-c", script, "sh"]).arg(root.path()).arg(support::program());
    let looked = unshare.output().expect("unshare starts");
    conforms(&json(&looked), "linerate.doctor/2");
}
