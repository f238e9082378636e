//! `linerate boost` reports why it cannot boost a server.

use super::scene::BoostServersTestHost;
use super::traces::steering;
use crate::support::output_text;

const PORT: u16 = 5303;

#[test]
fn boost_keeps_the_steering_of_a_self_steering_server_and_reports_a_single_socket() {
    let Some(mut host) = BoostServersTestHost::up(&["ss"]) else { return };
    let port = PORT.to_string();
    let apply = ["--port", &port, "apply", "--yes", "--no-pin"];
    for sockets in ["cbpf", "ebpf"] {
        host.serve_echo(PORT, &["--sockets", sockets, "--no-pin"]);
        let before = steering(&host, PORT);
        let (out, err) = host.expect(1, &apply);
        assert!(err.contains("nothing can be done from outside"), "{sockets}: {out}{err}");
        assert_eq!((out.lines().count(), err.lines().count()), (0, 1), "{sockets}: {out}{err}");
        let (out, err) = output_text(&host.run(&apply[..4]));
        assert!(out.lines().chain(err.lines()).any(|line| line.contains("steered")), "{sockets}: {out}{err}");
        assert_eq!(before, steering(&host, PORT), "{sockets}");
        host.end_servers();
    }
    host.serve_echo(PORT, &["--sockets", "shared", "--no-pin"]);
    let (out, _) = host.expect(0, &["--port", &port, "plan"]);
    assert!(out.contains("one socket"), "{out}");
    let (out, err) = host.expect(1, &apply);
    assert!(format!("{out}{err}").contains("one socket"), "{out}{err}");
}
