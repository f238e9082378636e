//! The environment of examples: a private copy of `/etc`, private and empty `/run` and `/var/lib`,
//! which disappear with it, and a lab with a name server under load.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::symlink;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process_group};

use crate::mark::{ExampleHost, ExampleSettings, InterruptTrigger};
use crate::person::TerminalUser;
use crate::program;
use crate::shell::ShellCommand;

/// Time limit for a command. Machines that run tests are slow.
const PATIENCE: Duration = Duration::from_secs(60);

/// The zone of the name server on port 53 of the lab's receiver.
const ZONE: &str = "$ORIGIN example.com.\n$TTL 300\n@ IN SOA ns hostmaster 1 3600 600 86400 300\n@ IN NS ns\n\
                    ns IN A 198.18.0.1\nwww IN A 192.0.2.1\nwww IN AAAA 2001:db8::1\n";

const QUERIES: &str = "www.example.com A\nwww.example.com AAAA\nnothing.example.com A\n";

/// The lab's name. It differs from the default name, which examples may use for a lab.
const LAB: &str = "examples";

/// The environment in which the examples of a document run.
pub(crate) struct ExampleTestbed {
    directory: tempfile::TempDir,
    /// Keeps the private directories until its standard input is closed.
    holder: Child,
    /// The lab's server, whose process id examples call `$PID`, and its load; empty without a lab.
    lab: Vec<Child>,
    /// Programs that run in the background.
    background: Vec<BackgroundProgram>,
}

/// A program that runs in the background.
struct BackgroundProgram {
    child: Child,
    /// Whether it is a server, which does not end by itself.
    serves: bool,
}

/// The exit status and the output of a command.
pub(crate) struct CommandResult {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

impl ExampleTestbed {
    /// Fails if no private mount namespace can be created.
    pub(crate) fn new() -> Result<Self> {
        let directory = tempfile::tempdir()?;
        for name in ["bin", "etc", "work", "work/bin"] {
            fs::create_dir(directory.path().join(name))?;
        }
        symlink(program(), directory.path().join("bin/linerate"))?;
        // As in a checkout, for examples that name files of the repository.
        let share = crate::root().join("share").canonicalize()?;
        symlink(share, directory.path().join("work/share"))?;
        let script = "cp -a /etc/. etc && mount --bind etc /etc && mount -t tmpfs none /run \
                      && mount -t tmpfs none /var/lib && echo ready && exec cat";
        let mut holder = Command::new("unshare")
            .args(["--mount", "--propagation", "private", "sh", "-c", script])
            .current_dir(directory.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("unshare")?;
        let mut line = String::new();
        let stdout = holder.stdout.as_mut().expect("a pipe");
        let _ = io::BufRead::read_line(&mut io::BufReader::new(stdout), &mut line);
        if line.trim() != "ready" {
            let output = holder.wait_with_output()?;
            bail!(String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; "));
        }
        Ok(Self { directory, holder, lab: Vec::new(), background: Vec::new() })
    }

    /// Runs a command of an example, and waits for its end unless it runs in the background.
    pub(crate) fn run(
        &mut self,
        line: &ShellCommand,
        setting: &ExampleSettings,
    ) -> Result<Option<CommandResult>> {
        if setting.place != ExampleHost::Here {
            self.raise_lab()?;
        }
        if line.text.trim() == "wait" {
            return self.wait().map(|()| None);
        }
        let command = self.shell(&line.text, setting.place, setting.terminal);
        if line.background {
            let serves = line.text.contains("serve");
            let child = if serves { begin_server(command)? } else { begin(command)? };
            self.background.push(BackgroundProgram { child, serves });
            return Ok(None);
        }
        self.finish(command, setting.terminal, setting.interrupt_of(&line.text)).map(Some)
    }

    /// Runs a command that an example requires, on the machine itself.
    pub(crate) fn prepare(&mut self, line: &ShellCommand, setting: &ExampleSettings) -> Result<()> {
        if setting.place != ExampleHost::Here {
            self.raise_lab()?;
        }
        match self.run(line, &ExampleSettings::default())? {
            Some(result) if !result.status.success() => {
                bail!("{}: {}", result.status, result.stderr.trim())
            }
            _ => Ok(()),
        }
    }

    /// Writes a file into the working directory of the examples.
    pub(crate) fn write(&self, name: &str, text: &str) -> Result<()> {
        Ok(fs::write(self.path("work").join(name), text)?)
    }

    /// Writes a fixture into a directory of its name, unless the directory exists.
    pub(crate) fn put_fixture(&self, name: &str) -> Result<()> {
        let directory = self.path("work").join(name);
        if directory.exists() {
            return Ok(());
        }
        let fixture = linerate_testkit::fixture::fixture(name);
        Ok(fixture.with_context(|| format!("there is no fixture {name}"))?.write(&directory)?)
    }

    /// Ends background programs, except the lab's server and load.
    pub(crate) fn clear(&mut self) {
        for mut program in self.background.drain(..) {
            end(&mut program.child);
        }
    }

    /// Waits for background programs, as a shell's `wait` does, except servers.
    fn wait(&mut self) -> Result<()> {
        let others: Vec<_> = self.background.extract_if(.., |program| !program.serves).collect();
        for BackgroundProgram { child, .. } in others {
            let group = Pid::from_child(&child);
            let (ended, status) = wait_in_thread(child);
            if ended.recv_timeout(PATIENCE).is_err() {
                let _ = kill_process_group(group, Signal::KILL);
                bail!("a background program does not end");
            }
            let status = status.join().expect("no panic")?;
            ensure!(matches!(status.code(), Some(0 | 1)), "a background program ended with {status}");
        }
        Ok(())
    }

    /// Creates the lab and starts its server and load, unless it exists.
    pub(crate) fn raise_lab(&mut self) -> Result<()> {
        if self.lab.len() == 2 {
            return Ok(());
        }
        self.clear();
        self.run_or_fail(&format!("linerate lab up {LAB} --queues 2"), ExampleHost::Here)?;
        fs::write(self.path("work/example.com.zone"), ZONE)?;
        fs::write(self.path("work/queries"), QUERIES)?;
        let serve = "exec linerate serve dns --bind 198.18.0.1:53 --zone example.com=example.com.zone --workers 2 \
                     --sockets reuseport --no-pin";
        let load = "exec linerate load 198.18.0.1:53 --workload dns:queries --rate 2k --duration 600 --backend socket";
        // RPS spreads packets like the interrupts of a NIC. A virtual link has no interrupts.
        let spread = "for queue in /sys/class/net/eth0/queues/rx-*; do echo 3 >$queue/rps_cpus; done";
        self.run_or_fail(spread, ExampleHost::Server)?;
        self.lab.push(begin(self.shell(serve, ExampleHost::Server, false))?);
        self.await_socket("-u 'sport = :53'", ExampleHost::Server)?;
        self.lab.push(begin(self.shell(load, ExampleHost::Sender, false))?);
        Ok(())
    }

    /// Waits until `ss` lists a socket with this filter.
    fn await_socket(&self, words: &str, place: ExampleHost) -> Result<()> {
        let begun = Instant::now();
        let listening = format!("ss -Hln {words} | grep -q .");
        while begun.elapsed() < PATIENCE {
            if self.run_to_end(self.shell(&listening, place, false))?.status.success() {
                return Ok(());
            }
        }
        bail!("no socket: ss {words}")
    }

    /// Starts a background server and waits until it has this socket.
    pub(crate) fn begin_background(&mut self, text: &str, place: ExampleHost, socket: &str) -> Result<()> {
        let child = begin(self.shell(text, place, false))?;
        self.background.push(BackgroundProgram { child, serves: false });
        self.await_socket(socket, place)
    }

    pub(crate) fn run_or_fail(&self, text: &str, place: ExampleHost) -> Result<()> {
        let result = self.run_to_end(self.shell(text, place, false))?;
        ensure!(result.status.success(), "{text}: {}", result.stderr.trim());
        Ok(())
    }

    /// A command that runs the program in its arguments with the private directories, in the
    /// working directory of the examples.
    pub(crate) fn command_inside(&self) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--mount=/proc/{}/ns/mnt", self.holder.id()));
        command.arg(format!("--wdns={}", self.path("work").display()));
        // Programs that outlive a killed test would disturb later tests.
        command.args(["setpriv", "--pdeathsig", "KILL"]);
        command.process_group(0);
        command
    }

    pub(crate) fn run_to_end(&self, command: Command) -> Result<CommandResult> {
        self.finish(command, false, None)
    }

    /// A shell that runs a line on this host, in the working directory of the examples.
    fn shell(&self, text: &str, place: ExampleHost, terminal: bool) -> Command {
        let mut command = self.command_inside();
        let host = match place {
            ExampleHost::Here => None,
            ExampleHost::Server => Some("receiver"),
            ExampleHost::Sender => Some("sender0"),
        };
        if let Some(host) = host {
            command.args(["linerate", "lab", "exec", "--lab", LAB, host, "--"]);
        }
        if terminal {
            let sized = format!("stty rows 24 cols 80; {text}");
            command.args(["script", "--quiet", "--return", "--command", &sized, "/dev/null"]);
        } else {
            // Ctrl-C is for the command. The shell waits for the command's last output.
            command.args(["sh", "-c", &format!("trap : INT\n{text}")]);
        }
        let path = std::env::var("PATH").unwrap_or_default();
        command.env(
            "PATH",
            format!("{}:{}:{path}", self.path("bin").display(), self.path("work/bin").display()),
        );
        command.env("NO_COLOR", "1").env("TERM", "xterm").env("SHELL", "/bin/sh").env("LC_ALL", "C.UTF-8");
        if let Some(server) = self.lab.first() {
            command.env("PID", server.id().to_string());
        }
        command
    }

    /// Runs a command to its end, and interrupts it if `interrupt` says so.
    fn finish(
        &self,
        mut command: Command,
        terminal: bool,
        interrupt: Option<&InterruptTrigger>,
    ) -> Result<CommandResult> {
        // Files, since a program that outlives the command would hold a pipe open.
        let (stdout, stderr) = (self.path("stdout"), self.path("stderr"));
        let create = |path: &Path| File::create(path);
        command.stderr(create(&stderr)?);
        let process = match terminal {
            true => command.stdin(Stdio::piped()).stdout(Stdio::piped()),
            false => command.stdin(Stdio::null()).stdout(create(&stdout)?),
        };
        let mut child = process.spawn()?;
        let person = child
            .stdin
            .take()
            .zip(child.stdout.take())
            .map(|(keyboard, screen)| TerminalUser::start(keyboard, screen, interrupt));
        let group = Pid::from_child(&child);
        let (ended, status) = wait_in_thread(child);
        let (time, is_time) = match interrupt {
            None => (PATIENCE, false),
            Some(InterruptTrigger::After(time)) => (*time, true),
            // The simulated user presses Ctrl-C. The last text may appear late.
            Some(InterruptTrigger::Shown(_)) => (3 * PATIENCE, false),
        };
        let mut outcome = ended.recv_timeout(time);
        if outcome.is_err() && is_time {
            match &person {
                Some(person) => person.press_ctrl_c(),
                None => drop(kill_process_group(group, Signal::INT)),
            }
            outcome = ended.recv_timeout(PATIENCE);
        }
        if outcome.is_err() {
            let _ = kill_process_group(group, Signal::KILL);
        }
        let status = status.join().expect("no panic")?;
        let text = |path: &Path| fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        let stdout = match person {
            Some(person) => person.screen_text(),
            None => text(&stdout)?,
        };
        let result = CommandResult { status, stdout, stderr: text(&stderr)? };
        ensure!(outcome.is_ok(), "the command does not end\n{}{}", result.stdout, result.stderr);
        Ok(result)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
}

impl CommandResult {
    /// Whether the command did its work: exit status 0 or 1, or an intended interrupt.
    pub(crate) fn is_well(&self, interrupted: bool) -> bool {
        const INTERRUPTED: i32 = 128 + 2;
        match self.status.code() {
            Some(0 | 1) => true,
            Some(INTERRUPTED) => interrupted,
            Some(_) => false,
            None => interrupted && self.status.signal() == Some(Signal::INT.as_raw()),
        }
    }
}

impl Drop for ExampleTestbed {
    fn drop(&mut self) {
        self.clear();
        self.lab.iter_mut().rev().for_each(end);
        // Also removes labs that failed examples left. Labs of other tests are not in this /run.
        let _ = self.run_or_fail("linerate lab clean --all", ExampleHost::Here);
        drop(self.holder.stdin.take());
        let _ = self.holder.wait();
    }
}

/// Starts a program in the background.
fn begin(mut command: Command) -> Result<Child> {
    Ok(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?)
}

/// Starts a server in the background, and waits for its first output.
fn begin_server(mut command: Command) -> Result<Child> {
    let (mut reader, writer) = io::pipe()?;
    command.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer);
    let mut child = command.spawn()?;
    drop(command);
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let mut part = [0; 4096];
        while let Ok(1..) = reader.read(&mut part) {
            let _ = sender.send(());
        }
    });
    if receiver.recv_timeout(PATIENCE).is_err() {
        end(&mut child);
        bail!("the server prints nothing");
    }
    Ok(child)
}

/// Kills a program and its process group.
fn end(child: &mut Child) {
    let _ = kill_process_group(Pid::from_child(child), Signal::KILL);
    let _ = child.wait();
}

/// Waits for a program on a separate thread. The channel reports its end.
fn wait_in_thread(mut child: Child) -> (Receiver<()>, std::thread::JoinHandle<io::Result<ExitStatus>>) {
    let (sender, receiver) = channel();
    let waiter = std::thread::spawn(move || {
        let status = child.wait();
        let _ = sender.send(());
        status
    });
    (receiver, waiter)
}
