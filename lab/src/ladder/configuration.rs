//! The configuration of server and host while a step is measured.

use std::time::Duration;

/// How the server's workers share the port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PortSharing {
    /// All workers read one socket.
    OneSocket,
    /// One socket per worker, chosen by the kernel's flow hash.
    Reuseport,
    /// One socket per worker, chosen by the CPU that processes the packet.
    SteeredByCpu,
}

/// The server's system calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerCalls {
    /// One `recvfrom` and one `sendto` per transaction.
    One,
    /// `recvmmsg` and `sendmmsg` of up to this many.
    Batched(u16),
}

/// Everything that a step may change. A value is a whole configuration and not a difference, so that
/// two configurations can be alternated in any order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerConfiguration {
    pub sharing: PortSharing,
    /// Whether worker N runs on the Nth CPU only.
    pub pinned: bool,
    pub calls: ServerCalls,
    /// Whether replies are sent with `IP_PMTUDISC_DO`, so that the kernel gives them no IP ID.
    pub skip_ip_id: bool,
    /// `SO_BUSY_POLL` of the server's sockets.
    pub busy_poll: Option<Duration>,
    /// Whether the receive buffers of a server program are enlarged from outside.
    pub receive_buffer: bool,
    /// Whether all CPUs of the server process received packets, or half of them.
    pub receive_spread: bool,
    /// Whether each CPU has its own transmit queue.
    pub transmit_by_cpu: bool,
    pub gro: bool,
    /// Whether the distribution's ruleset with connection tracking is loaded.
    pub netfilter: bool,
    /// Reverse-path filter and the check for local source addresses.
    pub source_validation: bool,
    /// Auditing of system calls.
    pub audit: bool,
    /// The socket lookup before routing.
    pub early_demux: bool,
    /// Whether the other hardware threads of each core are switched from their original state.
    pub smt_switched: bool,
}

impl ServerConfiguration {
    /// A simple server on a host with the defaults of a stock distribution. Half of the CPUs
    /// process received packets.
    #[must_use]
    pub fn baseline() -> Self {
        Self {
            sharing: PortSharing::OneSocket,
            pinned: false,
            calls: ServerCalls::One,
            skip_ip_id: false,
            busy_poll: None,
            receive_buffer: false,
            receive_spread: false,
            transmit_by_cpu: false,
            gro: true,
            netfilter: true,
            source_validation: true,
            audit: true,
            early_demux: true,
            smt_switched: false,
        }
    }

    /// Name and value of each server option.
    #[must_use]
    pub fn server_options(&self) -> Vec<(String, String)> {
        let option = |name: &str, value: String| (format!("server {name}"), value);
        vec![
            option(
                "sockets",
                match self.sharing {
                    PortSharing::OneSocket => "one for all workers",
                    PortSharing::Reuseport => "one per worker, SO_REUSEPORT, chosen by flow hash",
                    PortSharing::SteeredByCpu => {
                        "one per worker, SO_REUSEPORT, chosen by CPU (SO_ATTACH_REUSEPORT_CBPF)"
                    }
                }
                .to_owned(),
            ),
            option("workers", if self.pinned { "pinned, one per CPU" } else { "not pinned" }.to_owned()),
            option(
                "system calls",
                match self.calls {
                    ServerCalls::One => "recvfrom and sendto".to_owned(),
                    ServerCalls::Batched(batch) => format!("recvmmsg and sendmmsg, up to {batch}"),
                },
            ),
            option(
                "IP_MTU_DISCOVER",
                if self.skip_ip_id { "IP_PMTUDISC_DO" } else { "system default" }.to_owned(),
            ),
            option(
                "SO_BUSY_POLL",
                self.busy_poll.map_or_else(|| "off".to_owned(), |time| format!("{} us", time.as_micros())),
            ),
        ]
    }
}
