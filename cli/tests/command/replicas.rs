//! `linerate boost run`, as root in a lab: copies of a server that has one socket.

mod handover;
mod scene;
mod sticky;
mod unit;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Command, Stdio};

use rustix::process::Signal;

use crate::boost_servers::scene::print_figure;
use crate::support::{count, machine, program, signal, within};
use scene::{PORT, PORT_NUMBER, ReplicaTestHost};

#[test]
fn replicas_share_a_port_restart_within_1_s_and_end_with_boost_run() {
    machine();
    let Some(host) = ReplicaTestHost::up() else { return };
    let mut run =
        host.run(&["--replicas", "2", "--port", PORT, "--env", "COPY=nr{replica}"], &["--try", "--tcp"]);
    run.until("2 replicas on CPU");
    let [one, other] = host.copies()[..] else { panic!("{:?}", host.copies()) };
    assert_eq!(host.cpus_of(&[one, other]), ["0", "1"]);
    let outcome = host.run_load(PORT_NUMBER, &["--rate", "2000", "--duration", "2"]);
    assert_eq!(count(&outcome, "lost"), 0, "{outcome}");

    // A boost of the copies can be undone while they run.
    let buffers = ["--receive-buffer", "33554432", "--no-pin", "--no-steer", "--yes"];
    host.expect(0, &[&["apply", "--port", PORT], &buffers[..]].concat());
    let (out, _) = host.expect(0, &["undo", "--port", PORT]);
    assert!(out.contains("Tune 1"), "{out}");
    let (_, err) = host.expect(2, &["undo", "--port", PORT]);
    assert!(err.contains("end that process"), "{err}");

    let load = host.start_load(PORT_NUMBER, 2_000.0, &[]);
    signal(other, Signal::KILL);
    let line = run.until("Copy 1 serves again");
    let copies = host.copies();
    // A signal makes it look for ended children.
    within(10, "no ended child stays", || {
        signal(run.pid(), Signal::HUP);
        run.children().len() == 4
    });
    let lost = count(&load.end(), "lost");
    let seconds: f64 = line.rsplit(' ').nth(1).and_then(|word| word.parse().ok()).expect("a time");
    print_figure(&format!("replicas: copy killed, back after {seconds} s, {lost} lost"));
    assert!(seconds < 1.0, "{line}");
    // At this rate the buffer holds a datagram or two.
    assert!(lost <= 8, "{lost}");

    signal(run.pid(), Signal::HUP);
    run.until_lines(&["0| hangup", "1| hangup"]);
    assert_eq!(host.copies(), copies, "the signal ends no copy");
    let lines = run.end(Signal::TERM, 0);
    for line in ["0| ready, copy nr0", "1| ready, copy nr1"] {
        assert!(lines.contains(line), "{lines}");
    }
    host.assert_all_removed();
}

#[test]
fn prefixed_lines_are_printed_until_the_input_ends() {
    let mut command = Command::new(program());
    command.args(["boost", "prefix-lines", "--", "0| "]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut printer = command.spawn().expect("it starts");
    let mut input = printer.stdin.take().expect("a pipe");
    let mut output = BufReader::new(printer.stdout.take().expect("a pipe"));
    let mut text = String::new();
    input.write_all(b"ready\n").and_then(|()| output.read_line(&mut text)).expect("a line");
    for stop_signal in [Signal::INT, Signal::TERM, Signal::QUIT, Signal::HUP] {
        signal(printer.id(), stop_signal);
    }
    input.write_all(b"shutting down\n").expect("the printer runs");
    drop(input);
    output.read_to_string(&mut text).expect("lines");
    assert_eq!(text, "0| ready\n0| shutting down\n");
    assert!(printer.wait().expect("a child").success());
}

#[test]
fn replicas_start_in_a_pid_namespace_without_their_session() {
    machine();
    let Some(host) = ReplicaTestHost::up() else { return };
    let mut run = host.run_without_session(&["--replicas", "2", "--port", PORT]);
    run.until("2 replicas on CPU");
    let outcome = host.run_load(PORT_NUMBER, &["--rate", "1000", "--duration", "1"]);
    assert_eq!(count(&outcome, "lost"), 0, "{outcome}");
    // In this namespace, the PID of boost run belongs to another process.
    let copies = host.copies();
    let status = host.document(&["status"]);
    assert_eq!(status["replicas"][0]["is_supervised"], true, "{status}");
    let (_, err) = host.expect(2, &["undo", "--port", PORT]);
    assert!(err.contains("in another PID namespace"), "{err}");
    for (verb, options) in [("replace", &["--port", PORT][..]), ("run", &["--replicas", "1", "--port", PORT])]
    {
        let refusal = host.refusal_of(verb, options, &[]);
        assert!(refusal.contains("in another PID namespace"), "{refusal}");
    }
    assert_eq!(host.copies(), copies);
    signal(run.children()[0], Signal::TERM);
    run.wait(0);
    host.assert_all_removed();
}

#[test]
fn replicas_outlive_a_killed_boost_run_until_undo_run_or_replace_ends_them() {
    machine();
    let Some(host) = ReplicaTestHost::up() else { return };
    for next in ["undo", "run", "replace"] {
        let mut run = host.run(&["--replicas", "2", "--port", PORT], &[]);
        run.until("2 replicas on CPU");
        let refusal = host.refusal(&["--replicas", "1", "--port", PORT], &[]);
        assert!(refusal.contains(&format!("linerate process {}", run.pid())), "{refusal}");
        let copies = host.copies();
        let load = host.start_load(PORT_NUMBER, 1_000.0, &[]);
        run.kill();
        assert_eq!(host.copies(), copies);
        // On SIGHUP the copies write to the pipe of the killed command.
        copies.iter().for_each(|copy| signal(*copy, Signal::HUP));
        let outcome = host.run_load(PORT_NUMBER, &["--rate", "1000", "--duration", "1"]);
        assert_eq!((count(&outcome, "lost"), count(&load.end(), "lost")), (0, 0));
        assert_eq!(host.copies(), copies);
        if next == "replace" {
            let mut new = host.replace(&["--replicas", "1", "--drain", "0"], &[]);
            new.until(&format!("Port {PORT} is taken over"));
            let status = host.document(&["status"]);
            assert_eq!(status["replicas"].as_array().map(Vec::len), Some(1), "{status}");
            new.end(Signal::TERM, 0);
        } else if next == "undo" {
            let (out, _) = host.expect(0, &["undo", "--port", PORT]);
            assert!(out.contains("2 processes"), "{out}");
        } else {
            let mut run = host.run(&["--replicas", "1", "--port", PORT], &[]);
            run.until("Ended the replicas of linerate process");
            run.until("1 replica on CPU");
            assert_eq!(host.copies().len(), 1);
            run.end(Signal::TERM, 0);
        }
        host.assert_all_removed();
    }
}

#[test]
fn boost_run_reports_servers_that_cannot_be_replicated() {
    // Control groups of other tests may exist for a while.
    machine();
    let Some(host) = ReplicaTestHost::up() else { return };
    let two = ["--replicas", "2", "--port", PORT];
    for (options, words, expected) in [
        (&two[..], &["--control", "8953"][..], "could not bind tcp port 8953"),
        (&two, &["--background"], "went to the background"),
        (&["--replicas", "2", "--port", "53"], &["--user", "65534", "--at", "53"], "as user 65534"),
        (&["--replicas", "2", "--port", "5301"], &[], "could not bind udp port 5300"),
        (&["--replicas", "2", "--cpus", "4000"], &[], "no CPU 4000"),
    ] {
        let output = host.refusal(options, words);
        assert!(output.contains(expected), "{options:?} {words:?}: {output}");
        host.assert_all_removed();
    }
    let mut run = host.run(&["--replicas", "2", "--port", PORT], &["--second"]);
    run.until("has 2 sockets of udp 0.0.0.0:5300");
    run.end(Signal::TERM, 0);
    // A server that already uses the port.
    let first = host.start_server(&[]);
    let output = host.refusal(&two, &[]);
    assert!(output.contains("could not bind udp port 5300: a server outside"), "{output}");
    drop(first);
    host.assert_all_removed();
    let failed = Command::new(crate::support::program())
        .args(["boost", "run", "--replicas", "2", "--", "/nonexistent/server"])
        .output()
        .expect("the command starts");
    let output = String::from_utf8_lossy(&failed.stderr);
    assert!(output.contains("cannot start /nonexistent/server"), "{output}");
}
