//! Aliases for the names of processes, virtual machines and control groups.

use std::collections::BTreeMap;

use crate::process::{IRQBALANCE, KNOWN_PROGRAMS};

// Prefixes of the names of systemd and of kernel threads. "vhost-" and "CPU " are threads of
// virtual machines.
const KNOWN_PREFIXES: [&str; 13] = [
    "systemd",
    "ksoftirqd",
    "kworker",
    "kthreadd",
    "migration",
    "rcu",
    "irq/",
    "napi/",
    "cpuhp",
    "idle_inject",
    "kauditd",
    "vhost-",
    "CPU ",
];

/// Programs whose whole command line decides findings and plans.
const KEPT_COMMAND_LINES: [&str; 2] = [IRQBALANCE, "auditd"];

/// Control groups that systemd has on every host (systemd.special(7)).
const STANDARD_GROUPS: [&str; 4] = ["system.slice", "user.slice", "machine.slice", "init.scope"];

/// Where control groups are directories.
const CGROUP_ROOT: &str = "/sys/fs/cgroup/";

/// Targets of descriptors from which doctor learns what a process has open.
const KNOWN_FILES: [&str; 5] = ["socket:[", "anon_inode:", "/dev/net/tun", "/dev/tap", "/dev/vhost"];

/// The target of a link. Links of processes lead to files whose names are private.
pub(super) fn replace_in_link(path: &str, target: &str) -> String {
    let is_known = !path.starts_with("/proc/")
        || path.contains("/ns/")
        || KNOWN_FILES.iter().any(|known| target.starts_with(known));
    if is_known { target.to_owned() } else { "file".to_owned() }
}

#[derive(Default)]
pub(super) struct NameAliases {
    processes: BTreeMap<String, String>,
    groups: BTreeMap<String, String>,
}

impl NameAliases {
    /// The path of a file. Files of control groups have the names of the groups in their paths.
    pub(super) fn replace_in_path(&mut self, path: String) -> String {
        match path.strip_prefix(CGROUP_ROOT).and_then(|below| below.rsplit_once('/')) {
            Some((group, file)) => format!("{CGROUP_ROOT}{}/{file}", self.group_path(group)),
            None => path,
        }
    }

    pub(super) fn replace_in_file(&mut self, path: &str, text: &str) -> String {
        let of_process = path.strip_prefix("/proc/").filter(|below| below.contains('/'));
        match of_process.and_then(|below| below.rsplit('/').next()) {
            Some("comm") => {
                let name = text.trim_end_matches('\n');
                format!("{}{}", self.alias_for(name), text.get(name.len()..).unwrap_or(""))
            }
            // The name is in parentheses, and may contain parentheses itself (proc_pid_stat(5)).
            Some("stat") => match (text.find('('), text.rfind(')')) {
                (Some(open), Some(close)) if open < close => {
                    let name = self.alias_for(&text[open + 1..close]);
                    format!("{}{name}{}", &text[..=open], &text[close..])
                }
                _ => text.to_owned(),
            },
            Some("status") => match text.strip_prefix("Name:\t").and_then(|rest| rest.split_once('\n')) {
                Some((name, rest)) => format!("Name:\t{}\n{rest}", self.alias_for(name)),
                None => text.to_owned(),
            },
            // doctor reads the line of cgroup v2.
            Some("cgroup") => match text.lines().find_map(|line| line.strip_prefix("0::")) {
                Some(group) => format!("0::{}\n", self.group_path(group)),
                None => String::new(),
            },
            Some("cmdline") => self.command_line(text),
            _ => text.to_owned(),
        }
    }

    /// Keeps the words that doctor and tune read, such as the name of a virtual machine.
    fn command_line(&mut self, text: &str) -> String {
        let mut words = text.split('\0');
        let program = words.next().and_then(|path| path.rsplit('/').next()).unwrap_or_default();
        if program.is_empty() || KEPT_COMMAND_LINES.contains(&program) {
            return text.to_owned();
        }
        let machine =
            words.skip_while(|word| *word != "-name").nth(1).and_then(|name| name.split(',').next());
        let mut line = format!("{}\0", self.alias_for(program));
        if let Some(name) = machine {
            line += &format!("-name\0{}\0", self.alias_for(name));
        }
        line
    }

    /// The path of a control group with an alias for each name. Aliases keep the type of the unit.
    fn group_path(&mut self, path: &str) -> String {
        let names = path.split('/').map(|name| {
            if matches!(name, "" | "..") || STANDARD_GROUPS.contains(&name) {
                return name.to_owned();
            }
            let unit = name.rfind('.').and_then(|dot| name.get(dot..));
            let unit = unit.filter(|unit| [".service", ".scope", ".slice"].contains(unit)).unwrap_or("");
            let next = self.groups.len() + 1;
            self.groups.entry(name.to_owned()).or_insert_with(|| format!("group-{next}{unit}")).clone()
        });
        names.collect::<Vec<_>>().join("/")
    }

    fn alias_for(&mut self, name: &str) -> String {
        if KNOWN_PROGRAMS.contains(&name) || KNOWN_PREFIXES.iter().any(|known| name.starts_with(known)) {
            return name.to_owned();
        }
        let next = self.processes.len() + 1;
        self.processes.entry(name.to_owned()).or_insert_with(|| format!("process-{next}")).clone()
    }
}
