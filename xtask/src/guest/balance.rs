//! irqbalance together with a tune: it leaves the interrupts that the tune excludes, and moves
//! others.

use std::collections::BTreeMap;

use anyhow::{Context as _, ensure};

use super::machine::TO_VIRTIO;
use super::session::GuestSession;
use super::traffic::{FEW, FlowCount, GuestTraffic};

// A short interval of irqbalance, in seconds. Its default is 10.
const INTERVAL: u32 = 3;

// Time to watch the interrupts, in seconds: until some have moved, or to see that none moves.
const UNTOLD: u32 = 20;
const AGREED: u32 = 60;

// Starts irqbalance and waits until it runs. Its socket is in a directory that its service creates.
const START: &str = r"
mkdir -p /run/irqbalance
irqbalance --interval=INTERVAL --pid=/run/irqbalance.pid
until [ -S /run/irqbalance/irqbalance$(cat /run/irqbalance.pid).sock ]; do sleep 0.1; done
";

/// Stops irqbalance.
const STOP: &str = "kill $(cat /run/irqbalance.pid); while pidof irqbalance >/dev/null; do sleep 0.1; done";

const INTERRUPT_CPUS: &str = include_str!("interrupt_cpus.sh");

/// Puts all interrupts on one CPU, which irqbalance changes under load.
const ALL_ON_ONE: &str = r"
for irq in $(sed -n 's/^ *\([0-9]*\):.* virtio1-input\..*/\1/p' /proc/interrupts); do
    echo 3 >/proc/irq/$irq/smp_affinity_list || exit
done
";

/// Runs the checks, prints their results, and returns failures.
pub(super) fn run(guest: &mut GuestSession) -> anyhow::Result<Vec<String>> {
    let mut failures = Vec::new();
    guest.serve("198.18.82.2")?;
    guest.run_successfully(&START.replace("INTERVAL", &INTERVAL.to_string()))?;

    guest.run_successfully(ALL_ON_ONE)?;
    let moved_count = count_moved_interrupts(guest, UNTOLD)?;
    println!("  irqbalance without bans moves {moved_count} interrupts within {UNTOLD} s");
    if moved_count == 0 {
        failures.push("irqbalance moves nothing, so that nothing is shown by what stays".to_owned());
    }

    let plan = guest.run_script("linerate tune plan --for udp-server --json -")?;
    if !plan.output.contains("irqbalance") {
        failures.push(format!("tune plan does not name irqbalance: {}", plan.summary()));
    }
    // 1: doctor still reports findings, which are not about interrupts here.
    failures.extend(guest.failure_of("linerate tune apply --for udp-server --yes", 1)?);
    let moved_count = count_moved_interrupts(guest, AGREED)?;
    println!("  agreed with, it moves {moved_count} within {AGREED} s");
    if moved_count > 0 {
        failures.push(format!("irqbalance moved {moved_count} interrupts that were banned"));
    }

    failures.extend(guest.failure_of("linerate tune undo", 0)?);
    guest.run_successfully(STOP)?;
    Ok(failures)
}

/// The number of interrupts that move during traffic, with a rescan in the middle.
fn count_moved_interrupts(guest: &mut GuestSession, seconds: u32) -> anyhow::Result<usize> {
    let before = interrupt_cpus(guest)?;
    let traffic = GuestTraffic::start(guest, &TO_VIRTIO, FlowCount::Many, FEW)?;
    let half = seconds / 2;
    guest.run_successfully(&format!("sleep {half}; kill -HUP $(cat /run/irqbalance.pid); sleep {half}"))?;
    traffic.stop()?;
    let after = interrupt_cpus(guest)?;
    ensure!(!before.is_empty(), "the guest has no interrupts of queues");
    Ok(before.iter().filter(|(irq, cpus)| after.get(*irq) != Some(cpus)).count())
}

fn interrupt_cpus(guest: &mut GuestSession) -> anyhow::Result<BTreeMap<String, String>> {
    let reply = guest.run_script(INTERRUPT_CPUS)?;
    let parse_line = |line: &str| line.split_once(' ').map(|(irq, cpus)| (irq.to_owned(), cpus.to_owned()));
    reply
        .output
        .lines()
        .map(|line| parse_line(line).with_context(|| format!("'{line}' is no interrupt with its CPUs")))
        .collect()
}
