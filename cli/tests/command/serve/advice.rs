//! What a server says at the start of settings of the host that starve it above capacity.

use std::io::Read as _;
use std::process::{Command, Stdio};

use linerate_lab::{Lab, LabHost};

use crate::support;

/// What a server with one worker, on CPU 0, says until it ends.
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
        (told.contains("packets of eth0 are processed in softirqs on the CPUs of the worker"), told)
    };
    for policy in ["shed", "protect"] {
        let (named, told) = says(policy);
        assert!(named && told.contains("doctor --explain softirq.livelock-risk"), "{told}");
    }
    let (named, told) = says("none");
    assert!(!named, "nobody asked: {told}");
    set("threaded", "1").expect("threads of NAPI");
    let (named, told) = says("shed");
    assert!(!named, "threads leave it to the scheduler: {told}");
    set("threaded", "0").expect("none");
    set("queues/rx-0/rps_cpus", "0").expect("no RPS");
    let (named, told) = says("shed");
    assert!(!named, "it is not known where veth's packets are processed: {told}");
}
