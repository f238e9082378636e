//! Threads that inherit the CPUs of a pinned thread, on a scripted host.

use linerate_host::{Host, Setting};
use linerate_tune::journal::record::UndoReason::Asked;
use linerate_tune::transaction::{UndoReport, boot_seconds, undo};

use crate::fake::{Scratch, begin, tune, value};

const PID: u32 = 50;
/// A start before the tunes, in clock ticks.
const EARLY: u64 = 100;
/// A start after the tunes.
const LATE: u64 = u64::MAX;

/// A host with one process. A thread is its id, its start and its CPUs.
fn host(boot: &str, threads: &[(u32, u64, &str)]) -> Host {
    let files = threads.iter().flat_map(|(tid, started, cpus)| {
        let stat = format!("{tid} (server) S 1 50 50 0 -1 0 1 0 0 0 5 3 0 0 20 0 2 0 {started} 8 9\n");
        let directory = format!("/proc/{PID}/task/{tid}");
        let process = (*tid == PID).then(|| (format!("/proc/{PID}/stat"), stat.clone()));
        let status = (format!("{directory}/status"), format!("Cpus_allowed_list:\t{cpus}\n"));
        [(format!("{directory}/stat"), stat), status].into_iter().chain(process)
    });
    let seconds = if boot == "boot-1" { "1000000000" } else { "99000000000" };
    let boot = ("/proc/sys/kernel/random/boot_id".to_owned(), format!("{boot}\n"));
    Host::scripted(files.chain([boot, ("/proc/stat".to_owned(), format!("btime {seconds}\n"))]))
}

fn cpus(host: &Host, tid: u32) -> String {
    Setting::thread_cpus(host, PID, tid).expect("running").read(host).expect("read").to_string()
}

/// A tune that pins a thread to CPU 2.
fn pin(scratch: &Scratch, host: &Host, tid: u32) {
    let setting = Setting::thread_cpus(host, PID, tid).expect("running");
    tune(scratch, host, begin(), &[(setting, value("2"))]).expect("made");
}

fn undo_tune(scratch: &Scratch, host: &Host, number: u64) -> UndoReport {
    undo(&mut scratch.lock(), host, Some(number), Asked).expect("undone")
}

#[test]
fn undo_keeps_the_cpus_of_threads_that_another_tune_pinned() {
    let scratch = Scratch::new();
    pin(&scratch, &host("boot-1", &[(PID, EARLY, "0-3"), (51, EARLY, "0-3")]), 51);
    // A worker was replaced. A helper inherited the CPUs of the first worker.
    // By the wall clock the helper is older than the tune, because the clock was set.
    let helper = (53, (boot_seconds() + 1) * 100, "2");
    let host = host("boot-1", &[(PID, EARLY, "0-3"), (51, EARLY, "2"), (52, LATE, "0-3"), helper]);
    pin(&scratch, &host, 52);
    undo_tune(&scratch, &host, 1);
    assert_eq!([51, 52, 53].map(|tid| cpus(&host, tid)), ["0-3", "2", "0-3"]);
    undo_tune(&scratch, &host, 2);
    assert_eq!(cpus(&host, 52), "0-3");
}

#[test]
fn undo_restores_the_cpus_that_a_smaller_cpuset_allows() {
    let scratch = Scratch::new();
    pin(&scratch, &host("boot-1", &[(PID, EARLY, "0-3"), (51, EARLY, "0-3")]), 51);
    let mut host = host("boot-1", &[(PID, EARLY, "0-3"), (51, EARLY, "2"), (52, LATE, "2")]);
    for tid in [51, 52] {
        host = host.ignoring(format!("/proc/{PID}/task/{tid}/status"));
    }
    let report = undo_tune(&scratch, &host, 1);
    assert!(!report.has_failures() && report.settings.len() == 2, "{report:?}");
}

#[test]
fn undo_leaves_processes_that_reuse_a_process_id() {
    // Later in the same boot, and in a later boot, in which start times count from its start.
    for (boot, started) in [("boot-1", LATE), ("boot-2", EARLY / 2)] {
        let scratch = Scratch::new();
        pin(&scratch, &host("boot-1", &[(PID, EARLY, "0-3"), (51, EARLY, "0-3")]), 51);
        let host = host(boot, &[(PID, started, "2"), (52, started, "2")]);
        let report = undo_tune(&scratch, &host, 1);
        assert_eq!([PID, 52].map(|tid| cpus(&host, tid)), ["2", "2"], "{boot}: {report:?}");
        assert_eq!(report.settings.len(), 1, "{report:?}");
    }
}
