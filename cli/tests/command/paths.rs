//! `linerate lab paths`.

use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::schema::conforms;
use crate::support::{labs_can_be_made, linerate, machine, program, skip};

fn paths_can_be_compared() -> Result<(), String> {
    if !rustix::process::geteuid().is_root() {
        return Err("lab paths requires root".to_owned());
    }
    labs_can_be_made()
}

#[test]
fn paths_are_compared_with_host_and_only_tap_has_a_relay() {
    let _machine = machine();
    if let Err(why) = paths_can_be_compared() {
        return skip("paths_are_compared_with_host_and_only_tap_has_a_relay", &why);
    }
    let directory = tempfile::tempdir().expect("a directory");
    let page = directory.path().join("paths.html");
    let page = page.to_str().expect("a name");
    let output =
        linerate(&["lab", "paths", "--paths", "tap,ipvlan", "--samples", "4", "--json", "-", "--html", page]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let document: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    conforms(&document, "linerate.paths/1");
    let paths = document["result"]["paths"].as_array().expect("paths");
    let names: Vec<&str> = paths.iter().filter_map(|path| path["name"].as_str()).collect();
    assert_eq!(names, ["host", "ipvlan", "tap"]);
    for path in paths.iter().filter(|path| path["skipped_because"].is_null()) {
        let cost = &path["cost"];
        let figure = |key: &str| cost[key].as_f64().unwrap_or_else(|| panic!("{key} of {path}"));
        let parts: f64 = cost["parts"]
            .as_array()
            .expect("parts")
            .iter()
            .filter_map(|part| part["ns_per_transaction"].as_f64())
            .sum();
        assert!((parts / figure("host_ns_per_transaction") - 1.0).abs() < 1e-6, "{cost}");
        assert!(figure("machine_ns_per_transaction") >= parts, "{cost}");
        assert!(figure("answered_ratio") > 0.5, "{path}");
        let has_relay =
            cost["parts"].as_array().expect("parts").iter().any(|part| part["context"] == "relay");
        assert_eq!(has_relay, path["name"] == "tap", "{cost}");
        assert!(path["recipe"].as_array().is_some_and(|lines| lines.len() >= 4), "{path}");
    }
    let reason = paths[1]["skipped_because"].as_str().unwrap_or_default();
    assert!(reason.is_empty() || reason.contains("ip link add"), "{reason}");
    assert!(fs::read_to_string(page).expect("the page").contains("<svg"));
}

/// The relay process of a path ends with the killed command. `lab clean` removes the rest.
#[test]
fn killed_lab_paths_leaves_no_relay_process() {
    if let Err(why) = paths_can_be_compared() {
        return skip("killed_lab_paths_leaves_no_relay_process", &why);
    }
    let mut child = Command::new(program())
        .args(["lab", "paths", "--paths", "tap", "--samples", "4"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the command starts");
    let relay = await_some(|| relays_of(child.id()).first().copied());
    child.kill().expect("killed");
    child.wait().expect("its status");
    await_some(|| (!fs::exists(format!("/proc/{relay}")).unwrap_or(true)).then_some(()));
    assert!(linerate(&["lab", "clean"]).status.success());
}

/// `linerate lab relay tap` processes that this process started.
fn relays_of(pid: u32) -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let is_relay = |relay: &u32| {
        let read = |file: &str| fs::read_to_string(format!("/proc/{relay}/{file}")).unwrap_or_default();
        read("cmdline").contains("relay\0tap") && read("status").contains(&format!("PPid:\t{pid}\n"))
    };
    pids.filter(is_relay).collect()
}

fn await_some<T>(mut poll: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        match poll() {
            Some(value) => return value,
            None if Instant::now() < deadline => std::thread::yield_now(),
            None => panic!("not within 20 s"),
        }
    }
}

#[test]
fn invalid_paths_and_relays_are_refused_in_one_line() {
    for (arguments, words) in [
        (
            &["lab", "paths", "--paths", "bridge,nothing"][..],
            "there is no path nothing; the paths are host, routed",
        ),
        (&["lab", "paths", "--samples", "5"], "--samples 5: an even number is required"),
        (&["lab", "relay", "tap", "nothing0", "nothing-with-a-long-name"], "nothing"),
        (&["lab", "relay", "udp", "192.0.2.1:9", "192.0.2.1:9"], "relay from 192.0.2.1:9"),
    ] {
        let output = linerate(arguments);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{errors}");
        assert!(errors.contains(words) && errors.trim().lines().count() == 1, "{errors}");
    }
}
