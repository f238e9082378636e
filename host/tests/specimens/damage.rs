//! Files that are missing, empty, cut short or garbled: what they would have told is unknown, and nothing is made up.

use std::collections::{BTreeMap, BTreeSet};

use linerate_host::{Diagnosis, PacketPath, Scope, Severity};
use linerate_testkit::specimen::{Node, Tree};
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
    let new = found_only_now(whole, &diagnosis);
    let untold = !told && !may_go_untold(path, damage);
    (untold || !new.is_empty())
        .then(|| format!("{path} {damage:?}: told of: {told}, found only now: {new:?}"))
}

/// What is found above a note, or found to be worse, for the damage alone.
fn found_only_now(whole: &Whole, diagnosis: &Diagnosis) -> Vec<(&'static str, Severity)> {
    let (before, after) = (worst(&whole.diagnosis), worst(diagnosis));
    // Where it is not known that threads share the one socket, there is still only one.
    let stands_in =
        |id: &str| id == "socket.group-below-queues" && !after.contains_key("socket.shared-by-threads");
    let is_new = |(id, severity): &(&&'static str, &Severity)| {
        **severity > Severity::Note
            && before.get(**id).is_none_or(|known| known < *severity)
            && !stands_in(id)
    };
    after.iter().filter(is_new).map(|(id, severity)| (*id, *severity)).collect()
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

// Nothing above a note is found on it: whatever is, is an alarm for nothing.
thread_local! {
    static WHOLE: Whole = Whole::of("makita-2016-fixed");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn any_file_damaged_anyhow_makes_nothing_up(file in any::<prop::sample::Index>(), damage in damage()) {
        WHOLE.with(|whole| {
            let files: Vec<&str> = whole.trees[0].entries().map(|(path, _)| path).collect();
            let path = file.get(&files);
            // A value that is cut short is another value.
            prop_assume!(whole.is_table(path) || !matches!(damage, Damage::Cut(_)));
            let new = whole.damaged(path, damage).map(|diagnosis| found_only_now(whole, &diagnosis));
            prop_assert!(new.as_ref().is_none_or(Vec::is_empty), "{} {:?}: {:?}", path, damage, new);
            Ok(())
        })?;
    }

    #[test]
    fn a_directory_that_is_missing_makes_nothing_up(file in any::<prop::sample::Index>(), depth in 1_usize..8) {
        WHOLE.with(|whole| {
            let files: Vec<&str> = whole.trees[0].entries().map(|(path, _)| path).collect();
            let path = file.get(&files);
            let Some((end, _)) = path.match_indices('/').nth(depth) else { return Ok(()) };
            // Without its directory a queue, CPU, process or thread is one that is not there.
            prop_assume!(!path[..end].ends_with(|letter: char| letter.is_ascii_digit()));
            let states: Vec<PacketPath> =
                whole.trees.iter().map(|tree| observe(&without(tree, &path[..=end]), &Scope::default())).collect();
            let new = found_only_now(whole, &judge(&states));
            prop_assert!(new.is_empty(), "without {}: {:?}", &path[..=end], new);
            Ok(())
        })?;
    }
}

fn damage() -> impl Strategy<Value = Damage> {
    prop_oneof![
        Just(Damage::Deleted),
        Just(Damage::Emptied),
        Just(Damage::Garbled),
        (0_usize..1000).prop_map(Damage::Cut),
    ]
}

fn without(tree: &Tree, directory: &str) -> Tree {
    let mut rest = tree.clone();
    for (path, _) in tree.entries().filter(|(path, _)| path.starts_with(directory)) {
        rest.remove(path);
    }
    rest
}
