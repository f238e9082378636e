//! A generator and service that exist in arithmetic only.

use std::ops::Range;
use std::time::Duration;

use crate::error::Error;
use crate::generator::{Description, Generator, Mode, Slot};
use crate::latency::Latency;
use crate::outcome::{BoundReason, Bursts, Interval, QueueMedians, SelfWatch, SendErrors, SlotOutcome};

/// A service that answers `capacity` a second behind a buffer, and a generator with a limit.
pub(super) struct Simulation {
    /// Transactions a second.
    pub(super) capacity: f64,
    /// Requests the buffer holds.
    pub(super) buffer: f64,
    /// The most the generator can offer.
    pub(super) reach: f64,
    /// Beyond capacity, goodput falls with the offered rate to this power; 0 is a service that keeps its rate.
    pub(super) collapse: f64,
    /// The chance that something else spoils a slot.
    pub(super) hiccup: f64,
    /// Slots, counted from 0, that something else spoils for certain.
    pub(super) spoilt: Range<usize>,
    /// Share of the requests that leave late.
    pub(super) late: f64,
    /// The slots run.
    pub(super) slots: Vec<f64>,
    pub(super) random: fastrand::Rng,
}

impl Simulation {
    pub(super) fn of(capacity: f64) -> Self {
        Simulation {
            capacity,
            buffer: 1_000.0,
            reach: 1e9,
            collapse: 0.0,
            hiccup: 0.0,
            spoilt: 0..0,
            late: 0.0,
            slots: Vec::new(),
            random: fastrand::Rng::with_seed(42),
        }
    }
}

impl Generator for Simulation {
    fn describe(&self) -> Description {
        Description {
            backend: "simulation".to_owned(),
            workload: "echo".to_owned(),
            threads: 1,
            flows: 1,
            payload_bytes: 100,
            targets: Vec::new(),
            sources: Vec::new(),
            cpus: Vec::new(),
            no_fragment: false,
            nice: None,
            receive_buffer_bytes: 0,
            fallbacks: Vec::new(),
        }
    }

    fn watch(&mut self, slot: &Slot, _: &mut dyn FnMut(&Interval)) -> Result<SlotOutcome, Error> {
        let Mode::Rate { per_second: asked } = slot.mode else { unreachable!("searches pace") };
        self.slots.push(asked);
        let seconds = slot.duration.as_secs_f64();
        let offered = asked.min(self.reach);
        let service = if offered > self.capacity {
            self.capacity * (self.capacity / offered).powf(self.collapse)
        } else {
            self.capacity
        };
        let queued_at = |share: f64| ((offered - service).max(0.0) * seconds * share).min(self.buffer);
        let mut lost = ((offered - service) * seconds - self.buffer).max(0.0);
        if self.random.f64() < self.hiccup || self.spoilt.contains(&(self.slots.len() - 1)) {
            lost += offered * seconds * 0.05;
        }
        let sent = (offered * seconds) as u64;
        let lost = (lost.round() as u64).min(sent);
        let wait = |share: f64| {
            let utilization = (offered / service.max(1.0)).min(0.999);
            let in_service = 1.0 + utilization / (2.0 * (1.0 - utilization));
            (1e9 * (in_service + queued_at(share)) / service.max(1.0)) as u64
        };
        let mut latency_ns = Latency::new();
        latency_ns.record(wait(0.5));
        let mut bound_because = if offered < asked * 0.99 {
            vec![BoundReason::OfferedTooLittle { ratio: offered / asked }]
        } else {
            Vec::new()
        };
        if self.late > 0.01 {
            bound_because.push(BoundReason::SentLate { ratio: self.late });
        }
        let late_sends = (sent as f64 * self.late) as u64;
        let answered = sent - lost;
        Ok(SlotOutcome {
            started_realtime_ns: 0,
            sent,
            answered,
            lost,
            duplicate: 0,
            reordered: 0,
            corrupt: 0,
            foreign: 0,
            late: 0,
            send_errors: SendErrors::default(),
            duration: slot.duration,
            asked_per_second: Some(asked),
            offered_per_second: offered,
            answered_per_second: offered.min(service),
            latency_ns,
            codes: Vec::new(),
            unverified: 0,
            bursts: Bursts::default(),
            intervals: Vec::new(),
            queue: QueueMedians {
                first_half_ns: (answered > 0).then(|| wait(0.25)),
                last_quarter_ns: (answered > 0).then(|| wait(0.875)),
            },
            generator_bound: !bound_because.is_empty(),
            self_watch: SelfWatch { late_sends, bound_because, ..SelfWatch::default() },
        })
    }
}

/// What a slot of a search takes here.
pub(super) const SLOT: Duration = Duration::from_millis(250);
