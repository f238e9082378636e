//! `linerate boost` prints one line with the reason if it cannot boost a server.

use std::process::Command;

use super::scene::{ADDRESS, BoostServersTestHost, checked_output};
use super::traces::steering;
use crate::support::program;
use crate::tune::scene::output_text;

const PORT: u16 = 5303;

fn echo(host: &mut BoostServersTestHost, sockets: &str) -> u32 {
    let bind = format!("{ADDRESS}:{PORT}");
    let arguments = ["serve", "echo", "--bind", &bind, "--sockets", sockets, "--no-pin", "--workers", "2"];
    host.serve(PORT, program(), &arguments)
}

/// Runs a command that has to fail with this status. Returns its one line on standard error.
fn refusal(command: &mut Command, status: i32) -> String {
    let output = command.output().expect("the command starts");
    let (out, err) = checked_output(status, &["..."], &output);
    assert!(out.is_empty() && err.lines().count() == 1, "{out}{err}");
    err
}

#[test]
fn boost_names_a_port_without_a_server() {
    let Some(host) = BoostServersTestHost::up("boost_names_a_port_without_a_server", &[]) else { return };
    let line = refusal(&mut host.boost(&["--port", "5399"]), 2);
    assert!(line.contains("nobody listens on port 5399: "), "{line}");
}

#[test]
fn boost_without_privileges_names_the_capabilities() {
    let Some(mut host) =
        BoostServersTestHost::up("boost_without_privileges_names_the_capabilities", &["ss", "setpriv"])
    else {
        return;
    };
    echo(&mut host, "reuseport");
    let mut command = host.scene.on_host("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]).arg(program());
    command.args(["boost", "--port", &PORT.to_string(), "apply", "--yes"]);
    let line = refusal(&mut command, 2);
    assert!(line.contains("CAP_"), "{line}");
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
        let output = host.boost(&["--port", &port, "apply", "--yes"]).output().expect("it starts");
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
    let line = refusal(&mut command, 2);
    assert!(line.to_lowercase().contains("pid namespace"), "{line}");
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
