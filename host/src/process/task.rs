//! State of a thread from `stat` and `status` in `/proc/PID/task/TID`, and of an epoll instance.

use crate::{CpuSet, Host, HostError, Known};

/// Field numbers of proc(5), counted from the first field after the name.
const FIRST: usize = 3;
const PARENT: usize = 4 - FIRST;
const SESSION: usize = 6 - FIRST;
const THREADS: usize = 20 - FIRST;
const STARTED: usize = 22 - FIRST;
const STACK_START: usize = 28 - FIRST;
const USER: usize = 14 - FIRST;
const SYSTEM: usize = 15 - FIRST;
const PROCESSOR: usize = 39 - FIRST;
const POLICY: usize = 41 - FIRST;

/// Policies in include/uapi/linux/sched.h.
const SCHED_FIFO: u32 = 1;
const SCHED_RR: u32 = 2;
const SCHED_IDLE: u32 = 5;
const SCHED_DEADLINE: u32 = 6;

/// `stat` of a process or thread; missing fields are `None`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskStat {
    pub name: String,
    /// Running or runnable.
    pub runs: bool,
    /// Stopped by a signal or a debugger.
    pub stopped: bool,
    /// A zombie or dead: its parent may not have waited for it yet.
    pub ended: bool,
    /// SCHED_IDLE.
    pub scheduled_idle: bool,
    /// Runs before ordinary threads: SCHED_FIFO, SCHED_RR or SCHED_DEADLINE.
    pub real_time: bool,
    /// 0 if the parent is not visible here.
    pub parent: Option<u32>,
    /// Process id of the session's leader; 0 if the leader is not visible here.
    pub session: Option<u32>,
    /// Number of threads of its process.
    pub threads: Option<u32>,
    /// In clock ticks since boot.
    pub started: Option<u64>,
    /// Address of the bottom of the stack, which exec randomizes and fork keeps; 0 without permission
    /// to trace the process.
    pub stack_start: Option<u64>,
    /// In ticks of `USER_HZ`.
    pub user_ticks: Option<u64>,
    pub system_ticks: Option<u64>,
    pub last_cpu: Option<u32>,
}

impl TaskStat {
    /// `None` without name and state. The name may contain blanks and parentheses.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (_, rest) = text.split_once('(')?;
        let (name, rest) = rest.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let number = |index: usize| fields.get(index)?.parse().ok();
        let small = |index: usize| number(index).and_then(|number: u64| u32::try_from(number).ok());
        Some(TaskStat {
            name: name.to_owned(),
            runs: *fields.first()? == "R",
            stopped: ["T", "t"].contains(fields.first()?),
            ended: ["Z", "X", "x"].contains(fields.first()?),
            scheduled_idle: small(POLICY) == Some(SCHED_IDLE),
            real_time: [SCHED_FIFO, SCHED_RR, SCHED_DEADLINE].map(Some).contains(&small(POLICY)),
            parent: small(PARENT),
            session: small(SESSION),
            threads: small(THREADS),
            started: number(STARTED),
            stack_start: number(STACK_START),
            user_ticks: number(USER),
            system_ticks: number(SYSTEM),
            last_cpu: small(PROCESSOR),
        })
    }

    /// `stat` of a process; its name is that of the first thread.
    ///
    /// # Errors
    /// [`HostError::Read`] without such a process, [`HostError::Garbled`] if the line has no name
    /// and state.
    pub fn of_process(host: &Host, pid: u32) -> Result<Self, HostError> {
        Self::read(host, &format!("/proc/{pid}"))
    }

    pub fn of_thread(host: &Host, pid: u32, tid: u32) -> Result<Self, HostError> {
        Self::read(host, &format!("/proc/{pid}/task/{tid}"))
    }

    pub(crate) fn read(host: &Host, directory: &str) -> Result<Self, HostError> {
        let parse = |text: &str| Self::parse(text).ok_or("no name and state");
        host.read_parsed(&format!("{directory}/stat"), parse)
    }

    /// In ticks of `USER_HZ`.
    pub fn total_ticks(&self) -> Option<u64> {
        self.user_ticks?.checked_add(self.system_ticks?)
    }

    /// Whether the kernel counted CPU time for it, in ticks of its clock.
    pub fn has_run(&self) -> bool {
        self.user_ticks.unwrap_or(0) > 0 || self.system_ticks.unwrap_or(0) > 0
    }
}

/// CPUs on which a thread may run. A process ID selects its main thread.
pub fn allowed_cpus(host: &Host, pid: u32) -> Known<CpuSet> {
    read_allowed_cpus(host, &format!("/proc/{pid}"))
}

/// `Cpus_allowed_list`.
pub(crate) fn read_allowed_cpus(host: &Host, directory: &str) -> Known<CpuSet> {
    host.read_known(&format!("{directory}/status"), parse_allowed_cpus)
}

/// `Cpus_allowed_list` of a `status`.
pub(crate) fn parse_allowed_cpus(text: &str) -> Result<CpuSet, String> {
    let mut lists = text.split_inclusive('\n').filter_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let list = lists.next().ok_or("no Cpus_allowed_list")?;
    if !list.ends_with('\n') {
        // `0-1` may be the beginning of `0-19`.
        return Err("Cpus_allowed_list: cut short".to_owned());
    }
    CpuSet::from_list(list).map_err(|error| format!("Cpus_allowed_list: {error}"))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EpollTarget {
    /// The descriptor under which it was added.
    pub(crate) descriptor: u32,
    /// Since Linux 4.13.
    pub(crate) inode: Option<u64>,
}

/// The targets of an epoll instance from its fdinfo: `tfd: 5 events: 19 data: 5  pos:0 ino:3b81
/// sdev:8` (ep_show_fdinfo in fs/eventpoll.c).
pub(crate) fn parse_epoll_targets(fdinfo: &str) -> Vec<EpollTarget> {
    let target = |line: &str| {
        let descriptor = line.strip_prefix("tfd:")?.split_whitespace().next()?.parse().ok()?;
        let inode = line.split_whitespace().find_map(|word| word.strip_prefix("ino:"));
        Some(EpollTarget { descriptor, inode: inode.and_then(|inode| u64::from_str_radix(inode, 16).ok()) })
    };
    fdinfo.lines().filter_map(target).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "5243 (tokio (rt) 1) R 5240 5240 900 34816 5240 4194304 126 0 0 0 1712 3304 0 0 20 0 9 0 8123 \
        235159552 1180 18446744073709551615 1 1 0 0 0 0 0 16781312 17642 0 0 0 -1 7 0 0 0 0 0 0 0 0 0 0 0 0 0\n";

    #[test]
    fn task_stat_is_parsed_with_parentheses_in_the_name() {
        let task = TaskStat::parse(STAT).expect("a thread");
        assert_eq!((task.name.as_str(), task.runs), ("tokio (rt) 1", true));
        assert_eq!((task.user_ticks, task.system_ticks, task.last_cpu), (Some(1712), Some(3304), Some(7)));
        assert_eq!((task.parent, task.threads, task.started), (Some(5240), Some(9), Some(8123)));
        assert_eq!(task.session, Some(900));
        assert!(!task.stopped && !task.scheduled_idle);
        let stopped_stat = STAT.replace(") R ", ") T ").replace(" -1 7 0 0 ", " -1 7 0 5 ");
        let stopped_task = TaskStat::parse(&stopped_stat).expect("a thread");
        assert!(stopped_task.stopped && stopped_task.scheduled_idle);
        let truncated_task = TaskStat::parse(&STAT[..60]).expect("a thread");
        assert_eq!((truncated_task.user_ticks, truncated_task.last_cpu), (None, None));
        assert!(!stopped_task.ended && TaskStat::parse("17 (x) Z 1").is_some_and(|task| task.ended));
        assert_eq!(TaskStat::parse("5243 (tokio"), None);
    }

    #[test]
    fn epoll_targets_are_parsed_from_fdinfo() {
        let fdinfo = "pos:\t0\nflags:\t02\nmnt_id:\t16\nino:\t1057\n\
            tfd:        5 events:       19 data:                5  pos:0 ino:3b81 sdev:8\n\
            tfd:        7 events: 80000019 data:                7\n";
        let expected =
            [EpollTarget { descriptor: 5, inode: Some(0x3b81) }, EpollTarget { descriptor: 7, inode: None }];
        assert_eq!(parse_epoll_targets(fdinfo), expected);
    }

    #[test]
    fn truncated_cpus_allowed_list_is_an_error() {
        let whole = "Name:\tnamed\nCpus_allowed_list:\t0-19\n";
        assert_eq!(parse_allowed_cpus(whole), Ok((0..20).collect()));
        let error = parse_allowed_cpus(&whole[..whole.len() - 2]);
        assert_eq!(error, Err("Cpus_allowed_list: cut short".to_owned()));
        assert_eq!(parse_allowed_cpus("Name:\tnamed\n"), Err("no Cpus_allowed_list".to_owned()));
    }
}
