//! Reads how reuseport groups choose a socket, with BPF iterators over UDP and TCP sockets (Linux
//! 5.9).
//!
//! The kernel does not report whether a group has a program (SO_ATTACH_REUSEPORT_CBPF and _EBPF
//! cannot be read back), so `bpf/reuseport.bpf.c` is loaded when needed, run over the sockets of
//! the calling thread's network namespace, and removed with the process. It reads kernel memory, is
//! not in the path of packets, and changes nothing.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io::{self, Read as _};
use std::sync::{Mutex, PoisonError};

use aya::programs::Iter;
use aya::{Ebpf, EbpfLoader};
use serde::{Deserialize, Serialize};

use crate::background::pause_after_burst;
use crate::netlink::sock_diag::SocketProtocol;
use crate::{Host, HostError, bpf};

static OBJECT: &[u8] =
    aya::include_bytes_aligned!(concat!(env!("CARGO_MANIFEST_DIR"), "/../bpf/reuseport.bpf.o"));

/// Bytes of `struct member` of bpf/reuseport.bpf.c.
const MEMBER_BYTES: usize = 40;

/// Offset of the program's name.
const NAME: std::ops::Range<usize> = 24..40;

/// `NO_PLACE` of bpf/reuseport.bpf.c.
const NO_PLACE: u32 = u32::MAX;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChooserMember {
    pub cookie: u64,
    /// Index in the group, as a classic program uses it.
    #[serde(default)]
    pub place: Option<u32>,
    pub chooser: GroupChooser,
    /// For an eBPF program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<ChoosingProgram>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChoosingProgram {
    /// As in `bpftool prog`.
    pub id: u32,
    /// At most 15 bytes.
    pub name: String,
}

impl ChoosingProgram {
    /// Name of the program of `bpf/steer.bpf.c`. Other programs may have this name; code that
    /// changes a program checks its maps.
    pub(crate) const STEER: &str = "linerate_steer";
}

/// How a group chooses a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GroupChooser {
    /// The kernel: by hash, or by SO_INCOMING_CPU.
    Kernel,
    /// A classic program that does not load the CPU number.
    Classic,
    /// A classic program that loads the CPU number.
    ClassicByCpu,
    /// An eBPF program: SK_REUSEPORT, or a socket filter.
    Extended,
}

/// Loads the program when it is first needed.
pub(crate) struct ChooserReader<'h> {
    host: &'h Host,
    datagrams: OnceCell<Result<Vec<ChooserMember>, HostError>>,
    listeners: OnceCell<Result<Vec<ChooserMember>, HostError>>,
}

impl<'h> ChooserReader<'h> {
    pub(crate) fn new(host: &'h Host) -> Self {
        Self { host, datagrams: OnceCell::new(), listeners: OnceCell::new() }
    }

    /// The socket with this protocol and cookie in its group; `None` if it is in no group.
    pub(crate) fn member(
        &self,
        protocol: SocketProtocol,
        cookie: u64,
    ) -> Result<Option<&ChooserMember>, &HostError> {
        let members = match protocol {
            SocketProtocol::Udp => &self.datagrams,
            SocketProtocol::Tcp => &self.listeners,
        };
        let read = || {
            let operation = "asking what chooses in reuseport groups (BPF iterator)";
            self.host.call(&format!("reuseport/{}", protocol.name()), operation, || read_members(protocol))
        };
        let members = members.get_or_init(read).as_ref()?;
        Ok(members.iter().find(|member| member.cookie == cookie))
    }
}

/// Loaded iterators: relocating one for the kernel takes 200 ms, running it almost nothing.
static LOADED: Mutex<BTreeMap<SocketProtocol, Ebpf>> = Mutex::new(BTreeMap::new());

/// The members of all reuseport groups of the calling thread's network namespace. Sockets whose
/// cookie was never read have no cookie yet.
pub(crate) fn read_members(protocol: SocketProtocol) -> io::Result<Vec<ChooserMember>> {
    let mut objects = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    let object = match objects.entry(protocol) {
        Entry::Occupied(object) => object.into_mut(),
        Entry::Vacant(entry) => entry.insert(load_program(protocol)?),
    };
    let iterator = iterator(object, protocol)?;
    // An iterator uses the namespace of the thread that opens it (bpf_iter_init_seq_net of
    // fs/proc/proc_net.c).
    let link = iterator.attach().map_err(bpf::error)?;
    let link = iterator.take_link(link).map_err(bpf::error)?;
    drop(objects);
    let mut bytes = Vec::new();
    link.into_file().map_err(io::Error::other)?.read_to_end(&mut bytes)?;
    members(&bytes)
}

fn load_program(protocol: SocketProtocol) -> io::Result<Ebpf> {
    let btf = bpf::kernel_btf()?;
    pause_after_burst();
    let mut loader = EbpfLoader::new();
    pause_after_burst();
    let mut object = loader.btf(Some(&btf)).load(OBJECT).map_err(bpf::error)?;
    pause_after_burst();
    iterator(&mut object, protocol)?.load(protocol.name(), &btf).map_err(bpf::error)?;
    Ok(object)
}

fn iterator(object: &mut Ebpf, protocol: SocketProtocol) -> io::Result<&mut Iter> {
    let name = match protocol {
        SocketProtocol::Udp => "reuseport",
        SocketProtocol::Tcp => "reuseport_tcp",
    };
    let program = object.program_mut(name).ok_or(io::ErrorKind::NotFound)?;
    program.try_into().map_err(io::Error::other)
}

pub(crate) fn members(bytes: &[u8]) -> io::Result<Vec<ChooserMember>> {
    let chunks = bytes.chunks_exact(MEMBER_BYTES);
    if !chunks.remainder().is_empty() {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the BPF iterator's answer is cut short"));
    }
    chunks.map(|chunk| member(chunk).ok_or_else(|| io::ErrorKind::InvalidData.into())).collect()
}

fn member(bytes: &[u8]) -> Option<ChooserMember> {
    let word = |offset: usize| Some(u32::from_ne_bytes(*bytes.get(offset..)?.first_chunk()?));
    let chooser = match word(16)? {
        0 => GroupChooser::Kernel,
        1 => GroupChooser::Classic,
        2 => GroupChooser::ClassicByCpu,
        3 => GroupChooser::Extended,
        _ => return None,
    };
    let place = Some(word(8)?).filter(|place| *place != NO_PLACE);
    let name = bytes.get(NAME)?.split(|byte| *byte == 0).next()?;
    let program = ChoosingProgram { id: word(20)?, name: String::from_utf8_lossy(name).into_owned() };
    Some(ChooserMember {
        cookie: u64::from_ne_bytes(*bytes.first_chunk()?),
        place,
        chooser,
        program: (chooser == GroupChooser::Extended).then_some(program),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    fn bytes(cookie: u64, place: u32, chooser: u32) -> Vec<u8> {
        let mut bytes = cookie.to_ne_bytes().to_vec();
        for word in [place, 4, chooser, 9] {
            bytes.extend(word.to_ne_bytes());
        }
        bytes.extend(b"choose\0\0\0\0\0\0\0\0\0\0");
        bytes
    }

    #[test]
    fn group_members_are_parsed_and_truncated_members_are_errors() {
        let all = [bytes(77, 1, 2), bytes(78, NO_PLACE, 0), bytes(79, 0, 3)].concat();
        let member = |cookie, place, chooser| ChooserMember { cookie, place, chooser, program: None };
        let program = Some(ChoosingProgram { id: 9, name: "choose".into() });
        let expected = [
            member(77, Some(1), GroupChooser::ClassicByCpu),
            member(78, None, GroupChooser::Kernel),
            ChooserMember { program, ..member(79, Some(0), GroupChooser::Extended) },
        ];
        assert_eq!(members(&all).expect("read"), expected);
        assert!(members(&all[..50]).is_err() && members(&bytes(1, 0, 9)).is_err());
        assert_eq!(members(&[]).expect("an empty group"), []);
    }
}
