//! In a real lab: what a step says it sets is what the receiver's kernel says it is set to.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::*;
use crate::ladder::step::RUNGS;

fn skip(test: &str, why: &str) {
    // Past the test runner's capture, so that a skip is always seen.
    let _ = std::io::stderr().write_all(format!("\nSKIP {test}: {why}\n").as_bytes());
}

fn measuring() -> SampleMethod {
    SampleMethod {
        max_loss: 0.001,
        slot: Duration::from_millis(20),
        resolution: 1.1,
        drain: DRAIN,
        start_per_second: START,
        cancel: Arc::default(),
    }
}

fn bench(test: &str) -> Option<LabBench> {
    // A user namespace takes a process with a single thread, which a test is not.
    let started = LabBench::start(LabBenchOptions {
        cpus: vec![0],
        queues: Some(2),
        flows: 4,
        payload: 100,
        backend: linerate_load::generator::GeneratorBackend::Auto,
        no_fragment: false,
        measuring: measuring(),
        host_wide: false,
    });
    match started {
        Ok(bench) => Some(bench),
        Err(error) => {
            skip(test, &error.to_string());
            None
        }
    }
}

/// Switches. A program that another test starts meanwhile has all of this process's sockets until it runs: the port too.
fn switch(bench: &mut LabBench, configuration: &ServerConfiguration) -> Result<(), BenchError> {
    let deadline = std::time::Instant::now() + Duration::from_secs(5);
    loop {
        match bench.switch(configuration) {
            Err(BenchError::Server(why))
                if why.contains("in use") && std::time::Instant::now() < deadline =>
            {
                std::thread::yield_now();
            }
            other => return other,
        }
    }
}

fn read_back(bench: &LabBench, wanted: &[(Setting, SettingValue)]) {
    let host = &bench.host;
    for (setting, value) in wanted {
        let found = bench.lab.receiver().run(|| setting.read(host)).expect("the host answers").expect("read");
        assert!(setting.same(value, &found), "{setting}: wanted '{value}', found '{found}'");
    }
}

#[test]
fn every_step_that_is_not_refused_can_be_set_and_unset() {
    let Some(mut bench) = bench("every_step_that_is_not_refused_can_be_set_and_unset") else {
        return;
    };
    for step in RUNGS {
        if let Some(why) = bench.refusal(step) {
            skip(step.id, &why);
            continue;
        }
        let below = ServerConfiguration::baseline();
        let mut above = below.clone();
        (step.change)(&mut above);
        for configuration in [&below, &above, &below] {
            switch(&mut bench, configuration).unwrap_or_else(|error| panic!("{}: {error}", step.id));
            let wanted = stock::settings(&bench.receiver, &bench.placement, &bench.settable, configuration);
            read_back(&bench, &wanted);
        }
    }
}

#[test]
fn a_sample_is_measured_in_the_lab() {
    let Some(mut bench) = bench("a_sample_is_measured_in_the_lab") else {
        return;
    };
    bench.switch(&ServerConfiguration::baseline()).expect("set");
    let mut probed = 0;
    let mut request =
        SampleRequest { hint: None, budget: Duration::from_secs(5), probing: &mut |_| probed += 1 };
    let sample = bench.sample(&mut request).expect("measured");
    assert!(sample.transactions_per_second > 0.0 && sample.latency.count() > 0, "{sample:?}");
    assert!(probed > 1, "{probed} rates offered");
}

#[test]
fn a_raised_flag_ends_the_bench() {
    let Some(mut bench) = bench("a_raised_flag_ends_the_bench") else {
        return;
    };
    bench.options.measuring.cancel.store(true, Ordering::Relaxed);
    assert!(matches!(bench.switch(&ServerConfiguration::baseline()), Err(BenchError::Cancelled)));
}

#[test]
fn no_cpu_is_an_error_before_anything_is_made() {
    let options = LabBenchOptions {
        cpus: Vec::new(),
        queues: None,
        flows: 1,
        payload: 100,
        backend: linerate_load::generator::GeneratorBackend::Auto,
        no_fragment: false,
        measuring: measuring(),
        host_wide: false,
    };
    let error = LabBench::start(options).err().expect("refused");
    assert_eq!(error.to_string(), "lab: no CPU is free for server and generator");
}
