//! `linerate ladder --port` on a running NSD: its clients lose nothing, and all settings are
//! restored however the run ends.

use std::fs;
use std::process::{Child, Stdio};

use linerate_testkit::reflector::installed::InstalledNsd as Files;
use rustix::process::Signal;
use serde_json::Value;

use super::nsd::{NsdTestServer, PORT};
use super::scene::{ADDRESS, BoostServersTestHost, print_figure};
use super::traces::{allowed_cpus, traces};
use crate::ladder::generators::SshTestGenerators;
use crate::support::{
    checked_text, count, machine, output_text, program, read_document, signal, step, within,
};
use crate::tune::scene::text;

/// The address of a client that is not the generator.
const CLIENT: &str = "198.18.0.101";

/// NSD on a host with generators.
struct RunningNsd {
    // Rust drops fields in this order, so that programs in the lab end before the lab.
    generators: SshTestGenerators,
    nsd: NsdTestServer,
    host: BoostServersTestHost,
}

impl RunningNsd {
    fn up() -> Option<Self> {
        let mut host = BoostServersTestHost::up(&["nsd", "ss"])?;
        let generators = SshTestGenerators::up(&host.scene)?;
        let nsd = NsdTestServer::start(&mut host);
        let status = host.scene.on("sender0", "ip").args(["address", "add", CLIENT, "dev", "eth0"]).status();
        assert!(status.expect("ip starts").success());
        Some(Self { generators, nsd, host })
    }

    /// A run with at most 2,000 queries per second, a rate at which no client loses a reply.
    fn ladder(&self, arguments: &[&str]) -> std::process::Command {
        let mut command =
            self.generators.ladder(&self.host.scene, &["--port", "5300", "--workload", self.nsd.workload()]);
        command.args(["--max-rate", "2k"]).args(arguments);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// A client that sends 100 queries per second from its own socket and address, until it gets
    /// SIGINT.
    fn client(&self) -> Child {
        let mut command = self.host.scene.on("sender0", program());
        command.args([
            "load",
            &format!("{ADDRESS}:{PORT}"),
            "--backend",
            "socket",
            "--flows",
            "1",
            "--quiet",
        ]);
        command.args(["--sources", CLIENT, "--rate", "100", "--duration", "600", "--json"]);
        command.arg(self.host.scene.path("client.json")).args(self.nsd.load_arguments(&[]));
        command.stdout(Stdio::null()).spawn().expect("the client starts")
    }

    fn end_client(&self, mut client: Child) -> Value {
        signal(client.id(), Signal::INT);
        client.wait().expect("a child");
        read_document(self.host.scene.path("client.json"))["result"].take()
    }

    fn report(&self) -> Value {
        read_document(self.host.scene.path("report.json"))
    }

    fn is_pinned(&self) -> bool {
        self.nsd.servers().iter().any(|pid| !allowed_cpus(*pid, *pid).contains(['-', ',']))
    }

    /// Starts a run and returns once a thread of NSD is pinned.
    fn start_pinning(&self) -> Child {
        let mut child = self.ladder(&["--steps", "pin-threads"]).spawn().expect("the command starts");
        within(120, "a thread is pinned", || {
            assert!(child.try_wait().expect("a child").is_none(), "the run ends early: {:?}", child.stderr);
            self.is_pinned()
        });
        child
    }

    /// Runs a closure, after which all settings have to be as before and no tune may be in effect.
    fn assert_restores_settings(&self, run: impl FnOnce(&Self)) {
        let server_values = || traces(&self.host, self.nsd.pid, PORT);
        let before = (server_values(), self.host.scene.values());
        run(self);
        assert_eq!(before.0, server_values());
        self.host.scene.assert_undone(&before.1);
    }

    /// Kills a run, whose tune its guard undoes.
    fn assert_guard_undoes_a_killed_ladder(&self) {
        let mut child = self.start_pinning();
        signal(child.id(), Signal::KILL);
        child.wait().expect("it ends");
        within(20, "the guard undoes the tune", || {
            self.host.scene.expect(0, "history", &[]).0.contains("undone")
        });
        within(20, "the generators end", || self.generators.processes().is_empty());
    }

    fn assert_no_client_request_is_lost(&self) {
        let client = self.client();
        let steps = "reuseport,steer-by-cpu,receive-buffer,batch-syscalls";
        let output = self.ladder(&["--steps", steps, "--guard-loss", "5%"]).output().expect("started");
        let client = self.end_client(client);
        let (_, err) = checked_text(&output, 0, "ladder");
        assert!(err.contains("nsd (process ") && err.contains("which keeps running"), "{err}");
        let [sent, lost] = ["sent", "lost"].map(|key| count(&client, key));
        print_figure(&format!(
            "a client of 100/s during a ladder on the running nsd: {sent} sent, {lost} lost"
        ));
        assert!(sent > 500 && lost == 0, "{client}");
        let report = self.report();
        let report = &report["result"];
        assert_eq!(report["config"]["server"]["name"], "nsd", "{report}");
        assert_eq!(report["settings"]["restored"], true);
        let step = |id: &str| step(report, id);
        for id in ["baseline", "steer-by-cpu", "receive-buffer"] {
            assert_eq!(step(id)["applied"], true, "{}", step(id));
            let rate = step(id)["transactions_per_second"]["median"].as_f64().expect("a rate");
            assert!((1_000.0..=2_100.0).contains(&rate), "{id}: {rate}");
        }
        assert!(step("steer-by-cpu")["changes"].to_string().contains("chosen by CPU, with boost"));
        for (id, why) in [("reuseport", "is not restarted"), ("batch-syscalls", "not possible from outside")]
        {
            assert!(step(id)["skipped_because"].to_string().contains(why), "{}", step(id));
        }
    }

    /// Runs a ladder whose clients fare worse than a limit allows.
    fn assert_guard_stops(&self, limit: [&str; 2], why: &str) {
        let client = self.client();
        let output = self.ladder(&["--steps", "pin-threads", limit[0], limit[1]]).output().expect("started");
        self.end_client(client);
        let (out, err) = checked_text(&output, 2, limit[0]);
        assert!(err.contains(why), "{out}{err}");
    }
}

#[test]
fn ladder_on_a_running_server_loses_no_client_request_and_restores_settings_however_it_ends() {
    machine();
    let Some(mut scene) = RunningNsd::up() else { return };
    scene.assert_restores_settings(RunningNsd::assert_guard_undoes_a_killed_ladder);
    scene.assert_restores_settings(RunningNsd::assert_no_client_request_is_lost);

    let rule = format!("ip daddr {CLIENT} udp sport {PORT} drop");
    let chain = "chain out { type filter hook output priority 0; RULE; }".replace("RULE", &rule);
    scene.host.scene.shell(&format!("nft 'table inet wall {{ {chain}; }}'"));
    scene.assert_restores_settings(|scene| {
        scene.assert_guard_stops(["--guard-loss", "5%"], "real clients lost ");
    });
    scene.host.scene.shell("nft delete table inet wall");
    // No server answers within a microsecond.
    scene.assert_restores_settings(|scene| {
        scene.assert_guard_stops(["--guard-p99", "1us"], "took longer than 0.001 ms");
    });

    let before = scene.host.scene.values();
    let child = scene.start_pinning();
    scene.host.end_servers();
    checked_text(&child.wait_with_output().expect("it ends"), 2, "ladder");
    let warnings = scene.report()["warnings"].to_string();
    assert!(warnings.contains("has ended") && !warnings.contains("not-restored"), "{warnings}");
    scene.host.scene.assert_undone(&before);
}

#[test]
fn ladder_reports_unmeasurable_servers_and_changes_nothing() {
    let Some(mut scene) = RunningNsd::up() else { return };
    let wrong_line = scene.host.scene.save("wrong", "www.example.test A\nonly-a-name\n");
    let wrong_line = format!("dns:{wrong_line}");
    // A second NSD, on an address that eth0 does not have.
    let other_directory = scene.host.scene.path("elsewhere");
    fs::create_dir(&other_directory).expect("made");
    let files = Files {
        directory: &other_directory,
        addresses: &["127.0.0.1:5301".parse().expect("an address")],
        servers: 1,
        reuseport: false,
        zones: &[],
        options: &[],
    };
    let config = files.write().expect("written");
    scene.host.serve(5301, "/usr/sbin/nsd", &["-d", "-c", text(&config)]);
    let cases = [
        ("5300", wrong_line.as_str(), "wrong, line 2: "),
        ("5300", "dns:/nonexistent", "/nonexistent: cannot be read"),
        ("5300", "ntp", "nsd answered none of "),
        ("5301", "ntp", "nsd listens on port 5301 of 127.0.0.1 and not at an address of eth0 (198.18.0.1"),
        ("5399", "ntp", "nobody listens on port 5399"),
    ];
    scene.assert_restores_settings(|scene| {
        for (port, workload, expected) in cases {
            let mut command = scene.generators.ladder(&scene.host.scene, &["--steps", "gro-off", "--quiet"]);
            command.args(["--port", port, "--workload", workload]);
            let (out, err) = output_text(&command.output().expect("started"));
            let last = err.lines().last().unwrap_or_default();
            assert!(last.contains(expected), "{port}, {workload}: {out}{err}");
        }
    });
}
