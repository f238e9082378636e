//! Two sshds on a lab's sender, through which linerate starts load generators.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::sshd;
use crate::support::{TestChild, program};
use crate::tune::scene::{TuneTestLab, text};

const SENDER: &str = "198.18.0.100";
const PORTS: [u16; 2] = [2201, 2202];

/// Load generators: one host that is reached over two ports.
pub(crate) struct SshTestGenerators {
    _sshds: [TestChild; 2],
    /// The path of linerate on the generators. No other process has this path.
    program: PathBuf,
    ssh: String,
}

impl SshTestGenerators {
    /// Starts two sshds. Prints a SKIP line and returns `None` if a program is missing.
    pub(crate) fn up(scene: &TuneTestLab) -> Option<Self> {
        if !sshd::is_usable() {
            return None;
        }
        sshd::make_keys(scene.directory());
        let remote_program = scene.path("generator");
        std::os::unix::fs::symlink(program(), &remote_program).expect("a link");
        let lines = format!(
            "Host *\n  IdentityFile {}\n  UserKnownHostsFile /dev/null\n  StrictHostKeyChecking no\n  LogLevel ERROR\n",
            scene.path("client").display()
        );
        let config = scene.save("ssh_config", lines);
        let sshds = PORTS.map(|port| start_sshd(scene, port));
        Some(Self { _sshds: sshds, program: remote_program, ssh: format!("ssh -F {config}") })
    }

    /// Arguments for the generator hosts and the ssh command.
    pub(crate) fn arguments(&self) -> [String; 6] {
        let from = PORTS.map(|port| format!("ssh://root@{SENDER}:{port}")).join(",");
        let program = text(&self.program).to_owned();
        ["--from".into(), from, "--ssh".into(), self.ssh.clone(), "--remote-program".into(), program]
    }

    /// `linerate ladder` on the receiver, with the journal of this test.
    pub(crate) fn ladder(&self, scene: &TuneTestLab, arguments: &[&str]) -> Command {
        let mut command = scene.on_host(program());
        command.args(["ladder", "--interface", "eth0", "--link", "10G"]).args(self.arguments());
        command.arg("--state-dir").arg(scene.state());
        command
            .args(["--yes", "--quick", "--time", "1", "--json"])
            .arg(scene.path("report.json"))
            .args(arguments);
        command
    }

    /// The generator processes that run now.
    pub(crate) fn processes(&self) -> Vec<i32> {
        let is_ours = |pid: &i32| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let mut words = line.split(|byte| *byte == 0);
            words.next() == Some(text(&self.program).as_bytes()) && words.any(|word| word == b"--on-demand")
        };
        let names = fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.file_name());
        names.filter_map(|name| name.to_string_lossy().parse().ok()).filter(is_ours).collect()
    }
}

/// Starts an sshd and waits until it listens.
fn start_sshd(scene: &TuneTestLab, port: u16) -> TestChild {
    let address = SocketAddr::new(SENDER.parse().expect("an address"), port);
    let mut command = scene.on("sender0", "unshare");
    command.args(sshd::sshd_arguments(scene.directory(), address)).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the command starts");
    sshd::await_listening(&mut child.stderr);
    TestChild(child)
}
