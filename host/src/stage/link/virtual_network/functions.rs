//! Virtual functions: their owners from sysfs, their limits from the physical function (RTM_GETLINK
//! with `RTEXT_FILTER_VF`).

use std::io;

use netlink_packet_route::link::{LinkAttribute, LinkExtentMask, LinkMessage, LinkVfInfo, VfInfo};

use super::VirtualFunction;
use crate::netlink::link::link_message;
use crate::stage::link::LinkState;
use crate::{Host, Known};

/// The virtual functions of an interface, and how many it describes. `None` without any.
pub(super) fn observe(host: &Host, link: &LinkState) -> Option<(Vec<VirtualFunction>, Known<usize>)> {
    let count = link.sriov.value()?.as_ref()?.active.filter(|count| *count > 0)?;
    let interface = &link.interface;
    let action = format!("reading the virtual functions of {interface}");
    let index = link.index.value().copied();
    let result = host.call::<Vec<VirtualFunction>>(&format!("link/{interface}/functions"), &action, || {
        read_functions(index.ok_or(io::ErrorKind::NotFound)?)
    });
    let result = Known::from(result);
    let described = result.known().map(Vec::len).into();
    let mut functions = result.into_value().unwrap_or_default();
    for number in 0..count {
        if !functions.iter().any(|function| function.number == number) {
            functions.push(VirtualFunction { number, ..VirtualFunction::default() });
        }
    }
    for function in &mut functions {
        let base = format!("/sys/class/net/{interface}/device/virtfn{}", function.number);
        let name = |link: &str| Some(host.read_link(link).ok()?.rsplit('/').next()?.to_owned());
        function.interface.clone_from(interface);
        function.device = name(&base);
        function.driver = name(&format!("{base}/driver"));
        function.interface_here =
            host.list(&format!("{base}/net")).ok().and_then(|names| names.into_iter().next());
    }
    Some((functions, described))
}

fn read_functions(index: u32) -> io::Result<Vec<VirtualFunction>> {
    let filter = LinkAttribute::ExtMask(vec![LinkExtentMask::Vf]);
    Ok(decode(&link_message(index, vec![filter])?))
}

fn decode(link: &LinkMessage) -> Vec<VirtualFunction> {
    let lists = link.attributes.iter().filter_map(|attribute| match attribute {
        LinkAttribute::VfInfoList(functions) => Some(functions),
        _ => None,
    });
    lists.flatten().map(function).collect()
}

fn function(LinkVfInfo(items): &LinkVfInfo) -> VirtualFunction {
    const MAC_BYTES: usize = 6;
    let mut function = VirtualFunction::default();
    for item in items {
        match item {
            VfInfo::Mac(mac) => {
                function.number = mac.vf_id;
                let bytes = mac.mac.iter().take(MAC_BYTES).map(|byte| format!("{byte:02x}"));
                let address = bytes.collect::<Vec<_>>().join(":");
                function.address = (address != "00:00:00:00:00:00").then_some(address);
            }
            VfInfo::Vlan(vlan) => function.vlan = (vlan.vlan_id != 0).then_some(vlan.vlan_id),
            VfInfo::Trust(trust) => function.trusted = Some(trust.enabled),
            VfInfo::SpoofCheck(check) => function.spoof_check = Some(check.enabled),
            VfInfo::Rate(rate) => {
                function.minimum_megabits_per_second = Some(rate.min_tx_rate);
                function.maximum_megabits_per_second = Some(rate.max_tx_rate);
            }
            _ => {}
        }
    }
    function
}

#[cfg(test)]
mod tests {
    use netlink_packet_route::link::{VfInfoMac, VfInfoRate, VfInfoSpoofCheck, VfInfoTrust, VfInfoVlan};

    use super::*;

    #[test]
    fn vf_limits_are_decoded_from_the_physical_function() {
        let mut link = LinkMessage::default();
        link.attributes = vec![LinkAttribute::VfInfoList(vec![LinkVfInfo(vec![
            VfInfo::Mac(VfInfoMac::new(1, &[0x52, 0x54, 0, 0, 0, 7])),
            VfInfo::Vlan(VfInfoVlan::new(1, 12, 0)),
            VfInfo::Trust(VfInfoTrust::new(1, false)),
            VfInfo::SpoofCheck(VfInfoSpoofCheck::new(1, true)),
            VfInfo::Rate(VfInfoRate::new(1, 0, 500)),
        ])])];
        let expected = VirtualFunction {
            number: 1,
            address: Some("52:54:00:00:00:07".into()),
            vlan: Some(12),
            trusted: Some(false),
            spoof_check: Some(true),
            minimum_megabits_per_second: Some(0),
            maximum_megabits_per_second: Some(500),
            ..VirtualFunction::default()
        };
        assert_eq!(decode(&link), [expected]);
        // The loopback has none.
        assert_eq!(read_functions(1).expect("an answer"), []);
    }
}
