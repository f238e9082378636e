//! A server program on a host of the lab: started from a recipe, checked, and ended with all its processes.

mod recipe;

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use linerate_host::stage::socket::bound_udp_ports;
use rustix::process::{Pid, Signal, setpriority_process};

use crate::child::LabChild;
use crate::host::LabHost;
use crate::process;

pub use recipe::{RecipeError, RecipeValues, ServerRecipe};

/// Longest wait for a server to bind its port. A server with large zones needs some seconds.
const BIND_DEADLINE: Duration = Duration::from_secs(20);
/// Time between two checks of the ports. The kernel has no event for a bind.
const BIND_POLL: Duration = Duration::from_millis(20);
/// Time from SIGTERM to SIGKILL.
const TERMINATION: Duration = Duration::from_secs(2);
const OUTPUT_LINES: usize = 3;
/// Bytes of the output that are read for an error.
const OUTPUT_TAIL: usize = 4096;
/// A server can write a line per request, often to a directory in memory.
const MAX_OUTPUT: u64 = 1 << 20;

/// Why a server program cannot be used. One line; the last lines of its output are part of it.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    #[error(transparent)]
    Recipe(#[from] RecipeError),
    #[error("{program} cannot be started: {why}")]
    NotStarted { program: String, why: String },
    #[error("{program} {how}{output}")]
    Ended { program: String, how: String, output: String },
    #[error("{program} did not bind UDP port {port} within {} s; {bound}{output}", BIND_DEADLINE.as_secs())]
    NotBound { program: String, port: u16, bound: String, output: String },
    #[error("lab: {0}")]
    Lab(#[from] crate::LabError),
}

/// A running server. Dropping it ends all its processes.
#[derive(Debug)]
pub struct ServerProgram {
    name: String,
    child: LabChild,
    workers: usize,
    output: File,
}

impl ServerProgram {
    /// Starts the server with this niceness and waits until its port is bound.
    ///
    /// # Errors
    /// [`ProgramError`] if the program is missing, ends, or binds another port.
    pub fn start(
        host: &LabHost,
        recipe: &ServerRecipe,
        values: &RecipeValues<'_>,
        nice: Option<i32>,
    ) -> Result<Self, ProgramError> {
        let start_error =
            |why: String| ProgramError::NotStarted { program: recipe.name.clone(), why: one_line(&why) };
        let (program, arguments) = recipe.write(values)?;
        let output = values.directory.join("linerate-output");
        let output = File::options().create(true).read(true).append(true).open(output);
        let (output, stdout, stderr) = output
            .and_then(|output| Ok((output.try_clone()?, output.try_clone()?, output)))
            .map_err(|error| start_error(error.to_string()))?;
        let mut command = Command::new(program);
        command.args(arguments).current_dir(values.directory);
        command.stdin(Stdio::null()).stdout(stdout).stderr(stderr);
        let child = host.spawn(command).map_err(|error| start_error(recipe.hint(&error.to_string())))?;
        if let (Some(nice), Some(pid)) = (nice, i32::try_from(child.id()).ok().and_then(Pid::from_raw)) {
            // Threads and processes that it starts later inherit its niceness. Without the
            // permission the server keeps 0.
            let _ = setpriority_process(Some(pid), nice);
        }
        let mut server = Self { name: recipe.name.clone(), child, workers: values.workers, output };
        server.await_port(host, values.address.port())?;
        Ok(server)
    }

    fn await_port(&mut self, host: &LabHost, port: u16) -> Result<(), ProgramError> {
        let deadline = Instant::now() + BIND_DEADLINE;
        loop {
            let bound_ports = host.run(bound_udp_ports)?;
            if bound_ports.contains(&port) {
                return Ok(());
            }
            self.check()?;
            if Instant::now() >= deadline {
                let ports: Vec<String> = bound_ports.iter().map(u16::to_string).collect();
                let bound = match ports.as_slice() {
                    [] => "it has bound none".to_owned(),
                    ports => format!("it has bound {}", ports.join(", ")),
                };
                let (program, output) = (self.name.clone(), self.last_output());
                return Err(ProgramError::NotBound { program, port, bound, output });
            }
            std::thread::sleep(BIND_POLL);
        }
    }

    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Worker processes or threads that the server was started with.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.workers
    }

    /// Fails if the program has ended. Empties the file of its output if that is long.
    ///
    /// # Errors
    /// [`ProgramError::Ended`] with its status and last output.
    pub fn check(&mut self) -> Result<(), ProgramError> {
        let end_status = match self.child.wait_at_most(Duration::ZERO) {
            Ok(None) => {
                if self.output_length() > MAX_OUTPUT {
                    // A failure does not concern the measurement.
                    let _ = self.output.set_len(0);
                }
                return Ok(());
            }
            Ok(Some(status)) if status.success() => {
                "ended with status 0; if it went to the background, use its option to stay in the foreground"
                    .to_owned()
            }
            Ok(Some(status)) => format!("ended with {status}"),
            Err(error) => format!("cannot be waited for: {error}"),
        };
        Err(ProgramError::Ended { program: self.name.clone(), how: end_status, output: self.last_output() })
    }

    /// The last lines of its output, for an error: `; its last output: ...`, or nothing.
    #[must_use]
    pub fn last_output(&self) -> String {
        let mut bytes = [0; OUTPUT_TAIL];
        let tail_start = self.output_length().saturating_sub(OUTPUT_TAIL as u64);
        let count = self.output.read_at(&mut bytes, tail_start).unwrap_or(0);
        let text = String::from_utf8_lossy(bytes.get(..count).unwrap_or_default());
        let mut lines: Vec<&str> = text.lines().rev().filter(|line| !line.trim().is_empty()).collect();
        lines.truncate(OUTPUT_LINES);
        lines.reverse();
        match lines.as_slice() {
            [] => String::new(),
            lines => format!("; its last output: {}", one_line(&lines.join(" / "))),
        }
    }

    fn output_length(&self) -> u64 {
        self.output.metadata().map_or(0, |metadata| metadata.len())
    }

    /// Ends the server and every process that it left in the host's network namespace.
    pub fn stop(mut self, host: &LabHost) {
        if self.child.signal(Signal::TERM).is_ok() {
            let _ = self.child.wait_at_most(TERMINATION);
        }
        Self::end_all(host);
        let _ = self.child.kill();
    }

    /// Ends every process in the host's network namespace. Workers may have left the process group of their parent, but not
    /// the namespace.
    pub(crate) fn end_all(host: &LabHost) {
        let namespace = [host.namespace_id()];
        let _ = process::end_all(|pid| process::is_inside(pid, &namespace) == Some(true));
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

impl From<io::Error> for RecipeError {
    fn from(error: io::Error) -> Self {
        Self::Unwritable(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn long_output_of_a_running_server_is_discarded() {
        let child = Command::new("sleep").arg("600").spawn().and_then(LabChild::new).expect("it starts");
        let output = tempfile::tempfile().expect("a file");
        let mut log = output.try_clone().expect("a descriptor");
        let mut server = ServerProgram { name: "chatty".to_owned(), child, workers: 1, output };
        log.write_all(&b"query\n".repeat(1 << 18))
            .and_then(|()| log.write_all(b"a\nb\nlast\n"))
            .expect("a log");
        assert_eq!(server.last_output(), "; its last output: a / b / last");
        server.check().expect("it runs");
        assert_eq!((server.output_length(), server.last_output().as_str()), (0, ""));
    }
}
