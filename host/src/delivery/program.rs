//! Loads and attaches the BPF programs that count datagrams.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::time::{Duration, Instant};

use aya::maps::{Array, HashMap, MapData};

use super::report::{ArrivalCount, DeliveryCount, DeliveryReport, SendCount};
use super::waits::WaitCounts;
use super::{SINCE, WHAT};
use crate::background::pause_after_burst;
use crate::bpf::{self, BpfPrograms, ProgramAttachment};

static OBJECT: &[u8] =
    aya::include_bytes_aligned!(concat!(env!("CARGO_MANIFEST_DIR"), "/../bpf/delivery.bpf.o"));

/// `CAME_BEFORE` of bpf/delivery.bpf.c.
const CAME_BEFORE: u32 = u32::MAX;

// Inode of the initial PID namespace (`PROC_PID_INIT_INO`, include/linux/proc_ns.h, since Linux
// 3.8).
const FIRST_PROCESSES: u64 = 0xEFFF_FFFC;

// Programs and their tracepoints in the order of attachment: arrivals before reads, so that a
// datagram without an observed arrival arrived before the start.
const PROGRAMS: [ProgramAttachment; 6] = [
    ProgramAttachment::new("refused", "udp_fail_queue_rcv_skb").since(SINCE),
    ProgramAttachment::new("arrives", "sk_data_ready").since(SINCE),
    ProgramAttachment::new("reads", "sock_recv_length").since(SINCE),
    ProgramAttachment::new("sends", "sock_send_length").since(SINCE),
    ProgramAttachment::new("softirq_begins", "softirq_entry").since(SINCE),
    ProgramAttachment::new("softirq_ends", "softirq_exit").since(SINCE),
];
/// The first programs, which count datagrams.
const OF_DATAGRAMS: usize = 4;
/// The first programs, which stay attached between windows, because they run for lost datagrams
/// only.
const OF_LOSSES: usize = 1;

/// `sizeof(struct history)` of bpf/delivery.bpf.c.
const HISTORY_BYTES: usize = 8 + 4096 * (4 + 2);

/// The fewest entries of the tables of arrivals and reads.
const TABLE_ENTRIES: u32 = 32_768;

#[derive(Debug)]
pub(super) struct DeliveryProgram {
    programs: BpfPrograms,
    /// The programs that are attached together.
    attachments: &'static [ProgramAttachment],
    /// `None` between windows.
    attached_at: Option<Instant>,
    /// Time attached before `attached_at`.
    earlier: Duration,
}

impl DeliveryProgram {
    /// Loads and attaches.
    pub(super) fn start(ports: &[u16], waits: bool, softirqs: bool) -> io::Result<Self> {
        let waits = u8::from(waits);
        let attachments = if softirqs { &PROGRAMS[..] } else { &PROGRAMS[..OF_DATAGRAMS] };
        let (network, ports) = (bpf::network_namespace()?, bpf::port_set(ports));
        let (device, inode) = pid_namespace()?;
        // One socket per CPU, each with datagrams from all CPUs, read by two threads or on two CPUs.
        let cpus = aya::util::nr_cpus().map_err(|(_, error)| error)?;
        let entries = u32::try_from(4 * cpus * cpus).unwrap_or(u32::MAX).max(TABLE_ENTRIES);
        let programs = BpfPrograms::load(
            WHAT,
            OBJECT,
            pause_after_burst,
            |loader| {
                loader
                    .map_max_entries("readings", entries)
                    .map_max_entries("arrivals", entries)
                    .override_global("network", &network, true)
                    .override_global("processes_device", &device, true)
                    .override_global("processes_inode", &inode, true)
                    .override_global("ports", ports.as_slice(), true)
                    .override_global("waits_wanted", &waits, true);
            },
            attachments,
        )?;
        let mut program = Self { programs, attachments, attached_at: None, earlier: Duration::ZERO };
        program.attach()?;
        Ok(program)
    }

    pub(super) fn attach(&mut self) -> io::Result<()> {
        // Removes the histories of the last window, so that a datagram that arrived between windows
        // is not mistaken for a datagram of that window.
        let mut histories: HashMap<&mut MapData, u64, [u8; HISTORY_BYTES]> =
            self.programs.map_mut("histories")?;
        let cookies: Vec<u64> = histories.keys().collect::<Result<_, _>>().map_err(bpf::error)?;
        for cookie in cookies {
            histories.remove(&cookie).map_err(bpf::error)?;
        }
        self.programs.attach(self.attachments)?;
        self.attached_at = Some(Instant::now());
        Ok(())
    }

    /// Detaches reads before arrivals, so that each read datagram is also an arrival. The programs
    /// stay loaded.
    pub(super) fn detach(&mut self) -> io::Result<()> {
        self.earlier = self.attached_time();
        self.attached_at = None;
        Ok(self.programs.detach(&self.attachments[OF_LOSSES..])?)
    }

    /// Time attached so far.
    fn attached_time(&self) -> Duration {
        self.earlier + self.attached_at.map_or(Duration::ZERO, |at| at.elapsed())
    }

    // Reads are collected before arrivals, so that each read datagram is also an arrival.
    pub(super) fn read(&self) -> io::Result<DeliveryReport> {
        let seconds = self.attached_time().as_secs_f64();
        let read: BTreeMap<_, _> = self.programs.entries("readings")?;
        let arrived: BTreeMap<_, _> = self.programs.entries("arrivals")?;
        Ok(DeliveryReport {
            seconds,
            read: read.into_iter().map(|(key, packets)| delivery_count(key, packets)).collect(),
            arrived: arrived.into_iter().map(|(key, counts)| arrival_count(key, counts)).collect(),
            sent: send_counts(&self.programs.entries("sendings")?),
            missed: self.missed_count()?,
        })
    }

    pub(super) fn waits(&self) -> io::Result<WaitCounts> {
        WaitCounts::read(&self.programs, "waits")
    }

    /// ns per CPU.
    pub(super) fn softirq_times(&self) -> io::Result<Vec<u64>> {
        // `struct softirq_time`: begin of the current softirq, and the sum.
        let times = self.programs.per_cpu_values::<[u64; 2]>("softirqs")?;
        Ok(times.into_iter().map(|[_, total]| total).collect())
    }

    // Program runs that the kernel skipped, and losses because a table was full.
    fn missed_count(&self) -> io::Result<u64> {
        let table: Array<&MapData, u64> = self.programs.map("missed")?;
        Ok(table.get(&0, 0).map_err(bpf::error)? + self.programs.skipped_runs()?)
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
