//! The difference between requested and sent rates, counted by a program at the receiving end.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::Args;
use linerate_lab::Lab;
use linerate_load::LoadSlot;
use linerate_load::generator::GeneratorBackend;
use linerate_testkit::reflector::XdpService;

use crate::machine;

// Allowed deviation of the rate.
const ALLOWED: f64 = 0.001;

const PAYLOAD: usize = 100;

/// Shorter datagrams are not requests.
const SHORTEST: u16 = 40;

#[derive(Debug, Args)]
pub(crate) struct PacingBench {
    /// How long each rate is kept, s.
    #[arg(long, default_value_t = 10.0)]
    seconds: f64,
    /// Requests per second: one or several rates, each measured.
    #[arg(long, value_delimiter = ',', default_values_t = [1e3, 1e4, 1e5, 1e6])]
    rates: Vec<f64>,
    /// The CPU that sends.
    #[arg(long, default_value_t = 0)]
    cpu: u32,
}

impl PacingBench {
    pub(crate) fn run(&self) -> anyhow::Result<ExitCode> {
        if cfg!(debug_assertions) {
            return super::run_optimized();
        }
        ensure!(self.seconds >= 0.1, "--seconds {}: give 0.1 or more", self.seconds);
        if let Some(skipped) = machine::skip_unless_root("bench pacing") {
            return Ok(skipped);
        }
        println!("requests of {PAYLOAD} bytes for {} s at each rate, one thread:", self.seconds);
        let mut kept = true;
        for backend in [GeneratorBackend::Xdp, GeneratorBackend::Socket] {
            for per_second in &self.rates {
                // Sockets cannot send a million per second from one core, so they have no threshold.
                kept &= self.measure(backend, *per_second)? || backend == GeneratorBackend::Socket;
            }
        }
        if kept {
            println!("ok: with xdp every rate is within {} %", ALLOWED * 100.0);
        } else {
            println!("FAILED: with xdp a rate is off by more than {} %", ALLOWED * 100.0);
        }
        Ok(machine::exit_code(kept))
    }

    // Whether the rate is within the limit.
    fn measure(&self, backend: GeneratorBackend, per_second: f64) -> anyhow::Result<bool> {
        let lab = Lab::builder().start()?;
        let end = &lab.links()[0].receiver;
        let attach = || XdpService::sink().shortest_payload(SHORTEST).attach(&end.interface);
        let sink = lab.receiver().run(attach)??;
        let builder = super::echo_load((end.ipv4[0], 7).into(), self.cpu, 1, PAYLOAD).backend(backend);
        let mut generator = lab.senders()[0].run(|| builder.start())??;
        let slot =
            LoadSlot::rate(per_second, Duration::from_secs_f64(self.seconds)).fast_enough(per_second, 1);
        let outcome = generator.run(&LoadSlot { drain: Duration::from_millis(1), ..slot });
        let outcome = outcome.with_context(|| format!("{backend:?} at {per_second}/s"))?;
        let arrived = sink.account()?.received as f64 / outcome.duration.as_secs_f64();
        let off = arrived / per_second - 1.0;
        let watch = &outcome.self_watch;
        println!(
            "  {:6} {per_second:9.0}/s: {arrived:11.1}/s arrived ({:+.4} %), bursts of {} (at most {}), {} over 1 ms late, \
             worst {:.0} us, {} refused by the link",
            generator.describe().backend,
            off * 100.0,
            outcome.bursts.median_requests,
            outcome.bursts.max_requests,
            watch.late_sends,
            watch.worst_lag_ns as f64 / 1e3,
            watch.refused_by_link
        );
        Ok(off.abs() <= ALLOWED)
    }
}
