//! Loads and attaches the BPF programs.

use std::collections::BTreeMap;
use std::time::Instant;

use linerate_host::bpf::{self, BpfError, BpfPrograms, ProgramAttachment, ProgramRuns};

use super::WHAT;
use super::cost_tables::{CpuReading, ThreadTables};
use super::windows::nanoseconds;
use crate::TraceError;
use crate::call::EMPTY_PROGRAM;

static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("CARGO_MANIFEST_DIR"), "/../bpf/cost.bpf.o"));

/// The program that starts, reads and ends the counting.
const LOOK: &str = "look";

// Entries of `threads`: one per thread and CPU where it ran in the last stretch.
const THREADS: u32 = 16_384;
const THREADS_PER_CPU: u32 = 1024;

/// Size of `nic_irqs` in bpf/cost.h.
const IRQS: usize = 8192;

// Ends before begins, so that no begin is seen without its end. Optional tracepoints are those of
// some architectures only.
const OF_IRQS: [ProgramAttachment; 12] = [
    ProgramAttachment::new("device_irq_ends", "irq_handler_exit"),
    ProgramAttachment::new("local_timer_ends", "local_timer_exit").optional(),
    ProgramAttachment::new("call_function_single_ends", "call_function_single_exit").optional(),
    ProgramAttachment::new("call_function_ends", "call_function_exit").optional(),
    ProgramAttachment::new("reschedule_ends", "reschedule_exit").optional(),
    ProgramAttachment::new("ipi_ends", "ipi_exit").optional(),
    ProgramAttachment::new("device_irq_begins", "irq_handler_entry"),
    ProgramAttachment::new("local_timer_begins", "local_timer_entry").optional(),
    ProgramAttachment::new("call_function_single_begins", "call_function_single_entry").optional(),
    ProgramAttachment::new("call_function_begins", "call_function_entry").optional(),
    ProgramAttachment::new("reschedule_begins", "reschedule_entry").optional(),
    ProgramAttachment::new("ipi_begins", "ipi_entry").optional(),
];

// In the same order. These may run for every packet.
const OFTEN: [ProgramAttachment; 10] = [
    ProgramAttachment::new("softirq_ends", "softirq_exit"),
    ProgramAttachment::new("softirq_begins", "softirq_entry"),
    ProgramAttachment::new("poll_ends", "napi_poll"),
    ProgramAttachment::new("enters_by_netif_rx", "netif_rx"),
    ProgramAttachment::new("enters_by_napi_gro_receive_entry", "napi_gro_receive_entry"),
    ProgramAttachment::new("enters_by_napi_gro_frags_entry", "napi_gro_frags_entry"),
    ProgramAttachment::new("enters_by_netif_receive_skb_entry", "netif_receive_skb_entry"),
    ProgramAttachment::new("enters_by_netif_receive_skb_list_entry", "netif_receive_skb_list_entry"),
    ProgramAttachment::new("redirected", "xdp_devmap_xmit").optional(),
    ProgramAttachment::new("turn_changes", "sched_switch"),
];

/// Attached only if time is charged to paths.
const OF_PATHS: [ProgramAttachment; 2] = [
    ProgramAttachment::new("path_begins", "netif_receive_skb"),
    ProgramAttachment::new("path_leaves", "net_dev_start_xmit"),
];

/// The argument of the program `look` of bpf/cost.bpf.c.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TracerOptions {
    Watch = 0,
    Begin = 1,
    Read = 2,
    End = 3,
    Interrupt = 4,
}

/// The time of a CPU's reading by this process's clock.
#[derive(Debug, Clone, Copy)]
pub(super) struct AskedAt {
    pub(super) before: Instant,
    pub(super) after: Instant,
}

impl AskedAt {
    // Time until a later reading by the kernel's clock (`kernel_ns`), limited by this process's
    // clock, because this process may have waited for its own CPU around a reading.
    pub(super) fn until(&self, later: &Self, kernel_ns: u64) -> u64 {
        let between = |from: Instant, to: Instant| nanoseconds(to.saturating_duration_since(from));
        kernel_ns.clamp(between(self.after, later.before), between(self.before, later.after))
    }
}

pub(super) type Times = BTreeMap<u32, AskedAt>;

#[derive(Debug, Clone, Default)]
pub(super) struct TracePoint {
    pub(super) readings: BTreeMap<u32, CpuReading>,
    pub(super) times: Times,
}

/// Loaded programs, attached while counting. They end when this is dropped, or with the process.
#[derive(Debug)]
pub(super) struct CostTracer {
    pub(super) programs: BpfPrograms,
    cpus: Vec<u32>,
    /// Programs that may run for every packet.
    often: Vec<ProgramAttachment>,
}

impl CostTracer {
    /// Loads the programs for these CPUs, of which some may be offline.
    pub(super) fn load(cpus: &[u32], nic_irqs: &[u32], by_path: bool) -> Result<Self, BpfError> {
        let path_programs: &[ProgramAttachment] = if by_path { &OF_PATHS } else { &[] };
        let frequent_programs = [&OFTEN[..], path_programs].concat();
        let by_path = u8::from(by_path);
        let bits = bpf::bit_set(nic_irqs.iter().copied(), IRQS);
        let possible_cpus = aya::util::nr_cpus().map_err(|(_, error)| BpfError::new(WHAT, error))?;
        let threads = u32::try_from(possible_cpus).unwrap_or(1).saturating_mul(THREADS_PER_CPU).max(THREADS);
        let mut programs = BpfPrograms::load(
            WHAT,
            OBJECT,
            || {},
            |loader| {
                loader.map_max_entries("threads", threads);
                loader.override_global("nic_irqs", bits.as_slice(), true);
                loader.override_global("by_path", &by_path, true);
            },
            &[&EMPTY_PROGRAM[..], &OF_IRQS, &frequent_programs].concat(),
        )?;
        programs.load_to_run(LOOK)?;
        let tracer = Self { programs, cpus: cpus.to_vec(), often: frequent_programs };
        tracer.run_on_all(TracerOptions::Watch)?;
        Ok(tracer)
    }

    /// Attaches the programs. Counting can start some time later, when interrupts and softirqs that
    /// were running have ended.
    pub(super) fn attach(&mut self) -> Result<(), BpfError> {
        self.run_on_all(TracerOptions::Watch)?;
        self.programs.attach(&OF_IRQS)?;
        self.programs.attach(&self.often)
    }

    /// Detaches the programs; the interrupt programs only if requested.
    pub(super) fn detach(&mut self, with_irqs: bool) -> Result<(), BpfError> {
        self.programs.detach(&self.often)?;
        if with_irqs { self.programs.detach(&OF_IRQS) } else { Ok(()) }
    }

    pub(super) fn begin(&self) -> Result<TracePoint, BpfError> {
        self.take_point(TracerOptions::Begin)
    }

    pub(super) fn read_point(&self) -> Result<TracePoint, BpfError> {
        self.take_point(TracerOptions::Read)
    }

    /// Reads the counters, and stops counting.
    pub(super) fn end(&self) -> Result<TracePoint, BpfError> {
        self.take_point(TracerOptions::End)
    }

    fn take_point(&self, option: TracerOptions) -> Result<TracePoint, BpfError> {
        let mut times = self.run_on_all(option)?;
        // Starts on CPUs that came online.
        for cpu in self.cpus.iter().filter(|_| option == TracerOptions::Read) {
            if !times.contains_key(cpu) && self.run_on_cpu(*cpu, TracerOptions::Watch)?.is_some() {
                times.extend(self.run_on_cpu(*cpu, TracerOptions::Begin)?.map(|time| (*cpu, time)));
            }
        }
        let readings = self.programs.per_cpu_values::<CpuReading>("cpu_readings")?;
        let readings = (0..).zip(readings).filter(|(cpu, _)| times.contains_key(cpu)).collect();
        Ok(TracePoint { readings, times })
    }

    pub(super) fn interrupt(&self, cpu: u32) -> Result<(), BpfError> {
        self.run_on_cpu(cpu, TracerOptions::Interrupt).map(drop)
    }

    /// Counters of threads, devices and paths at the last reading.
    pub(super) fn tables(&self) -> Result<ThreadTables, BpfError> {
        Ok(ThreadTables {
            threads: self.programs.entries("threads")?,
            devices: self.programs.entries("devices")?,
            paths: self.programs.entries("paths")?,
        })
    }

    /// Removes entries, so that tables do not fill up with threads that ended. A thread that runs
    /// again counts from zero; a turn that ends during this call is lost.
    pub(super) fn remove(&mut self, tables: &ThreadTables) -> Result<(), BpfError> {
        self.programs.remove("threads", &tables.threads)?;
        self.programs.remove("devices", &tables.devices)?;
        self.programs.remove("paths", &tables.paths)
    }

    pub(super) fn sees_calls_between_cpus(&self) -> bool {
        let is_lacking = |name| self.programs.lacking.iter().any(|attachment| attachment.program == name);
        !is_lacking("call_function_single_begins") || !is_lacking("ipi_begins")
    }

    // Runs and time of programs while the kernel measured them.
    pub(super) fn runs(&self) -> Result<ProgramRuns, TraceError> {
        Ok(self.programs.runs(&[&OF_IRQS[..], &self.often].concat())?)
    }

    /// Runs the program `look` on all observed CPUs that are online.
    fn run_on_all(&self, option: TracerOptions) -> Result<Times, BpfError> {
        let mut times = Times::new();
        for cpu in &self.cpus {
            if let Some(time) = self.run_on_cpu(*cpu, option)? {
                times.insert(*cpu, time);
            }
        }
        Ok(times)
    }

    // Runs the program on a CPU; `None` if it is offline.
    fn run_on_cpu(&self, cpu: u32, option: TracerOptions) -> Result<Option<AskedAt>, BpfError> {
        let before = Instant::now();
        let result = self.programs.run(LOOK, cpu, option as u64)?;
        Ok(result.filter(|answer| *answer != 0).map(|_| AskedAt { before, after: Instant::now() }))
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use aya::maps::{HashMap, MapData};
    use linerate_testkit::skip;

    use super::*;
    use crate::cost::cost_tables::{Counters as _, DevicePolls, PathOn, PathTime, PolledOn};
    use crate::error::skip_unless_permitted;

    /// Fills a table with entries of no CPU.
    fn fill<K: aya::Pod, V: aya::Pod>(tracer: &mut CostTracer, name: &str, key: impl Fn(u32) -> K, value: V) {
        let mut table: HashMap<&mut MapData, K, V> = tracer.programs.map_mut(name).expect("a hash map");
        let entries = (0..).take_while(|at| table.insert(key(*at), value, 0).is_ok()).count();
        assert!(entries >= 8192, "{name}: {entries}");
    }

    /// What all CPUs counted while packets passed the loopback.
    fn count_with_full(table: &str) -> Result<CpuReading, TraceError> {
        let cpus: Vec<u32> = (0..512).collect();
        let mut tracer = CostTracer::load(&cpus, &[], true)?;
        match table {
            "devices" => {
                let key = |ifindex| PolledOn { ifindex, network: 0, cpu: u32::MAX, is_device: 1 };
                fill(&mut tracer, table, key, DevicePolls::default());
            }
            _ => {
                let key = |ingress| PathOn { ingress, cpu: u32::MAX, ..PathOn::default() };
                fill(&mut tracer, table, key, PathTime::default());
            }
        }
        let [receiver, sender] = [0, 1].map(|_| UdpSocket::bind("127.0.0.1:0").expect("a socket"));
        tracer.attach()?;
        let begin = tracer.begin()?;
        for _ in 0..100 {
            sender.send_to(b"request", receiver.local_addr().expect("an address")).expect("sent");
            receiver.recv(&mut [0; 7]).expect("received");
        }
        let end = tracer.end()?;
        let mut sum = CpuReading::default();
        end.readings.iter().for_each(|(cpu, reading)| sum.add(&reading.since(&begin.readings[cpu])));
        Ok(sum)
    }

    #[test]
    fn a_cpu_that_comes_online_is_counted_from_the_next_reading_on() {
        let tracer = CostTracer::load(&[], &[], false).map_err(TraceError::from);
        let test = "a_cpu_that_comes_online_is_counted_from_the_next_reading_on";
        let Some(mut tracer) = skip_unless_permitted(test, tracer) else { return };
        tracer.attach().unwrap();
        assert!(tracer.begin().unwrap().readings.is_empty());
        tracer.cpus.push(0);
        assert!(tracer.read_point().unwrap().readings.contains_key(&0));
    }

    #[test]
    fn polls_and_paths_that_a_full_table_cannot_hold_are_counted_as_missed() {
        for table in ["devices", "paths"] {
            match count_with_full(table) {
                Ok(sum) => assert!(sum.missed > 0 && sum.polls > 0 && sum.packets > 0, "{table}: {sum:?}"),
                Err(error) => {
                    let test = "polls_and_paths_that_a_full_table_cannot_hold_are_counted_as_missed";
                    return skip(test, error);
                }
            }
        }
    }
}
