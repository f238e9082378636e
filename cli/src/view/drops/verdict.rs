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
pub(crate) fn lines(ledger: &PacketAccounting) -> Vec<VerdictLine> {
    if let Some(answered) = all_answered(ledger) {
        let text =
            format!("All of {} requests were answered; nothing is unaccounted for.", grouped(answered));
        return vec![VerdictLine { tone: Tone::Good, text }];
    }
    if !is_anything(ledger) {
        let text = "No packets were seen, and none were lost.".to_owned();
        return vec![VerdictLine { tone: Tone::Warn, text }];
    }
    let elsewhere = (!ledger.elsewhere.is_empty()).then(|| {
        let text = format!("Elsewhere: {}.", named(ledger.elsewhere.iter().map(|loss| (None, loss))));
        VerdictLine { tone: Tone::Warn, text }
    });
    named_paths(ledger).map(|(name, way)| line(name, way)).chain(elsewhere).collect()
}

/// The generator's count of replies, if every request was answered and nothing was lost.
fn all_answered(ledger: &PacketAccounting) -> Option<u64> {
    let generator = |way: &AccountingPath| way.entry(PathStep::Generator).cloned();
    let sent = *generator(&ledger.requests)?.packets_in.value()?;
    let answered = *generator(&ledger.replies)?.packets_out.value()?;
    (sent == answered && sent > 0 && ledger.is_clean()).then_some(sent)
}

fn is_anything(ledger: &PacketAccounting) -> bool {
    let counted =
        ledger.ways().flat_map(|way| &way.stages).flat_map(|entry| [&entry.packets_in, &entry.packets_out]);
    !ledger.is_clean() || counted.filter_map(|packets| packets.value()).any(|packets| *packets > 0)
}

fn line(name: &str, way: &AccountingPath) -> VerdictLine {
    let with =
        |packets: Option<u64>, word: &str| packets.map(|packets| format!("{} {word}", grouped(packets)));
    let mut parts: Vec<String> = with(way.packets_in(), "in").into_iter().collect();
    parts.extend(with(Some(way.forwarded()).filter(|packets| *packets > 0), "forwarded"));
    let lost: Vec<(Option<PathStep>, &StageLoss)> =
        way.losses().filter(|(_, loss)| loss.packets > 0).map(|(step, loss)| (Some(step), loss)).collect();
    if lost.is_empty() {
        parts.push("none lost".to_owned());
    } else {
        parts.push(named(lost.iter().copied()));
    }
    parts.extend(unaccounted(way));
    parts.extend(with(waiting(way), "waiting at the end"));
    let tone = match (lost.is_empty(), way.is_balanced()) {
        (true, true) => Tone::Good,
        _ => Tone::Bad,
    };
    VerdictLine { tone, text: format!("{name}: {}.", parts.join(", ")) }
}

/// Losses by name, the largest first: `100 lost: a rule of netfilter dropped it (nf_hook_slow)`.
fn named<'l>(losses: impl Iterator<Item = (Option<PathStep>, &'l StageLoss)>) -> String {
    let mut losses: Vec<_> = losses.filter(|(_, loss)| loss.packets > 0).collect();
    losses.sort_by_key(|(_, loss)| std::cmp::Reverse(loss.packets));
    let one = |(step, loss): &(Option<PathStep>, &StageLoss)| {
        // The place where packets leave this host for another host, a virtual machine or a
        // container.
        let leaves = matches!(step, Some(PathStep::Link | PathStep::Transmit)) || loss.name == "tap-full";
        let place = loss.place.as_ref().filter(|_| leaves);
        let place = place.map(|place| format!(" at {place}")).unwrap_or_default();
        let symbol =
            loss.symbol.as_deref().map(|symbol| format!(" ({})", function(symbol))).unwrap_or_default();
        let device =
            if loss.exactness == LossExactness::OfDevice { ", of all that pass the device" } else { "" };
        format!("{} lost{place}: {}{symbol}{device}", grouped(loss.packets), loss.what)
    };
    let mut texts: Vec<String> = losses.iter().take(MOST).map(one).collect();
    if losses.len() > MOST {
        let more = losses.iter().skip(MOST).map(|(_, loss)| loss.packets).fold(0, u64::saturating_add);
        texts.push(format!(
            "{} lost in {}",
            grouped(more),
            count_with_noun(losses.len() - MOST, "other way")
        ));
    }
    texts.join(", ")
}

/// The function without its offset.
fn function(symbol: &str) -> &str {
    symbol.split_once('+').map_or(symbol, |(function, _)| function)
}

fn unaccounted(way: &AccountingPath) -> Option<String> {
    let packets = way.unaccounted();
    (packets > 0).then(|| format!("{} unaccounted for", grouped(packets)))
}

fn waiting(way: &AccountingPath) -> Option<u64> {
    let packets = way.stages.iter().map(|entry: &StageEntry| entry.waiting).fold(0, i64::saturating_add);
    u64::try_from(packets).ok().filter(|packets| *packets > 0)
}
