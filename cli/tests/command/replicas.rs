//! `linerate boost run`, as root in a lab: copies of a server that has one socket.

mod handover;
mod scene;
mod sticky;
mod unit;

use std::process::Command;

use rustix::process::Signal;

use crate::boost_servers::scene::{count, signal, tell, within};
use crate::support::machine;
use scene::{PORT, ReplicaTestHost};

#[test]
fn copies_share_a_port_and_end_with_the_command() {
    let _machine = machine();
    let Some(host) = ReplicaTestHost::up("copies_share_a_port_and_end_with_the_command") else { return };
    let mut run =
        host.run(&["--replicas", "2", "--port", PORT, "--env", "COPY=nr{replica}"], &["--try", "--tcp"]);
    run.until("2 replicas on CPU");
    let [one, other] = host.copies()[..] else { panic!("{:?}", host.copies()) };
    assert_eq!(host.cpus_of(&[one, other]), ["0", "1"]);
    let outcome = host.loaded(&["--rate", "2000", "--duration", "2"]);
    assert_eq!(count(&outcome, "lost"), 0, "{outcome}");

    signal(run.pid(), Signal::HUP);
    run.until_lines(&["0| hangup", "1| hangup"]);
    assert_eq!(host.copies(), [one, other], "the signal ends no copy");
    let lines = run.end(Signal::TERM, 0);
    for line in ["0| ready, copy nr0", "1| ready, copy nr1"] {
        assert!(lines.contains(line), "{lines}");
    }
    host.expect_nothing_left();
}

#[test]
fn copies_start_in_a_namespace_that_does_not_see_their_session() {
    let test = "copies_start_in_a_namespace_that_does_not_see_their_session";
    let _machine = machine();
    let Some(host) = ReplicaTestHost::up(test) else { return };
    let mut run = host.run_without_session(&["--replicas", "2", "--port", PORT]);
    run.until("2 replicas on CPU");
    let outcome = host.loaded(&["--rate", "1000", "--duration", "1"]);
    assert_eq!(count(&outcome, "lost"), 0, "{outcome}");
    signal(run.child(), Signal::TERM);
    run.wait(0);
    host.expect_nothing_left();
}

#[test]
fn a_killed_copy_is_replaced_and_loses_what_its_buffer_held() {
    let test = "a_killed_copy_is_replaced_and_loses_what_its_buffer_held";
    let _machine = machine();
    let Some(host) = ReplicaTestHost::up(test) else { return };
    let mut run = host.run(&["--replicas", "2", "--port", PORT], &[]);
    run.until("2 replicas on CPU");
    let copies = host.copies();
    let load = host.loading(2_000.0);
    signal(copies[1], Signal::KILL);
    let back = run.until("Copy 1 serves again");
    let outcome = load.end();
    let seconds: f64 = back.rsplit(' ').nth(1).and_then(|word| word.parse().ok()).expect("a time");
    tell(&format!("replicas: copy killed, back after {seconds} s, {} lost", count(&outcome, "lost")));
    assert!(seconds < 1.0, "{back}");
    // At this rate the buffer holds a datagram or two.
    assert!(count(&outcome, "lost") <= 8, "{outcome}");
    run.end(Signal::INT, 0);
    host.expect_nothing_left();
}

#[test]
fn copies_outlive_the_killed_command_and_are_found_again() {
    let test = "copies_outlive_the_killed_command_and_are_found_again";
    let _machine = machine();
    let Some(host) = ReplicaTestHost::up(test) else { return };
    for next in ["undo", "run"] {
        let mut run = host.run(&["--replicas", "2", "--port", PORT], &[]);
        run.until("2 replicas on CPU");
        let second = host.refused(&["--replicas", "1", "--port", PORT], &[]);
        assert!(second.contains(&format!("linerate process {}", run.pid())), "{second}");
        let copies = host.copies();
        let load = host.loading(1_000.0);
        run.kill();
        assert_eq!(host.copies(), copies);
        // On SIGHUP the copies write to the pipe of the killed command.
        copies.iter().for_each(|copy| signal(*copy, Signal::HUP));
        let outcome = host.loaded(&["--rate", "1000", "--duration", "1"]);
        assert_eq!((count(&outcome, "lost"), count(&load.end(), "lost")), (0, 0));
        assert_eq!(host.copies(), copies);
        if next == "undo" {
            let (out, _) = host.boost(0, &["undo", "--port", PORT]);
            assert!(out.contains("2 processes"), "{out}");
        } else {
            let mut run = host.run(&["--replicas", "1", "--port", PORT], &[]);
            run.until("Ended the replicas of linerate process");
            run.until("1 replica on CPU");
            assert_eq!(host.copies().len(), 1);
            run.end(Signal::TERM, 0);
        }
        host.expect_nothing_left();
    }
}

#[test]
fn servers_that_cannot_be_copied_are_explained() {
    // Control groups of other tests may exist for a while.
    let _machine = machine();
    let Some(host) = ReplicaTestHost::up("servers_that_cannot_be_copied_are_explained") else { return };
    let two = ["--replicas", "2", "--port", PORT];
    for (options, words, expected) in [
        (&two[..], &["--control", "8953"][..], "could not bind tcp port 8953"),
        (&two, &["--background"], "went to the background"),
        (&["--replicas", "2", "--port", "53"], &["--user", "65534", "--at", "53"], "as user 65534"),
        (&["--replicas", "2", "--port", "5301"], &[], "could not bind udp port 5300"),
        (&["--replicas", "2", "--cpus", "4000"], &[], "no CPU 4000"),
    ] {
        let said = host.refused(options, words);
        assert!(said.contains(expected), "{options:?} {words:?}: {said}");
        host.expect_nothing_left();
    }
    let mut run = host.run(&["--replicas", "2", "--port", PORT], &["--second"]);
    run.until("has 2 sockets of udp 0.0.0.0:5300");
    run.end(Signal::TERM, 0);
    // A server that already uses the port.
    let mut first = host.server(&[]).spawn().expect("it starts");
    within(10, "the server is there", || !host.copies().is_empty());
    let said = host.refused(&two, &[]);
    assert!(said.contains("could not bind udp port 5300: a server outside"), "{said}");
    first.kill().and_then(|()| first.wait()).expect("a child");
    host.expect_nothing_left();
    let missing = Command::new(crate::support::program())
        .args(["boost", "run", "--replicas", "2", "--", "/nonexistent/server"])
        .output()
        .expect("the command starts");
    let said = String::from_utf8_lossy(&missing.stderr);
    assert!(said.contains("cannot start /nonexistent/server"), "{said}");
}
