//! The steps of the ladder, in order.

use crate::ladder::configuration::{PortSharing, ServerConfiguration};
use crate::ladder::report::TestbedKind;

#[derive(Debug, Clone, Copy)]
pub struct LadderStep {
    /// The identifier in the published ladder if the step is the same.
    pub id: &'static str,
    pub title: &'static str,
    /// The change, in one sentence.
    pub what: &'static str,
    /// Turns the configuration without the step into the configuration with it.
    pub change: fn(&mut ServerConfiguration),
}

impl LadderStep {
    /// Whether it is about a server program. linerate's own server has the setting at every step.
    #[must_use]
    pub fn needs_program(&self) -> bool {
        self.configuration().receive_buffer
    }

    /// The baseline with this step alone.
    pub(crate) fn configuration(&self) -> ServerConfiguration {
        let mut configuration = ServerConfiguration::baseline();
        (self.change)(&mut configuration);
        configuration
    }

    /// Whether a configuration has this step.
    pub(crate) fn is_in(&self, configuration: &ServerConfiguration) -> bool {
        let mut with_step = configuration.clone();
        (self.change)(&mut with_step);
        with_step == *configuration
    }
}

/// The first step of every run.
pub const BASELINE: &str = "baseline";

pub const STEPS: &[LadderStep] = &[
    LadderStep {
        id: BASELINE,
        title: "One socket, stock host",
        what: "One worker per CPU, all on one socket, recvfrom and sendto; receive processing on half of the CPUs, as with all IRQs on one NUMA node.",
        change: |_| {},
    },
    LadderStep {
        id: "irq-affinity-rps",
        title: "Receive processing on every CPU",
        what: "All CPUs process received packets instead of half of them: by IRQ affinity on a NIC, by RPS in the lab.",
        change: |configuration| configuration.receive_spread = true,
    },
    LadderStep {
        id: "reuseport",
        title: "One socket per worker",
        what: "SO_REUSEPORT splits the socket lock and queue; the flow hash chooses the socket.",
        change: |configuration| configuration.sharing = PortSharing::Reuseport,
    },
    LadderStep {
        id: "steer-by-cpu",
        title: "Socket chosen by CPU",
        what: "SO_ATTACH_REUSEPORT_CBPF chooses the socket of the CPU that processes the packet, so that CPUs do not share sockets.",
        change: |configuration| configuration.sharing = PortSharing::SteeredByCpu,
    },
    LadderStep {
        id: "pin-threads",
        title: "Workers pinned",
        what: "Each worker runs on the CPU that processes the packets of its socket.",
        change: |configuration| configuration.pinned = true,
    },
    LadderStep {
        id: "xps",
        title: "One transmit queue per CPU",
        what: "XPS: each CPU sends by its own queue instead of one chosen by flow hash.",
        change: |configuration| configuration.transmit_by_cpu = true,
    },
    LadderStep {
        id: "gro-off",
        title: "GRO off",
        what: "Datagrams of many clients cannot be merged, and the attempt costs CPU time. Do not do this on a hypervisor or where TCP matters.",
        change: |configuration| configuration.gro = false,
    },
    LadderStep {
        id: "netfilter-off",
        title: "No netfilter ruleset",
        what: "The nftables ruleset with connection tracking is removed.",
        change: |configuration| configuration.netfilter = false,
    },
    LadderStep {
        id: "source-validation-off",
        title: "No source validation",
        what: "rp_filter=0 and accept_local=1 save a route lookup for each datagram.",
        change: |configuration| configuration.source_validation = false,
    },
    LadderStep {
        id: "audit-off",
        title: "Audit off",
        what: "System calls are no longer audited, on the whole machine.",
        change: |configuration| configuration.audit = false,
    },
    LadderStep {
        id: "ip-id-skip",
        title: "IP ID skipped",
        what: "IP_MTU_DISCOVER=IP_PMTUDISC_DO: the kernel gives replies no IP ID. Only if no reply exceeds the MTU.",
        change: |configuration| configuration.skip_ip_id = true,
    },
    LadderStep {
        id: "batch-syscalls",
        title: "Batched system calls",
        what: "recvmmsg and sendmmsg, up to 64 datagrams per call.",
        change: |configuration| configuration.batched_calls = true,
    },
    LadderStep {
        id: "early-demux-off",
        title: "Early demux off",
        what: "udp_early_demux=0: no socket lookup before routing. It finds nothing for an unconnected server.",
        change: |configuration| configuration.early_demux = false,
    },
    LadderStep {
        id: "receive-buffer",
        title: "Receive buffers of 4 MiB",
        what: "SO_RCVBUFFORCE on the sockets of a server program: bursts wait instead of being lost.",
        change: |configuration| configuration.receive_buffer = true,
    },
    LadderStep {
        id: "busy-poll",
        title: "Busy polling",
        what: "SO_BUSY_POLL: a worker without work polls its NAPI instance for 50 us before it sleeps.",
        change: |configuration| configuration.busy_poll = true,
    },
    LadderStep {
        id: "smt",
        title: "Hardware threads switched",
        what: "The further hardware threads of each core go offline, or come online if they are offline.",
        change: |configuration| configuration.smt_switched = true,
    },
];

/// Title and description of the baseline, which depend on what is measured.
pub(crate) fn baseline_text(has_program: bool, kind: TestbedKind) -> (&'static str, &'static str) {
    match (has_program, kind) {
        (false, TestbedKind::Lab) => (STEPS[0].title, STEPS[0].what),
        (false, TestbedKind::Host) => (
            "One socket, the host as found",
            "One worker per CPU, all on one socket, recvfrom and sendto; the settings of the host as found.",
        ),
        (true, TestbedKind::Lab) => (
            "The server as started, stock host",
            "The server with one worker, where the number can be chosen; receive processing on half of the CPUs, as with all IRQs on one NUMA node.",
        ),
        (true, TestbedKind::Host) => {
            ("Server and host as found", "The running server and the settings of the host as found.")
        }
    }
}

/// A step that is not one of [`STEPS`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown step '{name}'; the steps are {}", step_names())]
pub struct UnknownStep {
    pub name: String,
}

fn step_names() -> String {
    STEPS.iter().map(|step| step.id).collect::<Vec<_>>().join(", ")
}

/// The steps with these names in ladder order, the baseline always first.
pub fn select<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Vec<&'static LadderStep>, UnknownStep> {
    let mut step_ids = vec![BASELINE];
    for name in names {
        let step =
            STEPS.iter().find(|step| step.id == name).ok_or_else(|| UnknownStep { name: name.to_owned() })?;
        step_ids.push(step.id);
    }
    Ok(STEPS.iter().filter(|step| step_ids.contains(&step.id)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ladder::report;

    #[test]
    fn every_step_after_baseline_changes_the_configuration() {
        let mut before = ServerConfiguration::baseline();
        for step in &STEPS[1..] {
            let mut after = before.clone();
            (step.change)(&mut after);
            assert_ne!(after, before, "{}", step.id);
            before = after;
        }
    }

    #[test]
    fn published_steps_have_the_same_order_in_this_ladder() {
        let ladders = report::published_ladders();
        let step_ids: Vec<&str> = STEPS.iter().map(|step| step.id).collect();
        let mut last = 0;
        for step in &ladders[0].steps {
            // SMT was switched on in the published ladder. The step smt toggles SMT, which may switch it off.
            if step.id == "hyper-threading" {
                continue;
            }
            let position =
                step_ids.iter().position(|id| *id == step.id).expect("a step for each published step");
            assert!(position >= last, "{}", step.id);
            last = position;
        }
    }

    #[test]
    fn selected_steps_start_at_baseline_in_ladder_order() {
        let ids = |names: &[&str]| {
            select(names.iter().copied()).map(|steps| steps.iter().map(|step| step.id).collect::<Vec<_>>())
        };
        assert_eq!(ids(&["pin-threads", "reuseport"]), Ok(vec!["baseline", "reuseport", "pin-threads"]));
        assert_eq!(ids(&[]), Ok(vec!["baseline"]));
        let error = ids(&["reuse-port"]).expect_err("unknown");
        assert!(error.to_string().starts_with("unknown step 'reuse-port'; the steps are baseline, irq-"));
    }
}
