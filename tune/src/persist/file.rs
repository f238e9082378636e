//! Atomic writes and removals of files below a root, never through a symbolic link.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use sha2::{Digest, Sha256};

use super::{FileContent, PersistError};
use crate::journal::record::WrittenFile;

// linerate writes no larger file.
const LARGEST_FILE: u64 = 16 << 20;
const FILE_MODE: Mode = Mode::from_raw_mode(0o644);
const DIRECTORY_MODE: Mode = Mode::from_raw_mode(0o755);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PathOccupant {
    Nothing,
    /// A file or symbolic link.
    File {
        /// SHA-256 of its content, or of its target.
        sha256: String,
        /// Whether it is a symbolic link.
        link: bool,
    },
    // A directory, a device, or something too large.
    Other,
}

impl PathOccupant {
    /// Whether it is this file, unchanged.
    pub(super) fn is(&self, file: &WrittenFile) -> bool {
        matches!(self, PathOccupant::File { sha256, link } if *sha256 == file.sha256 && *link == file.link)
    }
}

/// A directory that was opened component by component, and a name in it.
pub(super) struct OpenedDirectory {
    directory: OwnedFd,
    name: String,
    path: PathBuf,
}

impl FileContent {
    /// The journal's record of a file with this content.
    pub(super) fn recorded(&self, path: String) -> WrittenFile {
        match self {
            FileContent::Text(text) => WrittenFile { path, sha256: sha256(text.as_bytes()), link: false },
            FileContent::Link(target) => WrittenFile { path, sha256: sha256(target.as_bytes()), link: true },
        }
    }
}

/// The missing parent directories of a file, the outermost first.
pub(super) fn missing_directories(path: &Path) -> Result<Vec<PathBuf>, PersistError> {
    Ok(open_parent(path)?.1)
}

// Creates a directory unless it exists. Its parent has to exist.
pub(super) fn make_directory(path: &Path) -> Result<(), PersistError> {
    let location = OpenedDirectory::of(path)?;
    match rustix::fs::mkdirat(&location.directory, &location.name, DIRECTORY_MODE) {
        Ok(()) => {}
        Err(Errno::EXIST) => return Ok(()),
        Err(errno) => return Err(refused("make", path, errno)),
    }
    // The umask reduces the mode given to mkdir.
    let directory =
        open_directory(&location.directory, &location.name).map_err(|errno| refused("open", path, errno))?;
    rustix::fs::fchmod(&directory, DIRECTORY_MODE)
        .map_err(|errno| refused("set the mode of", path, errno))?;
    location.sync()
}

/// Removes a directory if it is empty. Returns whether it did.
pub(super) fn remove_empty_directory(path: &Path) -> Result<bool, PersistError> {
    let Some(location) = OpenedDirectory::find(path)? else { return Ok(false) };
    match rustix::fs::unlinkat(&location.directory, &location.name, AtFlags::REMOVEDIR) {
        Ok(()) => location.sync().map(|()| true),
        Err(Errno::NOENT | Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR) => Ok(false),
        Err(errno) => Err(refused("remove", path, errno)),
    }
}

impl OpenedDirectory {
    /// Opens the directory of a file.
    pub(super) fn of(path: &Path) -> Result<Self, PersistError> {
        Self::find(path)?.ok_or_else(|| refused("open the directory of", path, Errno::NOENT))
    }

    // Like [`Self::of`], but `None` if the directory is missing.
    pub(super) fn find(path: &Path) -> Result<Option<Self>, PersistError> {
        let name = path.file_name().and_then(|name| name.to_str()).ok_or_else(|| not_a_path(path))?;
        let (directory, missing) = open_parent(path)?;
        let location = Self { directory, name: name.to_owned(), path: path.to_owned() };
        Ok(missing.is_empty().then_some(location))
    }

    pub(super) fn occupant(&self) -> Result<PathOccupant, PersistError> {
        let stat = match rustix::fs::statat(&self.directory, &self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => return Ok(PathOccupant::Nothing),
            Err(errno) => return Err(self.refused("look at", errno)),
        };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Symlink => {
                let target = rustix::fs::readlinkat(&self.directory, &self.name, Vec::new());
                let target = target.map_err(|errno| self.refused("read", errno))?;
                Ok(PathOccupant::File { sha256: sha256(target.as_bytes()), link: true })
            }
            FileType::RegularFile => self.content(),
            _ => Ok(PathOccupant::Other),
        }
    }

    fn content(&self) -> Result<PathOccupant, PersistError> {
        // The file may have been replaced by a pipe, which must not block.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.directory, &self.name, flags, Mode::empty());
        let file = file.map_err(|errno| self.refused("open", errno))?;
        let mut content = Vec::new();
        let result = File::from(file).take(LARGEST_FILE + 1).read_to_end(&mut content);
        result.map_err(|error| failed("read", &self.path, &error))?;
        if content.len() as u64 > LARGEST_FILE {
            return Ok(PathOccupant::Other);
        }
        Ok(PathOccupant::File { sha256: sha256(&content), link: false })
    }

    /// Writes a new file, or replaces a file of linerate (`replace`).
    pub(super) fn write(&self, content: &FileContent, replace: bool) -> Result<(), PersistError> {
        let temporary = self.temporary()?;
        temporary.remove()?;
        match content {
            FileContent::Text(text) => temporary.write_new(text)?,
            FileContent::Link(target) => rustix::fs::symlinkat(target, &self.directory, &temporary.name)
                .map_err(|errno| self.refused("write", errno))?,
        }
        let result = if replace {
            rustix::fs::renameat(&self.directory, &temporary.name, &self.directory, &self.name)
        } else {
            self.rename_without_replacing(&temporary.name)
        };
        if let Err(errno) = result {
            // The first error counts. A leftover has a fixed name, which the next write removes.
            let _ = temporary.remove();
            return Err(self.refused("write", errno));
        }
        self.sync()
    }

    fn rename_without_replacing(&self, from: &str) -> Result<(), Errno> {
        let directory = &self.directory;
        match rustix::fs::renameat_with(directory, from, directory, &self.name, RenameFlags::NOREPLACE) {
            // Not every file system supports it (renameat2(2)). A hard link fails if the name exists, too.
            Err(Errno::INVAL | Errno::NOSYS) => {
                rustix::fs::linkat(directory, from, directory, &self.name, AtFlags::empty())?;
                rustix::fs::unlinkat(directory, from, AtFlags::empty())
            }
            result => result,
        }
    }

    fn write_new(&self, text: &str) -> Result<(), PersistError> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.directory, &self.name, flags, FILE_MODE);
        let file = file.map_err(|errno| self.refused("write", errno))?;
        // The umask reduces the mode given to open.
        rustix::fs::fchmod(&file, FILE_MODE).map_err(|errno| self.refused("set the mode of", errno))?;
        let mut file = File::from(file);
        file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(|error| {
            // As above: the write error is the one to report.
            let _ = self.remove();
            failed("write", &self.path, &error)
        })
    }

    /// Removes the file or link. Returns whether it existed.
    pub(super) fn remove(&self) -> Result<bool, PersistError> {
        match rustix::fs::unlinkat(&self.directory, &self.name, AtFlags::empty()) {
            Ok(()) => self.sync().map(|()| true),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(self.refused("remove", errno)),
        }
    }

    /// Removes the temporary file of a killed [`OpenedDirectory::write`].
    pub(super) fn remove_unfinished(&self) -> Result<bool, PersistError> {
        self.temporary()?.remove()
    }

    // A fixed name, so that the file is found again after a kill. sysctl.d, systemd and run-parts ignore it.
    fn temporary(&self) -> Result<Self, PersistError> {
        let directory = self.directory.try_clone();
        let directory = directory.map_err(|error| failed("open the directory of", &self.path, &error))?;
        Ok(Self { directory, name: format!(".{}.linerate-new", self.name), path: self.path.clone() })
    }

    fn sync(&self) -> Result<(), PersistError> {
        match rustix::fs::fsync(&self.directory) {
            // Not every file system can sync a directory (fsync(2)).
            Ok(()) | Err(Errno::INVAL) => Ok(()),
            Err(errno) => Err(self.refused("sync the directory of", errno)),
        }
    }

    fn refused(&self, operation: &str, errno: Errno) -> PersistError {
        refused(operation, &self.path, errno)
    }
}

/// Opens the directory of a file, or the innermost of its parents that exists, component by component
/// without following links. Returns the missing directories, too, the outermost first.
fn open_parent(file: &Path) -> Result<(OwnedFd, Vec<PathBuf>), PersistError> {
    let directory = file.parent().ok_or_else(|| not_a_path(file))?;
    let relative = directory.strip_prefix("/").map_err(|_| not_a_path(directory))?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut path = PathBuf::from("/");
    let mut parent =
        rustix::fs::open("/", flags, Mode::empty()).map_err(|errno| refused("open", &path, errno))?;
    let mut missing = Vec::new();
    for component in relative.components() {
        let std::path::Component::Normal(name) = component else { return Err(not_a_path(directory)) };
        let name = name.to_str().ok_or_else(|| not_a_path(directory))?;
        path.push(name);
        let opened = if missing.is_empty() { open_directory(&parent, name) } else { Err(Errno::NOENT) };
        match opened {
            Ok(opened) => parent = opened,
            Err(Errno::NOENT) => missing.push(path.clone()),
            Err(errno) => {
                let stat = rustix::fs::statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW);
                let is_link =
                    stat.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Symlink);
                let link =
                    || format!("{} is a symbolic link, and nothing is written through one", path.display());
                return Err(if is_link {
                    PersistError::Refused(link())
                } else {
                    refused("open", &path, errno)
                });
            }
        }
    }
    Ok((parent, missing))
}

fn open_directory(at: &OwnedFd, name: &str) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(at, name, flags, Mode::empty())
}

fn refused(operation: &str, path: &Path, errno: Errno) -> PersistError {
    failed(operation, path, &errno.into())
}

pub(super) fn failed(operation: &str, path: &Path, error: &io::Error) -> PersistError {
    PersistError::Refused(format!("cannot {operation} {}: {error}", path.display()))
}

fn not_a_path(path: &Path) -> PersistError {
    PersistError::Refused(format!("{}: not a path below a directory", path.display()))
}

fn sha256(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    Sha256::digest(bytes).iter().fold(String::new(), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn root() -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().canonicalize().expect("a path");
        (directory, path)
    }

    fn text(text: &str) -> FileContent {
        FileContent::Text(text.into())
    }

    #[test]
    fn write_replaces_an_existing_file_only_on_request() {
        let (_directory, root) = root();
        let path = root.join("a.conf");
        let spot = OpenedDirectory::of(&path).expect("there");
        // The temporary file of an unfinished write.
        std::fs::write(root.join(".a.conf.linerate-new"), "torn").expect("written");
        spot.write(&text("one"), false).expect("written");
        assert_eq!(std::fs::metadata(&path).expect("there").permissions().mode() & 0o7777, 0o644);
        let error = spot.write(&text("two"), false).expect_err("refused");
        assert!(error.to_string().starts_with(&format!("cannot write {}: ", path.display())), "{error}");
        assert_eq!(std::fs::read_to_string(&path).expect("read"), "one");
        spot.write(&text("two"), true).expect("written");
        assert!(spot.occupant().expect("read").is(&text("two").recorded(String::new())));
        assert_eq!(std::fs::read_dir(&root).expect("listed").count(), 1);
    }

    #[test]
    fn symbolic_links_are_never_written_through() {
        let (_directory, root) = root();
        std::fs::create_dir(root.join("real")).expect("made");
        std::fs::write(root.join("real/file"), "theirs").expect("written");
        symlink("real", root.join("linked")).expect("linked");
        symlink("real/file", root.join("file")).expect("linked");
        for outcome in [
            OpenedDirectory::of(&root.join("linked/new")).map(drop),
            missing_directories(&root.join("linked/a/b")).map(drop),
        ] {
            let error = outcome.expect_err("refused");
            let link = root.join("linked");
            assert_eq!(
                error.to_string(),
                format!("{} is a symbolic link, and nothing is written through one", link.display())
            );
        }
        let spot = OpenedDirectory::of(&root.join("file")).expect("there");
        assert!(matches!(spot.occupant().expect("read"), PathOccupant::File { link: true, .. }));
        spot.write(&text("ours"), false).expect_err("refused");
        assert_eq!(std::fs::read_to_string(root.join("real/file")).expect("read"), "theirs");
    }

    #[test]
    fn missing_directories_are_listed_created_and_removed_if_empty() {
        let (_directory, root) = root();
        let missing = missing_directories(&root.join("etc/linerate/tune.json")).expect("listed");
        assert_eq!(missing, [root.join("etc"), root.join("etc/linerate")]);
        for directory in &missing {
            make_directory(directory).expect("made");
            make_directory(directory).expect("there");
        }
        assert!(missing_directories(&root.join("etc/linerate/tune.json")).expect("listed").is_empty());
        assert!(!remove_empty_directory(&root.join("etc")).expect("kept"));
        assert!(remove_empty_directory(&root.join("etc/linerate")).expect("removed"));
        assert!(!remove_empty_directory(&root.join("etc/linerate")).expect("not there"));
    }

    #[test]
    fn relative_paths_dot_dot_and_root_are_rejected() {
        for path in ["etc/x", "/etc/../x/y", "/"] {
            let error = OpenedDirectory::of(Path::new(path)).map(drop).expect_err("rejected").to_string();
            assert!(error.ends_with("not a path below a directory"), "{path}: {error}");
        }
    }
}
