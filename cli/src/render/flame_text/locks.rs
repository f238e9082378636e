//! Waits for locks.

use linerate_trace::contention::{LockContention, LockKind, WaitSite};

use crate::render::column::TextColumn;
use crate::render::format::{grouped, percent, time_span};
use crate::render::style::{TextStyle, TextTone};
use crate::render::table::TextTable;

/// Rows in the short form.
const FEW: usize = 5;

/// A line that sums up, and a row for each place of code.
pub(super) fn lines(contention: &LockContention, full: bool, style: TextStyle) -> Vec<String> {
    let column = TextColumn { style, before: 0, label: 0 };
    let mut lines: Vec<String> = column
        .labelled("", &total(contention))
        .iter()
        .map(|line| style.paint(TextTone::Faint, line))
        .collect();
    if contention.locks.is_empty() {
        return lines;
    }
    let mut table = TextTable::new(&[">lost", ">waits", ">longest", "lock", "where, and who called"]);
    for waited in &contention.locks {
        table.row(row(waited));
    }
    lines.extend(table.lines(0, if full { usize::MAX } else { FEW }, style));
    if !full && contention.locks.len() > FEW {
        lines.push(style.paint(TextTone::Faint, &format!("and {} more", contention.locks.len() - FEW)));
    }
    lines
}

fn row(waited: &WaitSite) -> Vec<String> {
    vec![
        time_span(waited.waited_ns as f64),
        grouped(waited.waits),
        time_span(waited.longest_ns as f64),
        kind(waited.lock).to_owned(),
        callers(waited),
    ]
}

/// What was lost in all of them.
pub(in crate::render) fn total(contention: &LockContention) -> String {
    let seconds = contention.seconds;
    if contention.waits == 0 {
        return format!("Locks: none was waited for within {seconds:.1} s");
    }
    let cpu_ns = seconds * 1e9 * contention.cpus.len().max(1) as f64;
    let spinning = contention.spinning_ns as f64;
    let waits =
        |count: u64| if count == 1 { "1 wait".to_owned() } else { format!("{} waits", grouped(count)) };
    let missed = match contention.missed {
        0 => String::new(),
        missed => format!("; {} more could not be counted", waits(missed)),
    };
    format!(
        "Locks: {} within {seconds:.1} s, {} lost, of it {} spinning ({} of CPU time){missed}",
        waits(contention.waits),
        time_span(contention.total_ns as f64),
        time_span(spinning),
        percent(spinning / cpu_ns)
    )
}

/// Functions on the way to a lock, innermost first.
pub(in crate::render) fn callers(waited: &WaitSite) -> String {
    if waited.callers.is_empty() { "unknown".to_owned() } else { waited.callers.join(" < ") }
}

/// A kind of lock, as the field calls it.
pub(in crate::render) fn kind(lock: LockKind) -> &'static str {
    match lock {
        LockKind::Spinlock => "spinlock",
        LockKind::RwlockRead => "rwlock read",
        LockKind::RwlockWrite => "rwlock write",
        LockKind::MutexSpin => "mutex, spun",
        LockKind::Mutex => "mutex",
        LockKind::RwsemRead => "rwsem read",
        LockKind::RwsemWrite => "rwsem write",
        LockKind::PercpuRwsemRead => "percpu rwsem read",
        LockKind::PercpuRwsemWrite => "percpu rwsem write",
        LockKind::Rt => "rt mutex",
        LockKind::Other => "other",
    }
}
