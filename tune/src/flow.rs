//! A CPU for the packets of one service or virtual machine: a rule of the NIC directs them to a
//! queue that interrupts this CPU, and the indirection table excludes that queue.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use linerate_host::setting::{Offload, QueueDirection};
use linerate_host::stage::irq::IrqVector;
use linerate_host::{CpuSet, Host, HostError, Known, PacketPath, Setting, SettingError, SettingValue};

use crate::plan::{PlannedChange, SkippedFinding, TargetSetting};
use crate::{NamedDevice, TunePlan};

/// The packets to direct: `dst 192.0.2.5 udp port 53`, `udp port 53`, `ether dst 52:54:00:12:34:56`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FlowMatch {
    /// Frames to this address.
    Ethernet { destination: String },
    /// Datagrams or segments to this port, of one address or of all.
    Port { destination: Option<IpAddr>, protocol: &'static str, port: u16 },
}

#[derive(Debug, Clone)]
pub struct FlowRequest {
    pub interface: String,
    pub cpu: u32,
    pub packets: FlowMatch,
    /// Whether all packets of the interface go to the CPU, by RPS, instead of those that match.
    pub rps: bool,
}

/// Why a flow cannot be directed, in one line.
#[derive(Debug, thiserror::Error)]
pub enum FlowError {
    #[error("{0}")]
    Refused(String),
    #[error(transparent)]
    Setting(#[from] SettingError),
    #[error(transparent)]
    Host(#[from] HostError),
}

impl FromStr for FlowMatch {
    type Err = FlowError;

    fn from_str(text: &str) -> Result<Self, FlowError> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let no_match = || {
            FlowError::Refused(format!(
                "'{text}' is no match: expected 'dst ADDRESS udp port N', 'udp port N', or 'ether dst MAC'; tcp for udp"
            ))
        };
        let (destination, port_words) = match words.as_slice() {
            ["ether", "dst", address] => return ethernet(address).ok_or_else(no_match)?,
            ["dst", address, port_words @ ..] => (Some(address.parse().map_err(|_| no_match())?), port_words),
            port_words => (None, port_words),
        };
        let [protocol, "port", port] = port_words else { return Err(no_match()) };
        let protocol = ["udp", "tcp"].into_iter().find(|name| name == protocol).ok_or_else(no_match)?;
        let port = port.parse().ok().filter(|port| *port != 0).ok_or_else(no_match)?;
        Ok(Self::Port { destination, protocol, port })
    }
}

// `None` if it is no address.
fn ethernet(address: &str) -> Option<Result<FlowMatch, FlowError>> {
    let destination = address.to_ascii_lowercase();
    let rule = Setting::NtupleRule { interface: "eth0".to_owned(), location: 0 };
    rule.check(&SettingValue::new(format!("flow-type ether dst {destination} action 0"))).ok()?;
    let first = u8::from_str_radix(destination.split(':').next()?, 16).ok()?;
    // The lowest bit of the first byte marks a group (IEEE 802).
    let is_group = first & 1 != 0;
    Some(if is_group {
        Err(FlowError::Refused(format!(
            "{destination} is a group address, whose frames are for many: expected the address of one machine"
        )))
    } else {
        Ok(FlowMatch::Ethernet { destination })
    })
}

impl fmt::Display for FlowMatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ethernet { destination } => write!(f, "ether dst {destination}"),
            Self::Port { destination: Some(address), protocol, port } => {
                write!(f, "dst {address} {protocol} port {port}")
            }
            Self::Port { destination: None, protocol, port } => write!(f, "{protocol} port {port}"),
        }
    }
}

impl FlowMatch {
    /// Rules in the syntax of `ethtool -N`, without their action. A port of all addresses requires
    /// one rule per IP version.
    fn rules(&self) -> Vec<String> {
        match self {
            Self::Ethernet { destination } => vec![format!("flow-type ether dst {destination}")],
            Self::Port { destination: Some(address), protocol, port } => {
                let version = if address.is_ipv4() { 4 } else { 6 };
                vec![format!("flow-type {protocol}{version} dst-ip {address} dst-port {port}")]
            }
            Self::Port { destination: None, protocol, port } => {
                [4, 6].map(|version| format!("flow-type {protocol}{version} dst-port {port}")).into()
            }
        }
    }
}

/// The changes for a flow. The rule comes first, because a NIC may refuse it.
pub fn plan(host: &Host, path: &PacketPath, request: &FlowRequest) -> Result<TunePlan, FlowError> {
    let FlowRequest { interface, cpu, packets, rps } = request;
    if let Some(online) = path.machine.online.value().filter(|online| !online.contains(*cpu)) {
        return Err(FlowError::Refused(format!("CPU {cpu} is not online: online are {online}")));
    }
    let plan = TunePlan {
        devices: vec![NamedDevice::observe(host, interface)?],
        cpus: vec![*cpu],
        ..TunePlan::new(format!("'{packets}' to CPU {cpu}"))
    };
    let mut draft = FlowDraft { host, path, request, plan };
    if *rps {
        draft.add_rps()?;
    } else {
        draft.add_rule()?;
    }
    Ok(draft.plan)
}

struct FlowDraft<'a> {
    host: &'a Host,
    path: &'a PacketPath,
    request: &'a FlowRequest,
    plan: TunePlan,
}

impl<'a> FlowDraft<'a> {
    fn interface(&self) -> String {
        self.request.interface.clone()
    }

    fn no_rules(&self, reason: &str) -> FlowError {
        let FlowRequest { interface, cpu, .. } = self.request;
        FlowError::Refused(format!(
            "{interface} cannot direct flows to queues: {reason}: --rps moves all packets of {interface} to CPU {cpu} instead"
        ))
    }

    fn no_queue(&self, reason: &str) -> FlowError {
        let FlowRequest { interface, cpu, .. } = self.request;
        FlowError::Refused(format!("no queue of {interface} can interrupt CPU {cpu}: {reason}"))
    }

    /// Plans a change, if the setting has another value.
    fn change(
        &mut self,
        setting: Setting,
        to: SettingValue,
        reason: String,
        risk: Option<&str>,
    ) -> Result<(), FlowError> {
        let from = setting.read(self.host)?;
        if setting.same(&from, &to) {
            // Other programs must not change it, either.
            self.plan.target.push(TargetSetting { setting, value: from });
        } else {
            let risk = risk.map(str::to_owned);
            let change = PlannedChange { risk, ..PlannedChange::new(setting, from, to, reason) };
            self.plan.changes.push(change);
        }
        Ok(())
    }

    fn add_skipped(&mut self, title: String, reason: &str) {
        self.plan.skipped.push(SkippedFinding::note("flow", title, reason));
    }

    fn add_rule(&mut self) -> Result<(), FlowError> {
        let (interface, cpu, path) = (self.interface(), self.request.cpu, self.path);
        let rss = path.rss_of(&interface).ok_or_else(|| self.no_rules("it was not read"))?;
        let rules = match &rss.ntuple {
            Known::Value(Some(rules)) => rules,
            Known::Value(None) => return Err(self.no_rules("its driver has no rules for flows (ethtool -n)")),
            Known::Unknown { why } => return Err(self.no_rules(why)),
        };
        let texts = self.request.packets.rules();
        let mut used_locations = BTreeSet::new();
        for rule in rules {
            used_locations.insert(rule.location);
            let setting = Setting::NtupleRule { interface: interface.clone(), location: rule.location };
            let Ok(value) = setting.read(self.host) else { continue };
            if let Some((matched, action)) = value.as_str().rsplit_once(" action ")
                && texts.iter().any(|text| text == matched)
            {
                let action = if action == "-1" { "no queue".to_owned() } else { format!("queue {action}") };
                return Err(FlowError::Refused(format!(
                    "{interface} has a rule for these packets: rule {} sends them to {action}",
                    rule.location
                )));
            }
        }
        let rule_queues: BTreeSet<u32> = rules.iter().filter_map(|rule| rule.queue).collect();
        let vector = self.choose_vector(&rule_queues)?;
        let queue = vector.receive_queue.unwrap_or_default();
        let filters = Setting::Offload { interface: interface.clone(), offload: Offload::NtupleFilters };
        if filters.read(self.host).is_ok_and(|now| now.as_str() == "off") {
            // igb lists rules for all its devices, and accepts them from i350 on.
            let is_changeable = self.host.is_offload_changeable(&interface, Offload::NtupleFilters);
            if matches!(is_changeable, Ok(false)) {
                let reason = "its driver has ntuple-filters switched off (ethtool -k: [fixed])";
                return Err(self.no_rules(reason));
            }
            let reason = format!("{interface} accepts rules for flows only with this feature.");
            self.change(filters, SettingValue::new("on"), reason, None)?;
        }
        // If several rules match, the rule with the lowest location is first in most NICs.
        let free = (0..).filter(|location| !used_locations.contains(location));
        for (text, location) in texts.iter().zip(free) {
            let rule = Setting::NtupleRule { interface: interface.clone(), location };
            let reason = format!(
                "{interface} puts {} into queue {queue}, which interrupts CPU {cpu}.",
                self.request.packets
            );
            let risk = "one CPU takes all these packets: not if they are more than one CPU can process";
            self.change(rule, SettingValue::new(format!("{text} action {queue}")), reason, Some(risk))?;
        }
        self.dedicate_cpu(vector)?;
        self.exclude_queue(queue)
    }

    /// The vector of a queue that can interrupt the CPU: a vector that already does, or else the
    /// last vector that can be moved. Queues of other rules come last.
    fn choose_vector(&self, rule_queues: &BTreeSet<u32>) -> Result<&'a IrqVector, FlowError> {
        let (interface, cpu, path) = (self.interface(), self.request.cpu, self.path);
        let receive_vectors =
            || path.irq.vectors(&interface).iter().filter(|vector| vector.receive_queue.is_some());
        match receive_vectors().count() {
            0 => return Err(self.no_queue("its driver has no interrupt per queue")),
            1 => return Err(self.no_queue("its one queue has the packets of all flows")),
            _ => {}
        }
        let can_interrupt = |vector: &&IrqVector| !vector.is_managed() || vector.cpu() == Some(cpu);
        let rank = |vector: &&IrqVector| {
            let is_free = vector.receive_queue.is_some_and(|queue| !rule_queues.contains(&queue));
            (is_free, vector.cpu() == Some(cpu), vector.receive_queue)
        };
        receive_vectors()
            .filter(can_interrupt)
            .max_by_key(rank)
            .ok_or_else(|| self.no_queue("the kernel manages their interrupts"))
    }

    /// The queue's interrupt goes to the CPU alone, and the packets stay there.
    fn dedicate_cpu(&mut self, vector: &IrqVector) -> Result<(), FlowError> {
        let (interface, cpu) = (self.interface(), self.request.cpu);
        let queue = vector.receive_queue.unwrap_or_default();
        if !vector.is_managed() {
            let setting = Setting::IrqAffinity { irq: vector.irq, action: vector.name.clone() };
            let reason = format!("Queue {queue} of {interface} then interrupts CPU {cpu}.");
            self.change(setting, mask([cpu]), reason, None)?;
        }
        if self.path.softirq.rps_cpus(&interface, queue).is_some_and(|cpus| !cpus.is_empty()) {
            let reason = format!("RPS would hand the packets of queue {queue} to other CPUs.");
            self.change(receive_cpus(&interface, queue), mask([]), reason, None)?;
        }
        let other_queues: CpuSet = self
            .path
            .irq
            .vectors(&interface)
            .iter()
            .filter(|other| other.cpu() == Some(cpu))
            .filter_map(|other| other.receive_queue.filter(|other| *other != queue))
            .collect();
        if !other_queues.is_empty() {
            let title = format!("CPU {cpu} also has the packets of queues {other_queues} of {interface}");
            self.add_skipped(title, "their interrupts go there, too");
        }
        Ok(())
    }

    /// The table without the queue. Other flows stay where they are.
    fn exclude_queue(&mut self, queue: u32) -> Result<(), FlowError> {
        let interface = self.interface();
        let rss = self.path.rss_of(&interface);
        let table = match rss.map(|rss| &rss.table) {
            Some(Known::Value(Some(table))) => table,
            Some(Known::Value(None)) | None => {
                let title = format!("Queue {queue} of {interface} gets packets of other flows, too");
                self.add_skipped(title, "the driver has no indirection table that could leave it out");
                return Ok(());
            }
            Some(Known::Unknown { why }) => {
                let line = format!("the indirection table of {interface} cannot be read: {why}");
                return Err(FlowError::Refused(line));
            }
        };
        let no_other_queue = || self.no_queue(&format!("the indirection table names no queue but {queue}"));
        let to = without_queue(table, queue).ok_or_else(no_other_queue)?;
        let reason = format!("Other flows of {interface} then stay out of queue {queue}.");
        let setting = Setting::RssTable { interface };
        self.change(setting, to, reason, Some("the other queues get the packets of this one"))
    }

    /// Without rules of the NIC, the matching packets cannot be separated from others before the
    /// stack.
    fn add_rps(&mut self) -> Result<(), FlowError> {
        let (interface, cpu, path) = (self.interface(), self.request.cpu, self.path);
        let queues = path.softirq.rps_queues(&interface);
        if queues.is_empty() {
            return Err(self.no_queue("it has no receive queues in /sys/class/net"));
        }
        for queue in queues {
            let interrupt_cpus = path.napi_cpus(&interface, queue.queue);
            let is_on_cpu = interrupt_cpus.is_some_and(|cpus| cpus.iter().eq([cpu]));
            let (to, reason) = if is_on_cpu {
                (mask([]), format!("Queue {} of {interface} interrupts CPU {cpu} itself.", queue.queue))
            } else {
                (mask([cpu]), format!("Queue {} of {interface} hands its packets to CPU {cpu}.", queue.queue))
            };
            let risk = "all packets of the interface go to one CPU, not only those that match";
            self.change(receive_cpus(&interface, queue.queue), to, reason, Some(risk))?;
        }
        let title = format!("Other packets of {interface} go to CPU {cpu}, too");
        self.add_skipped(title, "RPS chooses by queue and hash, not by address or port");
        Ok(())
    }
}

fn receive_cpus(interface: &str, queue: u32) -> Setting {
    Setting::QueueCpus { interface: interface.to_owned(), direction: QueueDirection::Receive, queue }
}

fn mask(cpus: impl IntoIterator<Item = u32>) -> SettingValue {
    SettingValue::new(cpus.into_iter().collect::<CpuSet>().to_mask())
}

// `None` if no other queue is left. Only entries of the queue change, so that no other flow moves.
fn without_queue(table: &[u32], queue: u32) -> Option<SettingValue> {
    let other_queues: BTreeSet<u32> = table.iter().copied().filter(|entry| *entry != queue).collect();
    let mut replacements = other_queues.iter().cycle();
    let entries: Option<Vec<String>> = table
        .iter()
        .map(|entry| if *entry == queue { replacements.next() } else { Some(entry) })
        .map(|entry| entry.map(u32::to_string))
        .collect();
    Some(SettingValue::new(entries?.join(",")))
}

#[cfg(test)]
mod tests;
