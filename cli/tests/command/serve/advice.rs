//! At its start, a server warns about host settings that starve it above its capacity.

use std::io::Read as _;
use std::process::{Command, Stdio};

use linerate_lab::{Lab, LabHost};

use crate::support;

/// Standard error of a server with one worker on CPU 0, until it ends.
fn told(host: &LabHost, address: &str, policy: &str) -> String {
    let mut command = Command::new(support::program());
    command.args(["serve", "echo", "--bind", address, "--cpus", "0", "--workers", "1", "--overload", policy]);
    command.args(["--duration", "0.05"]).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = host.spawn(command).expect("it starts");
    let mut told = String::new();
    child.stderr.take().expect("a pipe").read_to_string(&mut told).expect("text");
    assert!(child.wait().expect("it ends").success(), "{told}");
    told
}

#[test]
fn a_server_with_a_policy_names_softirqs_on_its_workers_cpus() {
    let test = "a_server_with_a_policy_names_softirqs_on_its_workers_cpus";
    let lab = match Lab::builder().queues(1).start() {
        Ok(lab) => lab,
        Err(error) => return support::skip(test, &error.to_string()),
    };
    let end = &lab.links()[0].receiver;
    let sysfs = match lab.receiver().sys_path() {
        Ok(path) => path.join("class/net").join(&end.interface),
        Err(error) => return support::skip(test, &error.to_string()),
    };
    let set = |file: &str, value: &str| std::fs::write(sysfs.join(file), value);
    if let Err(error) = set("queues/rx-0/rps_cpus", "1") {
        return support::skip(test, &format!("RPS: {error}"));
    }
    let address = format!("{}:0", end.ipv4[0]);
    let says = |policy: &str| {
        let told = told(lab.receiver(), &address, policy);
        (told.contains("softirqs of eth0 run on the CPUs of the worker"), told)
    };
    for policy in ["shed", "protect"] {
        let (named, told) = says(policy);
        assert!(named && told.contains("doctor --explain softirq.livelock-risk"), "{told}");
    }
    let (named, told) = says("none");
    assert!(!named, "nobody asked: {told}");
    let of_others = napi_threads();
    set("threaded", "1").expect("threads of NAPI");
    let (named, told) = says("shed");
    assert!(!named, "threads leave it to the scheduler: {told}");
    match of_others.as_slice() {
        [] => a_thread_that_waits_for_the_worker_is_named(lab.receiver(), &address),
        // The threads belong to another interface called eth0. The server cannot distinguish them.
        _ => support::skip(test, "threads of another interface called eth0 run here"),
    }
    set("threaded", "0").expect("none");
    set("queues/rx-0/rps_cpus", "0").expect("no RPS");
    let (named, told) = says("shed");
    assert!(!named, "it is not known where veth's packets are processed: {told}");
}

/// With `--overload protect`, the server names NAPI threads that run only on its worker's CPU and
/// have no real-time priority. After the advised command it no longer names them.
fn a_thread_that_waits_for_the_worker_is_named(host: &LabHost, address: &str) {
    let threads = napi_threads();
    assert!(!threads.is_empty(), "no thread of NAPI runs");
    for pid in &threads {
        run("taskset", &["--cpu-list", "--pid", "0", pid]);
    }
    const WAITS: &str = "packets of eth0 are taken from its queues by napi/eth0-";
    let unguarded = told(host, address, "shed");
    assert!(!unguarded.contains(WAITS), "there is no guard: {unguarded}");
    let advice = told(host, address, "protect");
    assert!(advice.contains(WAITS), "{advice}");
    let (_, chrt) = advice.split_once("(chrt ").expect("a command");
    let words: Vec<&str> = chrt.split_once(')').expect("its end").0.split(' ').collect();
    assert!(threads.iter().any(|pid| words.last() == Some(&pid.as_str())), "{words:?}: {threads:?}");
    run("chrt", &words);
    let first = told(host, address, "protect");
    assert!(!first.contains(WAITS), "it goes before the worker now: {first}");
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
