//! The headroom of services, estimated once a minute.

use std::collections::BTreeMap;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use linerate_host::Host;
use linerate_trace::headroom::{HeadroomReport, HeadroomSession};
use linerate_trace::window;

use super::{MeasuringThread, MetricCollector};
use crate::metrics::families::{HEADROOM, HEADROOM_CAPACITY};
use crate::metrics::gather::GatheredSamples;

/// Length of an estimate, and the interval between the starts of two estimates: the programs are
/// attached for a part of the time only.
const LAP: Duration = Duration::from_secs(6);
const EVERY: Duration = Duration::from_secs(60);

/// Capacity of a port, datagrams per second, and the unused share of it.
type Estimates = BTreeMap<u16, (f64, f64)>;

/// A thread that estimates one port after the other.
#[derive(Debug)]
pub(crate) struct HeadroomCollector(MeasuringThread<Estimates>);

impl HeadroomCollector {
    /// Starts the estimates.
    pub(crate) fn start(ports: &[u16]) -> Result<Self, String> {
        let Some(first_port) = ports.first() else { return Err("it requires --port".to_owned()) };
        // Reports a missing privilege or kernel feature at once.
        HeadroomSession::start(&Host::live(), *first_port).map_err(|error| error.to_string())?;
        let ports = ports.to_vec();
        Ok(Self(MeasuringThread::<Estimates>::start(move |estimates, is_stopped| {
            let host = Host::live();
            while !is_stopped() {
                let next_lap = Instant::now() + EVERY;
                for port in &ports {
                    let wait = |time| {
                        window::wait(time, is_stopped);
                    };
                    let report = HeadroomSession::start(&host, *port)?.measure(LAP, &wait)?;
                    let mut estimates = estimates.lock().unwrap_or_else(PoisonError::into_inner);
                    match unused(&report) {
                        Some(unused) => estimates.insert(*port, unused),
                        None => estimates.remove(port),
                    };
                }
                window::wait(next_lap.saturating_duration_since(Instant::now()), is_stopped);
            }
            Ok(())
        })))
    }
}

impl MetricCollector for HeadroomCollector {
    fn gather(&mut self, _host: &Host, samples: &mut GatheredSamples) -> Result<(), String> {
        for (port, (capacity, unused)) in &*self.0.values()? {
            let port = port.to_string();
            samples.add_gauge(&HEADROOM_CAPACITY, &[&port], *capacity);
            samples.add_gauge(&HEADROOM, &[&port], *unused);
        }
        Ok(())
    }
}

fn unused(report: &HeadroomReport) -> Option<(f64, f64)> {
    let estimate = report.capacity.value()?;
    Some((estimate.per_second, (1.0 - estimate.used_share).max(0.0)))
}
