//! Loads and attaches the BPF programs.

use std::collections::BTreeMap;
use std::net::IpAddr;

use aya::maps::{HashMap, MapData, PerCpuHashMap};
use linerate_host::bpf::{self, BpfError, BpfPrograms, ProgramAttachment};

use super::PortSubject;
use super::count::{COUNTERS, DropCounters, LostKey};
use crate::call::EMPTY_PROGRAM;
use crate::error::SINCE_6_3;

/// The operation in an error message.
pub(super) const WHAT: &str = "seeing single packets";

/// Instead of the inode of a network namespace.
pub(super) const ALL_NAMESPACES: u32 = 0;

static OBJECT: &[u8] =
    aya::include_bytes_aligned!(concat!(env!("CARGO_MANIFEST_DIR"), "/../bpf/drops.bpf.o"));

const PROGRAMS: [ProgramAttachment; 6] = [
    ProgramAttachment::new("queued", "net_dev_queue").since("came with Linux 2.6.37"),
    ProgramAttachment::new("sends", "sock_send_length").since(SINCE_6_3).optional(),
    ProgramAttachment::new("reads", "sock_recv_length").since(SINCE_6_3).optional(),
    ProgramAttachment::new("delivered", "sk_data_ready").since(SINCE_6_3).optional(),
    ProgramAttachment::new("received", "netif_receive_skb").since("came with Linux 2.6.37"),
    ProgramAttachment::new("loses_with_reason", "kfree_skb").since("came with Linux 2.6.30"),
];

#[derive(Debug)]
pub(super) struct AttachedDrops {
    pub(super) programs: BpfPrograms,
    pub(super) at: [ProgramAttachment; 6],
}

impl AttachedDrops {
    /// `network`: inode of a network namespace, or [`ALL_NAMESPACES`]. Without ports in the subject,
    /// those `left_out` are not counted. `has_reasons` decides which program sees losses.
    /// `addresses` are those of the network namespace, empty if unknown.
    pub(super) fn load(
        subject: &PortSubject,
        network: u32,
        left_out: &[u16],
        has_reasons: bool,
        addresses: &[IpAddr],
    ) -> Result<Self, BpfError> {
        let some_ports = u32::from(!subject.ports.is_empty());
        let ports = bpf::port_set(if subject.ports.is_empty() { left_out } else { &subject.ports });
        let (version, peer) = address(subject.peer);
        let most_addresses = u32::try_from(addresses.len()).unwrap_or(u32::MAX).max(1);
        let mut programs = PROGRAMS;
        if !has_reasons {
            programs[PROGRAMS.len() - 1].program = "loses_without_reason";
        }
        let mut loaded = BpfPrograms::load(
            WHAT,
            OBJECT,
            || {},
            |loader| {
                loader
                    .override_global("network", &network, true)
                    .override_global("some_ports", &some_ports, true)
                    .override_global("ports", ports.as_slice(), true)
                    .override_global("peer_version", &version, true)
                    .override_global("peer", &peer, true)
                    .map_max_entries("addresses", most_addresses);
            },
            &[&programs[..], &EMPTY_PROGRAM].concat(),
        )?;
        write_addresses(&mut loaded, addresses)?;
        Ok(Self { programs: loaded, at: programs })
    }

    pub(super) fn attach(&mut self) -> Result<(), BpfError> {
        self.programs.attach(&self.at)
    }

    /// They stay loaded and keep their counters.
    pub(super) fn detach(&mut self) -> Result<(), BpfError> {
        self.programs.detach(&self.at)
    }

    pub(super) fn counters(&self) -> Result<DropCounters, BpfError> {
        Ok(DropCounters::from_cpus(&self.programs.per_cpu_values::<[u64; COUNTERS]>("counters")?))
    }

    pub(super) fn lost(&self) -> Result<BTreeMap<LostKey, u64>, BpfError> {
        let table: PerCpuHashMap<&MapData, LostKey, u64> = self.programs.map("lost")?;
        let entries = table.iter().map(|entry| entry.map(|(key, values)| (key, values.iter().sum())));
        entries.collect::<Result<_, _>>().map_err(|error| BpfError::new(WHAT, error))
    }
}

/// Writes the network namespace's addresses, as IPv6.
fn write_addresses(programs: &mut BpfPrograms, addresses: &[IpAddr]) -> Result<(), BpfError> {
    let mut table: HashMap<&mut MapData, [u8; 16], u8> = programs.map_mut("addresses")?;
    for address in addresses {
        let key = match address {
            IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
            IpAddr::V6(address) => address.octets(),
        };
        table.insert(key, 1, 0).map_err(|error| BpfError::new(WHAT, error))?;
    }
    Ok(())
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
