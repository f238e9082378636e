//! What chooses the socket of a reuseport group, told by a BPF iterator over the UDP sockets (Linux 5.9).
//!
//! The kernel tells nobody whether a group has a program (SO_ATTACH_REUSEPORT_CBPF and _EBPF cannot be read back), so
//! `bpf/reuseport.bpf.c` is loaded, run once over the sockets of the calling thread's network namespace, and gone when its
//! descriptors are closed at the end of the call. It reads kernel memory, is attached to nothing that a packet passes, and
//! changes nothing.

use std::cell::OnceCell;
use std::io::{self, Read as _};

use aya::programs::Iter;
use aya::{Btf, EbpfLoader};
use serde::{Deserialize, Serialize};

use crate::{Host, HostError};

static OBJECT: &[u8] =
    aya::include_bytes_aligned!(concat!(env!("CARGO_MANIFEST_DIR"), "/../bpf/reuseport.bpf.o"));

/// Bytes of `struct member` of bpf/reuseport.bpf.c.
const MEMBER_BYTES: usize = 24;

/// `NO_PLACE` there.
const NO_PLACE: u32 = u32::MAX;

/// A socket in its group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// The socket's cookie.
    pub cookie: u64,
    /// Its place in the group, by which a classic program names it.
    #[serde(default)]
    pub place: Option<u32>,
    /// What chooses.
    pub chooser: Chooser,
}

/// What chooses the socket of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Chooser {
    /// The kernel: by hash, or by SO_INCOMING_CPU.
    Kernel,
    /// A classic program that does not look at the CPU.
    Classic,
    /// A classic program that loads the number of the CPU.
    ClassicByCpu,
    /// An SK_REUSEPORT program.
    Extended,
}

/// Asks at the first need.
pub(super) struct Choosers<'h> {
    host: &'h Host,
    members: OnceCell<Result<Vec<Member>, HostError>>,
}

impl<'h> Choosers<'h> {
    pub(super) fn new(host: &'h Host) -> Self {
        Self { host, members: OnceCell::new() }
    }

    /// The socket with this cookie in its group; none where it is in none.
    pub(super) fn member(&self, cookie: u64) -> Result<Option<&Member>, &HostError> {
        let ask =
            || self.host.call("reuseport/udp", "asking what chooses in reuseport groups (BPF iterator)", ask);
        let members = self.members.get_or_init(ask).as_ref()?;
        Ok(members.iter().find(|member| member.cookie == cookie))
    }
}

fn ask() -> io::Result<Vec<Member>> {
    let btf = Btf::from_sys_fs().map_err(io::Error::other)?;
    let mut object = EbpfLoader::new().btf(Some(&btf)).load(OBJECT).map_err(chain)?;
    let program: &mut Iter = object
        .program_mut("reuseport")
        .ok_or(io::ErrorKind::NotFound)?
        .try_into()
        .map_err(io::Error::other)?;
    program.load("udp", &btf).map_err(chain)?;
    let link = program.attach().map_err(chain)?;
    let link = program.take_link(link).map_err(chain)?;
    let mut bytes = Vec::new();
    link.into_file().map_err(io::Error::other)?.read_to_end(&mut bytes)?;
    members(&bytes)
}

/// The system's error where there is one below the library's, since that is what a capture keeps; else all their words.
fn chain(error: impl std::error::Error) -> io::Error {
    let mut words = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        if let Some(errno) = error.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error) {
            return io::Error::from_raw_os_error(errno);
        }
        words = format!("{words}: {error}");
        cause = error.source();
    }
    io::Error::other(words.lines().next().unwrap_or_default().to_owned())
}

/// Reads what the program wrote.
pub(crate) fn members(bytes: &[u8]) -> io::Result<Vec<Member>> {
    let chunks = bytes.chunks_exact(MEMBER_BYTES);
    if !chunks.remainder().is_empty() {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the BPF iterator's answer is cut short"));
    }
    chunks.map(|chunk| member(chunk).ok_or_else(|| io::ErrorKind::InvalidData.into())).collect()
}

fn member(bytes: &[u8]) -> Option<Member> {
    let word = |offset: usize| Some(u32::from_ne_bytes(*bytes.get(offset..)?.first_chunk()?));
    let chooser = match word(16)? {
        0 => Chooser::Kernel,
        1 => Chooser::Classic,
        2 => Chooser::ClassicByCpu,
        3 => Chooser::Extended,
        _ => return None,
    };
    let place = Some(word(8)?).filter(|place| *place != NO_PLACE);
    Some(Member { cookie: u64::from_ne_bytes(*bytes.first_chunk()?), place, chooser })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bytes(cookie: u64, place: u32, chooser: u32) -> Vec<u8> {
        let mut bytes = cookie.to_ne_bytes().to_vec();
        for word in [place, 4, chooser, 0] {
            bytes.extend(word.to_ne_bytes());
        }
        bytes
    }

    #[test]
    fn members_are_read_and_what_is_cut_short_is_an_error() {
        let both = [bytes(77, 1, 2), bytes(78, NO_PLACE, 0)].concat();
        let expected = [
            Member { cookie: 77, place: Some(1), chooser: Chooser::ClassicByCpu },
            Member { cookie: 78, place: None, chooser: Chooser::Kernel },
        ];
        assert_eq!(members(&both).expect("read"), expected);
        assert!(members(&both[..40]).is_err() && members(&bytes(1, 0, 9)).is_err());
        assert_eq!(members(&[]).expect("nobody"), []);
    }

    proptest! {
        #[test]
        fn any_bytes_are_members_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = members(&bytes);
        }
    }
}
