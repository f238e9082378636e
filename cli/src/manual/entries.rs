//! What the manual says of each command that its `--help` does not.

/// What is said of a command.
#[derive(Debug, Clone, Copy)]
pub(super) struct ManualEntry {
    /// Its words after `linerate`.
    words: &'static str,
    /// What exit status 0 means.
    pub(super) fine: &'static str,
    /// What exit status 1 means; empty where there is none.
    pub(super) found: &'static str,
    /// What exit status 2 means.
    pub(super) failed: &'static str,
    /// Paths, and what is there.
    pub(super) files: &'static [(&'static str, &'static str)],
    /// Command lines, and what they are for.
    pub(super) examples: &'static [(&'static str, &'static str)],
    /// Other commands to look at, by their words, beside those above and below.
    pub(super) see: &'static [&'static str],
}

/// What is said of `words`; of a command that has no entry, what holds for all.
pub(super) fn find_entry(words: &str) -> &'static ManualEntry {
    ENTRIES.iter().find(|entry| entry.words == words).unwrap_or(&PLAIN)
}

/// The head of the document of exit statuses.
pub(super) const ABOUT_EXIT_STATUS: &str = "\
# Exit status

Written by `cargo xtask man` from `cli/src/manual/entries.rs`, as the manual pages are.

0 is fine, 1 that something was found, missed or left, 2 a mistake in the command line or an error while it ran. An error is one
line on standard error that begins with `linerate:`. Programs may rely on this: see [stability.md](stability.md).

A signal that ends the program, such as Ctrl-C where nothing is to be brought to an end, shows as 128 and its number in a shell.

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
    ("/var/lib/linerate/journal", "What tunes and boosts changed, and from what: what undo goes by.");
const CAPACITY_DOUBT: &str = "the server held what was asked of it, or no threshold was given";

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
            ("linerate doctor", "What is wrong with this host's packet path; changes nothing."),
            ("linerate lab --quick", "What each step of the ladder brings, without a network card."),
            ("linerate load 127.0.0.1:5353 --search", "The highest rate that a server holds."),
        ],
        files: &[JOURNAL],
        ..PLAIN
    },
    ManualEntry {
        words: "lab",
        fine: "climbed, or listed",
        failed: "an error; or the climb was interrupted, or something could not be put back, and what was measured is reported",
        examples: &[
            ("linerate lab --quick --steps reuseport,steer-by-cpu", "Two steps, in half of the time."),
            (
                "linerate lab --html ladder.html --json ladder.json",
                "The whole climb, with the report in two files.",
            ),
        ],
        files: &[
            ("/run/linerate", "State of labs that are up."),
            ("$XDG_RUNTIME_DIR/linerate", "The same of an ordinary user."),
        ],
        see: &["ladder", "calc"],
        ..PLAIN
    },
    ManualEntry {
        words: "lab up",
        fine: "the hosts are up",
        examples: &[(
            "linerate lab up work --queues 2 --senders 2",
            "A receiver with two queues, and two senders to it.",
        )],
        ..PLAIN
    },
    ManualEntry {
        words: "lab exec",
        fine: "as the command's own status",
        found: "as the command's own status, whatever it is",
        failed: "the same, or there is no such lab or host, or the command cannot be started",
        examples: &[(
            "linerate lab exec receiver -- ip -s link",
            "The counters of the receiver's interfaces.",
        )],
        ..PLAIN
    },
    ManualEntry {
        words: "lab down",
        fine: "removed",
        found: "something was left alone, and is named",
        ..PLAIN
    },
    ManualEntry {
        words: "lab clean",
        fine: "nothing is left",
        found: "something was left alone, and is named",
        ..PLAIN
    },
    ManualEntry {
        words: "ladder",
        fine: "climbed, and everything is put back",
        found: "the answer was no",
        failed: "an error; or the climb was interrupted, a generator was lost, or something could not be put back: `linerate \
                 tune undo` tries again",
        examples: &[(
            "linerate ladder --interface eth0 --from ssh://load1,ssh://load2 --quick",
            "Climb on eth0 with load from two hosts.",
        )],
        files: &[JOURNAL],
        see: &["tune undo", "load"],
    },
    ManualEntry {
        words: "serve echo",
        fine: "it served until it was stopped",
        examples: &[(
            "linerate serve echo --bind 127.0.0.1:5353 --duration 10",
            "Answer with what was asked, for ten seconds.",
        )],
        see: &["load"],
        ..PLAIN
    },
    ManualEntry {
        words: "serve dns",
        fine: "it served until it was stopped",
        examples: &[(
            "linerate serve dns --bind 127.0.0.1:5353 --zone example.com=example.com.zone",
            "Answer from a zone file.",
        )],
        ..PLAIN
    },
    ManualEntry {
        words: "serve ntp",
        fine: "it served until it was stopped",
        examples: &[("linerate serve ntp --bind 127.0.0.1:1123", "Tell the time of this machine's clock.")],
        ..PLAIN
    },
    ManualEntry {
        words: "serve radius",
        fine: "it served until it was stopped",
        examples: &[(
            "linerate serve radius --bind 127.0.0.1:1812 --users users.toml",
            "Let in whom the file names.",
        )],
        ..PLAIN
    },
    ManualEntry {
        words: "load",
        fine: CAPACITY_DOUBT,
        found: "a threshold was missed (`--max-loss`, `--max-p99`, ...), or nothing held",
        examples: &[
            (
                "linerate load 127.0.0.1:5353 --rate 50k --duration 10 --max-loss 0.1% --max-p99 1ms",
                "Whether a server holds a rate.",
            ),
            ("linerate load 127.0.0.1:5353 --search --json capacity.json", "The highest rate that it holds."),
        ],
        see: &["lab", "drops", "calc"],
        ..PLAIN
    },
    ManualEntry {
        words: "load merge",
        fine: "merged",
        examples: &[(
            "linerate load merge a.json b.json",
            "What two generators found at the same time, as one result.",
        )],
        ..PLAIN
    },
    ManualEntry {
        words: "doctor",
        fine: "no finding at or over `--fail-on` (`low` unless given)",
        found: "findings at or over it",
        examples: &[
            (
                "linerate doctor --port 53 --watch 5",
                "The service on port 53, with the rates of five seconds.",
            ),
            ("linerate doctor --explain rss.queues", "What a finding means, and what fixes it."),
        ],
        see: &["tune", "drops", "flame"],
        ..PLAIN
    },
    ManualEntry {
        words: "doctor capture",
        fine: "written",
        examples: &[
            ("linerate doctor capture host.tar.zst", "All that doctor reads of this host, in a file."),
            ("linerate doctor --root host.tar.zst", "Judge it on another one."),
        ],
        ..PLAIN
    },
    ManualEntry {
        words: "tune",
        fine: "a plan, also an empty one",
        files: &[JOURNAL],
        examples: &[
            ("linerate tune --interface eth0", "What would be changed, and why; changes nothing."),
            (
                "linerate tune apply --interface eth0 --until-confirmed 60s",
                "Change it, and undo it unless confirmed.",
            ),
            ("linerate tune undo", "Put every setting back."),
        ],
        see: &["doctor", "boost"],
        ..PLAIN
    },
    ManualEntry {
        words: "tune plan",
        fine: "a plan, also an empty one",
        examples: &[(
            "linerate tune plan --for low-latency --json plan.json",
            "A plan to edit, then to apply.",
        )],
        ..PLAIN
    },
    ManualEntry {
        words: "tune apply",
        fine: "all changes made",
        found: "made, and something of what they were to fix is still found above note; or the answer was no; or it was undone \
                while it waited for a confirmation",
        failed: "refused or broken off, nothing or a part made: `linerate tune status` tells",
        files: &[JOURNAL],
        examples: &[("linerate tune apply --plan plan.json --yes", "Carry out a plan, unasked.")],
        see: &["tune undo", "tune status"],
    },
    ManualEntry {
        words: "tune status",
        fine: "nothing open, or all in force",
        found: "drift, a tune that did not come to its end, an overdue one, a damaged journal",
        files: &[JOURNAL],
        ..PLAIN
    },
    ManualEntry {
        words: "tune undo",
        fine: "all as before",
        found: "something was left: drift, gone, or lost with a damaged line of the journal",
        failed: "something was refused; ask again",
        files: &[JOURNAL],
        ..PLAIN
    },
    ManualEntry { words: "tune confirm", fine: "it stays", files: &[JOURNAL], ..PLAIN },
    ManualEntry {
        words: "tune persist",
        fine: "written",
        found: "the answer was no; a file was left",
        files: &[
            ("/etc/sysctl.d/90-linerate.conf", "Sysctls that are to last."),
            ("/etc/linerate/tune.json", "All other settings that are to last."),
            (
                "/etc/systemd/system/linerate-tune.service, linerate-tune@.service",
                "What puts them in force at boot, and when an interface appears.",
            ),
        ],
        examples: &[("linerate tune persist", "Show what would be written, ask, and write it.")],
        see: &["tune unpersist"],
        ..PLAIN
    },
    ManualEntry {
        words: "tune unpersist",
        fine: "removed",
        found: "the answer was no; a file was left, since somebody changed it",
        see: &["tune persist"],
        ..PLAIN
    },
    ManualEntry { words: "tune history", fine: "listed", files: &[JOURNAL], ..PLAIN },
    ManualEntry {
        words: "tune profiles",
        fine: "listed, or printed",
        examples: &[("linerate tune profiles udp-server", "Print a profile, to be copied and changed.")],
        ..PLAIN
    },
    ManualEntry {
        words: "boost",
        fine: "`plan`: a plan, also an empty one; `apply`: packets land as planned, or too few came to tell, or it was so already; \
               `status`: all as it was left; `undo`: all as before, but for threads and sockets that ended",
        found: "`apply`: packets land elsewhere, nothing can be done from outside, the answer was no, or it was undone while it \
                waited for a confirmation; `status`: drift, a socket that is gone or that nobody reads, or changes that would put \
                it right; `undo`: something was left, since somebody else changed it",
        failed: "an error; `apply`: refused or broken off, `status` tells; `undo`: something was refused, ask again",
        files: &[JOURNAL],
        examples: &[
            ("linerate boost --port 53", "A server as it runs, and what would be changed."),
            ("linerate boost apply --port 53 --watch", "Do it, and keep it right while workers come and go."),
        ],
        see: &["tune", "doctor"],
    },
    ManualEntry {
        words: "cost",
        fine: "looked, or compared",
        examples: &[
            ("linerate cost --duration 10 --by cgroup", "What packets take from each container."),
            ("linerate cost --compare before.json after.json", "Two network solutions side by side."),
        ],
        see: &["flame", "drops"],
        ..PLAIN
    },
    ManualEntry {
        words: "drops",
        fine: "nothing was lost and the books balance",
        found: "something was lost or is unaccounted for",
        failed: "it could not be counted, or COMMAND failed",
        examples: &[
            ("linerate drops --port 53 --watch", "Each second what was lost in it, by name."),
            (
                "linerate drops --port 5353 --load load.json -- linerate load 127.0.0.1:5353 --json load.json",
                "The books of a run, with what its generator says.",
            ),
        ],
        see: &["load", "doctor"],
        ..PLAIN
    },
    ManualEntry {
        words: "flame",
        fine: "looked, or compared",
        found: "`--svg` or `--folded` was asked for and no sample is to be shown, so that no file was written",
        examples: &[
            ("linerate flame --svg flame.svg", "Hot spots of the packet path, with a graph to zoom in."),
            ("linerate flame --diff before.json after.json", "What a change moved."),
        ],
        see: &["cost"],
        ..PLAIN
    },
    ManualEntry {
        words: "top",
        examples: &[
            ("linerate top --port 53", "The path of the service on port 53, live; `?` tells the keys."),
            ("linerate top --once --json", "One picture, of one second, for a program."),
            ("linerate top --record night.jsonl", "Keep every picture; `--replay night.jsonl` plays them."),
        ],
        see: &["doctor", "drops", "export"],
        ..PLAIN
    },
    ManualEntry {
        words: "export",
        fine: "written, or ended by a signal",
        files: &[
            ("/etc/default/linerate-export", "Options of linerate-export.service."),
            ("/usr/share/linerate", "A dashboard for Grafana, and alert rules for Prometheus."),
        ],
        examples: &[
            ("linerate export --listen 127.0.0.1:9853", "Answer Prometheus on this address."),
            ("linerate export --once", "What it would answer."),
        ],
        see: &["top", "doctor"],
        ..PLAIN
    },
    ManualEntry {
        words: "report",
        fine: "joined",
        failed: "no result to join, or an error",
        examples: &[("linerate report runs --html report.html", "All results in a directory as one page.")],
        see: &["doctor", "load", "lab"],
        ..PLAIN
    },
    ManualEntry {
        words: "calc",
        examples: &[("linerate calc --payload 100 --link 10G", "What a link can carry of such payloads.")],
        ..PLAIN
    },
    ManualEntry {
        words: "completions",
        fine: "printed",
        examples: &[(
            "linerate completions bash",
            "Print what bash sources; packages have it installed where shells look for it.",
        )],
        ..PLAIN
    },
];
