//! Files that are missing, empty, cut short or garbled: what they would have told is unknown, and nothing is made up.

use std::collections::{BTreeMap, BTreeSet};

use linerate_host::{Diagnosis, PacketPath, Scope, Severity};
use linerate_specimen::{Node, Tree};
use proptest::prelude::*;

use crate::{judge, known, observe, trees};

/// What can become of a file.
#[derive(Debug, Clone, Copy)]
enum Damage {
    Deleted,
    Emptied,
    /// All after this part of it, in thousandths, is lost.
    Cut(usize),
    Garbled,
}

impl Damage {
    fn apply(self, tree: &mut Tree, path: &str) {
        let Some(Node::File(content)) = tree.get(path) else { return };
        let damaged = match self {
            Damage::Deleted => {
                tree.remove(path);
                return;
            }
            Damage::Emptied => String::new(),
            Damage::Cut(part) => content[..content.len() * part / 1000].to_owned(),
            Damage::Garbled => "\u{fffd}?? \0 garbled".to_owned(),
        };
        tree.file(path, damaged);
    }
}

/// A specimen's readings, whole, and what is found in them.
struct Whole {
    trees: Vec<Tree>,
    state: String,
    diagnosis: Diagnosis,
}

impl Whole {
    fn of(name: &str) -> Self {
        let trees = trees(&known(name));
        let states: Vec<PacketPath> = trees.iter().map(|tree| observe(tree, &Scope::default())).collect();
        Self { trees, state: json(&states[0]), diagnosis: judge(&states) }
    }

    /// What is found with the file damaged in all readings; none if it makes no difference to what is read.
    fn damaged(&self, path: &str, damage: Damage) -> Option<Diagnosis> {
        let read = |tree: &Tree| {
            let mut tree = tree.clone();
            damage.apply(&mut tree, path);
            observe(&tree, &Scope::default())
        };
        let first = read(&self.trees[0]);
        if json(&first) == self.state {
            return None;
        }
        let states: Vec<PacketPath> =
            std::iter::once(first).chain(self.trees.iter().skip(1).map(read)).collect();
        Some(judge(&states))
    }

    /// Of files whose paths differ in numbers only, the first.
    fn files(&self) -> Vec<&str> {
        let mut seen = BTreeSet::new();
        let files =
            self.trees[0].entries().filter(|(_, node)| matches!(node, Node::File(_))).map(|(path, _)| path);
        files.filter(|path| seen.insert(pattern(path))).collect()
    }

    fn is_table(&self, path: &str) -> bool {
        matches!(self.trees[0].get(path), Some(Node::File(content)) if content.lines().count() > 1)
    }
}

fn json(state: &PacketPath) -> String {
    serde_json::to_string(state).expect("a state")
}

/// The worst of each kind of finding.
fn worst(diagnosis: &Diagnosis) -> BTreeMap<&'static str, Severity> {
    diagnosis.findings.iter().rev().map(|finding| (finding.id, finding.severity)).collect()
}

/// Paths, with a star for each number and interface, that may be gone without a word, and why.
const MAY_BE_MISSING: &[(&str, &str)] = &[
    ("/proc/*/cmdline", "the process ended"),
    ("/proc/*/comm", "the process ended"),
    ("/proc/*/task/*/stat", "the thread ended"),
    ("/proc/*/task/*/syscall", "the thread is then said to be assumed to serve"),
    ("/proc/modules", "a kernel without modules"),
    ("/proc/net/ip_tables_names", "iptables is not loaded"),
    ("/proc/sys/net/core/netdev_budget_usecs", "before Linux 4.12"),
    ("/proc/sys/net/core/rps_sock_flow_entries", "a kernel without RPS"),
    ("/proc/sys/net/ipv4/udp_early_demux", "before Linux 4.12"),
    ("/sys/class/net/IF/device/msi_irqs/*", "interrupts are told by their names too"),
    ("/sys/class/net/IF/device/sriov_totalvfs", "a device without virtual functions"),
    ("/sys/class/net/IF/gro_flush_timeout", "before Linux 3.19"),
    ("/sys/class/net/IF/napi_defer_hard_irqs", "before Linux 5.8"),
    ("/sys/class/net/IF/queues/tx-*/byte_queue_limits/limit", "a kernel without BQL"),
    ("/sys/class/net/IF/queues/tx-*/xps_cpus", "a kernel without XPS"),
    ("/sys/class/net/IF/queues/tx-*/xps_rxqs", "before Linux 4.18"),
    ("/sys/class/net/IF/threaded", "before Linux 5.12"),
    ("/sys/devices/system/cpu/cpu*/cpufreq/scaling_driver", "no frequency scaling"),
    ("/sys/devices/system/cpu/cpu*/cpufreq/scaling_governor", "no frequency scaling"),
    ("/sys/devices/system/cpu/smt/control", "before Linux 4.19"),
];

/// Paths whose content may be anything, none included.
const FREE_TEXT: &[&str] = &[
    "/proc/*/cmdline",
    "/proc/*/comm",
    // A call that is not told is one of a thread assumed to serve.
    "/proc/*/task/*/syscall",
    "/proc/modules",
    "/proc/net/ip_tables_names",
    "/sys/class/dmi/id/product_name",
    "/sys/class/dmi/id/sys_vendor",
    "/sys/devices/system/cpu/cpu*/cpufreq/scaling_driver",
    "/sys/devices/system/cpu/cpu*/cpufreq/scaling_governor",
    "/sys/devices/system/cpu/smt/control",
];

/// Answers that are also to be had elsewhere: the driver's name in sysfs, sockets in `/proc/net`.
const TOLD_ELSEWHERE: &[&str] = &["/calls/ethtool/IF/driver.json", "/calls/sock_diag/"];

/// The path with a star for each number, and `IF` for the interface of these specimens.
fn pattern(path: &str) -> String {
    let path = ["ens1f0", "eth2", "ens3"].iter().fold(path.to_owned(), |path, name| path.replace(name, "IF"));
    let mut pattern = String::new();
    for letter in path.chars() {
        match letter {
            '0'..='9' if pattern.ends_with('*') => {}
            '0'..='9' => pattern.push('*'),
            other => pattern.push(other),
        }
    }
    pattern
}

fn may_go_untold(path: &str, damage: Damage) -> bool {
    let pattern = pattern(path);
    let listed = match damage {
        // A directory of statistics holds what the kernel counts.
        Damage::Deleted if pattern.starts_with("/sys/class/net/IF/statistics/") => true,
        Damage::Deleted => MAY_BE_MISSING.iter().any(|(known, _)| self::pattern(known) == pattern),
        _ => FREE_TEXT.contains(&pattern.as_str()),
    };
    listed || TOLD_ELSEWHERE.iter().any(|known| pattern.starts_with(known))
}

/// What is wrong with what is found in a damaged specimen; none where nothing is.
fn complaint(whole: &Whole, path: &str, damage: Damage) -> Option<String> {
    let diagnosis = whole.damaged(path, damage)?;
    let told = diagnosis.unknown.iter().any(|unknown| {
        let names = unknown.why.contains(path);
        names || (path.starts_with("/calls/") && !whole.diagnosis.unknown.contains(unknown))
    });
    let new = found_only_now(whole, &diagnosis, path);
    let untold = !told && !may_go_untold(path, damage);
    (untold || !new.is_empty())
        .then(|| format!("{path} {damage:?}: told of: {told}, found only now: {new:?}"))
}

/// What is found, or found to be worse, for the damage alone. A thread that ended is none that shares a socket.
fn found_only_now(whole: &Whole, diagnosis: &Diagnosis, path: &str) -> Vec<(&'static str, Severity)> {
    let before = worst(&whole.diagnosis);
    let ended = pattern(path) == "/proc/*/task/*/stat";
    let is_new =
        |(id, severity): &(&'static str, Severity)| before.get(id).is_none_or(|known| known < severity);
    worst(diagnosis)
        .into_iter()
        .filter(is_new)
        .filter(|(id, _)| !(ended && id.starts_with("socket.")))
        .collect()
}

fn complaints(name: &str) -> Vec<String> {
    const DAMAGES: [Damage; 4] = [Damage::Deleted, Damage::Emptied, Damage::Garbled, Damage::Cut(500)];
    let whole = Whole::of(name);
    let mut complaints = Vec::new();
    for path in whole.files() {
        // A value that is cut short is another value.
        let damages =
            DAMAGES.iter().filter(|damage| whole.is_table(path) || !matches!(damage, Damage::Cut(_)));
        complaints.extend(damages.filter_map(|damage| complaint(&whole, path, *damage)));
    }
    complaints
}

#[test]
fn what_a_damaged_file_of_an_old_kernel_would_have_told_is_unknown() {
    let complaints = complaints("makita-2016");
    assert!(complaints.is_empty(), "{} complaints:\n{}", complaints.len(), complaints.join("\n"));
}

#[test]
fn what_a_damaged_file_of_a_newer_kernel_would_have_told_is_unknown() {
    let complaints = complaints("small-vm");
    assert!(complaints.is_empty(), "{} complaints:\n{}", complaints.len(), complaints.join("\n"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn tables_cut_anywhere_make_nothing_up(table in any::<prop::sample::Index>(), part in 0_usize..1000) {
        thread_local!(static WHOLE: Whole = Whole::of("million-packets"));
        WHOLE.with(|whole| {
            let files = whole.files();
            let tables: Vec<&str> = files.into_iter().filter(|path| whole.is_table(path)).collect();
            let path = table.get(&tables);
            let new = whole.damaged(path, Damage::Cut(part)).map(|diagnosis| found_only_now(whole, &diagnosis, path));
            prop_assert!(new.as_ref().is_none_or(Vec::is_empty), "{} cut at {}: {:?}", path, part, new);
            Ok(())
        })?;
    }
}
