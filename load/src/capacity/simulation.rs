//! A simulated generator and service, without packets.

use std::ops::Range;
use std::time::Duration;

use crate::error::GeneratorError;
use crate::generator::{Generator, GeneratorDescription, LoadSlot, PacingMode};
use crate::latency::{Latency, LatencyQuantiles};
use crate::outcome::{
    BoundReason, QueueMedians, SelfWatch, SendErrors, SendMethod, SlotInterval, SlotOutcome, mean_in_flight,
};

// A service that answers `capacity` per second behind a buffer, and a generator with a limit.
pub(super) struct SimulatedService {
    /// Transactions per second.
    pub(super) capacity: f64,
    pub(super) buffer: f64,
    // Requests that a burst allowance answers at once in addition to the buffer. It only postpones
    // losses.
    pub(super) allowance: f64,
    // The highest rate of the generator.
    pub(super) reach: f64,
    // The rate above which a filter drops requests before they leave.
    pub(super) filter: f64,
    /// Shares of the requests that this host's queue drops, and whose replies its sockets drop.
    pub(super) send_drops: f64,
    pub(super) receive_drops: f64,
    /// Whether slots end early.
    pub(super) cut: bool,
    /// Beyond capacity, goodput falls with this power of the offered rate; 0: it stays constant.
    pub(super) collapse: f64,
    // The chance that another cause disturbs a slot.
    pub(super) hiccup: f64,
    // Slots, counted from 0, that another program disturbs.
    pub(super) spoilt: Range<usize>,
    /// Share of the requests that leave late, from a rate on.
    pub(super) late: f64,
    pub(super) late_from: f64,
    /// The rate from which the send method costs the service twice as much per request.
    pub(super) switches_at: f64,
    // The highest rate as live frames. `None` if the generator has none.
    pub(super) frames_reach: Option<f64>,
    /// The latency of network and service without any queue, ns.
    pub(super) constant_ns: u64,
    /// Added to the latency of the requests in the first half of a slot, ns.
    pub(super) warm_up_ns: u64,
    /// The time for which a slot runs on this machine.
    pub(super) takes: Duration,
    pub(super) slots: Vec<f64>,
    pub(super) random: fastrand::Rng,
}

impl SimulatedService {
    pub(super) fn of(capacity: f64) -> Self {
        SimulatedService {
            capacity,
            buffer: 1_000.0,
            allowance: 0.0,
            reach: 1e9,
            filter: f64::INFINITY,
            send_drops: 0.0,
            receive_drops: 0.0,
            cut: false,
            collapse: 0.0,
            hiccup: 0.0,
            spoilt: 0..0,
            late: 0.0,
            late_from: 0.0,
            switches_at: f64::INFINITY,
            frames_reach: None,
            constant_ns: 0,
            warm_up_ns: 0,
            takes: Duration::ZERO,
            slots: Vec::new(),
            random: fastrand::Rng::with_seed(42),
        }
    }
}

impl SimulatedService {
    /// Loss begins when buffer and allowance are used up; a hiccup comes in the middle.
    fn intervals(&self, slot: &LoadSlot, offered: f64, service: f64, hiccup: f64) -> Vec<SlotInterval> {
        let Some(length) = slot.interval.map(|length| length.as_secs_f64()) else { return Vec::new() };
        let excess = (offered - service).max(0.0);
        let loss_begins = if excess > 0.0 { (self.buffer + self.allowance) / excess } else { f64::INFINITY };
        let count = (slot.duration.as_secs_f64() / length).round() as u32;
        let interval = |number: u32| {
            let begins_seconds = f64::from(number) * length;
            let lost = excess * (begins_seconds + length - loss_begins.max(begins_seconds)).max(0.0);
            let lost = if number == count / 2 { lost + hiccup } else { lost };
            let sent = (offered * length) as u64;
            let answered = sent - (lost.round() as u64).min(sent);
            let latency_ns = LatencyQuantiles::default();
            SlotInterval {
                number,
                begins_seconds,
                seconds: length,
                sent,
                received: answered,
                answered: Some(answered),
                latency_ns,
            }
        };
        (0..count).map(interval).collect()
    }
}

impl Generator for SimulatedService {
    fn describe(&self) -> GeneratorDescription {
        GeneratorDescription {
            backend: "simulation".to_owned(),
            workload: "echo".to_owned(),
            threads: 1,
            flows: 1,
            payload_bytes: 100,
            ..GeneratorDescription::default()
        }
    }

    fn watch(
        &mut self,
        slot: &LoadSlot,
        _: &mut dyn FnMut(&SlotInterval),
    ) -> Result<SlotOutcome, GeneratorError> {
        let PacingMode::Rate { per_second: asked } = slot.mode else { unreachable!("searches pace") };
        self.slots.push(asked);
        std::thread::sleep(self.takes);
        let seconds = slot.duration.as_secs_f64();
        let frames_reach = self.frames_reach.filter(|_| slot.live_frames);
        let made = asked.min(frames_reach.unwrap_or(self.reach));
        let offered = made.min(self.filter);
        let unsent = (made - offered) * seconds;
        let switched = asked >= self.switches_at;
        let capacity = if switched { self.capacity / 2.0 } else { self.capacity };
        let service =
            if offered > capacity { capacity * (capacity / offered).powf(self.collapse) } else { capacity };
        let late = if asked >= self.late_from { self.late } else { 0.0 };
        let queued_at = |share: f64| ((offered - service).max(0.0) * seconds * share).min(self.buffer);
        let mut lost = ((offered - service) * seconds - self.buffer - self.allowance).max(0.0);
        let spoilt = self.random.f64() < self.hiccup || self.spoilt.contains(&(self.slots.len() - 1));
        let hiccup = if spoilt { offered * seconds * 0.05 } else { 0.0 };
        lost += hiccup;
        let sent = (offered * seconds) as u64;
        let lost = (lost.round() as u64).min(sent);
        let wait = |share: f64| {
            let utilization = (offered / service.max(1.0)).min(0.999);
            let in_service = 1.0 + utilization / (2.0 * (1.0 - utilization));
            self.constant_ns + (1e9 * (in_service + queued_at(share)) / service.max(1.0)) as u64
        };
        let mut first_half = Latency::new();
        first_half.record(wait(0.25));
        let mut second_half_ns = Latency::new();
        second_half_ns.record(wait(0.5));
        let mut latency_ns = second_half_ns.clone();
        latency_ns.record(wait(0.5) + self.warm_up_ns);
        let mut bound_because = if made < asked * 0.99 {
            vec![BoundReason::OfferedTooLittle { ratio: made / asked }]
        } else {
            Vec::new()
        };
        if late > 0.01 {
            bound_because.push(BoundReason::SentLate { ratio: late });
        }
        let late_sends = (sent as f64 * late) as u64;
        let send_method =
            if switched || frames_reach.is_some() { SendMethod::LiveFrames } else { SendMethod::Clones };
        let answered = sent - lost;
        let timely_share = 1.0 - (self.constant_ns as f64 / 1e9 / seconds).min(1.0);
        Ok(SlotOutcome {
            sent,
            answered,
            lost,
            send_errors: SendErrors { forbidden: unsent as u64, ..SendErrors::default() },
            duration: if self.cut { slot.duration / 2 } else { slot.duration },
            requested_per_second: Some(asked),
            offered_per_second: offered,
            answered_per_second: offered.min(service + self.allowance / seconds) * timely_share,
            latency_ns,
            second_half_ns,
            intervals: self.intervals(slot, offered, service, hiccup),
            queue: QueueMedians {
                first_half_ns: (answered > 0).then(|| wait(0.25)),
                last_quarter_ns: (answered > 0).then(|| wait(0.875)),
            },
            mean_in_flight: mean_in_flight(answered, slot.duration, &first_half),
            generator_bound: !bound_because.is_empty(),
            self_watch: SelfWatch {
                late_sends,
                send_method,
                send_drops: (sent as f64 * self.send_drops) as u64,
                receive_drops: (sent as f64 * self.receive_drops) as u64,
                bound_because,
                ..SelfWatch::default()
            },
            ..SlotOutcome::default()
        })
    }
}

pub(super) const SLOT: Duration = Duration::from_millis(250);
