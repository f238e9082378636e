//! The context of a CPU, from the functions on its stack.

use crate::flame::profile::CpuContext;

/// Functions that run softirqs, in all kernels.
const SOFTIRQ: [&str; 4] = [
    "handle_softirqs", // kernel/softirq.c, Linux 6.10
    "__do_softirq",    // before
    "__softirqentry_text_start",
    "do_softirq_own_stack",
];

/// Threads for softirqs or NAPI.
const THREADS: [&str; 5] = [
    "run_ksoftirqd",
    "napi_threaded_poll",
    "napi_threaded_poll_loop",
    "run_backlog_napi", // net/core/dev.c, Linux 6.10
    "ktimers_thread",
];

// Entries of hardware interrupts: x86, arm64, and generic.
const IRQ: [&str; 12] = [
    "asm_common_interrupt",
    "common_interrupt",
    "__common_interrupt",
    "irq_entries_start",
    "do_IRQ",
    "el1h_64_irq",
    "el0t_64_irq",
    "el1_interrupt",
    "el0_interrupt",
    "gic_handle_irq",
    "handle_irq_event",
    "__handle_irq_event_percpu",
];

// Prefixes of x86's own vectors: `asm_sysvec_call_function_single`.
const IRQ_PREFIXES: [&str; 3] = ["asm_sysvec_", "sysvec_", "__sysvec_"];

// Exit of an interrupt, where the interrupted thread is rescheduled or gets a signal: its own work
// again.
const LEAVE: [&str; 8] = [
    "irqentry_exit_to_user_mode", // kernel/entry/common.c, Linux 5.9
    "irqentry_exit_cond_resched",
    "raw_irqentry_exit_cond_resched",
    "preempt_schedule_irq",
    "arm64_preempt_schedule_irq",
    "exit_to_user_mode_prepare",
    "exit_to_user_mode_loop",
    "schedule",
];

// The context of a kernel stack, root first, and the index of the function in which it begins (0
// for [`CpuContext::Task`] and [`CpuContext::Idle`]).
//
// The innermost context counts: an interrupt during softirqs is an interrupt.
pub(super) fn classify<'n>(
    kernel: impl IntoIterator<Item = &'n str>,
    idle_task: bool,
) -> (CpuContext, usize) {
    let (mut context, mut entry) = (if idle_task { CpuContext::Idle } else { CpuContext::Task }, 0);
    let mut interrupted = (context, entry);
    for (index, name) in kernel.into_iter().enumerate() {
        let next = if THREADS.contains(&name) {
            CpuContext::Ksoftirqd
        } else if SOFTIRQ.contains(&name) {
            match context {
                CpuContext::Irq | CpuContext::Idle => CpuContext::Softirq,
                CpuContext::Task => CpuContext::SoftirqOwn,
                other => other,
            }
        } else if IRQ.contains(&name) || IRQ_PREFIXES.iter().any(|prefix| name.starts_with(prefix)) {
            CpuContext::Irq
        } else if context == CpuContext::Irq && LEAVE.contains(&name) {
            (context, entry) = interrupted;
            continue;
        } else {
            continue;
        };
        if next != context {
            if next == CpuContext::Irq {
                interrupted = (context, entry);
            }
            (context, entry) = (next, index);
        }
    }
    (context, entry)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(stack: &str, idle_task: bool) -> (CpuContext, &str) {
        let names: Vec<&str> = stack.split(';').collect();
        let (context, entry) = classify(names.iter().copied(), idle_task);
        (context, names[entry])
    }

    #[test]
    fn softirqs_of_interrupts_and_system_calls_are_distinguished() {
        let after = "entry_SYSCALL_64_after_hwframe;do_syscall_64;__x64_sys_read;asm_common_interrupt;common_interrupt;\
                     irq_exit_rcu;handle_softirqs;net_rx_action;__napi_poll";
        assert_eq!(check(after, false), (CpuContext::Softirq, "handle_softirqs"));
        let own = "entry_SYSCALL_64_after_hwframe;do_syscall_64;__x64_sys_sendto;udp_sendmsg;__dev_queue_xmit;\
                   __local_bh_enable_ip;do_softirq;__do_softirq;net_rx_action;process_backlog";
        assert_eq!(check(own, false), (CpuContext::SoftirqOwn, "__do_softirq"));
    }

    #[test]
    fn ksoftirqd_and_napi_threads_are_recognized() {
        let ksoftirqd =
            "ret_from_fork_asm;kthread;smpboot_thread_fn;run_ksoftirqd;handle_softirqs;net_rx_action";
        assert_eq!(check(ksoftirqd, false), (CpuContext::Ksoftirqd, "run_ksoftirqd"));
        let napi = "ret_from_fork;kthread;napi_threaded_poll;__napi_poll;veth_poll";
        assert_eq!(check(napi, false), (CpuContext::Ksoftirqd, "napi_threaded_poll"));
        assert_eq!(check("ret_from_fork;kthread;worker_thread;process_one_work", false).0, CpuContext::Task);
    }

    #[test]
    fn innermost_interrupt_determines_the_context() {
        let nested = "run_ksoftirqd;handle_softirqs;net_rx_action;asm_common_interrupt;common_interrupt;handle_irq_event";
        assert_eq!(check(nested, false), (CpuContext::Irq, "asm_common_interrupt"));
    }

    #[test]
    fn rescheduling_at_interrupt_exit_belongs_to_the_thread() {
        let preempted = "asm_sysvec_apic_timer_interrupt;irqentry_exit_to_user_mode;schedule;__schedule;finish_task_switch";
        assert_eq!(check(preempted, false).0, CpuContext::Task);
        let handled = "asm_sysvec_apic_timer_interrupt;sysvec_apic_timer_interrupt;__irq_exit_rcu";
        assert_eq!(check(handled, false).0, CpuContext::Irq);
    }

    #[test]
    fn idle_task_is_idle_except_in_interrupts_and_softirqs() {
        assert_eq!(
            check("cpu_startup_entry;do_idle;default_idle", true),
            (CpuContext::Idle, "cpu_startup_entry")
        );
        let softirq = "do_idle;flush_smp_call_function_queue;do_softirq_post_smp_call_flush;handle_softirqs;net_rx_action";
        assert_eq!(check(softirq, true), (CpuContext::Softirq, "handle_softirqs"));
        let irq = "do_idle;default_idle;asm_sysvec_call_function_single;sysvec_call_function_single";
        assert_eq!(check(irq, true), (CpuContext::Irq, "asm_sysvec_call_function_single"));
        assert_eq!(classify([], true), (CpuContext::Idle, 0));
    }
}
