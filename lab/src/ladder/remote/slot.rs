//! One slot on all hosts.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use linerate_load::load_document::LoadDocument;
use linerate_load::{GeneratorError, LoadSlot, SlotInterval, SlotOutcome};

use super::clock;
use super::line::{RemoteAnswer, RemoteOrder, SlotOrder};
use super::link::LinkNews;
use super::merged::{self, MergedIntervals};
use super::{LostHost, RemoteGenerators};

/// From the order to its beginning: what it takes to cross the connection and to be prepared there.
const LEAD: Duration = Duration::from_millis(100);
/// The most that an uncertain clock adds to that.
const MOST_DOUBT: Duration = Duration::from_secs(2);
/// How much later than it could come an account may come.
const GRACE: Duration = Duration::from_secs(10);
/// The furthest moment to begin at: a far generator takes one that is much further for the sign of a clock that was set.
const FURTHEST: Duration = Duration::from_secs(20);
/// How often a cancellation is looked for.
const LOOK: Duration = Duration::from_millis(50);

/// What came of a slot so far, by the hosts' places.
struct RemoteSlot {
    number: u64,
    began: Instant,
    hosts: usize,
    done: BTreeMap<usize, LoadDocument>,
    /// Failed without being lost: it could not run the slot, in its words.
    failed: BTreeMap<usize, String>,
    lost: BTreeMap<usize, String>,
    cancelled: usize,
    intervals: MergedIntervals,
}

impl RemoteSlot {
    fn is_over(&self) -> bool {
        self.done.len() + self.failed.len() + self.lost.len() + self.cancelled >= self.hosts
    }

    fn knows(&self, place: usize) -> bool {
        self.done.contains_key(&place) || self.failed.contains_key(&place) || self.lost.contains_key(&place)
    }
}

impl RemoteGenerators {
    pub(super) fn carry_out(
        &mut self,
        slot: &LoadSlot,
        observer: &mut dyn FnMut(&SlotInterval),
    ) -> Result<SlotOutcome, GeneratorError> {
        slot.check()?;
        if let Some(loss) = self.lost.first() {
            let why = format!("its generator is lost, nothing was sent: {}", loss.why);
            return Err(GeneratorError::Incomplete { who: loss.host.to_string(), why, others: None });
        }
        if self.options.cancel.load(Ordering::Relaxed) {
            return Err(GeneratorError::Cancelled);
        }
        let ahead = slot.start_at_realtime_ns.map_or(0, |at_ns| at_ns.saturating_sub(clock::realtime_ns()));
        let ahead = Duration::from_nanos(ahead);
        if ahead > FURTHEST {
            let problem =
                format!("{} s ahead, other hosts take at most {} s", ahead.as_secs(), FURTHEST.as_secs());
            return Err(GeneratorError::Option { option: "start_at_realtime_ns", problem });
        }
        let mut course = self.order(slot);
        let deadline = course.began + ahead + LEAD + MOST_DOUBT + slot.duration + slot.drain + GRACE;
        self.follow(&mut course, deadline, observer);
        self.finish(course)
    }

    fn order(&mut self, slot: &LoadSlot) -> RemoteSlot {
        self.slots += 1;
        let hosts = self.links.len();
        let course = RemoteSlot {
            number: self.slots,
            began: Instant::now(),
            hosts,
            done: BTreeMap::new(),
            failed: BTreeMap::new(),
            lost: BTreeMap::new(),
            cancelled: 0,
            intervals: MergedIntervals::default(),
        };
        let doubt_ns =
            self.links.iter().filter_map(|link| Some(link.clock()?.uncertain_ns)).max().unwrap_or(0);
        let lead = LEAD + Duration::from_nanos(doubt_ns.saturating_mul(4)).min(MOST_DOUBT);
        let soon_ns = clock::realtime_ns().saturating_add(u64::try_from(lead.as_nanos()).unwrap_or(0));
        let begin_ns = slot.start_at_realtime_ns.unwrap_or(soon_ns);
        for link in &self.links {
            let far_ns = link.clock().map_or(begin_ns, |offset| offset.far(begin_ns));
            let order = RemoteOrder::Slot(SlotOrder::new(course.number, slot, hosts, far_ns));
            // A line that is broken is told of by the end of the answers, with the reason.
            let _ = link.line().send(&order);
        }
        course
    }

    /// Waits until all hosts have given account, or failed.
    fn follow(
        &mut self,
        course: &mut RemoteSlot,
        deadline: Instant,
        observer: &mut dyn FnMut(&SlotInterval),
    ) {
        let mut stopped = false;
        while !course.is_over() {
            if !stopped && self.options.cancel.load(Ordering::Relaxed) {
                stopped = true;
                for link in &self.links {
                    // A broken line is noticed by its end.
                    let _ = link.line().send(&RemoteOrder::Stop);
                }
            }
            match self.next_event(deadline.min(Instant::now() + LOOK)) {
                Some((place, news)) => self.take(course, place, news, observer),
                None if Instant::now() >= deadline => {
                    let silent: Vec<usize> =
                        (0..course.hosts).filter(|place| !course.knows(*place)).collect();
                    for place in silent {
                        course.lost.insert(place, "no account of the slot came back".to_owned());
                    }
                    return;
                }
                None => {}
            }
        }
    }

    fn take(
        &mut self,
        course: &mut RemoteSlot,
        place: usize,
        news: LinkNews,
        observer: &mut dyn FnMut(&SlotInterval),
    ) {
        let number = course.number;
        match news {
            LinkNews::Answer(RemoteAnswer::Interval { slot, interval }) if slot == number => {
                let silent = course.lost.len() + course.failed.len();
                if let Some(whole) = course.intervals.add(interval, course.hosts - silent.min(course.hosts)) {
                    observer(&whole);
                }
            }
            LinkNews::Answer(RemoteAnswer::Done { slot, document }) if slot == number => {
                match LoadDocument::parse(&document.to_string()) {
                    Ok(document) => course.done.insert(place, self.by_our_clock(place, document)).map(drop),
                    Err(error) => course.failed.insert(place, error.to_string()).map(drop),
                };
            }
            LinkNews::Answer(RemoteAnswer::Failed { slot, cancelled, why }) if slot == number => {
                if cancelled {
                    course.cancelled += 1;
                } else {
                    course.failed.insert(place, why);
                }
            }
            LinkNews::Gone => {
                let why = self.lose(place, Some(course.began.elapsed()));
                course.lost.insert(place, why);
            }
            LinkNews::Odd(words) => {
                course.failed.insert(place, format!("'{words}' came where an account should"));
            }
            // Of an earlier slot, or about the time.
            LinkNews::Answer(_) => {}
        }
    }

    fn by_our_clock(&self, place: usize, mut document: LoadDocument) -> LoadDocument {
        if let Some(offset) = self.links.get(place).and_then(|link| link.clock()) {
            let started = &mut document.outcome.started_realtime_ns;
            *started = offset.near(*started);
        }
        document
    }

    /// One account, or which host is to blame that there is none.
    fn finish(&mut self, course: RemoteSlot) -> Result<SlotOutcome, GeneratorError> {
        let into_slot = course.began.elapsed();
        for (place, why) in &course.lost {
            if let Some(link) = self.links.get(*place) {
                let (host, why) = (link.host.clone(), why.clone());
                if !self.lost.iter().any(|loss| loss.host == host) {
                    self.lost.push(LostHost { host, into_slot: Some(into_slot), why });
                }
            }
        }
        let blamed =
            course.lost.iter().chain(&course.failed).map(|(place, why)| (*place, why.clone())).next();
        let parts: Vec<_> =
            course.done.into_iter().map(|(place, document)| (self.name(place), document)).collect();
        let measured = parts.len();
        let merged = if parts.is_empty() { Err(String::new()) } else { merged::outcome(parts) };
        if let Some((place, why)) = blamed {
            let others = merged.ok().map(|(outcome, _)| outcome);
            let kept = others.as_ref().map_or_else(
                || "nothing else was measured".to_owned(),
                |outcome| {
                    let (sent, answered) = (outcome.sent, outcome.answered);
                    format!("the other {measured} sent {sent} and had {answered} answered")
                },
            );
            let why =
                format!("{why}; noticed {:.1} s after the slot was ordered, {kept}", into_slot.as_secs_f64());
            return Err(GeneratorError::Incomplete {
                who: self.name(place),
                why,
                others: others.map(Box::new),
            });
        }
        if measured == 0 {
            return Err(GeneratorError::Cancelled);
        }
        let (outcome, warnings) =
            merged.map_err(|why| GeneratorError::Incomplete { who: "ssh".to_owned(), why, others: None })?;
        for warning in warnings {
            self.warn(warning);
        }
        Ok(outcome)
    }

    fn name(&self, place: usize) -> String {
        self.links.get(place).map_or_else(String::new, |link| link.host.to_string())
    }
}
