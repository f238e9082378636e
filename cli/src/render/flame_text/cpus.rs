//! What each CPU did.

use linerate_trace::flame::{CpuContext, CpuProfile, StackProfile};

use crate::render::format;
use crate::render::style::{TextStyle, TextTone};
use crate::render::table::TextTable;

/// Rows in the short form.
const FEW: usize = 8;

/// Heads of the columns of contexts, in their order.
const HEADS: [&str; 6] = [">irq", ">softirq", ">in calls", ">ksoftirqd", ">tasks", ">idle"];

/// A row a CPU; in the short form those with most in interrupt context.
pub(super) fn lines(profile: &StackProfile, full: bool, style: TextStyle) -> Vec<String> {
    let mut shown: Vec<&CpuProfile> = profile.cpus.iter().collect();
    if !full && shown.len() > FEW {
        let interrupt = |cpu: &CpuProfile| -> u64 {
            let contexts = CpuContext::ALL.into_iter().filter(|context| context.is_interrupt());
            contexts.map(|context| profile.samples_in(context, Some(cpu.cpu))).sum()
        };
        shown.sort_by_cached_key(|cpu| std::cmp::Reverse(interrupt(cpu)));
        shown.truncate(FEW);
        shown.sort_by_key(|cpu| cpu.cpu);
    }
    let heads: Vec<&'static str> = [">CPU", ">samples"].into_iter().chain(HEADS).collect();
    let mut table = TextTable::new(&heads);
    for cpu in &shown {
        let mut row = vec![cpu.cpu.to_string(), format::grouped(cpu.samples)];
        row.extend(contexts(profile, cpu));
        table.row(row);
    }
    let mut lines = table.lines(0, usize::MAX, style);
    let left = profile.cpus.len() - shown.len();
    if left > 0 {
        lines.push(style.paint(TextTone::Faint, &format!("and {left} CPUs with less in interrupt context")));
    }
    lines
}

pub(in crate::render) fn context_heads() -> impl Iterator<Item = &'static str> {
    HEADS.into_iter().map(|head| head.trim_start_matches('>'))
}

/// Shares of a CPU's samples by context.
pub(in crate::render) fn contexts(profile: &StackProfile, cpu: &CpuProfile) -> Vec<String> {
    CpuContext::ALL
        .into_iter()
        .map(|context| share(profile.samples_in(context, Some(cpu.cpu)), cpu.samples))
        .collect()
}

/// A part of samples; unknown where there are none.
fn share(samples: u64, of: u64) -> String {
    if of == 0 { format::UNKNOWN.to_owned() } else { format::percent(samples as f64 / of as f64) }
}
