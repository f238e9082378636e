//! What top says that threads had: user and system time, by the kernel's own account.
//!
//! `/proc/PID/task/TID/stat` has both in ticks of `USER_HZ`, their sum being the scheduler's exact one, rounded
//! (kernel/sched/cputime.c, `cputime_adjust`, Linux 6.18). Unless the kernel was built with `CONFIG_IRQ_TIME_ACCOUNTING`,
//! what interrupts and softirqs took is part of it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use linerate_host::stage::thread::TaskStat;
use linerate_host::{Host, Known, process};

/// The first process namespace (`PROC_PID_INIT_INO`, include/linux/proc_ns.h, since Linux 3.8), in which ids are as BPF
/// programs tell them.
const FIRST_PROCESSES: &str = "pid:[4026531836]";

/// Times of threads as they were when last read.
#[derive(Debug)]
pub(super) struct AccountedTimes {
    before: BTreeMap<u32, TimesReading>,
    /// How many windows there were.
    windows: u32,
    begin: Instant,
    length: Duration,
    why: Option<String>,
}

#[derive(Debug, Clone, Copy)]
struct TimesReading {
    started: Option<u64>,
    ticks: u64,
    at: Instant,
    /// The number of the window that begins then.
    window: u32,
}

impl AccountedTimes {
    /// Reads those of all threads there are, just before a window begins.
    pub(super) fn begin(host: &Host) -> Self {
        let mut accounted = Self {
            before: BTreeMap::new(),
            windows: 0,
            begin: Instant::now(),
            length: Duration::ZERO,
            why: None,
        };
        let namespace = host.read_link("/proc/self/ns/pid");
        if namespace.as_deref().ok() != Some(FIRST_PROCESSES) {
            accounted.why = Some("this is a process namespace of its own, with other ids".to_owned());
            return accounted;
        }
        for process in process::processes(host).into_value().unwrap_or_default() {
            for name in host.list(&format!("/proc/{}/task", process.pid)).unwrap_or_default() {
                let Ok(tid) = name.parse() else { continue };
                if let Ok(reading) = read(host, process.pid, tid, 0) {
                    accounted.before.insert(tid, reading);
                }
            }
        }
        accounted
    }

    /// Why nothing is known of any thread, if so.
    pub(super) fn why(&self) -> Option<&str> {
        self.why.as_deref()
    }

    /// What follows is about a window between these times.
    pub(super) fn next(&mut self, begin: Instant, end: Instant) {
        self.windows += 1;
        self.begin = begin;
        self.length = end.saturating_duration_since(begin);
    }

    /// What a thread had in the window that ends now. Its readings are some time before and after it, so what it had between
    /// them is scaled to the window.
    pub(super) fn of(&mut self, host: &Host, pid: u32, tid: u32) -> Known<u64> {
        if let Some(why) = &self.why {
            return Known::unknown(why.clone());
        }
        let now = match read(host, pid, tid, self.windows) {
            Ok(reading) => reading,
            Err(why) => return Known::unknown(why),
        };
        let before = self.before.insert(tid, now).filter(|before| before.started == now.started);
        let ticks = now.ticks.saturating_sub(before.map_or(0, |before| before.ticks));
        // One that did not run in the window before was not read at its end, and has not changed since.
        let from =
            before.filter(|before| before.window + 1 == self.windows).map_or(self.begin, |before| before.at);
        let span = now.at.saturating_duration_since(from).max(self.length);
        let share = if span.is_zero() { 1.0 } else { self.length.as_secs_f64() / span.as_secs_f64() };
        let seconds = ticks as f64 / rustix::param::clock_ticks_per_second() as f64 * share;
        Known::Value((seconds * 1e9) as u64)
    }
}

fn read(host: &Host, pid: u32, tid: u32, window: u32) -> Result<TimesReading, String> {
    let task = TaskStat::of_thread(host, pid, tid).map_err(|error| error.to_string())?;
    let (Some(user), Some(system)) = (task.user_ticks, task.system_ticks) else {
        return Err(format!("/proc/{pid}/task/{tid}/stat: no fields 14 and 15"));
    };
    Ok(TimesReading { started: task.started, ticks: user + system, at: Instant::now(), window })
}
