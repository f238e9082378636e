//! The verdict: one line per path.

use linerate_trace::drops::{
    AccountingPath, LossExactness, PacketAccounting, PathStep, StageEntry, StageLoss,
};

use super::named_paths;
use crate::document::Tone;
use crate::render::format::count_with_noun;
use crate::render::format::grouped;

/// Largest number of losses named in a verdict. Further losses are only counted.
const MOST: usize = 3;

pub(crate) struct VerdictLine {
    pub(crate) tone: Tone,
    pub(crate) text: String,
}

/// The line about requests comes first.
pub(crate) fn lines(accounting: &PacketAccounting) -> Vec<VerdictLine> {
    if let Some(reply_count) = answered_requests(accounting) {
        let text =
            format!("All of {} requests were answered; nothing is unaccounted for.", grouped(reply_count));
        return vec![VerdictLine { tone: Tone::Good, text }];
    }
    if !has_packets(accounting) {
        let text = "No packets were seen, and none were lost.".to_owned();
        return vec![VerdictLine { tone: Tone::Warn, text }];
    }
    let other_losses = (!accounting.elsewhere.is_empty()).then(|| {
        let text =
            format!("Elsewhere: {}.", losses_text(accounting.elsewhere.iter().map(|loss| (None, loss))));
        VerdictLine { tone: Tone::Warn, text }
    });
    named_paths(accounting).map(|(name, path)| line(name, path)).chain(other_losses).collect()
}

/// The generator's count of replies, if every request was answered and nothing was lost.
fn answered_requests(accounting: &PacketAccounting) -> Option<u64> {
    let generator = |path: &AccountingPath| path.entry(PathStep::Generator).cloned();
    let requests = *generator(&accounting.requests)?.packets_in.value()?;
    let replies = *generator(&accounting.replies)?.packets_out.value()?;
    (requests == replies && requests > 0 && accounting.is_clean()).then_some(requests)
}

fn has_packets(accounting: &PacketAccounting) -> bool {
    let packet_counts = accounting
        .ways()
        .flat_map(|path| &path.stages)
        .flat_map(|entry| [&entry.packets_in, &entry.packets_out]);
    !accounting.is_clean() || packet_counts.filter_map(|packets| packets.value()).any(|packets| *packets > 0)
}

fn line(name: &str, path: &AccountingPath) -> VerdictLine {
    let with_label =
        |packets: Option<u64>, label: &str| packets.map(|packets| format!("{} {label}", grouped(packets)));
    let mut parts: Vec<String> = with_label(path.packets_in(), "in").into_iter().collect();
    parts.extend(with_label(Some(path.forwarded()).filter(|packets| *packets > 0), "forwarded"));
    let losses: Vec<(Option<PathStep>, &StageLoss)> =
        path.losses().filter(|(_, loss)| loss.packets > 0).map(|(step, loss)| (Some(step), loss)).collect();
    if losses.is_empty() {
        parts.push("none lost".to_owned());
    } else {
        parts.push(losses_text(losses.iter().copied()));
    }
    parts.extend(unaccounted(path));
    parts.extend(with_label(waiting_packets(path), "waiting at the end"));
    let tone = match (losses.is_empty(), path.is_balanced()) {
        (true, true) => Tone::Good,
        _ => Tone::Bad,
    };
    VerdictLine { tone, text: format!("{name}: {}.", parts.join(", ")) }
}

/// Losses by name, the largest first: `100 lost: a rule of netfilter dropped it (nf_hook_slow)`.
fn losses_text<'l>(losses: impl Iterator<Item = (Option<PathStep>, &'l StageLoss)>) -> String {
    let mut losses: Vec<_> = losses.filter(|(_, loss)| loss.packets > 0).collect();
    losses.sort_by_key(|(_, loss)| std::cmp::Reverse(loss.packets));
    let loss_text = |(step, loss): &(Option<PathStep>, &StageLoss)| {
        // The place where packets leave this host for another host, a virtual machine or a
        // container.
        let is_exit = matches!(step, Some(PathStep::Link | PathStep::Transmit)) || loss.name == "tap-full";
        let exit_place = loss.place.as_ref().filter(|_| is_exit);
        let place_text = exit_place.map(|place| format!(" at {place}")).unwrap_or_default();
        let symbol =
            loss.symbol.as_deref().map(|symbol| format!(" ({})", function(symbol))).unwrap_or_default();
        let device =
            if loss.exactness == LossExactness::OfDevice { ", of all that pass the device" } else { "" };
        format!("{} lost{place_text}: {}{symbol}{device}", grouped(loss.packets), loss.what)
    };
    let mut texts: Vec<String> = losses.iter().take(MOST).map(loss_text).collect();
    if losses.len() > MOST {
        let further_packets =
            losses.iter().skip(MOST).map(|(_, loss)| loss.packets).fold(0, u64::saturating_add);
        texts.push(format!(
            "{} lost in {}",
            grouped(further_packets),
            count_with_noun(losses.len() - MOST, "other way")
        ));
    }
    texts.join(", ")
}

/// The function without its offset.
fn function(symbol: &str) -> &str {
    symbol.split_once('+').map_or(symbol, |(function, _)| function)
}

fn unaccounted(path: &AccountingPath) -> Option<String> {
    let packets = path.unaccounted();
    (packets > 0).then(|| format!("{} unaccounted for", grouped(packets)))
}

fn waiting_packets(path: &AccountingPath) -> Option<u64> {
    let packets = path.stages.iter().map(|entry: &StageEntry| entry.waiting).fold(0, i64::saturating_add);
    u64::try_from(packets).ok().filter(|packets| *packets > 0)
}
