//! `linerate boost` on `linerate serve echo`. The receiver of a lab is the host.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

use crate::schema::conforms;
use crate::support::{linerate, program, skip};
use crate::tune::scene::{TuneTestLab, output_text};

const PORT: &str = "5300";

/// An echo server that ends with the test.
struct BoostEchoServer(Child);

impl BoostEchoServer {
    /// Starts the server on the lab's receiver and waits until it serves.
    fn start(scene: &TuneTestLab, arguments: &[&str]) -> Self {
        let mut command = scene.on_host(program());
        command.args(["serve", "echo", "--bind", "0.0.0.0:5300", "--workers", "2"]).args(arguments);
        let mut child =
            command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the command starts");
        let mut errors = BufReader::new(child.stderr.take().expect("piped")).lines().map_while(Result::ok);
        assert!(errors.any(|line| line.starts_with("serving echo on ")), "the server ended");
        Self(child)
    }

    /// Starts the server without CPU steering and without pinning.
    fn plain(scene: &TuneTestLab) -> Self {
        Self::start(scene, &["--sockets", "reuseport", "--no-pin"])
    }
}

impl Drop for BoostEchoServer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn boost(scene: &TuneTestLab, arguments: &[&str]) -> Output {
    boost_with_state(scene, &scene.state(), arguments)
}

fn boost_with_state(scene: &TuneTestLab, state: &Path, arguments: &[&str]) -> Output {
    let mut command = scene.on_host(program());
    command.args(["boost", "--look", "0.5"]).args(arguments).arg("--state-dir").arg(state);
    if arguments.contains(&"apply") {
        command.arg("--measure=never");
    }
    command.output().expect("the command starts")
}

/// Runs `boost` and checks its exit status. Returns standard output and standard error.
fn expect(scene: &TuneTestLab, status: i32, arguments: &[&str]) -> (String, String) {
    let output = boost(scene, arguments);
    let (out, err) = output_text(&output);
    assert_eq!(output.status.code(), Some(status), "boost {arguments:?}: {out}{err}");
    (out, err)
}

fn document(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn assert_one_line(output: &Output, status: i32, words: &str) {
    let (out, err) = output_text(output);
    assert_eq!((output.status.code(), err.lines().count()), (Some(status), 1), "{out}{err}");
    assert!(out.is_empty() && err.contains(words), "no '{words}' in {out}{err}");
}

#[test]
fn boost_reports_invalid_arguments_and_missing_privileges_in_one_line() {
    assert_one_line(&linerate(&["boost"]), 2, "--port N or --pid P");
    assert_one_line(&linerate(&["boost", "apply", "--port", "0"]), 2, "0 is not in 1..=65535");
    assert_one_line(&linerate(&["boost", "--port", "53", "--watch"]), 2, "goes with boost apply");
    assert_one_line(&linerate(&["boost", "--pid", "4294967295"]), 2, "4294967295");
    let mut command = Command::new(program());
    command.args(["boost", "apply", "--port", "53", "--yes"]);
    if rustix::process::geteuid().is_root() {
        command.uid(65_534);
    }
    assert_one_line(&command.output().expect("the command starts"), 2, "CAP_BPF");
}

#[test]
fn missing_server_journal_or_boost_is_reported_in_one_line() {
    let Some(scene) = TuneTestLab::up("missing_server_journal_or_boost_is_reported_in_one_line") else {
        return;
    };
    assert_one_line(&boost(&scene, &["--port", PORT]), 2, "nobody listens on port 5300");
    assert_one_line(&boost(&scene, &["undo", "--port", PORT]), 2, "there is no such directory");
    std::fs::create_dir(scene.state()).expect("made");
    assert_one_line(
        &boost(&scene, &["undo", "--port", PORT]),
        2,
        "no boost of a server on port 5300 is in effect",
    );
    assert_eq!(expect(&scene, 0, &["status"]).0, "No boost is in effect.\n");
}

#[test]
fn plan_lists_sockets_and_readers_and_changes_nothing() {
    let Some(scene) = TuneTestLab::up("plan_lists_sockets_and_readers_and_changes_nothing") else { return };
    let echo = BoostEchoServer::plain(&scene);
    let pid = echo.0.id().to_string();
    let (out, err) = expect(&scene, 0, &["--port", PORT, "--no-datagrams"]);
    assert!(out.starts_with("linerate on port 5300: "), "{out}{err}");
    assert!(out.contains("udp 0.0.0.0:5300: 2 sockets") && out.contains("Nothing was changed."), "{out}");
    assert!(out.lines().all(|line| line.chars().count() <= 110 && !line.contains('\u{1b}')), "{out}");

    let refusal = boost(&scene, &["--port", PORT, "--no-datagrams", "--interface", "nosuch"]);
    assert_one_line(&refusal, 2, "no interface 'nosuch': there are eth0, lo");

    let (out, _) = expect(&scene, 0, &["plan", "--pid", &pid, "--no-datagrams", "--json", "-"]);
    let plan = document(&out);
    conforms(&plan, "linerate.boost/2");
    let plan = &plan["result"];
    assert_eq!(plan["server"]["groups"][0]["members"].as_array().map(Vec::len), Some(2), "{out}");
    assert_eq!(plan["server"]["readers"].as_array().map(Vec::len), Some(2), "{out}");
    assert!(plan["agreement"]["unknown"].is_string() && plan["plan"]["changes"].is_array(), "{out}");
    assert!(!scene.state().exists(), "showing a plan makes no journal");
}

#[test]
fn boost_with_netns_reads_sysfs_of_that_namespace() {
    let test = "boost_with_netns_reads_sysfs_of_that_namespace";
    let Some(scene) = TuneTestLab::up(test) else { return };
    if !rustix::process::geteuid().is_root() {
        return skip(test, "requires root");
    }
    let echo = BoostEchoServer::plain(&scene);
    let pid = echo.0.id().to_string();
    // In the test's own network namespace, sysfs lists other interfaces.
    let arguments = ["boost", "--pid", &pid, "--look", "0.1", "--no-datagrams", "--interface", "nosuch"];
    let with_netns = linerate(&[&arguments[..], &["--netns", &pid]].concat());
    assert_one_line(&with_netns, 2, "no interface 'nosuch': there are eth0, lo\n");
    let net = format!("--net=/proc/{pid}/ns/net");
    let with_nsenter =
        Command::new("nsenter").arg(net).arg(program()).args(arguments).output().expect("nsenter");
    assert_one_line(&with_nsenter, 2, "no interface 'nosuch': there are eth0, lo\n");
    assert_one_line(&linerate(&arguments), 2, &format!("linerate boost --netns {pid} --pid {pid}"));
    assert_one_line(&linerate(&["doctor", "--netns", "nosuch"]), 2, "no network namespace 'nosuch'");
}

#[test]
fn status_lists_an_applied_boost_and_undo_restores_the_server() {
    let test = "status_lists_an_applied_boost_and_undo_restores_the_server";
    let Some(scene) = TuneTestLab::up(test) else { return };
    let _echo = BoostEchoServer::plain(&scene);
    let (out, _) = expect(&scene, 0, &["--port", PORT, "--json", "-"]);
    let before = document(&out)["result"]["server"].clone();
    if before["delivery"]["unknown"].is_string() {
        return skip(test, before["delivery"]["unknown"].as_str().expect("a text"));
    }
    // Without a terminal, apply requires --yes.
    assert_one_line(&boost(&scene, &["apply", "--port", PORT]), 2, "--yes");

    // Without load, linerate cannot check whether clients still get replies.
    let (out, _) = expect(&scene, 0, &["plan", "--port", PORT]);
    assert!(out.contains("and apply refuses"), "{out}");
    assert_one_line(
        &boost(&scene, &["apply", "--port", PORT, "--yes"]),
        1,
        "Put it under load and apply again",
    );
    assert_eq!(expect(&scene, 0, &["status"]).0, "No boost is in effect.\n");

    let (out, _) = expect(&scene, 0, &["apply", "--port", PORT, "--yes", "--anyway"]);
    assert!(out.contains("Tune 1: ") && out.contains("Idle: "), "{out}");
    let (out, _) = expect(&scene, 0, &["status"]);
    assert!(out.contains("boost linerate on port 5300") && out.contains("udp 0.0.0.0:5300"), "{out}");
    let (out, _) = expect(&scene, 0, &["status", "--port", PORT, "--json", "-"]);
    let status = document(&out);
    conforms(&status, "linerate.boost-status/2");
    let sockets = &status["result"]["boosts"][0]["groups"][0]["steered"]["sockets"];
    assert_eq!(sockets.as_array().map(Vec::len), Some(2), "{out}");
    assert!(scene.run("status", &[]).status.success(), "tune status");

    // All settings have their values already, so apply starts no tune.
    let (out, _) = expect(&scene, 0, &["apply", "--port", PORT, "--yes"]);
    assert!(out.contains("nothing to change") && out.lines().count() <= 3, "{out}");

    let (out, _) = expect(&scene, 0, &["undo", "--port", PORT]);
    assert!(out.contains("Tune 1 undone"), "{out}");
    let (out, _) = expect(&scene, 0, &["--port", PORT, "--json", "-"]);
    let after = document(&out)["result"]["server"].clone();
    assert_eq!(before["groups"], after["groups"]);
    let allowed = |server: &Value| -> Vec<Value> {
        let readers = server["readers"].as_array().expect("readers");
        readers.iter().map(|reader| reader["allowed"].clone()).collect()
    };
    assert_eq!(allowed(&before), allowed(&after));

    // Status wants no pins that were declined.
    expect(&scene, 0, &["apply", "--port", PORT, "--yes", "--anyway", "--no-pin"]);
    expect(&scene, 0, &["status"]);
}

#[test]
fn boosts_of_other_namespaces_are_not_mistaken_for_those_of_this_one() {
    let test = "boosts_of_other_namespaces_are_not_mistaken_for_those_of_this_one";
    let (Some(one), Some(other)) = (TuneTestLab::up(test), TuneTestLab::up(test)) else { return };
    let _servers = [&one, &other].map(BoostEchoServer::plain);
    for scene in [&one, &other] {
        let apply = ["apply", "--port", PORT, "--yes", "--anyway"];
        let (out, err) = output_text(&boost_with_state(scene, &one.state(), &apply));
        if !out.contains("Tune ") {
            return skip(test, err.trim());
        }
    }
    let (out, _) = expect(&one, 0, &["status", "--port", PORT, "--json", "-"]);
    let boosts = document(&out)["result"]["boosts"].clone();
    assert!(boosts.as_array().map(Vec::len) == Some(1) && boosts[0]["tune"] == 1, "{boosts}");
    let (out, _) = expect(&one, 1, &["status", "--json", "-"]);
    let boosts = document(&out)["result"]["boosts"].clone();
    let is_observed = |index: usize| boosts[index]["now"]["unknown"].is_null();
    assert!(is_observed(0) && !is_observed(1), "{boosts}");
    for tune in ["Tune 1 undone", "Tune 2 undone"] {
        let (out, _) = expect(&one, 0, &["undo", "--port", PORT]);
        assert!(out.contains(tune), "{out}");
    }
}

#[test]
fn boost_under_load_is_verified_as_planned() {
    let test = "boost_under_load_is_verified_as_planned";
    let Some(scene) = TuneTestLab::up(test) else { return };
    // The flow decides on which CPU a packet arrives. With all flows on one CPU there would be
    // nothing to steer.
    for queue in 0..4 {
        let file = format!("/sys/class/net/eth0/queues/rx-{queue}/rps_cpus");
        scene.shell(&format!("echo {} > {file}", 1 << (queue % 2)));
    }
    // The workers are pinned. An idle machine may wake unpinned threads on the CPU where packets
    // arrive, so a boost would gain nothing.
    let _echo = BoostEchoServer::start(&scene, &["--sockets", "reuseport"]);
    let mut load = scene.on("sender0", program());
    load.args(["load", "198.18.0.1:5300", "--rate", "5k", "--flows", "64", "--duration", "60"]);
    load.args(["--backend", "socket", "--threads", "2", "--cpus", "0-1"]);
    let mut load = load.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the command starts");
    let output = boost(&scene, &["apply", "--port", PORT, "--yes", "--json", "-"]);
    let ended_early = load.try_wait().expect("a child");
    load.kill().expect("killed");
    load.wait().expect("reaped");
    let (out, err) = output_text(&output);
    assert!(ended_early.is_none(), "no load: {err}");
    let applied = document(&out);
    conforms(&applied, "linerate.boost-apply/2");
    let applied = &applied["result"];
    if let Some(why) = applied["before"]["agreement"]["unknown"].as_str() {
        return skip(test, why);
    }
    assert_eq!(applied["verification"]["verdict"], "as_planned", "{out}{err}");
    assert_eq!(output.status.code(), Some(0), "{out}{err}");
    assert_eq!(applied["broke_off"], Value::Null);
    expect(&scene, 0, &["undo", "--port", PORT]);
}

#[test]
fn apply_refuses_a_server_that_steers_with_cbpf() {
    let Some(scene) = TuneTestLab::up("apply_refuses_a_server_that_steers_with_cbpf") else { return };
    let _echo = BoostEchoServer::start(&scene, &["--sockets", "cbpf", "--no-pin"]);
    let output = boost(&scene, &["apply", "--port", PORT, "--yes", "--no-pin"]);
    assert_one_line(&output, 1, "nothing can be done from outside");
    assert_eq!(expect(&scene, 0, &["status"]).0, "No boost is in effect.\n");
}

#[test]
fn watch_boosts_a_restarted_server_again() {
    let test = "watch_boosts_a_restarted_server_again";
    let Some(scene) = TuneTestLab::up(test) else { return };
    let boosts = || {
        let (out, _) = output_text(&boost(&scene, &["status", "--json", "-"]));
        document(&out)["result"]["boosts"].as_array().expect("boosts").clone()
    };
    let echo = BoostEchoServer::plain(&scene);
    let (out, err) = output_text(&boost(&scene, &["apply", "--port", PORT, "--yes", "--anyway"]));
    if !out.contains("Tune 1: ") {
        return skip(test, err.trim());
    }
    drop(echo);
    let echo = BoostEchoServer::plain(&scene);
    let mut command = scene.on_host(program());
    let pid = echo.0.id().to_string();
    command.args(["boost", "apply", "--pid", &pid, "--yes", "--anyway", "--watch", "--look", "0.5"]);
    command.arg("--state-dir").arg(scene.state()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut watch = command.spawn().expect("the command starts");
    let mut lines = BufReader::new(watch.stderr.take().expect("piped")).lines().map_while(Result::ok);
    let mut expect_line = |words: &str| assert!(lines.any(|line| line.contains(words)), "no '{words}'");
    expect_line("tune 1 is closed: its server has ended");
    expect_line("Tune 2 is watched");
    let in_effect = boosts();
    assert_eq!((in_effect.len(), &in_effect[0]["tune"]), (1, &Value::from(2)), "{in_effect:?}");

    drop(echo);
    expect_line("waiting for it to start again");
    let _echo = BoostEchoServer::plain(&scene);
    expect_line("tune 2 is closed: its server has ended");
    expect_line("Tune 3 is watched");
    rustix::process::kill_process(
        rustix::process::Pid::from_raw(watch.id().cast_signed()).expect("a process"),
        rustix::process::Signal::INT,
    )
    .expect("sent");
    assert!(watch.wait().expect("it ends").success());
    let in_effect = boosts();
    assert_eq!((in_effect.len(), &in_effect[0]["tune"]), (1, &Value::from(3)), "{in_effect:?}");
    let settings = in_effect[0]["settings"].as_array().expect("settings");
    assert!(settings.iter().all(|setting| setting["state"] == "in-effect"), "{settings:#?}");
    expect(&scene, 0, &["undo", "--port", PORT]);
    assert_eq!(expect(&scene, 0, &["status"]).0, "No boost is in effect.\n");
}
