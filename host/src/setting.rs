//! Typed settings: the only way to change a host, so that each change can be undone.
//!
//! [`Setting`] names a setting. Each kind is implemented in a file below, and `Setting::knob` maps
//! one to the other.

mod audit;
mod error;
mod ethtool;
pub(crate) mod flow_hash;
mod iptables;
pub(crate) mod irq_affinity;
mod irqbalance_bans;
mod knob;
mod nftables;
mod ntuple_rule;
mod offload;
mod queue_polling;
pub(crate) mod rss_table;
mod smt_control;
mod socket_knob;
mod steering;
mod sysctl;
mod sysfs;
mod thread_cpus;
mod unit_drop_in;
mod value;
mod virtual_functions;

use std::borrow::Cow;
use std::fmt;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::Host;
use crate::netlink::sock_diag::SocketProtocol;
use crate::sys::iptables::IpFamily;
use ethtool::{PairsKind, PairsKnob};
use knob::{Knob, WriteRefusal};
use sysfs::SysfsFile;

pub use error::SettingError;
pub(crate) use ethtool::pairs_value;
pub use irqbalance_bans::list as interrupts;
pub use nftables::NftFamily;
pub(crate) use nftables::any_ruleset;
pub use offload::Offload;
pub use rss_table::table_entries;
pub(crate) use rss_table::{any_table, table_value};
pub(crate) use socket_knob::option_text as socket_option_text;
pub use socket_knob::{SocketAt, SocketKnob};
pub use steering::{SteeredSocket, SteeredSockets, SteeringTable, steering_counts};
pub use sysctl::sysctl_path;
pub use sysfs::{NapiKnob, QueueDirection};
pub use value::SettingValue;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Setting {
    /// By its dotted name, such as `net.ipv4.udp_early_demux`.
    Sysctl(String),
    /// RPS of a receive queue, XPS of a transmit queue.
    QueueCpus { interface: String, direction: QueueDirection, queue: u32 },
    /// The receive queues whose sockets send by a transmit queue, as a mask (`xps_rxqs`).
    QueueReceivers { interface: String, queue: u32 },
    /// RFS flow table size of a receive queue (`rps_flow_cnt`); requires
    /// `net.core.rps_sock_flow_entries`, too.
    QueueFlows { interface: String, queue: u32 },
    /// How the kernel polls an interface: a number.
    Napi { interface: String, knob: NapiKnob },
    /// How the NAPI instance of a receive queue polls: `defer-hard-irqs 2 gro-flush-timeout 20000
    /// irq-suspend-timeout 0 threaded 0`.
    QueuePolling { interface: String, queue: u32 },
    /// `on` or `off`.
    Offload { interface: String, offload: Offload },
    /// The indirection table: `equal N`, `start S equal N`, or the queues of all entries separated
    /// by commas.
    RssTable { interface: String },
    /// The hashed fields of a flow type, as in `ethtool -N IF rx-flow-hash`: `sdfn`.
    FlowHash {
        interface: String,
        /// `udp4`, `udp6`, `tcp4`, `tcp6`, ...
        flow: String,
    },
    /// A rule that directs flows to a queue, such as `flow-type udp4 dst-port 53 action 3`, or
    /// nothing.
    NtupleRule {
        interface: String,
        /// Its index in the NIC's table; lower ones may take precedence.
        location: u32,
    },
    /// Ring lengths in descriptors: `rx 4096 tx 512`. Most drivers reset the interface to change
    /// them.
    Rings { interface: String },
    /// Channels of each kind: `combined 8`. Most drivers reset the interface to change them.
    Channels { interface: String },
    /// Interrupt moderation, with the parameters of the driver: `adaptive-rx off rx-usecs 50`.
    Coalesce { interface: String },
    /// Number of virtual functions. Functions in use are left alone.
    VirtualFunctions { interface: String },
    /// An nftables table as a ruleset for `nft`, or nothing.
    NftTable {
        #[serde(default, skip_serializing_if = "is_inet")]
        family: NftFamily,
        table: String,
    },
    /// A rule at the end of an iptables chain: `present` or `absent`. Restoring a removed rule
    /// appends it.
    IptablesRule {
        family: IpFamily,
        /// Such as `raw`.
        table: String,
        /// Such as `PREROUTING`.
        chain: String,
        /// `-p udp --dport 53 -j NOTRACK`.
        rule: String,
    },
    /// The CPUs an interrupt may go to, as a mask (`/proc/irq/N/smp_affinity`), and its CPU among
    /// several: `000000ff at 3`.
    IrqAffinity {
        /// Valid while the interrupt with this number has the name.
        irq: u32,
        /// In `/proc/interrupts`, such as `eth0-TxRx-3`; empty for the number alone.
        #[serde(default)]
        action: String,
    },
    /// The frequency governor of a CPU, such as `performance`.
    Governor { cpu: u32 },
    /// Auditing of system calls on the whole machine: `0`, `1` or `2` (locked).
    Audit,
    /// Whether the further hardware threads of each core are online, on the whole machine: `on` or `off`.
    SmtControl,
    /// Interrupts that a running irqbalance bans by number: `24-31,40`. Created by
    /// [`Setting::irqbalance_bans`].
    IrqbalanceBans {
        pid: u32,
        /// Start time in clock ticks since boot: a process started later has no such bans.
        started: u64,
    },
    /// How a reuseport group chooses a socket: `none` for the kernel's hash, `by-cpu 0:41 1:42+43`
    /// for linerate's program with socket cookies per CPU ([`SteeringTable`]). Other programs read
    /// as `classic`, `classic-by-cpu` or `program NAME (id N)`; they are neither replaced nor
    /// restored.
    Steering {
        /// Inode of the group's network namespace (`/proc/PID/ns/net`), because the address can
        /// exist in several.
        namespace: u64,
        /// TCP for listeners.
        protocol: SocketProtocol,
        local: SocketAddr,
    },
    /// An option of one socket of a running process.
    Socket { socket: SocketAt, knob: SocketKnob },
    /// The CPUs that a thread may run on, as a list such as `0,4-5` (`sched_setaffinity`).
    ThreadCpus {
        pid: u32,
        tid: u32,
        /// Start time in clock ticks since boot: a thread started later is another one.
        started: u64,
    },
    /// linerate's drop-in of a systemd service: its text, or nothing.
    UnitDropIn {
        /// Such as `ntpd.service`.
        unit: String,
    },
}

impl Setting {
    pub fn sysctl(name: impl Into<String>) -> Self {
        Setting::Sysctl(name.into())
    }

    /// Whether it spreads packets over more queues, and so over more CPUs. Interrupts and RPS are
    /// judged by the layout instead.
    pub fn spreads_packets(&self) -> bool {
        matches!(self, Setting::Channels { .. } | Setting::RssTable { .. } | Setting::FlowHash { .. })
    }

    fn knob(&self) -> Box<dyn Knob + '_> {
        match self {
            Setting::Sysctl(name) => Box::new(sysctl::SysctlKnob(name)),
            Setting::QueueCpus { interface, direction, queue } => {
                Box::new(SysfsFile::cpus(interface, *direction, *queue))
            }
            Setting::QueueReceivers { interface, queue } => {
                Box::new(SysfsFile::receive_queues(interface, *queue))
            }
            Setting::QueueFlows { interface, queue } => Box::new(SysfsFile::flows(interface, *queue)),
            Setting::Napi { interface, knob } => Box::new(SysfsFile::napi(interface, *knob)),
            Setting::QueuePolling { interface, queue } => {
                Box::new(queue_polling::QueuePolling { interface, queue: *queue })
            }
            Setting::Offload { interface, offload } => {
                Box::new(offload::OffloadKnob { interface, offload: *offload })
            }
            Setting::RssTable { interface } => Box::new(rss_table::RssTable { interface }),
            Setting::FlowHash { interface, flow } => Box::new(flow_hash::FlowHash { interface, flow }),
            Setting::NtupleRule { interface, location } => {
                Box::new(ntuple_rule::NtupleKnob { interface, location: *location })
            }
            Setting::Rings { interface } => Box::new(PairsKnob { interface, kind: PairsKind::RINGS }),
            Setting::Channels { interface } => Box::new(PairsKnob { interface, kind: PairsKind::CHANNELS }),
            Setting::Coalesce { interface } => Box::new(PairsKnob { interface, kind: PairsKind::COALESCE }),
            Setting::VirtualFunctions { interface } => {
                Box::new(virtual_functions::VirtualFunctions { interface })
            }
            Setting::NftTable { family, table } => {
                Box::new(nftables::NftTableDump { family: *family, table })
            }
            Setting::IptablesRule { family, table, chain, rule } => {
                Box::new(iptables::IptablesRule { family: *family, table, chain, rule })
            }
            Setting::IrqAffinity { irq, action } => Box::new(irq_affinity::IrqAffinity { irq: *irq, action }),
            Setting::Governor { cpu } => Box::new(SysfsFile::governor(*cpu)),
            Setting::Audit => Box::new(audit::AuditKnob),
            Setting::SmtControl => Box::new(smt_control::SmtKnob),
            Setting::IrqbalanceBans { pid, started } => {
                Box::new(irqbalance_bans::IrqbalanceBans { pid: *pid, started: *started })
            }
            Setting::Steering { namespace, protocol, local } => Box::new(steering::ReuseportGroup {
                namespace: *namespace,
                protocol: *protocol,
                local: *local,
            }),
            Setting::Socket { socket, knob } => Box::new(socket_knob::OnSocket { socket, knob: *knob }),
            Setting::ThreadCpus { pid, tid, started } => {
                Box::new(thread_cpus::ThreadKnob { pid: *pid, tid: *tid, started: *started })
            }
            Setting::UnitDropIn { unit } => Box::new(unit_drop_in::UnitDropIn { unit }),
        }
    }

    /// Sysctls have the interface in their name.
    fn interface_field(&mut self) -> Option<&mut String> {
        match self {
            Setting::QueueCpus { interface, .. }
            | Setting::Offload { interface, .. }
            | Setting::RssTable { interface }
            | Setting::FlowHash { interface, .. }
            | Setting::NtupleRule { interface, .. }
            | Setting::Rings { interface }
            | Setting::Channels { interface }
            | Setting::QueueReceivers { interface, .. }
            | Setting::QueueFlows { interface, .. }
            | Setting::Napi { interface, .. }
            | Setting::QueuePolling { interface, .. }
            | Setting::Coalesce { interface }
            | Setting::VirtualFunctions { interface } => Some(interface),
            Setting::Sysctl(_)
            | Setting::NftTable { .. }
            | Setting::IptablesRule { .. }
            | Setting::IrqAffinity { .. }
            | Setting::Governor { .. }
            | Setting::Audit
            | Setting::SmtControl
            | Setting::IrqbalanceBans { .. }
            | Setting::Steering { .. }
            | Setting::Socket { .. }
            | Setting::ThreadCpus { .. }
            | Setting::UnitDropIn { .. } => None,
        }
    }

    /// `None` for settings of no interface, for example an interrupt, whose name only suggests one.
    pub fn interface(&self) -> Option<Cow<'_, str>> {
        match self {
            Setting::Sysctl(name) => sysctl::SysctlKnob(name).interface(),
            setting => setting.clone().interface_field().map(|name| Cow::Owned(std::mem::take(name))),
        }
    }

    /// Whether the setting ends with a process, socket or thread, so that it cannot persist and
    /// need not be restored afterwards.
    pub fn is_of_process(&self) -> bool {
        matches!(self, Setting::Steering { .. } | Setting::Socket { .. } | Setting::ThreadCpus { .. })
    }

    /// The same setting of another interface; unchanged if it belongs to none.
    pub fn on_interface(&self, new_interface: &str) -> Setting {
        if let Setting::Sysctl(name) = self {
            let new_name = sysctl::SysctlKnob(name).on_interface(new_interface);
            return new_name.map_or_else(|| self.clone(), Setting::Sysctl);
        }
        let mut setting = self.clone();
        if let Some(interface) = setting.interface_field() {
            new_interface.clone_into(interface);
        }
        setting
    }

    /// # Errors
    /// [`SettingError::Host`] if it does not exist or cannot be read, [`SettingError::BadName`] for
    /// an invalid name.
    pub fn read(&self, host: &Host) -> Result<SettingValue, SettingError> {
        let knob = self.named_knob()?;
        knob.read(host).map_err(|source| SettingError::Host { setting: knob.name(), source })
    }

    /// Whether the value is valid on some host. Only a device itself can check its limits.
    pub fn check(&self, value: &SettingValue) -> Result<(), SettingError> {
        let knob = self.named_knob()?;
        knob.canonical(value).map(drop).map_err(|expected| bad_value(&*knob, value, expected))
    }

    /// Writes the value and reads it back.
    ///
    /// # Errors
    /// [`SettingError::BadValue`] for an invalid value, [`SettingError::Host`] if the host refuses,
    /// [`SettingError::Refused`] if it would not work or could not be undone,
    /// [`SettingError::Ignored`] if the host accepts it without effect, [`SettingError::Partly`] if
    /// the result is different.
    pub fn write(&self, host: &Host, value: &SettingValue) -> Result<(), SettingError> {
        self.check(value)?;
        let knob = self.named_knob()?;
        let before = knob.read(host).ok();
        knob.write(host, value).map_err(|refusal| match refusal {
            WriteRefusal::Host(source) => SettingError::Host { setting: knob.name(), source },
            WriteRefusal::BadValue(expected) => bad_value(&*knob, value, expected),
            WriteRefusal::Reason(why) => SettingError::Refused { setting: knob.name(), why },
        })?;
        let actual = self.read(host)?;
        if knob.is_applied(value, &actual) {
            return Ok(());
        }
        let is_changed = before.is_some_and(|before| !knob.same(&before, &actual));
        let (setting, requested, actual) = (knob.name(), value.to_string(), actual.to_string());
        Err(if is_changed {
            SettingError::Partly { setting, wanted: requested, found: actual }
        } else {
            SettingError::Ignored { setting, wanted: requested, found: actual }
        })
    }

    /// Whether two values mean the same.
    pub fn same(&self, left: &SettingValue, right: &SettingValue) -> bool {
        self.knob().same(left, right)
    }

    /// Whether an interrupted write of `requested`, for example by a killed program, may have
    /// left `actual`: some kinds write an intermediate value first.
    pub fn can_leave(&self, requested: &SettingValue, actual: &SettingValue) -> bool {
        self.knob().can_leave(requested, actual)
    }

    /// Why the setting cannot be changed here with any privilege; `None` if it can, or if a capture
    /// does not record it.
    pub fn fixed_reason(&self, host: &Host) -> Option<&'static str> {
        self.knob().fixed_reason(host)
    }

    /// The equivalent shell command; `None` if one command does not suffice.
    pub fn command(&self, value: &SettingValue) -> Option<String> {
        self.knob().command(value)
    }

    // Checks the name: a plan may have been edited, and must not name a file elsewhere.
    fn named_knob(&self) -> Result<Box<dyn Knob + '_>, SettingError> {
        let knob = self.knob();
        let interface = self.interface().filter(|interface| !is_interface_name(interface));
        let why = interface.map(|interface| format!("'{interface}' is no name of an interface"));
        match why.or_else(|| knob.name_error()) {
            None => Ok(knob),
            Some(why) => Err(SettingError::BadName { setting: knob.name(), why }),
        }
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.knob().name())
    }
}

fn is_inet(family: &NftFamily) -> bool {
    *family == NftFamily::Inet
}

fn bad_value(knob: &dyn Knob, value: &SettingValue, expected: &'static str) -> SettingError {
    SettingError::BadValue { setting: knob.name(), value: value.to_string(), expected }
}

// The kernel's rules (`dev_valid_name` of net/core/dev.c, Linux 6.18).
fn is_interface_name(name: &str) -> bool {
    const LONGEST: usize = 15;
    !matches!(name, "" | "." | "..")
        && name.len() <= LONGEST
        && !name.contains(|letter: char| matches!(letter, '/' | ':') || letter.is_ascii_whitespace())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn on_interface_changes_only_settings_of_an_interface() {
        let rings = Setting::Rings { interface: "eth0".into() };
        assert_eq!(rings.interface().as_deref(), Some("eth0"));
        assert_eq!(rings.on_interface("lan0"), Setting::Rings { interface: "lan0".into() });
        let irq = Setting::IrqAffinity { irq: 30, action: "eth0-TxRx-0".into() };
        assert_eq!((irq.interface(), irq.on_interface("lan0")), (None, irq.clone()));
    }

    #[test]
    fn invalid_interface_names_are_refused() {
        for interface in ["", "..", "../../../etc", "a b", "sixteen-letters-"] {
            let queue = 0;
            let setting =
                Setting::QueueCpus { interface: interface.into(), direction: QueueDirection::Receive, queue };
            let error = setting.write(&Host::live(), &SettingValue::new("0")).expect_err(interface);
            assert!(matches!(error, SettingError::BadName { .. }), "{interface}: {error}");
        }
    }

    #[test]
    fn ignored_and_denied_writes_are_different_errors() {
        let path = "/proc/sys/net/core/rmem_max";
        let setting = Setting::sysctl("net.core.rmem_max");
        let host = Host::scripted([(path, "1\n")]).ignoring(path);
        let error = setting.write(&host, &SettingValue::new("2")).expect_err("ignored");
        assert!(matches!(error, SettingError::Ignored { .. }), "{error}");
        let denying_host = host.refusing(path, libc::EACCES);
        assert!(setting.write(&denying_host, &SettingValue::new("2")).expect_err("denied").is_denied());
        let channels = r#"{ "rx": 1, "rx_max": 8, "combined": 1, "combined_max": 8 }"#;
        let host = Host::scripted([("/calls/ethtool/eth0/channels.json", channels)]);
        let setting = Setting::Channels { interface: "eth0".into() };
        let error = setting.write(&host, &SettingValue::new("rx 4 tx 4")).expect_err("no tx channels");
        assert!(matches!(error, SettingError::Partly { .. }), "{error}");
        assert_eq!(error.found(), Some("rx 4 combined 1"));
    }
}
