//! `serve ntp`, queried by chronyd and by `linerate load`.

use std::process::{Command, Output};

use super::{ServeProcess, assert_load_finds_no_corrupt_replies};
use crate::support::{self, is_installed};

/// Runs chronyd against `server`, without setting the clock.
fn chronyd(server: &ServeProcess, seconds: &str) -> Output {
    let address = server.address();
    let source = format!("server {} port {} iburst", address.ip(), address.port());
    // chronyd gets only this directive. With a configuration file it would query other servers,
    // too.
    Command::new("chronyd").args(["-Q", "-U", "-t", seconds, &source]).output().expect("chronyd starts")
}

#[test]
fn chronyd_measures_a_small_offset_from_serve_ntp() {
    if !is_installed("chronyd") {
        return;
    }
    let server = ServeProcess::start("ntp", &["--local-stratum", "8"]);
    let output = chronyd(&server, "30");
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    if text.contains("not permitted") || text.contains("Permission denied") || text.contains("must be") {
        return support::skip(format!("chronyd: {}", text.trim().replace('\n', "; ")));
    }
    // "System clock wrong by 0.000037 seconds (ignored)": both use the same clock.
    let offset = text.split_once("wrong by ").and_then(|(_, rest)| rest.split(' ').next());
    let offset: f64 = offset.and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("{text}"));
    assert!(offset.abs() < 0.1, "{text}");
    let answered = server.stop()["total"]["answered"].as_u64();
    assert!(answered.is_some_and(|answered| answered >= 2), "{answered:?}: {text}");
}

#[test]
fn load_finds_no_corrupt_ntp_replies() {
    let server = ServeProcess::start("ntp", &["--local-stratum", "3"]);
    assert_load_finds_no_corrupt_replies(server, "ntp");
}
