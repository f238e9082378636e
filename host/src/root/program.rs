//! Programs of the host.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::{Host, HostError};

impl Host {
    /// Runs a program of the host with `input`, and returns its output. The program is killed if
    /// this process ends first.
    ///
    /// # Errors
    /// [`HostError::Program`] with the program's last message.
    pub fn program(&self, program: &str, arguments: &[&str], input: &str) -> Result<String, HostError> {
        self.must_be_live(program)?;
        run(program, arguments, input).map_err(|message| {
            let reason = message.strip_prefix(&format!("{program}: ")).unwrap_or(&message).to_owned();
            HostError::Program { program: program.to_owned(), reason }
        })
    }
}

/// Runs a program of this machine; the error contains its name and the reason.
pub(crate) fn run(program: &str, arguments: &[&str], input: &str) -> Result<String, String> {
    let error = |reason: &str| format!("{program}: {reason}");
    let path = locate_program(program).ok_or_else(|| error("not installed"))?;
    let mut command = Command::new(path);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    crate::sys::child::die_with_parent(&mut command);
    let mut child = command.spawn().map_err(|source| error(&source.to_string()))?;
    if let Some(mut stdin) = child.stdin.take() {
        // A program that ends early closes its input; its exit status is a better message than
        // EPIPE.
        let _ = stdin.write_all(input.as_bytes());
    }
    let output = child.wait_with_output().map_err(|source| error(&source.to_string()))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        let message = String::from_utf8_lossy(&output.stderr);
        let first_line = message.lines().find(|line| !line.trim().is_empty()).unwrap_or("no reason given");
        Err(error(&format!("{first_line} ({})", output.status)))
    }
}

/// The file of a program: in `PATH`, or in the sbin directories, which are often missing in the
/// `PATH` of other users.
fn locate_program(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let sbin_directories = ["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&path)
        .chain(sbin_directories)
        .map(|directory| directory.join(program))
        .find(|file| rustix::fs::access(file, rustix::fs::Access::EXEC_OK).is_ok() && file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_and_failing_programs_are_errors() {
        let error = Host::live().program("linerate-no-such-program", &[], "").expect_err("not there");
        assert_eq!(error.to_string(), "linerate-no-such-program: not installed");
        let error = Host::live().program("false", &[], "").expect_err("fails");
        assert!(error.to_string().starts_with("false: no reason given"), "{error}");
    }
}
