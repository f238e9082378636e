//! The current system call of a thread (`/proc/PID/task/TID/syscall`, proc_pid_syscall in
//! fs/proc/base.c).

use crate::Host;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ThreadActivity {
    /// Running or runnable; the kernel then reports no call.
    Running,
    InCall {
        /// The number for this architecture.
        number: u64,
        first: u64,
    },
    /// Waiting outside of system calls, for example in a page fault.
    Elsewhere,
}

impl ThreadActivity {
    /// The first argument of its call.
    pub(super) fn first(&self) -> Option<u64> {
        match self {
            ThreadActivity::InCall { first, .. } => Some(*first),
            _ => None,
        }
    }
}

/// The meaning of a system call whose first argument is a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DescriptorCall {
    /// It reads or writes this descriptor.
    OnDescriptor(&'static str),
    /// It waits for this epoll instance.
    Epoll(&'static str),
    /// It waits for descriptors listed in the thread's memory.
    Poll(&'static str),
    /// It waits for an io_uring.
    Uring,
    /// Unrelated to sockets.
    Other,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Architecture {
    X86_64,
    Aarch64,
}

/// Calls by number on x86-64 (arch/x86/entry/syscalls/syscall_64.tbl) and aarch64
/// (include/uapi/asm-generic/unistd.h); `None` if the architecture has no such call.
const CALLS: &[(Option<u64>, Option<u64>, DescriptorCall)] = &[
    (Some(45), Some(207), DescriptorCall::OnDescriptor("recvfrom")),
    (Some(47), Some(212), DescriptorCall::OnDescriptor("recvmsg")),
    (Some(299), Some(243), DescriptorCall::OnDescriptor("recvmmsg")),
    (Some(44), Some(206), DescriptorCall::OnDescriptor("sendto")),
    (Some(46), Some(211), DescriptorCall::OnDescriptor("sendmsg")),
    (Some(307), Some(269), DescriptorCall::OnDescriptor("sendmmsg")),
    (Some(0), Some(63), DescriptorCall::OnDescriptor("read")),
    (Some(19), Some(65), DescriptorCall::OnDescriptor("readv")),
    (Some(1), Some(64), DescriptorCall::OnDescriptor("write")),
    (Some(20), Some(66), DescriptorCall::OnDescriptor("writev")),
    (Some(43), Some(202), DescriptorCall::OnDescriptor("accept")),
    (Some(288), Some(242), DescriptorCall::OnDescriptor("accept4")),
    (Some(232), None, DescriptorCall::Epoll("epoll_wait")),
    (Some(281), Some(22), DescriptorCall::Epoll("epoll_pwait")),
    (Some(441), Some(441), DescriptorCall::Epoll("epoll_pwait2")),
    (Some(7), None, DescriptorCall::Poll("poll")),
    (Some(271), Some(73), DescriptorCall::Poll("ppoll")),
    (Some(23), None, DescriptorCall::Poll("select")),
    (Some(270), Some(72), DescriptorCall::Poll("pselect6")),
    (Some(426), Some(426), DescriptorCall::Uring),
];

impl ThreadActivity {
    /// Reads `running`, `45 0x3 ...`, or `-1 0x7ffd...`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut words = text.split_whitespace();
        match words.next()? {
            "running" => Some(ThreadActivity::Running),
            "-1" => Some(ThreadActivity::Elsewhere),
            number => {
                let first = words.next()?.strip_prefix("0x")?;
                let first = u64::from_str_radix(first, 16).ok()?;
                Some(ThreadActivity::InCall { number: number.parse().ok()?, first })
            }
        }
    }
}

impl Architecture {
    /// From `/proc/sys/kernel/arch` (Linux 6.1), otherwise from the keys of `/proc/cpuinfo`.
    pub(super) fn detect(host: &Host) -> Option<Self> {
        if let Ok(name) = host.read("/proc/sys/kernel/arch") {
            return match name.trim() {
                "x86_64" => Some(Architecture::X86_64),
                "aarch64" => Some(Architecture::Aarch64),
                _ => None,
            };
        }
        let cpuinfo = host.read("/proc/cpuinfo").ok()?;
        let keys = || cpuinfo.lines().filter_map(|line| line.split_once(':').map(|(key, _)| key.trim()));
        if keys().any(|key| key == "vendor_id" || key == "flags") {
            Some(Architecture::X86_64)
        } else if cpuinfo.lines().any(|line| line.starts_with("CPU architecture") && line.ends_with('8')) {
            Some(Architecture::Aarch64)
        } else {
            None
        }
    }

    pub(super) fn call(self, number: u64) -> DescriptorCall {
        let has_number = |(x86, arm, _): &&(Option<u64>, Option<u64>, DescriptorCall)| {
            let own_number = match self {
                Architecture::X86_64 => x86,
                Architecture::Aarch64 => arm,
            };
            *own_number == Some(number)
        };
        CALLS.iter().find(has_number).map_or(DescriptorCall::Other, |(_, _, call)| *call)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_calls_are_parsed_and_malformed_text_is_none() {
        let waiting = "45 0x3 0x7f9e17136000 0x20000 0x0 0x7ffd 0x7ffe 0x7fff680b05d8 0x7f9e172b02ad\n";
        assert_eq!(ThreadActivity::parse(waiting), Some(ThreadActivity::InCall { number: 45, first: 3 }));
        assert_eq!(ThreadActivity::parse("running\n"), Some(ThreadActivity::Running));
        assert_eq!(
            ThreadActivity::parse("-1 0x7ffd0e7a0f38 0x7f3a5b0c9e2a\n"),
            Some(ThreadActivity::Elsewhere)
        );
        for wrong in ["", "45", "45 3", "x 0x3", "45 0x"] {
            assert_eq!(ThreadActivity::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn system_call_numbers_match_libc_on_x86_64() {
        let number = |number: libc::c_long| u64::try_from(number).expect("a number");
        for (call, name) in [
            (libc::SYS_recvfrom, "recvfrom"),
            (libc::SYS_recvmsg, "recvmsg"),
            (libc::SYS_recvmmsg, "recvmmsg"),
            (libc::SYS_sendto, "sendto"),
            (libc::SYS_sendmsg, "sendmsg"),
            (libc::SYS_sendmmsg, "sendmmsg"),
            (libc::SYS_read, "read"),
            (libc::SYS_readv, "readv"),
            (libc::SYS_write, "write"),
            (libc::SYS_writev, "writev"),
            (libc::SYS_accept, "accept"),
            (libc::SYS_accept4, "accept4"),
        ] {
            assert_eq!(Architecture::X86_64.call(number(call)), DescriptorCall::OnDescriptor(name));
        }
        for (call, name) in [
            (libc::SYS_epoll_wait, DescriptorCall::Epoll("epoll_wait")),
            (libc::SYS_epoll_pwait, DescriptorCall::Epoll("epoll_pwait")),
            (libc::SYS_epoll_pwait2, DescriptorCall::Epoll("epoll_pwait2")),
            (libc::SYS_poll, DescriptorCall::Poll("poll")),
            (libc::SYS_ppoll, DescriptorCall::Poll("ppoll")),
            (libc::SYS_select, DescriptorCall::Poll("select")),
            (libc::SYS_pselect6, DescriptorCall::Poll("pselect6")),
            (libc::SYS_io_uring_enter, DescriptorCall::Uring),
            (libc::SYS_futex, DescriptorCall::Other),
        ] {
            assert_eq!(Architecture::X86_64.call(number(call)), name);
        }
    }

    #[test]
    fn the_architecture_is_read_from_its_name_or_cpuinfo() {
        let architecture_of = |path: &str, text: &str| Architecture::detect(&Host::scripted([(path, text)]));
        assert_eq!(architecture_of("/proc/sys/kernel/arch", "aarch64\n"), Some(Architecture::Aarch64));
        assert_eq!(architecture_of("/proc/sys/kernel/arch", "riscv64\n"), None);
        assert_eq!(
            architecture_of("/proc/cpuinfo", "vendor_id\t: GenuineIntel\n"),
            Some(Architecture::X86_64)
        );
        assert_eq!(architecture_of("/proc/cpuinfo", "CPU architecture: 8\n"), Some(Architecture::Aarch64));
        assert_eq!(architecture_of("/proc/cpuinfo", ""), None);
    }
}
