//! ethtool structures of 32-bit words: rings, channels, interrupt moderation (linux/ethtool.h).
//!
//! netlink has the same fields (linux/ethtool_netlink.h). The attribute number of a word is its
//! index plus one, because word 0 is the command and attribute 1 the header.

use std::io;

use super::ioctl;

// Words of a structure by index. netlink leaves out words that the device does not have; the ioctl
// cannot express that, and has zeros.
pub(crate) type EthtoolWords = Vec<Option<u32>>;

/// A structure, and the commands that read and write it.
pub(crate) struct WordStructure {
    get: u32,
    set: u32,
    pub(crate) netlink_get: u8,
    pub(crate) netlink_set: u8,
    /// Words of the structure, including the command.
    pub(crate) length: usize,
    /// Indices of words that are flags.
    pub(crate) flags: &'static [usize],
}

pub(crate) const COALESCE: WordStructure =
    WordStructure { get: 0x0e, set: 0x0f, netlink_get: 19, netlink_set: 20, length: 23, flags: &[10, 11] };
pub(crate) const RINGS: WordStructure =
    WordStructure { get: 0x10, set: 0x11, netlink_get: 15, netlink_set: 16, length: 9, flags: &[] };
pub(crate) const CHANNELS: WordStructure =
    WordStructure { get: 0x3c, set: 0x3d, netlink_get: 17, netlink_set: 18, length: 9, flags: &[] };

impl WordStructure {
    pub(crate) fn read(&self, interface: &str) -> io::Result<EthtoolWords> {
        Ok(self.words(interface)?.into_iter().map(Some).collect())
    }

    /// Reads the structure, changes the words with a value, and writes it.
    pub(crate) fn change(&self, interface: &str, changes: &[(usize, Option<u32>)]) -> io::Result<()> {
        let mut words = self.words(interface)?;
        words[0] = self.set;
        for (index, value) in changes {
            if let (Some(word), Some(value)) = (words.get_mut(*index), value) {
                *word = *value;
            }
        }
        call_ioctl(interface, &mut words)
    }

    fn words(&self, interface: &str) -> io::Result<Vec<u32>> {
        let mut words = vec![0; self.length];
        words[0] = self.get;
        call_ioctl(interface, &mut words)?;
        Ok(words)
    }
}

// `words` is as long as the structure of the command in its first word.
fn call_ioctl(interface: &str, words: &mut [u32]) -> io::Result<()> {
    // SAFETY: only this module calls it, with the length of the structure, which contains only words.
    unsafe { ioctl(interface, words.as_mut_ptr().cast()) }
}
