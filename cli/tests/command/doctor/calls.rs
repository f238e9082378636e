//! Finds system calls in a trace that could change a host.

/// The line of `strace -f -xx` if its call could change the host, otherwise `None`.
pub(super) fn change(line: &str) -> Option<String> {
    let call = line.trim_start_matches(|letter: char| letter.is_ascii_digit() || letter == ' ');
    let (name, arguments) = call.split_once('(')?;
    let forbidden = match name {
        "open" | "openat" | "openat2" => ["O_WRONLY", "O_RDWR", "O_CREAT", "O_TRUNC", "O_APPEND"]
            .iter()
            .any(|flag| arguments.contains(flag)),
        "sendto" | "sendmsg" | "write" | "writev" if arguments.contains("nlmsg_type=") => {
            !only_reads(arguments)
        }
        "ioctl" => !["SIOCETHTOOL", "TCGETS", "TIOCGWINSZ", "SIOCGIF", "FIO"]
            .iter()
            .any(|allowed| arguments.contains(allowed)),
        "setsockopt" => !["SO_RCVTIMEO", "SO_SNDTIMEO", "SOL_NETLINK", "SO_RCVBUF"]
            .iter()
            .any(|allowed| arguments.contains(allowed)),
        "bpf" => !["BPF_PROG_QUERY", "GET_INFO", "GET_FD_BY_ID", "GET_NEXT_ID"]
            .iter()
            .any(|allowed| arguments.starts_with(allowed)),
        "sendto" | "sendmsg" | "write" | "writev" => false,
        _ => FORBIDDEN.contains(&name),
    };
    forbidden.then(|| line.to_owned())
}

/// Calls that are forbidden with any arguments.
pub(super) const FORBIDDEN: [&str; 22] = [
    "creat",
    "truncate",
    "ftruncate",
    "unlink",
    "unlinkat",
    "rename",
    "renameat",
    "renameat2",
    "mkdir",
    "mkdirat",
    "symlink",
    "symlinkat",
    "chmod",
    "fchmod",
    "fchmodat",
    "mount",
    "umount2",
    "sched_setaffinity",
    "sched_setscheduler",
    "setpriority",
    "kill",
    "ptrace",
];

/// Calls that are allowed depending on their arguments. execve is always allowed.
pub(super) const CALLS_TO_INSPECT: [&str; 11] = [
    "open",
    "openat",
    "openat2",
    "sendto",
    "sendmsg",
    "ioctl",
    "setsockopt",
    "bpf",
    "write",
    "writev",
    "execve",
];

/// Whether a netlink message only reads.
fn only_reads(arguments: &str) -> bool {
    let Some(kind) = arguments.split("nlmsg_type=").nth(1) else { return false };
    let kind = kind.split(',').next().unwrap_or("");
    match kind.split_whitespace().next().unwrap_or("") {
        // Generic netlink families: the first byte of the payload is the command.
        "nlctrl" => command(arguments) == Some(3),
        "ethtool" => command(arguments).is_some_and(|command| ETHTOOL_GETS.contains(&command)),
        "netdev" => command(arguments).is_some_and(|command| [1, 5, 8, 10, 11, 12].contains(&command)),
        "SOCK_DIAG_BY_FAMILY" | "TCPDIAG_GETSOCK" => true,
        // AUDIT_GET and AUDIT_LIST_RULES. Not all versions of strace print their names.
        "0x3e8" | "0x3f5" | "AUDIT_GET" | "AUDIT_LIST_RULES" => true,
        other => other.starts_with("RTM_GET") || other.starts_with("NFNL_SUBSYS_") && other.contains("GET"),
    }
}

/// ETHTOOL_MSG_*_GET of include/uapi/linux/ethtool_netlink_generated.h (Linux 6.18).
const ETHTOOL_GETS: [u8; 22] =
    [1, 2, 4, 6, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 28, 29, 31, 32, 33, 34, 36, 38];

/// SIOCETHTOOL commands that only read (include/uapi/linux/ethtool.h, Linux 6.18).
pub(super) const ETHTOOL_IOCTL_GETS: [&str; 31] = [
    "0x1", "0x3", "0x4", "0x5", "0x7", "0xa", "0xe", "0x10", "0x12", "0x14", "0x16", "0x18", "0x1b", "0x1d",
    "0x1e", "0x20", "0x21", "0x23", "0x25", "0x27", "0x29", "0x2b", "0x2d", "0x2e", "0x2f", "0x30", "0x37",
    "0x38", "0x3a", "0x3c", "0x46",
];

fn command(arguments: &str) -> Option<u8> {
    let payload = arguments.split("}, \"\\x").nth(1)?;
    u8::from_str_radix(payload.get(..2)?, 16).ok()
}

#[test]
fn change_detects_only_system_calls_that_modify_the_host() {
    let reads = [
        r#"12 openat(AT_FDCWD, "\x2f\x73\x79\x73", O_RDONLY|O_CLOEXEC) = 3"#,
        r#"sendto(4, [{nlmsg_len=32, nlmsg_type=nlctrl, nlmsg_flags=NLM_F_REQUEST, nlmsg_seq=1, nlmsg_pid=0}, "\x03\x01\x00\x00"], 32, 0, NULL, 0) = 32"#,
        r#"sendto(4, [{nlmsg_len=36, nlmsg_type=ethtool, nlmsg_flags=NLM_F_REQUEST|NLM_F_ACK, nlmsg_seq=2, nlmsg_pid=0}, "\x0f\x01\x00\x00"], 36, 0, NULL, 0) = 36"#,
        "sendto(4, [{nlmsg_len=36, nlmsg_type=RTM_GETQDISC, nlmsg_flags=NLM_F_REQUEST|NLM_F_DUMP}, {}], 36, 0, NULL, 0) = 36",
        "sendto(4, {nlmsg_len=16, nlmsg_type=0x3e8 /* NLMSG_??? */, nlmsg_flags=NLM_F_REQUEST}, 16, 0, NULL, 0) = 16",
        "ioctl(4, SIOCETHTOOL, 0x7fffdfcb7f70) = 0",
        "bpf(BPF_PROG_QUERY, {query={target_fd=4}}, 64) = 0",
        "+++ exited with 1 +++",
    ];
    for line in reads {
        assert_eq!(change(line), None);
    }
    let changes = [
        r#"12 openat(AT_FDCWD, "\x2f\x70\x72\x6f\x63", O_WRONLY|O_TRUNC) = 3"#,
        r#"sendto(4, [{nlmsg_len=36, nlmsg_type=ethtool, nlmsg_flags=NLM_F_REQUEST|NLM_F_ACK, nlmsg_seq=2, nlmsg_pid=0}, "\x10\x01\x00\x00"], 36, 0, NULL, 0) = 36"#,
        r#"sendto(4, [{nlmsg_len=36, nlmsg_type=netdev, nlmsg_flags=NLM_F_REQUEST}, "\x0e\x01\x00\x00"], 36, 0, NULL, 0) = 36"#,
        "sendto(4, [{nlmsg_len=36, nlmsg_type=RTM_NEWQDISC, nlmsg_flags=NLM_F_REQUEST}, {}], 36, 0, NULL, 0) = 36",
        "sendto(4, [{nlmsg_len=36, nlmsg_type=NFNL_SUBSYS_NFTABLES<<8|NFT_MSG_DELTABLE, nlmsg_flags=NLM_F_REQUEST}, {}], 36, 0, NULL, 0) = 36",
        "sendto(4, {nlmsg_len=16, nlmsg_type=0x3e9 /* NLMSG_??? */, nlmsg_flags=NLM_F_REQUEST}, 16, 0, NULL, 0) = 16",
        "ioctl(4, SIOCSIFFLAGS, {ifr_name=\"eth0\"}) = 0",
        "bpf(BPF_LINK_CREATE, {link_create={}}, 64) = 0",
        "setsockopt(9, SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, {}, 16) = 0",
        "7 sched_setaffinity(4711, 128, [0]) = 8",
    ];
    for line in changes {
        assert_eq!(change(line), Some(line.to_owned()));
    }
}
