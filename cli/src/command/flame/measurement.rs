//! A measurement: stacks and lock waits at the same time.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::Result;
use linerate_host::Host;
use linerate_trace::TraceError;
use linerate_trace::contention::LockContention;
use linerate_trace::flame::{ProfileOptions, StackProfile};

use crate::interrupt::InterruptFlag;
use crate::render::format;

/// Lock waits, or why they could not be traced; `None` if they were not requested.
type TracedContention = Option<Result<LockContention, TraceError>>;

/// Samples stacks, traces lock waits, or both, until the duration is over or the user interrupts.
///
/// # Errors
/// If the stacks cannot be sampled, or, without stacks, if lock waits cannot be traced.
pub(super) fn measure(
    host: &Host,
    options: &ProfileOptions,
    stacks: bool,
    locks: bool,
    interrupt: &InterruptFlag,
) -> Result<(Option<StackProfile>, TracedContention)> {
    print_start(options);
    if !stacks {
        let stop = || interrupt.is_raised();
        let contention = LockContention::observe(host, options.duration, options.cpus.as_deref(), &stop)?;
        return Ok((None, Some(Ok(contention))));
    }
    let (profile, contention) = observe_stacks_and_locks(host, options, locks, interrupt);
    Ok((Some(profile?), contention))
}

// If sampling fails, tracing of locks ends, too.
fn observe_stacks_and_locks(
    host: &Host,
    options: &ProfileOptions,
    locks: bool,
    interrupt: &InterruptFlag,
) -> (Result<StackProfile, TraceError>, TracedContention) {
    let (flag, has_failed) = (interrupt.flag(), AtomicBool::new(false));
    let stop = || flag.load(Ordering::Relaxed) || has_failed.load(Ordering::Relaxed);
    thread::scope(|scope| {
        let observe_locks =
            || LockContention::observe(&Host::live(), options.duration, options.cpus.as_deref(), &stop);
        let contention = locks.then(|| scope.spawn(observe_locks));
        let profile = StackProfile::observe(host, options, &stop);
        has_failed.store(profile.is_err(), Ordering::Relaxed);
        let contention = contention.map(|thread| match thread.join() {
            Ok(contention) => contention,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        (profile, contention)
    })
}

fn print_start(options: &ProfileOptions) {
    if std::io::stderr().is_terminal() {
        let cpus = options
            .cpus
            .as_ref()
            .map_or_else(|| "all CPUs".to_owned(), |cpus| format!("CPUs {}", format::cpu_list(cpus)));
        status_line!(
            "Sampling {cpus} for {:.0} s; Ctrl-C ends it and prints the result so far.",
            options.duration.as_secs_f64()
        );
    }
}
