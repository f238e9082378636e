//! A lab host with a veth of four queues, on which tests run `linerate tune`.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::{Value, json};

use crate::support::{TestDirectory, checked_text, errors_of, is_root, output_text, program, skip, text_of};

/// A private lab, and a directory for the journal and plans.
pub(crate) struct TuneTestLab {
    lab: String,
    directory: TestDirectory,
}

/// The values of all files, offloads and rules that a plan might change.
pub(crate) type HostSettingValues = BTreeMap<String, String>;

impl TuneTestLab {
    /// Creates a lab. Prints a SKIP line and returns `None` without root or if no lab can be
    /// created.
    pub(crate) fn up() -> Option<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        if !is_root() {
            return None;
        }
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let lab = format!("tune{}x{number}", std::process::id());
        let directory = TestDirectory::new();
        let scene = Self { lab, directory };
        let up = scene.lab(&["up", &scene.lab, "--queues", "4"]);
        if !up.status.success() {
            skip(errors_of(&up).trim());
            return None;
        }
        Some(scene)
    }

    /// Creates a lab like `up`. Returns the file of a plan for it and its settings, too.
    pub(crate) fn up_with_plan() -> Option<(Self, String, HostSettingValues)> {
        let scene = Self::up()?;
        let file = scene.save("plan.json", scene.plan());
        let values = scene.values();
        Some((scene, file, values))
    }

    fn lab(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(program());
        command.arg("lab").args(arguments).env("XDG_RUNTIME_DIR", self.directory.path());
        command.output().expect("the command starts")
    }

    /// A command that runs a program on the receiver.
    pub(crate) fn on_host(&self, executable: impl AsRef<std::ffi::OsStr>) -> Command {
        self.on("receiver", executable)
    }

    /// A command that runs a program on either host. Its process becomes the program (exec).
    pub(crate) fn on(&self, host: &str, executable: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program());
        command.args(["lab", "exec", "--lab", &self.lab, host, "--"]).arg(executable);
        command.env("XDG_RUNTIME_DIR", self.directory.path()).stdin(Stdio::null());
        command
    }

    /// `linerate tune` on the receiver, with the journal of this test.
    pub(crate) fn tune(&self, verb: &str, arguments: &[&str]) -> Command {
        let mut command = self.on_host(program());
        command.args(["tune", verb, "--state-dir"]).arg(self.state()).args(arguments);
        command
    }

    /// Runs `linerate tune` to its end.
    pub(crate) fn run(&self, verb: &str, arguments: &[&str]) -> Output {
        self.tune(verb, arguments).output().expect("the command starts")
    }

    /// Runs `linerate tune` and checks its exit status. Returns standard output and standard error.
    #[track_caller]
    pub(crate) fn expect(&self, status: i32, verb: &str, arguments: &[&str]) -> (String, String) {
        checked_text(&self.run(verb, arguments), status, format_args!("tune {verb} {arguments:?}"))
    }

    /// Applies a saved plan and checks the exit status. Returns standard output and standard error.
    #[track_caller]
    pub(crate) fn apply(&self, status: i32, plan: &str, more: &[&str]) -> (String, String) {
        self.expect(status, "apply", &[&["--plan", plan, "--yes"], more].concat())
    }

    /// Undoes the latest tune. All settings have to have these values afterwards.
    #[track_caller]
    pub(crate) fn undo(&self, values: &HostSettingValues) {
        self.expect(0, "undo", &[]);
        assert_eq!(*values, self.values());
    }

    /// No tune may be in effect, and all settings have to have these values.
    #[track_caller]
    pub(crate) fn assert_undone(&self, values: &HostSettingValues) {
        assert_eq!(*values, self.values());
        assert_eq!(self.expect(0, "status", &[]).0, "No tune is in effect.\n");
    }

    /// Standard output and standard error of `linerate tune`, whatever its exit status.
    pub(crate) fn expect_any(&self, verb: &str, arguments: &[&str]) -> (String, String) {
        output_text(&self.run(verb, arguments))
    }

    /// The directory of the journal.
    pub(crate) fn state(&self) -> PathBuf {
        self.path("state")
    }

    /// The test's directory.
    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// A path in the test's directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Runs a shell script on the receiver. Returns standard output.
    pub(crate) fn shell(&self, script: &str) -> String {
        let output = self.on_host("sh").args(["-c", script]).output().expect("a shell");
        assert!(output.status.success(), "{script}: {}", errors_of(&output));
        text_of(&output).trim().to_owned()
    }

    /// Reads all settings that a plan might change.
    pub(crate) fn values(&self) -> HostSettingValues {
        let files = self.shell(
            "grep -r . /proc/sys/net/ipv4/conf /proc/sys/net/ipv6/conf /proc/sys/net/core 2>/dev/null \
             | grep -v stable_secret; \
             grep . /proc/sys/net/ipv4/udp_* /sys/class/net/*/queues/*/[rx]ps_* /sys/class/net/*/gro_* \
             /sys/class/net/*/napi_* /sys/class/net/*/threaded /sys/class/net/*/tx_queue_len 2>/dev/null; true",
        );
        let mut values: HostSettingValues = files
            .lines()
            .filter_map(|line| line.split_once(':'))
            .map(|(path, value)| (path.to_owned(), value.to_owned()))
            .collect();
        assert!(values.len() > 100, "{values:?}");
        values.insert("ethtool -k".into(), self.shell("ethtool -k eth0"));
        values.insert("nft".into(), self.shell("nft list ruleset"));
        values
    }

    /// A plan of these changes: a setting, its current value and its new value.
    pub(crate) fn plan_of(&self, changes: &[(Value, &str, &str)]) -> Value {
        let read = |file: &str| self.shell(&format!("cat /sys/class/net/eth0/{file}"));
        let change = |(setting, from, to): &(Value, &str, &str)| {
            json!({
                "setting": setting, "from": from, "to": to, "why": "A test wants it.", "findings": [],
                "effect": null, "source": null, "risk": null, "interrupts": "nothing", "claims": [],
            })
        };
        json!({
            "schema": "linerate.plan/2",
            "version": env!("CARGO_PKG_VERSION"),
            "goal": "a test",
            "devices": [{
                "interface": "eth0",
                "index": read("ifindex").parse::<u32>().expect("a number"),
                "address": read("address"),
                "device": null,
            }],
            "cpus": [], "layouts": [], "exclusions": [], "skipped": [],
            "changes": changes.iter().map(change).collect::<Vec<_>>(),
        })
    }

    /// A plan with a change of each kind that a veth supports.
    pub(crate) fn plan(&self) -> Value {
        let queue = |direction: &str, queue: u32| json!({ "queue_cpus": { "interface": "eth0", "direction": direction, "queue": queue } });
        let sysctl = |name: &str| json!({ "sysctl": name });
        let table = "table inet linerate_test {\n\tchain a {\n\t\tudp dport 53 accept\n\t}\n}";
        let gro = json!({ "offload": { "interface": "eth0", "offload": "generic-receive" } });
        let now = |file: &str| self.shell(&format!("cat {file}"));
        let mask = |file: &str| now(&format!("/sys/class/net/eth0/queues/{file}"));
        let from =
            [mask("rx-0/rps_cpus"), mask("rx-3/rps_cpus"), mask("tx-0/xps_cpus"), mask("tx-1/xps_cpus")];
        let validation = now("/proc/sys/net/ipv4/conf/eth0/rp_filter");
        let other = if validation == "2" { "1" } else { "2" };
        let demux = now("/proc/sys/net/ipv4/udp_early_demux");
        let no_demux = if demux == "0" { "1" } else { "0" };
        let offload = self.shell("ethtool -k eth0 | sed -n 's/^generic-receive-offload: //p'");
        let other_offload = if offload == "on" { "off" } else { "on" };
        self.plan_of(&[
            (queue("receive", 0), &from[0], "2"),
            (queue("receive", 3), &from[1], "3"),
            (queue("transmit", 0), &from[2], "1"),
            (queue("transmit", 1), &from[3], "2"),
            (sysctl("net.ipv4.conf.eth0.rp_filter"), &validation, other),
            (sysctl("net.ipv4.udp_early_demux"), &demux, no_demux),
            (gro, &offload, other_offload),
            (json!({ "nft_table": { "table": "linerate_test" } }), "", table),
        ])
    }

    /// Writes a file, such as a plan, to the test's directory. Returns its path.
    pub(crate) fn save(&self, name: &str, content: impl Display) -> String {
        self.directory.write(name, content)
    }
}

impl Drop for TuneTestLab {
    fn drop(&mut self) {
        self.lab(&["down", &self.lab]);
    }
}

pub(crate) fn text(path: &Path) -> &str {
    path.to_str().expect("a name")
}
