//! Both sides of the remote protocol without a network: a shell replaces ssh, or a pair of sockets
//! replaces the connection.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::protocol::{RemoteAnswer, RemoteOrder, SlotOrder};
use super::{RemoteError, RemoteGenerators, RemoteLoad, RemoteOptions, serve};

use linerate_load::{
    Generator, GeneratorDescription, GeneratorError, Latency, LoadSlot, SlotInterval, SlotOutcome,
};

/// A generator that sends nothing.
#[derive(Debug)]
pub(crate) struct FakeGenerator {
    answered_per_second: f64,
    noise: f64,
    slots: u32,
}

impl FakeGenerator {
    /// The rate varies by `noise`, a fraction of `answered_per_second`.
    pub(crate) fn answering(answered_per_second: f64, noise: f64) -> Self {
        FakeGenerator { answered_per_second, noise, slots: 0 }
    }
}

impl Generator for FakeGenerator {
    fn describe(&self) -> GeneratorDescription {
        GeneratorDescription {
            backend: "fake".to_owned(),
            workload: "echo".to_owned(),
            threads: 1,
            flows: 16,
            payload_bytes: 100,
            ..GeneratorDescription::default()
        }
    }

    fn watch(
        &mut self,
        slot: &LoadSlot,
        observer: &mut dyn FnMut(&SlotInterval),
    ) -> Result<SlotOutcome, GeneratorError> {
        slot.check()?;
        self.slots += 1;
        let factor = 1.0 + self.noise * f64::from(self.slots % 3) - self.noise;
        let rate = self.answered_per_second * factor;
        let count = (rate * slot.duration.as_secs_f64()) as u64;
        let interval = SlotInterval {
            seconds: slot.duration.as_secs_f64(),
            sent: count,
            received: count,
            ..SlotInterval::default()
        };
        observer(&interval);
        let mut latency_ns = Latency::new();
        latency_ns.record(1_000);
        Ok(SlotOutcome {
            started_realtime_ns: slot.start_at_realtime_ns.unwrap_or(7),
            sent: count,
            answered: count,
            duration: slot.duration,
            offered_per_second: rate,
            answered_per_second: rate,
            latency_ns,
            intervals: vec![interval],
            ..SlotOutcome::default()
        })
    }
}

/// Replaces ssh: runs the last argument, which is the command line for the other host, in a local
/// shell.
const LOCAL_SHELL: [&str; 4] = ["sh", "-c", "for line; do :; done; eval \"$line\"", "ssh"];

fn options(ssh: &[&str], program: &str) -> RemoteOptions {
    RemoteOptions {
        hosts: vec!["ssh://far1".parse().expect("a host"), "ssh://far2".parse().expect("a host")],
        ssh: ssh.iter().map(ToString::to_string).collect(),
        program: program.to_owned(),
        load: RemoteLoad {
            targets: vec!["127.0.0.1:9".parse().expect("an address")],
            ..RemoteLoad::default()
        },
        cancel: Arc::default(),
    }
}

/// Writes a shell script that replaces the program linerate. Returns its path.
fn program(directory: &Path, script: &str) -> String {
    let path = directory.join("linerate it's");
    fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("written");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("executable");
    path.to_str().expect("a name").to_owned()
}

fn start_error(options: RemoteOptions) -> RemoteError {
    let error = RemoteGenerators::start(options).expect_err("refused");
    assert_eq!(error.to_string().lines().count(), 1, "{error}");
    error
}

fn first_error(error: RemoteError) -> RemoteError {
    match error {
        RemoteError::Several(errors) => errors.into_iter().next().expect("several"),
        error => error,
    }
}

fn ready(version: &str, schema: &str) -> String {
    let generator = serde_json::to_string(&FakeGenerator::answering(1.0, 0.0).describe()).expect("JSON");
    format!(
        r#"echo '{{"answer":"ready","schema":"{schema}","version":"{version}","cpus":3,"generator":{generator}}}'"#
    )
}

fn lost_count(generators: &RemoteGenerators) -> usize {
    generators.links.iter().filter(|link| link.lost.is_some()).count()
}

#[test]
fn start_errors_report_each_host_and_the_reason() {
    let directory = tempfile::tempdir().expect("a directory");
    let error = start_error(RemoteOptions { hosts: Vec::new(), ..options(&LOCAL_SHELL, "linerate") });
    assert!(matches!(error, RemoteError::NoHosts));
    let mut duplicate = options(&LOCAL_SHELL, "linerate");
    duplicate.hosts[1] = duplicate.hosts[0].clone();
    assert!(matches!(start_error(duplicate), RemoteError::Twice(_)));
    assert!(matches!(start_error(options(&["/nowhere/ssh"], "linerate")), RemoteError::NoSsh { .. }));

    let cancelled = options(&["sh", "-c", "exec cat", "ssh"], "linerate");
    cancelled.cancel.store(true, Ordering::Relaxed);
    assert!(matches!(start_error(cancelled), RemoteError::Cancelled));

    let older = "case \"$1\" in --version) echo linerate 0.0.7;; *) echo \"linerate: unexpected argument '--on-demand'\" >&2; exit 2;; esac";
    let error = first_error(start_error(options(&LOCAL_SHELL, &program(directory.path(), older))));
    assert!(matches!(&error, RemoteError::Version { its, .. } if its == "linerate 0.0.7"), "{error}");
    let other = format!("{}; cat", ready("9.9.9", "linerate.load-on-demand/9"));
    let error = first_error(start_error(options(&LOCAL_SHELL, &program(directory.path(), &other))));
    assert!(matches!(&error, RemoteError::Version { its, .. } if its.contains("9.9.9")), "{error}");
}

#[test]
fn a_lost_generator_is_reported_and_no_later_slot_runs() {
    let directory = tempfile::tempdir().expect("a directory");
    // The script prints a greeting like a login shell, reports that it is ready, ignores pings, and
    // ends at the first slot.
    let script = format!(
        "echo Welcome; {}; while read -r line; do case \"$line\" in *slot*) echo 'linerate: gone' >&2; exit 3;; esac; done",
        ready("0.0.1", super::protocol::SCHEMA)
    );
    let mut generators = RemoteGenerators::start(options(&LOCAL_SHELL, &program(directory.path(), &script)))
        .expect("they start");
    assert!(generators.warnings()[0].contains("runs linerate 0.0.1"));
    assert!(generators.warnings()[2].contains("offset of its clock is unknown"));
    assert_eq!((generators.fewest_cpus(), generators.describe().threads), (3, 2));
    let slot = LoadSlot::rate(1_000.0, Duration::from_millis(20));
    let error = generators.run(&slot).expect_err("they end").to_string();
    assert!(error.starts_with("ssh://far1: gone; noticed "), "{error}");
    assert_eq!(lost_count(&generators), 2);
    let error = generators.run(&slot).expect_err("they are lost").to_string();
    assert!(error.contains("nothing was sent: gone"), "{error}");
}

#[test]
fn ready_generators_are_pinged_while_other_hosts_start() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name).to_str().expect("a name").to_owned();
    let (gate, opened) = (path("gate"), path("opened"));
    assert!(std::process::Command::new("mkfifo").arg(&gate).status().expect("mkfifo runs").success());
    // The second host starts when the first one has received an order.
    let ssh =
        format!("for line; do :; done; case \"$*\" in *far2*) read -r go <{gate};; esac; eval \"$line\"");
    let script = format!(
        "{}; read -r order; mkdir {opened} && echo go >{gate}; cat >/dev/null",
        ready("0.0.1", super::protocol::SCHEMA)
    );
    let options = options(&["sh", "-c", &ssh, "ssh"], &program(directory.path(), &script));
    let generators = RemoteGenerators::start(options).expect("they start");
    assert_eq!((generators.each().count(), lost_count(&generators)), (2, 0));
}

#[test]
fn clocks_are_compared_with_the_other_hosts_if_one_ends() {
    let directory = tempfile::tempdir().expect("a directory");
    let gate = directory.path().join("gate").to_str().expect("a name").to_owned();
    assert!(std::process::Command::new("mkfifo").arg(&gate).status().expect("mkfifo runs").success());
    // The first host ends at the first comparison; the second host answers it only then.
    let first = u64::MAX;
    let script = format!(
        r#"{}; while read -r line; do case "$line $host" in
*{first}*far1) echo go >{gate}; exit;;
*{first}*far2) read -r go <{gate};; esac
number=${{line##*:}}; echo "{{\"answer\":\"pong\",\"number\":${{number%\}}}},\"realtime_ns\":$(date +%s%N)}}"; done"#,
        ready("0.0.1", super::protocol::SCHEMA)
    );
    let ssh = "for line; do :; done; case \"$*\" in *far2*) host=far2;; *) host=far1;; esac; export host; eval \"$line\"";
    let options = options(&["sh", "-c", ssh, "ssh"], &program(directory.path(), &script));
    let generators = RemoteGenerators::start(options).expect("they start");
    assert_eq!(lost_count(&generators), 1);
    let unknown: Vec<&String> =
        generators.warnings().iter().filter(|line| line.contains("clock is unknown")).collect();
    assert!(unknown.len() == 1 && unknown[0].starts_with("ssh://far1"), "{unknown:?}");
}

/// Runs the remote side at one end of a pair of sockets, and `test` at the other end.
fn with_server(
    test: impl FnOnce(&mut UnixStream, &mut dyn FnMut() -> RemoteAnswer),
) -> (std::io::Result<()>, bool) {
    let (local, remote) = UnixStream::pair().expect("a pair");
    let cancel = AtomicBool::new(false);
    let result = std::thread::scope(|scope| {
        let cancel = &cancel;
        let output = remote.try_clone().expect("a copy");
        let serving = scope.spawn(move || {
            let result = serve(&mut FakeGenerator::answering(1_000.0, 0.0), &remote, output, cancel);
            drop(remote);
            result
        });
        let mut lines = BufReader::new(local.try_clone().expect("a copy")).lines();
        let mut answer = move || {
            let line = lines.next().expect("an answer").expect("read");
            serde_json::from_str(&line).expect("an answer")
        };
        let mut local = local;
        test(&mut local, &mut answer);
        local.shutdown(std::net::Shutdown::Write).expect("shut");
        serving.join().expect("no panic")
    });
    (result, cancel.load(Ordering::Relaxed))
}

fn send_order(near: &mut UnixStream, order: &RemoteOrder) {
    writeln!(near, "{}", serde_json::to_string(order).expect("JSON")).expect("written");
}

#[test]
fn the_remote_side_runs_slots_and_answers_pings_until_its_input_ends() {
    let (result, cancelled) = with_server(|near, answer| {
        assert!(matches!(answer(), RemoteAnswer::Ready(ready) if ready.schema == super::protocol::SCHEMA));
        send_order(near, &RemoteOrder::Ping { number: 4 });
        assert!(matches!(answer(), RemoteAnswer::Pong { number: 4, realtime_ns } if realtime_ns > 0));
        let slot = LoadSlot::rate(500.0, Duration::from_millis(100));
        // The remote side ignores a start time in the far future, because then a clock was set.
        for begin in [super::clock::realtime_ns(), u64::MAX] {
            send_order(near, &RemoteOrder::Slot(SlotOrder::new(9, &slot, 2, begin)));
            assert!(matches!(answer(), RemoteAnswer::Interval { slot: 9, .. }));
            let RemoteAnswer::Done { slot: 9, report } = answer() else { panic!("no report") };
            assert_eq!(report.outcome.sent, 100);
            assert_eq!(report.outcome.started_realtime_ns == 7, begin == u64::MAX);
        }
        let empty_slot = LoadSlot { duration: Duration::ZERO, ..slot };
        send_order(near, &RemoteOrder::Slot(SlotOrder::new(10, &empty_slot, 2, 0)));
        assert!(matches!(answer(), RemoteAnswer::Failed { slot: 10, cancelled: false, .. }));
    });
    result.expect("a clean end");
    assert!(cancelled, "the slot ends with the input");
}

#[test]
fn the_remote_side_ends_at_an_invalid_order() {
    for line in ["hello", "{}", r#"{"order":"reboot"}"#, &"x".repeat(70_000)] {
        let (result, cancelled) = with_server(|near, answer| {
            answer();
            // The remote side may have closed before all of a long line is written.
            let _ = writeln!(near, "{line}");
        });
        let error = result.expect_err(line).to_string();
        assert!(cancelled && error.len() < 300 && error.contains("order"), "{error}");
    }
}
