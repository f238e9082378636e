//! The handle through which every read and system call of a host passes.

mod error;
mod ethtool;
pub(crate) mod irqbalance;
mod program;
mod script;
pub(crate) mod tree;

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::string::FromUtf8Error;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::background::pause_after_burst;
use crate::ethtool::LinkDriver;
use crate::netlink::audit;
use crate::recording::{CaptureExtras, HostRecording, RecordedFailure, RecordedResult};
use crate::sys;
pub(crate) use error::ExplainedErrno;
pub use error::HostError;
pub use irqbalance::IrqbalanceSetup;
pub(crate) use program::run;
use script::{HostScript, ScriptedAnswer};
use tree::{CapturedTree, read_file};

/// A host: live, captured in a directory or an archive, or scripted.
///
/// `/proc/sys/net`, `/proc/net` and system calls refer to the network namespace of the calling
/// thread.
#[derive(Debug)]
pub struct Host {
    source: HostSource,
    record: Option<Mutex<HostRecording>>,
    /// Whether it pauses between reads.
    gentle: bool,
}

#[derive(Debug)]
enum HostSource {
    Live { sys: PathBuf },
    Directory(CapturedTree),
    Recorded(HostRecording),
    Scripted(HostScript),
}

impl Host {
    pub fn live() -> Self {
        Self::live_with_sys("/sys")
    }

    /// The live host with sysfs mounted at another path than `/sys`, for example for a network
    /// namespace.
    pub fn live_with_sys(sys: impl Into<PathBuf>) -> Self {
        Self { source: HostSource::Live { sys: sys.into() }, record: None, gentle: false }
    }

    /// The same host, read with pauses: a reader that uses a CPU for 100 ms delays a server on that
    /// CPU, and its buffers fill.
    #[must_use]
    pub fn gently(self) -> Self {
        Self { gentle: true, ..self }
    }

    fn pause(&self) {
        if self.gentle {
            pause_after_burst();
        }
    }

    /// A captured directory with `proc`, `sys`, and kernel answers in `calls`.
    pub fn captured(directory: impl Into<PathBuf>) -> Self {
        Self::captured_with(directory, CaptureExtras::default())
    }

    /// A captured directory with the records of `capture.json`.
    pub(crate) fn captured_with(directory: impl Into<PathBuf>, extras: CaptureExtras) -> Self {
        Self {
            source: HostSource::Directory(CapturedTree::new(directory.into(), extras)),
            record: None,
            gentle: false,
        }
    }

    pub fn recorded(recording: HostRecording) -> Self {
        Self { source: HostSource::Recorded(recording), record: None, gentle: false }
    }

    /// A fake host with these files (absolute path and content). Writes change it.
    pub fn scripted<P: Into<String>, C: Into<Vec<u8>>>(files: impl IntoIterator<Item = (P, C)>) -> Self {
        Self::rehearsal(HostRecording::from_files(files))
    }

    /// A fake host from a recording. Writes change it, including those that are not files on a live
    /// host.
    pub fn rehearsal(recording: HostRecording) -> Self {
        Self { source: HostSource::Scripted(HostScript::new(recording)), record: None, gentle: false }
    }

    /// The same fake host, on which writes to this path (`/calls/KEY.json` for calls) fail with
    /// this error number.
    #[must_use]
    pub fn refusing(self, path: impl Into<String>, errno: i32) -> Self {
        self.answering(path, ScriptedAnswer::Refuse(errno))
    }

    /// The same fake host, on which writes to this path succeed without effect.
    #[must_use]
    pub fn ignoring(self, path: impl Into<String>) -> Self {
        self.answering(path, ScriptedAnswer::Ignore)
    }

    /// The same fake host, on which writes to this path take effect after this many reads.
    #[must_use]
    pub fn delaying(self, path: impl Into<String>, reads: u32) -> Self {
        self.answering(path, ScriptedAnswer::Delay(reads, Mutex::default()))
    }

    fn answering(mut self, path: impl Into<String>, answer: ScriptedAnswer) -> Self {
        if let HostSource::Scripted(script) = &mut self.source {
            script.set_response(path, answer);
        }
        self
    }

    /// The same host, which records every read from now on. A repeated read returns the recorded
    /// result, so that everything derived from it agrees with the recording.
    #[must_use]
    pub fn recording(self) -> Self {
        Self { record: Some(Mutex::default()), ..self }
    }

    /// The reads since [`Host::recording`].
    pub fn into_recording(self) -> HostRecording {
        self.record.map_or_else(HostRecording::new, |record| {
            record.into_inner().unwrap_or_else(PoisonError::into_inner)
        })
    }

    /// Reads a file by its absolute path on the host.
    pub fn read(&self, path: &str) -> Result<String, HostError> {
        self.pause();
        let content = self.read_once(
            |recording| &mut recording.files,
            path,
            || match &self.source {
                HostSource::Recorded(recording) => recording.read(path),
                HostSource::Scripted(script) => script.read(path),
                HostSource::Live { sys } => read_live(sys, path),
                HostSource::Directory(tree) => tree.read(path),
            },
        );
        if self.record.is_some() && content.is_ok() && path.starts_with("/proc/sys/") {
            // A recording also records whether the file is read-only, if that is known.
            let _ = self.is_read_only(path);
        }
        content
            .map(|bytes| {
                let lossy = |error: FromUtf8Error| String::from_utf8_lossy(error.as_bytes()).into_owned();
                String::from_utf8(bytes).unwrap_or_else(lossy)
            })
            .map_err(|source| HostError::Read { path: path.to_owned(), source })
    }

    /// Sorted.
    pub fn list(&self, path: &str) -> Result<Vec<String>, HostError> {
        self.pause();
        let names = self.read_once(
            |recording| &mut recording.directories,
            path.trim_end_matches('/'),
            || match &self.source {
                HostSource::Recorded(recording) => recording.list(path),
                HostSource::Scripted(script) => script.recording().list(path),
                HostSource::Live { sys } => directory_names(&locate(sys, path)),
                HostSource::Directory(tree) => tree.list(path),
            },
        );
        names.map_err(|source| HostError::Read { path: path.to_owned(), source })
    }

    /// The numbers that names in a directory have after a prefix, sorted.
    pub fn list_numbers(&self, path: &str, prefix: &str) -> Result<Vec<u32>, HostError> {
        let names = self.list(path)?;
        let mut numbers: Vec<u32> =
            names.iter().filter_map(|name| name.strip_prefix(prefix)?.parse().ok()).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// The target as written in the link.
    pub fn read_link(&self, path: &str) -> Result<String, HostError> {
        self.pause();
        let target = self.read_once(
            |recording| &mut recording.links,
            path,
            || match &self.source {
                HostSource::Recorded(recording) => recording.read_link(path),
                HostSource::Scripted(script) => script.recording().read_link(path),
                HostSource::Live { sys } => {
                    std::fs::read_link(locate(sys, path)).map(|target| target.to_string_lossy().into_owned())
                }
                HostSource::Directory(tree) => tree.read_link(path),
            },
        );
        target.map_err(|source| HostError::Read { path: path.to_owned(), source })
    }

    /// Makes a call that is not a file read, with `perform`. Captures return the content of
    /// `/calls/KEY.json`: the answer, or `{"errno": N}`.
    ///
    /// # Errors
    /// [`HostError::Call`] with `operation` as its subject; for a capture also
    /// [`HostError::NotLive`] without such an answer, and [`HostError::Garbled`].
    pub(crate) fn call<T: Serialize + DeserializeOwned>(
        &self,
        key: &str,
        operation: &str,
        perform: impl FnOnce() -> io::Result<T>,
    ) -> Result<T, HostError> {
        self.pause();
        let path = format!("/calls/{key}.json");
        let call_error = |source| HostError::Call { what: operation.to_owned(), source };
        let is_recorded = |record: &Mutex<HostRecording>| lock(record).files.contains_key(&path);
        if self.is_live() && !self.record.as_ref().is_some_and(is_recorded) {
            let answer = perform();
            if let Some(record) = &self.record {
                let json = match &answer {
                    Ok(answer) => serde_json::to_vec(answer),
                    Err(error) => serde_json::to_vec(&RecordedFailure::of(error)),
                };
                // An answer that cannot be serialized is recorded as such, and still returned.
                lock(record).files.insert(path, RecordedResult::of(&json.map_err(io::Error::other)));
            }
            return answer.map_err(call_error);
        }
        let text = match self.read(&path) {
            Ok(text) => text,
            Err(error) if error.is_missing() => {
                return Err(HostError::NotLive { what: operation.to_owned() });
            }
            Err(error) => return Err(error),
        };
        if let Ok(failure) = serde_json::from_str::<RecordedFailure>(&text) {
            return Err(call_error(failure.error()));
        }
        serde_json::from_str(&text).map_err(|error| HostError::Garbled { path, reason: error.to_string() })
    }

    // Makes a change that is not a file write, with `change`. On a fake host `rehearse` changes the
    // answer of [`Host::call`] for this key; if that answer is an error, the change fails with it.
    // A capture refuses every change.
    pub(crate) fn apply_change<T: Serialize + DeserializeOwned>(
        &self,
        key: &str,
        operation: &str,
        change: impl FnOnce() -> io::Result<()>,
        rehearse: impl FnOnce(&mut T),
    ) -> Result<(), HostError> {
        if let HostSource::Live { .. } = self.source {
            return change().map_err(|source| HostError::Call { what: operation.to_owned(), source });
        }
        let unsupported = || Err(io::ErrorKind::Unsupported.into());
        let mut answer = self.call::<T>(key, operation, unsupported)?;
        rehearse(&mut answer);
        self.apply_change_to(key, operation, change, &answer)
    }

    /// Like [`Host::apply_change`] if the new answer does not depend on the old one.
    pub(crate) fn apply_change_to<T: Serialize>(
        &self,
        key: &str,
        operation: &str,
        change: impl FnOnce() -> io::Result<()>,
        answer: &T,
    ) -> Result<(), HostError> {
        let call_error = |source| HostError::Call { what: operation.to_owned(), source };
        match &self.source {
            HostSource::Live { .. } => change().map_err(call_error),
            HostSource::Directory(_) | HostSource::Recorded(_) => {
                Err(HostError::NotLive { what: operation.to_owned() })
            }
            HostSource::Scripted(script) => {
                let json = serde_json::to_string(answer).map_err(|error| call_error(error.into()))?;
                script.store(&format!("/calls/{key}.json"), &json).map_err(call_error)
            }
        }
    }

    /// Updates an answer of a fake host after a related change, if the host has that answer.
    pub(crate) fn rehearse_call<T: Serialize + DeserializeOwned>(
        &self,
        key: &str,
        change: impl FnOnce(&mut T),
    ) {
        let unsupported = || Err(io::ErrorKind::Unsupported.into());
        if let (HostSource::Scripted(_), Ok(mut answer)) =
            (&self.source, self.call::<T>(key, key, unsupported))
        {
            change(&mut answer);
            // A script may refuse it, as a device refuses a write; the answer then stays.
            let _ = self.apply_change_to(key, key, || Ok(()), &answer);
        }
    }

    // Updates a file of a fake host after a related change, if the host has that file. A live
    // kernel does that itself.
    pub(crate) fn rehearse(&self, path: &str, content: &str) {
        if let HostSource::Scripted(script) = &self.source {
            // A missing file needs no update.
            let _ = script.write(path, content);
        }
    }

    /// Calls `read`; a recording host returns the recorded result of an earlier call.
    fn read_once<T: Clone>(
        &self,
        results: impl Fn(&mut HostRecording) -> &mut BTreeMap<String, RecordedResult<T>>,
        path: &str,
        read: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<T> {
        let Some(record) = &self.record else { return read() };
        if let Some(recorded) = results(&mut lock(record)).get(path) {
            return recorded.to_result();
        }
        let result = read();
        results(&mut lock(record)).insert(path.to_owned(), RecordedResult::of(&result));
        result
    }

    /// Writes a file in a single `write(2)`, as sysfs and sysctl files require. A capture refuses
    /// every write.
    pub fn write(&self, path: &str, value: &str) -> Result<(), HostError> {
        let result = match &self.source {
            HostSource::Live { sys } => std::fs::OpenOptions::new()
                .write(true)
                .truncate(true)
                .open(locate(sys, path))
                .and_then(|mut file| file.write_all(value.as_bytes())),
            HostSource::Directory(_) | HostSource::Recorded(_) => {
                return Err(HostError::NotLive { what: format!("writing {path}") });
            }
            HostSource::Scripted(script) => script.write(path, value),
        };
        result.map_err(|source| HostError::Write { path: path.to_owned(), value: value.to_owned(), source })
    }

    // Whether no user may write a file, according to its mode (for sysctls). A capture has the
    // modes of the files that it contains; a capture of an earlier version has none.
    pub(crate) fn is_read_only(&self, path: &str) -> Result<bool, HostError> {
        const ANYBODY_WRITES: u32 = 0o222;
        self.call(&format!("read_only{path}"), &format!("reading the mode of {path}"), || {
            Ok(std::fs::metadata(path)?.permissions().mode() & ANYBODY_WRITES == 0)
        })
    }

    /// Whether the kernel audits system calls (`AUDIT_GET`): 0 off, 1 on, 2 on and locked. The
    /// kernel answers only in the initial user namespace.
    pub fn audit_enabled(&self) -> Result<u32, HostError> {
        self.call("audit/enabled", "reading the audit status", audit::enabled)
    }

    /// Sets auditing of system calls (`AUDIT_SET`) for the whole machine. Requires
    /// `CAP_AUDIT_CONTROL`; fails if the status is locked.
    pub fn set_audit_enabled(&self, enabled: u32) -> Result<(), HostError> {
        let operation = format!("setting audit enabled to {enabled}");
        self.apply_change(
            "audit/enabled",
            &operation,
            || audit::set_enabled(enabled),
            |answer| *answer = enabled,
        )
    }

    /// An interface's driver (`ETHTOOL_GDRVINFO`).
    pub fn driver(&self, interface: &str) -> Result<LinkDriver, HostError> {
        let operation = format!("reading the driver of {interface}");
        self.call(&format!("ethtool/{interface}/driver"), &operation, || sys::ethtool::driver(interface))
    }

    /// A number of the calling thread's network namespace, unique since boot (`SO_NETNS_COOKIE`).
    /// `None` before Linux 5.14, and for a recorded host.
    pub fn network_namespace_cookie(&self) -> Option<u64> {
        let socket = self.is_live().then(UnixDatagram::unbound)?;
        sys::sockopt::network_namespace(&socket.ok()?).ok()
    }

    pub(crate) fn is_live(&self) -> bool {
        matches!(self.source, HostSource::Live { .. })
    }

    pub(crate) fn must_be_live(&self, operation: &str) -> Result<(), HostError> {
        match self.source {
            HostSource::Live { .. } => Ok(()),
            _ => Err(HostError::NotLive { what: operation.to_owned() }),
        }
    }
}

fn lock(recording: &Mutex<HostRecording>) -> MutexGuard<'_, HostRecording> {
    recording.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Below the root of another process, any user may have put pipes, and links to files of this host.
fn read_live(sys: &Path, path: &str) -> io::Result<Vec<u8>> {
    match path.strip_prefix("/proc/").and_then(|rest| rest.split_once("/root/")) {
        Some((pid, file)) => {
            CapturedTree::new(format!("/proc/{pid}/root").into(), CaptureExtras::default()).read(file)
        }
        None => read_file(&locate(sys, path)),
    }
}

/// The path of a file of the live host.
fn locate(sys: &Path, path: &str) -> PathBuf {
    match (path.strip_prefix("/sys/"), path.strip_prefix("/proc/net/")) {
        (Some(rest), _) => sys.join(rest),
        // /proc/net belongs to the namespace of the process; a thread may be in another namespace.
        (_, Some(rest)) => Path::new("/proc/thread-self/net").join(rest),
        _ => PathBuf::from(path),
    }
}

fn directory_names(path: &Path) -> io::Result<Vec<String>> {
    let mut names = std::fs::read_dir(path)?
        .map(|entry| entry.map(|entry| entry.file_name().to_string_lossy().into_owned()))
        .collect::<io::Result<Vec<_>>>()?;
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn captured_host_reads_files_and_refuses_writes_and_programs() {
        let directory = tempfile::tempdir().expect("a directory");
        std::fs::create_dir_all(directory.path().join("proc/sys/net")).expect("made");
        std::fs::write(directory.path().join("proc/sys/net/x"), "7\n").expect("written");
        let host = Host::captured(directory.path());
        assert_eq!(host.read("/proc/sys/net/x").expect("read"), "7\n");
        assert_eq!(host.list("/proc/sys/net").expect("listed"), ["x"]);
        let error = host.write("/proc/sys/net/x", "8").expect_err("refused");
        assert_eq!(error.to_string(), "writing /proc/sys/net/x: not available from a capture");
        assert!(host.program("true", &[], "").is_err());
        assert!(host.audit_enabled().is_err());
    }

    #[test]
    fn a_pipe_below_the_root_of_a_process_does_not_block() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("pipe");
        let mode = rustix::fs::Mode::RUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).expect("a pipe");
        let file = |name: &str| format!("/proc/self/root{}/{name}", directory.path().display());
        Host::live().read(&file("pipe")).expect_err("a pipe");
        std::fs::write(directory.path().join("file"), "7").expect("written");
        assert_eq!(Host::live().read(&file("file")).expect("read"), "7");
    }

    #[test]
    fn recorded_kernel_calls_return_the_same_result_or_error() {
        let live = Host::live().recording();
        let answer: u32 = live.call("a/number", "a number", || Ok(7)).expect("an answer");
        let refusal = || Err::<u32, _>(io::Error::from_raw_os_error(libc::EOPNOTSUPP));
        let live_error = live.call("a/refusal", "a refusal", refusal).expect_err("refused");
        assert!(live_error.is_unsupported());
        let _ = live.read("/proc/no-such-file");
        let again = Host::recorded(live.into_recording());
        let never = || -> io::Result<u32> { panic!("a capture must not call the kernel") };
        assert_eq!(again.call("a/number", "a number", never).expect("an answer"), answer);
        let error = again.call("a/refusal", "a refusal", never).expect_err("refused again");
        assert_eq!(error.to_string(), live_error.to_string());
        let error = again.call("a/question", "a question", never).expect_err("not recorded");
        assert_eq!(error.to_string(), "a question: not available from a capture");
        assert!(again.read("/proc/no-such-file").expect_err("not there").is_missing());
    }

    #[test]
    fn invalid_json_of_a_call_is_an_error_with_its_path() {
        let host = Host::scripted([("/calls/a/number.json", "seven")]);
        let error = host.call::<u32>("a/number", "a number", || Ok(7)).expect_err("no number");
        assert!(error.to_string().starts_with("/calls/a/number.json: expected "), "{error}");
    }
}
