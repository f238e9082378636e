//! `linerate boost` prints one line with the reason if it cannot boost a server.

use super::scene::{BoostServersTestHost, assert_one_line, checked_output};
use super::traces::steering;
use crate::support::program;
use crate::tune::scene::output_text;

const PORT: u16 = 5303;

fn echo(host: &mut BoostServersTestHost, sockets: &str) -> u32 {
    host.serve_echo(PORT, &["--sockets", sockets, "--no-pin"])
}

#[test]
fn apply_keeps_the_steering_of_a_self_steering_server() {
    for sockets in ["cbpf", "ebpf"] {
        let Some(mut host) =
            BoostServersTestHost::up("apply_keeps_the_steering_of_a_self_steering_server", &["ss"])
        else {
            return;
        };
        echo(&mut host, sockets);
        let before = steering(&host, PORT);
        let port = PORT.to_string();
        let apply = ["--port", &port, "apply", "--yes", "--no-pin"];
        let output = host.boost(&apply).output().expect("it starts");
        assert_one_line(&output, 1, "nothing can be done from outside");
        let output = host.boost(&apply[..4]).output().expect("it starts");
        let (out, err) = output_text(&output);
        let lines: Vec<&str> =
            out.lines().chain(err.lines()).filter(|line| line.contains("steered")).collect();
        assert!(!lines.is_empty(), "{sockets}: {out}{err}");
        assert_eq!(before, steering(&host, PORT), "{sockets}");
    }
}

#[test]
fn boost_refuses_a_server_in_another_pid_namespace() {
    let test = "boost_refuses_a_server_in_another_pid_namespace";
    let Some(mut host) = BoostServersTestHost::up(test, &["ss", "unshare"]) else { return };
    echo(&mut host, "reuseport");
    let mut command = host.scene.on_host("unshare");
    command.args(["--pid", "--fork", "--mount-proc"]).arg(program());
    command.args(["boost", "--port", &PORT.to_string()]);
    assert_one_line(&command.output().expect("it starts"), 2, "PID namespace");
}

#[test]
fn plan_and_apply_report_that_the_server_has_one_socket() {
    let Some(mut host) =
        BoostServersTestHost::up("plan_and_apply_report_that_the_server_has_one_socket", &["ss"])
    else {
        return;
    };
    echo(&mut host, "shared");
    let port = PORT.to_string();
    let (out, _) = host.expect(0, &["--port", &port, "plan"]);
    assert!(out.contains("one socket"), "{out}");
    let output = host.boost(&["--port", &port, "apply", "--yes", "--no-pin"]).output().expect("it starts");
    let (out, err) = checked_output(1, &["apply"], &output);
    assert!(format!("{out}{err}").contains("one socket"), "{out}{err}");
}
