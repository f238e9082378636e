//! User and system time of threads as the kernel accounts it and `top` shows it.
//!
//! `/proc/PID/task/TID/stat` contains both in ticks of `USER_HZ`; their sum is the scheduler's
//! exact run time, rounded (kernel/sched/cputime.c, `cputime_adjust`, Linux 6.18). Unless the
//! kernel was built with `CONFIG_IRQ_TIME_ACCOUNTING`, interrupts and softirqs are included.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use linerate_host::stage::thread::TaskStat;
use linerate_host::{Host, Known, process};

use crate::host_facts::sees_all_processes;

#[derive(Debug)]
pub(super) struct AccountedTimes {
    before: BTreeMap<u32, TimesReading>,
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
    window: u32,
}

impl AccountedTimes {
    /// Reads all threads just before a window begins, if they are observed on all CPUs.
    pub(super) fn begin(host: &Host, on_all_cpus: bool) -> Self {
        let mut times = Self {
            before: BTreeMap::new(),
            windows: 0,
            begin: Instant::now(),
            length: Duration::ZERO,
            why: None,
        };
        if !on_all_cpus {
            times.why = Some("only some CPUs are observed".to_owned());
            return times;
        }
        // BPF programs use the ids of the initial PID namespace.
        if !sees_all_processes(host) {
            times.why = Some("this is a process namespace of its own, with other ids".to_owned());
            return times;
        }
        for process in process::processes(host).into_value().unwrap_or_default() {
            for name in host.list(&format!("/proc/{}/task", process.pid)).unwrap_or_default() {
                let Ok(tid) = name.parse() else { continue };
                if let Ok(reading) = read(host, process.pid, tid, 0) {
                    times.before.insert(tid, reading);
                }
            }
        }
        times
    }

    /// The reason why no thread is known, if so.
    pub(super) fn unknown_reason(&self) -> Option<&str> {
        self.why.as_deref()
    }

    /// Starts the next window, which has these times.
    pub(super) fn next(&mut self, begin: Instant, end: Instant) {
        self.windows += 1;
        self.begin = begin;
        self.length = end.saturating_duration_since(begin);
    }

    // The time of a thread in the window that ends now. Its readings come before and after the
    // window, so the difference is scaled to it.
    pub(super) fn time_of(&mut self, host: &Host, pid: u32, tid: u32) -> Known<u64> {
        if let Some(why) = &self.why {
            return Known::unknown(why.clone());
        }
        let now = match read(host, pid, tid, self.windows) {
            Ok(reading) => reading,
            Err(why) => {
                self.before.remove(&tid);
                return Known::unknown(why);
            }
        };
        let before = self.before.insert(tid, now).filter(|before| before.started == now.started);
        let ticks = now.ticks.saturating_sub(before.map_or(0, |before| before.ticks));
        // A thread that did not run in the previous window was not read at its end, and has not
        // changed since.
        let window_begin =
            before.filter(|before| before.window + 1 == self.windows).map_or(self.begin, |before| before.at);
        let span = now.at.saturating_duration_since(window_begin).max(self.length);
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
