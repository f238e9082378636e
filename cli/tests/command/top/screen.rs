//! A terminal that a test can read and type on: a private tmux on the receiver of a lab.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use linerate_lab::{Lab, LabChild};

use crate::support::{program, skip};

/// Time limit for each wait.
const PATIENCE: Duration = Duration::from_secs(40);

/// A terminal with `linerate` on it.
pub(super) struct TmuxTerminal<'l> {
    lab: &'l Lab,
    directory: tempfile::TempDir,
    /// The tmux server, which ends with the terminal.
    server: LabChild,
}

impl<'l> TmuxTerminal<'l> {
    /// Starts `linerate` with these arguments in the directory `work`, on a terminal of this size
    /// in columns and rows. Prints a SKIP line and returns `None` without tmux.
    pub(super) fn start(
        test: &str,
        lab: &'l Lab,
        work: &Path,
        arguments: &str,
        (width, height): (u16, u16),
    ) -> Option<Self> {
        if Command::new("tmux").arg("-V").stdout(Stdio::null()).status().is_err() {
            skip(test, "there is no tmux");
            return None;
        }
        let directory = tempfile::tempdir().expect("a directory");
        // -D: tmux stays in the foreground, so that it is a child of the test and runs on the
        // receiver.
        let mut command = tmux(directory.path());
        command.args(["-D", "-f", "/dev/null"]).stdin(Stdio::null()).stdout(Stdio::null());
        let server = lab.receiver().spawn(command).expect("tmux starts");
        let pane = Self { lab, directory, server };
        within("a server of tmux", || pane.tmux(["list-sessions"]).is_some() || pane.has_socket());
        // The shell stays after linerate has ended, so that the test can still read the screen.
        let script = format!(
            "cd {}; {} {arguments}; echo ended $?; exec sleep 600",
            work.display(),
            program().display()
        );
        let (width, height) = (width.to_string(), height.to_string());
        let session = ["-u", "new-session", "-d", "-x", &width, "-y", &height, "-s", "top", &script];
        within("a session of tmux", || pane.tmux(session).is_some());
        Some(pane)
    }

    /// Waits until the screen shows this text.
    pub(super) fn wait_for(&self, text: &str) {
        self.wait_until(&format!("'{text}' on the screen"), |screen| screen.contains(text));
    }

    /// Waits until the screen no longer shows this text.
    pub(super) fn wait_until_gone(&self, text: &str) {
        self.wait_until(&format!("no '{text}' on the screen"), |screen| !screen.contains(text));
    }

    /// The text on the screen.
    pub(super) fn text(&self) -> String {
        self.tmux(["capture-pane", "-p", "-t", "top"]).expect("a screen")
    }

    pub(super) fn press(&self, key: &str) {
        self.tmux(["send-keys", "-t", "top", key]).expect("a key");
    }

    pub(super) fn resize(&self, width: u16, height: u16) {
        let (width, height) = (width.to_string(), height.to_string());
        self.tmux(["resize-window", "-t", "top", "-x", &width, "-y", &height]).expect("another size");
    }

    /// Whether the program uses the terminal's alternate screen.
    pub(super) fn is_alternate(&self) -> bool {
        self.tmux(["display-message", "-p", "-t", "top", "#{alternate_on}"]).expect("a flag").trim() == "1"
    }

    /// Sends SIGTERM to `linerate`, the only child of the shell.
    pub(super) fn terminate(&self) {
        let shell = self.tmux(["display-message", "-p", "-t", "top", "#{pane_pid}"]).expect("a process");
        let shell = shell.trim();
        let children =
            std::fs::read_to_string(format!("/proc/{shell}/task/{shell}/children")).expect("children");
        let pid: i32 = children.trim().parse().expect("one child");
        let pid = rustix::process::Pid::from_raw(pid).expect("a process");
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("a signal");
    }

    /// Runs `ip` on the receiver.
    pub(super) fn ip(&self, arguments: &str) {
        let mut command = Command::new("ip");
        command.args(arguments.split(' '));
        let mut child = self.lab.receiver().spawn(command).expect("ip starts");
        assert!(child.wait().expect("it ends").success(), "ip {arguments}");
    }

    fn wait_until(&self, description: &str, condition: impl Fn(&str) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let screen = self.text();
            if condition(&screen) {
                return;
            }
            assert!(Instant::now() < deadline, "{description} within {PATIENCE:?}:\n{screen}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn has_socket(&self) -> bool {
        self.directory.path().join("socket").exists()
    }

    /// Standard output of tmux, or `None` if tmux fails.
    fn tmux<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Option<String> {
        let output = tmux(self.directory.path()).args(arguments).output().expect("tmux starts");
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

impl Drop for TmuxTerminal<'_> {
    fn drop(&mut self) {
        let _ = self.tmux(["kill-server"]);
        let _ = self.server.kill();
    }
}

/// Polls a condition, because no event reports it.
pub(super) fn within(description: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "{description} within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn tmux(directory: &Path) -> Command {
    let mut command = Command::new("tmux");
    command.arg("-S").arg(directory.join("socket"));
    command.env_remove("TMUX").env_remove("NO_COLOR").env("LC_ALL", "C.UTF-8").env("SHELL", "/bin/sh");
    command
}
