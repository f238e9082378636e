//! Observes the real clients of a server during a run, and ends the run if they lose too many requests or wait too long.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use linerate_host::delivery::{ClientCounts, FlowWatch};
use linerate_host::{Host, HostError};

use crate::ladder::config::LadderConfig;
use crate::repeating_thread::RepeatingThread;

/// Time between two readings.
const INTERVAL: Duration = Duration::from_millis(500);
/// Loss is judged after this number of requests, or after this time if there are fewer.
const ENOUGH_REQUESTS: u64 = 50;
const ENOUGH_TIME: Duration = Duration::from_secs(3);
/// Fewer missing or slow replies may be chance.
const MISSING: u64 = 3;
/// More slow replies than this share put the 99th percentile over its limit.
const SLOW_RATIO: f64 = 0.01;

/// Limits for the loss and the response time of real clients.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ClientLimits {
    /// Share of their requests that may be lost.
    pub(crate) loss_ratio: Option<f64>,
    /// The 99th percentile of the time from a request at the interface to its reply there.
    pub(crate) p99: Option<Duration>,
}

impl ClientLimits {
    pub(crate) fn from_config(config: &LadderConfig) -> Option<Self> {
        let limits =
            Self { loss_ratio: config.guard_loss_ratio, p99: config.guard_p99_ns.map(Duration::from_nanos) };
        (limits.loss_ratio.is_some() || limits.p99.is_some()).then_some(limits)
    }
}

/// A thread that counts the requests and replies of all clients except the generators.
#[derive(Debug)]
pub(crate) struct ClientGuard {
    _thread: RepeatingThread,
    flows: Arc<FlowWatch>,
    generators: Vec<IpAddr>,
    verdict: Arc<Mutex<Option<String>>>,
}

impl ClientGuard {
    /// Sets `cancel` once the requests of clients other than `generators` to `port` exceed a limit.
    pub(crate) fn start(
        host: &Host,
        port: u16,
        generators: Vec<IpAddr>,
        limits: ClientLimits,
        cancel: Arc<AtomicBool>,
    ) -> Result<Self, HostError> {
        // Started in this thread, because its network namespace is the server's.
        let flows = Arc::new(FlowWatch::start(host, &[port], limits.p99)?);
        let mut window = GuardWindow::new(generators.clone(), limits);
        let verdict = Arc::new(Mutex::new(None));
        let (shared_verdict, shared_flows) = (Arc::clone(&verdict), Arc::clone(&flows));
        let thread = RepeatingThread::start(INTERVAL, move || {
            let reading = shared_flows.by_client().map_err(|error| error.to_string());
            let violation = reading.map_or_else(Some, |reading| window.judge(reading, Instant::now()));
            let holds = violation.is_none();
            if !holds {
                *shared_verdict.lock().unwrap_or_else(PoisonError::into_inner) = violation;
                cancel.store(true, Ordering::Relaxed);
            }
            holds
        });
        Ok(Self { _thread: thread, flows, generators, verdict })
    }

    /// Fails if no request came from an address of a generator, although some were answered.
    pub(crate) fn check_generators(&self) -> Result<(), String> {
        let clients = self.flows.by_client().map_err(|error| error.to_string())?;
        check_sources(&self.generators, clients.keys().map(SocketAddr::ip))
    }

    /// Why the guard ended the run; `None` if it did not.
    pub(crate) fn verdict(&self) -> Option<String> {
        self.verdict.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn check_sources(generators: &[IpAddr], mut clients: impl Iterator<Item = IpAddr>) -> Result<(), String> {
    if clients.any(|client| generators.contains(&client)) {
        return Ok(());
    }
    let sources = generators.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    Err(format!(
        "real clients cannot be distinguished from the generators: no request comes from the generators' addresses ({sources}), \
         perhaps because of NAT. Run without --guard-loss and --guard-p99"
    ))
}

/// The requests between two readings. They are judged one reading later, when their replies have
/// arrived.
#[derive(Debug)]
struct GuardWindow {
    generators: Vec<IpAddr>,
    limits: ClientLimits,
    /// The latest reading and its time.
    reading: BTreeMap<SocketAddr, ClientCounts>,
    read_at: Instant,
    /// Each client at the start of the window.
    judged: BTreeMap<SocketAddr, JudgedCounts>,
    began: Instant,
    /// Missing replies of the previous window: lost, or still in flight.
    undecided: i64,
}

/// A client's requests before a window, and its replies up to the reading after these requests.
#[derive(Debug, Clone, Copy, Default)]
struct JudgedCounts {
    requests: u64,
    missing: u64,
    timed: u64,
    slow: u64,
}

impl GuardWindow {
    fn new(generators: Vec<IpAddr>, limits: ClientLimits) -> Self {
        let (reading, judged, now) = (BTreeMap::new(), BTreeMap::new(), Instant::now());
        Self { generators, limits, reading, read_at: now, judged, began: now, undecided: 0 }
    }

    /// Judges the window up to the reading before this one if it has enough requests, and begins
    /// the next window.
    fn judge(&mut self, reading: BTreeMap<SocketAddr, ClientCounts>, now: Instant) -> Option<String> {
        let ended = std::mem::replace(&mut self.read_at, now);
        let earlier_reading = std::mem::replace(&mut self.reading, reading);
        let missing = |counts: &ClientCounts| counts.requests.saturating_sub(counts.replies);
        let mut judged = BTreeMap::new();
        let (mut requests, mut missing_replies, mut undecided) = (0, 0, 0);
        let (mut timed_replies, mut slow_replies) = (0, 0);
        for (client, counts) in &self.reading {
            if self.generators.contains(&client.ip()) {
                continue;
            }
            // The full table replaces clients, which count from zero when they come back.
            let earlier = earlier_reading.get(client).copied();
            let earlier = earlier.filter(|earlier| earlier.requests <= counts.requests).unwrap_or_default();
            let before = self.judged.get(client).copied();
            let before = before.filter(|before| before.requests <= earlier.requests).unwrap_or_default();
            let after = JudgedCounts {
                requests: earlier.requests,
                missing: missing(&earlier).min(missing(counts)),
                timed: counts.timed,
                slow: counts.slow,
            };
            requests += after.requests.saturating_sub(before.requests);
            // Later replies may belong to later requests.
            let lost = earlier.requests.saturating_sub(counts.replies).saturating_sub(before.missing);
            missing_replies += lost;
            if before.requests > 0 {
                undecided += after.missing.cast_signed() - before.missing.cast_signed() - lost.cast_signed();
            }
            timed_replies += after.timed.saturating_sub(before.timed);
            slow_replies += after.slow.saturating_sub(before.slow);
            judged.insert(*client, after);
        }
        let seconds = ended.saturating_duration_since(self.began);
        if requests < ENOUGH_REQUESTS && seconds < ENOUGH_TIME {
            return None;
        }
        (self.judged, self.began) = (judged, ended);
        // A busy client has requests in flight at every reading. Slower replies raise this number
        // once; losses raise it in every window.
        let undecided_before = std::mem::replace(&mut self.undecided, undecided);
        missing_replies += u64::try_from(undecided.min(undecided_before)).unwrap_or(0);
        let ratio = |part: u64, whole: u64| part as f64 / whole.max(1) as f64;
        let loss_ratio = ratio(missing_replies, requests);
        let interval_text = format!("within {:.1} s", seconds.as_secs_f64());
        if let Some(limit) =
            self.limits.loss_ratio.filter(|limit| missing_replies >= MISSING && loss_ratio > *limit)
        {
            return Some(format!(
                "real clients lost {missing_replies} of {requests} requests ({:.1} %) {interval_text}, and --guard-loss allows {:.1} %",
                loss_ratio * 100.0,
                limit * 100.0
            ));
        }
        let limit = self
            .limits
            .p99
            .filter(|_| slow_replies >= MISSING && ratio(slow_replies, timed_replies) > SLOW_RATIO)?;
        Some(format!(
            "{slow_replies} of {timed_replies} replies to real clients ({:.1} %) took longer than {:.3} ms {interval_text}, and --guard-p99 \
             allows 1 %",
            ratio(slow_replies, timed_replies) * 100.0,
            limit.as_secs_f64() * 1e3
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GENERATOR: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2));

    #[test]
    fn generators_behind_nat_are_refused() {
        let gateway = IpAddr::from([203, 0, 113, 1]);
        assert_eq!(check_sources(&[GENERATOR], [gateway, GENERATOR].into_iter()), Ok(()));
        let error = check_sources(&[GENERATOR], [gateway].into_iter()).expect_err("no generator");
        assert!(error.contains("(192.0.2.2)"), "{error}");
    }

    type Reading = BTreeMap<SocketAddr, ClientCounts>;

    fn counts(requests: u64, replies: u64) -> ClientCounts {
        ClientCounts { requests, replies, ..ClientCounts::default() }
    }

    /// One port of a client that sends many requests, next to a generator that loses most of its
    /// requests.
    fn busy(requests: u64, replies: u64) -> Reading {
        let client = SocketAddr::from(([192, 0, 2, 1], 5000));
        [(client, counts(requests, replies)), (SocketAddr::new(GENERATOR, 7), counts(9_000, 100))].into()
    }

    /// Clients with one request each.
    fn ports(requests: u16, replies: u16) -> Reading {
        let client = |port| (SocketAddr::from(([192, 0, 2, 1], port)), counts(1, u64::from(port < replies)));
        (0..requests).map(client).collect()
    }

    /// 1,000 more requests per reading, with these replies.
    fn busy_series(replies: [u64; 5]) -> Vec<Reading> {
        (1..).zip(replies).map(|(number, replies)| busy(number * 1_000, replies)).collect()
    }

    fn window() -> GuardWindow {
        let limits = ClientLimits { loss_ratio: Some(0.01), p99: Some(Duration::from_millis(2)) };
        GuardWindow::new(vec![GENERATOR], limits)
    }

    #[test]
    fn slow_replies_to_real_clients_end_a_run() {
        let mut window = window();
        let now = window.began;
        let reading = |requests, timed, slow| {
            let mut reading = busy(requests, requests);
            reading.values_mut().for_each(|counts| (counts.timed, counts.slow) = (timed, slow));
            reading.entry(SocketAddr::new(GENERATOR, 7)).and_modify(|counts| counts.slow = 9_000);
            reading
        };
        for within in [reading(300, 0, 0), reading(700, 400, 4)] {
            assert_eq!(window.judge(within, now), None, "1 % is within the limit");
        }
        let why = window.judge(reading(1_100, 800, 9), now).expect("slow replies");
        assert!(
            why.starts_with("5 of 400 replies to real clients (1.2 %) took longer than 2.000 ms"),
            "{why}"
        );
    }

    #[test]
    fn lost_requests_of_real_clients_end_a_run_and_late_replies_do_not() {
        let both = |count| busy(count, count).into_iter().chain(ports(100, 100)).collect::<BTreeMap<_, _>>();
        for (case, readings, expected) in [
            ("replies in flight at a reading", vec![ports(100, 60), ports(200, 160), ports(200, 200)], None),
            ("no reply", vec![ports(100, 91); 2], Some("real clients lost 9 of 100 requests (9.0 %)")),
            ("a client that the table forgot", vec![busy(1_000, 1_000), both(1_000), both(1)], None),
            ("two lost requests", vec![ports(50, 48); 2], None),
            ("too few requests", vec![ports(40, 20); 2], None),
            (
                "one port without replies",
                vec![busy(1_000, 0), busy(2_000, 0)],
                Some("real clients lost 1000 of 1000 requests (100.0 %)"),
            ),
            (
                "one port on which replies take longer from the third reading",
                busy_series([994, 1_994, 2_900, 3_900, 4_900]),
                None,
            ),
            (
                "one port that loses from the third reading",
                busy_series([994, 1_994, 2_900, 3_800, 4_700]),
                Some("real clients lost 94 of 1000 requests (9.4 %)"),
            ),
        ] {
            let mut window = window();
            let now = window.began;
            let verdicts: Vec<String> =
                readings.into_iter().filter_map(|reading| window.judge(reading, now)).collect();
            assert_eq!(verdicts.len(), usize::from(expected.is_some()), "{case}: {verdicts:?}");
            let starts = verdicts.iter().zip(expected).all(|(why, expected)| why.starts_with(expected));
            assert!(starts, "{case}: {verdicts:?}");
        }
    }

    #[test]
    fn clients_with_few_requests_are_judged_after_enough_time() {
        let mut window = window();
        let late = window.began + ENOUGH_TIME;
        for now in [window.began, late] {
            assert_eq!(window.judge(ports(4, 1), now), None);
        }
        assert!(window.judge(ports(4, 1), late).is_some());
        for reading in [ports(6, 1), ports(6, 1)] {
            assert_eq!(window.judge(reading, late + ENOUGH_TIME), None, "fewer than three lost requests");
        }
    }
}
