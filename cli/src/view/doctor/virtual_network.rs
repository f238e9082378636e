//! Virtual machines and containers: their interfaces, vhost threads and virtual functions.

use linerate_host::stage::link::virtual_network::{PortOwner, VirtualFunction, VirtualNetwork};
use serde::Deserialize;
use serde_json::Value;

use crate::document::{Audience, Section, Table};

/// Sections from the state of the stages; none for a document of an earlier version.
pub(super) fn sections(stages: &Value) -> Vec<Section> {
    let Some(network) =
        stages.get("virtual_network").and_then(|state| VirtualNetwork::deserialize(state).ok())
    else {
        return Vec::new();
    };
    let tables = [
        ("Interfaces of virtual machines and containers", ports(&network)),
        ("vhost threads", vhost(&network)),
        ("Virtual functions", functions(&network.functions)),
    ];
    tables.map(|(heading, table)| Section::new(heading).only_for(Audience::Full).with(table)).into()
}

fn ports(network: &VirtualNetwork) -> Table {
    let headings =
        "interface | kind | of | >virtual CPUs | port of | >queues | >packets in | >out | >dropped";
    Table::new(headings).with_rows(network.ports.iter().map(|port| {
        let owner = port.owner.as_ref();
        let total = |name| port.total(name).map_or_else(|| "?".to_owned(), |count| count.to_string());
        let dropped = port.total("rx_dropped").zip(port.total("tx_dropped"));
        [
            port.interface.clone(),
            port.kind.to_string(),
            owner.map_or_else(|| "-".to_owned(), PortOwner::to_string),
            owner.and_then(|owner| owner.virtual_cpus).map_or_else(String::new, |cpus| cpus.to_string()),
            port.master.clone().unwrap_or_default(),
            port.receive_queues.to_string(),
            total("rx_packets"),
            total("tx_packets"),
            dropped.map_or_else(|| "?".to_owned(), |(rx, tx)| (rx + tx).to_string()),
        ]
    }))
}

fn vhost(network: &VirtualNetwork) -> Table {
    let machine = |pid: u32| {
        let owners = network.ports.iter().filter_map(|port| port.owner.as_ref());
        let owner = owners.into_iter().find(|owner| owner.pid == pid);
        owner.map_or_else(|| pid.to_string(), |owner| owner.name.clone())
    };
    Table::new(">thread | virtual machine | >CPU | >node | may run on").with_rows(network.vhost.iter().map(
        |thread| {
            let number =
                |number: Option<u32>| number.map_or_else(|| "?".to_owned(), |number| number.to_string());
            let allowed = thread.allowed.value();
            [
                thread.tid.to_string(),
                machine(thread.pid),
                number(thread.last_cpu),
                number(thread.node),
                allowed.map_or_else(|| "?".to_owned(), |cpus| format!("CPU {cpus}")),
            ]
        },
    ))
}

fn functions(functions: &[VirtualFunction]) -> Table {
    let headings =
        "function | device | driver | interface | address | >VLAN | trusted | spoof check | limit in Mbit/s";
    Table::new(headings).with_rows(functions.iter().map(|function| {
        let text = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
        let flag = |flag: Option<bool>| flag.map_or("?", |is_on| if is_on { "on" } else { "off" }).to_owned();
        let limit = match (function.minimum_megabits_per_second, function.maximum_megabits_per_second) {
            (Some(0), Some(0)) => "none".to_owned(),
            (Some(minimum), Some(0)) => format!("at least {minimum}"),
            (Some(minimum), Some(maximum)) => format!("{minimum}-{maximum}"),
            _ => "?".to_owned(),
        };
        [
            format!("{} vf {}", function.interface, function.number),
            text(&function.device),
            match function.driver.as_deref() {
                Some("vfio-pci") => "vfio-pci (in a virtual machine)".to_owned(),
                _ => text(&function.driver),
            },
            text(&function.interface_here),
            text(&function.address),
            function.vlan.map_or_else(String::new, |vlan| vlan.to_string()),
            flag(function.trusted),
            flag(function.spoof_check),
            limit,
        ]
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::Document;
    use crate::render::style::TextStyle;
    use crate::render::text;
    use crate::view::doctor::tests::fixture_diagnosis;

    #[test]
    fn full_text_lists_virtual_machines_and_functions() {
        let stages = fixture_diagnosis("kvm-host").result.stages;
        let document = Document { sections: sections(&stages), full: true, ..Document::default() };
        let text = text::text(&document, TextStyle { width: 120, colour: false });
        assert!(text.contains("tap0       tap     web1 (6001), machine-qemu-web1.scope"), "{text}");
        assert!(text.contains("6020  web1"), "{text}");
        let limits = VirtualFunction {
            interface: "ens1f0".into(),
            driver: Some("vfio-pci".into()),
            spoof_check: Some(true),
            minimum_megabits_per_second: Some(0),
            maximum_megabits_per_second: Some(500),
            ..VirtualFunction::default()
        };
        let row: Vec<String> =
            functions(&[limits]).rows.remove(0).into_iter().map(|cell| cell.text).collect();
        assert_eq!(
            row,
            ["ens1f0 vf 0", "-", "vfio-pci (in a virtual machine)", "-", "-", "", "?", "on", "0-500"]
        );
        assert!(sections(&serde_json::json!({})).is_empty());
    }
}
