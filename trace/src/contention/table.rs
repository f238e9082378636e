//! From counters to callers.

use std::collections::BTreeMap;

use linerate_host::Known;

use super::callers::callers;
use super::program::{ContentionCounts, WaitPlace};
use super::{LockContention, LockKind, WaitSite};
use crate::flame::spots::TABLE;
use crate::symbols::{KernelSymbols, source_name};

/// Part of the stack with paravirtual spinlocks, whose waits all pass the tracepoints.
const PARAVIRTUAL: &str = "__pv_queued_spin_lock_slowpath";

/// Adds up the counters of all CPUs.
pub(super) fn lock_report(
    counts: &ContentionCounts,
    symbols: &KernelSymbols,
    cpus: Vec<u32>,
    seconds: f64,
) -> LockContention {
    let stacks: BTreeMap<u32, Vec<String>> =
        counts.stacks.iter().map(|(id, addresses)| (*id, names(addresses, symbols))).collect();
    let mut locks: BTreeMap<(LockKind, Vec<String>), WaitSite> = BTreeMap::new();
    for place in counts.places.iter().filter(|place| cpus.contains(&place.cpu)) {
        let stack = place.stack.and_then(|id| stacks.get(&id)).map_or(&[][..], Vec::as_slice);
        let key = (kind(place.flags, stack), callers(stack));
        locks.entry(key).or_insert_with_key(|(lock, callers)| empty_site(*lock, callers)).add(place);
    }
    let mut locks: Vec<WaitSite> = locks.into_values().collect();
    locks.sort_by_key(|lock| std::cmp::Reverse(lock.waited_ns));
    let sum = |figure: &dyn Fn(&WaitSite) -> u64| locks.iter().map(figure).sum();
    LockContention {
        seconds,
        total_ns: sum(&|lock| lock.waited_ns),
        spinning_ns: sum(&|lock| if lock.lock.spins() { lock.waited_ns } else { 0 }),
        waits: sum(&|lock| lock.waits),
        missed: counts.missed,
        notes: notes(counts, symbols, &stacks, &locks),
        cpus,
        locks,
    }
}

fn names(addresses: &[u64], symbols: &KernelSymbols) -> Vec<String> {
    let name = |(depth, address): (usize, &u64)| {
        // Return addresses may be past the function's end, except the innermost address.
        let code_address = if depth == 0 { *address } else { address.saturating_sub(1) };
        match symbols.name(code_address) {
            Known::Value(symbol) => source_name(&symbol.name).to_owned(),
            Known::Unknown { .. } => format!("{address:#x}"),
        }
    };
    addresses.iter().enumerate().map(name).collect()
}

/// The spinlock within an rwlock counts as the rwlock.
fn kind(flags: u32, stack: &[String]) -> LockKind {
    let has_function = |name: &str| stack.iter().any(|function| function == name);
    match LockKind::from_flags(flags) {
        LockKind::Spinlock if has_function("queued_read_lock_slowpath") => LockKind::RwlockRead,
        LockKind::Spinlock if has_function("queued_write_lock_slowpath") => LockKind::RwlockWrite,
        lock => lock,
    }
}

fn empty_site(lock: LockKind, callers: &[String]) -> WaitSite {
    let spot = lock.spins().then(|| TABLE.of_lock(callers)).flatten().map(str::to_owned);
    let callers = callers.to_vec();
    WaitSite { callers, lock, waits: 0, waited_ns: 0, longest_ns: 0, by_cpu_ns: BTreeMap::new(), spot }
}

impl WaitSite {
    fn add(&mut self, place: &WaitPlace) {
        self.waits += place.waits;
        self.waited_ns += place.waited_ns;
        self.longest_ns = self.longest_ns.max(place.longest_ns);
        *self.by_cpu_ns.entry(place.cpu).or_default() += place.waited_ns;
    }
}

fn notes(
    counts: &ContentionCounts,
    symbols: &KernelSymbols,
    stacks: &BTreeMap<u32, Vec<String>>,
    locks: &[WaitSite],
) -> Vec<String> {
    let mut notes = Vec::new();
    let mut note = |text: String| notes.push(text);
    if let Some(why) = symbols.why_unknown() {
        note(format!("callers are addresses: {why}"));
    }
    let without_stack: u64 = counts.places.iter().filter(|p| p.stack.is_none()).map(|p| p.waits).sum();
    if without_stack > 0 {
        note(format!(
            "of {without_stack} waits the callers are not known: the kernel had no room for their stacks"
        ));
    }
    if counts.missed > 0 {
        note(format!(
            "{} beginnings or ends of waits were missed, which are not in the times",
            counts.missed
        ));
    }
    let paravirtual = stacks.values().flatten().any(|function| function == PARAVIRTUAL);
    if !locks.iter().any(|lock| lock.lock == LockKind::Spinlock) {
        note(
            "no wait for a spinlock was seen: in a virtual machine without paravirtual spinlocks the kernel spins where it has \
             no tracepoint (virt_spin_lock), and only the profile shows it"
                .to_owned(),
        );
    } else if !paravirtual {
        note(
            "the first CPU that waits for a spinlock does so without a tracepoint (kernel/locking/qspinlock.c, pending), only \
             those behind it are counted: the profile shows both"
                .to_owned(),
        );
    }
    notes
}
