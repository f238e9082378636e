//! The labs of a user: a directory with one file per lab.
//!
//! A lab writes its file before anything else and removes it last. If the process of a lab was
//! killed, its file remains. [`LabRegistry::clean`] removes the file and everything that belongs to
//! the lab.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use crate::error::{LabError, Result};

mod clean;
mod entry;
mod state;

pub use clean::{CleanReport, CleanScope, CleanedLab, NotRestored};
pub(crate) use entry::RegistryEntry;
pub use state::{HolderKind, HostState, HostWide, LabState};

/// Extension of a file that replaces the state of a lab.
const TEMPORARY: &str = "tmp";

/// The directory of the labs of this user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabRegistry {
    directory: PathBuf,
}

#[derive(Debug, Default)]
pub struct RegisteredLabs {
    /// Labs, the oldest first.
    pub labs: Vec<LabState>,
    /// Files that cannot be read, and why.
    pub unreadable: Vec<LabError>,
}

impl LabRegistry {
    /// The registry of this user: `/run/linerate/labs` for root, else
    /// `$XDG_RUNTIME_DIR/linerate/labs`, else `/tmp/linerate-UID/labs`. It is the same before and after
    /// [`enter_if_needed`](crate::userns::enter_if_needed). The directory is created if necessary.
    ///
    /// # Errors
    /// [`LabError::File`] if it cannot be made, [`LabError::NotOurs`] if other users could write to
    /// it.
    pub fn open() -> Result<Self> {
        let user = outside_user();
        if user == 0 {
            match Self::at("/run/linerate/labs") {
                Err(LabError::File { .. }) => {}
                result => return result,
            }
        }
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        if let Some(runtime) = runtime
            && runtime.is_absolute()
            && fs::metadata(&runtime).is_ok_and(|m| m.is_dir() && m.uid() == own_user())
        {
            return Self::at(runtime.join("linerate/labs"));
        }
        Self::at(format!("/tmp/linerate-{user}/labs"))
    }

    /// A registry in another directory, created if necessary. It and its parent must belong to this user.
    pub fn at(directory: impl Into<PathBuf>) -> Result<Self> {
        let directory = directory.into();
        if let Some(parent) = directory.parent() {
            create_own_directory(parent)?;
        }
        create_own_directory(&directory)?;
        Ok(Self { directory })
    }

    pub fn path(&self) -> &Path {
        &self.directory
    }

    /// All labs, dead or alive.
    pub fn labs(&self) -> Result<RegisteredLabs> {
        let mut registered = RegisteredLabs::default();
        for path in self.files()? {
            if path.extension().is_none_or(|extension| extension != "json") {
                continue;
            }
            match LabState::read(&path) {
                Ok(state) => registered.labs.push(state),
                // Its lab ended while the directory was read.
                Err(LabError::File { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
                Err(error) => registered.unreadable.push(error),
            }
        }
        registered.labs.sort_by(|a, b| (a.since, &a.id).cmp(&(b.since, &b.id)));
        Ok(registered)
    }

    /// The live lab with this name.
    ///
    /// # Errors
    /// [`LabError::NoSuchLab`], which names the existing labs.
    pub fn find(&self, name: &str) -> Result<LabState> {
        let mut labs = self.labs()?.labs;
        labs.retain(LabState::is_alive);
        if let Some(index) = labs.iter().position(|lab| lab.name == name) {
            return Ok(labs.swap_remove(index));
        }
        Err(LabError::NoSuchLab {
            name: name.to_owned(),
            known: labs.into_iter().map(|lab| lab.name).collect(),
        })
    }

    /// Keeps other processes from starting or cleaning labs until it is dropped.
    pub(crate) fn lock(&self) -> Result<File> {
        let path = self.directory.join(".lock");
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW)
            .open(&path)
            .map_err(|e| LabError::file("open", &path, e))?;
        loop {
            match flock(&file, FlockOperation::LockExclusive) {
                Ok(()) => return Ok(file),
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(LabError::file("lock", &path, errno)),
            }
        }
    }

    /// Replaces a state atomically.
    pub(crate) fn write(&self, state: &LabState) -> Result<()> {
        let path = self.file(&state.id);
        // Each lab has one writer at a time.
        let temporary = path.with_extension(TEMPORARY);
        let failed = |e: io::Error| LabError::file("write", &temporary, e);
        let mut text = serde_json::to_vec_pretty(state).map_err(|e| failed(e.into()))?;
        text.push(b'\n');
        let mut file = File::options()
            .create(true)
            .truncate(true)
            .write(true)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW)
            .open(&temporary)
            .map_err(failed)?;
        file.write_all(&text).map_err(failed)?;
        // The original value must be on disk before a host-wide setting changes.
        file.sync_all().map_err(failed)?;
        fs::rename(&temporary, &path).map_err(|e| LabError::file("write", path, e))
    }

    pub(crate) fn remove(&self, id: &str) -> Result<()> {
        let path = self.file(id);
        match fs::remove_file(&path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(LabError::file("remove", path, e)),
            _ => Ok(()),
        }
    }

    fn file(&self, id: &str) -> PathBuf {
        self.directory.join(format!("{id}.json"))
    }

    fn files(&self) -> Result<Vec<PathBuf>> {
        let failed = |e| LabError::file("read", &self.directory, e);
        fs::read_dir(&self.directory)
            .map_err(failed)?
            .map(|entry| Ok(entry.map_err(failed)?.path()))
            .collect()
    }
}

/// Creates a directory if necessary, and checks that no other user can write to it.
fn create_own_directory(directory: &Path) -> Result<()> {
    match DirBuilder::new().mode(0o700).create(directory) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => {
            return Err(LabError::file("make", directory, e));
        }
        _ => {}
    }
    let metadata = fs::symlink_metadata(directory).map_err(|e| LabError::file("read", directory, e))?;
    let why = if !metadata.is_dir() {
        "it is not a directory"
    } else if metadata.uid() != own_user() {
        "it belongs to another user"
    } else if metadata.mode() & 0o022 != 0 {
        "others can write to it"
    } else {
        return Ok(());
    };
    Err(LabError::NotOurs { path: directory.to_owned(), why })
}

fn own_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// The user outside this process's own user namespace.
fn outside_user() -> u32 {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    mapped_user(&map, own_user())
}

/// `enter_if_needed` makes a map of one user. The map of a container is longer and is not resolved.
fn mapped_user(map: &str, user: u32) -> u32 {
    let mut fields = map.split_ascii_whitespace().map(str::parse::<u32>);
    match (fields.next(), fields.next(), fields.next(), fields.next()) {
        (Some(Ok(inside)), Some(Ok(outside)), Some(Ok(1)), None) if inside == user => outside,
        _ => user,
    }
}

#[cfg(test)]
mod tests;
