//! Loads and attaches the BPF programs that count datagrams.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::time::{Duration, Instant};

use aya::Ebpf;
use aya::maps::{Array, HashMap, PerCpuArray};
use aya::programs::tp_btf::BtfTracePointLinkId;

use super::report::{ArrivalCount, DeliveryCount, DeliveryReport, SendCount};
use super::waits::WaitCounts;
use crate::bpf;

static OBJECT: &[u8] =
    aya::include_bytes_aligned!(concat!(env!("CARGO_MANIFEST_DIR"), "/../bpf/delivery.bpf.o"));

/// `CAME_BEFORE` of bpf/delivery.bpf.c.
const CAME_BEFORE: u32 = u32::MAX;

// Inode of the initial PID namespace (`PROC_PID_INIT_INO`, include/linux/proc_ns.h, since Linux
// 3.8).
const FIRST_PROCESSES: u64 = 0xEFFF_FFFC;

// Programs and their tracepoints in the order of attachment: arrivals before reads, so that a
// datagram without an observed arrival arrived before the start.
const PROGRAMS: [(&str, &str); 6] = [
    ("refused", "udp_fail_queue_rcv_skb"),
    ("arrives", "sk_data_ready"),
    ("reads", "sock_recv_length"),
    ("sends", "sock_send_length"),
    ("softirq_begins", "softirq_entry"),
    ("softirq_ends", "softirq_exit"),
];
/// The first programs, which count datagrams.
const OF_DATAGRAMS: usize = 4;
/// The first programs, which stay attached between windows, because they run for lost datagrams
/// only.
const OF_LOSSES: usize = 1;

/// `sizeof(struct history)` of bpf/delivery.bpf.c.
const HISTORY_BYTES: usize = 8 + 4096 * (4 + 2);

#[derive(Debug)]
pub(super) struct DeliveryProgram {
    object: Ebpf,
    /// The programs that are attached together.
    programs: &'static [(&'static str, &'static str)],
    /// Links of the attached programs, in order.
    links: Vec<BtfTracePointLinkId>,
    attached_at: Instant,
    /// Time attached before `attached_at`.
    earlier: Duration,
}

impl DeliveryProgram {
    /// Loads and attaches.
    pub(super) fn start(ports: &[u16], waits: bool, softirqs: bool) -> io::Result<Self> {
        let waits = u8::from(waits);
        let programs = if softirqs { &PROGRAMS[..] } else { &PROGRAMS[..OF_DATAGRAMS] };
        let (network, ports) = (bpf::network_namespace()?, bpf::port_set(ports));
        let (device, inode) = pid_namespace()?;
        let object = bpf::load_object(
            OBJECT,
            |loader| {
                loader
                    .override_global("network", &network, true)
                    .override_global("processes_device", &device, true)
                    .override_global("processes_inode", &inode, true)
                    .override_global("ports", ports.as_slice(), true)
                    .override_global("waits_wanted", &waits, true);
            },
            programs,
        )?;
        let (links, earlier) = (Vec::new(), Duration::ZERO);
        let mut program = Self { object, programs, links, attached_at: Instant::now(), earlier };
        program.attach()?;
        Ok(program)
    }

    pub(super) fn attach(&mut self) -> io::Result<()> {
        // Removes the histories of the last window, so that a datagram that arrived between windows
        // is not mistaken for a datagram of that window.
        let Some(map) = self.object.map_mut("histories") else { return Err(bpf::missing("histories")) };
        let mut histories: HashMap<_, u64, [u8; HISTORY_BYTES]> = map.try_into().map_err(bpf::error)?;
        let cookies: Vec<u64> = histories.keys().collect::<Result<_, _>>().map_err(bpf::error)?;
        for cookie in cookies {
            histories.remove(&cookie).map_err(bpf::error)?;
        }
        for (name, _) in &self.programs[self.links.len()..] {
            self.links.push(bpf::program(&mut self.object, name)?.attach().map_err(bpf::error)?);
        }
        self.attached_at = Instant::now();
        Ok(())
    }

    /// Detaches reads before arrivals, so that each read datagram is also an arrival. The programs
    /// stay loaded.
    pub(super) fn detach(&mut self) -> io::Result<()> {
        self.earlier = self.attached_time();
        for (name, _) in self.programs[OF_LOSSES..].iter().rev() {
            let Some(link) = self.links.pop() else { break };
            bpf::program(&mut self.object, name)?.detach(link).map_err(bpf::error)?;
        }
        Ok(())
    }

    /// Time attached so far.
    fn attached_time(&self) -> Duration {
        let is_attached = self.links.len() > OF_LOSSES;
        let current = if is_attached { self.attached_at.elapsed() } else { Duration::ZERO };
        self.earlier + current
    }

    // Reads are collected before arrivals, so that each read datagram is also an arrival.
    pub(super) fn read(&self) -> io::Result<DeliveryReport> {
        let seconds = self.attached_time().as_secs_f64();
        let read: BTreeMap<_, _> = bpf::entries(&self.object, "readings")?;
        let arrived: BTreeMap<_, _> = bpf::entries(&self.object, "arrivals")?;
        Ok(DeliveryReport {
            seconds,
            read: read.into_iter().map(|(key, packets)| delivery_count(key, packets)).collect(),
            arrived: arrived.into_iter().map(|(key, counts)| arrival_count(key, counts)).collect(),
            sent: send_counts(&bpf::entries(&self.object, "sendings")?),
            missed: self.missed_count()?,
        })
    }

    pub(super) fn waits(&self) -> io::Result<WaitCounts> {
        WaitCounts::read(&self.object, "waits")
    }

    /// ns per CPU.
    pub(super) fn softirq_times(&self) -> io::Result<Vec<u64>> {
        let Some(map) = self.object.map("softirqs") else { return Err(bpf::missing("softirqs")) };
        let table: PerCpuArray<_, [u64; 2]> = map.try_into().map_err(bpf::error)?;
        // `struct softirq_time`: begin of the current softirq, and the sum.
        Ok(table.get(&0, 0).map_err(bpf::error)?.iter().map(|[_, total]| *total).collect())
    }

    // Program runs that the kernel skipped, and losses because a table was full.
    fn missed_count(&self) -> io::Result<u64> {
        let Some(map) = self.object.map("missed") else { return Err(bpf::missing("missed")) };
        let table: Array<_, u64> = map.try_into().map_err(bpf::error)?;
        Ok(table.get(&0, 0).map_err(bpf::error)? + bpf::skipped_runs(&self.object)?)
    }
}

// Device as the kernel numbers it, and inode of this process's PID namespace; zeros for the
// initial namespace.
fn pid_namespace() -> io::Result<(u64, u64)> {
    let namespace = fs::metadata("/proc/self/ns/pid")?;
    if namespace.ino() == FIRST_PROCESSES {
        return Ok((0, 0));
    }
    // `MKDEV` of include/linux/kdev_t.h; in user space the minor number has two parts.
    let (major, minor) = (rustix::fs::major(namespace.dev()), rustix::fs::minor(namespace.dev()));
    Ok((u64::from(major) << 20 | u64::from(minor), namespace.ino()))
}

/// From `struct reading`, in 8-byte words of this host's byte order.
fn delivery_count([cookie, cpus, thread]: [u64; 3], packets: u64) -> DeliveryCount {
    let (arrived_on, read_on) = bpf::halves(cpus);
    let (pid, tid) = bpf::halves(thread);
    let arrived_on = Some(arrived_on).filter(|cpu| *cpu != CAME_BEFORE);
    DeliveryCount { cookie, arrived_on, read_on, pid, tid, packets }
}

/// From `struct place` and `struct arrival`.
fn arrival_count([cookie, cpu]: [u64; 2], [packets, refused]: [u64; 2]) -> ArrivalCount {
    ArrivalCount { cookie, cpu: u32::try_from(cpu).unwrap_or(u32::MAX), packets, refused }
}

/// From `struct place` and `struct sending`: one item per socket.
fn send_counts(counts: &BTreeMap<[u64; 2], [u64; 2]>) -> Vec<SendCount> {
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
