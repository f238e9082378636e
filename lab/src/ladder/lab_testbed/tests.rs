//! The ladder's testbed in a real lab. The receiver's kernel reports the values that each step
//! sets.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::*;
use crate::ladder::config::{LadderConfig, RunTiming};
use crate::ladder::step::STEPS;

fn skip(test: &str, why: &str) {
    // Bypasses the output capture of the test runner, so that skips are always visible.
    let _ = std::io::stderr().write_all(format!("\nSKIP {test}: {why}\n").as_bytes());
}

fn config() -> LadderConfig {
    let timing = RunTiming { slot: Duration::from_millis(20), resolution_ratio: 1.1, ..RunTiming::LAB_QUICK };
    LadderConfig { cpus: vec![0], queues: Some(2), flows: 4, ..LadderConfig::new(Vec::new(), timing) }
}

fn testbed<'a>(test: &str, config: &'a LadderConfig) -> Option<LabTestbed<'a>> {
    // A user namespace requires a process with one thread, and a test has more.
    match LabTestbed::start(config, None, Arc::default()) {
        Ok(testbed) => Some(testbed),
        Err(error) => {
            skip(test, &error.to_string());
            None
        }
    }
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

fn read_back(testbed: &LabTestbed<'_>, wanted: &[(Setting, SettingValue)]) {
    let host = &testbed.host;
    for (setting, value) in wanted {
        let found =
            testbed.lab.receiver().run(|| setting.read(host)).expect("the host answers").expect("read");
        assert!(setting.same(value, &found), "{setting}: wanted '{value}', found '{found}'");
    }
}

#[test]
fn every_step_that_is_not_refused_can_be_set_and_unset() {
    let config = config();
    let Some(mut testbed) = testbed("every_step_that_is_not_refused_can_be_set_and_unset", &config) else {
        return;
    };
    for step in STEPS {
        if let Some(why) = testbed.refusal(step) {
            skip(step.id, &why);
            continue;
        }
        let previous = ServerConfiguration::baseline();
        let mut candidate = previous.clone();
        (step.change)(&mut candidate);
        for configuration in [&previous, &candidate, &previous] {
            switch(&mut testbed, configuration).unwrap_or_else(|error| panic!("{}: {error}", step.id));
            let wanted =
                stock::settings(&testbed.receiver, &testbed.placement, &testbed.settable, configuration);
            read_back(&testbed, &wanted);
        }
    }
}

#[test]
fn a_sample_is_measured_in_the_lab() {
    let config = config();
    let Some(mut testbed) = testbed("a_sample_is_measured_in_the_lab", &config) else {
        return;
    };
    testbed.switch(&ServerConfiguration::baseline()).expect("set");
    let mut probed = 0;
    let mut request =
        SampleRequest { hint: None, budget: Duration::from_secs(5), on_probe: &mut |_| probed += 1 };
    let sample = testbed.sample(&mut request).expect("measured");
    assert!(sample.transactions_per_second > 0.0 && sample.latency.count() > 0, "{sample:?}");
    assert!(probed > 1, "{probed} rates offered");
}

#[test]
fn a_cancelled_run_switches_no_more() {
    let config = config();
    let Some(mut testbed) = testbed("a_cancelled_run_switches_no_more", &config) else {
        return;
    };
    testbed.sampler.cancel.store(true, Ordering::Relaxed);
    assert!(matches!(testbed.switch(&ServerConfiguration::baseline()), Err(TestbedError::Cancelled)));
}

#[test]
fn no_cpu_is_an_error_before_a_lab_starts() {
    let config = LadderConfig { cpus: Vec::new(), ..config() };
    let error = LabTestbed::start(&config, None, Arc::default()).err().expect("refused");
    assert_eq!(error.to_string(), "lab: no CPU is free for server and generator");
}
