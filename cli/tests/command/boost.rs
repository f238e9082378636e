//! `linerate boost` on `linerate serve echo`. The receiver of a lab is the host.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::boost_servers::scene::BoostServersTestHost;
use crate::support::{self, checked_text, document_of, linerate, lines_of, output_text, program, skip};

const PORT: &str = "5300";
const PORT_NUMBER: u16 = 5300;

/// Starts a server without CPU steering and without pinning. Returns its process.
fn serve_plain(host: &mut BoostServersTestHost) -> u32 {
    host.serve_echo(PORT_NUMBER, &["--sockets", "reuseport", "--no-pin"])
}

fn boost(host: &BoostServersTestHost, arguments: &[&str]) -> Output {
    let look: &[&str] = if arguments[0] == "undo" { &[] } else { &["--look", "0.5"] };
    host.run(&[look, arguments].concat())
}

/// Runs `boost` and checks its exit status. Returns standard output and standard error.
#[track_caller]
fn expect(host: &BoostServersTestHost, status: i32, arguments: &[&str]) -> (String, String) {
    checked_text(&boost(host, arguments), status, format_args!("boost {arguments:?}"))
}

fn assert_refused(output: &Output, words: &str) {
    support::assert_refused(output, words);
    assert!(output.stdout.is_empty(), "{output:?}");
}

#[test]
fn plan_finds_the_server_of_its_namespaces_and_changes_nothing() {
    let Some(mut host) = BoostServersTestHost::up(&["ss", "unshare"]) else { return };
    assert_refused(&boost(&host, &["--port", PORT]), "nobody listens on port 5300: ");
    assert_refused(&boost(&host, &["undo", "--port", PORT]), "there is no such directory");
    let pid = serve_plain(&mut host).to_string();
    let (out, err) = expect(&host, 0, &["--port", PORT, "--no-datagrams"]);
    assert!(out.starts_with("linerate on port 5300: "), "{out}{err}");
    assert!(out.contains("udp 198.18.0.1:5300: 2 sockets") && out.contains("Nothing was changed."), "{out}");
    assert!(out.lines().all(|line| line.chars().count() <= 110 && !line.contains('\u{1b}')), "{out}");

    let plan = host.document(&["plan", "--pid", &pid, "--look", "0.5", "--no-datagrams"]);
    let server = &plan["server"];
    assert_eq!(server["groups"][0]["members"].as_array().map(Vec::len), Some(2), "{plan}");
    // Each thread waits in a call on its socket.
    let readers = server["readers"].as_array().expect("readers");
    let is_in_call =
        |reader: &Value| reader["seen"] == "in_call" && reader["sockets"].as_array().map(Vec::len) == Some(1);
    assert!(readers.len() == 2 && readers.iter().all(is_in_call), "{plan}");
    assert!(plan["agreement"]["unknown"].is_string() && plan["plan"]["changes"].is_array(), "{plan}");
    assert!(!host.scene.state().exists(), "showing a plan makes no journal");

    // In the test's own network namespace, sysfs lists other interfaces.
    let arguments = ["boost", "--pid", &pid, "--look", "0.1", "--no-datagrams", "--interface", "nosuch"];
    let with_netns = linerate(&[&arguments[..], &["--netns", &pid]].concat());
    let net = format!("--net=/proc/{pid}/ns/net");
    let with_nsenter =
        Command::new("nsenter").arg(net).arg(program()).args(arguments).output().expect("nsenter");
    let on_host = boost(&host, &["--port", PORT, "--no-datagrams", "--interface", "nosuch"]);
    for refusal in [on_host, with_netns, with_nsenter] {
        assert_refused(&refusal, "no interface 'nosuch': there are eth0, lo\n");
    }
    assert_refused(&linerate(&arguments), &format!("linerate boost --netns {pid} --pid {pid}"));
    assert_refused(&linerate(&["doctor", "--netns", "nosuch"]), "no network namespace 'nosuch'");
    let mut in_pid_namespace = host.scene.on_host("unshare");
    in_pid_namespace.args(["--pid", "--fork", "--mount-proc"]).arg(program()).args(["boost", "--port", PORT]);
    assert_refused(&in_pid_namespace.output().expect("it starts"), "PID namespace");

    std::fs::create_dir(host.scene.state()).expect("made");
    let undo = boost(&host, &["undo", "--port", PORT]);
    assert_refused(&undo, "no boost of a server on port 5300 is in effect");
    assert_eq!(expect(&host, 0, &["status"]).0, "No boost is in effect.\n");
}

#[test]
fn status_lists_an_applied_boost_and_undo_restores_the_server() {
    let Some(mut host) = BoostServersTestHost::up(&["ss"]) else { return };
    serve_plain(&mut host);
    let server = || host.document(&["--port", PORT, "--look", "0.5"])["server"].take();
    let before = server();
    if let Some(why) = before["delivery"]["unknown"].as_str() {
        return skip(why);
    }
    // Without a terminal, apply requires --yes.
    assert_refused(&boost(&host, &["apply", "--port", PORT]), "--yes");

    // Without load, linerate cannot check whether clients still get replies.
    let (out, _) = expect(&host, 0, &["plan", "--port", PORT]);
    assert!(out.contains("and apply refuses"), "{out}");
    let (out, err) = expect(&host, 1, &["apply", "--port", PORT, "--yes"]);
    assert!(out.is_empty() && err.contains("Put it under load and apply again"), "{out}{err}");
    assert_eq!(err.lines().count(), 1, "{err}");
    assert_eq!(expect(&host, 0, &["status"]).0, "No boost is in effect.\n");

    let (out, _) = expect(&host, 0, &["apply", "--port", PORT, "--yes", "--anyway"]);
    assert!(out.contains("Tune 1: ") && out.contains("Idle: "), "{out}");
    let (out, _) = expect(&host, 0, &["status"]);
    assert!(out.contains("boost linerate on port 5300") && out.contains("udp 198.18.0.1:5300"), "{out}");
    let status = host.document(&["status", "--port", PORT, "--look", "0.5"]);
    let sockets = &status["boosts"][0]["groups"][0]["steered"]["sockets"];
    assert_eq!(sockets.as_array().map(Vec::len), Some(2), "{status}");
    assert!(host.scene.run("status", &[]).status.success(), "tune status");

    // All settings have their values already, so apply starts no tune.
    let (out, _) = expect(&host, 0, &["apply", "--port", PORT, "--yes"]);
    assert!(out.contains("nothing to change") && out.lines().count() <= 3, "{out}");

    let (out, _) = expect(&host, 0, &["undo", "--port", PORT]);
    assert!(out.contains("Tune 1 undone"), "{out}");
    let after = server();
    assert_eq!(before["groups"], after["groups"]);
    let allowed = |server: &Value| -> Vec<Value> {
        let readers = server["readers"].as_array().expect("readers");
        readers.iter().map(|reader| reader["allowed"].clone()).collect()
    };
    assert_eq!(allowed(&before), allowed(&after));

    // Status does not report declined pins as missing.
    expect(&host, 0, &["apply", "--port", PORT, "--yes", "--anyway", "--no-pin"]);
    expect(&host, 0, &["status"]);

    // What cannot be changed does not hide the boost that is in effect.
    expect(&host, 0, &["undo", "--port", PORT]);
    expect(&host, 0, &["apply", "--port", PORT, "--yes", "--anyway", "--by-incoming-cpu"]);
    for words in [&["apply", "--yes"][..], &["plan"]] {
        let arguments = [words, &["--port", PORT, "--by-incoming-cpu"]].concat();
        let (out, _) = expect(&host, 0, &arguments);
        assert!(out.contains("nothing to change"), "{out}");
    }
}

#[test]
fn boosts_of_other_namespaces_are_not_mistaken_for_those_of_this_one() {
    let up = || BoostServersTestHost::up(&["ss"]);
    let (Some(mut one), Some(mut other)) = (up(), up()) else { return };
    serve_plain(&mut one);
    serve_plain(&mut other);
    let apply_with_state = |host: &BoostServersTestHost, state: &Path| {
        let mut command = host.scene.on_host(program());
        command.args(["boost", "apply", "--port", PORT, "--yes", "--anyway", "--measure=never"]);
        command.args(["--look", "0.5", "--state-dir"]).arg(state).output().expect("the command starts")
    };
    for host in [&one, &other] {
        let (out, err) = output_text(&apply_with_state(host, &one.scene.state()));
        if !out.contains("Tune ") {
            return skip(err.trim());
        }
    }
    let boosts = one.document(&["status", "--port", PORT, "--look", "0.5"])["boosts"].take();
    assert!(boosts.as_array().map(Vec::len) == Some(1) && boosts[0]["tune"] == 1, "{boosts}");
    let boosts = one.document(&["status", "--look", "0.5"])["boosts"].take();
    let is_observed = |index: usize| boosts[index]["now"]["unknown"].is_null();
    assert!(is_observed(0) && !is_observed(1), "{boosts}");
    for tune in ["Tune 1 undone", "Tune 2 undone"] {
        let (out, _) = expect(&one, 0, &["undo", "--port", PORT]);
        assert!(out.contains(tune), "{out}");
    }
}

#[test]
fn watch_boosts_a_restarted_server_again_and_ends_when_the_boost_is_undone() {
    let Some(mut host) = BoostServersTestHost::up(&["ss"]) else { return };
    serve_plain(&mut host);
    let (out, err) = output_text(&boost(&host, &["apply", "--port", PORT, "--yes", "--anyway"]));
    if !out.contains("Tune 1: ") {
        return skip(err.trim());
    }
    host.end_servers();
    let pid = serve_plain(&mut host).to_string();
    let mut command = host.boost(&["apply", "--pid", &pid, "--yes", "--anyway", "--watch", "--look", "0.5"]);
    command.args(["--until-confirmed", "1h"]);
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    let mut watch = command.spawn().expect("the command starts");
    let mut lines = lines_of(&mut watch.stderr);
    let mut expect_line = |words: &str| assert!(lines.any(|line| line.contains(words)), "no '{words}'");
    // Only the boost of the running server is in effect, with all of its settings. Returns its deadline.
    let assert_in_effect = |host: &BoostServersTestHost, tune: u64| {
        let status = document_of(&boost(host, &["status", "--json", "-"]));
        let boosts = status["result"]["boosts"].as_array().expect("boosts");
        assert_eq!((boosts.len(), &boosts[0]["tune"]), (1, &Value::from(tune)), "{boosts:?}");
        let settings = boosts[0]["settings"].as_array().expect("settings");
        assert!(settings.iter().all(|setting| setting["state"] == "in-effect"), "{settings:#?}");
        boosts[0]["until"].clone()
    };
    expect_line("tune 1 is closed: its server has ended");
    expect_line("Tune 2 is watched");
    let until = assert_in_effect(&host, 2);
    assert!(until["confirmed"].is_object(), "{until}");

    host.end_servers();
    expect_line("waiting for it to start again");
    serve_plain(&mut host);
    expect_line("tune 2 is closed: its server has ended");
    expect_line("Tune 3 is watched");
    assert_eq!(assert_in_effect(&host, 3), until, "the restart defers no deadline");
    host.scene.expect(0, "confirm", &[]);

    // A confirmed boost stays, and the watch waits for another tune.
    host.end_servers();
    expect_line("waiting for it to start again");
    let file = host.scene.save("plan.json", host.scene.plan());
    host.scene.apply(0, &file, &["--until-confirmed", "1h"]);
    serve_plain(&mut host);
    expect_line("tune 4 undoes itself unless it is confirmed");
    host.scene.expect(0, "confirm", &[]);
    expect_line("Tune 5 is watched");
    assert_eq!(assert_in_effect(&host, 5), Value::Null);
    expect(&host, 0, &["undo", "--port", PORT]);
    expect_line("the boost was undone");
    assert!(watch.wait().expect("it ends").success());
    assert_eq!(expect(&host, 0, &["status"]).0, "No boost is in effect.\n");
}
