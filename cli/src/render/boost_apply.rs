//! What boosting a server did, and what came of it, as text.

use linerate_host::Known;
use linerate_tune::boost::delivery::DeliveryAgreement;
use linerate_tune::boost::delivery::PlanConformity;
use linerate_tune::boost::watch::WatchEvent;

use super::column::TextColumn;
use super::format;
use super::style::{TextStyle, TextTone};
use super::table::TextTable;
use super::tune_apply;
use crate::command::boost::{BoostApplyDocument, BoostVerification, DeliveryCounts};
use crate::command::tune::StateDirArgs;

/// What was done, where packets landed before and land now, and how to go back.
pub(crate) fn boost_report(
    applied: &BoostApplyDocument<'_>,
    in_effect: bool,
    place: &StateDirArgs,
    style: TextStyle,
) -> String {
    let column = TextColumn { style, before: 0, label: 0 };
    let painted = |(tone, text): (TextTone, String)| -> Vec<String> {
        column.labelled("", &text).iter().map(|line| style.paint(tone, line)).collect()
    };
    let mut lines = vec![String::new()];
    let Some(tune) = applied.tune else { return String::new() };
    lines.extend(painted(tune_apply::outcome_line(tune, applied.changes, applied.broke_off)));
    lines.extend(painted(verdict(applied.verification)));
    lines.extend(compared(&applied.before, applied.now.as_ref(), style));
    if matches!(applied.verification, BoostVerification::Harmful { .. }) {
        return lines.join("\n");
    }
    if applied.broke_off.is_some() {
        lines.push(tune_apply::to_resume(place, style));
    }
    if in_effect {
        lines.extend(tune_apply::ways_back(tune, applied.until, place, style));
    }
    lines.push(String::new());
    lines.join("\n")
}

/// What was seen after it, judged.
fn verdict(verification: &BoostVerification) -> (TextTone, String) {
    let counted = |seen: &PlanConformity| {
        let share = seen.share().map_or_else(|| format::UNKNOWN.to_owned(), format::percent);
        format!("{share} of {} datagrams", format::grouped(seen.packets))
    };
    match verification {
        BoostVerification::AsPlanned { conformity, replies_per_request: Some([before, now]) } => {
            let text = format!(
                "Verified: {} landed as planned, and the server sent {now:.2} replies per request ({before:.2} before).",
                counted(conformity)
            );
            (TextTone::Good, text)
        }
        BoostVerification::AsPlanned { conformity, replies_per_request: None } => {
            let text = format!(
                "{} landed as planned. Not verified: whether the server answers as before, since too few \
                 datagrams came to compare: apply it under load.",
                counted(conformity)
            );
            (TextTone::Warn, text)
        }
        BoostVerification::Harmful { why } => (TextTone::Bad, format!("Undone, because {why}.")),
        BoostVerification::Elsewhere { conformity } => {
            let (socket, cpu) = (conformity.in_other_socket, conformity.on_other_cpu);
            let (socket, cpu) = (format::grouped(socket), format::grouped(cpu));
            let text = format!(
                "Only {} landed as planned: {socket} were put into the socket of another CPU, {cpu} read on another \
                 CPU than planned.",
                counted(conformity)
            );
            (TextTone::Bad, text)
        }
        BoostVerification::Idle { conformity } => {
            let text = format!(
                "Idle: {} datagrams came, too few to verify anything: look again under load.",
                format::grouped(conformity.packets)
            );
            (TextTone::Warn, text)
        }
        BoostVerification::NotJudged { why } => (TextTone::Warn, format!("Not verified: {why}.")),
    }
}

/// Before and now, side by side.
fn compared(before: &DeliveryCounts, now: Option<&DeliveryCounts>, style: TextStyle) -> Vec<String> {
    let looks = [Some(before), now];
    let seen: Vec<Option<(&DeliveryAgreement, f64)>> = looks.into_iter().map(counted).collect();
    if seen.iter().all(Option::is_none) {
        return Vec::new();
    }
    let mut table = TextTable::new(&["", ">before", ">now"]);
    let mut row = |what: &str, cell: fn(&DeliveryAgreement, f64) -> String| {
        let cell = |seen: &Option<(&DeliveryAgreement, f64)>| {
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

fn counted(look: Option<&DeliveryCounts>) -> Option<(&DeliveryAgreement, f64)> {
    let look = look?;
    match &look.agreement {
        Known::Value(agreement) => Some((agreement, look.seconds?)),
        Known::Unknown { .. } => None,
    }
}

/// Something that happened while a boost was watched, a line.
pub(crate) fn event(event: &WatchEvent) -> String {
    let done = |done: &[String]| match done {
        [] => "nothing was to be changed".to_owned(),
        some => some.join("; "),
    };
    let text = match event {
        WatchEvent::Lost { pid, tid, done: what } => {
            format!("thread {tid} of process {pid} is gone: {}", done(what))
        }
        WatchEvent::Found { pid, tid, done: what } => {
            format!("thread {tid} of process {pid} is new: {}", done(what))
        }
        WatchEvent::NotDone { why } => format!("not done: {why}"),
        WatchEvent::Ended => "the server is gone, and the boost with it".to_owned(),
        WatchEvent::Undone => "somebody undid the boost".to_owned(),
    };
    format!("{}  {text}\n", jiff::Zoned::now().strftime("%H:%M:%S"))
}

#[cfg(test)]
mod tests;
