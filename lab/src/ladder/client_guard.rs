//! Observes the real clients of a server during a run, and ends the run if they lose too many requests or wait too long.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use linerate_host::delivery::{AddressCounts, FlowWatch};
use linerate_host::{Host, HostError};

use crate::ladder::config::LadderConfig;

/// Time between two readings.
const INTERVAL: Duration = Duration::from_millis(500);
/// Loss is judged after this number of requests, or after this time if there are fewer.
const ENOUGH_REQUESTS: u64 = 50;
const ENOUGH_TIME: Duration = Duration::from_secs(3);
/// Fewer missing replies may belong to requests in flight at a reading; fewer slow replies may be
/// chance.
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
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
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
        let mut flows = FlowWatch::start(host, &[port], limits.p99)?;
        let (end_sender, end_receiver) = mpsc::channel();
        let verdict = Arc::new(Mutex::new(None));
        let shared_verdict = Arc::clone(&verdict);
        let thread = std::thread::spawn(move || {
            let mut window = GuardWindow::new(generators, limits);
            while end_receiver.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
                let violation =
                    window.check_window(&mut flows, port).unwrap_or_else(|error| Some(error.to_string()));
                if violation.is_some() {
                    *shared_verdict.lock().unwrap_or_else(PoisonError::into_inner) = violation;
                    cancel.store(true, Ordering::Relaxed);
                    return;
                }
            }
        });
        Ok(Self { end: Some(end_sender), thread: Some(thread), verdict })
    }

    /// Why the guard ended the run; `None` if it did not.
    pub(crate) fn verdict(&self) -> Option<String> {
        self.verdict.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for ClientGuard {
    fn drop(&mut self) {
        self.end.take();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The counts at the start of the current window.
#[derive(Debug)]
struct GuardWindow {
    generators: Vec<IpAddr>,
    limits: ClientLimits,
    before: BTreeMap<IpAddr, AddressCounts>,
    began: Instant,
}

impl GuardWindow {
    fn new(generators: Vec<IpAddr>, limits: ClientLimits) -> Self {
        Self { generators, limits, before: BTreeMap::new(), began: Instant::now() }
    }

    fn check_window(&mut self, flows: &mut FlowWatch, port: u16) -> Result<Option<String>, HostError> {
        let counts = flows.by_address()?;
        let why = self.judge(&counts, Instant::now());
        let ports: usize = counts.values().map(|counts| counts.ports).sum();
        if ports * 2 > FlowWatch::MOST_CLIENTS {
            // A full table has no room for new clients.
            *flows = FlowWatch::start(&Host::live(), &[port], self.limits.p99)?;
            self.before.clear();
        }
        Ok(why)
    }

    /// Judges the window up to `now` if it has enough requests, and begins the next one.
    fn judge(&mut self, counts: &BTreeMap<IpAddr, AddressCounts>, now: Instant) -> Option<String> {
        let clients = || counts.iter().filter(|(address, _)| !self.generators.contains(address));
        let growth = |count: fn(&AddressCounts) -> u64| -> u64 {
            let previous_count = |address: &IpAddr| self.before.get(address).map_or(0, count);
            clients().map(|(address, counts)| count(counts).saturating_sub(previous_count(address))).sum()
        };
        let (requests, replies) = (growth(|counts| counts.requests), growth(|counts| counts.replies));
        let (timed_replies, slow_replies) = (growth(|counts| counts.timed), growth(|counts| counts.slow));
        let seconds = now.saturating_duration_since(self.began);
        if requests < ENOUGH_REQUESTS && seconds < ENOUGH_TIME {
            return None;
        }
        self.before.clone_from(counts);
        self.began = now;
        let ratio = |part: u64, whole: u64| part as f64 / whole.max(1) as f64;
        let missing_replies = requests.saturating_sub(replies);
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

    const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
    const GENERATOR: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2));

    fn counts(client: (u64, u64), generator: (u64, u64)) -> BTreeMap<IpAddr, AddressCounts> {
        let of =
            |(requests, replies)| AddressCounts { ports: 1, requests, replies, ..AddressCounts::default() };
        [(CLIENT, of(client)), (GENERATOR, of(generator))].into()
    }

    fn window() -> GuardWindow {
        let limits = ClientLimits { loss_ratio: Some(0.01), p99: Some(Duration::from_millis(2)) };
        GuardWindow::new(vec![GENERATOR], limits)
    }

    #[test]
    fn slow_replies_to_real_clients_end_a_run() {
        let mut window = window();
        let mut counts = counts((300, 300), (9_000, 9_000));
        counts.entry(GENERATOR).and_modify(|generator| (generator.timed, generator.slow) = (9_000, 9_000));
        assert_eq!(window.judge(&counts, window.began), None);
        let client = |slow| AddressCounts { ports: 1, requests: 700, replies: 700, timed: 400, slow };
        counts.insert(CLIENT, client(4));
        assert_eq!(window.judge(&counts, window.began), None, "1 % is within the limit");
        counts.insert(CLIENT, AddressCounts { requests: 1_100, replies: 1_100, timed: 800, ..client(9) });
        let why = window.judge(&counts, window.began).expect("slow replies");
        assert!(
            why.starts_with("5 of 400 replies to real clients (1.2 %) took longer than 2.000 ms"),
            "{why}"
        );
    }

    #[test]
    fn only_the_losses_of_real_clients_end_a_run() {
        let mut window = window();
        let now = window.began;
        assert_eq!(window.judge(&counts((60, 59), (9_000, 100)), now), None, "one reply is missing");
        assert_eq!(window.judge(&counts((100, 60), (9_000, 100)), now), None, "too few new requests");
        let why = window.judge(&counts((160, 150), (9_000, 100)), now).expect("a loss");
        assert!(why.starts_with("real clients lost 9 of 100 requests (9.0 %)"), "{why}");
    }

    #[test]
    fn clients_with_few_requests_are_judged_after_enough_time() {
        let mut window = window();
        let late = window.began + ENOUGH_TIME;
        assert_eq!(window.judge(&counts((4, 1), (0, 0)), window.began), None);
        assert!(window.judge(&counts((4, 1), (0, 0)), late).is_some());
        assert_eq!(
            window.judge(&counts((8, 6), (0, 0)), late + ENOUGH_TIME),
            None,
            "fewer than three lost requests"
        );
    }
}
