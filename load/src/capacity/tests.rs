use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::simulation::{SLOT, SimulatedService};
use super::{
    CapacitySample, ProbeVerdict, SearchEnd, SearchEvent, SearchOptions, overload, search, search_repeatedly,
};
use crate::error::GeneratorError;
use crate::outcome::{BoundReason, SendMethod};

const DRAIN: Duration = Duration::ZERO;

fn options() -> SearchOptions<'static> {
    SearchOptions { slot: SLOT, ..SearchOptions::default() }
}

fn capacity_sample(simulation: &mut SimulatedService, options: &SearchOptions<'_>) -> CapacitySample {
    search(simulation, options).unwrap()
}

fn assert_near(sample: &CapacitySample, capacity: f64, resolution: f64) {
    let rate = sample.transactions_per_second;
    // The simulation loses whole requests only, so a loss of less than half a request per slot is
    // rounded away.
    let unseen = 0.5 / SLOT.as_secs_f64();
    assert!(
        rate <= capacity * 1.001 + unseen && rate >= capacity / resolution * 0.999,
        "found {rate} of {capacity}"
    );
}

#[test]
fn capacity_is_found_within_the_resolution() {
    for capacity in [130.0, 1_500.0, 23_456.0, 270_000.0, 7_010_000.0] {
        let mut simulation = SimulatedService { buffer: 0.0, ..SimulatedService::of(capacity) };
        let sample = capacity_sample(&mut simulation, &options());
        assert_near(&sample, capacity, 1.04);
        assert_eq!(sample.ended, SearchEnd::Confirmed);
        assert!(!sample.generator_bound && sample.loss_ratio <= 0.001);
    }
}

#[test]
fn a_budget_without_end_is_no_error() {
    let options = SearchOptions { budget: Duration::MAX, ..options() };
    let sample = capacity_sample(&mut SimulatedService::of(1_000.0), &options);
    assert_eq!(sample.ended, SearchEnd::Confirmed);
}

#[test]
fn a_constant_latency_is_no_queue_and_hides_none() {
    for constant_us in [100, 10_000, 50_000, 200_000] {
        // A deep buffer holds all requests above the capacity.
        for buffer in [0.0, 1e9] {
            let constant_ns = constant_us * 1_000;
            let mut simulation = SimulatedService { buffer, constant_ns, ..SimulatedService::of(50_000.0) };
            for milliseconds in [80, 250] {
                let options = SearchOptions { slot: Duration::from_millis(milliseconds), ..options() };
                let sample = capacity_sample(&mut simulation, &options);
                let rate = sample.offered_per_second;
                let queue_grows = sample.slots.iter().any(|slot| slot.verdict == ProbeVerdict::QueueGrows);
                assert!(queue_grows || buffer == 0.0, "{sample:?}");
                assert!(
                    (50_000.0 / 1.05..50_000.0 * 1.04).contains(&rate),
                    "{rate} after {constant_us} us in slots of {milliseconds} ms"
                );
            }
            let rate = search_repeatedly(&mut simulation, &fine(), 1).unwrap().transactions_per_second.median;
            assert!((rate / 50_000.0 - 1.0).abs() < 0.02, "{rate} after {constant_us} us");
        }
    }
}

#[test]
fn a_correct_bracket_saves_slots_and_a_wrong_bracket_stays_accurate() {
    let capacity = 81_000.0;
    let plain =
        capacity_sample(&mut SimulatedService { buffer: 0.0, ..SimulatedService::of(capacity) }, &options());
    for bracket in [(70_000.0, 90_000.0), (10_000.0, 20_000.0), (300_000.0, 900_000.0), (81_500.0, 82_000.0)]
    {
        let mut simulation = SimulatedService { buffer: 0.0, ..SimulatedService::of(capacity) };
        let sample = capacity_sample(&mut simulation, &SearchOptions { bracket: Some(bracket), ..options() });
        assert_near(&sample, capacity, 1.04);
        if bracket == (70_000.0, 90_000.0) {
            assert!(sample.slots.len() < plain.slots.len());
        }
    }
}

#[test]
fn disturbed_slots_rarely_lower_the_capacity() {
    let mut low = 0;
    for seed in 0..20 {
        let mut simulation = SimulatedService {
            buffer: 0.0,
            hiccup: 0.05,
            random: fastrand::Rng::with_seed(seed),
            ..SimulatedService::of(100_000.0)
        };
        let sample = capacity_sample(&mut simulation, &options());
        assert!(sample.transactions_per_second > 0.0);
        low += usize::from(sample.transactions_per_second < 100_000.0 / 1.09);
    }
    assert!(low <= 2, "{low} of 20 searches were misled");
}

#[test]
fn a_rate_that_failed_in_disturbed_slots_is_tried_again() {
    // Without a bracket, the 6th and the 7th slot offer 32,000 per second for the first and the
    // second time.
    for bracket in [None, Some((20_000.0, 40_000.0))] {
        let spoilt = if bracket.is_none() { 5..7 } else { 0..2 };
        let mut simulation = SimulatedService { buffer: 0.0, spoilt, ..SimulatedService::of(100_000.0) };
        let sample = capacity_sample(&mut simulation, &SearchOptions { bracket, ..options() });
        assert_near(&sample, 100_000.0, 1.04);
    }
}

#[test]
fn search_ends_generator_bound_at_the_generators_limit() {
    let mut simulation = SimulatedService { reach: 60_000.0, ..SimulatedService::of(1e6) };
    let sample = capacity_sample(&mut simulation, &options());
    assert!(sample.generator_bound);
    assert_near(&sample, 60_000.0 / 0.99, 1.05);
}

#[test]
fn capacity_is_a_lower_bound_if_the_send_method_changes() {
    // The service sustains 472,000 requests per second. From 250,000 per second on, the send method
    // doubles the cost per request, so the service loses requests.
    let mut simulation = SimulatedService { buffer: 0.0, switches_at: 250e3, ..SimulatedService::of(472e3) };
    let sample = capacity_sample(&mut simulation, &options());
    assert!(sample.transactions_per_second < 250e3 && sample.generator_bound, "{sample:?}");
    let reason =
        BoundReason::SentAnotherWay { sustained: SendMethod::Clones, failed: SendMethod::LiveFrames };
    assert_eq!(sample.bound_because, [reason]);
    let repeated = search_repeatedly(&mut simulation, &fine(), 2).unwrap();
    assert!(repeated.generator_bound && repeated.bound_because == [reason]);
    let mut one_way = SimulatedService { buffer: 0.0, switches_at: 0.0, ..SimulatedService::of(472e3) };
    let sample = capacity_sample(&mut one_way, &options());
    assert!(!sample.generator_bound && sample.bound_because.is_empty(), "{sample:?}");
}

#[test]
fn search_uses_live_frames_for_all_slots_if_clones_are_too_slow() {
    for (frames_reach, expected, send_method) in [
        (Some(2e6), 900e3, SendMethod::LiveFrames),
        (Some(700e3), 700e3, SendMethod::LiveFrames),
        (None, 500e3, SendMethod::Clones),
    ] {
        let mut simulation =
            SimulatedService { buffer: 0.0, reach: 500e3, frames_reach, ..SimulatedService::of(900e3) };
        let sample = capacity_sample(&mut simulation, &options());
        assert_near(&sample, expected * 1.01, 1.05);
        assert_eq!((sample.send_method, sample.generator_bound), (send_method, expected < 900e3));
        assert!(sample.slots.iter().all(|slot| slot.send_method == send_method), "{sample:?}");
        let repeated = search_repeatedly(&mut simulation, &fine(), 2).unwrap();
        let all = repeated.searches.iter().flat_map(|search| &search.slots);
        assert!(all.map(|slot| slot.send_method).all(|method| method == send_method));
    }
}

#[test]
fn late_requests_do_not_fail_a_rate_but_make_a_failed_rate_no_upper_bound() {
    let usual_start = options().start_per_second;
    for (late, late_from, bound, start_per_second) in [
        (0.2, 0.0, true, usual_start),
        (0.05, 0.0, true, 99e3),
        (0.05, 101e3, true, 99e3),
        (0.05, 200e3, false, 99e3),
    ] {
        let mut simulation = SimulatedService { buffer: 0.0, late, late_from, ..SimulatedService::of(100e3) };
        let sample = capacity_sample(&mut simulation, &SearchOptions { start_per_second, ..options() });
        assert_near(&sample, 100e3, 1.04);
        assert_eq!(sample.generator_bound, bound, "late from {late_from}: {sample:?}");
        let late_ratio = if late_from == 0.0 { late } else { 0.0 };
        assert!((sample.late_ratio - late_ratio).abs() < 0.001, "{}", sample.late_ratio);
        let sent_late =
            sample.bound_because.iter().any(|reason| matches!(reason, BoundReason::SentLate { .. }));
        assert_eq!(sent_late, bound);
    }
}

#[test]
fn capacity_is_found_below_a_livelock_and_goodput_falls_above() {
    let mut simulation = SimulatedService { buffer: 0.0, collapse: 3.0, ..SimulatedService::of(270_000.0) };
    let sample = capacity_sample(&mut simulation, &options());
    assert_near(&sample, 270_000.0, 1.04);
    let over = overload(&mut simulation, sample.transactions_per_second, &[2.0, 5.0], SLOT, DRAIN).unwrap();
    let ratio = |at: usize| *over[at].goodput_ratio.value().unwrap();
    assert!(ratio(0) < 0.2 && ratio(1) < ratio(0), "{over:?}");
}

#[test]
fn goodput_is_unknown_for_overload_that_cannot_be_offered() {
    let mut simulation = SimulatedService { reach: 150_000.0, ..SimulatedService::of(100_000.0) };
    let over = overload(&mut simulation, 100_000.0, &[1.2, 2.0], SLOT, DRAIN).unwrap();
    assert!(over[0].goodput_ratio.value().is_some());
    assert!(over[1].goodput_ratio.why().unwrap().contains("75 %"), "{over:?}");
    let none = overload(&mut simulation, 0.0, &[2.0], SLOT, DRAIN).unwrap();
    assert!(none[0].goodput_ratio.why().is_some());
    for (send_drops, receive_drops, reason) in
        [(0.5, 0.0, "100000 requests/s, 50 %"), (0.0, 0.2, "dropped"), (0.01, 0.01, "")]
    {
        let mut simulation =
            SimulatedService { send_drops, receive_drops, ..SimulatedService::of(100_000.0) };
        let over = overload(&mut simulation, 100_000.0, &[2.0], SLOT, DRAIN).unwrap();
        assert!(over[0].goodput_ratio.why().unwrap_or_default().contains(reason), "{over:?}");
        assert_eq!(over[0].goodput_ratio.value().is_some(), reason.is_empty(), "{over:?}");
    }
}

#[test]
fn an_overload_that_was_cut_short_is_no_result() {
    let mut simulation = SimulatedService { cut: true, ..SimulatedService::of(100_000.0) };
    let result = overload(&mut simulation, 100_000.0, &[2.0], SLOT, DRAIN);
    assert!(matches!(result, Err(GeneratorError::Cancelled)), "{result:?}");
}

#[test]
fn a_rate_whose_requests_do_not_leave_is_not_held() {
    let mut simulation = SimulatedService { filter: 5_000.0, ..SimulatedService::of(1e6) };
    let sample = capacity_sample(&mut simulation, &options());
    assert!(sample.generator_bound && sample.slots.len() < 20, "{sample:?}");
    assert_near(&sample, 5_000.0 * 1.01, 1.06);
}

#[test]
fn repeated_searches_find_rates_below_the_coarse_slots() {
    for capacity in [45.0, 100.0] {
        let mut simulation = SimulatedService { buffer: 0.0, ..SimulatedService::of(capacity) };
        let options = SearchOptions { slot: Duration::from_millis(500), ..fine() };
        let rate = search_repeatedly(&mut simulation, &options, 1).unwrap().transactions_per_second.median;
        assert!(rate > 0.9 * capacity && rate < 1.1 * capacity, "{rate} of {capacity}");
    }
}

#[test]
fn a_service_that_never_answers_has_no_capacity() {
    for bracket in [None, Some((10_000.0, 20_000.0))] {
        let mut simulation = SimulatedService { buffer: 0.0, ..SimulatedService::of(0.0) };
        let sample = capacity_sample(&mut simulation, &SearchOptions { bracket, ..options() });
        assert_eq!(sample.ended, SearchEnd::NothingHolds);
        assert_eq!((sample.transactions_per_second, sample.loss_ratio), (0.0, 1.0));
        assert!(simulation.slots.len() < 20);
    }
}

#[test]
fn a_cancelled_search_returns_its_result_so_far() {
    let cancel = AtomicBool::new(false);
    let offered = RefCell::new(Vec::new());
    let observer = |event: SearchEvent<'_>| match event {
        SearchEvent::Offering { per_second, .. } => offered.borrow_mut().push(per_second),
        SearchEvent::Offered(probe) => cancel.store(probe.requested_per_second >= 8_000.0, Ordering::Relaxed),
    };
    let options = SearchOptions { cancel: Some(&cancel), observer: Some(&observer), ..options() };
    let sample = capacity_sample(&mut SimulatedService::of(1e6), &options);
    assert_eq!(sample.ended, SearchEnd::Cancelled);
    assert_eq!(sample.offered_per_second, 8_000.0);
    assert_eq!(*offered.borrow(), [1_000.0, 2_000.0, 4_000.0, 8_000.0]);
}

#[test]
fn a_search_with_zero_budget_runs_no_slot() {
    let sample = capacity_sample(
        &mut SimulatedService::of(1e6),
        &SearchOptions { budget: Duration::ZERO, ..options() },
    );
    assert_eq!((sample.ended, sample.slots.len()), (SearchEnd::OutOfTime, 0));
}

#[test]
fn confirming_a_rate_stays_within_the_search_budget() {
    let (budget, takes) = (Duration::from_millis(30), Duration::from_millis(1));
    let mut service = SimulatedService { spoilt: 12..1_000_000, takes, ..SimulatedService::of(100_000.0) };
    let sample = capacity_sample(&mut service, &SearchOptions { budget, ..options() });
    assert_eq!(sample.ended, SearchEnd::OutOfTime);
    assert!(sample.transactions_per_second > 0.0 && service.slots.len() <= 31, "{}", service.slots.len());
}

#[test]
fn a_steady_loss_is_compared_with_max_loss_within_four_budgets() {
    let (budget, takes) = (Duration::from_millis(15), Duration::from_millis(10));
    // Each slot loses 5 %.
    for (max_loss, holds, slots) in [(0.001, false, 3_usize..=6), (0.2, true, 1..=2)] {
        let mut service = SimulatedService { hiccup: 1.0, takes, ..SimulatedService::of(100_000.0) };
        let sample = capacity_sample(&mut service, &SearchOptions { budget, max_loss, ..options() });
        assert_eq!((sample.ended, sample.offered_per_second > 0.0), (SearchEnd::OutOfTime, holds));
        assert!(slots.contains(&sample.slots.len()), "{} slots", sample.slots.len());
        assert!(holds || sample.slots.iter().all(|slot| slot.verdict == ProbeVerdict::Loss), "{sample:?}");
    }
}

#[test]
fn repeated_searches_share_one_budget() {
    let (budget, takes) = (Duration::from_millis(40), Duration::from_millis(1));
    let mut service = SimulatedService { spoilt: 14..1_000_000, takes, ..SimulatedService::of(100_000.0) };
    let sample =
        search_repeatedly(&mut service, &SearchOptions { budget, ..options() }, 5).expect("a result");
    assert!(sample.transactions_per_second.median > 0.0);
    assert!(service.slots.len() <= 46, "{}", service.slots.len());
}

#[test]
fn capacity_is_a_lower_bound_if_no_higher_rate_failed() {
    let (budget, takes) = (Duration::from_millis(6), Duration::from_millis(1));
    let mut service = SimulatedService { takes, ..SimulatedService::of(1e7) };
    let sample = capacity_sample(&mut service, &SearchOptions { budget, ..options() });
    assert_eq!(sample.ended, SearchEnd::OutOfTime);
    assert_eq!(sample.bound_because, [BoundReason::NothingHigher]);
    assert!(sample.generator_bound);
    // The generator reaches its limit, and the time ends while such slots are still excused.
    let budget = Duration::from_millis(30);
    let mut service = SimulatedService { takes, reach: 50_000.0, ..SimulatedService::of(1e7) };
    let sample = capacity_sample(&mut service, &SearchOptions { budget, excused: 1_000, ..options() });
    assert!(sample.generator_bound && sample.transactions_per_second > 0.0);
    assert!(matches!(sample.bound_because[..], [BoundReason::OfferedTooLittle { .. }]), "{sample:?}");
}

#[test]
fn options_out_of_range_are_refused() {
    let wrong = [
        SearchOptions { max_loss: 1.0, ..options() },
        SearchOptions { max_loss: f64::NAN, ..options() },
        SearchOptions { resolution: 1.0, ..options() },
        SearchOptions { start_per_second: 0.0, ..options() },
        SearchOptions { slot: Duration::ZERO, ..options() },
        SearchOptions { growth: 0.0, ..options() },
        SearchOptions { confirm_stretch: 0, ..options() },
        SearchOptions { bracket: Some((2.0, 1.0)), ..options() },
        SearchOptions { bracket: Some((0.0, 1.0)), ..options() },
    ];
    for options in wrong {
        assert!(search(&mut SimulatedService::of(1.0), &options).is_err());
    }
}

/// Search options like those of the command line.
fn fine() -> SearchOptions<'static> {
    SearchOptions {
        slot: Duration::from_secs(1),
        lead_in: Duration::from_millis(500),
        resolution: 1.01,
        growth: 0.005,
        confirm_stretch: 3,
        excused: 5,
        ..SearchOptions::default()
    }
}

#[test]
fn a_burst_allowance_does_not_hide_overload() {
    for allowance in [50.0, 500.0, 2_500.0] {
        let mut simulation = SimulatedService { buffer: 0.0, allowance, ..SimulatedService::of(50_000.0) };
        let repeated = search_repeatedly(&mut simulation, &fine(), 3).unwrap();
        let rate = repeated.transactions_per_second;
        assert!((rate.median / 50_000.0 - 1.0).abs() < 0.02, "{rate:?} with {allowance}");
        assert!(repeated.spread_ratio < 0.03 && repeated.confirmed == 3, "{repeated:?}");
        assert!((rate.low.unwrap()..=rate.high.unwrap()).contains(&rate.median));
    }
    // In a short slot without lead-in, a burst allowance does hide overload.
    let mut simulation =
        SimulatedService { buffer: 0.0, allowance: 2_500.0, ..SimulatedService::of(50_000.0) };
    assert!(capacity_sample(&mut simulation, &options()).transactions_per_second > 55_000.0);
}

#[test]
fn disturbed_slots_do_not_shift_the_median_of_repeated_searches() {
    for seed in 0..10 {
        let mut simulation = SimulatedService {
            buffer: 0.0,
            allowance: 100.0,
            hiccup: 0.5,
            random: fastrand::Rng::with_seed(seed),
            ..SimulatedService::of(50_000.0)
        };
        let repeated = search_repeatedly(&mut simulation, &fine(), 3).unwrap();
        let rate = repeated.transactions_per_second.median;
        assert!((rate / 50_000.0 - 1.0).abs() < 0.02, "{rate} with seed {seed}");
        assert!(repeated.spread_ratio < 0.03 && repeated.confirmed == 3, "{repeated:?}");
    }
}

#[test]
fn search_keeps_p99_latency_within_max_p99() {
    // Each request takes 20 us of service. With the wait, the latency reaches the bound of 60 us at
    // 40,000 requests per second, 80 % of the capacity.
    let mut simulation = SimulatedService::of(50_000.0);
    let options = SearchOptions { max_p99: Some(Duration::from_micros(60)), ..fine() };
    let sample = capacity_sample(&mut simulation, &options);
    assert!(sample.latency_ns.quantile(0.99).unwrap() <= 60_000, "{sample:?}");
    assert!(sample.transactions_per_second < 45_000.0 && sample.transactions_per_second > 30_000.0);
    assert!(sample.slots.iter().any(|slot| slot.verdict == ProbeVerdict::TooSlow));
}

#[test]
fn max_p99_judges_the_part_after_the_lead_in() {
    // Requests of the first half, which contains the lead-in, take a millisecond longer.
    let mut simulation = SimulatedService { warm_up_ns: 1_000_000, ..SimulatedService::of(50_000.0) };
    let options = SearchOptions { max_p99: Some(Duration::from_micros(60)), ..fine() };
    let sample = capacity_sample(&mut simulation, &options);
    assert!(sample.transactions_per_second < 45_000.0 && sample.transactions_per_second > 30_000.0);
    assert!(sample.latency_ns.quantile(0.99).unwrap() <= 60_000, "{sample:?}");
    let options = SearchOptions { lead_in: Duration::ZERO, ..options };
    let sample = capacity_sample(&mut simulation, &options);
    assert_eq!(sample.transactions_per_second, 0.0, "without a lead-in, the whole slot is judged");
}

#[test]
fn repeated_searches_report_a_bound_silence_and_cancellation() {
    let mut bound = SimulatedService { reach: 60_000.0, ..SimulatedService::of(1e6) };
    let repeated = search_repeatedly(&mut bound, &fine(), 2).unwrap();
    assert!(repeated.generator_bound && repeated.transactions_per_second.median > 59_000.0);
    let silent = search_repeatedly(&mut SimulatedService::of(0.0), &fine(), 3).unwrap();
    assert_eq!((silent.transactions_per_second.median, silent.loss_ratio), (0.0, 1.0));
    assert!(silent.searches.is_empty() && silent.neighbourhood.ended == SearchEnd::NothingHolds);
    let cancel = AtomicBool::new(true);
    let options = SearchOptions { cancel: Some(&cancel), ..fine() };
    let cancelled = search_repeatedly(&mut SimulatedService::of(1e6), &options, 3).unwrap();
    assert_eq!((cancelled.neighbourhood.ended, cancelled.confirmed), (SearchEnd::Cancelled, 0));
}
