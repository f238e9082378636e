//! `linerate tune flow`: a queue and a CPU for the packets of one service or virtual machine.

use anyhow::{Result, bail};
use clap::Args;
use linerate_host::stage::link::DeviceKind;
use linerate_host::{Host, PacketPath};
use linerate_tune::TunePlan;
use linerate_tune::conflicts::{self, SettingOwners};
use linerate_tune::flow::{self, FlowMatch, FlowRequest};

use super::apply::ChangeOptions;
use crate::command::doctor::arguments::ScopeArgs;

#[derive(Debug, Args)]
pub(super) struct TuneFlowArgs {
    #[command(flatten)]
    pub(super) target: FlowTarget,
    /// Network interface on which the packets arrive [default: the one with a device]
    #[arg(short = 'i', long, value_name = "IF")]
    interface: Option<String>,
    #[command(flatten)]
    pub(super) options: ChangeOptions,
}

#[derive(Debug, Clone, Args)]
pub(super) struct FlowTarget {
    /// The CPU that processes the packets
    #[arg(long = "to", value_name = "CPU")]
    cpu: u32,
    /// The packets: 'dst 192.0.2.5 udp port 53', 'udp port 53', 'ether dst 52:54:00:12:34:56'
    #[arg(long = "match", value_name = "PACKETS")]
    packets: FlowMatch,
    /// For a NIC without rules: hand all packets of the interface to the CPU
    #[arg(long)]
    rps: bool,
}

impl TuneFlowArgs {
    pub(super) fn scope(&self) -> ScopeArgs {
        ScopeArgs::of_interface(self.interface.clone())
    }
}

impl FlowTarget {
    /// The plan, and parts of the host that could not be read.
    pub(super) fn plan(&self, host: &Host, scope: &ScopeArgs) -> Result<(TunePlan, Vec<String>)> {
        let scope = scope.scope().unwrap_or_default();
        let path = PacketPath::observe(host, &scope);
        let interface = match scope.interfaces.first() {
            Some(interface) => interface.clone(),
            None => only_interface(&path)?,
        };
        let request = FlowRequest { interface, cpu: self.cpu, packets: self.packets.clone(), rps: self.rps };
        let mut plan = flow::plan(host, &path, &request)?;
        let owners = SettingOwners::observe(host);
        if let Some(change) = conflicts::resolve(&mut plan, &owners).last() {
            // A rule to a queue whose interrupt stays elsewhere would bring the packets to another CPU.
            let skipped = plan.skipped.last();
            bail!(
                "nothing was changed: {} cannot be set to {}: {}{}",
                change.setting,
                change.to,
                skipped.map_or("another program sets it", |skipped| &skipped.why),
                skipped
                    .filter(|skipped| !skipped.commands.is_empty())
                    .map_or_else(String::new, |skipped| format!(": {}", skipped.commands.join("; ")))
            );
        }
        let unread_owners = owners.unknown().iter();
        Ok((
            plan,
            unread_owners
                .map(|owner| format!("Other tools may manage the same settings: {owner}."))
                .collect(),
        ))
    }
}

fn only_interface(path: &PacketPath) -> Result<String> {
    let has_device = |kind| matches!(kind, Some(DeviceKind::Hardware | DeviceKind::Virtio));
    let names: Vec<&str> = path
        .link
        .iter()
        .filter(|link| link.is_up() && has_device(link.device.value().copied()))
        .map(|link| link.interface.as_str())
        .collect();
    match names.as_slice() {
        [name] => Ok((*name).to_owned()),
        [] => bail!("no interface with a device is up: name one with --interface"),
        names => bail!("name the interface with --interface: {}", names.join(", ")),
    }
}
