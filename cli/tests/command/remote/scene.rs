//! A lab with two senders, which have one sshd each, and a service on the receiver.

use std::fs;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use linerate_lab::ladder::remote::{RemoteError, RemoteGenerators, RemoteLoad, RemoteOptions, SshHost};
use linerate_lab::{Lab, LabChild, LabRegistry};
use linerate_load::generator::GeneratorBackend;
use linerate_testkit::reflector::{ReflectorAccount, RunningReflector};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

use crate::sshd;
use crate::support::{is_root, program, shell, start_echo, start_lab, start_on};

const PORT: u16 = 2222;
const SERVICE: &str = "198.18.0.1:7777";

/// Two senders that the receiver reaches over ssh.
pub(crate) struct RemoteTestLab {
    // Rust drops fields in this order, so that programs in the lab end before the lab.
    service: RunningReflector,
    _sshds: [LabChild; 2],
    lab: Lab,
    directory: tempfile::TempDir,
}

impl RemoteTestLab {
    /// Starts everything. Prints a SKIP line and returns `None` if a requirement is missing.
    pub(crate) fn up() -> Option<Self> {
        if !is_root() || !sshd::is_usable() {
            return None;
        }
        let directory = tempfile::tempdir().expect("a directory");
        let registry = LabRegistry::at(directory.path().join("labs")).expect("a registry");
        let lab = start_lab(Lab::builder().registry(&registry).senders(2).queues(2))?;
        // The service's address is on the first sender's link, so the second sender requires a
        // route.
        shell(&lab.senders()[1], "ip route add 198.18.0.1/32 via 198.18.1.1");
        sshd::make_keys(directory.path());
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).expect("a mode");
        let start_sshd = |number: usize| {
            let address = SocketAddr::from((lab.links()[number].sender.ipv4[0], PORT));
            let arguments = sshd::sshd_arguments(directory.path(), address);
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            let mut child = start_on(&lab.senders()[number], "unshare", &arguments);
            sshd::await_listening(&mut child.stderr);
            child
        };
        let sshds = [start_sshd(0), start_sshd(1)];
        let service = start_echo(lab.receiver(), SERVICE.parse().expect("an address"));
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
        shell(self.lab.receiver(), &format!("ip link set {interface} down"));
    }
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
