//! At its start, a server warns about host settings that starve it above its capacity.

use std::process::Command;

use linerate_lab::{Lab, LabHost};

use crate::support::{self, errors_of, program, run_on, start_lab};

/// Standard error of a server with one worker on CPU 0, until it ends.
fn server_errors(host: &LabHost, address: &str, policy: &str) -> String {
    let serve = ["serve", "echo", "--bind", address, "--cpus", "0", "--workers", "1", "--duration", "0.05"];
    let output = run_on(host, program(), &[&serve[..], &["--overload", policy]].concat());
    assert!(output.status.success(), "{}", errors_of(&output));
    errors_of(&output)
}

#[test]
fn overload_policies_warn_about_softirqs_on_worker_cpus() {
    let Some(lab) = start_lab(Lab::builder().queues(1)) else { return };
    let end = &lab.links()[0].receiver;
    let sysfs = match lab.receiver().sys_path() {
        Ok(path) => path.join("class/net").join(&end.interface),
        Err(error) => return support::skip(error),
    };
    let set = |file: &str, value: &str| std::fs::write(sysfs.join(file), value);
    if let Err(error) = set("queues/rx-0/rps_cpus", "1") {
        return support::skip(format!("RPS: {error}"));
    }
    let address = format!("{}:0", end.ipv4[0]);
    let start_server = |policy: &str| {
        let errors = server_errors(lab.receiver(), &address, policy);
        (errors.contains("softirqs of eth0 run on the CPUs of the worker"), errors)
    };
    for policy in ["shed", "protect"] {
        let (has_warning, errors) = start_server(policy);
        assert!(has_warning && errors.contains("doctor --explain softirq.livelock-risk"), "{errors}");
    }
    let (has_warning, errors) = start_server("none");
    assert!(!has_warning, "no warning without a policy: {errors}");
    let other_threads = napi_threads();
    set("threaded", "1").expect("threads of NAPI");
    let (has_warning, errors) = start_server("shed");
    assert!(!has_warning, "NAPI threads run under the scheduler: {errors}");
    match other_threads.as_slice() {
        [] => assert_waiting_napi_threads_are_named(lab.receiver(), &address),
        // The threads belong to another interface called eth0. The server cannot distinguish them.
        _ => support::skip("threads of another interface called eth0 run here"),
    }
    set("threaded", "0").expect("none");
    set("queues/rx-0/rps_cpus", "0").expect("no RPS");
    let (has_warning, errors) = start_server("shed");
    assert!(!has_warning, "the CPUs that process veth's packets are unknown: {errors}");
}

/// With `--overload protect`, the server names NAPI threads that run only on its worker's CPU and
/// have no real-time priority. After the advised command it no longer names them.
fn assert_waiting_napi_threads_are_named(host: &LabHost, address: &str) {
    let threads = napi_threads();
    assert!(!threads.is_empty(), "no thread of NAPI runs");
    for pid in &threads {
        run("taskset", &["--cpu-list", "--pid", "0", pid]);
    }
    const WAITS: &str = "packets of eth0 are taken from its queues by napi/eth0-";
    let errors = server_errors(host, address, "shed");
    assert!(!errors.contains(WAITS), "shed has no guard: {errors}");
    let advice = server_errors(host, address, "protect");
    assert!(advice.contains(WAITS), "{advice}");
    let (_, chrt) = advice.split_once("(chrt ").expect("a command");
    let words: Vec<&str> = chrt.split_once(')').expect("its end").0.split(' ').collect();
    assert!(threads.iter().any(|pid| words.last() == Some(&pid.as_str())), "{words:?}: {threads:?}");
    run("chrt", &words);
    let first = server_errors(host, address, "protect");
    assert!(!first.contains(WAITS), "the thread runs before the worker now: {first}");
}

fn run(program: &str, words: &[&str]) {
    let output = Command::new(program).args(words).output().expect("it starts (package util-linux)");
    assert!(output.status.success(), "{program} {words:?}: {output:?}");
}

/// The NAPI threads of all interfaces called eth0.
fn napi_threads() -> Vec<String> {
    let entries = std::fs::read_dir("/proc").expect("processes").flatten();
    let is_one = |entry: &std::fs::DirEntry| {
        std::fs::read_to_string(entry.path().join("comm")).is_ok_and(|name| name.starts_with("napi/eth0-"))
    };
    entries.filter(is_one).map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}
