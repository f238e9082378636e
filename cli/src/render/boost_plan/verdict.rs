//! The line that matters most.

use linerate_host::{Known, Setting};
use linerate_tune::boost::BoostPlan;
use linerate_tune::boost::delivery::DeliveryAgreement;
use linerate_tune::boost::discovery::ObservedServer;

use crate::command::boost::BoostPlanDocument;
use crate::render::format;
use crate::render::style::TextTone;
use crate::render::tune_plan::count_with_noun;

/// What is wrong, and what would be done about it.
pub(super) fn verdict(planned: &BoostPlanDocument<'_>) -> (TextTone, String) {
    let name = server_title(planned.server);
    let landed = delivery_text(planned.agreement);
    let boost = planned.boost;
    if !boost.plan.changes.is_empty() {
        return (TextTone::Strong, format!("{name}: {landed}. This plan would {}.", change_summary(boost)));
    }
    match refusal_summary(boost) {
        Some(why) => (TextTone::Warn, format!("{name}: {landed}. Nothing can be done from outside: {why}")),
        None => (TextTone::Good, format!("{name}: nothing to change; {landed}.")),
    }
}

/// `nsd on port 53`.
pub(crate) fn server_title(server: &ObservedServer) -> String {
    let mut ports = server.udp_ports();
    if ports.is_empty() {
        ports = server.groups.iter().map(|group| group.local.port()).collect();
        ports.sort_unstable();
        ports.dedup();
    }
    let listed: Vec<String> = ports.iter().map(u16::to_string).collect();
    let noun = if ports.len() == 1 { "port" } else { "ports" };
    format!("{} on {noun} {}", server.name, listed.join(", "))
}

/// How packets landed, in words.
pub(crate) fn delivery_text(agreement: &Known<DeliveryAgreement>) -> String {
    match agreement {
        Known::Unknown { why } => format!("where its packets land is not known ({why})"),
        Known::Value(seen) if seen.packets == 0 => "no datagram was read while it was looked at".to_owned(),
        Known::Value(seen) => {
            let share = format::percent(seen.on_arrival_cpu as f64 / seen.packets as f64);
            let refused = match seen.refused {
                0 => String::new(),
                some => format!(", and {} were lost to full buffers", format::grouped(some)),
            };
            let packets = format::grouped(seen.packets);
            format!("{share} of {packets} datagrams were read on the CPU they arrived on{refused}")
        }
    }
}

/// `steer 2 groups by CPU, pin 2 threads`.
pub(crate) fn change_summary(boost: &BoostPlan) -> String {
    let count =
        |is: fn(&Setting) -> bool| boost.plan.changes.iter().filter(|change| is(&change.setting)).count();
    let groups = count(|setting| matches!(setting, Setting::Steering { .. }));
    let threads = count(|setting| matches!(setting, Setting::ThreadCpus { .. }));
    let options = count(|setting| matches!(setting, Setting::Socket { .. }));
    let others = boost.plan.changes.len() - groups - threads - options + boost.plan.agreements.len();
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

/// Why nothing can be done, in one line; none where nothing need be done.
pub(crate) fn refusal_summary(boost: &BoostPlan) -> Option<String> {
    let first = boost.refusals.first()?;
    let more = match boost.refusals.iter().filter(|refusal| refusal.why != first.why).count() {
        0 => String::new(),
        more => format!(" (and {more} more)"),
    };
    Some(format!("{}: {}{more}", first.what, first.why))
}
