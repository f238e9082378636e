//! Loads and attaches the BPF programs.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt as _;

use aya::Pod;
use aya::maps::{HashMap, MapData, PerCpuHashMap};

use super::count::{COUNTERS, DropCounters, LostKey};
use super::{NamespaceScope, PortSubject};
use crate::TraceError;
use crate::programs::{ProgramAttachment, ProgramRuns, TracePrograms, absent, failed};

/// The operation in an error message.
pub(super) const WHAT: &str = "seeing single packets";

static OBJECT: &[u8] =
    aya::include_bytes_aligned!(concat!(env!("CARGO_MANIFEST_DIR"), "/../bpf/drops.bpf.o"));

const fn at(program: &'static str, tracepoint: &'static str, since: &'static str) -> ProgramAttachment {
    ProgramAttachment { program, tracepoint, since, optional: true }
}

const PROGRAMS: [ProgramAttachment; 6] = [
    ProgramAttachment { optional: false, ..at("queued", "net_dev_queue", "came with Linux 2.6.37") },
    at("sends", "sock_send_length", "came with Linux 6.3"),
    at("reads", "sock_recv_length", "came with Linux 6.3"),
    at("delivered", "sk_data_ready", "came with Linux 6.3"),
    ProgramAttachment { optional: false, ..at("received", "netif_receive_skb", "came with Linux 2.6.37") },
    ProgramAttachment { optional: false, ..at("loses_with_reason", "kfree_skb", "came with Linux 2.6.30") },
];

/// The empty program, for the call overhead.
const NOTHING: [ProgramAttachment; 1] = [at("nothing", "task_rename", "came with Linux 3.4")];

#[derive(Debug)]
pub(super) struct AttachedDrops {
    programs: TracePrograms,
    at: [ProgramAttachment; 6],
}

impl AttachedDrops {
    /// `has_reasons` decides which program sees losses. `addresses` are those of the network
    /// namespace, empty if unknown.
    pub(super) fn load(
        subject: &PortSubject,
        has_reasons: bool,
        addresses: &[IpAddr],
    ) -> Result<Self, TraceError> {
        let network = inode(subject.network)?;
        let some_ports = u32::from(!subject.ports.is_empty());
        let bits = bits(&subject.ports);
        let (version, peer) = address(subject.peer);
        let mut programs = PROGRAMS;
        if !has_reasons {
            programs[PROGRAMS.len() - 1].program = "loses_without_reason";
        }
        let mut loaded = TracePrograms::load(
            WHAT,
            OBJECT,
            |loader| {
                loader
                    .override_global("network", &network, true)
                    .override_global("some_ports", &some_ports, true)
                    .override_global("ports", bits.as_slice(), true)
                    .override_global("peer_version", &version, true)
                    .override_global("peer", &peer, true);
            },
            &[&programs[..], &NOTHING].concat(),
        )?;
        know(&mut loaded, addresses)?;
        Ok(Self { programs: loaded, at: programs })
    }

    pub(super) fn attach(&mut self) -> Result<(), TraceError> {
        self.programs.attach(WHAT, &self.at)
    }

    /// They stay loaded and keep their counters.
    pub(super) fn detach(&mut self) -> Result<(), TraceError> {
        self.programs.detach(WHAT, &self.at)
    }

    /// Runs a closure while the empty program is attached.
    pub(super) fn with_nothing<T>(&mut self, what: impl FnOnce() -> T) -> Result<T, TraceError> {
        self.programs.attach(WHAT, &NOTHING)?;
        let result = what();
        self.programs.detach(WHAT, &NOTHING)?;
        Ok(result)
    }

    /// Runs and time while the kernel timed them; and those of the empty program.
    pub(super) fn runs(&self) -> Result<(ProgramRuns, ProgramRuns), TraceError> {
        Ok((self.programs.runs(WHAT, &self.at)?, self.programs.runs(WHAT, &NOTHING)?))
    }

    /// Tracepoints that this kernel lacks.
    pub(super) fn lacking(&self) -> &[ProgramAttachment] {
        &self.programs.lacking
    }

    pub(super) fn counters(&self) -> Result<DropCounters, TraceError> {
        Ok(DropCounters::of(&self.programs.of_each_cpu::<[u64; COUNTERS]>(WHAT, "counters")?))
    }

    pub(super) fn lost(&self) -> Result<BTreeMap<LostKey, u64>, TraceError> {
        sums(&self.programs, "lost")
    }

    /// Runs that the kernel skipped.
    pub(super) fn left_out(&self) -> Result<u64, TraceError> {
        self.programs.left_out(WHAT)
    }
}

/// Writes the network namespace's addresses, as IPv6.
fn know(programs: &mut TracePrograms, addresses: &[IpAddr]) -> Result<(), TraceError> {
    let map = programs.object.map_mut("addresses").ok_or_else(|| absent(WHAT, "addresses"))?;
    let mut table: HashMap<_, [u8; 16], u8> = map.try_into().map_err(|error| failed(WHAT, error))?;
    for address in addresses {
        let key = match address {
            IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
            IpAddr::V6(address) => address.octets(),
        };
        table.insert(key, 1, 0).map_err(|error| failed(WHAT, error))?;
    }
    Ok(())
}

/// Sums over all CPUs.
fn sums<K: Pod + Ord>(programs: &TracePrograms, name: &str) -> Result<BTreeMap<K, u64>, TraceError> {
    let map = programs.object.map(name).ok_or_else(|| absent(WHAT, name))?;
    let table: PerCpuHashMap<&MapData, K, u64> = map.try_into().map_err(|error| failed(WHAT, error))?;
    let entries = table.iter().map(|entry| entry.map(|(key, values)| (key, values.iter().sum())));
    entries.collect::<Result<_, _>>().map_err(|error| failed(WHAT, error))
}

fn inode(network: NamespaceScope) -> Result<u32, TraceError> {
    match network {
        NamespaceScope::All => Ok(0),
        NamespaceScope::Inode(inode) => Ok(inode),
        NamespaceScope::Here => fs::metadata("/proc/thread-self/ns/net")
            .and_then(|namespace| u32::try_from(namespace.ino()).map_err(io::Error::other))
            .map_err(|source| TraceError::Kernel { what: WHAT, source }),
    }
}

/// One bit per port.
fn bits(ports: &[u16]) -> Vec<u8> {
    let mut bits = vec![0; 8192];
    for port in ports {
        bits[usize::from(port >> 3)] |= 1 << (port & 7);
    }
    bits
}

/// Version, 0 for none, and the address as words in network order. An IPv4-mapped IPv6 address is
/// IPv4 on the wire.
fn address(peer: Option<IpAddr>) -> (u32, [u32; 4]) {
    match peer.map(|address| address.to_canonical()) {
        None => (0, [0; 4]),
        Some(IpAddr::V4(address)) => (4, [u32::from_ne_bytes(address.octets()), 0, 0, 0]),
        Some(IpAddr::V6(address)) => {
            let bits = address.to_bits();
            let word = |shift: u32| u32::try_from(bits >> shift & u128::from(u32::MAX)).unwrap_or(0).to_be();
            (6, [word(96), word(64), word(32), word(0)])
        }
    }
}
