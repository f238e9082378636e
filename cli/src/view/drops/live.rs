//! `--watch`: one line per second.

use linerate_trace::drops::{AccountingPath, PacketAccounting, StageLoss};

use crate::document::Tone;
use crate::render::column::cut;
use crate::render::format::{comma_list, grouped, known_text};
use crate::render::style::TextStyle;

/// Lines between two headings.
const A_SCREEN: u32 = 20;
/// Columns for the figures. The names after them are cut in a narrow terminal.
const LEAST_WIDTH: usize = 104;
/// Largest number of losses named in a line.
const MOST: usize = 3;

/// The totals printed so far.
#[derive(Debug, Default)]
pub(crate) struct PrintedDrops {
    lines: u32,
    requests_lost: u64,
    replies_lost: u64,
    unaccounted: u64,
}

impl PrintedDrops {
    /// The line of one interval, with headings every 20 lines.
    pub(crate) fn interval_line(&mut self, accounting: &PacketAccounting, style: TextStyle) -> String {
        let (requests_lost, replies_lost) =
            (lost_packets(&accounting.requests), lost_packets(&accounting.replies));
        let unaccounted = accounting.ways().map(AccountingPath::unaccounted).fold(0, u64::saturating_add);
        self.requests_lost = self.requests_lost.saturating_add(requests_lost);
        self.replies_lost = self.replies_lost.saturating_add(replies_lost);
        self.unaccounted = self.unaccounted.saturating_add(unaccounted);
        let figures = [
            // Less than the time between two lines if packets are sampled.
            format!("{:.2} s", accounting.seconds),
            known_text(accounting.requests.packets_in(), grouped),
            grouped(requests_lost),
            grouped(self.requests_lost),
            known_text(accounting.replies.packets_out(), grouped),
            grouped(replies_lost),
            grouped(self.replies_lost),
            grouped(self.unaccounted),
        ];
        let time = jiff::Zoned::now().strftime("%H:%M:%S").to_string();
        let line = format!(
            "{}  {}",
            cells(&time, figures.each_ref().map(String::as_str)),
            largest_losses(accounting)
        );
        let line = cut(line.trim_end(), style.width.max(LEAST_WIDTH));
        let tone = if requests_lost > 0 || replies_lost > 0 { Tone::Bad } else { Tone::Plain };
        let headings = cells(
            "time",
            ["counted", "requests", "lost", "total", "replies", "lost", "total", "unaccounted"],
        );
        let heading_line = self.lines.is_multiple_of(A_SCREEN).then(|| style.paint(Tone::Faint, &headings));
        self.lines += 1;
        let lines: Vec<String> =
            heading_line.into_iter().chain([style.paint(tone, &line), String::new()]).collect();
        lines.join("\n")
    }
}

fn cells(time: &str, figures: [&str; 8]) -> String {
    let [counted, requests, lost, lost_total, replies, replies_lost, replies_total, unaccounted] = figures;
    format!(
        "{time:<8}  {counted:>7}  {requests:>11}  {lost:>9}  {lost_total:>11}  {replies:>11}  {replies_lost:>9}  {replies_total:>11}  {unaccounted:>11}"
    )
}

/// All lost packets, including those that a device counts.
fn lost_packets(path: &AccountingPath) -> u64 {
    path.losses().map(|(_, loss)| loss.packets).fold(0, u64::saturating_add)
}

/// The largest losses of a second: `netfilter-rule 5,000`.
fn largest_losses(accounting: &PacketAccounting) -> String {
    let mut losses: Vec<&StageLoss> =
        accounting.ways().flat_map(|path| path.losses().map(|(_, loss)| loss)).collect();
    losses.retain(|loss| loss.packets > 0);
    losses.sort_by_key(|loss| std::cmp::Reverse(loss.packets));
    comma_list(losses.iter().take(MOST).map(|loss| format!("{} {}", loss.name, grouped(loss.packets))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::drops::tests::accounting;

    #[test]
    fn live_lines_have_losses_per_second_and_in_total() {
        let style = TextStyle { width: 130, colour: false };
        let mut printer = PrintedDrops::default();
        let first = printer.interval_line(&accounting(), style);
        let second = printer.interval_line(&accounting(), style);
        assert!(first.starts_with("time ") && first.ends_with('\n') && first.lines().count() == 2, "{first}");
        let cells: Vec<&str> = second.split_whitespace().skip(1).collect();
        assert_eq!(
            cells,
            ["2.00", "s", "1,000", "100", "200", "900", "0", "0", "0", "netfilter-rule", "100"]
        );
        let narrow = printer.interval_line(&accounting(), TextStyle { width: 20, colour: false });
        assert!(narrow.lines().all(|line| line.chars().count() <= LEAST_WIDTH), "{narrow}");
    }
}
