//! Loads and attaches the BPF programs that count datagrams.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::fs::MetadataExt as _;
use std::time::Instant;

use aya::maps::{Array, HashMap};
use aya::programs::{BtfTracePoint, Program as BpfProgram, ProgramError};
use aya::{Btf, BtfError, Ebpf, EbpfLoader, Pod};

use super::{ArrivalCount, DeliveryCount, DeliveryReport, SendCount};
use crate::root::pause_after_burst;
use crate::stage::socket::chain;

static OBJECT: &[u8] =
    aya::include_bytes_aligned!(concat!(env!("CARGO_MANIFEST_DIR"), "/../bpf/landing.bpf.o"));

/// `CAME_BEFORE` of bpf/landing.bpf.c.
const CAME_BEFORE: u32 = u32::MAX;

/// Inode of the initial PID namespace (`PROC_PID_INIT_INO`, include/linux/proc_ns.h, since Linux
/// 3.8).
const FIRST_PROCESSES: u64 = 0xEFFF_FFFC;

/// Programs and their tracepoints in the order of attachment: arrivals before reads, so that a
/// datagram read without a seen arrival came before the start.
const PROGRAMS: [(&str, &str); 4] = [
    ("refused", "udp_fail_queue_rcv_skb"),
    ("arrives", "sk_data_ready"),
    ("reads", "sock_recv_length"),
    ("sends", "sock_send_length"),
];

#[derive(Debug)]
pub(super) struct DeliveryProgram {
    object: Ebpf,
    begin: Instant,
}

impl DeliveryProgram {
    pub(super) fn start(ports: &[u16]) -> io::Result<Self> {
        let btf = Btf::from_sys_fs().map_err(chain)?;
        pause_after_burst();
        let network =
            u32::try_from(fs::metadata("/proc/thread-self/ns/net")?.ino()).map_err(io::Error::other)?;
        let (device, inode) = processes()?;
        let bits = bits(ports);
        let mut loader = EbpfLoader::new();
        pause_after_burst();
        let mut object = loader
            .btf(Some(&btf))
            .override_global("network", &network, true)
            .override_global("processes_device", &device, true)
            .override_global("processes_inode", &inode, true)
            .override_global("ports", bits.as_slice(), true)
            .load(OBJECT)
            .map_err(chain)?;
        for (name, tracepoint) in PROGRAMS {
            pause_after_burst();
            program(&mut object, name)?.load(tracepoint, &btf).map_err(|error| refused(tracepoint, error))?;
        }
        for (name, _) in PROGRAMS {
            program(&mut object, name)?.attach().map_err(chain)?;
        }
        Ok(Self { object, begin: Instant::now() })
    }

    /// Reads are collected before arrivals, so that each read datagram is also an arrival.
    pub(super) fn read(&self) -> io::Result<DeliveryReport> {
        let seconds = self.begin.elapsed().as_secs_f64();
        let read: BTreeMap<_, _> = entries(&self.object, "readings")?;
        let arrived: BTreeMap<_, _> = entries(&self.object, "arrivals")?;
        Ok(DeliveryReport {
            seconds,
            read: read.into_iter().map(|(key, packets)| landing(key, packets)).collect(),
            arrived: arrived.into_iter().map(|(key, counts)| arrival(key, counts)).collect(),
            sent: sendings(&entries(&self.object, "sendings")?),
            missed: self.missed()?,
        })
    }

    /// Runs that the kernel skipped because another program ran on the same CPU
    /// (`recursion_misses`, Linux 5.12), and losses of full tables.
    fn missed(&self) -> io::Result<u64> {
        let Some(map) = self.object.map("missed") else { return Err(missing("missed")) };
        let table: Array<_, u64> = map.try_into().map_err(chain)?;
        let mut missed = table.get(&0, 0).map_err(chain)?;
        for (_, program) in self.object.programs() {
            let BpfProgram::BtfTracePoint(program) = program else { continue };
            let descriptor = program.fd().map_err(chain)?;
            let path = format!("/proc/self/fdinfo/{}", descriptor.as_fd().as_raw_fd());
            missed += left_out(&fs::read_to_string(path)?);
        }
        Ok(missed)
    }
}

/// Device as the kernel numbers it, and inode of this process's PID namespace; zeros for the
/// initial namespace.
fn processes() -> io::Result<(u64, u64)> {
    let namespace = fs::metadata("/proc/self/ns/pid")?;
    if namespace.ino() == FIRST_PROCESSES {
        return Ok((0, 0));
    }
    // `MKDEV` of include/linux/kdev_t.h; in user space the minor number has two parts.
    let (major, minor) = (rustix::fs::major(namespace.dev()), rustix::fs::minor(namespace.dev()));
    Ok((u64::from(major) << 20 | u64::from(minor), namespace.ino()))
}

/// One bit per port.
pub(super) fn bits(ports: &[u16]) -> Vec<u8> {
    let mut bits = vec![0; 8192];
    for port in ports {
        bits[usize::from(port >> 3)] |= 1 << (port & 7);
    }
    bits
}

pub(super) fn program<'o>(object: &'o mut Ebpf, name: &str) -> io::Result<&'o mut BtfTracePoint> {
    object.program_mut(name).ok_or_else(|| missing(name))?.try_into().map_err(chain)
}

pub(super) fn refused(tracepoint: &str, error: ProgramError) -> io::Error {
    if let ProgramError::Btf(BtfError::UnknownBtfTypeName { .. }) = error {
        let why = format!("the kernel has no tracepoint {tracepoint}: it takes Linux 6.3 or later");
        return io::Error::new(io::ErrorKind::Unsupported, why);
    }
    chain(error)
}

pub(super) fn missing(name: &str) -> io::Error {
    io::Error::other(format!("the BPF object lacks {name}: rebuild it with cargo xtask bpf"))
}

pub(super) fn entries<K: Pod + Ord, V: Pod>(object: &Ebpf, name: &str) -> io::Result<BTreeMap<K, V>> {
    let Some(map) = object.map(name) else { return Err(missing(name)) };
    let table: HashMap<_, K, V> = map.try_into().map_err(chain)?;
    table.iter().collect::<Result<_, _>>().map_err(chain)
}

/// From `struct reading`, in 8-byte words of this host's byte order.
fn landing([cookie, cpus, thread]: [u64; 3], packets: u64) -> DeliveryCount {
    let (arrived_on, read_on) = halves(cpus);
    let (pid, tid) = halves(thread);
    let arrived_on = Some(arrived_on).filter(|cpu| *cpu != CAME_BEFORE);
    DeliveryCount { cookie, arrived_on, read_on, pid, tid, packets }
}

/// From `struct place` and `struct arrival`.
fn arrival([cookie, cpu]: [u64; 2], [packets, refused]: [u64; 2]) -> ArrivalCount {
    ArrivalCount { cookie, cpu: u32::try_from(cpu).unwrap_or(u32::MAX), packets, refused }
}

/// From `struct place` and `struct sending`: one item per socket.
fn sendings(counts: &BTreeMap<[u64; 2], [u64; 2]>) -> Vec<SendCount> {
    let mut sockets: BTreeMap<u64, SendCount> = BTreeMap::new();
    for ([cookie, _], [packets, largest]) in counts {
        let largest_bytes = u32::try_from(*largest).unwrap_or(u32::MAX);
        let socket =
            sockets.entry(*cookie).or_insert(SendCount { cookie: *cookie, packets: 0, largest_bytes });
        socket.packets += packets;
        socket.largest_bytes = socket.largest_bytes.max(largest_bytes);
    }
    sockets.into_values().collect()
}

/// The two halves of a word in memory order.
fn halves(word: u64) -> (u32, u32) {
    let bytes = word.to_ne_bytes();
    let half = |at: usize| bytes[at..].first_chunk().map_or(0, |half| u32::from_ne_bytes(*half));
    (half(0), half(4))
}

/// `recursion_misses` from the fdinfo of a program.
fn left_out(text: &str) -> u64 {
    let count = text.lines().find_map(|line| line.strip_prefix("recursion_misses:"));
    count.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
}
