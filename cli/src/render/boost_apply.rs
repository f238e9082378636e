//! What boosting a server did, and what came of it, as text.

use linerate_host::Known;
use linerate_tune::boost::conformity::Conformity;
use linerate_tune::boost::verify::Agreement;
use linerate_tune::boost::watch::Event;

use super::column::Column;
use super::format;
use super::style::{Style, Tone};
use super::table::Table;
use super::tune_apply;
use crate::command::boost::{Applied, Landed, Verification};
use crate::command::tune::Place;

/// What was done, where packets landed before and land now, and how to go back.
pub(crate) fn applied(applied: &Applied<'_>, place: &Place, style: Style) -> String {
    let column = Column { style, before: 0, label: 0 };
    let painted = |(tone, text): (Tone, String)| -> Vec<String> {
        column.labelled("", &text).iter().map(|line| style.paint(tone, line)).collect()
    };
    let mut lines = vec![String::new()];
    let Some(tune) = applied.tune else { return String::new() };
    lines.extend(painted(tune_apply::done(tune, applied.changes, applied.broke_off)));
    lines.extend(painted(verdict(applied.verification)));
    lines.extend(compared(&applied.before, applied.now.as_ref(), style));
    if matches!(applied.verification, Verification::Harmful { .. }) {
        return lines.join("\n");
    }
    lines.extend(tune_apply::ways(tune, applied.until, applied.broke_off.is_some(), place, style));
    lines.push(String::new());
    lines.join("\n")
}

/// What was seen after it, judged.
fn verdict(verification: &Verification) -> (Tone, String) {
    let counted = |seen: &Conformity| {
        let share = seen.share().map_or_else(|| format::UNKNOWN.to_owned(), format::percent);
        format!("{share} of {} datagrams", format::grouped(seen.packets))
    };
    match verification {
        Verification::AsPlanned { conformity, replies_per_request: Some([before, now]) } => {
            let text = format!(
                "Verified: {} landed as planned, and the server sent {now:.2} replies per request ({before:.2} before).",
                counted(conformity)
            );
            (Tone::Good, text)
        }
        Verification::AsPlanned { conformity, replies_per_request: None } => {
            let text = format!(
                "{} landed as planned. Not verified: whether the server answers as before, since too few \
                 datagrams came to compare: apply it under load.",
                counted(conformity)
            );
            (Tone::Warn, text)
        }
        Verification::Harmful { why } => (Tone::Bad, format!("Undone, because {why}.")),
        Verification::Elsewhere { conformity } => {
            let (socket, cpu) = (conformity.in_other_socket, conformity.on_other_cpu);
            let (socket, cpu) = (format::grouped(socket), format::grouped(cpu));
            let text = format!(
                "Only {} landed as planned: {socket} were put into the socket of another CPU, {cpu} read on another \
                 CPU than planned.",
                counted(conformity)
            );
            (Tone::Bad, text)
        }
        Verification::Idle { conformity } => {
            let text = format!(
                "Idle: {} datagrams came, too few to verify anything: look again under load.",
                format::grouped(conformity.packets)
            );
            (Tone::Warn, text)
        }
        Verification::NotJudged { why } => (Tone::Warn, format!("Not verified: {why}.")),
    }
}

/// Before and now, side by side.
fn compared(before: &Landed, now: Option<&Landed>, style: Style) -> Vec<String> {
    let looks = [Some(before), now];
    let seen: Vec<Option<(&Agreement, f64)>> = looks.into_iter().map(counted).collect();
    if seen.iter().all(Option::is_none) {
        return Vec::new();
    }
    let mut table = Table::new(&["", ">before", ">now"]);
    let mut row = |what: &str, cell: fn(&Agreement, f64) -> String| {
        let cell = |seen: &Option<(&Agreement, f64)>| {
            seen.map_or_else(|| format::UNKNOWN.to_owned(), |(agreement, seconds)| cell(agreement, seconds))
        };
        table.row(std::iter::once(what.to_owned()).chain(seen.iter().map(cell)).collect());
    };
    row("datagrams read a second", |agreement, seconds| {
        format::rate(agreement.packets as f64 / seconds.max(f64::MIN_POSITIVE))
    });
    row("read on the CPU they arrived on", |agreement, _| match agreement.packets {
        0 => "-".to_owned(),
        all => format::percent(agreement.on_arrival_cpu as f64 / all as f64),
    });
    row("lost to full buffers", |agreement, _| format::grouped(agreement.refused));
    let mut lines = vec![String::new()];
    lines.extend(table.lines(2, usize::MAX, style));
    lines.push(String::new());
    lines
}

fn counted(look: Option<&Landed>) -> Option<(&Agreement, f64)> {
    let look = look?;
    match &look.agreement {
        Known::Value(agreement) => Some((agreement, look.seconds?)),
        Known::Unknown { .. } => None,
    }
}

/// Something that happened while a boost was watched, a line.
pub(crate) fn event(event: &Event) -> String {
    let done = |done: &[String]| match done {
        [] => "nothing was to be changed".to_owned(),
        some => some.join("; "),
    };
    let text = match event {
        Event::Lost { pid, tid, done: what } => {
            format!("thread {tid} of process {pid} is gone: {}", done(what))
        }
        Event::Found { pid, tid, done: what } => {
            format!("thread {tid} of process {pid} is new: {}", done(what))
        }
        Event::NotDone { why } => format!("not done: {why}"),
        Event::Ended => "the server is gone, and the boost with it".to_owned(),
        Event::Undone => "somebody undid the boost".to_owned(),
    };
    format!("{}  {text}\n", jiff::Zoned::now().strftime("%H:%M:%S"))
}

#[cfg(test)]
mod tests;
