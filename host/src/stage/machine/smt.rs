//! Simultaneous multithreading: hardware threads that share a core.

use super::proc_stat;
use crate::finding::{Rule, RuleMatch, Severity};
use crate::known::nonempty_text;
use crate::stage::{HostView, PacketPath};
use crate::{Host, Known};

const CONTROL: &str = "/sys/devices/system/cpu/smt/control";

/// Non-idle share of CPU time above which additional hardware threads have work.
const BUSY: f64 = 0.9;

/// `/sys/devices/system/cpu/smt/control` (Documentation/ABI/testing/sysfs-devices-system-cpu).
pub(super) fn control(host: &Host) -> Known<Option<String>> {
    host.read_optional(CONTROL, nonempty_text)
}

pub(in crate::stage) const SHARED: Rule = Rule {
    id: "machine.smt",
    title: "Hardware threads share cores",
    why: "Two hardware threads of a core share its execution units and its first caches. A thread of the \
          service on the sibling of a CPU that processes packets competes with it. But if all CPUs of a host \
          do both, they gain from units that would otherwise be idle.",
    effect: "On one host, siblings with RPS on every queue gained 17 % (6.01 to 7.01 M transactions/s). On \
             another, a receiver on the sibling of the queue's CPU got 200 kpps, and one on another core 360 \
             kpps.",
    published_ratio: None,
    source: "T. Makita, LinuxCon Japan 2016; M. Majkowski, How to receive a million packets per second, 2015",
    kernels: "all",
    remedy: "Nothing need be done. Count cores, not CPUs, when you compare hosts. Give every hardware thread \
             its share of queues or RPS, with its own socket and thread, or leave the siblings of packet \
             CPUs idle.",
    caveats: "This is a fact, not a fault.",
    check: |view| check_shared(view).into_iter().collect(),
};

fn check_shared(view: &HostView<'_>) -> Option<RuleMatch> {
    let cores = view.now.machine.cores.value()?;
    let shared_core = cores.iter().find(|core| core.len() > 1)?;
    let cpus: usize = cores.iter().map(crate::CpuSet::len).sum();
    let title = match cores.len() {
        1 => format!("{cpus} CPUs are hardware threads of one core"),
        count => format!("{cpus} CPUs are hardware threads of {count} cores"),
    };
    let first = shared_core.iter().next().unwrap_or(0);
    let file = format!("/sys/devices/system/cpu/cpu{first}/topology/thread_siblings_list");
    Some(RuleMatch::new(Severity::Note, title).evidence(
        format!("hardware threads of the core of CPU {first}"),
        shared_core.to_string(),
        file,
    ))
}

pub(in crate::stage) const OFF: Rule = Rule {
    id: "machine.smt-off",
    title: "Hardware threads are switched off on a busy host",
    why: "If all CPUs are busy, the second hardware thread of each core uses the core while the first waits \
          for memory, which is frequent in packet processing.",
    effect: "6.01 to 7.01 M transactions/s (17 %) with hyper-threading on and RPS on every queue.",
    published_ratio: Some(7.01 / 6.01),
    source: "T. Makita, Boost UDP Transaction Performance, LinuxCon Japan 2016",
    kernels: "4.19 and later for the switch; measured on 4.6",
    remedy: "Switch hardware threads on, then spread queues or RPS over the new CPUs and give each its socket and thread.",
    caveats: "They are off for security (L1TF, MDS) or by licence, or latency of single packets matters more than their number.",
    check: |view| check_off(view).into_iter().collect(),
};

fn check_off(view: &HostView<'_>) -> Option<RuleMatch> {
    let machine = &view.now.machine;
    // `forceoff` cannot be reverted before the next boot.
    if machine.smt_control.value().and_then(Option::as_deref) != Some("off") {
        return None;
    }
    let share = busy_share(view).filter(|share| *share >= BUSY)?;
    let title = format!("Hardware threads are switched off, and the CPUs are {:.0} % busy", share * 100.0);
    Some(
        RuleMatch::new(Severity::Note, title)
            .evidence("hardware threads", "off", CONTROL)
            .evidence("share of CPU time not idle, between the readings", share, proc_stat::PATH)
            .command(format!("echo on > {CONTROL}")),
    )
}

/// The non-idle share of CPU time between the readings.
fn busy_share(view: &HostView<'_>) -> Option<f64> {
    let sums = |path: &PacketPath| {
        let times = path.machine.cpu_times.value()?;
        let total: u64 = times.iter().map(super::CpuTimes::total).sum();
        let idle: u64 = times.iter().map(|time| time.idle).sum();
        Some((total, idle))
    };
    let ((total, idle), (total_before, idle_before)) = (sums(view.now)?, sums(view.before?)?);
    let total = total.checked_sub(total_before).filter(|total| *total > 0)?;
    let idle = idle.checked_sub(idle_before)?;
    Some(1.0 - idle as f64 / total as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(siblings: &str, control: &str, stat: &str) -> PacketPath {
        PacketPath::scripted([
            ("/sys/devices/system/cpu/online", siblings),
            ("/sys/devices/system/cpu/cpu0/topology/thread_siblings_list", siblings),
            (CONTROL, control),
            ("/proc/stat", stat),
        ])
    }

    #[test]
    fn hardware_threads_of_one_core_are_named() {
        let matches = SHARED.once(&machine("0-1", "on\n", ""));
        assert_eq!(matches[0].title, "2 CPUs are hardware threads of one core");
    }

    #[test]
    fn smt_switched_off_is_reported_only_on_busy_hosts() {
        let reading = |control: &str, stat: &str| machine("0", control, stat);
        let before = reading("off\n", "cpu0 0 0 0 100 0 0 0 0\n");
        let busy = reading("off\n", "cpu0 10 0 40 105 0 0 45 0\n");
        let matches = OFF.twice(&before, &busy);
        assert_eq!(matches[0].title, "Hardware threads are switched off, and the CPUs are 95 % busy");
        assert_eq!(matches[0].commands, ["echo on > /sys/devices/system/cpu/smt/control"]);
        assert!(OFF.once(&busy).is_empty());
        let idle = reading("off\n", "cpu0 10 0 40 200 0 0 45 0\n");
        assert!(OFF.twice(&before, &idle).is_empty());
        let force_off = reading("forceoff\n", "cpu0 10 0 40 105 0 0 45 0\n");
        assert!(OFF.twice(&before, &force_off).is_empty());
    }
}
