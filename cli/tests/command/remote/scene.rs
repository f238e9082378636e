//! A lab with two senders, which have one sshd each, and a service on the receiver.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use linerate_lab::ladder::remote::{RemoteError, RemoteGenerators, RemoteLoad, RemoteOptions, SshHost};
use linerate_lab::{Lab, LabChild, LabRegistry};
use linerate_load::generator::GeneratorBackend;
use linerate_testkit::reflector::{Reflector, ReflectorAccount, RunningReflector};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

use crate::support::{program, skip};

const SSHD: &str = "/usr/sbin/sshd";
const PORT: u16 = 2222;
const SERVICE: &str = "198.18.0.1:7777";

/// Two senders that the receiver reaches over ssh.
pub(crate) struct RemoteTestLab {
    // Rust drops fields in this order, so that programs in the lab end before the lab.
    service: RunningReflector,
    _sshds: Vec<LabChild>,
    lab: Lab,
    directory: tempfile::TempDir,
}

impl RemoteTestLab {
    /// Starts everything. Prints a SKIP line and returns `None` if a requirement is missing.
    pub(crate) fn up(test: &str) -> Option<Self> {
        if let Err(why) = check_requirements() {
            skip(test, &why);
            return None;
        }
        let directory = tempfile::tempdir().expect("a directory");
        let registry = LabRegistry::at(directory.path().join("labs")).expect("a registry");
        let lab = match Lab::builder().registry(&registry).senders(2).queues(2).start() {
            Ok(lab) => lab,
            Err(error) => {
                skip(test, &error.to_string());
                return None;
            }
        };
        // The service's address is on the first sender's link, so the second sender requires a
        // route.
        let route = ["route", "add", "198.18.0.1/32", "via", "198.18.1.1"];
        finish(&lab, "sender1", Command::new("ip").args(route));
        make_keys(directory.path());
        let sshds = (0..2).map(|number| start_sshd(&lab, number, directory.path())).collect();
        let address: std::net::SocketAddr = SERVICE.parse().expect("an address");
        let service = lab
            .receiver()
            .run(|| Reflector::builder().address(address).start())
            .expect("it ran")
            .expect("a service");
        Some(RemoteTestLab { service, _sshds: sshds, lab, directory })
    }

    /// Both senders, with the socket backend.
    pub(crate) fn options(&self) -> RemoteOptions {
        RemoteOptions {
            hosts: vec![self.host_with_port(0, PORT), self.host_with_port(1, PORT)],
            ssh: self.ssh("client"),
            program: program().to_str().expect("a name").to_owned(),
            load: RemoteLoad {
                targets: vec![SERVICE.parse().expect("an address")],
                backend: GeneratorBackend::Socket,
                ..RemoteLoad::default()
            },
            cancel: Arc::default(),
        }
    }

    /// Starts the generators from the receiver.
    pub(crate) fn generators(&self, options: RemoteOptions) -> Result<RemoteGenerators, RemoteError> {
        self.lab.receiver().run(|| RemoteGenerators::start(options)).expect("it ran")
    }

    /// The name of a host in messages.
    pub(crate) fn host(&self, number: usize) -> String {
        self.host_with_port(number, PORT).to_string()
    }

    pub(crate) fn host_with_port(&self, number: usize, port: u16) -> SshHost {
        let address = self.lab.links()[number].sender.ipv4[0];
        format!("ssh://root@{address}:{port}").parse().expect("a host")
    }

    /// The service's counters.
    pub(crate) fn account(&self) -> ReflectorAccount {
        self.service.account()
    }

    pub(crate) fn ssh_with_wrong_key(&self) -> Vec<String> {
        self.ssh("other")
    }

    fn ssh(&self, key: &str) -> Vec<String> {
        let file = |name: &str| self.directory.path().join(name).to_str().expect("a name").to_owned();
        let known_hosts = format!("UserKnownHostsFile={}", file("known"));
        let words =
            ["ssh", "-F", "/dev/null", "-i", &file(key), "-o", "IdentitiesOnly=yes", "-o", &known_hosts];
        let strict = ["-o", "StrictHostKeyChecking=accept-new", "-o", "GlobalKnownHostsFile=/dev/null"];
        words.iter().chain(&strict).map(ToString::to_string).collect()
    }

    /// The linerate processes on the senders.
    pub(crate) fn remote_programs(&self) -> RemotePrograms {
        let all = (0..2).flat_map(|number| self.remote_programs_of(number));
        // A process that has already ended requires no wait.
        RemotePrograms(all.filter_map(|program| pidfd_open(program, PidfdFlags::empty()).ok()).collect())
    }

    fn remote_programs_of(&self, number: usize) -> Vec<Pid> {
        let thread = self.lab.senders()[number].thread_id();
        let namespace = fs::read_link(format!("/proc/self/task/{thread}/ns/net")).expect("a namespace");
        processes(|process| {
            fs::read_link(process.join("ns/net")).is_ok_and(|link| link == namespace)
                && fs::read_link(process.join("exe")).is_ok_and(|link| link == program())
        })
    }

    pub(crate) fn kill_remote_program(&self, number: usize) {
        let programs = self.remote_programs_of(number);
        assert_eq!(programs.len(), 1);
        kill_process(programs[0], Signal::KILL).expect("killed");
    }

    /// Kills the ssh processes of this test, as if linerate on this side had crashed.
    pub(crate) fn kill_ssh(&self) {
        let key = self.directory.path().join("client");
        let ssh_processes = processes(|process| {
            let words = fs::read(process.join("cmdline")).unwrap_or_default();
            words.starts_with(b"ssh\0")
                && String::from_utf8_lossy(&words).split('\0').any(|word| Path::new(word) == key)
        });
        assert_eq!(ssh_processes.len(), 2);
        for ssh in ssh_processes {
            kill_process(ssh, Signal::KILL).expect("killed");
        }
    }

    /// Takes a link down. Neither end closes its connections.
    pub(crate) fn cut_link(&self, number: usize) {
        let interface = &self.lab.links()[number].receiver.interface;
        finish(&self.lab, "receiver", Command::new("ip").args(["link", "set", interface, "down"]));
    }
}

fn check_requirements() -> Result<(), String> {
    if !rustix::process::geteuid().is_root() {
        return Err("requires root".to_owned());
    }
    if !Path::new(SSHD).exists() || Command::new("ssh").arg("-V").stderr(Stdio::null()).status().is_err() {
        return Err("no sshd and ssh: install openssh-server and openssh-client".to_owned());
    }
    let shadow = fs::read_to_string("/etc/shadow").unwrap_or_default();
    if shadow.lines().any(|line| line.starts_with("root:!")) {
        return Err("sshd lets nobody in to a locked account without PAM".to_owned());
    }
    Ok(())
}

fn make_keys(directory: &Path) {
    for name in ["host", "client", "other"] {
        let status = Command::new("ssh-keygen")
            .args(["-q", "-t", "ed25519", "-N", "", "-f"])
            .arg(directory.join(name))
            .status()
            .expect("ssh-keygen starts");
        assert!(status.success());
    }
    fs::set_permissions(directory, fs::Permissions::from_mode(0o755)).expect("a mode");
}

/// Starts a sender's sshd, and waits until it listens.
fn start_sshd(lab: &Lab, number: usize, directory: &Path) -> LabChild {
    let address = lab.links()[number].sender.ipv4[0];
    let file = |name: &str| directory.join(name).to_str().expect("a name").to_owned();
    let (host_key, authorized) = (file("host"), file("client.pub"));
    let config: PathBuf = directory.join(format!("sshd{number}"));
    let text = format!(
        "ListenAddress {address}:{PORT}\nHostKey {host_key}\nAuthorizedKeysFile {authorized}\nPidFile none\n\
         UsePAM no\nStrictModes no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\nPermitRootLogin yes\n"
    );
    fs::write(&config, text).expect("written");
    // sshd requires an empty /run/sshd, which exists only where sshd runs as a service.
    let line = "mount -t tmpfs none /run && mkdir -m 755 /run/sshd && exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", line, "sh", SSHD, "-D", "-e", "-f"]).arg(&config).stderr(Stdio::piped());
    let mut sshd = lab.senders()[number].spawn(command).expect("sshd starts");
    let mut errors = BufReader::new(sshd.stderr.take().expect("piped"));
    let mut output = String::new();
    while !output.contains("Server listening") {
        assert!(errors.read_line(&mut output).expect("a line") > 0, "sshd ended: {output}");
    }
    // Reads later output, so that sshd never blocks on a full pipe.
    std::thread::spawn(move || std::io::copy(&mut errors, &mut std::io::sink()));
    sshd
}

fn finish(lab: &Lab, host: &str, command: &mut Command) {
    let host = lab.host(host).expect("a host");
    let status = host.run(|| command.status()).expect("it ran").expect("it starts");
    assert!(status.success());
}

fn processes(is_match: impl Fn(&Path) -> bool) -> Vec<Pid> {
    let all = fs::read_dir("/proc").expect("/proc").flatten().map(|entry| entry.path());
    let matches = all.filter(|process| is_match(process));
    matches.filter_map(|process| Pid::from_raw(process.file_name()?.to_str()?.parse().ok()?)).collect()
}

/// linerate processes on the senders.
pub(crate) struct RemotePrograms(Vec<OwnedFd>);

impl RemotePrograms {
    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// Waits until all have ended, at most 40 s per process.
    pub(crate) fn await_end(&self) {
        let timeout = Timespec { tv_sec: 40, tv_nsec: 0 };
        for program in &self.0 {
            let events = poll(&mut [PollFd::new(program, PollFlags::IN)], Some(&timeout)).expect("a wait");
            assert_eq!(events, 1, "a program on a sender still runs after 40 s");
        }
    }
}
