//! An archive as the kernel unpacks it into its first file system: cpio, format "newc"
//! (Documentation/driver-api/early-userspace/buffer-format.rst, Linux 6.12).

use std::io::{self, Write};

const REGULAR: u32 = 0o100_000;
const DIRECTORY: u32 = 0o040_000;

/// The name that ends an archive.
const TRAILER: &str = "TRAILER!!!";

/// Writes an archive. Directories come before their files.
pub(super) struct CpioArchive<W> {
    to: W,
    /// Files with the same number would be links to one.
    inode: u32,
}

impl<W: Write> CpioArchive<W> {
    pub(super) fn new(to: W) -> Self {
        Self { to, inode: 0 }
    }

    pub(super) fn directory(&mut self, name: &str) -> io::Result<()> {
        self.entry(name, DIRECTORY | 0o755, &[])
    }

    /// A file with its access rights.
    pub(super) fn file(&mut self, name: &str, rights: u32, content: &[u8]) -> io::Result<()> {
        self.entry(name, REGULAR | rights, content)
    }

    /// Ends the archive.
    pub(super) fn finish(mut self) -> io::Result<W> {
        self.entry(TRAILER, 0, &[])?;
        Ok(self.to)
    }

    fn entry(&mut self, name: &str, mode: u32, content: &[u8]) -> io::Result<()> {
        let too_large = |_| io::Error::new(io::ErrorKind::InvalidInput, format!("{name} is too large"));
        let size = u32::try_from(content.len()).map_err(too_large)?;
        let name_size = u32::try_from(name.len() + 1).map_err(too_large)?;
        self.inode += 1;
        // inode, mode, user, group, links, time, size, device (two), its number (two), name's size, sum
        let fields = [self.inode, mode, 0, 0, 1, 0, size, 0, 0, 0, 0, name_size, 0];
        self.to.write_all(b"070701")?;
        for field in fields {
            write!(self.to, "{field:08X}")?;
        }
        self.to.write_all(name.as_bytes())?;
        self.to.write_all(&[0])?;
        // The header's 110 bytes and the name are filled up to a multiple of four, and so is the content.
        self.fill(110 + name.len() + 1)?;
        self.to.write_all(content)?;
        self.fill(content.len())
    }

    fn fill(&mut self, length: usize) -> io::Result<()> {
        self.to.write_all(&[0; 3][..length.next_multiple_of(4) - length])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_written_as_the_format_says() {
        let mut archive = CpioArchive::new(Vec::new());
        archive.file("init", 0o755, b"hello").expect("writing to memory");
        let bytes = archive.finish().expect("writing to memory");
        let expected = concat!(
            "070701", "00000001", "000081ED", "00000000", "00000000", "00000001", "00000000", "00000005",
            "00000000", "00000000", "00000000", "00000000", "00000005", "00000000", "init\0", "\0", "hello",
            "\0\0\0", "070701"
        );
        assert_eq!(String::from_utf8_lossy(&bytes[..expected.len()]), expected);
        assert!(bytes.ends_with(b"TRAILER!!!\0\0\0\0"));
        assert_eq!(bytes.len() % 4, 0);
    }

    #[test]
    fn every_entry_begins_at_a_multiple_of_four() {
        for length in 0..9 {
            let mut archive = CpioArchive::new(Vec::new());
            archive.directory(&"n".repeat(length + 1)).expect("writing to memory");
            archive.file("f", 0o644, &b"12345678"[..length]).expect("writing to memory");
            let bytes = archive.finish().expect("writing to memory");
            let starts: Vec<usize> =
                bytes.windows(6).enumerate().filter(|(_, w)| w == b"070701").map(|(at, _)| at).collect();
            assert_eq!(starts.len(), 3);
            assert!(starts.iter().all(|at| at % 4 == 0), "{starts:?}");
        }
    }
}
