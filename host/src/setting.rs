//! Typed knobs: the only way settings are changed, so that each change can be undone.

mod flow_hash;
mod named_counts;
mod nft_table;
mod offload;
mod queue_cpus;
mod rss_table;

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::stage::rss::HashFields;
use crate::{Host, HostError};

pub(crate) use flow_hash::any_fields;
pub use offload::Offload;
pub use queue_cpus::QueueDirection;
pub(crate) use rss_table::{any_table, table_value};

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
    /// An nftables table of family `inet`: its ruleset as `nft` reads it, or nothing when absent.
    NftTable {
        /// Name of the table.
        table: String,
    },
    /// The CPUs an interrupt may go to, as a mask (`/proc/irq/N/smp_affinity`).
    IrqAffinity {
        /// Its number.
        irq: u32,
    },
    /// The frequency governor of a CPU, such as `performance`.
    Governor {
        /// The CPU.
        cpu: u32,
    },
    /// Auditing of system calls, of the whole machine: `0`, `1` or `2` (locked).
    Audit,
}

/// A knob's value in the kernel's own words, without the trailing newline.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Value(String);

/// Why a knob could not be read or turned.
#[derive(Debug, thiserror::Error)]
pub enum SettingError {
    /// The host refused.
    #[error("{setting}: {source}")]
    Host {
        /// The knob.
        setting: String,
        /// Why.
        source: HostError,
    },
    /// The value is none that this knob takes.
    #[error("{setting}: '{value}' is not {expected}")]
    BadValue {
        /// The knob.
        setting: String,
        /// The value offered.
        value: String,
        /// What it takes.
        expected: &'static str,
    },
    /// The write was accepted and had no effect.
    #[error("{setting}: wrote '{wanted}', it still reads '{found}'")]
    Ignored {
        /// The knob.
        setting: String,
        /// The value written.
        wanted: String,
        /// What it reads afterwards.
        found: String,
    },
}

impl Value {
    /// A value; white space around it does not count.
    pub fn new(text: impl AsRef<str>) -> Self {
        Self(text.as_ref().trim().to_owned())
    }

    /// The value's text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Setting {
    /// A sysctl by its dotted name.
    pub fn sysctl(name: impl Into<String>) -> Self {
        Setting::Sysctl(name.into())
    }

    /// Reads the knob.
    ///
    /// # Errors
    /// [`SettingError::Host`] when it is not there or may not be read.
    pub fn read(&self, host: &Host) -> Result<Value, SettingError> {
        let value = match self {
            Setting::Sysctl(name) => host.read(&sysctl_path(name)).map(Value::new),
            Setting::QueueCpus { interface, direction, queue } => {
                queue_cpus::read(host, interface, *direction, *queue)
            }
            Setting::Offload { interface, offload } => {
                host.offload(interface, *offload).map(|on| Value::new(if on { "on" } else { "off" }))
            }
            Setting::RssTable { interface } => rss_table::read(host, interface),
            Setting::FlowHash { interface, flow } => flow_hash::read(host, interface, flow),
            Setting::Rings { interface } => host.rings(interface).map(Value::from),
            Setting::Channels { interface } => host.channels(interface).map(Value::from),
            Setting::NftTable { table } => nft_table::read(host, table),
            Setting::IrqAffinity { irq } => host.read(&irq_path(*irq)).map(Value::new),
            Setting::Governor { cpu } => host.read(&governor_path(*cpu)).map(Value::new),
            Setting::Audit => host.audit_enabled().map(|enabled| Value::new(enabled.to_string())),
        };
        value.map_err(|source| self.host_error(source))
    }

    /// Turns the knob and reads it back.
    ///
    /// # Errors
    /// [`SettingError::BadValue`] for a value the knob does not take, [`SettingError::Host`] when
    /// the host refuses, [`SettingError::Ignored`] when it accepts and does nothing.
    pub fn write(&self, host: &Host, value: &Value) -> Result<(), SettingError> {
        match self {
            Setting::Sysctl(name) => host.write(&sysctl_path(name), value.as_str()),
            Setting::QueueCpus { interface, direction, queue } => {
                queue_cpus::write(host, interface, *direction, *queue, &self.mask(value)?)
            }
            Setting::Offload { interface, offload } => match value.as_str() {
                "on" => host.set_offload(interface, *offload, true),
                "off" => host.set_offload(interface, *offload, false),
                _ => return Err(self.bad_value(value, "on or off")),
            },
            Setting::RssTable { interface } => match rss_table::Table::parse(value.as_str()) {
                Some(table) => rss_table::write(host, interface, &table),
                None => {
                    return Err(
                        self.bad_value(value, "'equal N', 'start S equal N' or a queue for each entry")
                    );
                }
            },
            Setting::FlowHash { interface, flow } => match HashFields::from_letters(value.as_str()) {
                Some(fields) => flow_hash::write(host, interface, flow, fields),
                None => return Err(self.bad_value(value, "letters of ethtool's rx-flow-hash such as sdfn")),
            },
            Setting::Rings { interface } => match named_counts::parse(value, &named_counts::RINGS) {
                Some(lengths) => named_counts::write_rings(host, interface, &lengths),
                None => return Err(self.bad_value(value, "lengths such as rx 4096 tx 512")),
            },
            Setting::Channels { interface } => match named_counts::parse(value, &named_counts::CHANNELS) {
                Some(counts) => named_counts::write_channels(host, interface, &counts),
                None => return Err(self.bad_value(value, "numbers such as combined 8")),
            },
            Setting::NftTable { table } => nft_table::write(host, table, value),
            Setting::IrqAffinity { irq } => host.write(&irq_path(*irq), &self.mask(value)?.to_mask()),
            Setting::Governor { cpu } => host.write(&governor_path(*cpu), value.as_str()),
            Setting::Audit => match value.as_str().parse::<u32>() {
                Ok(enabled @ 0..=2) => host.set_audit_enabled(enabled),
                _ => return Err(self.bad_value(value, "0, 1 or 2")),
            },
        }
        .map_err(|source| self.host_error(source))?;
        let found = self.read(host)?;
        if self.same(value, &found) {
            Ok(())
        } else {
            Err(SettingError::Ignored {
                setting: self.to_string(),
                wanted: value.to_string(),
                found: found.to_string(),
            })
        }
    }

    /// Whether two values mean the same to this knob.
    #[must_use]
    pub fn same(&self, one: &Value, other: &Value) -> bool {
        match self {
            Setting::QueueCpus { .. } | Setting::IrqAffinity { .. } => {
                let set = |value: &Value| crate::CpuSet::from_mask(value.as_str()).ok();
                set(one).is_some() && set(one) == set(other)
            }
            Setting::RssTable { .. } => rss_table::same(one.as_str(), other.as_str()),
            Setting::FlowHash { .. } => flow_hash::same(one.as_str(), other.as_str()),
            Setting::Rings { .. } => named_counts::same(one, other, &named_counts::RINGS),
            Setting::Channels { .. } => named_counts::same(one, other, &named_counts::CHANNELS),
            // nft prints a ruleset in its own layout and with names for numbers; what can be told
            // apart without parsing it is whether the table is there.
            Setting::NftTable { .. } => one.as_str().is_empty() == other.as_str().is_empty(),
            Setting::Sysctl(_) => one.as_str().split_whitespace().eq(other.as_str().split_whitespace()),
            Setting::Offload { .. } | Setting::Governor { .. } | Setting::Audit => one == other,
        }
    }

    /// What a person would type to turn the knob; none where no single command does.
    #[must_use]
    pub fn command(&self, value: &Value) -> Option<String> {
        let echo = |path: &str| format!("echo {value} > {path}");
        match self {
            Setting::Sysctl(name) => Some(format!("sysctl -w {name}={}", quoted(value.as_str()))),
            Setting::QueueCpus { interface, direction, queue } => {
                Some(echo(&queue_cpus::path(interface, *direction, *queue)))
            }
            Setting::Offload { interface, offload } => {
                Some(format!("ethtool -K {interface} {offload} {value}"))
            }
            Setting::RssTable { interface } => rss_table::command(interface, value),
            Setting::FlowHash { interface, flow } => (!value.as_str().is_empty())
                .then(|| format!("ethtool -N {interface} rx-flow-hash {flow} {value}")),
            Setting::Rings { interface } => Some(format!("ethtool -G {interface} {value}")),
            Setting::Channels { interface } => Some(format!("ethtool -L {interface} {value}")),
            Setting::NftTable { table } => {
                value.as_str().is_empty().then(|| format!("nft delete table inet {table}"))
            }
            Setting::IrqAffinity { irq } => Some(echo(&irq_path(*irq))),
            Setting::Governor { cpu } => Some(echo(&governor_path(*cpu))),
            Setting::Audit => Some(format!("auditctl -e {value}")),
        }
    }

    fn mask(&self, value: &Value) -> Result<crate::CpuSet, SettingError> {
        crate::CpuSet::from_mask(value.as_str())
            .map_err(|_| self.bad_value(value, "a mask of CPUs such as 00000003"))
    }

    fn host_error(&self, source: HostError) -> SettingError {
        SettingError::Host { setting: self.to_string(), source }
    }

    fn bad_value(&self, value: &Value, expected: &'static str) -> SettingError {
        SettingError::BadValue { setting: self.to_string(), value: value.to_string(), expected }
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Setting::Sysctl(name) => f.write_str(name),
            Setting::QueueCpus { interface, direction, queue } => {
                write!(f, "{interface} {}", queue_cpus::file(*direction, *queue))
            }
            Setting::Offload { interface, offload } => write!(f, "{interface} {offload}"),
            Setting::RssTable { interface } => write!(f, "{interface} indirection table"),
            Setting::FlowHash { interface, flow } => write!(f, "{interface} hash fields of {flow}"),
            Setting::Rings { interface } => write!(f, "rings of {interface}"),
            Setting::Channels { interface } => write!(f, "channels of {interface}"),
            Setting::NftTable { table } => write!(f, "nftables table inet {table}"),
            Setting::IrqAffinity { irq } => write!(f, "affinity of IRQ {irq}"),
            Setting::Governor { cpu } => write!(f, "governor of CPU {cpu}"),
            Setting::Audit => f.write_str("audit enabled"),
        }
    }
}

fn irq_path(irq: u32) -> String {
    format!("/proc/irq/{irq}/smp_affinity")
}

fn governor_path(cpu: u32) -> String {
    format!("/sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor")
}

/// A word a shell takes as one.
fn quoted(word: &str) -> String {
    if word.contains(char::is_whitespace) { format!("'{word}'") } else { word.to_owned() }
}

/// The file of a sysctl. As `sysctl(8)` has it: a slash in the name stands for a dot in the path,
/// so that interfaces such as `eth0.5` can be named.
fn sysctl_path(name: &str) -> String {
    let path: String = name
        .chars()
        .map(|letter| match letter {
            '.' => '/',
            '/' => '.',
            other => other,
        })
        .collect();
    format!("/proc/sys/{path}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host() -> Host {
        Host::scripted([
            ("/proc/sys/net/ipv4/conf/eth0.5/rp_filter", "1\n"),
            ("/sys/class/net/eth0/queues/rx-0/rps_cpus", "00000000,00000001\n"),
        ])
    }

    #[test]
    fn a_sysctl_is_read_and_written_by_its_dotted_name() {
        let setting = Setting::sysctl("net.ipv4.conf.eth0/5.rp_filter");
        let host = host();
        assert_eq!(setting.read(&host).expect("read").as_str(), "1");
        setting.write(&host, &Value::new("0")).expect("written");
        assert_eq!(setting.read(&host).expect("read").as_str(), "0");
    }

    #[test]
    fn queue_masks_compare_by_meaning() {
        let setting =
            Setting::QueueCpus { interface: "eth0".into(), direction: QueueDirection::Receive, queue: 0 };
        assert_eq!(setting.to_string(), "eth0 rx-0/rps_cpus");
        assert!(setting.same(&Value::new("1"), &setting.read(&host()).expect("read")));
        setting.write(&host(), &Value::new("3")).expect("written");
        let error = setting.write(&host(), &Value::new("zz")).expect_err("not a mask");
        assert_eq!(error.to_string(), "eth0 rx-0/rps_cpus: 'zz' is not a mask of CPUs such as 00000003");
    }

    #[test]
    fn a_missing_knob_names_itself() {
        let error = Setting::sysctl("net.nothing").read(&host()).expect_err("not there");
        assert!(error.to_string().starts_with("net.nothing: cannot read /proc/sys/net/nothing: "), "{error}");
    }

    #[test]
    fn a_setting_survives_a_journal() {
        let setting =
            Setting::QueueCpus { interface: "eth0".into(), direction: QueueDirection::Transmit, queue: 3 };
        let text = serde_json::to_string(&setting).expect("written");
        assert_eq!(serde_json::from_str::<Setting>(&text).expect("read"), setting);
    }
}
