//! Typed knobs: the only way settings are changed, so that each change can be undone.
//!
//! [`Setting`] names a knob; what a kind of knob does is a file below, and `Setting::knob` the one place that maps one to the
//! other.

mod audit;
mod channels;
mod coalesce;
mod error;
mod flow_hash;
mod governor;
mod iptables;
mod irq_affinity;
mod irqbalance_bans;
mod knob;
mod nftables;
mod ntuple_rule;
mod number_file;
mod offload;
mod pairs;
mod qdisc;
mod queue_cpus;
mod rings;
mod rss_table;
mod socket_knob;
mod steering;
mod sysctl;
mod thread_cpus;
mod value;
mod virtual_functions;

use std::borrow::Cow;
use std::fmt;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::Host;
use crate::stage::filter::IpFamily;
use crate::stage::socket::SocketProtocol;
use knob::{Knob, WriteRefusal};

pub use error::SettingError;
pub(crate) use flow_hash::any_fields;
pub use irqbalance_bans::list as interrupts;
pub(crate) use irqbalance_bans::parse as any_interrupts;
pub use nftables::NftFamily;
pub(crate) use nftables::any_ruleset;
pub use number_file::NapiKnob;
pub use offload::Offload;
pub use queue_cpus::QueueDirection;
pub use rss_table::table_entries;
pub(crate) use rss_table::{any_table, table_value};
pub(crate) use socket_knob::words as socket_words;
pub use socket_knob::{SocketAt, SocketKnob};
pub use steering::{SteeredSocket, SteeredSockets, SteeringTable, steered};
pub use value::SettingValue;

/// One knob of a host.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Setting {
    /// A sysctl by its dotted name, such as `net.ipv4.udp_early_demux`.
    Sysctl(String),
    /// The CPUs a queue is bound to: RPS for a receive queue, XPS for a transmit queue.
    QueueCpus {
        /// Name of the interface.
        interface: String,
        /// Receive or transmit.
        direction: QueueDirection,
        /// Number of the queue.
        queue: u32,
    },
    /// The receive queues whose sockets send by a transmit queue, as a mask (`xps_rxqs`).
    QueueReceivers {
        /// Name of the interface.
        interface: String,
        /// Number of the transmit queue.
        queue: u32,
    },
    /// How many flows RFS keeps of a receive queue (`rps_flow_cnt`); `net.core.rps_sock_flow_entries` is the other half.
    QueueFlows {
        /// Name of the interface.
        interface: String,
        /// Number of the receive queue.
        queue: u32,
    },
    /// How the kernel polls an interface: a number.
    Napi {
        /// Name of the interface.
        interface: String,
        /// Which one.
        knob: NapiKnob,
    },
    /// An offload of an interface: `on` or `off`.
    Offload {
        /// Name of the interface.
        interface: String,
        /// Which one.
        offload: Offload,
    },
    /// The indirection table of an interface: `equal N`, `start S equal N`, or the queue of every entry with commas
    /// between.
    RssTable {
        /// Name of the interface.
        interface: String,
    },
    /// The fields that a kind of flow is hashed by, as `ethtool -N IF rx-flow-hash` has them: `sdfn`.
    FlowHash {
        /// Name of the interface.
        interface: String,
        /// The kind of flow: `udp4`, `udp6`, `tcp4`, `tcp6`, ...
        flow: String,
    },
    /// A rule that puts flows into a queue, such as `flow-type udp4 dst-port 53 action 3`, or nothing.
    NtupleRule {
        /// Name of the interface.
        interface: String,
        /// Its place in the NIC's table, where those that come first may go first.
        location: u32,
    },
    /// Lengths of an interface's rings, in descriptors: `rx 4096 tx 512`. Most drivers reset the interface to change them.
    Rings {
        /// Name of the interface.
        interface: String,
    },
    /// How many channels of each kind an interface has: `combined 8`. Most drivers reset the interface to change them.
    Channels {
        /// Name of the interface.
        interface: String,
    },
    /// An interface's interrupt moderation: `adaptive-rx off rx-usecs 50`, of what its driver has.
    Coalesce {
        /// Name of the interface.
        interface: String,
    },
    /// The queueing discipline at an interface's root, with those of its queues where that is `mq`: `fq_codel limit 1000`,
    /// `mq of fq`, `mq of fq at 0-3; pfifo_fast at 4-7`, and ` by default` where the kernel put it there.
    Qdisc {
        /// Name of the interface.
        interface: String,
    },
    /// How many virtual functions the device of an interface has. Those that anybody uses are left alone.
    VirtualFunctions {
        /// Name of the interface.
        interface: String,
    },
    /// An nftables table: its ruleset as `nft` reads it, or nothing when absent.
    NftTable {
        /// Its family.
        #[serde(default, skip_serializing_if = "is_inet")]
        family: NftFamily,
        /// Name of the table.
        table: String,
    },
    /// All that nftables holds: tables as `nft` reads them, or nothing.
    NftRuleset,
    /// A rule at the end of a chain of iptables: `present` or `absent`. One that is removed and comes back is the last.
    IptablesRule {
        /// IPv4 or IPv6.
        family: IpFamily,
        /// Its table, such as `raw`.
        table: String,
        /// Its chain, such as `PREROUTING`.
        chain: String,
        /// What it says: `-p udp --dport 53 -j NOTRACK`.
        rule: String,
    },
    /// A table of iptables, as `iptables-save` prints it, or nothing where it does nothing.
    IptablesTable {
        /// IPv4 or IPv6.
        family: IpFamily,
        /// Its name.
        table: String,
    },
    /// The CPUs an interrupt may go to, as a mask (`/proc/irq/N/smp_affinity`), and where it is among several:
    /// `000000ff at 3`.
    IrqAffinity {
        /// Its number, which counts only while the interrupt of that number has the name.
        irq: u32,
        /// Its name in `/proc/interrupts`, such as `eth0-TxRx-3`; empty for the number alone.
        #[serde(default)]
        action: String,
    },
    /// The frequency governor of a CPU, such as `performance`.
    Governor {
        /// The CPU.
        cpu: u32,
    },
    /// Auditing of system calls, of the whole machine: `0`, `1` or `2` (locked).
    Audit,
    /// The interrupts that a running irqbalance was told by number to leave alone: `24-31,40`. Made by
    /// [`Setting::irqbalance_bans`].
    IrqbalanceBans {
        /// Its process id.
        pid: u32,
        /// When it was started, in clock ticks since boot: one that was started later knows of nothing.
        started: u64,
    },
    /// What chooses the socket of a reuseport group: `none` for the kernel's hash, `by-cpu 0:41 1:42+43` for linerate's
    /// program with the cookies of the sockets for each CPU ([`SteeringTable`]). Of others it tells `classic`,
    /// `classic-by-cpu` or `program NAME (id N)`, and neither replaces nor restores them.
    Steering {
        /// Inode of the network namespace that the group is in (`/proc/PID/ns/net`): its address may be another's elsewhere.
        namespace: u64,
        /// UDP, or TCP for listeners.
        protocol: SocketProtocol,
        /// The address its sockets are bound to.
        local: SocketAddr,
    },
    /// An option of one socket of a running process.
    Socket {
        /// The socket.
        socket: SocketAt,
        /// Which option.
        knob: SocketKnob,
    },
    /// The CPUs that a thread may run on, as a list such as `0,4-5` (`sched_setaffinity`).
    ThreadCpus {
        /// Its process.
        pid: u32,
        /// The thread.
        tid: u32,
        /// When the thread was started, in clock ticks since boot: one that was started later is another.
        started: u64,
    },
}

impl Setting {
    /// A sysctl by its dotted name.
    pub fn sysctl(name: impl Into<String>) -> Self {
        Setting::Sysctl(name.into())
    }

    /// Whether it spreads packets over more queues, and so over more CPUs. Interrupts and RPS are not among them: where they
    /// go is for a layout to judge.
    #[must_use]
    pub fn spreads_packets(&self) -> bool {
        matches!(self, Setting::Channels { .. } | Setting::RssTable { .. } | Setting::FlowHash { .. })
    }

    fn knob(&self) -> Box<dyn Knob + '_> {
        match self {
            Setting::Sysctl(name) => Box::new(sysctl::SysctlKnob(name)),
            Setting::QueueCpus { interface, direction, queue } => {
                Box::new(queue_cpus::QueueMask::cpus(interface, *direction, *queue))
            }
            Setting::QueueReceivers { interface, queue } => {
                Box::new(queue_cpus::QueueMask::receive_queues(interface, *queue))
            }
            Setting::QueueFlows { interface, queue } => {
                Box::new(number_file::NumberFile::flows(interface, *queue))
            }
            Setting::Napi { interface, knob } => Box::new(number_file::NumberFile::napi(interface, *knob)),
            Setting::Offload { interface, offload } => {
                Box::new(offload::OffloadKnob { interface, offload: *offload })
            }
            Setting::RssTable { interface } => Box::new(rss_table::RssTable { interface }),
            Setting::FlowHash { interface, flow } => Box::new(flow_hash::FlowHash { interface, flow }),
            Setting::NtupleRule { interface, location } => {
                Box::new(ntuple_rule::NtupleKnob { interface, location: *location })
            }
            Setting::Rings { interface } => Box::new(rings::RingsKnob { interface }),
            Setting::Channels { interface } => Box::new(channels::ChannelsKnob { interface }),
            Setting::Coalesce { interface } => Box::new(coalesce::ModerationKnob { interface }),
            Setting::Qdisc { interface } => Box::new(qdisc::RootQdisc { interface }),
            Setting::VirtualFunctions { interface } => {
                Box::new(virtual_functions::VirtualFunctions { interface })
            }
            Setting::NftTable { family, table } => {
                Box::new(nftables::NftTableDump { family: *family, table })
            }
            Setting::NftRuleset => Box::new(nftables::NftRuleset),
            Setting::IptablesRule { family, table, chain, rule } => {
                Box::new(iptables::IptablesRule { family: *family, table, chain, rule })
            }
            Setting::IptablesTable { family, table } => {
                Box::new(iptables::IptablesDump { family: *family, table })
            }
            Setting::IrqAffinity { irq, action } => Box::new(irq_affinity::IrqAffinity { irq: *irq, action }),
            Setting::Governor { cpu } => Box::new(governor::GovernorKnob { cpu: *cpu }),
            Setting::Audit => Box::new(audit::AuditKnob),
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
        }
    }

    /// Where the name of the interface that it belongs to is kept; sysctls have it in theirs.
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
            | Setting::Coalesce { interface }
            | Setting::Qdisc { interface }
            | Setting::VirtualFunctions { interface } => Some(interface),
            Setting::Sysctl(_)
            | Setting::NftTable { .. }
            | Setting::NftRuleset
            | Setting::IptablesRule { .. }
            | Setting::IptablesTable { .. }
            | Setting::IrqAffinity { .. }
            | Setting::Governor { .. }
            | Setting::Audit
            | Setting::IrqbalanceBans { .. }
            | Setting::Steering { .. }
            | Setting::Socket { .. }
            | Setting::ThreadCpus { .. } => None,
        }
    }

    /// The interface that it belongs to; none where it belongs to none, as an interrupt, whose name only seems to say.
    #[must_use]
    pub fn interface(&self) -> Option<Cow<'_, str>> {
        match self {
            Setting::Sysctl(name) => sysctl::SysctlKnob(name).interface(),
            other => other.clone().interface_field().map(|name| Cow::Owned(std::mem::take(name))),
        }
    }

    /// Whether it is of a process that runs, and ends with it, its socket or its thread: nothing of it can last, and nothing
    /// is left to be put back.
    #[must_use]
    pub fn is_of_process(&self) -> bool {
        matches!(self, Setting::Steering { .. } | Setting::Socket { .. } | Setting::ThreadCpus { .. })
    }

    /// The same knob of an interface under another name; itself where it belongs to none.
    #[must_use]
    pub fn on_interface(&self, new: &str) -> Setting {
        if let Setting::Sysctl(name) = self {
            let renamed = sysctl::SysctlKnob(name).on_interface(new);
            return renamed.map_or_else(|| self.clone(), Setting::Sysctl);
        }
        let mut setting = self.clone();
        if let Some(interface) = setting.interface_field() {
            new.clone_into(interface);
        }
        setting
    }

    /// Reads the knob.
    ///
    /// # Errors
    /// [`SettingError::Host`] when it is not there or may not be read, [`SettingError::BadName`] when there can be none.
    pub fn read(&self, host: &Host) -> Result<SettingValue, SettingError> {
        let knob = self.named_knob()?;
        knob.read(host).map_err(|source| SettingError::Host { setting: knob.name(), source })
    }

    /// Whether the value is one that the knob takes, on whatever host; what a device takes only it can tell.
    ///
    /// # Errors
    /// [`SettingError::BadValue`], [`SettingError::BadName`].
    pub fn check(&self, value: &SettingValue) -> Result<(), SettingError> {
        let knob = self.named_knob()?;
        knob.check(value).map_err(|expected| bad_value(&*knob, value, expected))
    }

    /// Turns the knob and reads it back.
    ///
    /// # Errors
    /// [`SettingError::BadValue`] for a value the knob does not take, [`SettingError::Host`] when
    /// the host refuses, [`SettingError::Refused`] when it would not work or could not be undone, [`SettingError::Ignored`]
    /// when the host accepts and does nothing, [`SettingError::Partly`] when it does something else.
    pub fn write(&self, host: &Host, value: &SettingValue) -> Result<(), SettingError> {
        self.check(value)?;
        let knob = self.named_knob()?;
        let before = knob.read(host).ok();
        knob.write(host, value).map_err(|refusal| match refusal {
            WriteRefusal::Host(source) => SettingError::Host { setting: knob.name(), source },
            WriteRefusal::BadValue(expected) => bad_value(&*knob, value, expected),
            WriteRefusal::Reason(why) => SettingError::Refused { setting: knob.name(), why },
        })?;
        let found = self.read(host)?;
        if knob.took(value, &found) {
            return Ok(());
        }
        let changed = before.is_some_and(|before| !knob.same(&before, &found));
        let (setting, wanted, found) = (knob.name(), value.to_string(), found.to_string());
        Err(if changed {
            SettingError::Partly { setting, wanted, found }
        } else {
            SettingError::Ignored { setting, wanted, found }
        })
    }

    /// Whether two values mean the same to this knob.
    #[must_use]
    pub fn same(&self, one: &SettingValue, other: &SettingValue) -> bool {
        self.knob().same(one, other)
    }

    /// Whether a write of `to` that broke off, as of a program that was killed, may have left `found`: some kinds get from one
    /// value to another only by way of a third.
    #[must_use]
    pub fn passes(&self, to: &SettingValue, found: &SettingValue) -> bool {
        self.knob().passes(to, found)
    }

    /// Why nobody can turn the knob where this program runs, whatever privilege it has; none where somebody can, or where a
    /// capture does not tell.
    #[must_use]
    pub fn fixed(&self, host: &Host) -> Option<&'static str> {
        self.knob().is_fixed(host)
    }

    /// What a person would type to turn the knob; none where no single command does.
    #[must_use]
    pub fn command(&self, value: &SettingValue) -> Option<String> {
        self.knob().command(value)
    }

    /// The knob, if its name can be one: a plan is a file that anybody may have edited, and must name no file elsewhere.
    fn named_knob(&self) -> Result<Box<dyn Knob + '_>, SettingError> {
        let knob = self.knob();
        let interface = self.interface().filter(|interface| !is_interface_name(interface));
        let why = interface.map(|interface| format!("'{interface}' is no name of an interface"));
        match why.or_else(|| knob.wrong_name()) {
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

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_inet(family: &NftFamily) -> bool {
    *family == NftFamily::Inet
}

fn bad_value(knob: &dyn Knob, value: &SettingValue, expected: &'static str) -> SettingError {
    SettingError::BadValue { setting: knob.name(), value: value.to_string(), expected }
}

/// As the kernel has it (`dev_valid_name` of net/core/dev.c, Linux 6.18).
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
    fn a_setting_survives_a_journal() {
        let setting =
            Setting::QueueCpus { interface: "eth0".into(), direction: QueueDirection::Transmit, queue: 3 };
        let text = serde_json::to_string(&setting).expect("written");
        assert_eq!(serde_json::from_str::<Setting>(&text).expect("read"), setting);
    }

    #[test]
    fn a_knob_moves_with_its_interface() {
        let rings = Setting::Rings { interface: "eth0".into() };
        assert_eq!(rings.interface().as_deref(), Some("eth0"));
        assert_eq!(rings.on_interface("lan0"), Setting::Rings { interface: "lan0".into() });
        let irq = Setting::IrqAffinity { irq: 30, action: "eth0-TxRx-0".into() };
        assert_eq!((irq.interface(), irq.on_interface("lan0")), (None, irq.clone()));
    }

    #[test]
    fn no_interface_leads_to_another_directory() {
        for interface in ["", "..", "../../../etc", "a b", "sixteen-letters-"] {
            let queue = 0;
            let setting =
                Setting::QueueCpus { interface: interface.into(), direction: QueueDirection::Receive, queue };
            let error = setting.write(&Host::live(), &SettingValue::new("0")).expect_err(interface);
            assert!(matches!(error, SettingError::BadName { .. }), "{interface}: {error}");
        }
    }

    #[test]
    fn what_is_taken_in_part_is_told_from_what_is_ignored() {
        let path = "/proc/sys/net/core/rmem_max";
        let setting = Setting::sysctl("net.core.rmem_max");
        let host = Host::scripted([(path, "1\n")]).ignoring(path);
        let error = setting.write(&host, &SettingValue::new("2")).expect_err("ignored");
        assert!(matches!(error, SettingError::Ignored { .. }), "{error}");
        let denied = host.refusing(path, libc::EACCES);
        assert!(setting.write(&denied, &SettingValue::new("2")).expect_err("denied").is_denied());
    }
}
