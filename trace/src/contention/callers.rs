//! From a stack of addresses to the caller of a lock.

use crate::symbols::begins_with_any;

/// Prefixes of functions of locks and tracing, between the tracepoint and the caller of the lock.
const OF_LOCKS: &str = "bpf_prog_ bpf_trace_run __bpf_trace_ bpf_get_stackid __traceiter_contention_ trace_contention_ \
     do_trace_contention_ __do_trace_contention_ native_queued_spin_lock_slowpath queued_spin_lock_slowpath \
     __pv_queued_spin_lock_slowpath __raw_callee_save___pv_queued_spin_lock_slowpath \
     resilient_queued_spin_lock_slowpath resilient_tas_spin_lock queued_read_lock_slowpath \
     queued_write_lock_slowpath _raw_spin_lock _raw_read_lock _raw_write_lock _raw_spin_trylock \
     do_raw_spin_lock __mutex_lock mutex_lock __ww_mutex_lock ww_mutex_lock rwsem_down_ down_read down_write \
     __down_read __down_write __down_common ___down_common __down down_interruptible down_timeout \
     down_killable percpu_down_ __percpu_down_ rt_spin_lock rt_mutex_";

/// Prefixes of entry functions. Functions outside of them are the same in all stacks, or unrelated.
const BEGINNINGS: &str = "handle_softirqs __do_softirq do_softirq do_syscall_64 entry_SYSCALL_ asm_ common_interrupt sysvec_ el0 \
     el1 invoke_syscall kthread ret_from_fork do_idle";

/// The callers of a lock, innermost first: the stack without the lock's own functions, up to the
/// interrupt or system call.
pub(super) fn callers(functions: &[String]) -> Vec<String> {
    let outer_functions = functions.iter().skip_while(|name| begins_with_any(name, OF_LOCKS));
    outer_functions.take_while(|name| !begins_with_any(name, BEGINNINGS)).cloned().collect()
}
