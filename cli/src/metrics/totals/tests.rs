use super::*;
use crate::metrics::families::{
    FAMILIES, IRQ_CPU, RSS_RECEIVE_PACKETS, SOCKET_DROPPED, SOCKET_FILL, SOCKET_QUEUED, SOFTIRQ_PROCESSED,
    THREAD_CPU_SECONDS,
};
use crate::metrics::gather::CounterReset;
use proptest::prelude::*;

fn scrape(
    tally: &mut MetricTotals,
    gather: impl FnOnce(&mut GatheredSamples),
) -> (Exposition, Vec<(&'static str, usize)>) {
    let mut gathered = GatheredSamples::default();
    gather(&mut gathered);
    tally.record_scrape(FAMILIES, &gathered)
}

fn rows(exposition: &Exposition, family: &MetricFamily) -> Vec<(String, f64)> {
    let found = exposition.families.iter().find(|(found, _)| found.name == family.name);
    let rows = found.map_or(&[][..], |(_, rows)| rows.as_slice());
    rows.iter().map(|row| (row.labels.join(" "), row.number.value())).collect()
}

/// The rows of a family after another scrape.
fn scraped_rows(
    tally: &mut MetricTotals,
    family: &MetricFamily,
    gather: impl FnOnce(&mut GatheredSamples),
) -> Vec<(String, f64)> {
    rows(&scrape(tally, gather).0, family)
}

fn row(labels: &str, value: f64) -> (String, f64) {
    (labels.to_owned(), value)
}

#[test]
fn a_sum_does_not_shrink_when_a_source_disappears() {
    let mut tally = MetricTotals::new(10);
    let mut total = |sockets: &[(u64, u64)]| {
        let rows = scraped_rows(&mut tally, &SOCKET_DROPPED, |all| {
            for (inode, drops) in sockets {
                let source = (*inode, CounterReset::At32Bits);
                all.add_source_counter(&SOCKET_DROPPED, &["udp", "53"], source, *drops);
            }
        });
        rows.first().map(|row| row.1)
    };
    assert_eq!(total(&[(1, 100), (2, 50)]), Some(150.0));
    assert_eq!(total(&[(2, 60)]), Some(160.0));
    assert_eq!(total(&[]), None, "without sockets there is no series");
    assert_eq!(total(&[(3, 5)]), Some(165.0));
    assert_eq!(total(&[(1, 101), (3, 5)]), Some(166.0), "socket 1 was unreadable in three scrapes");
}

#[test]
fn decreasing_counters_restart_wrap_or_stay_by_their_reset_kind() {
    use CounterReset::{At32Bits, Never, Restarted};
    let mut tally = MetricTotals::new(10);
    let mut value = |restart, count: u64| {
        let labels = [match restart {
            Restarted => "0",
            At32Bits => "1",
            Never => "2",
        }];
        let rows = scraped_rows(&mut tally, &SOFTIRQ_PROCESSED, |all| {
            all.add_source_counter(&SOFTIRQ_PROCESSED, &labels, (0, restart), count);
        });
        rows[0].1
    };
    assert_eq!((value(Restarted, 100), value(Restarted, 7)), (100.0, 107.0));
    let almost = (1 << 32) - 10;
    assert_eq!(value(At32Bits, almost) + 15.0, value(At32Bits, 5));
    assert_eq!(value(At32Bits, 3), f64::from(u32::MAX) + 1.0 + 8.0);
    // A sum of three counters, of which one wraps.
    let sum = 3 * almost;
    assert_eq!(value(At32Bits, sum) + 15.0, value(At32Bits, sum + 15 - (1 << 32)));
    assert_eq!((value(Never, 100), value(Never, 98), value(Never, 101)), (100.0, 100.0, 101.0));
}

#[test]
fn a_source_that_changes_its_labels_is_counted_once() {
    let mut tally = MetricTotals::new(10);
    let mut thread = |port: &str, ticks| {
        let rows = scraped_rows(&mut tally, &THREAD_CPU_SECONDS, |all| {
            all.add_moving_counter(&THREAD_CPU_SECONDS, &[port, "user"], 1, ticks);
        });
        rows[0].1
    };
    for (port, ticks, seconds) in
        [("1812", 1000, 10.0), ("several", 1100, 1.0), ("1812", 1300, 12.0), ("several", 1400, 2.0)]
    {
        assert_eq!(thread(port, ticks), seconds, "{port} {ticks}");
    }
}

#[test]
fn a_thread_that_was_hidden_adds_only_its_later_cpu_time() {
    let mut tally = MetricTotals::new(10);
    let mut threads = |threads: &[(u64, u64)]| {
        let rows = scraped_rows(&mut tally, &THREAD_CPU_SECONDS, |all| {
            for (thread, ticks) in threads {
                all.add_moving_counter(&THREAD_CPU_SECONDS, &["1812", "user"], *thread, *ticks);
            }
        });
        rows.first().map(|row| row.1)
    };
    assert_eq!(threads(&[(1, 1000)]), Some(10.0), "the first scrape has the whole count");
    assert_eq!(threads(&[(1, 1100), (2, 1_440_000)]), Some(11.0));
    assert_eq!(threads(&[(1, 1100), (2, 1_440_100)]), Some(12.0));
    for _ in 0..REMEMBERED {
        threads(&[(1, 1100)]);
    }
    assert_eq!(threads(&[(1, 1100), (2, 1_500_000)]), Some(12.0), "thread 2 was forgotten");
}

#[test]
fn series_beyond_the_limit_are_summed_as_other() {
    let mut tally = MetricTotals::new(2);
    let queues = |tally: &mut MetricTotals, counts: &[(&str, u64)]| {
        let (exposition, folded) = scrape(tally, |all| {
            for (queue, count) in counts {
                all.add_counter(&RSS_RECEIVE_PACKETS, &["eth0", queue], *count);
            }
        });
        (rows(&exposition, &RSS_RECEIVE_PACKETS), folded)
    };
    let (rows, folded) = queues(&mut tally, &[("0", 1), ("1", 2), ("2", 4), ("3", 8)]);
    assert_eq!(rows, [row("eth0 0", 1.0), row("eth0 1", 2.0), row("eth0 other", 12.0)]);
    assert_eq!(folded, [("linerate_rss_receive_packets", 2)]);
    // Queue 0 is missing: its place stays reserved, and `other` does not shrink.
    let (rows, _) = queues(&mut tally, &[("1", 2), ("2", 5)]);
    assert_eq!(rows, [row("eth0 1", 2.0), row("eth0 other", 13.0)]);
    let (rows, _) = queues(&mut tally, &[("0", 3), ("3", 9)]);
    assert_eq!(rows, [row("eth0 0", 3.0), row("eth0 other", 14.0)]);
}

#[test]
fn a_freed_slot_counts_a_new_series_from_its_current_value() {
    let mut tally = MetricTotals::new(1);
    let mut queue = |queue: &str, count: u64| {
        scraped_rows(&mut tally, &RSS_RECEIVE_PACKETS, |all| {
            all.add_counter(&RSS_RECEIVE_PACKETS, &["eth0", queue], count);
        })
    };
    queue("0", 10);
    for _ in 0..REMEMBERED {
        queue("1", 100);
    }
    // The earlier packets of queue 1 are in `other` already.
    assert_eq!(queue("1", 103), [row("eth0 1", 3.0), row("eth0 other", 100.0)]);
}

#[test]
fn gauges_merge_by_the_rule_of_their_family() {
    let mut tally = MetricTotals::new(1);
    let (exposition, _) = scrape(&mut tally, |all| {
        for port in ["53", "54", "55"] {
            all.add_gauge(&SOCKET_QUEUED, &["udp", port], 2.0);
            all.add_gauge(&SOCKET_FILL, &["udp", port], port.parse::<f64>().expect("a number") / 100.0);
            all.add_gauge(&IRQ_CPU, &["eth0", port], 3.0);
        }
        all.add_gauge(&SOCKET_QUEUED, &["udp", "53"], 3.0);
    });
    assert_eq!(rows(&exposition, &SOCKET_QUEUED), [row("udp 53", 5.0), row("udp other", 4.0)]);
    assert_eq!(rows(&exposition, &SOCKET_FILL), [row("udp 53", 0.53), row("udp other", 0.55)]);
    assert_eq!(rows(&exposition, &IRQ_CPU), [row("eth0 53", 3.0)]);
}

#[test]
fn the_number_of_label_groups_is_limited() {
    let mut tally = MetricTotals::new(1);
    let (exposition, folded) = scrape(&mut tally, |all| {
        for interface in 0..1000 {
            all.add_counter(&RSS_RECEIVE_PACKETS, &[&format!("eth{interface}"), "0"], 1_u64);
        }
    });
    let rows = rows(&exposition, &RSS_RECEIVE_PACKETS);
    assert_eq!((rows.len(), folded[0].1), (1 + GROUPS + 1, 999));
    assert_eq!(rows.iter().map(|row| row.1).sum::<f64>(), 1000.0);
}

proptest! {
    /// No series of a counter shrinks while sources appear, disappear and restart, and there are
    /// never more series than allowed.
    #[test]
    fn counters_never_shrink(
        most in 1..4_usize,
        scrapes in prop::collection::vec(prop::collection::vec((0..6_u64, 0..50_u64), 0..6), 1..12),
    ) {
        let mut tally = MetricTotals::new(most);
        let mut last: BTreeMap<String, f64> = BTreeMap::new();
        for queues in scrapes {
            let queues: BTreeMap<u64, u64> = queues.into_iter().collect();
            let rows = scraped_rows(&mut tally, &RSS_RECEIVE_PACKETS, |all| {
                for (queue, count) in &queues {
                    all.add_counter(&RSS_RECEIVE_PACKETS, &["eth0", &queue.to_string()], *count);
                }
            });
            for (labels, value) in rows {
                let before = last.insert(labels, value).unwrap_or(0.0);
                prop_assert!(value >= before);
            }
            prop_assert!(last.len() <= most + 1);
        }
    }
}
