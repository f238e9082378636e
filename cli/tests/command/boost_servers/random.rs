//! Random sequences of tunes and boosts, with kills, changes by another program, interface renames
//! and server restarts between them. Undo restores each setting, or names the setting that the
//! other program changed.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Stdio;
use std::time::Duration;

use super::scene::{BackgroundLoad, BoostServersTestHost};
use super::traces::{ServerSettingValues, traces};
use crate::support::{machine, output_text, program};

const PORT: u16 = 5304;

/// Each undo ends at most one tune, and the test may kill any of them.
const MAX_UNDOS: usize = 40;

/// The host, and a log of all actions on it.
struct RandomHistory<'h> {
    host: &'h mut BoostServersTestHost,
    random: u64,
    log: Vec<String>,
    /// The server's process ID, and the settings of its threads and sockets before any boost.
    server: (u32, ServerSettingValues),
    load: Option<BackgroundLoad>,
    interface: &'static str,
    /// Values that `interfere` wrote. The keys are paths with the name eth0.
    foreign: BTreeMap<String, &'static str>,
    /// Settings that undo has to name, by path, because a tune had changed them before `interfere`.
    to_name: BTreeMap<String, String>,
    /// Settings that successful tunes changed: `rx-0/rps_cpus` or `net.ipv4.conf.eth0.rp_filter`.
    made: BTreeSet<String>,
}

impl RandomHistory<'_> {
    /// A number below `limit` (xorshift).
    fn pick(&mut self, limit: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 16) % limit
    }

    fn step(&mut self) {
        match self.pick(7) {
            0 | 1 => self.tune(),
            2 | 3 => self.boost(),
            4 => self.interfere(),
            5 => self.rename(if self.interface == "eth0" { "lan0" } else { "eth0" }),
            _ => self.start_server(),
        }
    }

    /// Starts the server. Ends the previous server first.
    fn start_server(&mut self) {
        self.log.push("the server is started".into());
        self.load = None;
        self.host.end_servers();
        let pid = self.host.serve_echo(PORT, &["--sockets", "reuseport", "--no-pin"]);
        self.load = Some(self.host.start_load(PORT, 3_000.0, &[]));
        self.server = (pid, traces(self.host, pid, PORT));
    }

    /// Runs a command. Kills some commands, at an fdatasync of the journal or within 1.5 s.
    fn run(&mut self, arguments: &[&str]) -> (String, Option<i32>) {
        let (kill_mode, sync, wait_ms) = (self.pick(4), self.pick(20) + 1, self.pick(1_500));
        let mut command = self.host.scene.on_host(if kill_mode == 1 { "strace".into() } else { program() });
        if kill_mode == 1 {
            let inject = format!("inject=fdatasync:signal=KILL:when={sync}");
            command
                .args(["-f", "-qq", "-o", "/dev/null", "-e", "trace=fdatasync", "-e", &inject])
                .arg(program());
        }
        command.args(arguments).arg("--state-dir").arg(self.host.scene.state());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        if kill_mode == 2 {
            std::thread::sleep(Duration::from_millis(wait_ms));
            child.kill().expect("killed");
        }
        let output = child.wait_with_output().expect("it ends");
        let (out, err) = output_text(&output);
        self.log.push(format!("{kill_mode} {sync} {wait_ms} {arguments:?}: {}\n{out}{err}", output.status));
        assert!(!err.contains("panicked"), "{}", self.log.join("\n"));
        (out + &err, output.status.code())
    }

    fn tune(&mut self) {
        // The plans are for the interface under its name eth0.
        if self.interface != "eth0" {
            return;
        }
        let mut plan = self.host.scene.plan();
        let changes = plan["changes"].as_array_mut().expect("changes");
        changes.retain(|_| self.pick(3) > 0);
        let mut settings = BTreeSet::new();
        for change in changes {
            let queue = change["setting"]["queue_cpus"].clone();
            let is_receive = queue["direction"] == "receive";
            if is_receive {
                // `interfere` writes 0 and 3.
                change["to"] = ["1", "2"][usize::from(self.pick(2) == 0)].into();
            }
            if change["from"] != change["to"] {
                settings.extend(is_receive.then(|| format!("rx-{}/rps_cpus", queue["queue"])));
                settings.extend(change["setting"]["sysctl"].as_str().map(str::to_owned));
            }
        }
        let file = self.host.scene.save("plan.json", &plan);
        if self.run(&["tune", "apply", "--plan", &file, "--yes", "--measure=never"]).1 == Some(0) {
            self.made.extend(settings);
        }
    }

    fn boost(&mut self) {
        self.run(&[
            "boost",
            "--port",
            &PORT.to_string(),
            "apply",
            "--yes",
            "--look",
            "0.4",
            "--measure=never",
        ]);
    }

    /// Writes a setting like another program on the host would.
    fn interfere(&mut self) {
        let queue = self.pick(4);
        let mask = format!("rx-{queue}/rps_cpus");
        let (name, path, value) = match self.pick(3) {
            0 => ("rp_filter", "/proc/sys/net/ipv4/conf/eth0/rp_filter".to_owned(), "0"),
            1 => (&*mask, format!("/sys/class/net/eth0/queues/{mask}"), "0"),
            _ => (&*mask, format!("/sys/class/net/eth0/queues/{mask}"), "3"),
        };
        if self.made.iter().any(|setting| setting.ends_with(name)) {
            self.to_name.insert(path.clone(), name.to_owned());
        }
        self.host.scene.shell(&format!("echo {value} > {}", path.replace("eth0", self.interface)));
        self.log.push(format!("{path} is set to {value}"));
        self.foreign.insert(path, value);
    }

    fn rename(&mut self, name: &'static str) {
        let old = std::mem::replace(&mut self.interface, name);
        if old == name {
            return;
        }
        self.host.scene.shell(&format!(
            "ip link set {old} down && ip link set {old} name {name} && ip link set {name} up"
        ));
        self.log.push(format!("{old} is renamed to {name}"));
    }

    /// Undoes tunes until none is in effect. Returns the output of all undo commands.
    fn undo(&mut self) -> String {
        let mut output = String::new();
        for _ in 0..MAX_UNDOS {
            let (out, status) = self.run(&["tune", "undo"]);
            output += &out;
            if status.is_none() {
                // The output of a killed undo is lost.
                self.to_name.clear();
            }
            if status == Some(2) && out.contains("nothing to undo") {
                return output;
            }
        }
        panic!("undo does not come to an end: {}", self.log.join("\n"));
    }
}

/// Runs random actions on a host, undoes them and checks all settings.
fn history(host: &mut BoostServersTestHost, seed: u64) {
    let _ = std::fs::remove_dir_all(host.scene.state());
    // A command that is killed at once does not create the directory.
    std::fs::create_dir(host.scene.state()).expect("created");
    let before = host.scene.values();
    let mut history = RandomHistory {
        host,
        random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15),
        log: vec![format!("seed {seed}")],
        server: Default::default(),
        load: None,
        interface: "eth0",
        foreign: BTreeMap::new(),
        to_name: BTreeMap::new(),
        made: BTreeSet::new(),
    };
    history.start_server();
    history.tune();
    for _ in 0..2 + history.pick(4) {
        history.step();
    }
    if history.pick(2) == 0 {
        history.rename("eth0");
    }
    let undo_output = history.undo();
    history.rename("eth0");
    let after = history.host.scene.values();
    let log = history.log.join("\n");
    let mut expected = before;
    for (path, value) in &history.foreign {
        let original = expected.insert(path.clone(), (*value).to_owned()).expect("a value that is compared");
        let is_named = history.to_name.get(path).is_none_or(|name| undo_output.contains(name));
        assert!(original == *value || is_named, "{path} is not named: {log}");
        history.host.scene.shell(&format!("echo {original} > {path}"));
    }
    let differences: Vec<_> =
        expected.iter().filter(|(path, value)| after.get(*path) != Some(value)).collect();
    assert!(differences.is_empty() && after.len() == expected.len(), "{differences:#?}: {log}");
    let (pid, server) = &history.server;
    assert_eq!(*server, traces(history.host, *pid, PORT), "{log}");
    // A tune that was killed before its first change stays listed, so that you can resume it.
    let (status, _) = history.host.scene.expect_any("status", &[]);
    let is_empty = status == "No tune is in effect.\n" || status.contains("; 0 settings in effect\n");
    assert!(is_empty, "{status}: {log}");
    history.load = None;
    history.host.end_servers();
}

#[test]
fn undo_restores_settings_after_random_tunes_and_boosts() {
    machine();
    let programs = ["ss", "strace", "ip"];
    let Some(mut host) = BoostServersTestHost::up(&programs) else { return };
    let seed = std::env::var("LINERATE_TEST_SEED").map_or(1, |text| text.parse().expect("a number"));
    let histories = if std::env::var_os("LINERATE_TEST_LONG").is_some() { 200 } else { 2 };
    host.spread();
    for seed in seed..seed + histories {
        history(&mut host, seed);
    }
}
