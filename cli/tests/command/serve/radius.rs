//! `serve radius`, queried by FreeRADIUS's radclient and by `linerate load`.

use std::io::Write;
use std::net::SocketAddr;
use std::process::{Command, Stdio};

use super::{ServeProcess, assert_load_finds_no_corrupt_replies};
use crate::support::{TestDirectory, assert_refused, is_installed, linerate};

const USERS: &str = r#"
[[client]]
network = "127.0.0.0/8"
secret = "s3cret"

[[user]]
name = "alice"
password = "wonderland"
[user.reply]
Framed-IP-Address = "192.0.2.7"
Session-Timeout = 3600
Reply-Message = "down the hole"
"#;

fn start_server() -> (TestDirectory, ServeProcess) {
    let directory = TestDirectory::new();
    let users = directory.write("users.toml", USERS);
    let server = ServeProcess::start("radius", &["--users", &users]);
    (directory, server)
}

/// Whether radclient succeeded, and its output. It tries twice and waits 1 s each time.
fn radclient(address: SocketAddr, kind: &str, secret: &str, attributes: &str) -> (bool, String) {
    let mut child = Command::new("radclient")
        .args(["-x", "-r", "2", "-t", "1", &address.to_string(), kind, secret])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("radclient starts");
    child.stdin.take().expect("a pipe").write_all(attributes.as_bytes()).expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

#[test]
fn radclient_gets_accept_reject_or_no_reply() {
    if !is_installed("radclient") {
        return;
    }
    let (_directory, server) = start_server();
    let authentication = server.address();
    let signed = "Message-Authenticator = 0x00\n";
    let alice = |more: &str| format!("User-Name = alice\nUser-Password = wonderland\n{more}");

    let (is_success, text) = radclient(authentication, "auth", "s3cret", &alice(signed));
    assert!(is_success && text.contains("Received Access-Accept"), "{text}");
    for attribute in ["192.0.2.7", "Session-Timeout = 3600", "\"down the hole\"", "Message-Authenticator"] {
        assert!(text.split_once("Received").is_some_and(|(_, reply)| reply.contains(attribute)), "{text}");
    }
    let chap = format!("User-Name = alice\nCHAP-Password = wonderland\n{signed}");
    let (is_success, text) = radclient(authentication, "auth", "s3cret", &chap);
    assert!(is_success && text.contains("Received Access-Accept"), "{text}");

    let wrong = format!("User-Name = alice\nUser-Password = looking-glass\n{signed}");
    let (is_success, text) = radclient(authentication, "auth", "s3cret", &wrong);
    assert!(!is_success && text.contains("Received Access-Reject"), "{text}");

    let (is_success, text) = radclient(authentication, "status", "s3cret", signed);
    assert!(is_success && text.contains("Received Access-Accept"), "{text}");

    // No reply to another secret, or without Message-Authenticator. Both requests wait at the same
    // time.
    std::thread::scope(|scope| {
        let alice = alice(signed);
        let unsigned = "User-Name = alice\nUser-Password = wonderland\n";
        let silent = [
            scope.spawn(move || radclient(authentication, "auth", "another", &alice)),
            scope.spawn(move || radclient(authentication, "auth", "s3cret", unsigned)),
        ];
        for silent in silent {
            let (is_success, text) = silent.join().expect("it ran");
            assert!(!is_success && text.contains("No reply") && !text.contains("Received"), "{text}");
        }
    });
    let counters = server.stop();
    assert_eq!(counters["total"]["answered"], 4, "{counters}");
    let outcomes = &counters["radius"];
    for (outcome, count) in [("accepted", 2), ("rejected", 1), ("status", 1), ("unknown_client", 0)] {
        assert_eq!(outcomes[outcome], count, "{outcome}: {outcomes}");
    }
    assert!(["wrong_secret", "unsigned"].iter().all(|outcome| outcomes[*outcome] != 0), "{outcomes}");
}

#[test]
fn load_finds_no_corrupt_radius_replies() {
    let (directory, server) = start_server();
    let user = directory.write("user", "s3cret\nalice\nwonderland\n");
    assert_load_finds_no_corrupt_replies(server, &format!("radius:{user}"));
}

#[test]
fn invalid_users_file_is_reported_with_user_and_attribute() {
    let directory = TestDirectory::new();
    let users = directory.write("users.toml", USERS.replace("192.0.2.7", "192.0.2"));
    let output = linerate(&["serve", "radius", "--bind", "127.0.0.1:0", "--users", &users]);
    let expected = "users.toml: user \"alice\": reply.Framed-IP-Address: \"192.0.2\" is not an IPv4 address";
    assert_refused(&output, expected);
}
