//! The handle through which every file and system call of a host passes.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;

use crate::setting::Offload;
use crate::sys;

/// A host: live, captured in a directory, or scripted.
///
/// `/proc/sys/net` and system calls act in the network namespace of the calling thread.
#[derive(Debug)]
pub struct Host {
    source: Source,
}

#[derive(Debug)]
enum Source {
    Live { sys: PathBuf },
    Captured(PathBuf),
    Scripted(Mutex<BTreeMap<String, String>>),
}

/// What a host refused.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// A file could not be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The path on the host.
        path: String,
        /// The system's reason.
        source: io::Error,
    },
    /// A file could not be written.
    #[error("cannot write '{value}' to {path}: {source}")]
    Write {
        /// The path on the host.
        path: String,
        /// What should have been written.
        value: String,
        /// The system's reason.
        source: io::Error,
    },
    /// A program could not be run, or said no.
    #[error("{program}: {reason}")]
    Program {
        /// The program's name.
        program: String,
        /// Its own words, or why it did not start.
        reason: String,
    },
    /// A system call failed.
    #[error("{what}: {source}")]
    Call {
        /// What was asked of the kernel.
        what: String,
        /// The system's reason.
        source: io::Error,
    },
    /// The handle is not of the live host.
    #[error("{what}: not to be had from a capture")]
    NotLive {
        /// What was asked.
        what: String,
    },
}

impl HostError {
    /// Whether the program or file is simply not there.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        matches!(self, HostError::Read { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }
}

impl Host {
    /// The host this program runs on.
    #[must_use]
    pub fn live() -> Self {
        Self::live_with_sys("/sys")
    }

    /// The live host, with sysfs mounted elsewhere than on `/sys`, as for a network namespace.
    pub fn live_with_sys(sys: impl Into<PathBuf>) -> Self {
        Self { source: Source::Live { sys: sys.into() } }
    }

    /// A host captured in a directory that holds its `proc` and `sys`.
    pub fn captured(directory: impl Into<PathBuf>) -> Self {
        Self { source: Source::Captured(directory.into()) }
    }

    /// A fake host made of the files given: absolute path and content. Writes change it.
    pub fn scripted<P: Into<String>, C: Into<String>>(files: impl IntoIterator<Item = (P, C)>) -> Self {
        let files = files.into_iter().map(|(path, content)| (path.into(), content.into())).collect();
        Self { source: Source::Scripted(Mutex::new(files)) }
    }

    fn locate(&self, path: &str) -> PathBuf {
        match &self.source {
            Source::Live { sys } => match path.strip_prefix("/sys/") {
                Some(rest) => sys.join(rest),
                None => PathBuf::from(path),
            },
            Source::Captured(root) => root.join(path.trim_start_matches('/')),
            Source::Scripted(_) => PathBuf::from(path),
        }
    }

    /// Reads a file named by its absolute path on the host.
    ///
    /// # Errors
    /// [`HostError::Read`] with the path.
    pub fn read(&self, path: &str) -> Result<String, HostError> {
        let content = match &self.source {
            Source::Scripted(files) => {
                lock(files).get(path).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
            }
            _ => std::fs::read(self.locate(path)).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()),
        };
        content.map_err(|source| HostError::Read { path: path.to_owned(), source })
    }

    /// Names in a directory, sorted.
    ///
    /// # Errors
    /// [`HostError::Read`] with the path.
    pub fn list(&self, path: &str) -> Result<Vec<String>, HostError> {
        let names = match &self.source {
            Source::Scripted(files) => scripted_names(&lock(files), path),
            _ => directory_names(&self.locate(path)),
        };
        names.map_err(|source| HostError::Read { path: path.to_owned(), source })
    }

    /// Writes a file in a single `write(2)`, as sysfs and sysctl files want it.
    ///
    /// # Errors
    /// [`HostError::Write`] with path and value; a capture refuses every write.
    pub fn write(&self, path: &str, value: &str) -> Result<(), HostError> {
        let written = match &self.source {
            Source::Live { .. } => std::fs::OpenOptions::new()
                .write(true)
                .truncate(true)
                .open(self.locate(path))
                .and_then(|mut file| file.write_all(value.as_bytes())),
            Source::Captured(_) => return Err(HostError::NotLive { what: format!("writing {path}") }),
            Source::Scripted(files) => {
                lock(files).insert(path.to_owned(), value.to_owned());
                Ok(())
            }
        };
        written.map_err(|source| HostError::Write { path: path.to_owned(), value: value.to_owned(), source })
    }

    /// Runs a program of the host, gives it `input`, and returns what it printed.
    ///
    /// # Errors
    /// [`HostError::Program`] with the program's own last words.
    pub fn program(&self, program: &str, arguments: &[&str], input: &str) -> Result<String, HostError> {
        self.must_be_live(program)?;
        let error = |reason: String| HostError::Program { program: program.to_owned(), reason };
        let path = locate_program(program).ok_or_else(|| error("not installed".to_owned()))?;
        let mut child = Command::new(path)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|source| error(source.to_string()))?;
        if let Some(mut stdin) = child.stdin.take() {
            // A program that ends early closes its input; its exit status tells more than EPIPE.
            let _ = stdin.write_all(input.as_bytes());
        }
        let output = child.wait_with_output().map_err(|source| error(source.to_string()))?;
        if output.status.success() {
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        } else {
            let words = String::from_utf8_lossy(&output.stderr);
            let first = words.lines().find(|line| !line.trim().is_empty()).unwrap_or("no reason given");
            Err(error(format!("{first} ({})", output.status)))
        }
    }

    /// Whether an offload of an interface is on (`SIOCETHTOOL`).
    ///
    /// # Errors
    /// [`HostError::Call`] naming the interface.
    pub fn offload(&self, interface: &str, offload: Offload) -> Result<bool, HostError> {
        let what = format!("reading {offload} of {interface}");
        self.must_be_live(&what)?;
        sys::ethtool::offload(interface, offload).map_err(|source| HostError::Call { what, source })
    }

    /// Switches an offload of an interface (`SIOCETHTOOL`).
    ///
    /// # Errors
    /// [`HostError::Call`] naming the interface; needs `CAP_NET_ADMIN` in its network namespace.
    pub fn set_offload(&self, interface: &str, offload: Offload, on: bool) -> Result<(), HostError> {
        let what = format!("switching {offload} of {interface} {}", if on { "on" } else { "off" });
        self.must_be_live(&what)?;
        sys::ethtool::set_offload(interface, offload, on).map_err(|source| HostError::Call { what, source })
    }

    /// Whether the kernel audits system calls (`AUDIT_GET`): 0 off, 1 on, 2 on and locked.
    ///
    /// # Errors
    /// [`HostError::Call`]; the kernel answers only in the initial user namespace.
    pub fn audit_enabled(&self) -> Result<u32, HostError> {
        let what = "reading the audit status".to_owned();
        self.must_be_live(&what)?;
        sys::audit::enabled().map_err(|source| HostError::Call { what, source })
    }

    /// Switches auditing of system calls (`AUDIT_SET`). Acts on the whole machine.
    ///
    /// # Errors
    /// [`HostError::Call`]; needs `CAP_AUDIT_CONTROL`, and fails when the status is locked.
    pub fn set_audit_enabled(&self, enabled: u32) -> Result<(), HostError> {
        let what = format!("setting audit enabled to {enabled}");
        self.must_be_live(&what)?;
        sys::audit::set_enabled(enabled).map_err(|source| HostError::Call { what, source })
    }

    /// The name of an interface's driver, as `ethtool -i` has it.
    ///
    /// # Errors
    /// [`HostError::Call`] if it does not exist or its driver has none, [`HostError::NotLive`] for a capture.
    pub fn driver(&self, interface: &str) -> Result<String, HostError> {
        let what = format!("reading the driver of {interface}");
        self.must_be_live(&what)?;
        sys::ethtool::driver(interface).map_err(|source| HostError::Call { what, source })
    }

    pub(crate) fn must_be_live(&self, what: &str) -> Result<(), HostError> {
        match self.source {
            Source::Live { .. } => Ok(()),
            _ => Err(HostError::NotLive { what: what.to_owned() }),
        }
    }
}

fn lock(files: &Mutex<BTreeMap<String, String>>) -> std::sync::MutexGuard<'_, BTreeMap<String, String>> {
    files.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// The file of a program: in `PATH`, or where administrators' programs are, which the `PATH` of
/// other users often leaves out.
fn locate_program(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let administrators = ["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&path)
        .chain(administrators)
        .map(|directory| directory.join(program))
        .find(|file| rustix::fs::access(file, rustix::fs::Access::EXEC_OK).is_ok() && file.is_file())
}

fn directory_names(path: &Path) -> io::Result<Vec<String>> {
    let mut names = std::fs::read_dir(path)?
        .map(|entry| entry.map(|entry| entry.file_name().to_string_lossy().into_owned()))
        .collect::<io::Result<Vec<_>>>()?;
    names.sort();
    Ok(names)
}

fn scripted_names(files: &BTreeMap<String, String>, path: &str) -> io::Result<Vec<String>> {
    let prefix = format!("{}/", path.trim_end_matches('/'));
    let mut names: Vec<String> = files
        .keys()
        .filter_map(|file| file.strip_prefix(&prefix))
        .filter_map(|rest| rest.split('/').next())
        .map(str::to_owned)
        .collect();
    names.dedup();
    if names.is_empty() { Err(io::ErrorKind::NotFound.into()) } else { Ok(names) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capture_is_read_and_never_written() {
        let directory = tempfile::tempdir().expect("a directory");
        std::fs::create_dir_all(directory.path().join("proc/sys/net")).expect("made");
        std::fs::write(directory.path().join("proc/sys/net/x"), "7\n").expect("written");
        let host = Host::captured(directory.path());
        assert_eq!(host.read("/proc/sys/net/x").expect("read"), "7\n");
        assert_eq!(host.list("/proc/sys/net").expect("listed"), ["x"]);
        let error = host.write("/proc/sys/net/x", "8").expect_err("refused");
        assert_eq!(error.to_string(), "writing /proc/sys/net/x: not to be had from a capture");
        assert!(host.program("true", &[], "").is_err());
        assert!(host.audit_enabled().is_err());
    }

    #[test]
    fn a_scripted_host_lists_and_changes() {
        let host =
            Host::scripted([("/sys/class/net/eth0/mtu", "1500\n"), ("/sys/class/net/lo/mtu", "65536\n")]);
        assert_eq!(host.list("/sys/class/net").expect("listed"), ["eth0", "lo"]);
        host.write("/sys/class/net/lo/mtu", "1").expect("written");
        assert_eq!(host.read("/sys/class/net/lo/mtu").expect("read"), "1");
        let error = host.read("/sys/nothing").expect_err("not there");
        assert!(error.is_missing() && error.to_string().starts_with("cannot read /sys/nothing: "));
    }

    #[test]
    fn a_missing_program_says_so() {
        let error = Host::live().program("linerate-no-such-program", &[], "").expect_err("not there");
        assert_eq!(error.to_string(), "linerate-no-such-program: not installed");
        let error = Host::live().program("false", &[], "").expect_err("fails");
        assert!(error.to_string().starts_with("false: no reason given"), "{error}");
    }
}
