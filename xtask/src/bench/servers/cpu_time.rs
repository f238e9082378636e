//! CPU time of a server: of its process and its descendants.

use std::path::Path;

use linerate_host::Known;

// CPU time of a process, its threads and descendants so far, ns (`/proc/PID/task/TID/schedstat`).
// Includes softirqs on top of them, unless the kernel accounts these separately
// (CONFIG_IRQ_TIME_ACCOUNTING).
pub(super) fn of_process(process: Option<u32>) -> Known<u64> {
    match process {
        None => Known::unknown("it runs in the kernel, in softirqs"),
        Some(process) => match total(process) {
            Some(nanoseconds) => Known::Value(nanoseconds),
            None => Known::unknown(format!("/proc/{process}/task/*/schedstat cannot be read")),
        },
    }
}

fn total(process: u32) -> Option<u64> {
    let mut nanoseconds = 0;
    for task in std::fs::read_dir(format!("/proc/{process}/task")).ok()?.flatten() {
        // A thread that has just ended is left out: its time is too short to matter in a
        // measurement.
        nanoseconds += run_time(&task.path()).unwrap_or(0);
        let children = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
        for child in children.split_whitespace().filter_map(|child| child.parse().ok()) {
            nanoseconds += total(child).unwrap_or(0);
        }
    }
    Some(nanoseconds)
}

fn run_time(task: &Path) -> Option<u64> {
    std::fs::read_to_string(task.join("schedstat")).ok()?.split(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_of_a_working_process_grows() {
        let me = Some(std::process::id());
        let Known::Value(before) = of_process(me) else {
            let _ = std::io::Write::write_all(
                &mut std::io::stderr(),
                b"\nSKIP cpu_time_of_a_working_process_grows: no schedstat\n",
            );
            return;
        };
        let mut sum = 0_u64;
        loop {
            for number in 0..100_000_u64 {
                sum = std::hint::black_box(sum.wrapping_add(number));
            }
            if of_process(me).value().is_some_and(|now| *now > before) {
                return;
            }
        }
    }
}
