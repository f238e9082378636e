//! Load from two other hosts over real sshds, to a service that counts its requests.

mod scene;

use std::sync::atomic::Ordering;
use std::time::Duration;

use linerate_lab::ladder::remote::{RemoteError, RemoteOptions};
use linerate_load::{Generator, GeneratorError, LoadSlot};

use scene::RemoteTestLab;

fn slot(per_second: f64, duration: Duration) -> LoadSlot {
    LoadSlot { interval: Some(Duration::from_millis(100)), ..LoadSlot::rate(per_second, duration) }
}

#[test]
fn two_remote_generators_send_together_and_their_counts_add_up() {
    let Some(scene) = RemoteTestLab::up() else { return };
    let mut generators = scene.generators(scene.options()).expect("they start");
    let description = generators.describe();
    assert_eq!(
        (description.backend.as_str(), description.flows, generators.each().count()),
        ("socket", 32, 2)
    );
    for (host, clock) in generators.clocks() {
        let clock = clock.unwrap_or_else(|| panic!("{host}: its clock is known"));
        // All lab hosts share one clock.
        assert!(clock.ahead_ns.unsigned_abs() <= clock.uncertain_ns, "{host}: {clock:?}");
    }
    let slot = slot(2_000.0, Duration::from_millis(500));
    let mut sent_in_intervals = 0;
    let outcome =
        generators.watch(&slot, &mut |interval| sent_in_intervals += interval.sent).expect("a slot");
    // A busy machine may send fewer requests than planned, never more.
    assert!(outcome.sent > 500 && outcome.sent <= 1_000, "{outcome:?}");
    assert_eq!(outcome.sent, outcome.answered + outcome.lost);
    assert_eq!(outcome.requested_per_second, Some(2_000.0));
    assert!(sent_in_intervals > 0 && sent_in_intervals <= outcome.sent, "{sent_in_intervals}");
    let account = scene.account();
    assert_eq!(account.received, outcome.sent);
    assert!(outcome.answered <= account.answered && outcome.latency_ns.count() == outcome.answered);
    // The next slot uses the same sockets. Each host has its own window.
    let window = generators.run(&LoadSlot::window(4, Duration::from_millis(300))).expect("a slot");
    assert!(window.answered > 0);
    assert_eq!(scene.account().received, outcome.sent + window.sent);
    let programs = scene.remote_programs();
    assert_eq!(programs.count(), 2);
    drop(generators);
    programs.await_end();
}

#[test]
fn killed_remote_generator_is_named_and_other_counts_are_kept() {
    let Some(scene) = RemoteTestLab::up() else { return };
    let mut generators = scene.generators(scene.options()).expect("they start");
    let slot = slot(2_000.0, Duration::from_secs(1));
    let error = generators.watch(&slot, &mut |interval| {
        if interval.number == 1 {
            scene.kill_remote_program(1);
        }
    });
    let Err(GeneratorError::Incomplete { who, why, others: Some(others) }) = error else {
        panic!("{error:?}")
    };
    assert_eq!(who, scene.host(1));
    let kept = format!("the other 1 sent {} and had {} answered", others.sent, others.answered);
    assert!(why.contains("or linerate there was killed") && why.contains(&kept), "{why}");
    assert!(others.sent > 500 && others.sent <= 1_000, "{others:?}");
    // After one generator failed, the others send nothing.
    let received = scene.account().received;
    generators.run(&slot).expect_err("one is lost");
    assert_eq!(scene.account().received, received);
}

#[test]
fn cancelling_and_killing_ssh_end_remote_generators() {
    let Some(scene) = RemoteTestLab::up() else { return };
    let options = scene.options();
    let cancel = options.cancel.clone();
    let mut generators = scene.generators(options).expect("they start");
    let slot = slot(500.0, Duration::from_secs(60));
    let outcome = generators.watch(&slot, &mut |interval| {
        if interval.number == 1 {
            cancel.store(true, Ordering::Relaxed);
        }
    });
    let outcome = outcome.expect("an account of the sent requests");
    assert!(outcome.duration < Duration::from_secs(30) && outcome.sent < 15_000, "{outcome:?}");
    assert_eq!(outcome.sent, scene.account().received);
    // Kills the ssh processes in the middle of a slot.
    cancel.store(false, Ordering::Relaxed);
    let programs = scene.remote_programs();
    let error = generators.watch(&slot, &mut |interval| {
        if interval.number == 1 {
            scene.kill_ssh();
        }
    });
    let error = error.expect_err("both are lost").to_string();
    assert!(error.contains("ssh here was killed") && error.contains("nothing else was measured"), "{error}");
    programs.await_end();
}

#[test]
fn both_ends_detect_a_cut_link() {
    let Some(scene) = RemoteTestLab::up() else { return };
    let mut generators = scene.generators(scene.options()).expect("they start");
    let programs = scene.remote_programs();
    let slot = slot(500.0, Duration::from_secs(1));
    let error = generators.watch(&slot, &mut |interval| {
        if interval.number == 1 {
            scene.cut_link(1);
        }
    });
    let Err(GeneratorError::Incomplete { who, why, others: Some(others) }) = error else {
        panic!("{error:?}")
    };
    assert!(who == scene.host(1) && others.sent > 125 && others.sent <= 250, "{others:?}");
    assert!(why.contains("not responding") || why.contains("no account of the slot"), "{why}");
    drop(generators);
    // The remote end of a cut link receives nothing, not even the end of the connection.
    programs.await_end();
}

#[test]
fn generators_that_cannot_start_are_reported_in_one_line() {
    let Some(scene) = RemoteTestLab::up() else { return };
    let refusal = |options: RemoteOptions| -> (RemoteError, String) {
        let error = scene.generators(options).expect_err("refused");
        let text = error.to_string();
        assert_eq!(text.lines().count(), 1, "{text}");
        (error, text)
    };
    let refusal_of_one = |change: &dyn Fn(&mut RemoteOptions)| {
        let mut options = scene.options();
        options.hosts.truncate(1);
        change(&mut options);
        refusal(options)
    };

    let (error, text) = refusal_of_one(&|options| options.program = "/nowhere/linerate".to_owned());
    assert!(
        matches!(error, RemoteError::NoProgram { .. }) && text.contains("$(command -v linerate) root@"),
        "{text}"
    );
    let (error, text) = refusal_of_one(&|options| options.ssh = scene.ssh_with_wrong_key());
    assert!(matches!(error, RemoteError::Ssh { .. }) && text.contains("Permission denied"), "{text}");
    let (error, text) = refusal_of_one(&|options| options.hosts = vec![scene.host_with_port(0, 9)]);
    assert!(matches!(error, RemoteError::Ssh { .. }) && text.contains("Connection refused"), "{text}");
    let public =
        |options: &mut RemoteOptions| options.load.targets = vec!["192.0.2.1:7".parse().expect("an address")];
    let (error, text) = refusal_of_one(&public);
    assert!(
        matches!(error, RemoteError::Refused { .. }) && text.contains("--allow-destination 192.0.2.1"),
        "{text}"
    );
    let (error, text) = refusal_of_one(&|options| options.load.more = vec!["--threads=0".to_owned()]);
    assert!(matches!(error, RemoteError::Refused { .. }) && text.contains("zero threads"), "{text}");

    let mut options = scene.options();
    options.hosts[1] = scene.host_with_port(1, 9);
    let (_, text) = refusal(options);
    assert!(text.starts_with("ssh://root@198.18.1.100:9: ssh: "), "{text}");
    scene.remote_programs().await_end();

    // An allowed destination is accepted. Nothing is sent here.
    let mut options = scene.options();
    public(&mut options);
    options.load.allow = vec!["192.0.2.0/24".parse().expect("a network")];
    drop(scene.generators(options));
    assert_eq!(scene.account().received, 0);
}
