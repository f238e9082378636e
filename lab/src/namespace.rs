//! Network namespaces, and a sysfs for each.

use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::thread::UnshareFlags;
use serde::{Deserialize, Serialize};

use crate::error::LabError;
use crate::sys;
use crate::sysfs::mount_detached;

/// Identifies a namespace while it exists. The kernel reuses the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct NamespaceId {
    /// Device of the namespace file system.
    pub device: u64,
    /// Inode in it: the number in `net:[4026532008]`.
    pub inode: u64,
}

impl NamespaceId {
    /// The namespace behind a file in `/proc/PID/ns/`.
    pub(crate) fn from_path(path: &Path) -> std::io::Result<Self> {
        Ok(Self::from_metadata(&std::fs::metadata(path)?))
    }

    /// The namespace behind an open file.
    pub(crate) fn from_file(file: &File) -> std::io::Result<Self> {
        Ok(Self::from_metadata(&file.metadata()?))
    }

    fn from_metadata(metadata: &std::fs::Metadata) -> Self {
        Self { device: metadata.dev(), inode: metadata.ino() }
    }
}

/// A network namespace, held by an open file.
#[derive(Debug)]
pub(crate) struct NetworkNamespace {
    pub file: File,
    pub id: NamespaceId,
    /// A sysfs on a detached mount that exists as long as the descriptor, and its path; or why there is none.
    pub sysfs: Result<(OwnedFd, PathBuf), String>,
}

impl NetworkNamespace {
    /// Moves the calling thread into a new network namespace with a sysfs.
    pub(crate) fn enter_new() -> Result<Self, LabError> {
        sys::unshare(UnshareFlags::NEWNET)
            .map_err(|errno| LabError::NoNamespace { why: crate::userns::why_not_unshare(errno) })?;
        let path = "/proc/thread-self/ns/net";
        let file = File::open(path).map_err(|e| LabError::file("open", path, e))?;
        let id = NamespaceId::from_file(&file).map_err(|e| LabError::file("read", path, e))?;
        // A sysfs shows the network namespace of the thread that mounted it.
        let sysfs = mount_detached()
            .map(|mount| {
                let path = PathBuf::from(format!("/proc/self/fd/{}", mount.as_raw_fd()));
                (mount, path)
            })
            .map_err(|errno| format!("fsopen: {}", std::io::Error::from(errno)));
        Ok(Self { file, id, sysfs })
    }
}
