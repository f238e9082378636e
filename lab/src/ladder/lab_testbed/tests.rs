//! The ladder's testbed in a real lab. The receiver's kernel reports the values that each step
//! sets.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::NamespaceId;
use crate::ladder::config::{LadderConfig, RunTiming};
use crate::ladder::step::STEPS;

fn config() -> LadderConfig {
    let timing = RunTiming { slot: Duration::from_millis(20), resolution_ratio: 1.1, ..RunTiming::LAB_QUICK };
    LadderConfig { cpus: vec![0], queues: Some(2), flows: 4, ..LadderConfig::new(Vec::new(), timing) }
}

fn testbed<'a>(test: &str, config: &'a LadderConfig) -> Option<LabTestbed<'a>> {
    // A user namespace requires a process with one thread, and a test has more.
    let result = LabTestbed::start(config, None, Arc::default());
    result.map_err(|error| linerate_testkit::skip(test, error)).ok()
}

/// Repeats the switch while the port is in use: a program that another test starts at the same time
/// has copies of this process's sockets, including the server's, until its exec.
fn switch(testbed: &mut LabTestbed<'_>, configuration: &ServerConfiguration) -> Result<(), TestbedError> {
    let deadline = std::time::Instant::now() + Duration::from_secs(5);
    loop {
        match testbed.switch(configuration) {
            Err(TestbedError::Server(why))
                if why.contains("in use") && std::time::Instant::now() < deadline =>
            {
                std::thread::yield_now();
            }
            other => return other,
        }
    }
}

fn assert_settings(testbed: &LabTestbed<'_>, expected: &[(Setting, SettingValue)]) {
    let host = &testbed.host;
    for (setting, value) in expected {
        let actual =
            testbed.lab.receiver().run(|| setting.read(host)).expect("the host answers").expect("read");
        assert!(setting.same(value, &actual), "{setting}: expected '{value}', actual '{actual}'");
    }
}

#[test]
fn every_supported_step_can_be_set_and_reverted() {
    let config = config();
    let Some(mut testbed) = testbed("every_supported_step_can_be_set_and_reverted", &config) else {
        return;
    };
    for step in STEPS {
        if let Some(why) = testbed.refusal(step) {
            linerate_testkit::skip(step.id, why);
            continue;
        }
        let previous = ServerConfiguration::baseline();
        let mut candidate = previous.clone();
        (step.change)(&mut candidate);
        for configuration in [&previous, &candidate, &previous] {
            switch(&mut testbed, configuration).unwrap_or_else(|error| panic!("{}: {error}", step.id));
            let expected =
                stock::settings(&testbed.receiver, &testbed.placement, &testbed.settable, configuration);
            assert_settings(&testbed, &expected);
        }
    }
}

#[test]
fn a_lab_sample_has_a_rate_and_latencies() {
    let config = config();
    let Some(mut testbed) = testbed("a_lab_sample_has_a_rate_and_latencies", &config) else {
        return;
    };
    testbed.switch(&ServerConfiguration::baseline()).expect("set");
    let mut probes = 0;
    let mut request =
        SampleRequest { hint: None, budget: Duration::from_secs(5), on_probe: &mut |_| probes += 1 };
    let sample = testbed.sample(&mut request).expect("measured");
    assert!(sample.transactions_per_second > 0.0 && sample.latency.count() > 0, "{sample:?}");
    assert!(probes > 1, "{probes} rates offered");
}

/// The CPUs on which the threads of the receiver may run, by name.
fn receiver_threads(testbed: &LabTestbed<'_>) -> Vec<(String, String)> {
    let receiver = testbed.lab.receiver().namespace_id();
    let tasks = std::fs::read_dir("/proc/self/task").expect("threads").flatten().map(|task| task.path());
    let is_in_receiver =
        |task: &PathBuf| NamespaceId::from_path(&task.join("ns/net")).is_ok_and(|id| id == receiver);
    tasks
        .filter(is_in_receiver)
        .map(|task| {
            let read = |file: &str| std::fs::read_to_string(task.join(file)).unwrap_or_default();
            let status = read("status");
            let cpus = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:\t"));
            (read("comm").trim_end().to_owned(), cpus.unwrap_or_default().to_owned())
        })
        .collect()
}

#[test]
fn a_server_that_is_not_pinned_is_confined_to_its_cpus() {
    let config = config();
    let Some(mut testbed) = testbed("a_server_that_is_not_pinned_is_confined_to_its_cpus", &config) else {
        return;
    };
    let before = receiver_threads(&testbed);
    switch(&mut testbed, &ServerConfiguration::baseline()).expect("set");
    let (workers, others): (Vec<_>, Vec<_>) =
        receiver_threads(&testbed).into_iter().partition(|(name, _)| cpu_use::is_worker(name));
    assert_eq!(workers, [("linerate-0".to_owned(), "0".to_owned())]);
    assert!(before.iter().all(|thread| others.contains(thread)), "{before:?} {others:?}");
}

#[test]
fn a_lab_with_fewer_flows_than_cpus_starts() {
    let config = LadderConfig { cpus: vec![0, 0], flows: 1, ..config() };
    let threads = |testbed: LabTestbed<'_>| testbed.generator.describe().threads;
    let count = testbed("a_lab_with_fewer_flows_than_cpus_starts", &config).map(threads);
    assert!(count.is_none_or(|count| count == 1), "{count:?}");
}
