//! `linerate boost plan`, `apply` and `status`.

pub(crate) mod replicas;
mod server;
#[cfg(test)]
pub(crate) mod tests;

use linerate_host::setting::{SteeredSocket, SteeredSockets};
use linerate_host::{Known, Setting};
use linerate_tune::boost::BoostPlan;
use linerate_tune::boost::delivery::DeliveryAgreement;
use linerate_tune::boost::delivery::PlanConformity;
use linerate_tune::boost::plan::{BoostRefusal, ServerAdvice};
use linerate_tune::boost::report::{
    ActiveBoost, BoostApplyReport, BoostPlanReport, BoostStatusReport, BoostVerification, DeliveryCounts,
    SteeredGroup,
};
use linerate_tune::boost::watch::WatchEvent;

use super::tune::{
    TuneCommand, apply_verdict, change_table, default_command, journal_note, next_steps, status_section,
};
use super::tune_plan;
use super::{group_by_reason, measurement};
use crate::document::{Audience, Block, Document, Fact, Mark, Note, Section, Table, Tile, Tone};
use crate::envelope::{CommandResult, Envelope};
use crate::render::format::{self, count_with_noun, known_text};

/// Rows of a table in the short form.
const ROWS: usize = 16;

fn limited(table: Table) -> Table {
    table.with_text_limit(ROWS, "more (--full)")
}

impl CommandResult for BoostPlanReport {
    const SCHEMA: &'static str = "linerate.boost/2";

    fn document(envelope: &Envelope<Self>) -> Document {
        plan(envelope, true)
    }
}

/// `full` includes all sockets, threads, reasons and sources.
pub(crate) fn plan(envelope: &Envelope<BoostPlanReport>, full: bool) -> Document {
    let report = &envelope.result;
    let boost = &report.boost;
    let (tone, verdict) = plan_verdict(report);
    let mut document = envelope.new_document("Boost plan", verdict);
    document.full = full;
    document.mark = Some(match tone {
        Tone::Good => Mark::new(tone, "nothing to change"),
        Tone::Warn => Mark::new(tone, "cannot be boosted"),
        _ => Mark::new(tone, "can be boosted"),
    });
    document.tiles = delivery_tiles(&report.agreement);
    document.tiles.push(Tile::new(boost.plan.changes.len().to_string(), "", "changes planned"));
    document.sections = vec![server::processes(&report.server), server::sockets(report, full)];
    document.sections.extend(server::assignments(report, full));
    document.sections.extend(tune_plan::change_sections(&boost.plan, full));
    document.sections.push(refusals(boost));
    document.sections.push(advice(&boost.advice));
    document.sections.push(tune_plan::paragraphs("How the server was observed", &report.server.notes));
    document
}

fn plan_verdict(report: &BoostPlanReport) -> (Tone, String) {
    let name = report.server.title();
    let delivery = delivery_text(&report.agreement);
    let boost = &report.boost;
    if !boost.plan.changes.is_empty() {
        return (Tone::Strong, format!("{name}: {delivery}. This plan would {}.", change_summary(boost)));
    }
    match refusal_summary(boost) {
        Some(why) => (Tone::Warn, format!("{name}: {delivery}. Nothing can be done from outside: {why}")),
        None => (Tone::Good, nothing_to_change(report)),
    }
}

/// The verdict on a server that is as planned.
pub(crate) fn nothing_to_change(report: &BoostPlanReport) -> String {
    format!("{}: nothing to change; {}.", report.server.title(), delivery_text(&report.agreement))
}

fn delivery_tiles(agreement: &Known<DeliveryAgreement>) -> Vec<Tile> {
    let Some((seen, share)) = agreement.value().and_then(|seen| Some((seen, seen.share()?))) else {
        return Vec::new();
    };
    vec![
        Tile::new(format::percent(share), "", "of datagrams read on the CPU where they arrived"),
        Tile::new(format::grouped(seen.packets), "", "datagrams observed"),
    ]
}

fn delivery_text(agreement: &Known<DeliveryAgreement>) -> String {
    match agreement {
        Known::Unknown { why } => format!("where its packets are delivered is not known ({why})"),
        Known::Value(seen) => {
            let Some(share) = seen.share().map(format::percent) else {
                return "no datagram was read while it was observed".to_owned();
            };
            let refused = match seen.refused {
                0 => String::new(),
                some => format!(", and {} were lost to full buffers", format::grouped(some)),
            };
            let packets = format::grouped(seen.packets);
            format!("{share} of {packets} datagrams were read on the CPU they arrived on{refused}")
        }
    }
}

/// `steer 2 groups of sockets by CPU and pin 2 threads`.
pub(crate) fn change_summary(boost: &BoostPlan) -> String {
    let count =
        |is: fn(&Setting) -> bool| boost.plan.changes.iter().filter(|change| is(&change.setting)).count();
    let groups = count(|setting| matches!(setting, Setting::Steering { .. }));
    let threads = count(|setting| matches!(setting, Setting::ThreadCpus { .. }));
    let options = count(|setting| matches!(setting, Setting::Socket { .. }));
    let others = boost.plan.changes.len() - groups - threads - options + boost.plan.exclusions.len();
    let parts: Vec<String> = [
        (groups, "steer", count_with_noun(groups, "group") + " of sockets by CPU"),
        (threads, "pin", count_with_noun(threads, "thread")),
        (options, "set", count_with_noun(options, "socket option")),
        (others, "make", count_with_noun(others, "other change")),
    ]
    .into_iter()
    .filter(|(count, ..)| *count > 0)
    .map(|(_, verb, what)| format!("{verb} {what}"))
    .collect();
    match parts.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, first)) => format!("{} and {last}", first.join(", ")),
        None => "change nothing".to_owned(),
    }
}

/// The reason why nothing can be done, in one line; `None` if there is nothing to do.
pub(crate) fn refusal_summary(boost: &BoostPlan) -> Option<String> {
    let first = boost.refusals.first()?;
    let more = match boost.refusals.iter().filter(|refusal| refusal.why != first.why).count() {
        0 => String::new(),
        more => format!(" (and {more} more)"),
    };
    Some(format!("{}: {}{more}", first.what, first.why))
}

/// Each reason with the groups, threads and findings to which it applies.
fn refusals(boost: &BoostPlan) -> Section {
    let refused = boost.refusals.iter().map(|BoostRefusal { what, why }| (why.as_str(), what.as_str()));
    let left = boost.plan.skipped.iter().map(|left| (left.why.as_str(), left.title.as_str()));
    let is_named = |why: &str| boost.refusals.iter().any(|refusal| refusal.why == why);
    let reasons = group_by_reason(refused.chain(left.filter(|(why, _)| !is_named(why))));
    let blocks = reasons.into_iter().flat_map(|(why, what)| {
        let what = what.into_iter().map(|what| Block::Paragraph(Tone::Warn, what.to_owned()));
        what.chain([Block::Facts(vec![Fact::new("why", why)])])
    });
    blocks.fold(Section::new("Left as it is"), Section::with)
}

fn advice(advice: &[ServerAdvice]) -> Section {
    advice.iter().fold(Section::new("Options of the server itself"), |section, one| {
        let facts = [("option", &one.option), ("source", &one.source)];
        let facts = facts.into_iter().filter_map(|(name, value)| Some(Fact::new(name, value.clone()?)));
        section.with(one.what.as_str()).with(facts.collect::<Vec<_>>())
    })
}

impl CommandResult for BoostApplyReport {
    const SCHEMA: &'static str = "linerate.boost-apply/2";

    fn document(envelope: &Envelope<Self>) -> Document {
        apply(envelope, &default_command)
    }
}

pub(crate) fn apply(envelope: &Envelope<BoostApplyReport>, command: TuneCommand<'_>) -> Document {
    let report = &envelope.result;
    let (tone, words, verification) = verification_text(&report.verification);
    let changed = match (report.tune, report.broke_off.as_deref()) {
        (Some(tune), broke_off) => apply_verdict(tune, &report.changes, broke_off),
        (None, why) => {
            format!("Nothing was changed{}.", why.map(|why| format!(": {why}")).unwrap_or_default())
        }
    };
    let mut document = envelope.new_document("Boost", format!("{changed} {verification}"));
    document.mark = Some(match (report.broke_off.is_some(), report.tune) {
        (true, _) => Mark::new(Tone::Bad, "stopped"),
        (false, None) => Mark::new(Tone::Plain, "nothing to change"),
        (false, Some(_)) if report.undone => Mark::new(Tone::Bad, "undone"),
        (false, Some(_)) => Mark::new(tone, words),
    });
    document.about = report.goal.clone();
    document.tiles = delivery_tiles(&report.now.as_ref().unwrap_or(&report.before).agreement);
    document.sections = vec![
        Section::new("Delivery of datagrams").with(comparison(&report.before, report.now.as_ref())),
        Section::new("What was changed").only_for(Audience::Page).with(change_table(&report.changes)),
    ];
    if report.tune.is_some() {
        document.sections.push(measurement::section(&report.measurement));
    }
    let is_undone = report.undone || matches!(report.verification, BoostVerification::Harmful { .. });
    if let Some(tune) = report.tune.filter(|_| !is_undone) {
        document.sections.push(next_steps(
            tune,
            &report.changes,
            report.until,
            report.broke_off.is_some(),
            command,
        ));
    }
    document
}

/// The verification as a tone, a mark and a sentence.
fn verification_text(verification: &BoostVerification) -> (Tone, &'static str, String) {
    let counted = |seen: &PlanConformity| {
        let share = known_text(seen.share(), format::percent);
        format!("{share} of {} datagrams", format::grouped(seen.packets))
    };
    match verification {
        BoostVerification::AsPlanned { conformity, replies_per_request: Some([before, now]) } => {
            let text = format!(
                "Verified: {} were delivered as planned, and the server sent {now:.2} replies per request \
                 ({before:.2} before).",
                counted(conformity)
            );
            (Tone::Good, "verified", text)
        }
        BoostVerification::AsPlanned { conformity, replies_per_request: None } => {
            let text = format!(
                "{} were delivered as planned. Not verified: whether the server answers as before, because too \
                 few datagrams came to compare. Apply it under load.",
                counted(conformity)
            );
            (Tone::Warn, "replies not verified", text)
        }
        BoostVerification::Harmful { why } => (Tone::Bad, "undone", format!("Undone, because {why}.")),
        BoostVerification::Elsewhere { conformity } => {
            let (socket, cpu) = (conformity.in_other_socket, conformity.on_other_cpu);
            let text = format!(
                "Only {} were delivered as planned: {} were put into the socket of another CPU, {} were read on \
                 another CPU.",
                counted(conformity),
                format::grouped(socket),
                format::grouped(cpu)
            );
            (Tone::Bad, "delivered elsewhere", text)
        }
        BoostVerification::Idle { conformity } => {
            let text = format!(
                "Idle: {} datagrams came, too few to verify. Look again under load.",
                format::grouped(conformity.packets)
            );
            (Tone::Warn, "idle", text)
        }
        BoostVerification::NotJudged { why } => (Tone::Warn, "not verified", format!("Not verified: {why}.")),
    }
}

/// Delivery before and after the changes.
fn comparison(before: &DeliveryCounts, now: Option<&DeliveryCounts>) -> Table {
    let counted = |look: Option<&'_ DeliveryCounts>| {
        let look = look?;
        Some((look.agreement.value()?.clone(), look.seconds?))
    };
    let looks = [counted(Some(before)), counted(now)];
    let row = |what: &str, cell: fn(&DeliveryAgreement, f64) -> String| {
        let cell = |look: &Option<(DeliveryAgreement, f64)>| {
            known_text(look.as_ref(), |(seen, seconds)| cell(seen, *seconds))
        };
        let [before, now] = &looks;
        [what.to_owned(), cell(before), cell(now)]
    };
    let mut table = Table::new(" | >before | >now");
    if looks.iter().all(Option::is_none) {
        return table;
    }
    table.row(row("datagrams read per second", |seen, seconds| {
        format::rate(seen.packets as f64 / seconds.max(f64::MIN_POSITIVE))
    }));
    table.row(row("read on the CPU they arrived on", |seen, _| {
        seen.share().map_or_else(|| "-".to_owned(), format::percent)
    }));
    table.row(row("lost to full buffers", |seen, _| format::grouped(seen.refused)));
    table
}

/// A line about a watched boost.
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
        WatchEvent::Undone => "the boost was undone".to_owned(),
    };
    format!("{}  {text}\n", jiff::Zoned::now().strftime("%H:%M:%S"))
}

impl CommandResult for BoostStatusReport {
    const SCHEMA: &'static str = "linerate.boost-status/2";

    fn document(envelope: &Envelope<Self>) -> Document {
        status(envelope, &default_command, true)
    }
}

/// `full` includes all settings and sockets.
pub(crate) fn status(
    envelope: &Envelope<BoostStatusReport>,
    command: TuneCommand<'_>,
    full: bool,
) -> Document {
    let status = &envelope.result;
    let verdict = match status.boosts.len() {
        0 => "No boost is in effect.".to_owned(),
        boosts => format!("{} in effect.", count_with_noun(boosts, "boost")),
    };
    let mut document = envelope.new_document("Boosts in effect", verdict);
    document.full = full;
    document.notes.extend(journal_note(status.trouble.as_ref(), &status.journal));
    document.sections = status.boosts.iter().map(|boost| boost_section(boost, command, full)).collect();
    document.sections.extend(status.replicas.value().into_iter().flatten().map(replicas::set_section));
    document.notes.extend(status.replicas.why().map(|why| Note::new(format!("Replicas are unknown: {why}"))));
    document
}

fn boost_section(boost: &ActiveBoost, command: TuneCommand<'_>, full: bool) -> Section {
    let section = status_section(&boost.tune, command, full);
    let groups = boost.groups.iter().flat_map(steered_group);
    groups.chain([Block::Facts(current_state(boost))]).fold(section, Section::with)
}

/// Packets per socket since the steering program was attached.
fn steered_group(group: &SteeredGroup) -> Vec<Block> {
    let name = format!("{} {}", group.protocol.name(), group.local);
    let warning = |text: String| vec![Block::Paragraph(Tone::Warn, text)];
    let steered = match &group.steered {
        Known::Value(Some(steered)) => steered,
        Known::Value(None) => return warning(format!("{name}: linerate's program is no longer attached")),
        Known::Unknown { why } => return warning(format!("{name}: its counters could not be read: {why}")),
    };
    let list = |cpus: &[u32]| if cpus.is_empty() { "-".to_owned() } else { format::cpu_list(cpus) };
    let row = |socket: &SteeredSocket| {
        let is_for = |cookies: &Vec<u64>| cookies.contains(&socket.cookie);
        let cpus: Vec<u32> =
            steered.by_cpu.iter().filter(|(_, cookies)| is_for(cookies)).map(|(cpu, _)| *cpu).collect();
        let from: Vec<u32> = socket.packets_by_cpu.keys().copied().collect();
        [
            socket.cookie.to_string(),
            list(&cpus),
            format::grouped(socket.packets_by_cpu.values().sum()),
            list(&from),
            if socket.present { "there" } else { "gone: its packets go to others" }.to_owned(),
        ]
    };
    let table = Table::new(">socket | for CPUs | >packets | by CPUs | socket is");
    let table = limited(table.with_rows(steered.sockets.iter().map(row)));
    let mut blocks = vec![Block::from(format!("{name}: packets so far")), table.into()];
    blocks.extend(hash_fallback(steered).map(|text| Block::Paragraph(Tone::Warn, text)));
    blocks
}

/// Packets for which the program used the kernel's hash.
fn hash_fallback(steered: &SteeredSockets) -> Option<String> {
    let hashed = || steered.hashed_by_cpu.iter().filter(|(_, packets)| **packets > 0);
    let cpus: Vec<u32> = hashed().map(|(cpu, _)| *cpu).collect();
    (!cpus.is_empty()).then(|| {
        let packets = format::grouped(hashed().map(|(_, packets)| packets).sum());
        format!(
            "{packets} packets of CPU {} went by the kernel's hash: none of their sockets was there",
            format::cpu_list(&cpus)
        )
    })
}

fn current_state(boost: &ActiveBoost) -> Vec<Fact> {
    let now = match &boost.now {
        Known::Value(now) => now,
        Known::Unknown { why } => return vec![Fact::new("now", why)],
    };
    let mut facts = vec![Fact::new("now", format!("{}.", delivery_text(&now.delivery.agreement)))];
    if !now.unread_sockets.is_empty() {
        let noun = if now.unread_sockets.len() == 1 { "socket" } else { "sockets" };
        let cookies = format::comma_list(&now.unread_sockets);
        facts.push(Fact::new("unread", format!("no thread was seen to read {noun} {cookies}")));
    }
    if now.changes_wanted > 0 {
        let changes = count_with_noun(now.changes_wanted, "change");
        let command_line = format::command_line(&boost.tune.argv);
        facts.push(Fact::new("to do", format!("{changes} would correct it: {command_line}")));
    }
    facts
}
