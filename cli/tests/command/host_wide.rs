//! Machine-wide settings are restored, even after kill -9.
//!
//! These tests switch auditing of this machine, so they run only with LINERATE_TEST_HOST_WIDE=1.

use crate::support;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use linerate_host::{Host, Setting, SettingValue};
use serde_json::Value as Json;

/// The original audit setting, restored at the end.
struct AuditGuard(SettingValue);

impl AuditGuard {
    fn switched_on(test: &str) -> Option<Self> {
        let refused = |why: &str| {
            support::skip(test, why);
            None
        };
        if std::env::var_os("LINERATE_TEST_HOST_WIDE").is_none() {
            return refused("it switches auditing of the whole machine; LINERATE_TEST_HOST_WIDE=1 allows it");
        }
        let found = match Setting::Audit.read(&Host::live()) {
            Ok(found) => Self(found),
            Err(error) => return refused(&error.to_string()),
        };
        match Setting::Audit.write(&Host::live(), &SettingValue::new("1")) {
            Ok(()) => Some(found),
            Err(error) => refused(&error.to_string()),
        }
    }
}

impl Drop for AuditGuard {
    fn drop(&mut self) {
        Setting::Audit.write(&Host::live(), &self.0).expect("auditing is put back");
    }
}

fn audit_is(value: &str) -> bool {
    Setting::Audit.read(&Host::live()).is_ok_and(|found| found == SettingValue::new(value))
}

fn run(time: &str) -> Command {
    let mut command = Command::new(support::program());
    command.args([
        "lab",
        "--quick",
        "--quiet",
        "--time",
        time,
        "--steps",
        "audit-off",
        "--host-wide",
        "--json",
        "-",
    ]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

#[test]
fn auditing_is_switched_for_its_step_and_put_back() {
    let _machine = support::machine();
    let Some(_audit) = AuditGuard::switched_on("auditing_is_switched_for_its_step_and_put_back") else {
        return;
    };
    let output = run("5").output().expect("the command starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Json = serde_json::from_slice(&output.stdout).expect("a report");
    let step = &report["result"]["steps"][1];
    assert_eq!(step["applied"], true, "{step}");
    assert_eq!(step["changes"][0]["setting"], "audit enabled");
    assert_eq!((&step["changes"][0]["from"], &step["changes"][0]["to"]), (&"1".into(), &"0".into()));
    assert!(audit_is("1"));

    let mut killed = run("30").spawn().expect("the command starts");
    let deadline = Instant::now() + Duration::from_secs(30);
    while !audit_is("0") {
        assert!(Instant::now() < deadline, "the step is reached within 30 s");
        std::thread::yield_now();
    }
    killed.kill().expect("killed");
    killed.wait().expect("reaped");
    let clean = support::linerate(&["lab", "clean"]);
    let told = String::from_utf8_lossy(&clean.stdout);
    assert!(clean.status.success() && told.contains("restored"), "{told}");
    assert!(audit_is("1"));
}
