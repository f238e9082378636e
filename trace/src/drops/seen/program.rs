//! The BPF programs that count, loaded and attached.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::fs::MetadataExt as _;

use aya::Pod;
use aya::maps::{MapData, PerCpuArray, PerCpuHashMap};
use aya::programs::Program;

use super::count::{Counted, Key, LostKey, Notes};
use super::{Network, Subject};
use crate::TraceError;
use crate::programs::{At, Programs, failed};

/// What the user is told was to be done.
pub(super) const WHAT: &str = "seeing single packets";

static OBJECT: &[u8] =
    aya::include_bytes_aligned!(concat!(env!("CARGO_MANIFEST_DIR"), "/../bpf/drops.bpf.o"));

const fn at(program: &'static str, tracepoint: &'static str, since: &'static str) -> At {
    At { program, tracepoint, since, optional: true }
}

/// From the end of a packet's way to its beginning, so that none is seen to leave that was not seen to come.
const PROGRAMS: [At; 14] = [
    at("busy", "net_dev_xmit", "came with Linux 2.6.37"),
    at("started", "net_dev_start_xmit", "came with Linux 3.14"),
    At { optional: false, ..at("queued", "net_dev_queue", "came with Linux 2.6.37") },
    at("sends", "sock_send_length", "came with Linux 6.3"),
    at("reads", "sock_recv_length", "came with Linux 6.3"),
    at("refused", "udp_fail_queue_rcv_skb", "came with Linux 3.0"),
    at("delivered", "sk_data_ready", "came with Linux 6.3"),
    At { optional: false, ..at("received", "netif_receive_skb", "came with Linux 2.6.37") },
    at("arrives_rx", "netif_rx", "came with Linux 2.6.37"),
    at("arrives_list", "netif_receive_skb_list_entry", "came with Linux 4.19"),
    at("arrives_one", "netif_receive_skb_entry", "came with Linux 3.14"),
    at("arrives_frags", "napi_gro_frags_entry", "came with Linux 3.14"),
    at("arrives_gro", "napi_gro_receive_entry", "came with Linux 3.14"),
    At { optional: false, ..at("loses_with_reason", "kfree_skb", "came with Linux 2.6.30") },
];

/// `enum note` of bpf/drops.h.
const NOTES: usize = 5;

/// Programs that are attached.
#[derive(Debug)]
pub(super) struct Attached {
    programs: Programs,
}

impl Attached {
    /// Loads and attaches them; whether losses have reasons decides which program sees those.
    pub(super) fn start(subject: &Subject, has_reasons: bool) -> Result<Self, TraceError> {
        let network = inode(subject.network)?;
        let some_ports = u32::from(!subject.ports.is_empty());
        let bits = bits(&subject.ports);
        let (version, peer) = address(subject.peer);
        let mut programs = PROGRAMS;
        if !has_reasons {
            programs[PROGRAMS.len() - 1].program = "loses_without_reason";
        }
        let programs = Programs::start(
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
            &programs,
        )?;
        Ok(Self { programs })
    }

    /// What this kernel does not have.
    pub(super) fn lacking(&self) -> &[At] {
        &self.programs.lacking
    }

    /// What was counted until now. What is at the end of a packet's way is read first.
    pub(super) fn read(&self) -> Result<Counted, TraceError> {
        let lost = sums::<LostKey>(&self.programs, "lost")?;
        let passed = sums::<Key>(&self.programs, "passed")?;
        let [missed, fragments, unparsed, lost_fragments, lost_unparsed] = self.notes()?;
        let missed = missed + self.left_out()?;
        let notes = Notes { missed, fragments, unparsed, lost_fragments, lost_unparsed };
        Ok(Counted { passed, lost, notes })
    }

    fn notes(&self) -> Result<[u64; NOTES], TraceError> {
        let table: PerCpuArray<_, u64> = map(&self.programs, "notes")?;
        let mut notes = [0; NOTES];
        for (index, note) in (0..).zip(&mut notes) {
            *note = table.get(&index, 0).map_err(|error| failed(WHAT, error))?.iter().sum();
        }
        Ok(notes)
    }

    /// Runs of a program that the kernel left out, since another was in it on the same CPU (`recursion_misses`, Linux
    /// 5.12).
    fn left_out(&self) -> Result<u64, TraceError> {
        let mut missed = 0;
        for (_, program) in self.programs.object.programs() {
            let Program::BtfTracePoint(program) = program else { continue };
            let Ok(descriptor) = program.fd() else { continue };
            let path = format!("/proc/self/fdinfo/{}", descriptor.as_fd().as_raw_fd());
            let text =
                fs::read_to_string(path).map_err(|source| TraceError::Kernel { what: WHAT, source })?;
            let count = text.lines().find_map(|line| line.strip_prefix("recursion_misses:"));
            missed += count.and_then(|count| count.trim().parse::<u64>().ok()).unwrap_or(0);
        }
        Ok(missed)
    }
}

fn map<'p, T>(programs: &'p Programs, name: &str) -> Result<T, TraceError>
where
    T: TryFrom<&'p aya::maps::Map, Error = aya::maps::MapError>,
{
    let absent = || io::Error::other(format!("the BPF object lacks {name}: rebuild it with cargo xtask bpf"));
    let map = programs.object.map(name).ok_or_else(|| TraceError::Kernel { what: WHAT, source: absent() })?;
    map.try_into().map_err(|error: aya::maps::MapError| failed(WHAT, error))
}

/// Of each key the sum over all CPUs.
fn sums<K: Pod + Ord>(programs: &Programs, name: &str) -> Result<BTreeMap<K, u64>, TraceError> {
    let table: PerCpuHashMap<&MapData, K, u64> = map(programs, name)?;
    let entries = table.iter().map(|entry| entry.map(|(key, values)| (key, values.iter().sum())));
    entries.collect::<Result<_, _>>().map_err(|error| failed(WHAT, error))
}

/// Zero for all.
fn inode(network: Network) -> Result<u32, TraceError> {
    match network {
        Network::All => Ok(0),
        Network::Inode(inode) => Ok(inode),
        Network::Here => fs::metadata("/proc/thread-self/ns/net")
            .and_then(|namespace| u32::try_from(namespace.ino()).map_err(io::Error::other))
            .map_err(|source| TraceError::Kernel { what: WHAT, source }),
    }
}

/// A bit a port.
fn bits(ports: &[u16]) -> Vec<u8> {
    let mut bits = vec![0; 8192];
    for port in ports {
        bits[usize::from(port >> 3)] |= 1 << (port & 7);
    }
    bits
}

/// Version, 0 for none, and the address as words as they are on the wire. An IPv4 address that is written as an IPv6 one is
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
