//! A directory with the captured files of another host.
//!
//! A link in such a tree must not lead out of it, because the target would be a file of this host.

use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rustix::fs::{Dir, FileType, Mode, OFlags, ResolveFlags};

use crate::recording::{CaptureExtras, RecordedResult};

/// The limit of a file of a host or a capture, because a captured tree may contain anything. Two
/// readings of a million open descriptors fit into `capture.json`.
pub(crate) const LARGEST_FILE: u64 = 128 << 20;

pub(crate) fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    read_content(std::fs::File::open(path)?)
}

/// `EFBIG` above the limit: the beginning of a file would be another value.
fn read_content(file: std::fs::File) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    file.take(LARGEST_FILE + 1).read_to_end(&mut content)?;
    if content.len() as u64 > LARGEST_FILE {
        return Err(io::Error::from_raw_os_error(libc::EFBIG));
    }
    Ok(content)
}

#[derive(Debug)]
pub(super) struct CapturedTree {
    path: PathBuf,
    root: OnceLock<Result<OwnedFd, rustix::io::Errno>>,
    extras: CaptureExtras,
}

impl CapturedTree {
    pub(super) fn new(path: PathBuf, extras: CaptureExtras) -> Self {
        Self { path, root: OnceLock::new(), extras }
    }

    pub(super) fn read(&self, path: &str) -> io::Result<Vec<u8>> {
        if let Some(failure) = self.extras.unreadable.get(path) {
            return Err(failure.error());
        }
        // A pipe in the tree must not block.
        let file = self.open(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY)?;
        match FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode) {
            FileType::RegularFile => {}
            FileType::Directory => return Err(io::Error::from_raw_os_error(libc::EISDIR)),
            _ => return Err(io::Error::other("no regular file")),
        }
        read_content(file.into())
    }

    pub(super) fn list(&self, path: &str) -> io::Result<Vec<String>> {
        if let Some(result) = self.extras.directories.get(path.trim_end_matches('/')) {
            return result.to_result();
        }
        let directory = self.open(path, OFlags::RDONLY | OFlags::DIRECTORY)?;
        let mut names = Vec::new();
        for entry in Dir::read_from(&directory)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if name != "." && name != ".." {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    pub(super) fn read_link(&self, path: &str) -> io::Result<String> {
        if let Some(result) = self.extras.links.get(path) {
            return RecordedResult::to_result(result);
        }
        let link = self.open(path, OFlags::PATH | OFlags::NOFOLLOW)?;
        // An empty path means the open link itself (Linux 2.6.39, readlinkat(2)).
        let target = rustix::fs::readlinkat(&link, "", Vec::new())?;
        Ok(target.to_string_lossy().into_owned())
    }

    fn open(&self, path: &str, flags: OFlags) -> io::Result<OwnedFd> {
        let root = self.root.get_or_init(|| {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            rustix::fs::open(&self.path, flags, Mode::empty())
        });
        let root = root.as_ref().map_err(|errno| io::Error::from(*errno))?;
        let relative_path = path.trim_start_matches('/');
        let relative_path = if relative_path.is_empty() { "." } else { relative_path };
        let flags = flags | OFlags::CLOEXEC;
        // Links are relative to the tree's root, and none leads out (Linux 5.6, openat2(2)).
        match rustix::fs::openat2(root, relative_path, flags, Mode::empty(), ResolveFlags::IN_ROOT) {
            Err(rustix::io::Errno::NOSYS | rustix::io::Errno::PERM) => {
                open_without_links(root, relative_path, flags)
            }
            result => Ok(result?),
        }
    }
}

/// For kernels without openat2: component by component, without links.
fn open_without_links(root: &OwnedFd, path: &str, flags: OFlags) -> io::Result<OwnedFd> {
    let path = Path::new(path);
    let mut directory = root.try_clone()?;
    let names: Vec<_> = path.components().collect();
    if names.iter().any(|name| matches!(name, std::path::Component::ParentDir)) {
        // The error of openat2 with RESOLVE_BENEATH.
        return Err(io::Error::from_raw_os_error(libc::EXDEV));
    }
    for (index, name) in names.iter().enumerate() {
        let is_last = index + 1 == names.len();
        let flags = if is_last { flags } else { OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC };
        directory = rustix::fs::openat(&directory, Path::new(name), flags | OFlags::NOFOLLOW, Mode::empty())?;
    }
    Ok(directory)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn tree() -> (tempfile::TempDir, CapturedTree) {
        let directory = tempfile::tempdir().expect("a directory");
        let root = directory.path();
        std::fs::create_dir_all(root.join("sys/devices/eth0")).expect("made");
        std::fs::create_dir_all(root.join("proc")).expect("made");
        std::fs::write(root.join("sys/devices/eth0/mtu"), "1500\n").expect("written");
        symlink("devices/eth0", root.join("sys/inside")).expect("linked");
        symlink("/proc/version", root.join("sys/absolute")).expect("linked");
        symlink("../../../../../../../proc/version", root.join("sys/climbing")).expect("linked");
        let tree = CapturedTree::new(root.to_owned(), CaptureExtras::default());
        (directory, tree)
    }

    #[test]
    fn links_out_of_a_captured_tree_are_not_followed() {
        let (_directory, tree) = tree();
        for path in
            ["/sys/absolute", "/sys/climbing", "/../../../../../proc/version", "/sys/../../proc/version"]
        {
            let error = tree.read(path).expect_err(path);
            assert_eq!(error.raw_os_error(), Some(libc::ENOENT), "{path}: {error}");
        }
        assert_eq!(tree.read_link("/sys/absolute").expect("a link"), "/proc/version");
    }

    #[test]
    fn links_inside_a_captured_tree_are_followed() {
        let (_directory, tree) = tree();
        assert_eq!(tree.read("/sys/inside/mtu").expect("read"), b"1500\n");
        assert_eq!(tree.list("/sys/inside").expect("listed"), ["mtu"]);
        assert_eq!(tree.list("/sys").expect("listed"), ["absolute", "climbing", "devices", "inside"]);
        assert_eq!(tree.read("/sys/devices").expect_err("a directory").raw_os_error(), Some(libc::EISDIR));
    }

    #[test]
    fn without_openat2_no_link_is_followed() {
        let (directory, _) = tree();
        let root = std::fs::File::open(directory.path()).expect("opened").into();
        let open = |path| open_without_links(&root, path, OFlags::RDONLY | OFlags::CLOEXEC);
        assert!(open("sys/devices/eth0/mtu").is_ok());
        for path in ["sys/absolute", "sys/climbing", "sys/inside/mtu", "../x", "sys/../../x"] {
            assert!(open(path).is_err(), "{path}");
        }
    }

    #[test]
    fn capture_extras_override_files() {
        let (directory, _) = tree();
        let failure = serde_json::from_str(r#"{"errno": 13}"#).expect("a failure");
        let mut extras = CaptureExtras::default();
        extras.unreadable.insert("/sys/devices/eth0/mtu".into(), failure);
        extras.links.insert("/sys/devices/eth0".into(), RecordedResult::Read("../pci".into()));
        let tree = CapturedTree::new(directory.path().to_owned(), extras);
        let error = tree.read("/sys/devices/eth0/mtu").expect_err("refused");
        assert_eq!(error.raw_os_error(), Some(libc::EACCES));
        assert_eq!(tree.read_link("/sys/devices/eth0").expect("a link"), "../pci");
        let nowhere = CapturedTree::new("/nonexistent".into(), CaptureExtras::default());
        assert_eq!(nowhere.list("/proc").expect_err("no tree").raw_os_error(), Some(libc::ENOENT));
    }
}
