//! A terminal that a test can read and type on: a private tmux on the receiver of a lab.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use linerate_lab::{Lab, LabChild};

use crate::support::{is_installed, program, signal, text_of, within};

/// Time limit for each wait.
const PATIENCE: Duration = Duration::from_secs(40);

/// A terminal with `linerate` on it.
pub(super) struct TmuxTerminal {
    directory: tempfile::TempDir,
    /// The tmux server, which ends with the terminal.
    server: LabChild,
}

impl TmuxTerminal {
    /// Starts `linerate` with these arguments in the directory `work`, on a terminal of this size
    /// in columns and rows. Prints a SKIP line and returns `None` without tmux.
    pub(super) fn start(
        lab: &Lab,
        work: &Path,
        arguments: &str,
        (width, height): (u16, u16),
    ) -> Option<Self> {
        if !is_installed("tmux") {
            return None;
        }
        let directory = tempfile::tempdir().expect("a directory");
        // -D: tmux stays in the foreground, so that it is a child of the test and runs on the
        // receiver.
        let mut command = tmux(directory.path());
        command.args(["-D", "-f", "/dev/null"]).stdin(Stdio::null()).stdout(Stdio::null());
        let server = lab.receiver().spawn(command).expect("tmux starts");
        let pane = Self { directory, server };
        within(40, "a server of tmux", || pane.tmux(["list-sessions"]).is_some() || pane.has_socket());
        // The shell stays after linerate has ended, so that the test can still read the screen.
        let script = format!(
            "cd {}; {} {arguments}; echo ended $?; exec sleep 600",
            work.display(),
            program().display()
        );
        let (width, height) = (width.to_string(), height.to_string());
        let session = ["-u", "new-session", "-d", "-x", &width, "-y", &height, "-s", "top", &script];
        within(40, "a session of tmux", || pane.tmux(session).is_some());
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

    /// Presses a key and waits until the screen shows this text.
    pub(super) fn press_for(&self, key: &str, text: &str) {
        self.press(key);
        self.wait_for(text);
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
        signal(children.trim().parse().expect("one child"), rustix::process::Signal::TERM);
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
        output.status.success().then(|| text_of(&output))
    }
}

impl Drop for TmuxTerminal {
    fn drop(&mut self) {
        let _ = self.tmux(["kill-server"]);
        let _ = self.server.kill();
    }
}

fn tmux(directory: &Path) -> Command {
    let mut command = Command::new("tmux");
    command.arg("-S").arg(directory.join("socket"));
    command.env_remove("TMUX").env_remove("NO_COLOR").env("LC_ALL", "C.UTF-8").env("SHELL", "/bin/sh");
    command
}
