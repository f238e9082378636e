//! The CPU that processes the packets of a server, and the method.

use std::fmt;

use clap::ValueEnum;
use linerate_lab::Lab;

use crate::bench::placement::{pin_napi_threads, set_device, steer_by_rps};

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum SoftirqPlacement {
    /// RPS brings packets to the server's CPU: softirqs and server share it
    SameCpu,
    /// Softirqs on another CPU than the server's
    Away,
    /// A NAPI thread on the server's CPU
    Threaded,
    /// The server polls the device, and interrupts are deferred
    Deferred,
}

impl SoftirqPlacement {
    /// Whether the server polls the device.
    pub(super) fn polls(self) -> bool {
        self == Self::Deferred
    }

    /// Whether packets wait in a CPU's backlog.
    pub(super) fn steers(self) -> bool {
        self == Self::SameCpu
    }

    pub(super) fn set_up(self, lab: &Lab, server_cpu: u32) -> anyhow::Result<()> {
        let (host, interface) = (lab.receiver(), &lab.links()[0].receiver.interface);
        match self {
            Self::SameCpu => steer_by_rps(host, interface, 1, &[server_cpu]),
            Self::Away => Ok(()),
            Self::Threaded => set_device(host, interface, "threaded", "1"),
            Self::Deferred => {
                set_device(host, interface, "napi_defer_hard_irqs", "2")?;
                set_device(host, interface, "gro_flush_timeout", "200000")
            }
        }
    }

    /// Call this for each server, because its XDP program may have reset the device.
    pub(super) fn set_for_server(self, lab: &Lab, server_cpu: u32) -> anyhow::Result<()> {
        match self {
            Self::Threaded => pin_napi_threads(&lab.links()[0].receiver.interface, &[server_cpu]),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for SoftirqPlacement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SameCpu => "in softirqs on the server's CPU",
            Self::Away => "in softirqs on another CPU",
            Self::Threaded => "by threaded NAPI on the server's CPU",
            Self::Deferred => "by busy polling, interrupts deferred",
        })
    }
}
