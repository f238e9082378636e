//! Two sshds on a lab's sender, through which linerate starts load generators.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::support::{program, skip};
use crate::tune::scene::{TuneTestLab, text};

const SSHD: &str = "/usr/sbin/sshd";
const PORTS: [u16; 2] = [2201, 2202];

/// Load generators: one host that is reached over two ports.
pub(crate) struct SshTestGenerators {
    sshds: Vec<Child>,
    /// The path of linerate on the generators. No other process has this path.
    program: PathBuf,
    ssh: String,
}

impl SshTestGenerators {
    /// Starts two sshds. Prints a SKIP line and returns `None` if a program is missing.
    pub(crate) fn up(test: &str, scene: &TuneTestLab) -> Option<Self> {
        for program in [SSHD, "/usr/bin/ssh", "/usr/bin/ssh-keygen", "/usr/bin/unshare"] {
            if !Path::new(program).exists() {
                skip(test, &format!("{program} is not here (openssh-server, openssh-client, util-linux)"));
                return None;
            }
        }
        for key in ["key", "hostkey"] {
            let path = scene.path(key);
            let status =
                Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(path).status();
            assert!(status.expect("ssh-keygen starts").success());
        }
        let remote_program = scene.path("generator");
        std::os::unix::fs::symlink(program(), &remote_program).expect("a link");
        let config = scene.path("ssh_config");
        let key = scene.path("key");
        fs::write(
            &config,
            format!(
                "Host *\n  IdentityFile {}\n  UserKnownHostsFile /dev/null\n  StrictHostKeyChecking no\n  LogLevel ERROR\n",
                text(&key)
            ),
        )
        .expect("written");
        let sshds = PORTS.map(|port| sshd(scene, port)).into();
        Some(Self { sshds, program: remote_program, ssh: format!("ssh -F {}", text(&config)) })
    }

    /// Arguments for the generator hosts and the ssh command.
    pub(crate) fn arguments(&self) -> [String; 6] {
        let from = PORTS.map(|port| format!("ssh://root@198.18.0.100:{port}")).join(",");
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

impl Drop for SshTestGenerators {
    fn drop(&mut self) {
        for sshd in &mut self.sshds {
            let _ = sshd.kill();
            let _ = sshd.wait();
        }
    }
}

/// Starts an sshd and waits until it listens.
fn sshd(scene: &TuneTestLab, port: u16) -> Child {
    let config = scene.path(&format!("sshd_config_{port}"));
    let lines = [
        format!("Port {port}"),
        format!("HostKey {}", text(&scene.path("hostkey"))),
        format!("AuthorizedKeysFile {}", text(&scene.path("key.pub"))),
        "PermitRootLogin yes\nUsePAM no\nStrictModes no\nPasswordAuthentication no\nPidFile none".to_owned(),
    ];
    fs::write(&config, lines.join("\n") + "\n").expect("written");
    // sshd requires /run/sshd, which may not exist here. A private mount namespace provides one.
    let script = format!(
        "mount -t tmpfs none /run && mkdir -m 755 /run/sshd && exec {SSHD} -D -e -f {}",
        text(&config)
    );
    let mut command = scene.on("sender0", "unshare");
    command.args(["-m", "sh", "-c", &script]).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the command starts");
    let mut errors = BufReader::new(child.stderr.take().expect("a pipe"));
    let mut line = String::new();
    while !line.contains("listening") {
        line.clear();
        assert_ne!(errors.read_line(&mut line).expect("read"), 0, "sshd ends at once");
    }
    // Reads later output, so that sshd never blocks on a full pipe.
    std::thread::spawn(move || std::io::copy(&mut errors, &mut std::io::sink()));
    child
}
