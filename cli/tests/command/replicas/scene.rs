//! A lab whose receiver runs copies of a server that is compiled for the test.

use std::io::{BufRead as _, BufReader, Read};
use std::ops::Deref;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use rustix::process::Signal;

use crate::boost_servers::scene::BoostServersTestHost;
use crate::boost_servers::traces::allowed_cpus;
use crate::support::{TestChild, program, signal, text_of, within};

pub(super) const PORT: &str = "5300";
pub(super) const PORT_NUMBER: u16 = 5300;

/// Time limit for each line, in seconds.
const PATIENCE: u64 = 20;

pub(super) struct ReplicaTestHost {
    host: BoostServersTestHost,
}

/// A running `linerate boost`, with the lines of its standard output and standard error.
pub(super) struct ReplicaRun {
    child: Child,
    lines: Receiver<String>,
    output: String,
}

impl ReplicaTestHost {
    /// Prints a SKIP line and returns `None` without a lab, two CPUs, gcc or ss.
    pub(super) fn up() -> Option<Self> {
        let host = BoostServersTestHost::up(&["gcc", "ss"])?;
        host.compile_server()?;
        host.spread();
        std::fs::create_dir_all(host.scene.state()).expect("made");
        Some(Self { host })
    }

    /// Starts the server itself, without `linerate boost`, and waits until it has the port.
    pub(super) fn start_server(&self, words: &[&str]) -> TestChild {
        let mut command = self.scene.on_host(self.scene.path("server"));
        let server = TestChild(command.arg(PORT).args(words).spawn().expect("it starts"));
        within(10, "the server is there", || self.copies().contains(&server.id()));
        server
    }

    fn command(&self, verb: &str, options: &[&str], words: &[&str]) -> Command {
        self.with_server(self.scene.on_host(program()), verb, options, words)
    }

    fn with_server(&self, mut command: Command, verb: &str, options: &[&str], words: &[&str]) -> Command {
        command.args(["boost", verb]).args(options).arg("--").arg(self.scene.path("server"));
        // `--at PORT` replaces the server's first argument, the port.
        let (port, words) = match words.iter().position(|word| *word == "--at") {
            Some(at) => (words[at + 1], &words[..at]),
            None => (PORT, words),
        };
        command.arg(port).args(words);
        command
    }

    pub(super) fn run(&self, options: &[&str], words: &[&str]) -> ReplicaRun {
        ReplicaRun::start(self.command("run", options, words))
    }

    /// `linerate boost run` in a PID namespace where the leader of its session is not visible, like
    /// the first process of some containers. The namespace ends with its first process.
    pub(super) fn run_without_session(&self, options: &[&str]) -> ReplicaRun {
        let mut command = self.scene.on_host("unshare");
        command.args(["--pid", "--fork", "--mount-proc"]).arg(program());
        ReplicaRun::start(self.with_server(command, "run", options, &[]))
    }

    /// `linerate boost replace` of the server on the port.
    pub(super) fn replace(&self, options: &[&str], words: &[&str]) -> ReplicaRun {
        ReplicaRun::start(self.command("replace", &[&["--port", PORT], options].concat(), words))
    }

    pub(super) fn attach(&self, arguments: &[&str]) -> ReplicaRun {
        let mut command = self.scene.on_host(program());
        command.args(["boost", "attach"]).args(arguments);
        ReplicaRun::start(command)
    }

    /// The server itself, in the control group at this path.
    pub(super) fn server_in(&self, group: &str) -> Command {
        let script = format!("echo $$ >{group}/cgroup.procs && exec \"$0\" {PORT}");
        let mut command = self.scene.on_host("sh");
        command.args(["-c", &script]).arg(self.scene.path("server")).stderr(Stdio::null());
        command
    }

    /// Runs a bash script on the other host. Returns standard output.
    pub(super) fn on_sender(&self, script: &str) -> String {
        let output = self.scene.on("sender0", "bash").args(["-c", script]).output().expect("bash");
        text_of(&output)
    }

    /// The output of a `boost run` that has to fail.
    pub(super) fn refusal(&self, options: &[&str], words: &[&str]) -> String {
        self.refusal_of("run", options, words)
    }

    pub(super) fn refusal_of(&self, verb: &str, options: &[&str], words: &[&str]) -> String {
        let mut run = ReplicaRun::start(self.command(verb, options, words));
        within(3 * PATIENCE, "the command ends", || run.child.try_wait().is_ok_and(|ended| ended.is_some()));
        let status = run.child.wait().expect("a child");
        // Copies that outlive a crashed command keep its pipes open, so reading has a time limit.
        let lines = std::iter::from_fn(|| run.lines.recv_timeout(Duration::from_secs(PATIENCE)).ok());
        let output: String = lines.map(|line| line + "\n").collect();
        assert_eq!(status.code(), Some(2), "{options:?} {words:?}: {output}");
        output
    }

    /// Processes that hold a UDP socket of the port, sorted by process ID.
    pub(super) fn copies(&self) -> Vec<u32> {
        let sockets = self.scene.shell(&format!("ss -Hulpn 'sport = :{PORT}'"));
        let pids = sockets.split("pid=").skip(1);
        let pids = pids.filter_map(|rest| rest.split(',').next()?.parse().ok());
        let mut pids: Vec<u32> = pids.collect();
        pids.sort_unstable();
        pids.dedup();
        pids
    }

    pub(super) fn cpus_of(&self, processes: &[u32]) -> Vec<String> {
        processes.iter().map(|pid| allowed_cpus(*pid, *pid)).collect()
    }

    pub(super) fn assert_all_removed(&self) {
        assert_eq!(self.copies(), [0_u32; 0]);
        let Some(unified) = unified_hierarchy() else { return };
        let listing =
            Command::new("find").arg(unified).args(["-name", "linerate-boost-*"]).output().expect("find");
        // Control groups of other tests belong to running processes.
        let groups = text_of(&listing);
        let is_dead = |line: &&str| {
            let pid = line.rsplit('/').next().and_then(|name| name.split('-').nth(2)).unwrap_or_default();
            !std::path::Path::new("/proc").join(pid).exists()
        };
        assert_eq!(groups.lines().filter(is_dead).count(), 0, "{groups}");
    }
}

impl Deref for ReplicaTestHost {
    type Target = BoostServersTestHost;

    fn deref(&self) -> &BoostServersTestHost {
        &self.host
    }
}

/// The mount point of cgroup v2.
pub(super) fn unified_hierarchy() -> Option<PathBuf> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("mounts");
    let unified = mounts.lines().find(|line| line.contains(" - cgroup2 "))?;
    unified.split(' ').nth(4).map(PathBuf::from)
}

impl ReplicaRun {
    pub(super) fn start(mut command: Command) -> Self {
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the command starts");
        let (sender, lines) = channel();
        let (out, err) = (child.stdout.take().expect("a pipe"), child.stderr.take().expect("a pipe"));
        for pipe in [Box::new(out) as Box<dyn Read + Send>, Box::new(err)] {
            let sender = sender.clone();
            std::thread::spawn(move || {
                BufReader::new(pipe).lines().map_while(Result::ok).for_each(|line| drop(sender.send(line)));
            });
        }
        Self { child, lines, output: String::new() }
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The children of the started process, also ended ones that it has not waited for.
    pub(super) fn children(&self) -> Vec<u32> {
        let pid = self.pid();
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        let children = children.expect("a process");
        children.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).collect()
    }

    /// Waits for a line with these words, and returns it.
    pub(super) fn until(&mut self, words: &str) -> String {
        loop {
            let line = self.lines.recv_timeout(Duration::from_secs(PATIENCE));
            let line = line.unwrap_or_else(|_| panic!("no line with '{words}': {}", self.output));
            self.output += &format!("{line}\n");
            if line.contains(words) {
                return line;
            }
        }
    }

    /// Waits for these lines in any order.
    pub(super) fn until_lines(&mut self, lines: &[&str]) {
        let mut missing: Vec<&str> = lines.to_vec();
        while !missing.is_empty() {
            let line = self.until("");
            missing.retain(|expected| line != *expected);
        }
    }

    /// Waits until the command ends, and checks its exit status.
    pub(super) fn wait(mut self, status: i32) {
        let exit = self.child.wait().expect("a child");
        assert_eq!(exit.code(), Some(status), "{}", self.output);
    }

    /// Ends the command with a signal, checks its exit status and returns all lines.
    pub(super) fn end(mut self, with: Signal, status: i32) -> String {
        signal(self.pid(), with);
        let exit = self.child.wait().expect("a child");
        self.output.extend(self.lines.iter().map(|line| line + "\n"));
        assert_eq!(exit.code(), Some(status), "{}", self.output);
        std::mem::take(&mut self.output)
    }

    pub(super) fn kill(&mut self) {
        self.child.kill().and_then(|()| self.child.wait()).expect("a child");
    }
}

impl Drop for ReplicaRun {
    fn drop(&mut self) {
        // The child is already reaped, unless the test failed.
        if self.child.try_wait().is_ok_and(|ended| ended.is_none()) {
            signal(self.child.id(), Signal::TERM);
            let _ = self.child.wait();
        }
    }
}
