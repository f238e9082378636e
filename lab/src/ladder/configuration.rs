//! The configuration of server and host while a step is measured.

/// Most datagrams of a batched system call.
pub(crate) const BATCH: u16 = 64;
/// `SO_BUSY_POLL`, microseconds: the value that the kernel's documentation recommends its users to start with
/// (Documentation/admin-guide/sysctl/net.rst, busy_read).
pub(crate) const BUSY_POLL_US: u32 = 50;

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

/// Everything that a step may change. A value is a whole configuration and not a difference, so that
/// two configurations can be alternated in any order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerConfiguration {
    pub sharing: PortSharing,
    /// Whether worker N runs on the Nth CPU only.
    pub pinned: bool,
    /// Whether the server calls `recvmmsg` and `sendmmsg` instead of one `recvfrom` and `sendto` per transaction.
    pub batched_calls: bool,
    /// Whether replies are sent with `IP_PMTUDISC_DO`, so that the kernel gives them no IP ID.
    pub skip_ip_id: bool,
    /// Whether the server's sockets have `SO_BUSY_POLL`.
    pub busy_poll: bool,
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
            batched_calls: false,
            skip_ip_id: false,
            busy_poll: false,
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
                if self.batched_calls {
                    format!("recvmmsg and sendmmsg, up to {BATCH}")
                } else {
                    "recvfrom and sendto".to_owned()
                },
            ),
            option(
                "IP_MTU_DISCOVER",
                if self.skip_ip_id { "IP_PMTUDISC_DO" } else { "system default" }.to_owned(),
            ),
            option(
                "SO_BUSY_POLL",
                if self.busy_poll { format!("{BUSY_POLL_US} us") } else { "off".to_owned() },
            ),
        ]
    }
}
