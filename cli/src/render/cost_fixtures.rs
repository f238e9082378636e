//! A look at the cost of packets for tests. Every figure in it is made up: nothing here was measured on any machine.

use linerate_trace::cost::{CostReport, CostResult};

use crate::envelope::Envelope;
use crate::origin::{HostSummary, Warning};

/// Two CPUs, one of which a process computes on that gets packets.
pub(crate) fn cost() -> CostReport {
    envelope().result.cost
}

/// The same as a result. Its CPUs have these per cents of their 10 s, in the order idle, tasks,
/// NET_RX, NET_TX, packet interrupts, other softirqs and other interrupts: 60, 30, 1, 0, 4, 2, 3
/// and 0, 57, 38, 1, 1, 2, 1. Packets are NET_RX in ns / 1,000; half of them entered.
pub(crate) fn envelope() -> Envelope<CostResult> {
    let result = serde_json::from_str(include_str!("cost_fixtures.json")).expect("a result");
    let envelope = Envelope::new(HostSummary::default(), Some(1_735_689_599), result);
    let argv = vec!["linerate".to_owned(), "cost".to_owned()];
    Envelope { argv, ..envelope }.with_warnings([Warning::remark("the hypervisor took 0.2 % of these CPUs")])
}

/// A document whose every text tries to break out of the page.
pub(crate) fn hostile() -> Envelope<CostResult> {
    let attack = "</title><script>alert('x')</script>&\"";
    let mut envelope = envelope();
    envelope.argv.push(attack.to_owned());
    envelope.host.kernel = Some(attack.to_owned());
    for victim in &mut envelope.result.cost.victims {
        victim.comm = attack.to_owned();
    }
    for device in &mut envelope.result.cost.devices {
        device.name = attack.to_owned();
    }
    envelope.warnings.push(Warning::remark(attack));
    envelope
}

// A key that the format no longer has would otherwise leave its field at the default.
#[test]
fn the_fixture_has_the_keys_that_are_written() {
    let read: serde_json::Value = serde_json::from_str(include_str!("cost_fixtures.json")).expect("JSON");
    assert_eq!(serde_json::to_value(envelope().result).expect("JSON"), read);
}
