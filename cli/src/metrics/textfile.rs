//! A file for node_exporter's textfile collector.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Writes a file so that it is the old one or the new one to every reader: beside it, then renamed. What is beside it has a
/// name that does not end with `.prom`, which the collector reads.
///
/// # Errors
/// Whatever the file system refuses; then the old file is as it was.
pub(crate) fn replace(path: &Path, text: &str) -> io::Result<()> {
    let mut name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_os_string();
    name.push(format!(".{}.part", std::process::id()));
    let part = path.with_file_name(name);
    let written = write_new(&part, text).and_then(|()| fs::rename(&part, path));
    if written.is_err() {
        // It may never have been made; the error that counts is the first.
        let _ = fs::remove_file(&part);
    }
    written
}

/// Writes a file that is not there yet: where others may write to the directory, one of them could have put a link there.
fn write_new(path: &Path, text: &str) -> io::Result<()> {
    fs::OpenOptions::new().write(true).create_new(true).mode(0o644).open(path)?.write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_has_the_old_file_or_the_new_one() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("linerate.prom");
        replace(&path, "a 1\n").expect("written");
        let old = fs::File::open(&path).expect("opened");
        replace(&path, "a 2\n").expect("written again");
        assert_eq!(io::read_to_string(old).expect("read"), "a 1\n");
        assert_eq!(fs::read_to_string(&path).expect("read"), "a 2\n");
        assert_eq!(fs::read_dir(directory.path()).expect("listed").count(), 1);
    }

    #[test]
    fn what_cannot_be_written_leaves_nothing() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("a-directory");
        fs::create_dir(&path).expect("made");
        assert!(replace(&path, "a 1\n").is_err());
        assert_eq!(fs::read_dir(directory.path()).expect("listed").count(), 1);
        assert!(replace(&directory.path().join("none/x.prom"), "").is_err());
    }
}
