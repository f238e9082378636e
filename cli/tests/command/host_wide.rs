//! Machine-wide settings are restored, even after kill -9.
//!
//! These tests switch auditing of this machine, so they run only with LINERATE_TEST_HOST_WIDE=1.

use crate::support;
use std::process::{Command, Stdio};

use linerate_host::{Host, Setting, SettingValue};

/// The original audit setting, restored at the end.
struct AuditGuard(SettingValue);

impl AuditGuard {
    fn switch_on() -> Option<Self> {
        if std::env::var_os("LINERATE_TEST_HOST_WIDE").is_none() {
            support::skip("it switches auditing of the whole machine; LINERATE_TEST_HOST_WIDE=1 allows it");
            return None;
        }
        let original = Setting::Audit.read(&Host::live()).and_then(|original| {
            Setting::Audit.write(&Host::live(), &SettingValue::new("1"))?;
            Ok(Self(original))
        });
        original.map_err(support::skip).ok()
    }
}

impl Drop for AuditGuard {
    fn drop(&mut self) {
        Setting::Audit.write(&Host::live(), &self.0).expect("auditing is restored");
    }
}

fn audit_is(value: &str) -> bool {
    Setting::Audit.read(&Host::live()).is_ok_and(|current| current == SettingValue::new(value))
}

fn run(time: &str) -> Command {
    let mut command = Command::new(support::program());
    command.args(["lab", "--quick", "--quiet", "--time", time, "--steps", "audit-off", "--host-wide"]);
    command.args(["--json", "-"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

#[test]
fn audit_off_step_restores_auditing_even_after_a_kill() {
    support::machine();
    let Some(_audit) = AuditGuard::switch_on() else { return };
    let output = run("5").output().expect("the command starts");
    assert!(output.status.success(), "{}", support::errors_of(&output));
    let report = support::document_of(&output);
    let step = &report["result"]["steps"][1];
    assert_eq!(step["applied"], true, "{step}");
    assert_eq!(step["changes"][0]["setting"], "audit enabled");
    assert_eq!((&step["changes"][0]["from"], &step["changes"][0]["to"]), (&"1".into(), &"0".into()));
    assert!(audit_is("1"));

    let mut child = run("5").spawn().expect("the command starts");
    support::within(30, "the step is reached", || audit_is("0"));
    child.kill().expect("killed");
    child.wait().expect("reaped");
    let clean = support::linerate(&["lab", "clean"]);
    let text = String::from_utf8_lossy(&clean.stdout);
    assert!(clean.status.success() && text.contains("restored"), "{text}");
    assert!(audit_is("1"));
}
