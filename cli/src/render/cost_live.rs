//! What packets cost, a line a second, for logs.

use std::time::Duration;

use linerate_trace::cost::CostReport;

use super::cost_summary::{most_affected_cpu, packets_share, share, top_victims, wall_ns};
use super::format::{percent, rate};
use crate::command::cost::VictimGrouping;

pub(crate) const HEADER: &str =
    " seconds  packets/s  all CPUs  highest on CPU  ksoftirqd  took most from, and how much of one CPU\n";

/// The last interval in one line.
pub(crate) fn line(at: Duration, cost: &CostReport, by: VictimGrouping) -> String {
    let all = cost.all_cpus();
    let whole = all.elapsed_ns as f64;
    let worst = most_affected_cpu(cost)
        .map_or_else(String::new, |cpu| format!("{} on {}", percent(packets_share(cpu)), cpu.cpu));
    let loser =
        top_victims(cost, by).into_iter().next().filter(|loser| loser.group.lost_ns() > 0).map_or_else(
            || "-".to_owned(),
            |loser| format!("{} {}", loser.name, percent(share(loser.group.lost_ns(), wall_ns(cost)))),
        );
    format!(
        "{:>8.1}  {:>9}  {:>8}  {worst:>14}  {:>9}  {loser}",
        at.as_secs_f64(),
        rate(all.entered_packets as f64 / cost.seconds),
        percent(share(all.packets_ns(), whole)),
        percent(share(all.in_ksoftirqd_ns + all.in_threads_ns, whole)),
    )
}

#[cfg(test)]
mod tests {
    use super::super::made_up_cost::cost;
    use super::*;

    #[test]
    fn columns_line_up() {
        let shown = line(Duration::from_secs(3), &cost(), VictimGrouping::Process);
        let column = |text: &str, word: &str| text.find(word).map(|at| at + word.len());
        assert_eq!(column(HEADER, "packets/s"), column(&shown, "195 k"), "{shown}");
        assert_eq!(column(HEADER, "ksoftirqd"), column(&shown, "1.9 %"), "{shown}");
        assert_eq!(column(HEADER, "highest on CPU"), column(&shown, "40 % on 2"), "{shown}");
        assert!(shown.ends_with("openssl (812) 41 %"), "{shown}");
    }
}
