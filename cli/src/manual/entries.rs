//! Sections of the manual pages that `--help` does not have: exit status, files, examples, see also.

#[derive(Debug, Clone, Copy)]
pub(super) struct ManualEntry {
    /// Its words after `linerate`.
    words: &'static str,
    /// Meaning of exit status 0.
    pub(super) fine: &'static str,
    /// Meaning of exit status 1; empty if the command never ends with it.
    pub(super) found: &'static str,
    /// Meaning of exit status 2.
    pub(super) failed: &'static str,
    /// Paths and their contents.
    pub(super) files: &'static [(&'static str, &'static str)],
    /// Command lines and their purpose.
    pub(super) examples: &'static [(&'static str, &'static str)],
    /// Related commands, besides the parent and the subcommands.
    pub(super) see: &'static [&'static str],
}

/// The entry of a command, or the default.
pub(super) fn find_entry(words: &str) -> &'static ManualEntry {
    ENTRIES.iter().find(|entry| entry.words == words).unwrap_or(&PLAIN)
}

pub(super) const ABOUT_EXIT_STATUS: &str = "\
# Exit status

Generated from `cli/src/manual/entries.rs`.

| status | meaning |
|---|---|
| 0 | success |
| 1 | a finding, a missed threshold, or a setting that was left |
| 2 | a mistake in the command line, or an error |
| 128 + N | ended by signal N |

An error is one line on standard error that begins with `linerate:`. Your scripts may rely on these
statuses: see [stability.md](stability.md).

| command | 0 | 1 | 2 |
|---|---|---|---|
";

const PLAIN: ManualEntry = ManualEntry {
    words: "",
    fine: "done",
    found: "",
    failed: "an error",
    files: &[],
    examples: &[],
    see: &[],
};

const JOURNAL: (&str, &str) =
    ("/var/lib/linerate/journal", "All changes of tunes and boosts with the original values, for undo.");
const LOAD_FINE: &str = "all thresholds met, or none given";

#[cfg(test)]
pub(super) fn all() -> &'static [ManualEntry] {
    ENTRIES
}

#[cfg(test)]
impl ManualEntry {
    pub(super) fn words(&self) -> &'static str {
        self.words
    }
}

const ENTRIES: &[ManualEntry] = &[
    ManualEntry {
        words: "",
        examples: &[
            ("linerate doctor", "List problems of this host's packet path; changes nothing."),
            ("linerate lab --quick", "Measure each step of the ladder without a network card."),
            ("linerate load 127.0.0.1:5353 --search", "Find the highest rate that a server sustains."),
        ],
        files: &[JOURNAL],
        ..PLAIN
    },
    ManualEntry {
        words: "lab",
        fine: "measured, or listed",
        failed: "an error; or the run was interrupted or a setting could not be restored, and the results so far are reported",
        examples: &[
            ("linerate lab --quick --steps reuseport,steer-by-cpu", "Measure two steps in short form."),
            (
                "linerate lab --html ladder.html --json ladder.json",
                "Measure all steps and write the report to two files.",
            ),
        ],
        files: &[
            ("/run/linerate", "State of running labs."),
            ("$XDG_RUNTIME_DIR/linerate", "The same for an ordinary user."),
        ],
        see: &["ladder", "calc"],
        ..PLAIN
    },
    ManualEntry {
        words: "lab up",
        fine: "the lab is up",
        examples: &[(
            "linerate lab up work --queues 2 --senders 2",
            "Make a receiver with two queues, and two senders.",
        )],
        ..PLAIN
    },
    ManualEntry {
        words: "lab exec",
        fine: "the status of the command",
        found: "the status of the command",
        failed: "the status of the command; or no such lab or host, or the command cannot be started",
        examples: &[(
            "linerate lab exec receiver -- ip -s link",
            "Print the counters of the receiver's interfaces.",
        )],
        ..PLAIN
    },
    ManualEntry { words: "lab down", fine: "removed", found: "something was left, and is named", ..PLAIN },
    ManualEntry {
        words: "lab clean",
        fine: "nothing is left",
        found: "something was left, and is named",
        ..PLAIN
    },
    ManualEntry {
        words: "ladder",
        fine: "measured, and everything restored",
        found: "you answered no",
        failed: "an error; or the run was interrupted, a generator was lost, or a setting could not be restored: \
                 `linerate tune undo` tries again",
        examples: &[(
            "linerate ladder --interface eth0 --from ssh://load1,ssh://load2 --quick",
            "Measure on eth0 with load from two hosts.",
        )],
        files: &[JOURNAL],
        see: &["tune undo", "load"],
    },
    ManualEntry {
        words: "serve echo",
        fine: "served until it was stopped",
        examples: &[(
            "linerate serve echo --bind 127.0.0.1:5353 --duration 10",
            "Echo requests for ten seconds.",
        )],
        see: &["load"],
        ..PLAIN
    },
    ManualEntry {
        words: "serve dns",
        fine: "served until it was stopped",
        examples: &[(
            "linerate serve dns --bind 127.0.0.1:5353 --zone example.com=example.com.zone",
            "Serve a zone file.",
        )],
        ..PLAIN
    },
    ManualEntry {
        words: "serve ntp",
        fine: "served until it was stopped",
        examples: &[("linerate serve ntp --bind 127.0.0.1:1123", "Serve the time of this host's clock.")],
        ..PLAIN
    },
    ManualEntry {
        words: "serve radius",
        fine: "served until it was stopped",
        examples: &[(
            "linerate serve radius --bind 127.0.0.1:1812 --users users.toml",
            "Authenticate the users in a file.",
        )],
        ..PLAIN
    },
    ManualEntry {
        words: "load",
        fine: LOAD_FINE,
        found: "a threshold was missed (`--max-loss`, `--max-p99`, ...), or no rate was sustained",
        examples: &[
            (
                "linerate load 127.0.0.1:5353 --rate 50k --duration 10 --max-loss 0.1% --max-p99 1ms",
                "Check that a server sustains a rate.",
            ),
            (
                "linerate load 127.0.0.1:5353 --search --json capacity.json",
                "Find the highest rate that it sustains.",
            ),
        ],
        see: &["lab", "drops", "calc"],
        ..PLAIN
    },
    ManualEntry {
        words: "load merge",
        fine: "merged",
        examples: &[(
            "linerate load merge a.json b.json",
            "Merge the results of two generators that ran at the same time.",
        )],
        ..PLAIN
    },
    ManualEntry {
        words: "doctor",
        fine: "no finding at or above `--fail-on` (default `low`)",
        found: "a finding at or above it",
        examples: &[
            (
                "linerate doctor --port 53 --watch 5",
                "Diagnose the service on port 53 with the rates of five seconds.",
            ),
            ("linerate doctor --explain rss.queue-imbalance", "Explain a finding and its fix."),
        ],
        see: &["tune", "drops", "flame"],
        ..PLAIN
    },
    ManualEntry {
        words: "doctor capture",
        fine: "written",
        examples: &[
            ("linerate doctor capture host.tar.zst", "Save everything that doctor reads of this host."),
            ("linerate doctor --root host.tar.zst", "Diagnose that host on another one."),
        ],
        ..PLAIN
    },
    ManualEntry {
        words: "tune",
        fine: "a plan, which may be empty",
        files: &[JOURNAL],
        examples: &[
            ("linerate tune --interface eth0", "Show a plan with its reasons; changes nothing."),
            (
                "linerate tune apply --interface eth0 --until-confirmed 60s",
                "Apply it, and undo it unless you confirm.",
            ),
            ("linerate tune undo", "Restore every setting."),
        ],
        see: &["doctor", "boost"],
        ..PLAIN
    },
    ManualEntry {
        words: "tune plan",
        fine: "a plan, which may be empty",
        examples: &[(
            "linerate tune plan --for low-latency --json plan.json",
            "Write a plan to edit and apply.",
        )],
        ..PLAIN
    },
    ManualEntry {
        words: "tune apply",
        fine: "all changes made",
        found: "changes made, but a finding that they should fix remains above note; or you answered no; or undone \
                while waiting for confirmation",
        failed: "refused or stopped: `linerate tune status` lists the changes made",
        files: &[JOURNAL],
        examples: &[("linerate tune apply --plan plan.json --yes", "Apply a plan without a prompt.")],
        see: &["tune undo", "tune status"],
    },
    ManualEntry {
        words: "tune status",
        fine: "nothing open, or all changes in effect",
        found: "drift, an unfinished or overdue tune, a damaged journal",
        files: &[JOURNAL],
        ..PLAIN
    },
    ManualEntry {
        words: "tune undo",
        fine: "everything as before",
        found: "a setting was left: drift, gone, or lost with a damaged line of the journal",
        failed: "a change was refused; run it again",
        files: &[JOURNAL],
        ..PLAIN
    },
    ManualEntry { words: "tune confirm", fine: "confirmed", files: &[JOURNAL], ..PLAIN },
    ManualEntry {
        words: "tune persist",
        fine: "written",
        found: "you answered no, or a file was left",
        files: &[
            ("/etc/sysctl.d/90-linerate.conf", "Persistent sysctls."),
            ("/etc/linerate/tune.json", "All other persistent settings."),
            (
                "/etc/systemd/system/linerate-tune.service, linerate-tune@.service",
                "Units that apply them at boot and when an interface appears.",
            ),
        ],
        examples: &[("linerate tune persist", "Show the files, ask, and write them.")],
        see: &["tune unpersist"],
        ..PLAIN
    },
    ManualEntry {
        words: "tune unpersist",
        fine: "removed",
        found: "you answered no, or a file was left because it was changed since",
        see: &["tune persist"],
        ..PLAIN
    },
    ManualEntry { words: "tune history", fine: "listed", files: &[JOURNAL], ..PLAIN },
    ManualEntry {
        words: "tune profiles",
        fine: "listed, or printed",
        examples: &[("linerate tune profiles udp-server", "Print a profile to copy and edit.")],
        ..PLAIN
    },
    ManualEntry {
        words: "boost",
        fine: "`plan`: a plan, which may be empty; `apply`: verified, or too little traffic to verify, or nothing to change; \
               `status`: all as applied; `undo`: everything as before, except threads and sockets that ended",
        found: "`apply`: datagrams are read elsewhere, harm that was undone, nothing can be done from outside, you answered \
                no, or undone while waiting for confirmation; `status`: drift, a socket that is gone or not read, or changes \
                that would correct it; `undo`: a setting was left because something else changed it",
        failed: "an error; `apply`: refused or stopped, see `status`; `undo`: a change was refused, run it again",
        files: &[JOURNAL],
        examples: &[
            ("linerate boost --port 53", "Show a running server and the plan."),
            (
                "linerate boost apply --port 53 --watch",
                "Apply the plan, and follow workers that die or are added.",
            ),
        ],
        see: &["tune", "doctor"],
    },
    ManualEntry {
        words: "cost",
        fine: "measured, or compared",
        examples: &[
            (
                "linerate cost --duration 10 --by cgroup",
                "Show the CPU time that packets take from each container.",
            ),
            ("linerate cost --compare before.json after.json", "Compare two results."),
        ],
        see: &["flame", "drops"],
        ..PLAIN
    },
    ManualEntry {
        words: "drops",
        fine: "no loss, and nothing unaccounted",
        found: "a loss, or unaccounted packets",
        failed: "counting failed, or COMMAND failed",
        examples: &[
            ("linerate drops --port 53 --watch", "Print losses by name, every second."),
            (
                "linerate drops --port 5353 --load load.json -- linerate load 127.0.0.1:5353 --json load.json",
                "Account for all packets of a load test.",
            ),
        ],
        see: &["load", "doctor"],
        ..PLAIN
    },
    ManualEntry {
        words: "flame",
        fine: "measured, or compared",
        found: "`--svg` or `--folded` without a sample, so no file was written",
        examples: &[
            ("linerate flame --svg flame.svg", "Write a flame graph of the packet path."),
            ("linerate flame --diff before.json after.json", "Compare two profiles."),
        ],
        see: &["cost"],
        ..PLAIN
    },
    ManualEntry {
        words: "top",
        examples: &[
            ("linerate top --port 53", "Watch the path of the service on port 53; `?` lists the keys."),
            ("linerate top --once --json", "Print one snapshot, of one second, as JSON."),
            ("linerate top --record night.jsonl", "Record all snapshots; `--replay night.jsonl` shows them."),
        ],
        see: &["doctor", "drops", "export"],
        ..PLAIN
    },
    ManualEntry {
        words: "export",
        fine: "written, or stopped by a signal",
        files: &[
            ("/etc/default/linerate-export", "Options of linerate-export.service."),
            ("/usr/share/linerate", "Grafana dashboard and Prometheus alert rules."),
        ],
        examples: &[
            ("linerate export --listen 127.0.0.1:9853", "Serve metrics on this address."),
            ("linerate export --once", "Print the metrics."),
        ],
        see: &["top", "doctor"],
        ..PLAIN
    },
    ManualEntry {
        words: "report",
        fine: "joined",
        failed: "no result to join, or an error",
        examples: &[(
            "linerate report runs --html report.html",
            "Join all results of a directory on one page.",
        )],
        see: &["doctor", "load", "lab"],
        ..PLAIN
    },
    ManualEntry {
        words: "calc",
        examples: &[("linerate calc --payload 100 --link 10G", "Print the rates that a link can carry.")],
        ..PLAIN
    },
    ManualEntry {
        words: "completions",
        fine: "printed",
        examples: &[(
            "linerate completions bash",
            "Print the completion script for bash; packages install it.",
        )],
        ..PLAIN
    },
];
