//! The XDP guard, in a lab.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use linerate_engine::{
    Action, Backend, Echo, GuardCounts, OverloadPolicy, Request, RunningServer, Server, Service,
    SourceGrouping, XdpGuard, XdpMode,
};
use linerate_lab::{Lab, LabShape};

use crate::other_paths::check_excess_is_refused;
use crate::support::{EngineTestResult, PATIENCE, ask, client, skip};
use crate::{PausedServer, fates, until};

/// Requests that the guard admits for a worker that has not answered yet. The request that the
/// worker processes counts, too.
pub(crate) const FIRST: u32 = 64;
pub(crate) const FOREVER: Duration = Duration::from_secs(3600);

/// A lab in which the guard works, with one queue. `None`, after a SKIP message, if the lab or the
/// guard cannot start.
pub(crate) fn lab(test: &str, sender_addresses: usize) -> Option<Lab> {
    let result =
        Lab::builder().shape(LabShape { queues: 1, sender_addresses, ..LabShape::default() }).start();
    let lab = result.map_err(|error| skip(test, error)).ok()?;
    match serve(&lab, &guarded(FOREVER), Echo) {
        Ok(running) if running.guard().is_some() => Some(lab),
        Ok(running) => {
            let why: Vec<_> = running.fallbacks().iter().map(|fallback| fallback.why.as_str()).collect();
            skip(test, why.join("; "));
            None
        }
        Err(error) => {
            skip(test, error);
            None
        }
    }
}

pub(crate) fn guarded(open_after: Duration) -> OverloadPolicy {
    let guard = XdpGuard { open_after, ..XdpGuard::default() };
    OverloadPolicy { guard: Some(guard), ..OverloadPolicy::default() }
}

/// Starts a server on the receiver with one worker.
fn serve<S: Service + Clone + Sync + 'static>(
    lab: &Lab,
    overload: &OverloadPolicy,
    service: S,
) -> Result<RunningServer, Box<dyn std::error::Error>> {
    serve_at(lab, (lab.links()[0].receiver.ipv4[0], 0).into(), 1, overload, service)
}

/// Starts a server at an address of the receiver, with `workers` workers.
pub(crate) fn serve_at<S: Service + Clone + Sync + 'static>(
    lab: &Lab,
    address: SocketAddr,
    workers: usize,
    overload: &OverloadPolicy,
    service: S,
) -> Result<RunningServer, Box<dyn std::error::Error>> {
    let builder = Server::builder()
        .bind(address)
        .workers(workers)
        .backend(Backend::Mmsg { batch: 4 })
        .overload(overload.clone());
    Ok(lab.receiver().run(move || builder.start(move |_| service.clone()))??)
}

pub(crate) fn client_at(lab: &Lab, address: usize) -> Result<UdpSocket, Box<dyn std::error::Error>> {
    let address = lab.links()[0].sender.ipv4[address];
    Ok(lab.senders()[0].run(|| client(&format!("{address}:0")))??)
}

pub(crate) fn counts(running: &RunningServer) -> GuardCounts {
    running.guard().map(|guard| guard.counts).unwrap_or_default()
}

#[test]
fn guard_refuses_excess_requests_and_admits_again_after_replies() -> EngineTestResult {
    let Some(lab) = lab("guard_refuses_excess_requests_and_admits_again_after_replies", 1) else {
        return Ok(());
    };
    let (hold, service) = PausedServer::new();
    let running = serve(&lab, &guarded(FOREVER), service)?;
    let report = running.guard().ok_or("no guard")?;
    assert_eq!((report.outstanding, report.interfaces[0].mode), (FIRST, XdpMode::Driver));
    let client = client_at(&lab, 0)?;
    check_excess_is_refused(&running, &hold, &client, running.local_addr())?;
    let guard_counts = counts(&running);
    assert_eq!((guard_counts.opened, guard_counts.over_share), (0, 0), "{guard_counts:?}");

    // The guard does not count packets to other ports.
    let other = lab.receiver().run(|| client_on(&lab))??;
    client.send_to(b"other", other.local_addr()?)?;
    assert_eq!(other.recv(&mut [0; 16])?, 5);

    drop(hold.release);
    for _ in 0..FIRST {
        client.recv(&mut [0; 16])?;
    }
    for _ in 0..50 {
        assert_eq!(ask(&client, running.local_addr(), b"fresh")?.0, b"fresh");
    }
    let report = running.stop()?;
    assert_eq!(report.total().received, u64::from(FIRST) + 50);
    assert_eq!(fates(&report.total()), report.total().received);
    assert_eq!(report.guard.map(|guard| guard.counts.refused), Some(guard_counts.refused));
    Ok(())
}

/// A UDP socket on the receiver, on another port than the server.
fn client_on(lab: &Lab) -> std::io::Result<UdpSocket> {
    client(&format!("{}:0", lab.links()[0].receiver.ipv4[0]))
}

#[test]
fn guard_opens_while_workers_are_blocked_and_limits_again() -> EngineTestResult {
    let Some(lab) = lab("guard_opens_while_workers_are_blocked_and_limits_again", 1) else { return Ok(()) };
    let (hold, service) = PausedServer::new();
    let running = serve(&lab, &guarded(Duration::from_millis(50)), service)?;
    let client = client_at(&lab, 0)?;
    client.send_to(b"first", running.local_addr())?;
    hold.until_held()?;
    until("the guard refuses requests", || {
        client.send_to(b"more", running.local_addr()).is_ok() && counts(&running).refused > 0
    })?;
    until("the guard opens", || {
        client.send_to(b"more", running.local_addr()).is_ok() && counts(&running).opened > 0
    })?;
    // An open guard refuses no request.
    let refused_count = counts(&running).refused;
    for _ in 0..20 {
        client.send_to(b"more", running.local_addr())?;
    }
    assert_eq!(counts(&running).refused, refused_count);
    // The guard limits again when the worker continues: the worker takes the waiting requests, and
    // the next request is counted as admitted, not as passed uncounted.
    drop(hold.release);
    client.set_read_timeout(Some(Duration::from_millis(100)))?;
    while client.recv(&mut [0; 16]).is_ok() {}
    client.set_read_timeout(Some(PATIENCE))?;
    let admitted_count = counts(&running).admitted;
    assert_eq!(ask(&client, running.local_addr(), b"fresh")?.0, b"fresh");
    assert_eq!(counts(&running).admitted, admitted_count + 1);
    Ok(())
}

#[test]
fn guard_keeps_another_xdp_program_and_reports_a_fallback() -> EngineTestResult {
    let Some(lab) = lab("guard_keeps_another_xdp_program_and_reports_a_fallback", 1) else { return Ok(()) };
    let first = serve(&lab, &guarded(FOREVER), Echo)?;
    let second = serve(&lab, &guarded(FOREVER), Echo)?;
    assert!(first.guard().is_some() && second.guard().is_none());
    let fallback = &second.fallbacks()[0];
    assert!(fallback.why.starts_with("eth0 runs another XDP program"), "{fallback:?}");
    let client = client_at(&lab, 0)?;
    assert_eq!(ask(&client, second.local_addr(), b"abc")?.0, b"abc");
    assert_eq!(counts(&first), GuardCounts::default());
    assert_eq!(ask(&client, first.local_addr(), b"abc")?.0, b"abc");
    assert_eq!(counts(&first).admitted, 1);
    drop(first);
    until("the guard is detached", || {
        serve(&lab, &guarded(FOREVER), Echo).is_ok_and(|third| third.guard().is_some())
    })
}

/// Echoes each request after a delay.
#[derive(Clone)]
struct SlowService(Duration);

impl Service for SlowService {
    fn answer(&mut self, _: &Request<'_>, _: &mut [u8]) -> Action {
        std::thread::sleep(self.0);
        Action::Echo
    }
}

/// Number of polite sources. One greedy source floods the server at the same time.
const POLITE: usize = 10;

/// The share of the polite sources' requests that are answered while the greedy source floods. A
/// polite source waits for each reply before it sends its next request.
fn polite_share(
    lab: &Lab,
    overload: &OverloadPolicy,
) -> Result<(f64, GuardCounts), Box<dyn std::error::Error>> {
    const REQUESTS: usize = 25;
    let running = serve(lab, overload, SlowService(Duration::from_micros(100)))?;
    let to = running.local_addr();
    let clients = (0..=POLITE).map(|at| client_at(lab, at)).collect::<Result<Vec<_>, _>>()?;
    let (greedy, polite) = clients.split_first().ok_or("no client")?;
    let over = AtomicBool::new(false);
    let answered = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Relaxed) {
                for _ in 0..50 {
                    let _ = greedy.send_to(b"greedy", to);
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let flooded = until("the server is overloaded", || counts(&running).refused > 1000);
        let polite: Vec<_> = polite
            .iter()
            .map(|client| {
                scope.spawn(|| {
                    let _ = client.set_read_timeout(Some(Duration::from_secs(1)));
                    let begun = Instant::now();
                    let answered =
                        |_: &usize| begun.elapsed() < PATIENCE * 2 && ask(client, to, b"polite").is_ok();
                    (0..REQUESTS).filter(answered).count()
                })
            })
            .collect();
        let answered: usize = polite.into_iter().map(|polite| polite.join().unwrap_or(0)).sum();
        over.store(true, Relaxed);
        flooded.map(|()| answered)
    })?;
    Ok((answered as f64 / (POLITE * REQUESTS) as f64, counts(&running)))
}

#[test]
fn polite_sources_get_replies_despite_a_greedy_source() -> EngineTestResult {
    let test = "polite_sources_get_replies_despite_a_greedy_source";
    let Some(lab) = lab(test, POLITE + 1) else { return Ok(()) };
    let guard = XdpGuard { wait: Duration::from_millis(10), open_after: FOREVER, ..XdpGuard::default() };
    // All sources of the lab are in one /24, so the shares must be per address.
    let fairness = SourceGrouping { v4_prefix: 32, v6_prefix: 64 };
    let overload =
        OverloadPolicy { guard: Some(guard), fairness: Some(fairness), ..OverloadPolicy::default() };
    let (fair, guard_counts) = polite_share(&lab, &overload)?;
    println!("polite sources got {:.1} % of their replies: {guard_counts:?}", fair * 100.0);
    if std::env::var_os("LINERATE_TEST_LONG").is_some() {
        let (unfair, guard_counts) = polite_share(&lab, &OverloadPolicy { fairness: None, ..overload })?;
        println!("without shares {:.1} %: {guard_counts:?}", unfair * 100.0);
    }
    assert!(fair >= 0.8, "polite sources got {fair} of their replies: {guard_counts:?}");
    assert!(guard_counts.over_share > 0, "{guard_counts:?}");
    Ok(())
}
