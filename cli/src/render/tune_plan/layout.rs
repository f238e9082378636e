//! Which CPUs the queues of an interface go to once all is done.

use linerate_tune::TunePlan;
use linerate_tune::plan::{ChangeImpact, InterfaceLayout};

use crate::render::style::{TextStyle, TextTone};

/// Rows beyond these are counted, not shown, but in the full form.
const MOST: usize = 24;

/// The layouts of interfaces whose queues are made anew, so that the changes do not show them yet; in `full`, all.
pub(super) fn lines(plan: &TunePlan, full: bool, style: TextStyle) -> Vec<String> {
    let is_reset = |layout: &&InterfaceLayout| {
        plan.changes.iter().any(|change| {
            change.interrupts == ChangeImpact::Link
                && change.setting.interface().as_deref() == Some(layout.interface.as_str())
        })
    };
    plan.layouts
        .iter()
        .filter(|layout| full || is_reset(layout))
        .flat_map(|one| table(one, full, style))
        .collect()
}

fn table(layout: &InterfaceLayout, full: bool, style: TextStyle) -> Vec<String> {
    let heading = format!("where queues of {} are to go", layout.interface);
    let mut lines = vec![String::new(), style.paint(TextTone::Strong, &heading)];
    let head = format!("  {:<7}{:<11}{:<13}{}", "queue", "interrupt", "RPS", "XPS");
    lines.push(style.paint(TextTone::Faint, &head));
    let most = if full { layout.queues.len() } else { MOST };
    for queue in layout.queues.iter().take(most) {
        let interrupt = queue.interrupt.map_or_else(|| "-".to_owned(), |cpu| format!("CPU {cpu}"));
        let list = |cpus: &str| if cpus.is_empty() { "-".to_owned() } else { cpus.to_owned() };
        let (number, receive, transmit) = (queue.queue, list(&queue.receive), list(&queue.transmit));
        lines.push(format!("  {number:<7}{interrupt:<11}{receive:<13}{transmit}"));
    }
    if layout.queues.len() > most {
        let more = format!("  and {} more (--full)", layout.queues.len() - most);
        lines.push(style.paint(TextTone::Faint, &more));
    }
    lines
}
