//! Waits for locks.

use linerate_trace::contention::{Contention, Lock, Waited};

use crate::render::column::Column;
use crate::render::format::{grouped, percent, time_span};
use crate::render::style::{Style, Tone};
use crate::render::table::Table;

/// Rows in the short form.
const FEW: usize = 5;

/// A line that sums up, and a row for each place of code.
pub(super) fn lines(contention: &Contention, full: bool, style: Style) -> Vec<String> {
    let column = Column { style, before: 0, label: 0 };
    let mut lines: Vec<String> =
        column.labelled("", &total(contention)).iter().map(|line| style.paint(Tone::Faint, line)).collect();
    if contention.locks.is_empty() {
        return lines;
    }
    let mut table = Table::new(&[">lost", ">waits", ">longest", "lock", "where, and who called"]);
    for waited in &contention.locks {
        table.row(row(waited));
    }
    lines.extend(table.lines(0, if full { usize::MAX } else { FEW }, style));
    if !full && contention.locks.len() > FEW {
        lines.push(style.paint(Tone::Faint, &format!("and {} more", contention.locks.len() - FEW)));
    }
    lines
}

fn row(waited: &Waited) -> Vec<String> {
    vec![
        time_span(waited.waited_ns as f64),
        grouped(waited.waits),
        time_span(waited.longest_ns as f64),
        kind(waited.lock).to_owned(),
        callers(waited),
    ]
}

/// What was lost in all of them.
pub(in crate::render) fn total(contention: &Contention) -> String {
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
pub(in crate::render) fn callers(waited: &Waited) -> String {
    if waited.callers.is_empty() { "unknown".to_owned() } else { waited.callers.join(" < ") }
}

/// A kind of lock, as the field calls it.
pub(in crate::render) fn kind(lock: Lock) -> &'static str {
    match lock {
        Lock::Spinlock => "spinlock",
        Lock::RwlockRead => "rwlock read",
        Lock::RwlockWrite => "rwlock write",
        Lock::MutexSpin => "mutex, spun",
        Lock::Mutex => "mutex",
        Lock::RwsemRead => "rwsem read",
        Lock::RwsemWrite => "rwsem write",
        Lock::PercpuRwsemRead => "percpu rwsem read",
        Lock::PercpuRwsemWrite => "percpu rwsem write",
        Lock::Rt => "rt mutex",
        Lock::Other => "other",
    }
}
