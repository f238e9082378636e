//! Samples counted by stack: first by addresses, then, with symbols, by functions.

use std::collections::{BTreeMap, HashMap};

use linerate_host::Host;

use super::context;
use super::names::FunctionNames;
use super::names::OUTSIDE;
use crate::flame::profile::{FrameKind, SampledStack, StackFrame};

// Values from here on are context markers (`PERF_CONTEXT_MAX`, include/uapi/linux/perf_event.h,
// Linux 6.18).
const MARKERS: u64 = -4095_i64 as u64;
const KERNEL: u64 = -128_i64 as u64;
const USER: u64 = -512_i64 as u64;

/// Outermost functions of a kernel thread, which the idle task does not have.
const KERNEL_THREAD: [&str; 3] = ["kthread", "ret_from_fork", "ret_from_fork_asm"];

#[derive(Debug, Default)]
pub(super) struct SampleTally {
    // Since the last symbol lookup.
    raw: HashMap<SamplePlace, HashMap<Box<[u64]>, u64>>,
    /// Samples by stack; the stacks themselves have none.
    named: HashMap<SampledStack, u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct SamplePlace {
    pub(super) cpu: u32,
    pub(super) pid: u32,
    pub(super) thread: u32,
}

impl SampleTally {
    /// `chain`: addresses, innermost first, with markers between.
    pub(super) fn add(&mut self, place: SamplePlace, chain: &[u64]) {
        let stacks = self.raw.entry(place).or_default();
        match stacks.get_mut(chain) {
            Some(samples) => *samples += 1,
            None => {
                stacks.insert(chain.into(), 1);
            }
        }
    }

    pub(super) fn look_up_symbols(&mut self, host: &Host, names: &mut FunctionNames) {
        let raw = std::mem::take(&mut self.raw);
        let mut addresses_by_pid: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
        for (place, stacks) in &raw {
            let user_addresses =
                stacks.keys().flat_map(|chain| addresses(chain)).filter(|(kind, _)| *kind == FrameKind::User);
            addresses_by_pid.entry(place.pid).or_default().extend(user_addresses.map(|(_, address)| address));
        }
        // Process 0 is no process.
        addresses_by_pid.remove(&0);
        for (pid, addresses) in addresses_by_pid {
            names.look_up(host, pid, addresses);
        }
        for (place, stacks) in raw {
            let comm = names.comm(host, place.pid, place.thread).to_owned();
            for (chain, samples) in stacks {
                *self.named.entry(named_stack(place, &comm, &chain, names)).or_default() += samples;
            }
        }
    }

    // Most samples first.
    pub(super) fn into_stacks(self) -> Vec<SampledStack> {
        let mut stacks: Vec<SampledStack> =
            self.named.into_iter().map(|(stack, samples)| SampledStack { samples, ..stack }).collect();
        // Equal counts are ordered by place, because the order of a hash map differs from run to
        // run.
        let place = |stack: &SampledStack| (stack.cpu, stack.pid, stack.context, stack.entry);
        stacks.sort_unstable_by(|a, b| {
            let by_place = || (place(a), &a.comm, &a.frames).cmp(&(place(b), &b.comm, &b.frames));
            b.samples.cmp(&a.samples).then_with(by_place)
        });
        stacks
    }
}

/// A stack without samples.
fn named_stack(place: SamplePlace, comm: &str, chain: &[u64], names: &mut FunctionNames) -> SampledStack {
    let mut frames: Vec<u32> = addresses(chain)
        .filter_map(|(kind, address)| match kind {
            FrameKind::Kernel => Some(names.kernel(address)),
            FrameKind::User => names.user(place.pid, address),
        })
        .collect();
    if frames.is_empty() && !chain.is_empty() {
        frames.push(names.unknown());
    }
    // Several unknown functions in a row, as without frame pointers, are shown as one.
    frames.dedup_by(|a, b| a == b && names.frame(*a).name == StackFrame::UNKNOWN);
    frames.reverse();
    let user_count = frames.iter().take_while(|index| names.frame(**index).kind == FrameKind::User).count();
    let kernel = frames[user_count..].iter().map(|index| names.frame(*index).name.as_str());
    // The kernel reports process 0 also for processes outside of this PID namespace.
    let has_user_code = addresses(chain).any(|(kind, _)| kind == FrameKind::User);
    let is_outside =
        place.pid == 0 && (has_user_code || kernel.clone().any(|name| KERNEL_THREAD.contains(&name)));
    let (context, entry) = context::classify(kernel, place.pid == 0 && !is_outside);
    let entry = if context.is_interrupt() { user_count + entry } else { 0 };
    let comm = if is_outside { OUTSIDE } else { comm }.to_owned();
    let (cpu, pid, entry) = (place.cpu, place.pid, entry as u32);
    SampledStack { frames, context, entry, cpu, pid, comm, samples: 0 }
}

/// Addresses of a chain, innermost first, with their kind. All but the innermost are return
/// addresses, which may be in the next function; the address minus one is in the call instruction.
pub(super) fn addresses(chain: &[u64]) -> impl Iterator<Item = (FrameKind, u64)> + '_ {
    let mut kind = None;
    let mut innermost = true;
    chain.iter().filter_map(move |value| {
        if *value >= MARKERS {
            kind = match *value {
                KERNEL => Some(FrameKind::Kernel),
                USER => Some(FrameKind::User),
                _ => None,
            };
            return None;
        }
        let address = if std::mem::take(&mut innermost) { *value } else { value.saturating_sub(1) };
        Some((kind?, address))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flame::profile::CpuContext;

    #[test]
    fn process_zero_is_idle_unless_it_is_of_another_pid_namespace() {
        let (idle, thread, syscall) = (0xffff_ffff_8100_0010, 0xffff_ffff_8100_0110, 0xffff_ffff_8100_0210);
        let kallsyms = "ffffffff81000000 T do_idle\nffffffff81000100 T kthread\nffffffff81000200 T udp_sendmsg\n\
                        ffffffff81000300 T last\n";
        let host = Host::scripted([("/proc/kallsyms", kallsyms)]);
        let mut names = FunctionNames::new(&host).expect("symbols");
        let place = SamplePlace { cpu: 0, pid: 0, thread: 0 };
        for (chain, expected) in [
            (&[KERNEL, idle][..], (CpuContext::Idle, "swapper")),
            (&[], (CpuContext::Idle, "swapper")),
            (&[KERNEL, thread], (CpuContext::Task, OUTSIDE)),
            (&[KERNEL, syscall, USER, 0x1000], (CpuContext::Task, OUTSIDE)),
            (&[USER, 0x1000], (CpuContext::Task, OUTSIDE)),
        ] {
            let named = named_stack(place, "swapper", chain, &mut names);
            assert_eq!((named.context, named.comm.as_str()), expected, "{chain:x?}");
        }
    }

    #[test]
    fn call_chains_are_split_at_context_markers() {
        let chain = [KERNEL, 0xffff_ffff_8100_0010, 0xffff_ffff_8100_0020, USER, 0x1000, -2048_i64 as u64, 7];
        let frames: Vec<_> = addresses(&chain).collect();
        assert_eq!(
            frames,
            [
                (FrameKind::Kernel, 0xffff_ffff_8100_0010),
                (FrameKind::Kernel, 0xffff_ffff_8100_001f),
                (FrameKind::User, 0xfff),
            ]
        );
        assert_eq!(addresses(&[]).count(), 0);
        assert_eq!(addresses(&[1, 2]).count(), 0, "no context marker");
    }
}
