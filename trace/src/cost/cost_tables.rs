//! Decodes the tables of bpf/cost.h.

use std::collections::BTreeMap;

use linerate_host::bpf::halves;

pub(super) const READING_WORDS: usize = 24;
pub(super) const TURNS_WORDS: usize = 18;
const TOTALS_WORDS: usize = 12;
pub(super) const POLLED_WORDS: usize = 8;
pub(super) const PATH_WORDS: usize = 3;

// `PF_KTHREAD` of include/linux/sched.h.
const KERNEL_THREAD: u32 = 0x0020_0000;

// `struct totals`, in nanoseconds.
//
// A value may be negative for a moment if an interrupt came during a read; the next read
// compensates.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct CpuTotals {
    pub(super) net_rx: i64,
    pub(super) net_tx: i64,
    pub(super) other_softirq: i64,
    pub(super) packet_irq: i64,
    pub(super) other_irq: i64,
    pub(super) own_call: i64,
    /// Interrupts outside of softirqs.
    pub(super) packet_irqs: InterruptCounts,
    pub(super) other_irqs: InterruptCounts,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct InterruptCounts {
    pub(super) by_timer: i64,
    pub(super) by_cpu: i64,
    pub(super) by_device: i64,
}

/// `struct cpu_reading`: all counters of a CPU at a reading.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct CpuReading {
    pub(super) at: i64,
    pub(super) totals: CpuTotals,
    pub(super) idle: i64,
    pub(super) from_idle: i64,
    pub(super) tasks: i64,
    pub(super) rx_runs: i64,
    pub(super) polls: i64,
    pub(super) packets: i64,
    pub(super) events: i64,
    pub(super) interrupts: i64,
    pub(super) missed: i64,
    pub(super) irq_events: i64,
    /// Packets, counted where they enter the host.
    pub(super) entered: i64,
}

/// `struct thread`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ThreadOn {
    pub(super) tid: u32,
    pub(super) cpu: u32,
}

/// `struct turns`: all turns of a thread on a CPU.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ThreadTurns {
    pub(super) on_cpu: i64,
    pub(super) taken: CpuTotals,
    /// Time of packet processing threads while this thread waited for them.
    pub(super) displaced: i64,
    pub(super) cgroup: u64,
    pub(super) comm: String,
    pub(super) pid: u32,
    pub(super) is_kernel_thread: bool,
}

/// `struct place`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PolledOn {
    pub(super) ifindex: u32,
    pub(super) network: u32,
    pub(super) cpu: u32,
    pub(super) is_device: bool,
}

/// `struct polled`: all polls of a device on a CPU.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct DevicePolls {
    pub(super) ns: i64,
    pub(super) polls: i64,
    pub(super) threaded: i64,
    pub(super) busy: i64,
    pub(super) packets: i64,
    pub(super) exhausted: i64,
    pub(super) name: String,
}

/// `struct path`: by the numbers of devices, `out` is zero for packets that stayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PathOn {
    pub(super) ingress: u32,
    pub(super) egress: u32,
    /// Of the ingress device.
    pub(super) network: u32,
    pub(super) cpu: u32,
    /// Whether its packets came in for the first time.
    pub(super) is_entry: bool,
}

/// `struct path_cost`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct PathTime {
    pub(super) ns: i64,
    pub(super) packets: i64,
    /// Runs of the measurement's programs in this time.
    pub(super) events: i64,
}

/// Counters per thread, device and path, which are read less often.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ThreadTables {
    pub(super) threads: BTreeMap<ThreadOn, ThreadTurns>,
    pub(super) devices: BTreeMap<PolledOn, DevicePolls>,
    pub(super) paths: BTreeMap<PathOn, PathTime>,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct CountedCost {
    pub(super) cpus: BTreeMap<u32, CountedSpan>,
    pub(super) tables: ThreadTables,
}

/// The counted part of a CPU's time, from which the rest is extrapolated.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct CountedSpan {
    pub(super) elapsed_ns: u64,
    // The counted part, ns.
    pub(super) traced_ns: u64,
    /// Extrapolated to the elapsed time.
    pub(super) reading: CpuReading,
    /// Share of packets in each window, if not all of the time was counted.
    pub(super) shares: Vec<f64>,
}

/// Arithmetic on the numbers of a structure. Names, ids and times are those of `self`.
pub(super) trait Counters: Sized {
    fn combine_counters(&self, other: &Self, combine: &dyn Fn(i64, i64) -> i64) -> Self;

    fn scaled(&self, factor: f64) -> Self {
        self.combine_counters(self, &|sum, _| scaled(sum, factor))
    }

    fn minus(&self, before: &Self) -> Self {
        self.combine_counters(before, &|now, before| now - before)
    }

    /// Names, ids and times become those of `later`.
    fn add(&mut self, later: &Self) {
        *self = later.combine_counters(self, &|later, sum| sum + later);
    }
}

/// `plain` fields are numbers, `nested` fields implement [`Counters`].
macro_rules! counters {
    ($type:ident { $($plain:ident),* } { $($nested:ident),* }) => {
        impl Counters for $type {
            #[allow(clippy::clone_on_copy, reason = "some of them are Copy")]
            fn combine_counters(&self, other: &Self, combine: &dyn Fn(i64, i64) -> i64) -> Self {
                let mut result = self.clone();
                $(result.$plain = combine(self.$plain, other.$plain);)*
                $(result.$nested = self.$nested.combine_counters(&other.$nested, combine);)*
                result
            }
        }
    };
}

counters!(InterruptCounts { by_timer, by_cpu, by_device } {});
counters!(CpuTotals { net_rx, net_tx, other_softirq, packet_irq, other_irq, own_call } { packet_irqs, other_irqs });
counters!(CpuReading {
    idle, from_idle, tasks, rx_runs, polls, packets, events, interrupts, missed, irq_events, entered
} { totals });
counters!(ThreadTurns { on_cpu, displaced } { taken });
counters!(PathTime { ns, packets, events } {});
counters!(DevicePolls { ns, polls, threaded, busy, packets, exhausted } {});

impl CpuTotals {
    fn from_words(words: [u64; TOTALS_WORDS]) -> Self {
        let [net_rx, net_tx, other_softirq, packet_irq, other_irq, own_call, a, b, c, d, e, f] =
            words.map(u64::cast_signed);
        let packet_irqs = InterruptCounts { by_timer: a, by_cpu: b, by_device: c };
        let other_irqs = InterruptCounts { by_timer: d, by_cpu: e, by_device: f };
        Self { net_rx, net_tx, other_softirq, packet_irq, other_irq, own_call, packet_irqs, other_irqs }
    }

    pub(super) fn packets(&self) -> i64 {
        self.net_rx + self.net_tx + self.packet_irq
    }

    pub(super) fn others(&self) -> i64 {
        self.other_softirq + self.other_irq
    }
}

impl InterruptCounts {
    pub(super) fn sum(self) -> i64 {
        self.by_timer + self.by_cpu + self.by_device
    }
}

impl CpuReading {
    pub(super) fn from_words(words: [u64; READING_WORDS]) -> Self {
        let [at, words @ ..] = words;
        let (totals, counters) = split(&words);
        let [
            idle,
            from_idle,
            tasks,
            rx_runs,
            polls,
            packets,
            events,
            interrupts,
            missed,
            irq_events,
            entered,
        ] = counters.map(u64::cast_signed);
        let at = at.cast_signed();
        Self {
            at,
            totals,
            idle,
            from_idle,
            tasks,
            rx_runs,
            polls,
            packets,
            events,
            interrupts,
            missed,
            irq_events,
            entered,
        }
    }

    pub(super) fn since(&self, before: &Self) -> Self {
        Self { at: self.at - before.at, ..self.minus(before) }
    }
}

impl ThreadOn {
    pub(super) fn from_word(word: u64) -> Self {
        let (tid, cpu) = halves(word);
        Self { tid, cpu }
    }
}

impl ThreadTurns {
    pub(super) fn from_words(words: [u64; TURNS_WORDS]) -> Self {
        let [on_cpu, words @ ..] = words;
        let (taken, [displaced, cgroup, first, second, process]) = split(&words);
        let (pid, flags) = halves(process);
        Self {
            on_cpu: on_cpu.cast_signed(),
            taken,
            displaced: displaced.cast_signed(),
            cgroup,
            comm: text([first, second]),
            pid,
            is_kernel_thread: flags & KERNEL_THREAD != 0,
        }
    }
}

impl PolledOn {
    pub(super) fn from_words([device, place]: [u64; 2]) -> Self {
        let (ifindex, network) = halves(device);
        let (cpu, is_device) = halves(place);
        Self { ifindex, network, cpu, is_device: is_device != 0 }
    }
}

impl PathOn {
    pub(super) fn from_words([devices, place, entry]: [u64; 3]) -> Self {
        let ((ingress, egress), (network, cpu)) = (halves(devices), halves(place));
        Self { ingress, egress, network, cpu, is_entry: halves(entry).0 != 0 }
    }
}

impl PathTime {
    pub(super) fn from_words(words: [u64; PATH_WORDS]) -> Self {
        let [ns, packets, events] = words.map(u64::cast_signed);
        Self { ns, packets, events }
    }
}

impl DevicePolls {
    pub(super) fn from_words(words: [u64; POLLED_WORDS]) -> Self {
        let [counts @ .., first, second] = words;
        let [ns, polls, threaded, busy, packets, exhausted] = counts.map(u64::cast_signed);
        Self { ns, polls, threaded, busy, packets, exhausted, name: text([first, second]) }
    }
}

/// Extrapolates a sum.
fn scaled(sum: i64, factor: f64) -> i64 {
    // If everything was counted, sums beyond the mantissa stay exact.
    if factor == 1.0 { sum } else { (sum as f64 * factor).round() as i64 }
}

impl ThreadTables {
    /// The difference to an earlier reading.
    pub(super) fn since(&self, before: &Self) -> Self {
        Self {
            threads: growth(&self.threads, &before.threads, |turns| turns.on_cpu),
            devices: growth(&self.devices, &before.devices, |polled| polled.polls),
            paths: growth(&self.paths, &before.paths, |path| path.ns),
        }
    }

    /// Adds counters of a part of the time, multiplied by `scale` of the CPU.
    pub(super) fn add(&mut self, counters: &Self, scale: impl Fn(u32) -> f64) {
        for (key, turns) in &counters.threads {
            self.threads.entry(*key).or_default().add(&turns.scaled(scale(key.cpu)));
        }
        for (key, polled) in &counters.devices {
            self.devices.entry(*key).or_default().add(&polled.scaled(scale(key.cpu)));
        }
        for (key, path) in &counters.paths {
            self.paths.entry(*key).or_default().add(&path.scaled(scale(key.cpu)));
        }
    }
}

/// The counters that grew.
fn growth<K: Copy + Ord, V: Clone + Counters>(
    now: &BTreeMap<K, V>,
    before: &BTreeMap<K, V>,
    count: impl Fn(&V) -> i64,
) -> BTreeMap<K, V> {
    let change_of = |key, now: &V| before.get(key).map_or_else(|| now.clone(), |before| now.minus(before));
    let changes = now.iter().map(|(key, now)| (*key, change_of(key, now)));
    changes.filter(|(_, change)| count(change) > 0).collect()
}

/// `struct totals`, which comes first, and the words after it.
fn split<const REST: usize>(words: &[u64]) -> (CpuTotals, [u64; REST]) {
    let (totals, remainder) = words.split_at(TOTALS_WORDS);
    (
        CpuTotals::from_words(std::array::from_fn(|index| totals[index])),
        std::array::from_fn(|index| remainder[index]),
    )
}

// At most 16 bytes.
fn text(words: [u64; 2]) -> String {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let name = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(name).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn words(name: &str) -> [u64; 2] {
        let mut bytes = [0xff_u8; 16];
        bytes[..name.len()].copy_from_slice(name.as_bytes());
        bytes[name.len()] = 0;
        [0, 8].map(|at| u64::from_ne_bytes(*bytes[at..].first_chunk().expect("8 bytes")))
    }

    #[test]
    fn thread_names_end_at_the_first_nul_byte() {
        assert_eq!(text(words("openssl")), "openssl");
        assert_eq!(text(words("")), "");
        assert_eq!(text([u64::from_ne_bytes(*b"abcdefgh"); 2]), "abcdefghabcdefgh");
    }

    #[test]
    fn thread_turns_are_decoded_from_words_with_the_kernel_thread_flag() {
        let half = |pid: u32, flags: u32| {
            let mut bytes = [0; 8];
            bytes[..4].copy_from_slice(&pid.to_ne_bytes());
            bytes[4..].copy_from_slice(&flags.to_ne_bytes());
            u64::from_ne_bytes(bytes)
        };
        let [first, second] = words("napi/eth0-8193");
        let turns = |flags| {
            let [rest @ .., last] = [10, 7, first, second, half(8, flags)];
            let mut words = [0; TURNS_WORDS];
            words[..7].copy_from_slice(&[9, 1, 2, 3, 4, 5, 6]);
            words[1 + TOTALS_WORDS..TURNS_WORDS - 1].copy_from_slice(&rest);
            words[TURNS_WORDS - 1] = last;
            ThreadTurns::from_words(words)
        };
        assert!(turns(0x0420_8040).is_kernel_thread);
        let process = turns(0x0040_0040);
        assert!(!process.is_kernel_thread);
        assert_eq!((process.on_cpu, process.cgroup, process.pid), (9, 7, 8));
        assert_eq!(process.displaced, 10);
        assert_eq!((process.taken.net_rx, process.taken.own_call), (1, 6));
        assert_eq!(process.comm, "napi/eth0-8193");
    }

    proptest! {
        #[test]
        fn arbitrary_words_parse_and_equal_readings_differ_by_zero(words: [u64; READING_WORDS]) {
            let reading = CpuReading::from_words(words.map(|word| word >> 1));
            prop_assert_eq!(reading.since(&reading), CpuReading::default());
            let all = CpuTotals { net_rx: reading.totals.net_rx, ..CpuTotals::default() };
            prop_assert_eq!(all.net_rx.cast_unsigned(), words[1] >> 1);
        }
    }
}
