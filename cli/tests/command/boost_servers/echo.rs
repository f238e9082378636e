//! Compares two `linerate serve echo`: a boosted one without steering and pinning of its own, and
//! one that steers and pins itself.

use linerate_load::stats::compare;

use super::scene::{BUSY_RATE, BoostServersTestHost, print_figure};
use super::traces::steering;
use crate::support::{count, machine};

const PLAIN: u16 = 5301;
const STEERED: u16 = 5302;

/// Rounds of A B B A, and seconds per slot. `LINERATE_TEST_LONG` selects the values for published
/// figures.
fn effort() -> (usize, &'static str) {
    if std::env::var_os("LINERATE_TEST_LONG").is_some() { (6, "3") } else { (4, "0.5") }
}

/// Transactions per second of a server that always has requests waiting.
fn throughput(host: &BoostServersTestHost, port: u16, seconds: &str) -> f64 {
    let outcome = host.run_load(port, &["--window", "8", "--duration", seconds]);
    outcome["answered_per_second"].as_f64().unwrap_or_else(|| panic!("no rate in {outcome}"))
}

/// The throughput of the steered and of the boosted server, measured in turn: A B B A A B B A.
/// Values with the same index were measured one after the other.
fn alternate(host: &BoostServersTestHost, rounds: usize, seconds: &str) -> (Vec<f64>, Vec<f64>) {
    let mut rates = (Vec::new(), Vec::new());
    for pair in 0..2 * rounds {
        let order = if pair % 2 == 0 { [STEERED, PLAIN] } else { [PLAIN, STEERED] };
        for port in order {
            let side = if port == STEERED { &mut rates.0 } else { &mut rates.1 };
            side.push(throughput(host, port, seconds));
        }
    }
    rates
}

#[test]
fn boosted_server_is_as_fast_as_a_self_steering_server() {
    machine();
    let Some(mut host) = BoostServersTestHost::up(&["ss"]) else { return };
    host.spread();
    host.serve_echo(PLAIN, &["--sockets", "reuseport", "--no-pin"]);
    host.serve_echo(STEERED, &["--sockets", "ebpf"]);
    let port = PLAIN.to_string();

    let full = host.full_buffers();
    let load = host.start_load(PLAIN, BUSY_RATE, &[]);
    host.expect(0, &["--port", &port, "apply", "--yes", "--look", "1"]);
    // Any loss beyond full socket buffers is linerate's fault.
    let lost = count(&load.end(), "lost");
    assert!(lost <= host.full_buffers() - full, "{lost}");
    assert_eq!(steering(&host, PLAIN)[0].1, "\"cpu\"");

    let (rounds, seconds) = effort();
    let (steered, boosted) = alternate(&host, rounds, seconds);
    let ratio = compare(&steered, &boosted).expect("rates").ratio;
    let (low, high) = (ratio.low.expect("an end"), ratio.high.expect("an end"));
    print_figure(&format!(
        "serve echo boosted, as a share of self-steered: {:.3} ({low:.3} to {high:.3}, {} pairs of {seconds} s)",
        ratio.median, ratio.samples
    ));
    assert!(high >= 0.95, "{steered:?} {boosted:?}");
    host.expect(0, &["--port", &port, "undo"]);
}
